"""Automatic choice: cross-validate several methods by a proper score, keep the best, fit it on all data."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.bins import BinSums, perfect_error
from rhocal.calibrators.base import Calibrator
from rhocal.calibrators.ridge import stratified_folds
from rhocal.calibrators.scale_fit import ScaleFit
from rhocal.errors import InputError, RhocalWarning
from rhocal.profile import Profile
from rhocal.solve import Solution
from rhocal.special import Floats, Vector, log_softmax

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from rhocal.portable import Portable
    from rhocal.predictions import Predictions

N_BINS = 10
"""Of the ECE that breaks ties."""

SAMPLES_PER_CLASS = 20
"""Methods with parameters for every class are only tried with at least this many tune samples a class."""


class AutoCalibrator(Calibrator):
    """The method that cross-validation finds best.

    The criterion: the lowest held-out NLL. Methods whose NLL is within one standard error (of the paired differences) of
    the lowest count as tied, and among these the lowest ECE above its floor wins. The winner is fitted on all samples.
    It keeps the decision if the method chosen does; leave ``vector`` out of ``methods`` to be sure.

    Parameters
    ----------
    methods
        Names in the table of methods.
    n_folds
        Of the cross-validation.

    Attributes
    ----------
    chosen_
        The fitted calibrator. ``solution_.trials`` has the figures of every method.
    """

    name = "auto"
    keeps_decision = False
    parameters = ()
    children = ("chosen_",)
    chosen_: Calibrator

    def __init__(
        self, methods: Sequence[str] = ("temperature", "rho-norm", "field", "vector"), *, n_folds: int = 5
    ) -> None:
        self.methods = methods
        self.n_folds = n_folds

    def _fit(self, data: Predictions) -> Solution:
        if not self.n_folds >= 2:
            raise InputError(f"n_folds must be at least 2; got {self.n_folds!r}")
        makers = {name: _maker(name) for name in self.methods}
        if not makers:
            raise InputError("methods is empty; name at least one")
        tried = {
            name: make
            for name, make in makers.items()
            if make().keeps_decision or data.n_samples >= SAMPLES_PER_CLASS * data.n_classes
        } or makers
        best, trials = self._cross_validate(data, tried)
        self.chosen_ = tried[best]().fit_checked(data, "logits")
        inner = self.chosen_.solution_
        skipped = tuple({"method": name, "skipped": "too few samples a class"} for name in makers if name not in tried)
        return Solution(
            f"held-out nll ({best}: {inner.objective})",
            inner.value,
            inner.converged,
            inner.n_evaluations,
            inner.at_bound,
            (*trials, *skipped),
        )

    def _cross_validate(
        self, data: Predictions, makers: dict[str, Callable[[], Calibrator]]
    ) -> tuple[str, list[dict[str, Any]]]:
        """The best method and the figures of all; the first one where there is nothing to compare on."""
        first = next(iter(makers))
        profile = Profile.of(data)
        if len(makers) == 1 or not profile.spread > 0:
            return first, [{"method": first}]
        folds = stratified_folds(ScaleFit.of(profile), self.n_folds)
        present = np.unique(folds[profile.weights > 0])
        if len(present) < 2:
            return first, [{"method": first}]
        scores = []
        for name, make in makers.items():
            held_out = np.zeros_like(data.logits)
            for fold in present:
                inside, outside = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", RhocalWarning)  # the final fit speaks for itself
                    cal = make().fit_checked(data.take(inside), "logits")
                held_out[outside] = cal.transform_checked(data.logits[outside])
            scores.append(HeldOut.of(name, held_out, data, profile))
        return _best(scores, profile)

    def _transform(self, logits: Floats) -> Floats:
        return self.chosen_.transform_checked(logits)

    def _portable(self) -> Portable:
        return self.chosen_.portable()

    def _probs(self, logits: Floats) -> Floats:
        return self.chosen_.probs_checked(logits)

    def _predicted(self, logits: Floats) -> NDArray[np.intp]:
        return self.chosen_.predicted_checked(logits)


@dataclass(frozen=True)
class HeldOut:
    """What a method scored on samples it was not fitted on."""

    method: str
    nll: Vector
    """Of every sample."""
    ece: float
    floor: float

    @classmethod
    def of(cls, method: str, logits: Floats, data: Predictions, profile: Profile) -> HeldOut:
        """Measure calibrated logits."""
        assert data.labels is not None
        log_p = log_softmax(logits.astype(np.float64)).astype(np.float64, copy=False)
        confidence = np.exp(log_p.max(axis=1))
        correct = (logits.argmax(axis=1) == data.labels).astype(np.float64)
        ece = BinSums.of(confidence, correct, n_bins=N_BINS, weights=profile.weights).error(1)
        floor = perfect_error(confidence, profile.weights * profile.total_weight, N_BINS)
        return cls(method, -log_p[np.arange(len(log_p)), data.labels], ece, floor)


def _best(scores: list[HeldOut], profile: Profile) -> tuple[str, list[dict[str, Any]]]:
    """The winner, and a row of evidence for every method."""
    lowest = min(scores, key=lambda score: float(profile.weights @ score.nll))
    rows: list[dict[str, Any]] = []
    for score in scores:
        difference = score.nll - lowest.nll
        mean = float(profile.weights @ difference)
        error = float(np.sqrt(profile.weights @ (difference - mean) ** 2 / profile.total_weight))
        nll = float(profile.weights @ score.nll)
        rows.append({"method": score.method, "nll": nll, "ece": score.ece, "floor": score.floor, "tied": mean <= error})
    best = min((row for row in rows if row["tied"]), key=lambda row: row["ece"] - row["floor"])
    return str(best["method"]), rows


def _maker(name: str) -> Callable[[], Calibrator]:
    from rhocal.calibrators import calibrator  # noqa: PLC0415 - the table knows this file too

    calibrator(name)  # an unknown name is an error now, not after the first fold
    return lambda: calibrator(name)
