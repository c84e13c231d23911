"""Compare methods: each is fitted on the calibration set of a split and measured on its test set.

Splits in memory, of a file larger than memory and on workers differ only in their sources. Of a source that is not
resident one pass serves all fits and one more all measurements, whatever the number of methods and splits.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rhocal.calibrators.compose.auto import BINARY
from rhocal.calibrators.fitting import Fits
from rhocal.data.sampling import Half
from rhocal.data.sources import Source, as_source
from rhocal.data.spec import InputSpec
from rhocal.errors import InputError, RhocalWarning
from rhocal.evaluation.measure import COUNT, DEBIASED, FLOOR, SAMPLES, Measurement, measure_source
from rhocal.evaluation.rows import COLUMNS, FAILED, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from numpy.typing import NDArray

    from rhocal.calibrators import Calibrator
    from rhocal.data.files import Contents
    from rhocal.data.predictions import Predictions
    from rhocal.data.spec import Kind

    Progress = Callable[[str, Source], AbstractContextManager[Source]]
    """Task and source → the source, with a progress bar while it is read."""

OWN = "own"
"""The name of the split of a network with a calibration and a test set of its own."""

DEFAULT_METHODS = ("identity", "temperature", "rho-norm", "field", "svs", "svs:field", "cascade")
"""What is compared unless methods are named: fitted in seconds on 25,000 samples of 1,000 classes."""

OPTION_METHODS = ("identity", "temperature", "rho-norm", "field", "ets", "cascade")
"""The same where columns are the options of questions."""

MAX_CLASSES_CLASSWISE = 4096
"""Classes up to which a stream is measured classwise: the sums are 240 bytes a class, for every method and split."""


@dataclass(frozen=True)
class CalibrationSplit:
    """A calibration set and a test set, with the name of the split."""

    name: str
    calibration: Source
    test: Source
    half: Half | None = None
    """The rows to fit on, where both sources are the same one that is not resident; the others are the test set."""

    @classmethod
    def from_predictions(cls, name: str, calibration: Predictions, test: Predictions) -> CalibrationSplit:
        """A split of validated rows in memory."""
        return cls(name, Source.from_predictions(calibration), Source.from_predictions(test))


def default_methods(n_classes: int, *, holds_options: bool = False) -> list[str]:
    """The methods that are compared unless others are named; with two classes also those that ``auto`` tries.

    Options have no meaning of their own: methods that fit a map of a column are left out.
    """
    if holds_options:
        return list(OPTION_METHODS)
    return list(dict.fromkeys([*DEFAULT_METHODS, *(BINARY if n_classes == 2 else ())]))


def splits(source: Source, test: Source | None = None, *, n_seeds: int = 5) -> Iterator[CalibrationSplit]:
    """The two sources as one split; for a single source, one random halving for each seed."""
    return (split_by_seed(source, test, seed) for seed in range(len(split_names(n_seeds, has_test=test is not None))))


def split_names(n_seeds: int, *, has_test: bool) -> list[str]:
    """The names of the splits: one for a network with a calibration and a test set, else one for each seed."""
    return [OWN] if has_test else [f"seed {seed}" for seed in range(n_seeds)]


def split_by_seed(source: Source, test: Source | None, seed: int) -> CalibrationSplit:
    """The split of two sources, or the halves of a single one that a seed gives."""
    if test is not None:
        return CalibrationSplit(OWN, source, test)
    if source.resident:
        return random_split(source.predictions, seed)
    if source.sizes is None:
        raise InputError("an iterator cannot be cut into halves, which takes a second pass; write its blocks to a file")
    return CalibrationSplit(f"seed {seed}", source, source, Half(source.sizes, seed))


def random_split(data: Predictions, seed: int, n_calibration: int | None = None) -> CalibrationSplit:
    """A random half (or ``n_calibration`` samples) as the calibration set, and the others as the test set.

    Samples of a cluster stay together: there may be more calibration samples by a part of a cluster.
    """
    order, middle = half_order(data.n_samples, data.clusters, seed, n_calibration)
    data = replace(data, n_ignored=0)  # samples that were left out are in neither half
    return CalibrationSplit.from_predictions(f"seed {seed}", data.take(order[:middle]), data.take(order[middle:]))


def half_order(
    n_samples: int, clusters: NDArray[Any] | None, seed: int, n_calibration: int | None = None
) -> tuple[NDArray[np.intp], int]:
    """The samples in random order, those of a cluster together, and how many of the first are the calibration set."""
    rng, middle = np.random.default_rng(seed), n_samples // 2 if n_calibration is None else n_calibration
    if clusters is None:
        return rng.permutation(n_samples), middle
    codes = np.unique(clusters, return_inverse=True)[1]
    places = rng.permutation(int(codes.max()) + 1)[codes]
    order = np.argsort(places, kind="stable")
    middle = int(np.searchsorted(places[order], places[order[middle - 1]], side="right")) if middle else 0
    if middle == n_samples:  # the last cluster is large: it is the test set
        middle = int(np.searchsorted(places[order], places[order[-1]]))
    if middle == 0:
        raise InputError("clusters: all samples are of one cluster, which cannot be cut into halves")
    return order, middle


def file_sources(contents: Contents, kind: Kind = "logits") -> tuple[Source, Source | None]:
    """The calibration and the test set of a file in memory, or its single set."""
    spec = InputSpec(kind, contents.classes)
    first = contents.calibration_set()
    source = as_source(first.scores, first.labels, spec=spec)
    if not contents.has_splits:
        return source, None
    test = contents.test_set()
    return source, as_source(test.scores, test.labels, spec=spec)


def compare(
    network: str,
    work: Iterable[tuple[CalibrationSplit, Mapping[str, Calibrator]]],
    *,
    progress: Progress = lambda _task, source: nullcontext(source),
) -> Iterator[Row]:
    """Fit the methods of each split and measure them: one row per split and method.

    Rows of resident sources follow one by one; the splits of a source that is not resident share two passes over it.
    """
    streamed = []
    for split, methods in work:
        if split.calibration.resident:
            for name, calibrator in methods.items():
                yield from _compare_in_passes(network, [(split, {name: calibrator})], progress)
        elif methods:
            streamed.append((split, methods))
    if streamed:
        yield from _compare_in_passes(network, streamed, progress)


def _compare_in_passes(
    network: str, work: Sequence[tuple[CalibrationSplit, Mapping[str, Calibrator]]], progress: Progress
) -> list[Row]:
    """The rows of splits of the same sources: one pass to fit, one to measure."""
    first = work[0][0]
    with progress(f"{network}, fitting", first.calibration) as source:
        calibrators = {name: calibrator for _, methods in work for name, calibrator in methods.items()}
        fits = Fits(source, calibrators, check_guarded_only=True)
        if fits.source.resident and first.half is not None:  # a stream of few rows, which are in memory now
            data = fits.source.predictions
            halves = [
                (random_split(data, split.half.seed), methods) for split, methods in work if split.half is not None
            ]
            return list(compare(network, halves))
        fitted = [
            try_fit(fits, split, name, calibrator) for split, methods in work for name, calibrator in methods.items()
        ]
    with progress(f"{network}, measuring", first.test) as test:
        return measure_fitted(network, fitted, test)


@dataclass(frozen=True)
class FittedMethod:
    """A method on one split: its calibrator, or why there is none."""

    split: CalibrationSplit
    method: str
    n_calibration: int
    calibrator: Calibrator | None
    note: str
    seconds: float = math.nan
    cpu_seconds: float = math.nan

    @property
    def key(self) -> tuple[str, str]:
        """Split and method."""
        return self.split.name, self.method


def try_fit(fits: Fits, split: CalibrationSplit, method: str, calibrator: Calibrator) -> FittedMethod:
    """Fit a method on a split; warnings become its note, and so does the reason of a failure."""
    fitted = partial(FittedMethod, split, method, fits.n_rows(split.half))
    start = np.array([time.perf_counter(), time.process_time()])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RhocalWarning)
        try:
            fits.fit(method, calibrator, split.half)
        except InputError as error:  # too many classes for a full matrix, say: the other methods are still compared
            return fitted(None, f"{FAILED}{error}")
    seconds, cpu_seconds = (np.array([time.perf_counter(), time.process_time()]) - start).tolist()
    note = "; ".join(dict.fromkeys(str(warning.message) for warning in caught))
    return fitted(calibrator, note, seconds, cpu_seconds)


def measure_fitted(network: str, fitted: Sequence[FittedMethod], test: Source) -> list[Row]:
    """The row of every method, measured in one pass over the test source; missing values are not a number."""
    halves = {fit.split.name: fit.split.half for fit in fitted}
    measurements = []
    for name, half in halves.items():
        calibrators = {fit.key: fit.calibrator for fit in fitted if fit.split.name == name and fit.calibrator}
        if calibrators:
            measurements.append(Measurement(calibrators, None if half is None else replace(half, test=True)))
    values: dict[Any, dict[str, Any]] = {}
    if measurements:
        columns = list(COLUMNS)
        if not test.resident:
            classes = next(fit.calibrator.classes_ for fit in fitted if fit.calibrator)
            test = replace(test, spec=replace(test.spec, classes=classes))  # a test set with others is an error
            columns = [name for name in columns if name != "classwise_ece" or len(classes) <= MAX_CLASSES_CLASSWISE]
        values = measure_source(test, measurements, [*columns, FLOOR, COUNT, DEBIASED, SAMPLES]).values
    sizes = {name: _n_test(test, half) for name, half in halves.items()}
    sizes |= {name: int(part[COUNT]) for (name, _), part in values.items()}
    return [_row(network, fit, values.get(fit.key, {}), sizes[fit.split.name]) for fit in fitted]


def _n_test(test: Source, half: Half | None) -> int:
    """Number of rows to measure on."""
    if half is not None:
        return sum(half.sizes) - sum(half.sizes) // 2
    return test.predictions.n_samples if test.resident else test.n_rows or 0


def _row(network: str, fit: FittedMethod, values: Mapping[str, Any], n_test: int) -> Row:
    columns = {name: values.get(name, math.nan) for name in COLUMNS}
    floor = values.get(FLOOR, math.nan)
    return Row(
        network, fit.split.name, fit.method, columns, fit.seconds, fit.n_calibration, n_test, floor, fit.note,
        fit.cpu_seconds, ece_debiased=values.get(DEBIASED, math.nan), samples=values.get(SAMPLES),
    )  # fmt: skip


def network_name(path: Path) -> str:
    """How rows call a file: by its name, and the ``logits.npz`` of a run by the name of the run's folder."""
    return path.parent.name if path.stem == "logits" and path.parent.name else path.stem


def network_names(paths: Sequence[Path]) -> list[str]:
    """How rows call several files: where names are the same, with their endings, or with as many folders as tell them apart."""
    names = [network_name(path) for path in paths]
    in_folders = [(path.resolve().parent, name) for path, name in zip(paths, names, strict=True)]
    names = [
        path.name if in_folders.count(place) > 1 else name
        for path, name, place in zip(paths, names, in_folders, strict=True)
    ]
    resolved = [path.resolve() for path in paths]
    for depth in range(1, 1 + max((len(path.parts) for path in resolved), default=0)):
        same = {name for name in names if names.count(name) > 1}
        if not same:
            break
        names = [
            "/".join([*path.parts[-1 - depth : -1], path.stem]) if name in same else name
            for name, path in zip(names, resolved, strict=True)
        ]
    return names


class Task(Protocol):
    """A part of a comparison that a process can do by itself."""

    def rows(self) -> Iterator[Row]:
        """Fit and measure."""


def run(tasks: Sequence[Task], n_jobs: int) -> Iterator[list[Row]]:
    """Rows as they arrive: one by one in this process, a task at a time from others."""
    if n_jobs == 1:
        yield from ([row] for task in tasks for row in task.rows())
        return
    with _single_threaded(), ProcessPoolExecutor(n_jobs, mp_context=get_context("spawn")) as pool:
        for finished in as_completed([pool.submit(_all_rows, task) for task in tasks]):
            yield finished.result()


def _all_rows(task: Task) -> list[Row]:
    return list(task.rows())


@contextmanager
def _single_threaded() -> Iterator[None]:
    """Processes started here compute on one thread each: two of many threads would only wait for each other."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before
