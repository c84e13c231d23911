"""File formats of scores: one file per format, with its reader and its writer. Nothing is ever unpickled.

A reader opens a file without reading its arrays: names, shapes and types are known, and rows are read when they are needed,
whole or block by block. The ending of the file name decides the format. A new format is one file and a line in the tables
below.
"""

from __future__ import annotations

import struct
import zipfile
from typing import TYPE_CHECKING, Any

from rhocal.data.atomic import writing
from rhocal.data.formats.npy import open_npy, write_npy
from rhocal.data.formats.npz import open_npz, write_npz
from rhocal.data.formats.parquet import open_parquet
from rhocal.data.formats.pt import open_pt
from rhocal.data.formats.safetensors import open_safetensors, write_safetensors
from rhocal.data.formats.tables import open_csv, write_csv
from rhocal.data.formats.zarr import open_zarr
from rhocal.errors import FileError, RhocalError, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from rhocal.data.formats.base import Arrays, Names, StoredFile

READERS: dict[str, Callable[[Path, Names], StoredFile]] = {
    ".npz": open_npz,
    ".npy": open_npy,
    ".csv": open_csv,
    ".parquet": open_parquet,
    ".safetensors": open_safetensors,
    ".pt": open_pt,
    ".zarr": open_zarr,
}
WRITERS: dict[str, Callable[[Path, Arrays], None]] = {
    ".npz": write_npz,
    ".npy": write_npy,
    ".csv": write_csv,
    ".safetensors": write_safetensors,
}


def open_files(paths: Iterable[Path], names: Names) -> list[StoredFile]:
    """Open files without reading their arrays."""
    return [open_file(path, names) for path in paths]


def open_file(path: Path, names: Names) -> StoredFile:
    """Open a file without reading its arrays."""
    if not path.exists():
        raise FileError(f"{path}: no such file")
    if path.is_dir() and path.suffix != ".zarr":
        raise FileError(f"{path}: a folder, not a file")
    if path.is_file() and not path.stat().st_size:
        raise FileError(f"{path}: damaged, the file is empty (not a single byte)")
    reader = READERS.get(path.suffix)
    if reader is None:
        raise FileError(f"{path}: unknown kind of file {path.suffix!r}; understood are {', '.join(READERS)}")
    try:
        return reader(path, names)
    except RhocalError:
        raise
    except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile, struct.error) as error:
        raise FileError(f"{path}: damaged, or not a {path.suffix} file: {one_line(error)}") from error


def check_writable(path: Path) -> None:
    """Raise an error if no writer is known for the ending of the name."""
    if path.suffix not in WRITERS:
        raise FileError(f"{path}: cannot write {path.suffix or 'a file without ending'}; use {', '.join(WRITERS)}")


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays in the format of the file name's ending; ``.npy`` holds the first one."""
    check_writable(path)
    with writing(path) as unfinished:
        WRITERS[path.suffix](unfinished, dict(arrays))
