"""Who reads the blocks of a stream: this process (``Reader``), or workers (``rhocal.dask.Blocks``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rhocal.data import blocks
from rhocal.data.predictions import Predictions, predictions
from rhocal.data.sampling import PilotRows, pilot_blocks, pilot_of, pilot_rows, pilot_size
from rhocal.data.streams import with_block_context
from rhocal.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rhocal.data.stored import Chunk
    from rhocal.data.streams import Stream


class BlockReader(Protocol):
    """Blocks, and somebody who works on them where they are."""

    classes: Any
    """The label of every column, if the source says so."""

    @property
    def again(self) -> bool:
        """Whether the blocks can be read a second time."""

    @property
    def sizes(self) -> Sequence[int] | None:
        """PilotRows of every block, if known in advance."""

    def pilot(self) -> list[PilotRows]:
        """A few samples from all over."""

    def validate_pilot_blocks(self, spec: Mapping[str, Any]) -> None:
        """Check the blocks that gave the pilot; an error says which of them it was."""

    def late_pilot(self) -> list[PilotRows]:
        """A few samples of every block, after all were read."""

    def each(self, work: Callable[..., Any], *arguments: Any) -> Iterable[tuple[int, Any]]:
        """``work(k, chunk, *arguments)`` of every block, with its number k; in any order."""

    def reduce(self, work: Callable[..., Any], merge: Callable[[Any, Any], Any], *arguments: Any) -> Any:
        """The same, merged in the order of the blocks; None if there are none."""


def told_of(source: BlockReader | Stream, spec: Mapping[str, Any] | None) -> dict[str, Any]:
    """What ``rhocal.data.predictions`` is told of every block; classes that stand in the file count if none were said."""
    spec = {"kind": "logits", "classes": None, "ignore_index": None} | dict(spec or {})
    if spec["classes"] is None:
        spec["classes"] = source.classes
    return spec


class Reader:
    """Reads a stream once in this process: the pilot first, then the rest."""

    def __init__(self, stream: Stream, step: Callable[[Chunk], None] | None = None) -> None:
        self.stream, self.step = stream, step or (lambda _: None)
        self.classes = stream.classes
        self.held: dict[int, Chunk] = {}
        self._seen: list[PilotRows] = []  # a few samples of every block, for a second plan if the first one misled
        self._rest: Iterator[tuple[int, Chunk]] | None = None

    @property
    def again(self) -> bool:
        return self.stream.again

    @property
    def sizes(self) -> Sequence[int] | None:
        return None if self.stream.pieces is None else [piece.n_rows for piece in self.stream.pieces]

    def pilot(self) -> list[PilotRows]:
        """Of a file from all over it, of an iterator its first blocks."""
        pieces = self.stream.pieces
        if pieces is None:
            self._rest = self.stream.chunks()
            source, places = self._rest, 1
        else:
            chosen = pilot_blocks(len(pieces))
            source, places = self.stream.chunks(chosen), len(chosen)
        taken: list[PilotRows] = []
        for k, chunk in source:
            self.held[k] = chunk
            with blocks.with_block_context(chunk.location):
                taken.append(pilot_rows(chunk, places))
            if pieces is None and sum(len(rows.labels) for rows in taken) >= pilot_size(chunk.logits):
                break
        return taken

    def validate_pilot_blocks(self, spec: Mapping[str, Any]) -> None:
        for chunk in self.held.values():
            checked(chunk, spec)

    def late_pilot(self) -> list[PilotRows]:
        return self._seen

    def each(self, work: Callable[..., Any], *arguments: Any) -> Iterator[tuple[int, Any]]:
        places = None if self.stream.pieces is None else len(self.stream.pieces)
        for k, chunk in self._chunks():
            found = work(k, chunk, *arguments)
            if places is not None:
                self._seen.append(pilot_rows(chunk, places))
            self.step(chunk)
            yield k, found

    def reduce(self, work: Callable[..., Any], merge: Callable[[Any, Any], Any], *arguments: Any) -> Any:
        total = None
        for _, found in self.each(work, *arguments):
            total = found if total is None else merge(total, found)
        return total

    def _chunks(self) -> Iterator[tuple[int, Chunk]]:
        """Every block once, those of the pilot first."""
        done = set(self.held)
        for k in sorted(done):
            yield k, self.held.pop(k)
        if self._rest is not None:
            yield from self._rest
        elif self.stream.pieces is None:
            yield from self.stream.chunks()
        else:
            yield from self.stream.chunks([k for k in range(len(self.stream.pieces)) if k not in done])


def checked(chunk: Chunk, spec: Mapping[str, Any]) -> None:
    """Look through a block; an error says which block and which row it was.

    Labels that are texts are left alone if the classes are not known: a block need not show them all.
    """
    labels, ignored = chunk.labels, spec.get("ignore_index")
    texts = labels is not None and np.asarray(labels).dtype.kind not in "iub" and spec.get("classes") is None
    if ignored is not None and labels is not None and (np.asarray(labels) == ignored).all():
        return
    with_block_context(chunk, lambda chunk: predictions(chunk.logits, None if texts else labels, **spec))


def checked_pilot(source: BlockReader, taken: list[PilotRows], spec: Mapping[str, Any]) -> Predictions:
    """The pilot; what is wrong with it is said of the block that it came from."""
    try:
        return pilot_of(taken, spec)
    except InputError:
        source.validate_pilot_blocks(spec)
        raise
