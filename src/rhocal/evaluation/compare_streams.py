"""Comparisons of files larger than memory: one pass to fit every method, one more to measure them all."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from rhocal.calibrators import calibrator
from rhocal.calibrators.fitting import Fits
from rhocal.data.sampling import Half
from rhocal.errors import InputError
from rhocal.evaluation.compare import COLUMNS, OWN, FittedMethod, Row, split_names, try_fit
from rhocal.evaluation.measure import COUNT, FLOOR, Measurement, measure_source

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from rhocal.data.sources import Source

MOST_CLASSWISE = 4096
"""Classes up to which classwise ECE is measured: its sums are 240 bytes a class, for every method and split."""


def fit_all(source: Source, todo: Mapping[str, Collection[str]]) -> list[FittedMethod]:
    """Fit methods on splits of one source: split → methods, and the halves of ``seed k`` are those of ``compare``.

    Methods that scale a sample's logits are fitted on profiles that one pass makes for all; others on the samples of a
    subsample (see ``rhocal.data.sampling``) that are in the half, with a note.
    """
    methods = {name: calibrator(name) for names in todo.values() for name in names}
    if not methods:
        return []
    halves = {split: None if split == OWN else Half(_sizes(source), seed_of(split)) for split in todo}
    fits = Fits(source, methods)
    fitted: list[FittedMethod] = []
    for split, names in todo.items():
        for name in names:
            cal = calibrator(name)
            result = try_fit(name, cal, partial(fits.fit, name, cal, halves[split]))
            fitted.append(replace(result, split=split, half=halves[split], n_tune=fits.n_rows(halves[split])))
    return fitted


def seed_of(split: str) -> int:
    """The seed in the name of a split."""
    return int(split.removeprefix("seed "))


def _sizes(source: Source) -> tuple[int, ...]:
    if source.sizes is None:
        raise InputError("an iterator cannot be cut into halves, which takes a second pass; write its blocks to a file")
    return source.sizes


def measure_all(network: str, fitted: Sequence[FittedMethod], test: Source) -> list[Row]:
    """The row of every method, measured on the other half (or on all of the test source) in one pass for all of them."""
    measurements = []
    for split, half in {fit.split: fit.half for fit in fitted}.items():
        calibrators = {fit.key: fit.calibrator for fit in fitted if fit.split == split and fit.calibrator}
        if calibrators:
            others = None if half is None else Half(half.sizes, half.seed, test=True)
            measurements.append(Measurement(calibrators, others))
    if not measurements:
        return [Row.from_fit(network, fit, {}, 0) for fit in fitted]
    classes = next(fit.calibrator.classes_ for fit in fitted if fit.calibrator)
    names = [name for name in COLUMNS if name != "classwise_ece" or len(classes) <= MOST_CLASSWISE]
    test = replace(test, spec=replace(test.spec, classes=classes))  # a test set with others is an error
    values = measure_source(test, measurements, [*names, FLOOR, COUNT]).values
    sizes = {split: int(part[COUNT]) for (split, _), part in values.items()}
    return [Row.from_fit(network, fit, values.get(fit.key, {}), sizes.get(fit.split, 0)) for fit in fitted]


def compare_streams(
    network: str, methods: Collection[str], source: Source, test: Source | None = None, *, n_seeds: int = 5
) -> list[Row]:
    """Rows of a comparison: fitted on a source and measured on another, or on random halves of the first."""
    todo = {split: list(methods) for split in split_names(n_seeds, has_test=test is not None)}
    fitted = fit_all(source, todo)
    return measure_all(network, fitted, source if test is None else test)
