"""Who reads the blocks of a stream: this process (``Reader``), or workers (``rhocal.dask.Blocks``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rhocal.data.sources import Source
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
        """Rows of every block, if known in advance."""

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
    """Reads a stream in this process; ``step`` is called with a number of rows when they are done."""

    def __init__(self, stream: Stream, step: Callable[[int], None] | None = None) -> None:
        self.stream, self.step, self.classes = stream, step, stream.classes

    @property
    def again(self) -> bool:
        return self.stream.again

    @property
    def sizes(self) -> Sequence[int] | None:
        return None if self.stream.pieces is None else [piece.n_rows for piece in self.stream.pieces]

    def as_source(self) -> Source:
        """The source of the same blocks."""
        source = self.stream.as_source()
        return source if self.step is None else source.with_progress(self.step)

    def each(self, work: Callable[..., Any], *arguments: Any) -> Iterator[tuple[int, Any]]:
        for k, chunk in self.stream.chunks():
            yield k, work(k, chunk, *arguments)
            if self.step is not None:
                self.step(chunk.n_rows)

    def reduce(self, work: Callable[..., Any], merge: Callable[[Any, Any], Any], *arguments: Any) -> Any:
        total = None
        for _, found in self.each(work, *arguments):
            total = found if total is None else merge(total, found)
        return total
