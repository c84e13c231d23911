"""The directory of a ZIP archive: damage of it hides members, and an array or sample that is not found is not missed."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from rhocal.errors import FileError

if TYPE_CHECKING:
    import zipfile
    from typing import IO

END = b"PK\x05\x06"
"""The first bytes of the last record of an archive."""

N_MEMBERS = struct.Struct("<10xH")
"""The number of members in that record."""

MAX_END_BYTES = 22 + (1 << 16)
"""Of the last record with the longest comment."""

IN_ZIP64 = 0xFFFF
"""More members than this number are counted elsewhere."""


def check_directory(file: IO[bytes], archive: zipfile.ZipFile) -> None:
    """Raise an error unless the directory has as many members as the archive states: a wrong length in it skips some."""
    size = file.seek(0, 2)
    file.seek(max(0, size - MAX_END_BYTES))
    tail = file.read()
    (n_stated,) = N_MEMBERS.unpack_from(tail, tail.rfind(END))
    if n_stated not in {len(archive.infolist()), IN_ZIP64}:
        raise FileError(f"damaged: the archive states {n_stated:,} members, and {len(archive.infolist()):,} are there")
