"""One campaign at a time in a folder. The operating system releases the lock when the process ends, however it ends."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

from rhocal.data.storage.atomic import make_folder
from rhocal.errors import FileError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME = "campaign.lock"


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Hold the folder; an error if another process does."""
    make_folder(folder)
    with (folder / NAME).open("a+", encoding="utf-8") as file:
        if not acquire(file):
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise FileError(
                f"{folder}: another campaign uses it (process {holder}); wait, or name another folder with -o"
            )
        file.seek(0)
        file.truncate()
        file.write(str(os.getpid()))
        file.flush()
        yield


def acquire(file: IO[str]) -> bool:
    """Lock an open file without waiting."""
    try:
        if sys.platform == "win32":
            file.seek(1 << 20)  # a byte that is never written, so that others can read who holds it
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
