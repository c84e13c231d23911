"""Fashion-MNIST (and MNIST) in the idx format: two zero bytes, a type, the number of axes, their lengths, the numbers."""

from __future__ import annotations

import gzip
import struct
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.errors import FileError
from rhocal_paper.train.data.archive import LARGEST
from rhocal_paper.train.data.dataset import Dataset, Images, dataset
from rhocal_paper.train.data.official import OFFICIAL

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

BYTES = 0x08
BORDER = 2
"""28 px become 32, the size that the networks halve five times."""

CLASSES = ("T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")


def read_fashion(root: Path) -> Dataset:
    """Read the four files, packed or not."""
    parts = []
    for split in ("train", "t10k"):
        pixels, labels = (
            read_idx(_find(root, f"{split}-{kind}-ubyte"), axes)
            for kind, axes in (("images-idx3", 3), ("labels-idx1", 1))
        )
        padded = np.pad(pixels, ((0, 0), (BORDER, BORDER), (BORDER, BORDER)))[..., None]
        parts.append(Images(padded, labels.astype(np.int64)))
    return dataset("Fashion-MNIST", parts[0], parts[1], CLASSES)


def _find(root: Path, name: str) -> Path:
    for path in (root / f"{name}.gz", root / name):
        if path.is_file():
            return path
    raise OFFICIAL["fashion-mnist"].missing(root)


def read_idx(path: Path, axes: int) -> NDArray[Any]:
    """An array of bytes with so many axes."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            data = stream.read(LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise FileError(f"{path}: damaged: {error}") from error
    if len(data) > LARGEST:
        raise FileError(f"{path}: more than {LARGEST:,} bytes; not read any further")
    start = 4 + 4 * axes
    if len(data) < start or data[:4] != bytes((0, 0, BYTES, axes)):
        raise FileError(
            f"{path}: begins with {data[:4].hex(' ')}; an idx file of bytes with {axes} axes begins 00 00 08 0{axes}"
        )
    shape = struct.unpack(f">{axes}I", data[4:start])
    if len(data) - start != np.prod(shape, dtype=np.int64):
        raise FileError(f"{path}: says {shape}, but holds {len(data) - start} bytes")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)
