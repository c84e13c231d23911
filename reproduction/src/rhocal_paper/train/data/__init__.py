"""Images from their official files on disk, or from any folder or archive of pictures. Nothing is downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rhocal.errors import InputError
from rhocal_paper.train.data.archive import is_archive
from rhocal_paper.train.data.cifar import read_cifar
from rhocal_paper.train.data.dataset import Dataset, Images, held_out
from rhocal_paper.train.data.folders import read_folders, read_tiny_imagenet
from rhocal_paper.train.data.idx import read_fashion
from rhocal_paper.train.data.mat import read_flowers, read_svhn
from rhocal_paper.train.data.official import OFFICIAL, verify

if TYPE_CHECKING:
    from collections.abc import Callable

READERS: dict[str, Callable[[Path, int | None], Dataset]] = {
    "cifar10": lambda root, _: read_cifar("cifar10", root),
    "cifar100": lambda root, _: read_cifar("cifar100", root),
    "svhn": lambda root, _: read_svhn(root),
    "flowers102": read_flowers,
    "tiny-imagenet": read_tiny_imagenet,
    "fashion-mnist": lambda root, _: read_fashion(root),
}
"""Every official set by name."""

SIZED = {"flowers102", "tiny-imagenet"}
"""Those whose pictures can be brought to another size."""


def load(data: str, root: Path | None = None, size: int | None = None) -> Dataset:
    """An official set by name, from its files in the folder ``root``; or the path of a folder or archive of pictures."""
    if size is not None and size < 8:
        raise InputError(f"size must be at least 8 pixels; got {size}")
    if data in READERS:
        if size is not None and data not in SIZED:
            raise InputError(f"{data} has images of one size; leave --size away")
        folder = Path() if root is None else root
        return READERS[data](folder, size)
    path = Path(data)
    if not path.is_dir() and not (path.is_file() and is_archive(path)):
        raise InputError(
            f"data {data!r} is neither an official set ({', '.join(READERS)}) nor a folder or archive of pictures"
        )
    return read_folders(path, size)


__all__ = ["OFFICIAL", "READERS", "Dataset", "Images", "held_out", "load", "verify"]
