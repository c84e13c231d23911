"""SVHN and Oxford 102 Flowers: MATLAB files of version 5, which SciPy reads."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.errors import FileError
from rhocal_paper.train.data.archive import walk
from rhocal_paper.train.data.dataset import Dataset, Images, dataset
from rhocal_paper.train.data.official import OFFICIAL
from rhocal_paper.train.data.pictures import Decoder

if TYPE_CHECKING:
    from pathlib import Path

SETS = {"train": "trnid", "tune": "valid", "test": "tstid"}
N_FLOWERS = 102


def read_mat(path: Path, *names: str) -> list[Any]:
    """Numeric arrays of the file, by name."""
    from scipy.io import loadmat  # noqa: PLC0415
    from scipy.io.matlab import MatReadError  # noqa: PLC0415

    try:
        content = loadmat(path, variable_names=names)
    except (ValueError, TypeError, OSError, NotImplementedError, MatReadError) as error:
        raise FileError(f"{path}: damaged, or not a MATLAB file of version 5: {error}") from error
    for name in names:
        if name not in content or content[name].dtype.kind not in "iuf":
            raise FileError(f"{path}: has no array of numbers {name!r}")
    return [content[name] for name in names]


def read_svhn(root: Path) -> Dataset:
    """Cropped digits: X (32, 32, 3, n) and y (n, 1), where 10 stands for the digit 0."""
    parts = []
    for split in ("train", "test"):
        path = root / f"{split}_32x32.mat"
        if not path.is_file():
            raise OFFICIAL["svhn"].missing(root)
        pixels, labels = read_mat(path, "X", "y")
        if pixels.ndim != 4 or pixels.dtype != np.uint8:
            raise FileError(f"{path}: X is {pixels.dtype} {pixels.shape}; expected bytes (32, 32, 3, n)")
        parts.append(Images(np.ascontiguousarray(pixels.transpose(3, 0, 1, 2)), labels.ravel().astype(np.int64) % 10))
    return dataset("SVHN", parts[0], parts[1], tuple(map(str, range(10))), mirror=False)


def read_flowers(root: Path, size: int | None) -> Dataset:
    """``image_00001.jpg`` …, their classes 1 to 102 in order, and the numbers of each set. The calibration set is ``valid``."""
    pictures = next((root / name for name in ("102flowers.tgz", "jpg") if (root / name).exists()), None)
    if pictures is None or not all((root / name).is_file() for name in ("imagelabels.mat", "setid.mat")):
        raise OFFICIAL["flowers102"].missing(root)
    labels = read_mat(root / "imagelabels.mat", "labels")[0].ravel().astype(np.int64) - 1
    sets = dict(zip(SETS, read_mat(root / "setid.mat", *SETS.values()), strict=True))
    decode = Decoder(pictures, size)
    found = {
        PurePosixPath(name).name: decode(name, data)
        for name, data in walk(pictures, lambda name: name.endswith(".jpg"))
    }
    parts = {}
    for part, numbers in sets.items():
        rows = numbers.ravel().astype(np.int64)
        names = [f"image_{k:05d}.jpg" for k in rows]
        absent = [name for name in names if name not in found]
        if absent or not len(rows) or rows.min() < 1 or rows.max() > len(labels):
            raise FileError(f"{pictures}: {len(absent)} pictures of the {part} set are missing ({absent[:1]})")
        parts[part] = Images(np.stack([found[name] for name in names]), labels[rows - 1])
    classes = tuple(f"{k:03d}" for k in range(1, N_FLOWERS + 1))
    return dataset("Oxford 102 Flowers", parts["train"], parts["test"], classes, tune=parts["tune"])
