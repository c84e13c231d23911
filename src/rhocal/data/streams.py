"""Sources of files and iterators: blocks that are read when they are asked for."""

from __future__ import annotations

import glob as globs
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.blocks import Block
from rhocal.data.files import Names, only_array
from rhocal.data.sources import ReadLog, Source
from rhocal.data.spec import InputSpec
from rhocal.data.stored import open_file
from rhocal.errors import FileError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from os import PathLike

    from rhocal.data.blocks import BlockRef


def stream(
    source: str | PathLike[str] | Iterable[Any],
    *,
    labels: str | PathLike[str] | None = None,
    logits_name: str = "logits",
    labels_name: str = "labels",
    split: str = "",
    skip_bad: bool = False,
) -> Source:
    """A source of blocks of logits and labels, which need not fit into memory.

    Parameters
    ----------
    source
        A file (``.npy``, ``.npz``, ``.safetensors``, ``.parquet``), a Zarr store (``.zarr``), a pattern such as
        ``"part-*.parquet"``, a folder of Parquet files, a list of files, or an iterator of ``(logits, labels)`` or
        ``(logits, labels, sample_weight)``.
    labels
        A file with the labels, for ``.npy`` and files without them.
    logits_name, labels_name
        Names of the arrays or columns.
    split
        ``"_val"`` or ``"_test"`` for files with two splits.
    skip_bad
        Leave out blocks that cannot be read; ``stream.skipped`` says which.
    """
    if not isinstance(source, str | Path) and not hasattr(source, "__fspath__"):
        listed = list(source) if isinstance(source, list | tuple) else None
        if listed is None or not all(isinstance(item, str | Path) for item in listed):
            return Source(_from_iterator(source), log=ReadLog(skip_bad=skip_bad))
        paths = [Path(item) for item in listed]
    else:
        paths = _paths(str(source))
    names = Names(logits_name + split, labels_name + split)
    given = None if labels is None else only_array(Path(labels), "labels")
    if given is not None and len(paths) > 1:
        raise InputError("labels: a file of labels goes with one file of logits; put the labels into each file")
    blocks: list[BlockRef] = []
    classes = None
    for path in paths:
        opened = open_file(path, names)
        classes = opened.classes if classes is None else classes
        blocks += opened.blocks(given)
    return Source(blocks, InputSpec(classes=classes), log=ReadLog(skip_bad=skip_bad))


def _paths(source: str) -> list[Path]:
    path = Path(source)
    if path.is_dir() and path.suffix != ".zarr":
        found = sorted(path.glob("*.parquet"))
        if not found:
            raise FileError(f"{path}: a folder without .parquet files")
        return found
    if globs.has_magic(source):
        found = [Path(name) for name in sorted(globs.glob(source))]  # noqa: PTH207 - absolute patterns too
        if not found:
            raise FileError(f"{source}: no file fits this pattern")
        return found
    return [path]


def _from_iterator(iterator: Iterable[Any]) -> Iterator[Block]:
    for k, item in enumerate(iterator):
        if not isinstance(item, tuple | list) or len(item) not in {2, 3}:
            raise InputError(
                f"block {k} must be (logits, labels) or (logits, labels, sample_weight); got {type(item).__name__}"
            )
        weight = None if len(item) == 2 else np.asarray(item[2])
        yield Block(item[0], None if item[1] is None else np.asarray(item[1]), f"block {k}", weight)
