"""File formats of scores: one file per format, with its reader and its writer. Nothing is ever unpickled.

A reader opens a file without reading its arrays: names, shapes and types are known, and rows are read when they are needed,
whole or block by block. The ending of the file name decides the format. A new format is one file and a line in the tables
below.
"""

from __future__ import annotations

import sys
import zlib
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from rhocal.data.columns import is_other, shown
from rhocal.data.formats.delimited import csv_file, open_csv, write_csv, write_tsv
from rhocal.data.formats.inspect_log import open_eval
from rhocal.data.formats.jsonl import json_file, jsonl_file, open_json, open_jsonl, write_jsonl
from rhocal.data.formats.limits import check_expansion, gunzip
from rhocal.data.formats.npy import open_npy, write_npy
from rhocal.data.formats.npz import open_npz, write_npz
from rhocal.data.formats.parquet import open_parquet, write_parquet
from rhocal.data.formats.pt import open_pt
from rhocal.data.formats.safetensors import open_safetensors, write_safetensors
from rhocal.data.formats.zarr import open_zarr
from rhocal.data.storage.atomic import writing
from rhocal.errors import FileError, RhocalError, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from rhocal.data.formats.base import Arrays, Names, StoredFile

READERS: dict[str, Callable[[Path, Names], StoredFile]] = {
    ".npz": open_npz,
    ".npy": open_npy,
    ".csv": open_csv,
    ".tsv": open_csv,
    ".jsonl": open_jsonl,
    ".ndjson": open_jsonl,
    ".json": open_json,
    ".eval": open_eval,
    ".parquet": open_parquet,
    ".safetensors": open_safetensors,
    ".pt": open_pt,
    ".zarr": open_zarr,
}
TEXTS: dict[str, Callable[[Path, bytes, Names], StoredFile]] = {
    ".csv": csv_file,
    ".tsv": csv_file,
    ".jsonl": jsonl_file,
    ".ndjson": jsonl_file,
    ".json": json_file,
}
"""Texts, which may be compressed with gzip (``.jsonl.gz``)."""
LINES = (".jsonl", ".ndjson", ".json", ".eval")
"""Files of objects, of which single ones can be left out."""
WRITERS: dict[str, Callable[[Path, Arrays], None]] = {
    ".npz": write_npz,
    ".npy": write_npy,
    ".csv": write_csv,
    ".tsv": write_tsv,
    ".jsonl": write_jsonl,
    ".parquet": write_parquet,
    ".safetensors": write_safetensors,
}


def open_files(paths: Iterable[Path], names: Names) -> list[StoredFile]:
    """Open files without reading their arrays. Tables have the columns of classes of the first, in any order."""
    files: list[StoredFile] = []
    for path in paths:
        columns = files[0].columns if files else None
        files.append(open_file(path, names if columns is None else replace(names, columns=columns)))
        if columns is not None:
            _check_same_columns(files[0], files[-1], names)
    return files


def _check_same_columns(first: StoredFile, file: StoredFile, names: Names) -> None:
    """Raise an error if a table has columns that may be classes and that the first has not."""
    if names.columns is not None:
        return
    new = [name for name in file.unused if name not in first.unused and not is_other(name)]
    if new:
        raise FileError(
            f"{file.path}: has columns {shown(new)} that {first.path} has not",
            argument="columns",
            remedy="name those of the classes",
        )


STDIN = "-"
"""The name of the standard input, which holds CSV or JSON Lines."""


@cache  # commands open a file more than once
def read_stdin() -> bytes:
    """All bytes of the standard input."""
    return sys.stdin.buffer.read()


def _open_stdin(path: Path, names: Names) -> StoredFile:
    content = read_stdin()
    if not content.strip():
        raise FileError("-: the standard input is empty")
    return (jsonl_file if content.lstrip().startswith(b"{") else csv_file)(path, content, names)


def open_file(path: Path, names: Names) -> StoredFile:
    """Open a file without reading its arrays; ``-`` is the standard input."""
    if str(path) == STDIN:
        return _open(_open_stdin, path, names)
    if not path.exists():
        raise FileError(f"{path}: no such file")
    if path.is_dir() and path.suffix != ".zarr":
        raise FileError(f"{path}: a folder, not a file")
    if path.is_file() and not path.stat().st_size:
        raise FileError(f"{path}: damaged, the file is empty (not a single byte)")
    reader = _open_gzip if is_gzip(path) else READERS.get(path.suffix)
    if reader is None:
        raise FileError(f"{path}: unknown kind of file {path.suffix!r}; understood are {', '.join(READERS)}")
    return _open(reader, path, names)


def is_gzip(path: Path) -> bool:
    """Whether a file is a text that is compressed with gzip, by its name."""
    return path.suffix == ".gz" and path.with_suffix("").suffix in TEXTS


def is_delimited(path: Path) -> bool:
    """Whether a file has cells of text, by its name: numbers among them are inferred."""
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix in {".csv", ".tsv"}


def holds_lines(path: Path) -> bool:
    """Whether a file has objects of which single ones can be left out, by its name."""
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix in LINES


def _open_gzip(path: Path, names: Names) -> StoredFile:
    try:
        content = gunzip(path)
    except (OSError, EOFError, zlib.error) as error:
        raise FileError(f"{path}: damaged, or not compressed with gzip: {one_line(error)}") from error
    return TEXTS[path.with_suffix("").suffix](path, content, names)


def _open(reader: Callable[[Path, Names], StoredFile], path: Path, names: Names) -> StoredFile:
    """Open a file; whatever a reader raises is an error that names the file."""
    try:
        stored = reader(path, names)
        check_expansion(stored)
    except FileError as error:
        raise error if error.message.startswith(str(path)) else error.at(str(path)) from error
    except RhocalError:
        raise
    except Exception as error:  # a reader of a foreign format may raise anything
        what = f"damaged, or not a {path.suffix} file" if path.suffix else "damaged"
        raise FileError(f"{path}: {what}: {one_line(error)}") from error
    return stored


def find_columns(path: Path, columns: Sequence[str], names: Names) -> tuple[str, ...] | None:
    """Columns of classes in the order in which they stand in a table; None unless a file is a table that has all of them."""
    if str(path) == STDIN or not path.is_file() or path.suffix not in {".csv", ".tsv", ".jsonl", ".parquet"}:
        return None
    try:
        stored = open_file(path, replace(names, columns=tuple(columns), in_table_order=True))
    except RhocalError:
        return None
    return stored.columns if set(stored.columns or ()) == set(columns) else None


def check_writable(path: Path) -> None:
    """Raise an error if no writer is known for the ending of the name."""
    if path.suffix not in WRITERS:
        raise FileError(f"{path}: cannot write {path.suffix or 'a file without ending'}; use {', '.join(WRITERS)}")


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays in the format of the file name's ending; ``.npy`` holds the first one."""
    check_writable(path)
    with writing(path) as unfinished:
        WRITERS[path.suffix](unfinished, dict(arrays))
