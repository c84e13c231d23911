"""Scores on a device: validated, fitted and calibrated there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from rhocal.calibrators.exporting import exported_map
from rhocal.calibrators.scoring import apply_map
from rhocal.data.predictions import SMALLEST_PROB
from rhocal.data.scores import LARGEST_BESIDE_MASKS
from rhocal.errors import InputError
from rhocal.numerics.kernels import Scan
from rhocal.torch.module import CalibratorModule
from rhocal.torch.passes import TensorPasses

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.calibrators import Calibrator
    from rhocal.calibrators.exporting import Output
    from rhocal.data.predictions import Kind
    from rhocal.numerics.special import Vector


@dataclass(frozen=True)
class TensorScores:
    """``rhocal.data.arrays.DeviceScores`` of a tensor of shape (n_samples, n_classes)."""

    table: Tensor

    @classmethod
    def from_tensor(cls, scores: Tensor, class_axis: int) -> Self:
        """The classes of a tensor of any shape as columns; a copy is made only if their axis is not the last."""
        return cls(scores.detach().movedim(class_axis, -1).reshape(-1, scores.shape[class_axis]))

    @property
    def shape(self) -> tuple[int, int]:
        n_samples, n_classes = self.table.shape
        return n_samples, n_classes

    @property
    def nbytes(self) -> int:
        return self.table.nbytes

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, rows: NDArray[Any] | slice) -> Self:
        index = rows if isinstance(rows, slice) else torch.as_tensor(rows, device=self.table.device)
        return type(self)(self.table[index])

    def scan(self) -> Scan:
        top, column = self.table.max(dim=1)
        total = self.passes().sums()
        return Scan(column.cpu().numpy().astype(np.intp), _on_host(top), total, float(self.table.min()))

    def gather(self, columns: NDArray[np.intp]) -> Vector:
        index = torch.as_tensor(columns, device=self.table.device)
        return _on_host(self.table.gather(1, index[:, None])[:, 0])

    def exp(self) -> Self:
        return type(self)(_widened(self.table).clamp(max=1).exp())

    def finite_masks(self) -> Self:
        wide = self.table.float() if self.table.dtype == torch.float16 else self.table
        size = wide.masked_fill(torch.isneginf(wide), 0).abs().max() if wide.numel() else 0
        if size > LARGEST_BESIDE_MASKS * torch.finfo(wide.dtype).max:
            lowest = torch.finfo(wide.dtype).min
            low = (wide <= lowest) & (wide.amax(dim=1, keepdim=True) > lowest)
            wide = wide.double().masked_fill(low, -torch.inf)
        return type(self)(wide.clamp(min=torch.finfo(wide.dtype).min))

    def as_logits(self, kind: Kind, smallest_prob: float | None = None) -> Self:
        if kind == "logits":
            return self
        wide = _widened(self.table)
        if kind == "probs":
            return type(self)(wide.clamp(min=smallest_prob or SMALLEST_PROB).log())
        return type(self)(wide.clamp(min=float(np.log(smallest_prob or SMALLEST_PROB))))

    def passes(self) -> TensorPasses:
        return TensorPasses(self.table)

    def to_host(self) -> Tensor:
        return self.table.cpu()


def _widened(table: Tensor) -> Tensor:
    return table.to(torch.promote_types(table.dtype, torch.float32))


def _on_host(values: Tensor) -> Vector:
    host: Vector = values.cpu().double().numpy()
    return host


def calibrated_tensor(
    cal: Calibrator, scores: Tensor, output: Output, kind: Kind, class_axis: int, groups: Any
) -> Tensor:
    """Logits or probabilities on the device of the scores, without gradients (``to_torch`` has them).

    In the memory of the host NumPy does it on the same memory. On another device torch does it there.
    """
    values = scores.detach()
    if values.device.type == "cpu" or not cal.is_portable:
        array = values.cpu().float() if values.dtype == torch.bfloat16 else values.cpu()
        out = apply_map(cal, array.numpy(), output, kind, class_axis, groups)
        return torch.from_numpy(np.ascontiguousarray(out)).to(values.device)
    return on_device(cal, values, output, kind, class_axis)


def on_device(cal: Calibrator, values: Tensor, output: str, kind: Kind, class_axis: int) -> Tensor:
    """The map where the scores are; only the fitted numbers are copied."""
    bad = int((~(torch.isfinite(values) | torch.isneginf(values) if kind != "probs" else torch.isfinite(values))).sum())
    if bad:
        raise InputError(f"logits must be finite; {bad} entries are NaN or infinite. Leave those rows out")
    module = CalibratorModule(replace(exported_map(cal), kind=kind), output=output, class_axis=class_axis)
    with torch.no_grad():
        wide = values.to(torch.promote_types(values.dtype, torch.float32))
        out: Tensor = module.to(values.device)(wide)
    return out
