"""The passes of a fit over logits on any device: only one or a few numbers a sample come to the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from rhocal.profile.passes import FEW_CLASSES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from rhocal.numerics.special import Vector

BLOCK_ENTRIES = 1 << 24
"""Entries handled at a time: temporary memory of 64 MB an array in single precision."""


@dataclass(frozen=True)
class TensorPasses:
    """``rhocal.profile.passes.Passes`` over a tensor of shape (n_samples, n_classes), where it is."""

    logits: Tensor

    def take(self, rows: NDArray[np.intp]) -> TensorPasses:
        return TensorPasses(self.logits[torch.as_tensor(rows, device=self.logits.device)])

    def sums(self) -> Vector:
        """Sum of the logits of every sample."""
        return self._each(lambda z, _: z.sum(dim=1))

    def means(self) -> Vector:
        def read(z: Tensor, _: slice) -> Tensor:
            top = z.amax(dim=1)
            return torch.stack([top, (z - top[:, None]).mean(dim=1)])  # a mean far above the range would cost digits

        return np.asarray(self._each(read).sum(axis=0))

    def largest(self, k: int) -> Vector:
        k = min(k, self.logits.shape[1])
        return np.ascontiguousarray(self._each(lambda z, _: z.topk(k, dim=1).values.T).T)

    def norms(self, rhos: Sequence[float], *, center: bool) -> Vector:
        def read(z: Tensor, _: slice) -> Tensor:
            size, unit = _sizes(z, center=center)
            sums = torch.stack([(size**rho).sum(dim=1) ** (1 / rho) for rho in rhos])
            return unit * sums

        return np.ascontiguousarray(self._each(read).T)

    def norm_slope(self, rho: float, *, center: bool) -> tuple[Vector, Vector]:
        def read(z: Tensor, _: slice) -> Tensor:
            size, unit = _sizes(z, center=center)
            logs = size.clamp(min=torch.finfo(z.dtype).tiny).log()
            powers = torch.where(size > 0, (rho * logs).exp(), 0)
            total = powers.sum(dim=1).clamp(min=1)
            norm = unit * total ** (1 / rho)
            return torch.stack([norm, norm * ((powers * logs).sum(dim=1) / total / rho - total.log() / rho**2)])

        norm, slope = self._each(read)
        return norm, slope

    def curve(self, top: Vector, scale: Vector, order: int) -> tuple[Vector, ...]:
        def read(z: Tensor, rows: slice) -> Tensor:
            z = z - self._on_device(top[rows], z)[:, None]
            e = (z * self._on_device(scale[rows], z)[:, None]).exp()
            total = e.sum(dim=1)
            moments = []
            for _ in range(order):
                e = e * z
                moments.append(e.sum(dim=1) / total)
            mean = moments[0]
            derivatives = [total.log(), mean]
            if order > 1:
                derivatives.append((moments[1] - mean**2).clamp(min=0))
            if order > 2:
                derivatives.append(moments[2] - 3 * mean * moments[1] + 2 * mean**3)
            return torch.stack(derivatives)

        return tuple(self._each(read))

    def moments(self, top: Vector, scales: Vector) -> Vector:
        def read(z: Tensor, rows: slice) -> Tensor:
            z = z - self._on_device(top[rows], z)[:, None]
            sums = []
            for scale in scales:
                e = (z * float(scale)).exp()
                sums.append(torch.stack([e.sum(dim=1), (e * z).sum(dim=1), (e * z * z).sum(dim=1)]))
            return torch.stack(sums, dim=1)

        return self._each(read)

    def moments_at(self, top: Vector, scale: Vector) -> Vector:
        def read(z: Tensor, rows: slice) -> Tensor:
            z = z - self._on_device(top[rows], z)[:, None]
            exponents = z * self._on_device(scale[rows], z)[:, None]
            sums = []
            for factor, orders in ((0.5, 2), (1.0, 5), (2.0, 2)):
                e = (exponents * factor).exp()
                sums += [(e * z**k).sum(dim=1) for k in range(orders)]
            return torch.stack(sums)

        return self._each(read)

    def _each(self, read: Callable[[Tensor, slice], Tensor]) -> Vector:
        """What is read from each block of rows, in float64 on the host; samples are the last axis."""
        parts = [read(z, rows).cpu().double().numpy() for z, rows in self._blocks()]
        return np.concatenate(parts, axis=-1)

    def _blocks(self) -> Iterator[tuple[Tensor, slice]]:
        """Rows in double precision if there are few classes (as with arrays), else in single."""
        n, m = self.logits.shape
        double = self.logits.dtype == torch.float64 or (m <= FEW_CLASSES and self.logits.device.type != "mps")
        step = max(1, BLOCK_ENTRIES // m)
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            yield self.logits[rows].to(torch.float64 if double else torch.float32), rows

    def _on_device(self, values: Vector, like: Tensor) -> Tensor:
        return torch.as_tensor(values).to(like.dtype).to(like.device)


def _sizes(z: Tensor, *, center: bool) -> tuple[Tensor, Tensor]:
    """|z| in units of the largest of its row, and that unit."""
    if center:  # relative to the largest entry: a mean far above the range would cost digits
        z = z - z.amax(dim=1, keepdim=True)
        z = z - z.mean(dim=1, keepdim=True)
    size = z.abs()
    unit = size.amax(dim=1)
    return size / torch.where(unit > 0, unit, 1)[:, None], unit
