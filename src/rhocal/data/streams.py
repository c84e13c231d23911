"""Logits larger than memory: a stream of blocks, each byte read once, by a thread that is ahead of the computing."""

from __future__ import annotations

import glob as globs
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.files import Names, only_array
from rhocal.data.sources import ReadLog, Source
from rhocal.data.spec import InputSpec
from rhocal.data.stored import Chunk, Piece, open_file
from rhocal.errors import FileError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from os import PathLike

    from rhocal.data.executors import Executor


@dataclass
class Stream:
    """Blocks of logits with their labels, as ``fit``, ``evaluate`` and ``profile`` take them."""

    pieces: Sequence[Piece] | None
    """What can be read in any order; None for an iterator, which is read once, as it comes."""
    iterator: Iterable[Any] | None = None
    classes: Any = None
    log: ReadLog = field(default_factory=ReadLog)

    @property
    def bytes_read(self) -> int:
        """Bytes of logits that were read so far."""
        return self.log.bytes_read

    @property
    def skip_bad(self) -> bool:
        """Whether blocks that cannot be read are left out."""
        return self.log.skip_bad

    @property
    def skipped(self) -> list[str]:
        """The blocks that were left out."""
        return self.log.skipped

    def as_source(self) -> Source:
        """The source of these blocks."""
        if self.pieces is None:
            return Source(_from_iterator(self.iterator), InputSpec(classes=self.classes), log=self.log)
        return Source(list(self.pieces), InputSpec(classes=self.classes), log=self.log)

    def on(self, executor: Executor) -> Source:
        """The same blocks, processed by another executor."""
        return self.as_source().on(executor)

    @property
    def again(self) -> bool:
        """Whether it can be read a second time."""
        return self.pieces is not None

    @property
    def n_rows(self) -> int | None:
        """Number of rows, if known in advance."""
        return None if self.pieces is None else sum(piece.n_rows for piece in self.pieces)


def _from_iterator(iterator: Iterable[Any] | None) -> Iterator[Chunk]:
    assert iterator is not None
    for k, item in enumerate(iterator):
        if not isinstance(item, tuple | list) or len(item) not in {2, 3}:
            raise InputError(
                f"block {k} must be (logits, labels) or (logits, labels, sample_weight); got {type(item).__name__}"
            )
        weight = None if len(item) == 2 else np.asarray(item[2])
        yield Chunk(item[0], None if item[1] is None else np.asarray(item[1]), f"block {k}", weight)


def stream(
    source: str | PathLike[str] | Iterable[Any],
    *,
    labels: str | PathLike[str] | None = None,
    logits_name: str = "logits",
    labels_name: str = "labels",
    split: str = "",
    skip_bad: bool = False,
) -> Stream:
    """A stream of blocks of logits and labels.

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
            return Stream(None, source, log=ReadLog(skip_bad=skip_bad))
        paths = [Path(item) for item in listed]
    else:
        paths = _paths(str(source))
    names = Names(logits_name + split, labels_name + split)
    given = None if labels is None else only_array(Path(labels), "labels")
    if given is not None and len(paths) > 1:
        raise InputError("labels: a file of labels goes with one file of logits; put the labels into each file")
    pieces: list[Piece] = []
    classes = None
    for path in paths:
        opened = open_file(path, names)
        classes = opened.classes if classes is None else classes
        pieces += opened.pieces(given)
    return Stream(pieces, classes=classes, log=ReadLog(skip_bad=skip_bad))


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
