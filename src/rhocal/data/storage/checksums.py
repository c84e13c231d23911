"""CRC-32 of files that are read in pieces, in any order, here or on workers: pieces combine to the checksum of the whole."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING

from rhocal.errors import FileError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

READ_BYTES = 1 << 24
"""Bytes that are read at a time where a checksum is computed of them alone."""

POLYNOMIAL = 0xEDB88320
"""That of CRC-32, bits reversed."""


@dataclass(frozen=True, order=True)
class Member:
    """A stretch of a file whose checksum is known, such as a member of an archive that is not compressed."""

    path: Path
    name: str
    start: int
    size: int
    crc: int


@dataclass(frozen=True, order=True)
class Piece:
    """The checksum of some bytes of a member."""

    member: Member
    start: int
    size: int
    crc: int


def verify(pieces: Iterable[Piece]) -> None:
    """Raise an error if the bytes that were read are not those that were written; bytes between pieces are read now."""
    for member, group in groupby(sorted(set(pieces)), lambda piece: piece.member):
        crc, end = 0, member.start
        for piece in group:
            if piece.start < end:
                continue  # read twice
            crc = combine(_crc_of_file(member.path, end, piece.start, crc), piece.crc, piece.size)
            end = piece.start + piece.size
        if _crc_of_file(member.path, end, member.start + member.size, crc) != member.crc:
            raise FileError(f"{member.path}: damaged, the checksum of {member.name} differs from its bytes")


def _crc_of_file(path: Path, start: int, stop: int, crc: int) -> int:
    """The checksum of more bytes, after those that ``crc`` is the checksum of."""
    if start >= stop:
        return crc
    with path.open("rb") as file:
        file.seek(start)
        while start < stop:
            data = file.read(min(READ_BYTES, stop - start))
            if not data:
                raise FileError(f"{path}: cut off, {stop - start:,} bytes are missing")
            crc = zlib.crc32(data, crc)
            start += len(data)
    return crc


def combine(crc: int, other: int, n_bytes: int) -> int:
    """The checksum of some bytes followed by ``n_bytes`` others, from the checksums of both.

    A checksum is linear in the bits: that of the first bytes is carried over as many zeros as other bytes follow.

    >>> combine(zlib.crc32(b"rho"), zlib.crc32(b"-norm"), 5) == zlib.crc32(b"rho-norm")
    True
    """
    for power in range(n_bytes.bit_length()):
        if n_bytes >> power & 1:
            crc = _times(_zeros(power), crc)
    return crc ^ other


@cache
def _zeros(power: int) -> tuple[int, ...]:
    """The matrix over the field of two elements that carries a checksum over 2**power bytes of zeros."""
    if power:
        half = _zeros(power - 1)
        return tuple(_times(half, row) for row in half)
    one_bit = (POLYNOMIAL, *(1 << k for k in range(31)))
    byte = tuple(1 << k for k in range(32))
    for _ in range(8):
        byte = tuple(_times(one_bit, row) for row in byte)
    return byte


def _times(matrix: tuple[int, ...], vector: int) -> int:
    product = 0
    for row in matrix:
        if vector & 1:
            product ^= row
        vector >>= 1
    return product
