"""Automatic choice: cross-validate several methods by a proper score, keep the best, fit it on all data."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from rhocal.bins import BinSums, perfect_error
from rhocal.calibrators.base import Calibrator
from rhocal.calibrators.ridge import stratified_folds
from rhocal.calibrators.scale_fit import ScaleFit
from rhocal.errors import InputError, RhocalWarning
from rhocal.profile import Profile
from rhocal.solve import Solution
from rhocal.special import Floats, Vector, log_softmax, row_argmax

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from rhocal.portable import Portable
    from rhocal.predictions import Predictions

N_BINS = 10
"""Of the ECE that breaks ties."""

SAMPLES_PER_CLASS = 20
"""Methods with parameters for every class are only tried with at least this many tune samples a class."""

METHODS = (
    "temperature", "rho-norm", "field", "ets", "polynomial", "svs", "vector", "sms", "svs:field", "beta",
    "centered-isotonic", "spline", "pts", "iop", "sms:field", "dirichlet",
)  # fmt: skip
"""What is tried, in this order: one method of each kind in the table, the quick ones first."""

DROPPED = 2.0
"""A method this many standard errors behind the best after a fold is not tried on further folds."""

GUARD = 0.003
"""By how much the held-out NLL of the choice may exceed that of temperature scaling, relatively."""


class AutoCalibrator(Calibrator):
    """The method that cross-validation finds best.

    The criterion: the lowest held-out NLL. Methods whose NLL is within one standard error (of the paired differences) of
    the lowest, and not above that of the first method (temperature scaling), count as tied, and among these the lowest ECE
    above its floor wins.
    The winner is fitted on all samples. Methods that fall behind are dropped after each fold.
    It keeps the decision if the method chosen does; ``keep_decision=True`` leaves the others out.

    Parameters
    ----------
    methods
        Names in the table of methods, or chains of them.
    n_folds
        Of the cross-validation.
    keep_decision
        Try only methods that never change the predicted class.
    time_budget
        Seconds after which no further method is begun; what has not been seen on every fold by then is left out.

    Attributes
    ----------
    chosen_
        The fitted calibrator. ``solution_.trials`` has the figures of every method, and why one was left out.
    """

    name = "auto"
    keeps_decision = False
    parameters = ()
    children = ("chosen_",)
    chosen_: Calibrator

    def __init__(
        self,
        methods: Sequence[str] = METHODS,
        *,
        n_folds: int = 5,
        keep_decision: bool = False,
        time_budget: float = 60.0,
    ) -> None:
        self.methods = methods
        self.n_folds = n_folds
        self.keep_decision = keep_decision
        self.time_budget = time_budget

    def _fit(self, data: Predictions) -> Solution:
        if not self.n_folds >= 2:
            raise InputError(f"n_folds must be at least 2; got {self.n_folds!r}")
        if not self.time_budget > 0:
            raise InputError(f"time_budget must be positive, in seconds; got {self.time_budget!r}")
        if isinstance(self.methods, str) or not len(self.methods):
            raise InputError(f"methods is a list of names, at least one; got {self.methods!r}")
        makers = {name: _maker(name) for name in self.methods}
        skipped = {name: self._unfit(make(), data) for name, make in makers.items()}
        tried = {name: make for name, make in makers.items() if not skipped[name]} or makers
        race = Race(data, tried, self.n_folds, self.time_budget)
        best, trials = race.run()
        self.chosen_ = tried[best]().fit_checked(data, "logits")
        inner = self.chosen_.solution_
        reasons = tuple({"method": name, "skipped": why} for name, why in skipped.items() if why and name not in tried)
        return Solution(
            f"held-out nll ({best}: {inner.objective})",
            inner.value,
            inner.converged,
            inner.n_evaluations,
            inner.at_bound,
            (*trials, *reasons),
        )

    def _unfit(self, cal: Calibrator, data: Predictions) -> str:
        """Why a method is not tried; empty if it is."""
        if cal.keeps_decision:
            return ""
        if self.keep_decision:
            return "it may change the decision"
        return "" if data.n_samples >= SAMPLES_PER_CLASS * data.n_classes else "too few samples a class"

    def _transform(self, logits: Floats) -> Floats:
        return self.chosen_.transform_checked(logits)

    def _portable(self) -> Portable:
        return self.chosen_.portable()

    def _probs(self, logits: Floats) -> Floats:
        return self.chosen_.probs_checked(logits)

    def _predicted(self, logits: Floats) -> NDArray[np.intp]:
        return self.chosen_.predicted_checked(logits)


class Race:
    """Methods against each other, fold by fold; who falls behind does not start again."""

    def __init__(
        self, data: Predictions, makers: Mapping[str, Callable[[], Calibrator]], n_folds: int, budget: float
    ) -> None:
        self.data, self.makers, self.n_folds = data, makers, n_folds
        self.deadline = time.monotonic() + budget
        self.profile = Profile.of(data)
        self.outputs: dict[str, Floats] = {}
        self.left_out: dict[str, str] = {}

    def run(self) -> tuple[str, list[dict[str, Any]]]:
        """The best method and the figures of all; the first one where there is nothing to compare on."""
        first = next(iter(self.makers))
        if len(self.makers) == 1 or not self.profile.spread > 0:
            return first, [{"method": first}]
        folds = stratified_folds(ScaleFit.of(self.profile), self.n_folds)
        present = np.unique(folds[self.profile.weights > 0])
        if len(present) < 2:
            return first, [{"method": first}]
        running = list(self.makers)
        seen = np.zeros(len(folds), dtype=bool)
        for fold in present:
            seen |= folds == fold
            running = [name for name in running if self._held_out(name, folds, fold)]
            running = self._still_in(running, seen)
        best, rows = _best(
            [HeldOut.of(name, self.outputs[name], self.data, self.profile) for name in running], self.profile
        )
        return best, [*rows, *({"method": name, "skipped": why} for name, why in self.left_out.items())]

    def _held_out(self, name: str, folds: Vector, fold: float) -> bool:
        """Fit a method without one fold and keep what it says there; False if it cannot, or there is no time."""
        if time.monotonic() > self.deadline and name != next(iter(self.makers)):
            self.left_out[name] = "out of time"
            return False
        inside, outside = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RhocalWarning)  # the final fit speaks for itself
                cal = self.makers[name]().fit_checked(self.data.take(inside), "logits")
        except InputError as error:
            self.left_out[name] = str(error)
            return False
        held_out = self.outputs.setdefault(name, np.zeros_like(self.data.logits))
        held_out[outside] = cal.transform_checked(self.data.logits[outside])
        return True

    def _still_in(self, running: list[str], seen: NDArray[np.bool_]) -> list[str]:
        """Without those that are clearly behind on the samples seen so far."""
        weights = self.profile.weights[seen] / max(self.profile.weights[seen].sum(), 1e-300)
        labels = cast("NDArray[np.intp]", self.data.labels)[seen]
        nll = {name: _nll(self.outputs[name][seen], labels) for name in running}
        lowest = min(running, key=lambda name: float(weights @ nll[name]))
        kept = []
        for name in running:
            difference = nll[name] - nll[lowest]
            mean = float(weights @ difference)
            error = float(np.sqrt(weights @ (difference - mean) ** 2 / (self.profile.total_weight * seen.mean())))
            if mean <= DROPPED * error or name == next(iter(self.makers)):  # the first is what the guard compares with
                kept.append(name)
            else:
                self.left_out[name] = f"held-out nll {mean:.4f} above {lowest}'s after a part of the folds"
        return kept


def _nll(logits: Floats, labels: NDArray[np.intp]) -> Vector:
    log_p = log_softmax(logits.astype(np.float64))
    return -log_p[np.arange(len(log_p)), labels].astype(np.float64, copy=False)


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
        confidence = np.exp(log_softmax(logits.astype(np.float64)).max(axis=1))
        correct = (row_argmax(logits) == data.labels).astype(np.float64)
        ece = BinSums.of(confidence, correct, n_bins=N_BINS, weights=profile.weights).error(1)
        floor = perfect_error(confidence, profile.weights * profile.total_weight, N_BINS)
        return cls(method, _nll(logits, data.labels), ece, floor)


def _best(scores: list[HeldOut], profile: Profile) -> tuple[str, list[dict[str, Any]]]:
    """The winner, and a row of evidence for every method. The first is the one the guard compares with."""
    lowest = min(scores, key=lambda score: float(profile.weights @ score.nll))
    allowed = (1 + GUARD) * float(profile.weights @ scores[0].nll)
    rows: list[dict[str, Any]] = []
    for score in scores:
        difference = score.nll - lowest.nll
        mean = float(profile.weights @ difference)
        error = float(np.sqrt(profile.weights @ (difference - mean) ** 2 / profile.total_weight))
        nll = float(profile.weights @ score.nll)
        tied = mean <= error and nll <= allowed
        rows.append({"method": score.method, "nll": nll, "ece": score.ece, "floor": score.floor, "tied": tied})
    best = min((row for row in rows if row["tied"]), key=lambda row: row["ece"] - row["floor"])
    return str(best["method"]), rows


def _maker(name: str) -> Callable[[], Calibrator]:
    from rhocal.calibrators import calibrator  # noqa: PLC0415 - the table knows this file too

    calibrator(name)  # an unknown name is an error now, not after the first fold
    return lambda: calibrator(name)
