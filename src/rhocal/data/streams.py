"""Sources of files and iterators: blocks that are read when they are asked for."""

from __future__ import annotations

import glob as globs
from collections import Counter
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.blocks import Block
from rhocal.data.columns import shown
from rhocal.data.files import Contents, Split, only_array, read
from rhocal.data.formats import READERS, is_gzip, open_file, open_files
from rhocal.data.formats.base import Names, StoredFile, blocks_of_files
from rhocal.data.sources import ReadLog, Source
from rhocal.data.spec import InputSpec
from rhocal.data.storage.container import format_of
from rhocal.errors import FileError, InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence


def stream(
    source: str | PathLike[str] | Iterable[Any],
    *,
    labels: str | PathLike[str] | None = None,
    logits_name: str = "logits",
    labels_name: str = "labels",
    weights_name: str | None = None,
    columns: Sequence[str] | None = None,
    split: str = "",
    skip_bad: bool = False,
) -> Source:
    """A source of blocks of logits and labels, which need not fit into memory.

    Fits of few rows (at most 8.4 million logits) are computed in memory, with the same result as from arrays.

    Parameters
    ----------
    source
        A file (``.npy``, ``.npz``, ``.safetensors``, ``.parquet``), a Zarr store (``.zarr``), a pattern such as
        ``"part-*.parquet"``, a folder of Parquet files, a list of files, or a list or iterator of ``(logits, labels)`` or
        ``(logits, labels, sample_weight)``.
    labels
        A file with the labels, for ``.npy`` and files without them.
    logits_name, labels_name, weights_name
        Names of the arrays or columns; weights are optional.
    columns
        The columns of a table that hold one class each, if not those that are named as the labels, numbered, or all.
    split
        ``"_val"`` or ``"_test"`` for files with two splits.
    skip_bad
        Leave out blocks that cannot be read; ``stream.skipped`` says which.

    Returns
    -------
    Source
        For ``fit``, ``evaluate``, ``measure`` and others, in place of logits and labels.

    Examples
    --------
    >>> import rhocal
    >>> blocks = (rhocal.demo_logits(split) for split in ("cal", "test"))
    >>> round(rhocal.measure(rhocal.stream(blocks))["accuracy"], 3)
    0.743
    """
    if isinstance(source, str | PathLike):
        paths = _paths(str(source))
    elif isinstance(source, list | tuple) and all(isinstance(item, str | PathLike) for item in source):
        paths = [Path(item) for item in source]
    else:
        blocks = _from_iterator(source)
        is_list = isinstance(source, list | tuple)  # it can be read again
        return Source(list(blocks) if is_list else blocks, log=ReadLog(skip_bad=skip_bad))
    given = None if columns is None else tuple(columns)
    names = Names(logits_name, labels_name, weights=weights_name, columns=given).with_suffix(split)
    files = open_files(paths, names)
    return _source(files, names, None if labels is None else Path(labels), logits_name, skip_bad=skip_bad)


def open_split(
    path: Path, names: Names, split: Split, *, labels: Path | None = None, resident: bool, skip_bad: bool = False
) -> Source:
    """A source of one split of a file (or of its only set): all rows in memory, or blocks of one or many files."""
    if resident:
        contents = read(path, replace(names, skip_bad=skip_bad), labels)
        file = contents.file
        spec = _stored_spec(file, contents.classes, names.logits, contents.split_names(split).logits)
        log = ReadLog(skip_bad=skip_bad, skipped=list(file.bad_lines), unused_columns=file.unused, log=file.log)
        return Source((contents.read(split),), spec, resident=True, log=log)
    files = open_files(_paths(str(path)), names)
    return _source(files, Contents(files[0], names).split_names(split), labels, names.logits, skip_bad=skip_bad)


def has_splits(path: Path, names: Names) -> bool:
    """Whether a file, or the first of many, holds a calibration and a test split."""
    return Contents(open_file(_paths(str(path))[0], names), names).has_splits


def _source(files: list[StoredFile], names: Names, labels: Path | None, name: str, *, skip_bad: bool) -> Source:
    """The blocks of files, one file after the other; ``name`` is that of the logits, without the ending of a split."""
    if labels is not None and len(files) > 1:
        raise InputError("labels: a file of labels goes with one file of logits; put the labels into each file")
    beside = None if labels is None else only_array(labels, "labels")
    blocks, classes = blocks_of_files(files, names, beside)
    log = ReadLog(skip_bad=skip_bad, unused_columns=files[0].unused)
    return Source(blocks, _stored_spec(files[0], classes, name, names.logits), log=log)


def _stored_spec(file: StoredFile, classes: Any, name: str, stored_name: str) -> InputSpec:
    """What a file states about its scores. The name of a single column of them may be that of its class."""
    kind, columns = file.kind, file.columns
    if columns is None and file.log is None and name != Names.logits and len(file.arrays[stored_name].shape) == 1:
        dtype = str(file.arrays[stored_name].dtype)  # the lengths of lists in Parquet are not known yet
        columns = None if "list" in dtype or dtype == "object" else (name,)
    return InputSpec(kind or "logits", classes, columns=columns, kind_is_stated=kind is not None)


def source_files(path: Path) -> list[Path]:
    """The files of a source: a file, the Parquet files of a folder, or those that fit a pattern."""
    return _paths(str(path))


def _paths(source: str) -> list[Path]:
    path = Path(source)
    if path.is_dir() and path.suffix != ".zarr":
        paths = parquet_files(path)
        if not paths:
            raise FileError(f"{path}: a folder without .parquet files")
        if others := _other_data(path):
            raise FileError(
                f"{path}: holds {shown(others)} beside .parquet files; of a folder all data is read, and it must be .parquet. "
                f"Move it elsewhere, or give a pattern in quotes: '{path / '*.parquet'}'"
            )
        return paths
    if globs.has_magic(source):
        paths = [Path(name) for name in sorted(globs.glob(source))]  # noqa: PTH207 - absolute patterns too
        if not paths:
            raise FileError(f"{source}: no file fits this pattern")
        return paths
    return [path]


def parquet_files(folder: Path) -> list[Path]:
    """The Parquet files of a folder by name, without hidden ones, which are not complete yet."""
    return sorted(path for path in folder.glob("*.parquet") if not path.name.startswith("."))


def _other_data(folder: Path) -> list[str]:
    """Files of a folder that may hold samples and are no Parquet files, and folders in it with Parquet files.

    Names that begin with a point or an underscore are those of files that are not complete, or about the others; so are
    .json files. Artifacts are no samples.
    """
    others = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith((".", "_")) or path.suffix in {".parquet", ".json"}:
            continue
        if path.is_dir() and path.suffix != ".zarr":
            holds_data = bool(parquet_files(path))
        else:
            holds_data = (path.suffix in READERS or is_gzip(path)) and format_of(path) is None
        if holds_data:
            others.append(f"{path.name}/" if path.is_dir() else path.name)
    return others


def other_files(folder: Path, own: Collection[Path | None] = (), suffixes: Iterable[str] | None = None) -> str:
    """The files of a folder that are neither Parquet nor hidden nor our own, counted by their ending: ``2 .csv, 1 .jsonl``."""
    known = {path.resolve() for path in own if path is not None}
    endings = Counter(
        path.suffix or "without ending"
        for path in sorted(folder.iterdir())
        if path.suffix != ".parquet"
        and not path.name.startswith(".")
        and path.is_file()
        and path.resolve() not in known
    )
    return ", ".join(f"{n:,} {ending}" for ending, n in endings.items() if suffixes is None or ending in suffixes)


def _from_iterator(iterator: Iterable[Any]) -> Iterator[Block]:
    for k, item in enumerate(iterator):
        if not isinstance(item, tuple | list) or len(item) not in {2, 3}:
            raise InputError(
                f"block {k} must be (logits, labels) or (logits, labels, sample_weight); got {type(item).__name__}"
            )
        weight = None if len(item) == 2 else np.asarray(item[2])
        yield Block(item[0], None if item[1] is None else np.asarray(item[1]), f"block {k}", weight)
