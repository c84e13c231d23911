"""Comparisons of files larger than memory: one pass to fit every method, one more to measure them all."""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rhocal.calibrators import Calibrator, calibrator
from rhocal.calibrators.fitting import Fits
from rhocal.data.reader import Reader, told_of
from rhocal.data.sampling import Half
from rhocal.errors import InputError, RhocalWarning
from rhocal.evaluation.compare import COLUMNS, FAILED, Row
from rhocal.evaluation.measure import COUNT, FLOOR, Job, figures_on

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from rhocal.data.reader import BlockReader as Source
    from rhocal.data.streams import Stream

OWN = "own"
"""How the split of a network with a tune and a test set of its own is called."""

MOST_CLASSWISE = 4096
"""Classes up to which classwise ECE is measured: its sums are 240 bytes a class, for every method and split."""


@dataclass(frozen=True)
class FittedMethod:
    """A method on one split: its calibrator, or why there is none."""

    method: str
    split: str
    half: Half | None
    """The rows it was fitted on; None for all."""
    n_tune: int
    seconds: float
    """Of the fit itself, after the pass over the logits that all share."""
    calibrator: Calibrator | None
    note: str


def splits(n_seeds: int | None) -> list[str]:
    """The names of the splits: random halves, or the network's own (None)."""
    return [OWN] if n_seeds is None else [f"seed {seed}" for seed in range(n_seeds)]


def fit_all(
    tune: Source, todo: Mapping[str, Collection[str]], spec: Mapping[str, Any] | None = None
) -> list[FittedMethod]:
    """Fit methods on splits of one stream: split → methods, and the halves of ``seed k`` are those of ``compare``.

    Methods that scale a sample's logits are fitted on profiles that one pass makes for all; others on the samples of a
    subsample (see ``rhocal.data.sampling``) that are in the half, and their note says so.
    """
    methods = {name: calibrator(name) for names in todo.values() for name in names}
    if not methods:
        return []
    fits = Fits(tune, told_of(tune, spec), methods)
    found: list[FittedMethod] = []
    for split, names in todo.items():
        half = None if split == OWN else Half(tuple(_sizes(tune)), int(split.removeprefix("seed ")))
        found += [_fitted(fits, name, split, half) for name in names]
    return found


def _sizes(source: Source) -> Sequence[int]:
    if source.sizes is None:
        raise InputError("an iterator cannot be cut into halves, which takes a second pass; write its blocks to a file")
    return source.sizes


def _fitted(fits: Fits, method: str, split: str, half: Half | None) -> FittedMethod:
    cal = calibrator(method)
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RhocalWarning)
        try:
            fits.fit(method, cal, half)
        except InputError as error:  # the others go on, and the row tells
            return FittedMethod(method, split, half, fits.n_rows(half), math.nan, None, f"{FAILED}{error}")
    note = "; ".join(dict.fromkeys(str(warning.message) for warning in caught))
    return FittedMethod(method, split, half, fits.n_rows(half), time.perf_counter() - start, cal, note)


def measure_all(
    network: str, fitted: Sequence[FittedMethod], test: Source, spec: Mapping[str, Any] | None = None
) -> list[Row]:
    """A row for each: measured on the other half (or on all of the test stream) in one pass for all of them."""
    halves = {one.split: one.half for one in fitted}
    jobs = []
    for split, half in halves.items():
        mine = {(split, one.method): one.calibrator for one in fitted if one.split == split and one.calibrator}
        if mine:
            jobs.append(Job(mine, None if half is None else Half(half.sizes, half.seed, test=True)))
    classes = next((one.calibrator.classes_ for one in fitted if one.calibrator), ())
    names = [name for name in COLUMNS if name != "classwise_ece" or len(classes) <= MOST_CLASSWISE]
    spec = {**(spec or {}), "classes": classes}  # a test set with others is an error
    found = figures_on(test, jobs, spec, [*names, FLOOR, COUNT])[0] if jobs else {}
    sizes = {split: int(values[COUNT]) for (split, _), values in found.items()}
    rows = []
    for one in fitted:
        values = found.get((one.split, one.method), {})
        columns = {name: values.get(name, math.nan) for name in COLUMNS}
        n_test, floor = sizes.get(one.split, 0), values.get(FLOOR, math.nan)
        rows.append(Row(network, one.split, one.method, columns, one.seconds, one.n_tune, n_test, floor, one.note))
    return rows


def compare_streams(
    network: str,
    methods: Collection[str],
    tune: Stream,
    test: Stream | None = None,
    *,
    n_seeds: int = 5,
    **spec: Any,
) -> list[Row]:
    """Rows of a comparison of streams: fitted on one and measured on the other, or on random halves of the first.

    ``spec`` is ``kind`` and ``classes``. See ``fit_all`` and ``measure_all`` for other readers than this process.
    """
    todo = {split: list(methods) for split in splits(n_seeds if test is None else None)}
    fitted = fit_all(Reader(tune), todo, spec)
    return measure_all(network, fitted, Reader(tune if test is None else test), spec)
