"""Files appear whole or not at all: written under a temporary name beside the target, then renamed."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rhocal.errors import FileError, InputError, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ARTIFACT_ENDING = ".safetensors"
"""Of calibrators, policies, states and profiles."""


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path to write to; it takes the target's name when the block ends without an error.

    The bytes are on the disk before the name is. A file that is replaced keeps its permissions.
    """
    target = as_path(path)
    check_folder(target)
    if target.is_dir():
        raise FileError(f"cannot write {target}: it is a folder")
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.stem}-", suffix=target.suffix)
    except (OSError, ValueError) as error:
        raise FileError(f"cannot write {target}: {one_line(error)}") from error
    os.close(handle)
    unfinished = Path(name)
    try:
        yield unfinished
        unfinished.chmod(permissions(target))  # temporary files are private
        sync(unfinished)
        unfinished.replace(target)
        sync_folder(target.parent)
    except OSError as error:
        raise FileError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def as_path(path: str | os.PathLike[str]) -> Path:
    """The path; an error for anything that is none."""
    try:
        return Path(path)
    except TypeError as error:
        raise InputError(f"path is the name of a file; got {path!r}") from error


def make_folder(folder: Path) -> None:
    """Make a folder that files can be written into."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"cannot make the folder {folder}: {error.strerror}") from error
    if not os.access(folder, os.W_OK):
        raise FileError(f"cannot write into the folder {folder}: permission denied")


def permissions(target: Path) -> int:
    """The permissions of a file that is replaced; those of a new file follow the user's mask."""
    try:
        return stat.S_IMODE(target.stat().st_mode)
    except OSError:
        return 0o666 & ~_umask()


def sync(path: Path) -> None:
    """Wait until the bytes of a file are on the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, on systems that can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def check_folder(target: Path) -> None:
    """Raise an error if there is no folder for a file."""
    if not target.parent.is_dir():
        raise FileError(f"cannot write {target}: the folder {target.parent} does not exist")


def check_output(output: Path, inputs: Iterable[Path]) -> None:
    """An output must lie in a folder that exists, and must not be one of the files that it is made from.

    Called before long work.
    """
    check_folder(output)
    for path in inputs:
        if output.exists() and path.exists() and output.samefile(path):
            raise FileError(f"{output}: this is the input; write to another file")


def check_artifact_output(option: str, output: Path, inputs: Iterable[Path]) -> None:
    """The same for a .safetensors file, whose ending commands know it by; ``option`` names the output in the message."""
    if output.suffix != ARTIFACT_ENDING:
        raise InputError(f"{option}: {output} must end in {ARTIFACT_ENDING}")
    check_output(output, inputs)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
