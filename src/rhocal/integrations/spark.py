"""Sources that are processed by Spark. The only importer of PySpark.

>>> from rhocal.integrations.spark import SparkExecutor, spark_source  # doctest: +SKIP
>>> cal = rhocal.RhoNormScaling().fit(spark_source(frame, logits="rawPrediction", labels="label"))  # doctest: +SKIP
>>> cal = rhocal.RhoNormScaling().fit(rhocal.stream("part-*.parquet").on(SparkExecutor(session)))  # doctest: +SKIP

Executors send profiles and sums, not rows; results are merged in the order of the blocks. Only data frames are used, so classic
sessions and Spark Connect work. Python on the executors needs rhocal: set ``PYSPARK_PYTHON``.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rhocal.calibrators.applying import OUTPUT_METHODS
from rhocal.data.blocks import NumberedBlock
from rhocal.data.executors import merge_results, raise_error, return_error
from rhocal.data.sources import Source
from rhocal.data.spec import InputSpec
from rhocal.errors import InputError, MissingExtraError, RhocalError
from rhocal.integrations.columns import TableColumns

try:
    import pyspark as _pyspark  # noqa: F401 - everything else is a method of the frames that came
except ImportError as error:
    raise MissingExtraError("pyspark", "spark", "computing on Spark") from error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rhocal.calibrators import Calibrator
from rhocal.data.blocks import Block, BlockRef

R = TypeVar("R")

N_GROUPS = 1024
"""Groups of blocks whose sums are merged before they are sent: the driver gets fewer than twice as many results."""

RESULTS = "number long, result binary"
"""What a task gives: the number of its first block, and a pickled result."""


@dataclass(frozen=True)
class SparkExecutor:
    """Runs a function on blocks by Spark's executors. Files must be readable there, under the same names."""

    session: Any

    def map(self, work: Callable[[BlockRef], R], blocks: Iterable[BlockRef]) -> Iterator[R]:
        yield from (raise_error(result) for result in self._run(work, None, list(blocks), 1))

    def reduce(
        self,
        work: Callable[[BlockRef], R],
        merge: Callable[[R, R], R],
        blocks: Iterable[BlockRef],
        progress: Callable[[R], None] | None = None,
    ) -> R:
        """Merged in groups of neighboring blocks, always the same ones, and then by the driver."""
        refs = list(blocks)
        results = [raise_error(result) for result in self._run(work, merge, refs, max(len(refs) // N_GROUPS, 1))]
        if not results:
            raise InputError("the source is empty: there are no blocks")
        if progress is not None:
            for result in results:
                progress(result)
        return reduce(merge, results)

    def _run(
        self, work: Callable[[BlockRef], R], merge: Callable[[R, R], R] | None, refs: Sequence[BlockRef], size: int
    ) -> list[R | RhocalError]:
        if refs and isinstance(_inner(refs[0]), SparkBlock):
            return _on_partitions(work, refs)
        n_groups = -(-len(refs) // size)
        if not n_groups:
            return []

        def run(batches: Iterable[Any]) -> Iterator[Any]:
            for batch in batches:
                for k in batch.column(0).to_pylist():
                    results = [return_error(work, ref) for ref in refs[k * size : (k + 1) * size]]
                    yield _row(k, results[0] if merge is None else merge_results(merge, results))

        return _collect(self.session.range(0, n_groups, 1, n_groups).mapInArrow(run, RESULTS))


@dataclass(frozen=True)
class SparkBlock:
    """A partition of a data frame."""

    location: str
    n_rows: int
    partition: int
    frame: Any
    columns: TableColumns

    def read(self) -> Block:
        """Fetch the rows to this process."""
        (block,) = _on_partitions(_as_it_is, [self])
        return raise_error(block).read()

    def block(self, batches: Iterable[Any]) -> Block:
        """The block of the Arrow batches of the partition."""
        parts = [{name: column(batch, name) for name in self.columns.names} for batch in batches if batch.num_rows]
        try:
            table = {name: np.concatenate([part[name] for part in parts]) for name in self.columns.names}
        except ValueError as error:  # lists of one batch are longer than those of another
            raise InputError(f"{self.location}: lists of scores differ in length: {error}") from error
        return self.columns.block(table, self.location)


def _as_it_is(block: BlockRef) -> BlockRef:
    return block


def column(batch: Any, name: str) -> Any:
    """A column of an Arrow batch as an array; lists of one length become a matrix."""
    values = batch.column(batch.schema.get_field_index(name))
    if not hasattr(values, "flatten") or not str(values.type).startswith(("list", "large_list", "fixed_size_list")):
        return values.to_numpy(zero_copy_only=False)
    numbers = values.flatten().to_numpy(zero_copy_only=False)
    lengths = np.unique(values.value_lengths().to_numpy(zero_copy_only=False))
    if values.null_count or len(lengths) != 1:
        raise InputError(
            f"column {name!r}: one list of numbers for each sample is needed, with a number for each class"
        )
    return numbers.reshape(len(values), int(lengths[0]))


def _inner(block: BlockRef) -> BlockRef:
    return block.ref if isinstance(block, NumberedBlock) else block


def _on_partitions(work: Callable[[BlockRef], R], blocks: Sequence[BlockRef]) -> list[R | RhocalError]:
    """The result for each of some partitions of a frame, in the order of the blocks."""
    first = _inner(blocks[0])
    assert isinstance(first, SparkBlock)
    numbers: dict[int, tuple[int, SparkBlock]] = {}
    for k, block in enumerate(blocks):
        inner = _inner(block)
        assert isinstance(inner, SparkBlock)
        number = block.number if isinstance(block, NumberedBlock) else k
        numbers[inner.partition] = number, replace(inner, frame=None)  # a frame cannot be sent

    def process(number: int, block: SparkBlock, batches: Iterable[Any]) -> R:
        return work(NumberedBlock(number, block.block(batches)))

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        from pyspark import TaskContext  # noqa: PLC0415 - on an executor

        context = TaskContext.get()
        if context is not None and context.partitionId() in numbers:
            number, block = numbers[context.partitionId()]
            yield _row(number, return_error(process, number, block, batches))

    return _collect(first.frame.mapInArrow(run, RESULTS))


def _row(number: int, result: Any) -> Any:
    import pyarrow as pa  # noqa: PLC0415 - Spark has it where it sends batches

    return pa.RecordBatch.from_pydict(
        {
            "number": pa.array([number], pa.int64()),
            "result": pa.array([pickle.dumps(result)], pa.binary()),
        }
    )


def _collect(frame: Any) -> list[Any]:
    """The results of tasks, in the order of their blocks."""
    rows = sorted(frame.collect(), key=lambda row: row.number)
    return [pickle.loads(row.result) for row in rows]  # noqa: S301 - of our own tasks


def spark_source(
    frame: Any, *, logits: str | Sequence[str] = "logits", labels: str = "labels", weights: str | None = None
) -> Source:
    """The partitions of a Spark data frame as the blocks of a source for ``fit``, ``measure`` and others.

    Each pass runs the plan of the frame again: ``cache()`` a frame that is costly, or whose rows are shuffled at random.

    Parameters
    ----------
    frame
        A data frame; each of its partitions must fit into the memory of an executor.
    logits
        The column that holds an array or a vector of Spark ML for each sample, or one column for each class.
    labels, weights
        The columns of the labels and, optionally, of sample weights.
    """
    columns = TableColumns.from_names(logits, labels, weights, frame.columns)
    chosen = frame.select(*(_as_array(frame, name).alias(name) for name in columns.names))
    sizes = dict(_collect(chosen.mapInArrow(_count_rows, RESULTS)))
    blocks = [
        SparkBlock(f"partition {k} ({sizes[k]:,} rows)", sizes[k], k, chosen, columns)
        for k in sorted(sizes)
        if sizes[k]
    ]
    return Source(blocks, InputSpec(columns=columns.classes), executor=SparkExecutor(frame.sparkSession))


def _count_rows(batches: Iterable[Any]) -> Iterator[Any]:
    from pyspark import TaskContext  # noqa: PLC0415 - on an executor

    context = TaskContext.get()
    assert context is not None
    number = context.partitionId()
    yield _row(number, (number, sum(batch.num_rows for batch in batches)))


def _as_array(frame: Any, name: str) -> Any:
    """A column; vectors of Spark ML become arrays."""
    column = frame[name]
    if frame.schema[name].dataType.typeName() != "vectorudt":
        return column
    from pyspark.ml.functions import vector_to_array  # noqa: PLC0415 - Spark ML is there if its vectors are

    return vector_to_array(column)


def apply(
    calibrator: Calibrator, frame: Any, *, logits: str | Sequence[str] = "logits", write: str = "probs", **spec: Any
) -> Any:
    """A frame with one more column: calibrated ``"probs"`` or ``"logits"``, or the ``"predicted"`` class. It is lazy.

    ``spec`` is ``kind``, as ``predict_proba`` takes it. The column of probabilities is an array of doubles.
    """
    from pyspark.sql.functions import PandasUDFType, pandas_udf, struct  # noqa: PLC0415 - needs pandas

    if write not in OUTPUT_METHODS:
        raise InputError(f"write={write!r}: there are {', '.join(OUTPUT_METHODS)}")
    is_text = calibrator.classes_.dtype.kind not in "iu"
    kind = "array<double>" if write != "predicted" else "string" if is_text else "long"
    method = getattr(calibrator, OUTPUT_METHODS[write])

    def calibrate(scores: Any) -> Any:
        series = scores if scores.ndim == 1 else scores.iloc[:, 0]
        return type(series)(list(method(scores, **spec)))

    names = [logits] if isinstance(logits, str) else list(logits)
    scores = _as_array(frame, names[0]) if isinstance(logits, str) else struct(*(frame[name] for name in names))
    return frame.withColumn(write, pandas_udf(calibrate, kind, PandasUDFType.SCALAR)(scores))
