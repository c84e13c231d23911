"""Automatic choice: cross-validate several methods by a proper score, keep the best, fit it on all data."""

from __future__ import annotations

import warnings
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
        trials = self._cross_validate(data, tried) if len(tried) > 1 else [{"method": name} for name in tried]
        best = _best(trials)
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

    def _cross_validate(self, data: Predictions, makers: dict[str, Callable[[], Calibrator]]) -> list[dict[str, Any]]:
        profile = Profile.of(data)
        if not profile.spread > 0:
            return [{"method": next(iter(makers))}]
        folds = stratified_folds(ScaleFit.of(profile), self.n_folds)
        present = np.unique(folds[profile.weights > 0])
        if len(present) < 2:
            return [{"method": next(iter(makers))}]
        trials = []
        for name, make in makers.items():
            held_out = np.zeros_like(data.logits)
            for fold in present:
                inside, outside = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", RhocalWarning)  # the final fit speaks for itself
                    cal = make().fit_checked(data.take(inside), "logits")
                held_out[outside] = cal.transform_checked(data.logits[outside])
            trials.append({"method": name, **_figures(held_out, data, profile)})
        return trials

    def _transform(self, logits: Floats) -> Floats:
        return self.chosen_.transform_checked(logits)

    def _probs(self, logits: Floats) -> Floats:
        return self.chosen_.probs_checked(logits)

    def _predicted(self, logits: Floats) -> NDArray[np.intp]:
        return self.chosen_.predicted_checked(logits)


def _figures(logits: Floats, data: Predictions, profile: Profile) -> dict[str, Any]:
    """Held-out NLL of every sample and of all, and ECE with its floor."""
    assert data.labels is not None
    log_p = log_softmax(logits.astype(np.float64))
    nll = -log_p[np.arange(len(log_p)), data.labels]
    confidence = np.exp(log_p.max(axis=1))
    correct = (logits.argmax(axis=1) == data.labels).astype(np.float64)
    ece = BinSums.of(confidence, correct, n_bins=N_BINS, weights=profile.weights).error(1)
    floor = perfect_error(confidence, profile.weights * profile.total_weight, N_BINS)
    return {"nll": float(profile.weights @ nll), "ece": ece, "floor": floor, "_nll": nll, "_profile": profile}


def _best(trials: list[dict[str, Any]]) -> str:
    """The winner; removes the working columns from the rows."""
    if len(trials) == 1:
        return str(trials[0]["method"])
    lowest = min(trials, key=lambda trial: trial["nll"])
    tied = []
    for trial in trials:
        profile: Profile = trial["_profile"]
        difference: Vector = trial["_nll"] - lowest["_nll"]
        mean = float(profile.weights @ difference)
        error = float(np.sqrt(profile.weights @ (difference - mean) ** 2 / profile.total_weight))
        trial["tied"] = mean <= error
        if trial["tied"]:
            tied.append(trial)
    best = min(tied, key=lambda trial: trial["ece"] - trial["floor"])
    for trial in trials:
        del trial["_nll"], trial["_profile"]
    return str(best["method"])


def _maker(name: str) -> Callable[[], Calibrator]:
    from rhocal.calibrators import calibrator  # noqa: PLC0415 - the table knows this file too

    calibrator(name)  # an unknown name is an error now, not after the first fold
    return lambda: calibrator(name)
