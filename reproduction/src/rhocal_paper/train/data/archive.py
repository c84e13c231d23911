"""The files of a folder, a tar or a zip archive, read one by one. Nothing is ever extracted to disk."""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from rhocal.errors import FileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LARGEST = 1 << 30
"""Bytes of a single file: the largest of the official ones is a fifth of it. More is a damaged or hostile archive."""

TARS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")


def is_archive(path: Path) -> bool:
    """By its name."""
    return path.name.endswith((*TARS, ".zip"))


def walk(path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Names (with ``/``) and contents of the regular files that are wanted, in the order of the archive."""
    try:
        if path.is_dir():
            yield from _walk_folder(path, wanted)
        elif path.name.endswith(".zip"):
            yield from _walk_zip(path, wanted)
        elif path.name.endswith(TARS):
            yield from _walk_tar(path, wanted)
        else:
            raise FileError(f"{path}: neither a folder nor an archive ({', '.join((*TARS, '.zip'))})")
    except (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile, zlib.error) as error:
        raise FileError(f"{path}: missing or damaged: {error}") from error


def _walk_folder(path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path).as_posix()
        if wanted(name) and file.is_file():
            yield name, file.read_bytes()


def _walk_tar(path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path) as archive:
        for member in archive:
            name = _checked(path, member.name, member.size)
            if member.isfile() and wanted(name):
                stream = archive.extractfile(member)
                assert stream is not None
                yield name, stream.read()


def _walk_zip(path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name = _checked(path, member.filename, member.file_size)
            if not member.is_dir() and wanted(name):
                yield name, archive.read(member)


def _checked(path: Path, name: str, size: int) -> str:
    """The name without ``./``; a name that would leave the archive's own folder is refused."""
    parts = PurePosixPath(name)
    if parts.is_absolute() or ".." in parts.parts or "\\" in name or "\0" in name:
        raise FileError(f"{path}: holds {name!r}, a path that leaves the archive; not read any further")
    if size > LARGEST:
        raise FileError(f"{path}: {name} is {size:,} bytes; files above {LARGEST:,} are not read")
    return parts.as_posix()
