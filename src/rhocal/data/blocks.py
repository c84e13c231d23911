"""Blocks: rows that are read together, and references to rows that can be read when asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rhocal.errors import FileError, InputError, RhocalError, one_line

if TYPE_CHECKING:
    from rhocal.data.checksums import Piece


@dataclass(frozen=True, eq=False)
class Block:
    """Rows as they are stored, not validated. A block is its own ``BlockRef``."""

    scores: Any
    labels: Any = None
    location: str = ""
    """File and rows, for messages; empty for an array of the caller."""
    weights: Any = None
    groups: Any = None
    clusters: Any = None
    """What each sample belongs to (its question, its patient); only of arrays in memory."""
    stored_bytes: int | None = None
    """Bytes of the scores in the file, where they differ from those in memory (bfloat16)."""
    number: int = 0
    """Its place among the blocks of the source."""
    pieces: tuple[Piece, ...] = ()
    """Checksums of the bytes that were read, for files that have one to compare with."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(np.shape(self.scores)[0])

    def read(self) -> Block:
        """The block itself."""
        return self


class BlockRef(Protocol):
    """Rows that can be read here or on a worker."""

    @property
    def location(self) -> str:
        """File and rows, for messages."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""

    def read(self) -> Block:
        """Read the rows."""


@dataclass(frozen=True, eq=False)
class NumberedBlock:
    """A reference that knows its place among the blocks of the source."""

    number: int
    ref: BlockRef

    @property
    def location(self) -> str:
        return self.ref.location

    @property
    def n_rows(self) -> int:
        return self.ref.n_rows

    def read(self) -> Block:
        return replace(read_block(self.ref), number=self.number)


@dataclass(eq=False)
class HeldBlock:
    """A block that is already in memory, until it is read: then it is released, and a later reader reads it again."""

    ref: BlockRef
    block: Block | None

    @property
    def location(self) -> str:
        return self.ref.location

    @property
    def n_rows(self) -> int:
        return self.ref.n_rows

    def read(self) -> Block:
        block, self.block = self.block, None
        return read_block(self.ref) if block is None else replace(block, stored_bytes=0)  # its bytes are counted


@dataclass(frozen=True, eq=False)
class UnreadableBlock:
    """A block whose reading failed; the error is raised where the block is asked for."""

    location: str
    n_rows: int
    error: Exception

    def read(self) -> Block:
        raise self.error


def read_block(ref: BlockRef) -> Block:
    """Read a block; an error names its file and rows."""
    try:
        return ref.read()
    except RhocalError:
        raise
    except Exception as error:  # a reader of a foreign format may raise anything
        raise FileError(f"{ref.location}: cannot be read: {one_line(error)}") from error


def missing_labels() -> InputError:
    """The error for scores without labels."""
    return InputError("labels are missing", argument="labels_name", remedy="name the array that holds them")


def n_columns(scores: Any) -> int:
    """Number of classes of a block of scores; binary scores have two."""
    return int(np.shape(scores)[1]) if np.ndim(scores) > 1 else 2
