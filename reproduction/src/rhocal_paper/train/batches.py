"""From stored pixels to what a network sees: shifts, mirrors, normalisation, and blends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Iterator

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

    def __call__(self, images: Tensor) -> Tensor:
        """Bytes (n, h, w, c) to numbers (n, c, h, w), stored channels last."""
        mean, sd = (torch.tensor(values, device=images.device) for values in (self.mean, self.sd))
        return ((images.float() - mean) / sd).permute(0, 3, 1, 2)


@dataclass(frozen=True)
class Batch:
    """What one step sees. With mixup, the partners' labels have the share that is left."""

    images: Tensor
    labels: Tensor
    partners: Tensor | None = None
    share: float = 1.0


def on(images: Images, device: torch.device) -> tuple[Tensor, Tensor]:
    """Pixels and labels, kept as bytes where training happens."""
    return torch.from_numpy(images.pixels).to(device), torch.from_numpy(images.labels).to(device)


def epoch_batches(
    pixels: Tensor, labels: Tensor, normal: Normal, recipe: Recipe, epoch: int, *, mirror: bool
) -> Iterator[Batch]:
    """Every image once, in an order, with shifts and with blends that depend on the seed and the epoch alone.

    So an epoch is the same whether the ones before it ran in this process or in an interrupted one. A single image left
    over at the end is skipped: batch normalisation has nothing to compare it with.
    """
    rng = np.random.default_rng([recipe.seed, epoch])
    order = rng.permutation(len(labels))
    for start in range(0, len(order), recipe.batch_size):
        rows = torch.from_numpy(order[start : start + recipe.batch_size]).to(pixels.device)
        if len(rows) < 2:
            continue
        images = pixels[rows]
        if recipe.augment:
            images = augmented(images, rng, mirror=mirror)
        seen, mine = normal(images), labels[rows]
        if recipe.mixup > 0:
            share = float(rng.beta(recipe.mixup, recipe.mixup))
            partner = torch.from_numpy(rng.permutation(len(rows))).to(pixels.device)
            yield Batch(share * seen + (1 - share) * seen[partner], mine, mine[partner], share)
        else:
            yield Batch(seen, mine)


def augmented(images: Tensor, rng: np.random.Generator, *, mirror: bool) -> Tensor:
    """Each image (h, w, c) shifted by a random number of pixels, black coming in, and mirrored half the time."""
    n, height, width, _ = images.shape
    reach = max(1, min(height, width) // SHIFT)
    padded = functional.pad(images, (0, 0, reach, reach, reach, reach))
    down, right = torch.from_numpy(rng.integers(0, 2 * reach + 1, (2, n))).to(images.device)
    rows = down[:, None] + torch.arange(height, device=images.device)
    columns = right[:, None] + torch.arange(width, device=images.device)
    if mirror:
        flipped = torch.from_numpy(rng.random(n) < 0.5).to(images.device)
        columns = torch.where(flipped[:, None], columns.flip(1), columns)
    which = torch.arange(n, device=images.device)[:, None, None]
    return padded[which, rows[:, :, None], columns[:, None, :]]
