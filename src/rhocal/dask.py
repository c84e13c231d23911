"""Many machines: the same functions of a block, where the blocks are. The only importer of Dask.

Only profiles and sums travel. Which worker did which block, and in which order, changes nothing: what blocks leave behind is
put together in the order of the blocks.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal import out_of_core as one
from rhocal.blocks import Plan, plan_for
from rhocal.calibrators import Calibrator, ScaleCalibrator
from rhocal.curve_table import Table
from rhocal.errors import FileError, InputError, MissingExtraError
from rhocal.metrics import CORE
from rhocal.predictions import predictions
from rhocal.stored import Chunk
from rhocal.streams import Stream, read_piece

try:
    import dask as _dask
except ImportError as error:
    raise MissingExtraError("dask", "dask", "computing on many machines") from error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rhocal.profile import Profile
    from rhocal.stored import Piece


engine: Any = _dask  # it comes with half of its types
delayed = engine.delayed


class Blocks:
    """Blocks that lie somewhere, as tasks that each give a ``Chunk``."""

    def __init__(
        self, tasks: Sequence[Any], sizes: Sequence[int], classes: Any = None, stream: Stream | None = None
    ) -> None:
        self.tasks, self.sizes, self.classes, self.stream = tasks, sizes, classes, stream

    @classmethod
    def of(cls, logits: Any, labels: Any = None, sample_weight: Any = None) -> Blocks:
        """From a stream of files, or from Dask arrays."""
        if isinstance(logits, Stream):
            if logits.pieces is None:
                raise InputError("an iterator cannot be sent to workers; give files, or Dask arrays")
            tasks = [delayed(_read, pure=False)(piece) for piece in logits.pieces]
            return cls(tasks, [piece.n_rows for piece in logits.pieces], logits.classes, logits)
        if logits.ndim != 2:
            raise InputError(f"a Dask array of logits has shape (n_samples, n_classes); got {logits.shape}")
        if np.isnan(logits.shape[0]):
            logits = logits.compute_chunk_sizes()
        logits = logits.rechunk({1: -1})
        rows = logits.chunks[0]
        beside = [
            _beside(values, rows, name) for values, name in ((labels, "labels"), (sample_weight, "sample_weight"))
        ]
        parts = logits.to_delayed().ravel()
        tasks = [
            delayed(Chunk)(part, label, f"block {k} ({n:,} rows)", weight)
            for k, (part, n, label, weight) in enumerate(zip(parts, rows, *beside, strict=True))
        ]
        return cls(tasks, rows)

    def each(self, work: Callable[..., Any], *arguments: Any, only: Sequence[int] | None = None) -> list[Any]:
        """What some work gives for every block (or only some), done where the block is."""
        shared = [delayed(argument) for argument in arguments]
        chosen = range(len(self.tasks)) if only is None else only
        found = engine.compute(*[delayed(_safely)(work, self.tasks[k], *shared) for k in chosen])
        bad = [value for value in found if isinstance(value, FileError)]
        if bad and (self.stream is None or not self.stream.skip_bad):
            raise bad[0]
        if self.stream is not None:
            self.stream.skipped += [str(value) for value in bad if str(value) not in self.stream.skipped]
        return [value for value in found if not isinstance(value, FileError)]


def _read(piece: Piece) -> Chunk | FileError:
    try:
        return read_piece(piece)
    except FileError as error:
        return error


def _safely(work: Callable[..., Any], chunk: Any, *arguments: Any) -> Any:
    """An error is a value here: raised on a worker it would lose its message, and be tried again in vain."""
    if isinstance(chunk, FileError):
        return chunk
    try:
        return work(chunk, *arguments)
    except FileError as error:
        return error


def _beside(values: Any, rows: tuple[int, ...], name: str) -> list[Any]:
    """One value a row, cut like the rows."""
    if values is None:
        return [None] * len(rows)
    if len(values) != sum(rows):
        raise InputError(f"{name} and logits differ in length: {len(values)} {name}, {sum(rows)} samples")
    if hasattr(values, "to_delayed"):
        return list(values.rechunk((rows,)).to_delayed().ravel())
    ends = np.cumsum(rows)
    array = np.asarray(values)
    return [array[end - n : end] for n, end in zip(rows, ends, strict=True)]


def fit(calibrator: Calibrator, logits: Any, labels: Any, sample_weight: Any, said: Mapping[str, Any]) -> None:
    """Fit on Dask arrays, or on a stream of files whose blocks are read by the workers."""
    blocks = Blocks.of(logits, labels, sample_weight)
    told = dict(said) | ({"classes": blocks.classes} if said.get("classes") is None else {})
    if calibrator.takes_groups:
        raise InputError(f"{calibrator.name} needs groups, which blocks do not carry; fit on arrays")
    if not isinstance(calibrator, ScaleCalibrator):
        _fit_subsample(calibrator, blocks, told, one.WHY_NOT)
        return
    chosen = one.pilot_blocks(len(blocks.tasks))
    pilot = one.pilot_of(blocks.each(one.pilot_rows, len(chosen), only=chosen), told)
    try:
        plan = plan_for(calibrator, pilot, told)
    except InputError as error:
        if "fit on the logits" not in str(error):
            raise
        _fit_subsample(calibrator, blocks, told, str(error))
        return
    whole = _whole(blocks, plan, pilot.classes)
    said_by_fit = one.fit_quietly(calibrator, whole)
    if plan.guide is not None and one.strayed(calibrator, whole, one.FAR) > one.FEW:
        late = one.pilot_of(blocks.each(one.pilot_rows, len(blocks.tasks)), told)
        whole = _whole(blocks, plan_for(calibrator, late, told), late.classes)
        said_by_fit = one.fit_quietly(calibrator, whole)
    for warning in said_by_fit:
        warnings.warn(str(warning.message), warning.category, stacklevel=4)


def _whole(blocks: Blocks, plan: Plan, classes: Any) -> Profile:
    parts = [found for found in blocks.each(lean_profile, plan) if found is not None]
    counts = {n_classes for n_classes, _ in parts} or {len(classes)}
    if counts != {len(classes)}:
        raise InputError(f"blocks differ in the number of classes: {', '.join(map(str, sorted(counts)))}")
    return _with_classes(one.joined([part for _, part in parts]), classes)


def lean_profile(chunk: Chunk, plan: Plan) -> tuple[int, Profile] | None:
    """The profile of a block without the names of its classes: 128,256 of them are more than the rest of a block's."""
    part = one.chunk_profile(chunk, plan)
    return None if part is None else (part.n_classes, _with_classes(part, part.classes[:0]))


def _with_classes(profile: Profile, classes: Any) -> Profile:
    named = replace(profile, classes=classes)
    if not isinstance(profile.table, Table):
        return named
    return replace(named, table=replace(profile.table, profile=replace(named, table=None)))


def _fit_subsample(calibrator: Calibrator, blocks: Blocks, told: Mapping[str, Any], why: str) -> None:
    """The same rows that a single machine would draw from the same blocks."""
    n_columns = int(blocks.each(_n_columns, only=[0])[0])
    drawn = np.concatenate([one.lots(k, n) for k, n in enumerate(blocks.sizes)])
    room = one.subsample_size(n_columns)
    kept = np.sort(np.argpartition(drawn, room)[:room]) if len(drawn) > room else np.arange(len(drawn))
    starts = np.r_[0, np.cumsum(blocks.sizes)]
    parts = []
    for k, start in enumerate(starts[:-1]):
        rows = kept[(kept >= start) & (kept < starts[k + 1])] - start
        if len(rows):
            parts += blocks.each(_taken, rows, only=[k])
    logits, labels, weights = (np.concatenate(part) for part in zip(*parts, strict=True))
    data = predictions(logits, labels, sample_weight=None if (weights == 1).all() else weights, **told)
    one.fit_checked(calibrator, data, len(drawn), why, stacklevel=5)


def _n_columns(chunk: Chunk) -> int:
    return int(np.shape(chunk.logits)[1]) if np.ndim(chunk.logits) > 1 else 2


def _taken(chunk: Chunk, rows: Any) -> tuple[Any, Any, Any]:
    weight = np.ones(len(rows)) if chunk.sample_weight is None else np.asarray(chunk.sample_weight)[rows]
    return np.asarray(chunk.logits)[rows], np.asarray(chunk.labels)[rows], weight


def figures(
    logits: Any,
    labels: Any,
    calibrators: Mapping[str, Calibrator | None],
    said: Mapping[str, Any] | None = None,
    names: Iterable[str] = tuple(CORE),
    sample_weight: Any = None,
) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Metrics of Dask arrays, or of a stream of files: sums where the blocks are, added up here in the order of the blocks."""
    blocks = Blocks.of(logits, labels, sample_weight)
    told = {"kind": "logits", "classes": blocks.classes, "ignore_index": None} | dict(said or {})
    names = tuple(names)
    total: dict[str, dict[str, Any]] = {}
    for sums in blocks.each(one.chunk_sums, dict(calibrators), told, names):
        one.add(total, sums)
    return one.read_off(total, names)


def predict_proba(calibrator: Calibrator, logits: Any, kind: Any = None) -> Any:
    """Calibrated probabilities as a Dask array: computed when asked for, block by block."""
    if logits.ndim != 2 or logits.shape[1] != len(calibrator.classes_):
        raise InputError(
            f"a Dask array of logits has shape (n_samples, {len(calibrator.classes_)}) here; got {logits.shape}"
        )
    single = logits.rechunk({1: -1})
    dtype = np.float32 if single.dtype.itemsize <= 4 and single.dtype.kind == "f" else np.float64
    return single.map_blocks(calibrator.predict_proba, kind=kind, dtype=dtype)


@contextmanager
def cluster(scheduler: str | None, workers: int | None, timeout: str = "10s") -> Iterator[Any]:
    """A client of a running scheduler (``tcp://…``), or of a new local cluster of that many processes."""
    try:
        from dask import distributed as _distributed  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("dask.distributed", "dask", "a cluster of processes") from error
    distributed: Any = _distributed
    if scheduler is not None:
        try:
            client = distributed.Client(scheduler, timeout=timeout)
        except OSError as error:
            raise InputError(f"no scheduler answers at {scheduler}: {error}") from error
        with client:
            yield client
        return
    with (
        distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0", memory_limit=None
        ) as local,
        distributed.Client(local) as client,
    ):
        yield client
