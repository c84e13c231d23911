"""A file that is written in pieces by one process at a time, and the journal of what is complete.

``PartFile`` is the file ``.NAME.part`` beside the target, locked while it is open. ``.NAME.journal`` has a line for each
complete block with the places and checksums of its bytes; what a later run finds there is compared with the bytes.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from rhocal.data.storage.atomic import permissions, sync_folder
from rhocal.errors import FileError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

try:
    from fcntl import LOCK_EX, LOCK_NB, flock

    CAN_LOCK = True
except ImportError:  # pragma: no cover - Windows
    CAN_LOCK = False

NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
READ_BYTES = 1 << 24


def try_lock(file: int) -> bool:
    """Lock an open file; False if another process has locked it. The lock ends with the process, however it ends."""
    if not CAN_LOCK:  # pragma: no cover - Windows: O_EXCL alone
        return True
    try:
        flock(file, LOCK_EX | LOCK_NB)
    except OSError as error:
        return error.errno not in {errno.EAGAIN, errno.EACCES, errno.EWOULDBLOCK}  # others: a file system without locks
    return True


class PartFile:
    """The unfinished file of an output. No other process writes it meanwhile, and links are not followed."""

    def __init__(self, output: Path, fingerprint: str, *, restart: bool) -> None:
        names = (output.with_name(f".{output.name}.{ending}") for ending in ("part", "journal"))
        self.output, self.fingerprint = output, fingerprint
        self.path, self.journal = names
        self.n_blocks = 0
        try:
            self.file = self._open(restart=restart)
        except FileError:
            raise
        except OSError as error:
            reason = "is a symbolic link" if error.errno == errno.ELOOP else error.strerror
            raise FileError(f"cannot write {output}: {self.path} {reason}; remove it") from error

    def _open(self, *, restart: bool) -> int:
        """The file of an interrupted run of the same work with its complete blocks, or a new one."""
        while True:
            try:
                file = os.open(self.path, os.O_RDWR | NO_FOLLOW)
            except FileNotFoundError:
                return self._create()
            try:
                self._lock(file)
                if not self._is_current(file):
                    os.close(file)
                    file = -1
                    continue  # the other process has completed it meanwhile
                if not restart:
                    self._check_ours(file)
                    self.n_blocks = self._complete_blocks(file)
                return file if self.n_blocks else self._replace(file)
            except BaseException:
                with suppress(OSError):
                    os.close(file)
                raise

    def _replace(self, file: int) -> int:
        """A new file in the place of one that is not continued."""
        self.path.unlink()
        new = self._create()
        os.close(file)
        return new

    def _create(self) -> int:
        try:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | NO_FOLLOW, 0o666)
        except FileExistsError as error:
            raise self._in_use() from error
        try:
            self._lock(file)
            self._check_current(file)
        except FileError:
            os.close(file)
            raise
        if self.output.exists():
            self.path.chmod(permissions(self.output))
        self.journal.unlink(missing_ok=True)
        self._append({"fingerprint": self.fingerprint})
        return file

    def reserve(self, header: bytes, size: int) -> None:
        """Write the header and reserve the space of all rows, so that a full disk is an error before the work begins."""
        try:
            os.ftruncate(self.file, size)
            self._write_at(0, header)
            _reserve(self.file, size)
            os.fsync(self.file)
        except OSError as error:
            self.discard()
            raise FileError(f"cannot write {self.path}: {error.strerror} ({size / 1e6:,.1f} MB are needed)") from error
        self._append({"size": size, "header": [0, len(header), zlib.crc32(header)]})

    def write_block(self, pieces: Mapping[int, Any]) -> None:
        """Write the pieces of a block, by their place; the journal is never ahead of the bytes, even if the power fails."""
        spans = []
        try:
            for place, data in pieces.items():
                self._write_at(place, data)
                spans.append([place, len(data), zlib.crc32(data)])
            os.fsync(self.file)
        except OSError as error:
            raise FileError(f"cannot write {self.path}: {error.strerror}") from error
        self._append({"block": self.n_blocks, "spans": spans})
        self.n_blocks += 1

    def complete(self) -> None:
        """Give the file the name of the target."""
        try:
            if not self._is_current(self.file):
                raise FileError(f"{self.path}: was replaced by another process; {self.output} is not written")
            os.fsync(self.file)
            self.journal.unlink(
                missing_ok=True
            )  # first: once the file has its name, a journal is that of another process
            if not CAN_LOCK:  # pragma: no cover - Windows renames no open file
                self.close()
            self.path.replace(self.output)
            sync_folder(self.output.parent)
        except OSError as error:
            raise FileError(f"cannot write {self.output}: {error.strerror}") from error
        finally:
            self.close()

    def discard(self) -> None:
        """Remove the file and its journal."""
        self.journal.unlink(missing_ok=True)
        if CAN_LOCK:
            self.path.unlink(missing_ok=True)
        self.close()
        if not CAN_LOCK:  # pragma: no cover - Windows removes no open file
            self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Leave the file to a later run."""
        with suppress(OSError):
            os.close(self.file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write_at(self, place: int, data: Any) -> None:
        view, done = memoryview(data), 0
        os.lseek(self.file, place, os.SEEK_SET)
        while done < len(view):
            done += os.write(self.file, view[done:])

    def _append(self, entry: dict[str, Any]) -> None:
        """Add a line to the journal, with its checksum: a line that was cut off is not believed."""
        text = json.dumps(entry)
        line = json.dumps([zlib.crc32(text.encode()), text]) + "\n"
        try:
            file = os.open(self.journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT | NO_FOLLOW, 0o666)
            try:
                os.write(file, line.encode())
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            raise FileError(f"cannot write {self.journal}: {error.strerror}") from error

    def _complete_blocks(self, file: int) -> int:
        """The number of leading blocks whose bytes are what an interrupted run of the same work has written."""
        entries = self._entries()
        if entries[0].get("fingerprint") != self.fingerprint:
            raise FileError(
                f"{self.path}: left by an interrupted run with another calibrator, another input or other options. Repeat "
                "that run to complete it",
                argument="restart",
                remedy="discard it",
            )
        if len(entries) < 2 or os.fstat(file).st_size != entries[1].get("size"):
            return 0
        if not _matches(file, [entries[1]["header"]]):
            return 0
        n_blocks = 0
        for entry in entries[2:]:
            if entry.get("block") == n_blocks - 1:  # written again by a run that was continued
                continue
            if entry.get("block") != n_blocks or not _matches(file, entry["spans"]):
                break
            n_blocks += 1
        return n_blocks

    def _entries(self) -> list[dict[str, Any]]:
        """The lines of the journal up to the first that was not written whole; without any, one that fits nothing."""
        entries: list[dict[str, Any]] = []
        n_bytes = 0
        try:
            file = os.open(self.journal, os.O_RDWR | NO_FOLLOW)
        except FileNotFoundError:
            return [{"fingerprint": self.fingerprint}]
        with os.fdopen(file, "rb+") as stream:
            for line in stream.readlines():
                try:
                    crc, text = json.loads(line)
                    if zlib.crc32(text.encode()) != crc:
                        break
                    entries.append(json.loads(text))
                except (ValueError, TypeError, AttributeError):
                    break
                n_bytes += len(line)
            stream.truncate(n_bytes)  # the next line begins anew
        return entries or [{"fingerprint": self.fingerprint}]

    def _lock(self, file: int) -> None:
        if not try_lock(file):
            raise self._in_use()

    def _in_use(self) -> FileError:
        return FileError(f"cannot write {self.output}: another process is writing it ({self.path})")

    def _check_current(self, file: int) -> None:
        """Raise an error if another process took the new file for one that was left, and replaced it."""
        if not self._is_current(file):
            raise self._in_use()

    def _is_current(self, file: int) -> bool:
        """Whether the name still belongs to this file."""
        try:
            return os.path.samestat(os.fstat(file), os.lstat(self.path))
        except FileNotFoundError:
            return False

    def _check_ours(self, file: int) -> None:
        """Raise an error for what is no file of ours: a pipe, another user's file, or a second name of some file."""
        status = os.fstat(file)
        is_ours = stat.S_ISREG(status.st_mode) and status.st_nlink == 1
        if hasattr(os, "geteuid"):
            is_ours = is_ours and status.st_uid == os.geteuid()
        if not is_ours:
            raise FileError(f"cannot write {self.output}: {self.path} is not a file that rhocal left; remove it")


def _matches(file: int, spans: Sequence[Any]) -> bool:
    """Whether bytes have the checksums that were written down."""
    for place, size, crc in spans:
        os.lseek(file, place, os.SEEK_SET)
        checksum, left = 0, size
        while left:
            data = os.read(file, min(left, READ_BYTES))
            if not data:
                return False
            checksum, left = zlib.crc32(data, checksum), left - len(data)
        if checksum != crc:
            return False
    return True


def _reserve(file: int, n_bytes: int) -> None:
    try:
        os.posix_fallocate(file, 0, n_bytes)
    except AttributeError:  # not on this system
        return
    except OSError as error:
        if error.errno not in {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}:  # not on this kind of disk
            raise
