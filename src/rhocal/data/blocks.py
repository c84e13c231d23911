"""Blocks: rows that are read together, and references to rows that can be read when asked for."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rhocal.errors import FileError, InputError, RhocalError, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, eq=False)
class Block:
    """Rows as they are stored, not validated. A block is its own ``BlockRef``."""

    scores: Any
    labels: Any = None
    location: str = ""
    """File and rows, for messages; empty for an array of the caller."""
    weights: Any = None
    groups: Any = None
    stored_bytes: int | None = None
    """Bytes of the scores in the file, where they differ from those in memory (bfloat16)."""
    number: int = 0
    """Its place among the blocks of the source."""

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(np.shape(self.scores)[0])

    @property
    def n_columns(self) -> int:
        """Number of classes; binary scores have two."""
        return n_columns(self.scores)

    @property
    def nbytes(self) -> int:
        """Bytes of scores that were read."""
        return int(np.asarray(self.scores).nbytes) if self.stored_bytes is None else self.stored_bytes

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


class HeldBlock:
    """A block that is already in memory, until it is read: then it is released, and a later reader reads it again."""

    def __init__(self, ref: BlockRef, block: Block) -> None:
        self.ref, self.location, self.n_rows = ref, ref.location, ref.n_rows
        self._block: Block | None = replace(block, stored_bytes=0)  # its bytes are counted

    def read(self) -> Block:
        block, self._block = self._block, None
        return read_block(self.ref) if block is None else block


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
    except FileError:
        raise
    except Exception as error:  # a reader of a foreign format may raise anything
        raise FileError(f"{ref.location}: cannot be read: {one_line(error)}") from error


@contextmanager
def with_block_context(location: str) -> Iterator[None]:
    """Add file and rows to an error; an array of the caller has no location."""
    try:
        yield
    except RhocalError as error:
        if not location:
            raise
        raise error.at(location) from error


def missing_labels() -> InputError:
    """The error for scores without labels."""
    return InputError("labels are missing", argument="labels_name", remedy="name the array that holds them")


def n_columns(scores: Any) -> int:
    """Number of classes of a block of scores; binary scores have two."""
    return int(np.shape(scores)[1]) if np.ndim(scores) > 1 else 2
