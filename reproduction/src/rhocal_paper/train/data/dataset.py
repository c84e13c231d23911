"""What every reader gives: images with labels, in sets that never share an image."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.errors import FileError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8]
    Labels = NDArray[np.int64]

TUNE_SHARE = 0.1
SPLIT_SEED = 0
"""Fixed: networks trained with different seeds are tuned on the same images."""


@dataclass(frozen=True)
class Images:
    """Pixels (n, height, width, channels) and labels 0 … m − 1."""

    pixels: Pixels
    labels: Labels

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: NDArray[Any]) -> Images:
        """Some of them."""
        return Images(self.pixels[rows], self.labels[rows])


@dataclass(frozen=True)
class Dataset:
    """A set to train on, one to tune calibrators on and one to test on."""

    name: str
    train: Images
    tune: Images
    test: Images
    classes: tuple[str, ...]
    mirror: bool = True
    """Whether an image seen in a mirror is of the same class: not so for digits."""

    def with_share(self, share: float) -> Dataset:
        """With a share of the training images of every class, always the same ones."""
        if share == 1:
            return self
        return replace(self, train=self.train.take(held_out(self.train.labels, share)[0]))


def dataset(
    name: str, train: Images, test: Images, classes: tuple[str, ...], *, tune: Images | None = None, mirror: bool = True
) -> Dataset:
    """Check the parts, and hold a calibration set out of training where the data has none of its own."""
    for part, images in (("training", train), ("tune", tune), ("test", test)):
        if images is None:
            continue
        if not len(images):
            raise FileError(f"{name}: no {part} images found")
        if len(images.pixels) != len(images.labels):
            raise FileError(f"{name}: {len(images.pixels)} {part} images, but {len(images.labels)} labels")
        if images.labels.min() < 0 or images.labels.max() >= len(classes):
            raise FileError(
                f"{name}: {part} labels go from {images.labels.min()} to {images.labels.max()}; "
                f"expected 0 to {len(classes) - 1}"
            )
        if images.pixels.shape[1:] != train.pixels.shape[1:]:
            raise FileError(f"{name}: {part} images are {images.pixels.shape[1:]}, others {train.pixels.shape[1:]}")
    if tune is None:
        held, kept = held_out(train.labels, TUNE_SHARE)
        train, tune = train.take(kept), train.take(held)
    return Dataset(name, train, tune, test, classes, mirror)


def held_out(labels: Labels, share: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row numbers of a random share of every class (at least one image), and of the rest; always the same.

    >>> held, kept = held_out(np.array([0] * 10 + [1] * 20), 0.1)
    >>> len(held), len(kept)
    (3, 27)
    """
    order = np.random.default_rng(SPLIT_SEED).permutation(len(labels))
    held = []
    for c in np.unique(labels):
        mine = order[labels[order] == c]
        held.append(mine[: max(1, round(share * len(mine)))] if len(mine) > 1 else mine[:0])
    rows = np.sort(np.concatenate(held))
    return rows, np.setdiff1d(np.arange(len(labels)), rows)
