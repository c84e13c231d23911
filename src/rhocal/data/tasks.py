"""What an executor runs on a block: read it, validate it, call a function; here or on a worker."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from rhocal.data.blocks import Block, missing_labels, read_block
from rhocal.data.columns import frame_columns, shown
from rhocal.data.labels.class_order import counted_names
from rhocal.data.predictions import Predictions
from rhocal.data.sampling import PilotRows, pilot_rows
from rhocal.data.scores import suspect_order
from rhocal.errors import FileError, InputError, RhocalError, SuspiciousInputWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from rhocal.data.blocks import BlockRef
    from rhocal.data.spec import InputSpec
    from rhocal.data.storage.checksums import Piece

R = TypeVar("R")


@dataclass(frozen=True)
class Outcome(Generic[R]):
    """The result for a block, or of several blocks merged, and what was read for it."""

    value: R | None
    """None if the block has no samples, or could not be read and is left out."""
    n_rows: int = 0
    n_bytes: int = 0
    columns: tuple[str, int] | None = None
    """The first block, and its number of classes."""
    skipped: tuple[str, ...] = ()
    classes: tuple[str, NDArray[Any]] | None = None
    """The first block whose columns are named after its labels, and these names."""
    pieces: tuple[Piece, ...] = ()
    """Checksums of the bytes that were read."""


def outcome_of(block: Block, value: R | None, classes: NDArray[Any] | None = None) -> Outcome[R]:
    """The result for a block, with the numbers of its rows, bytes and columns, and the classes that its labels show."""
    shape = np.shape(block.scores)
    n_bytes = int(np.asarray(block.scores).nbytes) if block.stored_bytes is None else block.stored_bytes
    label_classes = None if classes is None else (block.location, classes)
    columns = block.location, shape[1] if len(shape) > 1 else 2
    return Outcome(value, shape[0], n_bytes, columns, classes=label_classes, pieces=block.pieces)


@contextmanager
def with_block_context(location: str) -> Iterator[None]:
    """Add file and rows to an error; an array of the caller has no location."""
    try:
        yield
    except RhocalError as error:
        if not location:
            raise
        raise error.at(location) from error


def block_or_error(ref: BlockRef, *, skip_bad: bool) -> Block | FileError:
    """Read a block. With ``skip_bad`` the error of one that cannot be read is returned: it is left out."""
    try:
        return ref if isinstance(ref, Block) else read_block(ref)
    except FileError as error:
        if not skip_bad:
            raise
        return error


@dataclass(frozen=True)
class BlockTask(Generic[R]):
    """Read a block, validate it and run a function on it; errors name the block."""

    work: Callable[[Predictions], R]
    spec: InputSpec
    needs_labels: bool
    skip_bad: bool
    pilot: dict[int, PilotRows] | None = None
    """Where a few rows of every block are kept, for a second plan if the first one is misleading; None on workers."""
    n_blocks: int = 1

    def __call__(self, ref: BlockRef) -> Outcome[R]:
        block = block_or_error(ref, skip_bad=self.skip_bad)
        if isinstance(block, FileError):
            return Outcome(None, ref.n_rows, skipped=(str(block),))
        with with_block_context(block.location):
            data = validate_block(block, self.spec, needs_labels=self.needs_labels)
            value = None if data is None else self.work(data)
            if self.pilot is not None:
                self.pilot[block.number] = pilot_rows(block, self.n_blocks)
        is_inferred = self.spec.classes is None and data is not None and data.labels is not None
        return outcome_of(block, value, data.classes if is_inferred and data is not None else None)


def validate(block: Block, spec: InputSpec, *, needs_labels: bool) -> Predictions:
    """Turn a block into ``Predictions``."""
    if needs_labels and block.labels is None:
        raise missing_labels() if block.location else InputError("labels are missing; pass one label for each sample")
    data = Predictions.from_arrays(
        block.scores,
        block.labels if needs_labels else None,
        weights=block.weights,
        groups=block.groups,
        clusters=block.clusters,
        spec=spec,
        block=block.number,
        name=spec.kind,
    )
    is_unnamed = spec.classes is None and spec.columns is None and frame_columns(block.scores) is None
    if data.labels is not None and is_unnamed and data.classes.dtype.kind == "U":
        suspect_order(data.seen.column, data.labels, data.weights, data.n_classes)
    return data if needs_labels else replace(data, stored_labels=_copied_labels(block.labels, spec))


def _copied_labels(labels: Any, spec: InputSpec) -> Any:
    """Labels for the output: those that count columns become names if classes have names, as predicted classes do.

    They stay numbers where some are no column (an ignored label), or where it is unclear which order of columns they count.
    """
    names = None if labels is None else counted_names(np.asarray(labels), spec)
    return labels if names is None else names


def validate_block(block: Block, spec: InputSpec, *, needs_labels: bool) -> Predictions | None:
    """Turn one of many blocks into ``Predictions``; None if every sample is ignored or has weight 0."""
    labels = None if block.labels is None else np.asarray(block.labels)
    if np.ndim(block.scores) > 2:
        raise InputError(f"a block of logits has shape (n_samples, n_classes); got {np.shape(block.scores)}")
    ignored = None if labels is None or spec.ignore_index is None else np.asarray(labels == spec.ignore_index)
    weights = None if block.weights is None else np.asarray(block.weights)
    if weights is not None and ignored is not None and ignored.shape == weights.shape:
        weights = weights[~ignored]
    is_ignored = ignored is not None and bool(ignored.all())
    is_weightless = weights is not None and not np.any(weights)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SuspiciousInputWarning)  # the pilot has warned
        if is_ignored or is_weightless:  # validated all the same, as it would be among others in memory
            rest = replace(block, labels=None if is_ignored else block.labels, weights=None)
            validate(rest, spec, needs_labels=needs_labels and not is_ignored)
            return None
        return validate(block, spec, needs_labels=needs_labels)


@dataclass(frozen=True)
class ReadTask:
    """Read a block and bring it here as it is stored."""

    skip_bad: bool

    def __call__(self, ref: BlockRef) -> Outcome[Block]:
        block = block_or_error(ref, skip_bad=self.skip_bad)
        if isinstance(block, FileError):
            return Outcome(None, ref.n_rows, skipped=(str(block),))
        return outcome_of(block, replace(block, stored_bytes=0, pieces=()))  # its bytes are counted and compared now


@dataclass(frozen=True)
class PilotTask:
    """Read a block and keep a few of its rows for the pilot."""

    n_places: int
    """How many blocks the pilot comes from."""
    skip_bad: bool
    held: dict[int, Block] | None = None
    """Where the blocks are kept, so that they are read once; None on workers."""

    def __call__(self, ref: BlockRef) -> Outcome[PilotRows]:
        block = block_or_error(ref, skip_bad=self.skip_bad)
        if isinstance(block, FileError):
            return Outcome(None, skipped=(str(block),))
        if self.held is not None:
            self.held[block.number] = block
        with with_block_context(block.location):
            return replace(outcome_of(block, pilot_rows(block, self.n_places)), n_rows=0)


def same_columns(first: tuple[str, int] | None, other: tuple[str, int] | None) -> tuple[str, int] | None:
    """The first block and its number of classes, which the other must have too."""
    if first is not None and other is not None and first[1] != other[1]:
        raise InputError(
            f"blocks differ in the number of classes: {first[0]} has {first[1]:,}, {other[0]} has {other[1]:,}"
        )
    return other if first is None else first


def same_classes(
    first: tuple[str, NDArray[Any]] | None, other: tuple[str, NDArray[Any]] | None
) -> tuple[str, NDArray[Any]] | None:
    """The first block and the classes that its labels show, which the labels of the other must show too."""
    if first is not None and other is not None and first[1].tolist() != other[1].tolist():
        raise InputError(
            f"labels of blocks show different classes: {first[0]} {shown(first[1].tolist())}, {other[0]} "
            f"{shown(other[1].tolist())}",
            argument="classes",
            remedy="name the label of each column, in order",
        )
    return other if first is None else first


def merge_outcomes(mine: Outcome[R], other: Outcome[R], merge: Callable[[R, R], R]) -> Outcome[R]:
    """The outcome of the blocks of both."""
    columns = same_columns(mine.columns, other.columns)
    classes = same_classes(mine.classes, other.classes)
    if mine.value is None or other.value is None:
        value = mine.value if other.value is None else other.value
    else:
        value = merge(mine.value, other.value)
    skipped = (*mine.skipped, *other.skipped)
    return Outcome(
        value,
        mine.n_rows + other.n_rows,
        mine.n_bytes + other.n_bytes,
        columns,
        skipped,
        classes,
        (*mine.pieces, *other.pieces),
    )
