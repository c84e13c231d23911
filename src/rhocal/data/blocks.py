"""Blocks: rows that are read together, and references to rows that can be read when asked for."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from queue import Queue
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rhocal.errors import FileError, InputError, RhocalError, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rhocal.data.storage.checksums import Piece

N_BLOCKS_AHEAD = 2
"""Blocks that are read while another is processed."""


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


def read_ahead(blocks: Iterable[BlockRef]) -> Iterator[BlockRef]:
    """The blocks, read by a thread a few ahead of the caller. Blocks in memory and iterators need no thread."""
    if not isinstance(blocks, list) or all(isinstance(block, Block) for block in blocks):
        yield from blocks
        return
    queue: Queue[BlockRef | None] = Queue(N_BLOCKS_AHEAD)
    stop = threading.Event()

    def read_all() -> None:
        for ref in blocks:
            if stop.is_set():
                return
            try:
                queue.put(read_block(ref))
            except Exception as error:  # noqa: BLE001 - raised again where the block is processed
                queue.put(UnreadableBlock(ref.location, ref.n_rows, error))
        queue.put(None)

    threading.Thread(target=read_all, daemon=True).start()
    try:
        while (block := queue.get()) is not None:
            yield block
    finally:
        stop.set()
        while not queue.empty():
            queue.get_nowait()


def concat_blocks(blocks: Sequence[Block]) -> Block | None:
    """The rows of arrays of one type as one block; None for other containers, and where a row lacks its label or weight."""
    if not all(_has_plain_rows(block) and _row_type(block) == _row_type(blocks[0]) for block in blocks):
        return None
    scores, labels = (np.concatenate([getattr(block, name) for block in blocks]) for name in ("scores", "labels"))
    if all(block.weights is None for block in blocks):
        return Block(scores, labels)
    weights = [np.ones(block.n_rows) if block.weights is None else block.weights for block in blocks]
    return Block(scores, labels, weights=np.concatenate(weights))


def _has_plain_rows(block: Block) -> bool:
    """Whether scores are an array of some rows, each of which has a label, and a weight if there are weights."""
    scores = block.scores
    if (
        not isinstance(scores, np.ndarray)
        or isinstance(scores, np.ma.MaskedArray)
        or not scores.size
        or scores.ndim > 2
    ):
        return False
    beside = [values for values in (block.labels, block.weights) if values is not None]
    return all(np.shape(values) == scores.shape[:1] for values in beside)


def _row_type(block: Block) -> tuple[Any, ...]:
    return block.scores.dtype, block.scores.shape[1:], np.asarray(block.labels).dtype.kind


def missing_labels() -> InputError:
    """The error for scores without labels."""
    return InputError("labels are missing", argument="labels_name", remedy="name the array that holds them")


def n_columns(scores: Any) -> int:
    """Number of classes of a block of scores; binary scores have two."""
    return int(np.shape(scores)[1]) if np.ndim(scores) > 1 else 2
