"""What a file holds, identified by its bytes: names and times say nothing about them."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from rhocal.data.formats import STDIN, read_stdin
from rhocal.data.streams import source_files

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

READ_BYTES = 1 << 24
N_DIGITS = 16
"""Hexadecimal digits of a key, 64 bits."""


def content_key(source: Path, others: Sequence[Path], options: Any) -> str:
    """A key that changes with the bytes of a source (and of files that belong to it), and with how it is read."""
    digest = hashlib.blake2b(json.dumps(options, default=str).encode())
    for path in (source, *others):
        for file in [path] if str(path) == STDIN else source_files(path):
            digest.update(_file_digest(file))
    return digest.hexdigest()[:N_DIGITS]


def _file_digest(path: Path) -> bytes:
    digest = hashlib.blake2b()
    if str(path) == STDIN:
        digest.update(read_stdin())
        return digest.digest()
    for part in sorted(path.rglob("*")) if path.is_dir() else [path]:  # a Zarr store is a folder
        if part.is_file():
            with part.open("rb") as file:
                while data := file.read(READ_BYTES):
                    digest.update(data)
    return digest.digest()
