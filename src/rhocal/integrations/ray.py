"""Sources that are processed by Ray, on one machine or many. The only importer of Ray.

>>> from rhocal.integrations.ray import RayExecutor, ray_source  # doctest: +SKIP
>>> cal = rhocal.RhoNormScaling().fit(ray_source(dataset, labels="label"))  # doctest: +SKIP
>>> cal = rhocal.RhoNormScaling().fit(rhocal.stream("part-*.parquet").on(RayExecutor()))  # doctest: +SKIP

Workers send profiles and sums, not rows. Results are merged in the order of the blocks, so neither the worker that processed a
block nor the order in which workers finish changes a result.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rhocal.calibrators.applying import OUTPUT_METHODS
from rhocal.data.blocks import Block, NumberedBlock
from rhocal.data.executors import BLOCKS_PER_MERGE, merge_results, raise_error, return_error
from rhocal.data.sources import Source
from rhocal.data.spec import InputSpec
from rhocal.errors import InputError, MissingExtraError, RhocalError
from rhocal.integrations.columns import TableColumns, matrix

try:
    import ray as _ray
except ImportError as error:
    raise MissingExtraError("ray", "ray", "computing on Ray") from error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rhocal.calibrators import Calibrator
from rhocal.data.blocks import BlockRef

R = TypeVar("R")

engine: Any = _ray  # it comes with half of its types


@dataclass(frozen=True)
class RayBlock:
    """Rows in Ray's object store."""

    location: str
    n_rows: int
    ref: Any
    """Of a tuple (logits, labels[, sample_weight]), or of a table of arrays."""
    columns: TableColumns | None = None

    def read(self) -> Block:
        """Fetch the rows to this process."""
        return self.block(engine.get(self.ref))

    def block(self, value: Any) -> Block:
        """The block of a value from the store."""
        if self.columns is not None:
            return self.columns.block(value, self.location)
        if not isinstance(value, tuple | list) or len(value) not in {2, 3}:
            raise InputError(
                f"{self.location} must be (logits, labels) or (logits, labels, sample_weight); got {type(value).__name__}"
            )
        return Block(value[0], np.asarray(value[1]), self.location, value[2] if len(value) == 3 else None)


@dataclass(frozen=True)
class RayExecutor:
    """Runs a function on blocks by Ray's workers; blocks in the object store are processed near their node."""

    def map(self, work: Callable[[BlockRef], R], blocks: Iterable[BlockRef]) -> Iterator[R]:
        results = deque(_tasks(work, blocks))
        while results:
            yield raise_error(engine.get(results.popleft()))  # released when it was used

    def reduce(
        self,
        work: Callable[[BlockRef], R],
        merge: Callable[[R, R], R],
        blocks: Iterable[BlockRef],
        progress: Callable[[R], None] | None = None,
    ) -> R:
        """Merged by the workers in groups of ``BLOCKS_PER_MERGE`` blocks, then groups of groups, always the same ones."""
        level = _merge_groups(merge, _tasks(work, blocks))
        if not level:
            raise InputError("the source is empty: there are no blocks")
        if progress is not None:
            for group in level:
                if not isinstance(result := engine.get(group), RhocalError):
                    progress(result)
        while len(level) > 1:
            level = _merge_groups(merge, level)
        return raise_error(engine.get(level[0]))


def _tasks(work: Callable[[BlockRef], R], blocks: Iterable[BlockRef]) -> list[Any]:
    run, shared = engine.remote(_run), engine.put(work)
    return [run.remote(shared, *_parts(block)) for block in blocks]


def _parts(block: BlockRef) -> tuple[BlockRef, Any]:
    """A block, and its rows as an argument of their own: Ray runs the task where they are."""
    ref = block.ref if isinstance(block, NumberedBlock) else block
    return block, ref.ref if isinstance(ref, RayBlock) else None


def _run(work: Callable[[BlockRef], R], block: BlockRef, value: Any) -> R | RhocalError:
    """On a worker: the result for a block, or the error."""
    ref = block.ref if isinstance(block, NumberedBlock) else block
    if isinstance(ref, RayBlock):
        rows = return_error(ref.block, value)
        if isinstance(rows, RhocalError):
            return rows
        block = NumberedBlock(block.number, rows) if isinstance(block, NumberedBlock) else rows
    return return_error(work, block)


def _merge_groups(merge: Callable[[R, R], R], level: Sequence[Any]) -> list[Any]:
    run, shared = engine.remote(_merge), engine.put(merge)
    return [run.remote(shared, *level[k : k + BLOCKS_PER_MERGE]) for k in range(0, len(level), BLOCKS_PER_MERGE)]


def _merge(merge: Callable[[R, R], R], *results: R | RhocalError) -> R | RhocalError:
    return merge_results(merge, results)


def ray_source(
    data: Any, *, logits: str | Sequence[str] = "logits", labels: str = "labels", weights: str | None = None
) -> Source:
    """The blocks of a ``ray.data.Dataset``, or of a list of references, as a source for ``fit``, ``measure`` and others.

    Parameters
    ----------
    data
        A dataset, whose plan is executed once and whose blocks stay in the object store; or a list of references
        (``ray.put``) to ``(logits, labels)`` or ``(logits, labels, sample_weight)``.
    logits
        The column of a dataset that holds a list or tensor for each sample, or one column for each class.
    labels, weights
        The columns of the labels and, optionally, of sample weights.
    """
    if hasattr(data, "to_numpy_refs"):
        columns = TableColumns.from_names(logits, labels, weights, data.columns() or ())
        refs = data.select_columns(columns.names).to_numpy_refs()
    else:
        columns, refs = None, list(data)
    count = engine.remote(_n_rows)
    sizes = engine.get([count.remote(ref, None if columns is None else columns.labels) for ref in refs])
    blocks = [
        RayBlock(f"block {k} ({n:,} rows)", n, ref, columns)
        for k, (ref, n) in enumerate(zip(refs, sizes, strict=True))
        if n
    ]
    spec = InputSpec(columns=None if columns is None else columns.classes)
    return Source(blocks, spec, executor=RayExecutor())


def _n_rows(value: Any, labels: str | None) -> int:
    return len(value[1]) if labels is None else len(value[labels])


def apply(
    calibrator: Calibrator, dataset: Any, *, logits: str | Sequence[str] = "logits", write: str = "probs", **spec: Any
) -> Any:
    """A dataset with one more column: calibrated ``"probs"`` or ``"logits"``, or the ``"predicted"`` class. It is lazy.

    ``spec`` is ``kind``, as ``predict_proba`` takes it.
    """
    if write not in OUTPUT_METHODS:
        raise InputError(f"write={write!r}: there are {', '.join(OUTPUT_METHODS)}")
    if isinstance(logits, str):
        return dataset.map_batches(partial(_add_output, calibrator, logits, write, spec), batch_format="numpy")
    frame = partial(_add_frame_output, calibrator, list(logits), write, spec)
    return dataset.map_batches(frame, batch_format="pandas")


def _add_output(
    calibrator: Calibrator, logits: str, write: str, spec: dict[str, Any], batch: dict[str, Any]
) -> dict[str, Any]:
    return batch | {write: getattr(calibrator, OUTPUT_METHODS[write])(matrix(batch[logits], logits), **spec)}


def _add_frame_output(calibrator: Calibrator, logits: list[str], write: str, spec: dict[str, Any], batch: Any) -> Any:
    """With one column for each class, which the calibrator matches by name."""
    return batch.assign(**{write: list(getattr(calibrator, OUTPUT_METHODS[write])(batch[logits], **spec))})
