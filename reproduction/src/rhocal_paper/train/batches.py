"""From stored pixels to what a network sees: shifts, mirrors, normalisation, and blends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from rhocal_paper.train.data import Images
    from rhocal_paper.train.data.dataset import Pixels
    from rhocal_paper.train.recipe import Recipe

SHIFT = 8
"""Images move by up to an eighth of their side: 4 of 32 pixels, as in He et al. 2016."""


@dataclass(frozen=True)
class Normal:
    """Mean and standard deviation of each channel of the training images."""

    mean: tuple[float, ...]
    sd: tuple[float, ...]

    @classmethod
    def of(cls, pixels: Pixels) -> Normal:
        """From the histogram of each channel: exact, and no copy of the images as floats."""
        values = np.arange(256)
        mean, sd = [], []
        for k in range(pixels.shape[3]):
            share = np.bincount(pixels[..., k].ravel(), minlength=256) / pixels[..., k].size
            mean.append(float(share @ values))
            sd.append(float(np.sqrt(share @ (values - mean[-1]) ** 2)) or 1.0)  # an empty channel stays as it is
        return cls(tuple(mean), tuple(sd))

    def on(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        """The normalization as a function of bytes (n, h, w, c); its result is (n, c, h, w), stored channels last.

        Mean and deviation are copied to the device once: a copy for every batch would make the host wait.
        """
        mean, sd = (torch.tensor(values, device=device) for values in (self.mean, self.sd))
        return lambda images: ((images.float() - mean) / sd).permute(0, 3, 1, 2)


@dataclass(frozen=True)
class Batch:
    """What one step sees. With mixup, the partners' labels have the share that is left."""

    images: Tensor
    labels: Tensor
    rows: Tensor
    """Numbers of the training images."""
    partners: Tensor | None = None
    share: float = 1.0

    def part(self, rank: int, n_processes: int) -> Batch:
        """What one of several processes sees of it."""
        if n_processes == 1:
            return self
        mine = slice(rank, None, n_processes)
        partners = None if self.partners is None else self.partners[mine]
        return Batch(self.images[mine], self.labels[mine], self.rows[mine], partners, self.share)


@dataclass(frozen=True)
class EpochDraws:
    """All random numbers of an epoch, drawn by NumPy from the seed and the epoch alone.

    So an epoch is the same on every device, and whether the ones before it ran in this process or in an interrupted one.
    They are copied to the device once an epoch: a copy for every step would make the host wait for the device.
    """

    bounds: list[tuple[int, int]]
    """First and last row of every batch, in the order of the epoch."""
    order: Tensor
    shifts: Tensor | None
    """Pixels down and to the right, from 0 to twice the reach."""
    mirrored: Tensor | None
    partners: Tensor | None
    """Position of the mixup partner within the batch."""
    shares: list[float]

    @classmethod
    def of(
        cls, n_images: int, reach: int, recipe: Recipe, epoch: int, device: torch.device, *, mirror: bool
    ) -> EpochDraws:
        """Draw them. A single image left over at the end is skipped: batch normalization needs two."""
        rng = np.random.default_rng([recipe.seed, epoch])
        order = rng.permutation(n_images)
        starts = range(0, n_images, recipe.batch_size)
        bounds = [(start, min(start + recipe.batch_size, n_images)) for start in starts if n_images - start > 1]
        shifts, mirrored, partners, shares = [], [], [], []
        for start, stop in bounds:
            n = stop - start
            if recipe.augment:
                shifts.append(rng.integers(0, 2 * reach + 1, (2, n)))
                if mirror:
                    mirrored.append(rng.random(n) < 0.5)
            if recipe.mixup > 0:
                shares.append(float(rng.beta(recipe.mixup, recipe.mixup)))
                partners.append(rng.permutation(n))

        def there(parts: list[NDArray[Any]]) -> Tensor | None:
            return torch.from_numpy(np.concatenate(parts, axis=-1)).to(device) if parts else None

        return cls(
            bounds, torch.from_numpy(order).to(device), there(shifts), there(mirrored), there(partners), shares
        )  # fmt: skip


def on(images: Images, device: torch.device) -> tuple[Tensor, Tensor]:
    """Pixels and labels, kept as bytes where training happens."""
    return torch.from_numpy(images.pixels).to(device), torch.from_numpy(images.labels).to(device)


def reach_of(pixels: Tensor) -> int:
    """The longest shift of images (n, h, w, c), in pixels."""
    return max(1, min(pixels.shape[1:3]) // SHIFT)


def epoch_batches(
    pixels: Tensor, labels: Tensor, normal: Normal, recipe: Recipe, epoch: int, *, mirror: bool
) -> Iterator[Batch]:
    """Every image once, in the order and with the shifts and blends that the epoch draws."""
    normalize = normal.on(pixels.device)
    draws = EpochDraws.of(len(labels), reach_of(pixels), recipe, epoch, pixels.device, mirror=mirror)
    for k, (start, stop) in enumerate(draws.bounds):
        rows = draws.order[start:stop]
        images = pixels[rows]
        if draws.shifts is not None:
            mirrored = None if draws.mirrored is None else draws.mirrored[start:stop]
            images = augmented(images, draws.shifts[:, start:stop], mirrored)
        seen, mine = normalize(images), labels[rows]
        if draws.partners is not None:
            share, partner = draws.shares[k], draws.partners[start:stop]
            yield Batch(share * seen + (1 - share) * seen[partner], mine, rows, mine[partner], share)
        else:
            yield Batch(seen, mine, rows)


def augmented(images: Tensor, shifts: Tensor, mirrored: Tensor | None) -> Tensor:
    """Each image (h, w, c) shifted, black coming in, and mirrored where ``mirrored`` is true."""
    n, height, width, _ = images.shape
    reach = reach_of(images)
    padded = functional.pad(images, (0, 0, reach, reach, reach, reach))
    down, right = shifts
    rows = down[:, None] + torch.arange(height, device=images.device)
    columns = right[:, None] + torch.arange(width, device=images.device)
    if mirrored is not None:
        columns = torch.where(mirrored[:, None], columns.flip(1), columns)
    which = torch.arange(n, device=images.device)[:, None, None]
    return padded[which, rows[:, :, None], columns[:, None, :]]
