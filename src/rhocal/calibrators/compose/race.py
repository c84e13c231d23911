"""Methods against each other in cross-validation, within a time budget."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from rhocal.calibrators.compose.chain import Chain
from rhocal.calibrators.estimator import unfitted
from rhocal.calibrators.scale.ridge import stratified_folds
from rhocal.calibrators.scale.scale_search import ScaleSearch
from rhocal.errors import InputError, RhocalWarning
from rhocal.numerics.bins import BinSums, perfect_error
from rhocal.numerics.special import Floats, Vector, log_softmax, row_argmax
from rhocal.profile.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rhocal.calibrators.base import Calibrator
    from rhocal.data.predictions import Predictions

N_BINS = 10
"""Of the ECE that breaks ties."""

DROPPED = 2.0
"""A method this many standard errors behind the best after a fold is not tried on further folds."""

GUARD = 0.006
"""By how much the held-out NLL of the choice, and ``SURENESS`` standard errors, may exceed that of the first method."""

SURENESS = 1.0
"""Standard errors of the paired difference that the guard adds: the best of many looks better than it is, the more so the
fewer samples there are."""

OUT_OF_TIME = "out of time"

Stages = tuple[str, str]
"""First and second stage of a chain, by name."""


class Race:
    """Methods against each other, fold by fold; who falls behind does not start again.

    The first method is always in: the guard compares with it. A chain is raced after its first stage: its second stage is
    cross-validated on what the first stage said about samples it had not seen, so that no fit of it is done twice.
    When the time is over, the methods are compared on the folds that all of them have been through.
    """

    def __init__(self, data: Predictions, methods: Mapping[str, Calibrator], n_folds: int, budget: float) -> None:
        self.data, self.n_folds = data, n_folds
        self.deadline = time.monotonic() + budget
        self.profile = Profile.of(data)
        self.first = next(iter(methods))
        self.methods = list(methods)
        self.chains = {name: stages for name, cal in methods.items() if name != self.first and (stages := _stages(cal))}
        self.fitted_by: dict[str, str | Calibrator] = dict(methods)
        self.fitted_by |= {first: first for first, _ in self.chains.values() if first not in methods}
        self.outputs: dict[str, Floats] = {}
        self.left_out: dict[str, str] = {}

    def run(self) -> tuple[str, list[dict[str, Any]]]:
        """The best method and the figures of all; the first one where there is nothing to compare on."""
        nothing = self.first, [{"method": self.first}]
        if len(self.methods) == 1 or not self.profile.spread > 0:
            return nothing
        folds = stratified_folds(ScaleSearch.from_profile(self.profile), self.n_folds)
        present = np.unique(folds[self.profile.weights > 0])
        if len(present) < 2:
            return nothing
        running, n_seen = self._singles(folds, present)
        seen = np.isin(folds, present[:n_seen])
        for name, (first, second) in self.chains.items():
            if first not in running:
                self.left_out[name] = self.left_out.get(first, OUT_OF_TIME)
            elif n_seen < 2 or self._late():
                self.left_out[name] = OUT_OF_TIME
            elif self._held_out_chain(name, first, second, folds, present[:n_seen]):
                running.append(name)
        scores = [
            HeldOut.of(name, self.outputs[name][seen], self.data.take(np.flatnonzero(seen)))
            for name in self.methods
            if name in running
        ]
        best, rows = _best(scores)
        skipped = [{"method": name, "skipped": why} for name, why in self.left_out.items() if name in self.methods]
        return best, [*rows, *skipped]

    def _singles(self, folds: Vector, present: Vector) -> tuple[list[str], int]:
        """The methods that are no chains, and first stages of chains: those still in, and the folds all have been through."""
        running = [name for name in self.fitted_by if name not in self.chains]
        n_seen = 0
        for n_seen, fold in enumerate(present):
            through = []
            for name in running:
                if self._late() and not (n_seen == 0 and name == self.first):
                    break
                if self._held_out(name, folds, fold):
                    through.append(name)
            else:
                if not through:
                    raise InputError(
                        f"none of the methods can be fitted; the first, {self.first}: {self.left_out[self.first]}"
                    )
                running = self._still_in(through, np.isin(folds, present[: n_seen + 1]))
                continue
            if n_seen == 0:  # not one fold is whole: who has been through it is compared
                self.left_out |= dict.fromkeys((name for name in running if name not in through), OUT_OF_TIME)
                return through, 1
            return [name for name in running if name not in self.left_out], n_seen
        return running, n_seen + 1

    def _late(self) -> bool:
        return time.monotonic() > self.deadline

    def _fit(self, method: str | Calibrator, data: Predictions) -> Calibrator:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RhocalWarning)  # the final fit speaks for itself
            return unfitted(method).fit_checked(data, "logits")

    def _held_out(self, name: str, folds: Vector, fold: float) -> bool:
        """Fit a method without one fold and keep what it says there; False if it cannot."""
        outside = folds == fold
        try:
            cal = self._fit(self.fitted_by[name], self.data.take(np.flatnonzero(~outside)))
        except InputError as error:
            self.left_out[name] = str(error)
            return False
        held_out = self.outputs.setdefault(name, np.zeros_like(self.data.logits))
        held_out[outside] = cal.transform_checked(self.data.logits[outside])
        return True

    def _held_out_chain(self, name: str, first: str, second: str, folds: Vector, present: Vector) -> bool:
        """Cross-validate the second stage on the held-out outputs of the first."""
        outputs = self.outputs[first]
        held_out = self.outputs[name] = np.zeros_like(outputs)
        between = replace(self.data, kind="logits", scores=outputs)
        for fold in present:
            inside = np.flatnonzero(np.isin(folds, present) & (folds != fold))
            try:
                cal = self._fit(second, between.take(inside))
            except InputError as error:
                self.left_out[name] = str(error)
                return False
            held_out[folds == fold] = cal.transform_checked(outputs[folds == fold])
        return True

    def _still_in(self, running: list[str], seen: NDArray[np.bool_]) -> list[str]:
        """Without those that are clearly behind on the samples seen so far; first stages of chains stay."""
        weights = self.profile.weights[seen] / max(self.profile.weights[seen].sum(), 1e-300)
        labels = cast("NDArray[np.intp]", self.data.labels)[seen]
        nll = {name: _nll(self.outputs[name][seen], labels) for name in running}
        lowest = min(running, key=lambda name: float(weights @ nll[name]))
        needed = {self.first, *(first for first, _ in self.chains.values())}
        kept = []
        for name in running:
            mean, error = _difference(nll[name], nll[lowest], weights, self.profile.total_weight * seen.mean())
            if mean <= DROPPED * error or name in needed:
                kept.append(name)
            else:
                self.left_out[name] = f"held-out nll {mean:.4f} above {lowest}'s after a part of the folds"
        return kept


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What a method scored on samples it was not fitted on."""

    method: str
    nll: Vector
    """Of every sample."""
    weights: Vector
    total_weight: float
    ece: float
    floor: float

    @classmethod
    def of(cls, method: str, logits: Floats, data: Predictions) -> HeldOut:
        """Measure calibrated logits."""
        assert data.labels is not None
        counts = np.ones(data.n_samples) if data.weights is None else np.asarray(data.weights, dtype=np.float64)
        total = float(counts.sum())
        confidence = np.exp(log_softmax(logits.astype(np.float64)).max(axis=1))
        correct = (row_argmax(logits) == data.labels).astype(np.float64)
        ece = BinSums.of(confidence, correct, n_bins=N_BINS, weights=counts / total).error(1)
        floor = perfect_error(confidence, counts, N_BINS)
        return cls(method, _nll(logits, data.labels), counts / total, total, ece, floor)

    @property
    def mean_nll(self) -> float:
        """Of all samples."""
        return float(self.weights @ self.nll)


def _best(scores: Sequence[HeldOut]) -> tuple[str, list[dict[str, Any]]]:
    """The winner, and a row of evidence for every method. The first is the one that the guard compares with."""
    first = scores[0]
    passed = [score for score in scores if _passes(score, first)]
    lowest = min(passed, key=lambda score: score.mean_nll)
    tied = []
    for score in passed:
        mean, error = _difference(score.nll, lowest.nll, score.weights, score.total_weight)
        if mean <= error:
            tied.append(score)
    best = min(tied, key=lambda score: score.ece - score.floor)
    rows = [
        {
            "method": score.method,
            "nll": score.mean_nll,
            "ece": score.ece,
            "floor": score.floor,
            "guarded": score not in passed,
            "tied": score in tied,
        }
        for score in scores
    ]
    return best.method, rows


def _passes(score: HeldOut, first: HeldOut) -> bool:
    """Whether the guard lets a method through: it is hardly above the first, as far as the samples show."""
    above, unsure = _difference(score.nll, first.nll, score.weights, score.total_weight)
    return above + SURENESS * unsure <= GUARD * abs(first.mean_nll)


def _difference(nll: Vector, other: Vector, weights: Vector, total_weight: float) -> tuple[float, float]:
    """Mean of the paired differences, and its standard error."""
    difference = nll - other
    mean = float(weights @ difference)
    return mean, float(np.sqrt(weights @ (difference - mean) ** 2 / total_weight))


def _nll(logits: Floats, labels: NDArray[np.intp]) -> Vector:
    log_p = log_softmax(logits.astype(np.float64))
    return -log_p[np.arange(len(log_p)), labels].astype(np.float64, copy=False)


def _stages(cal: Calibrator) -> Stages | None:
    """The stages of a chain of two single methods; None for what is fitted whole."""
    if isinstance(cal, Chain) and isinstance(cal.first, str) and isinstance(cal.second, str):
        return None if ":" in cal.first else (cal.first, cal.second)
    return None
