"""Methods against each other in cross-validation, within a time budget."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from rhocal.calibrators.cascade.simpler import MIN_SHARE_GAINED, measure
from rhocal.calibrators.compose.chain import Chain
from rhocal.calibrators.compose.cross_fit import fit_inside
from rhocal.calibrators.cross_validation import (
    MAX_ERRORS_BEHIND,
    CrossValidation,
    HeldOut,
    paired_over_samples,
    passes_guard,
)
from rhocal.calibrators.folds import Fold, Folds
from rhocal.calibrators.guard import SampleScores, score_rows
from rhocal.errors import InputError
from rhocal.numerics.bins import N_BINS, BinSums, perfect_error
from rhocal.numerics.caching import cached_property
from rhocal.profile.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rhocal.calibrators.base import Calibrator
    from rhocal.data.predictions import Predictions
    from rhocal.numerics.special import Floats, Vector
    from rhocal.optimize import HeldOutScores

OUT_OF_TIME = "out of time"
NEGLIGIBLE_SHARE = 1e-6
"""Of the lowest score. Methods that are closer are tied whatever the standard error: `ets` that ends at temperature scaling
differs from it by rounding alone, and so does the standard error of the difference."""

Stages = tuple[str, str]
"""First and second stage of a chain, by name."""


@dataclass(frozen=True, eq=False)
class KnownOutputs:
    """What a method that cross-fits itself gives for samples it was not fitted on."""

    logits: Floats
    optimism: float
    """Added to NLL, for what was fitted on all samples nevertheless."""


class Race:
    """Methods against each other, fold by fold; a method that falls behind is not fitted on further folds.

    The first method always takes part: the guard compares with it. A chain is scored after its first stage: its second stage
    is cross-validated on the held-out outputs of the first, so that no fit is done twice. A method whose outputs are ``known``
    is not fitted at all. When the time is over, the methods are compared on the folds that all of them were scored on.
    ``preferred`` is a method that stays the choice unless another is clearly better.
    """

    def __init__(
        self,
        data: Predictions,
        methods: Mapping[str, Calibrator],
        n_folds: int,
        budget: float,
        known: Mapping[str, KnownOutputs] = MappingProxyType({}),
        preferred: str | None = None,
    ) -> None:
        self.data, self.preferred = data, preferred
        self.deadline = time.monotonic() + budget
        self.folds = Folds.from_profile(Profile.from_predictions(data), n_folds, by_label=False)
        self.first = self.best = next(iter(methods))
        self.methods = list(methods)
        self.chains = {name: stages for name, cal in methods.items() if name != self.first and (stages := _stages(cal))}
        self.known = known
        self.fitted_by: dict[str, str | Calibrator] = {name: cal for name, cal in methods.items() if name not in known}
        self.fitted_by |= {first: first for first, _ in self.chains.values() if first not in methods}
        self.outputs: dict[str, Floats] = {name: outputs.logits for name, outputs in known.items()}
        """Calibrated logits by each method of samples that it was not fitted on."""
        self.nll: dict[str, Vector] = {
            name: SampleScores.from_logits(outputs.logits, required_labels(data)).nll + outputs.optimism
            for name, outputs in known.items()
        }
        """NLL of these samples."""
        self.seen: list[Fold] = []
        """The folds that methods are compared on."""
        self.choices: list[str] = []  # the method that is chosen without each of them
        self.skipped: dict[str, str] = {}
        """Why a method is not compared."""

    def run(self) -> tuple[str, list[dict[str, Any]]]:
        """The best method and the evidence of all; the first one where there is nothing to compare on."""
        if len(self.methods) == 1 or not self.folds:
            return self.first, [{"method": self.first}]
        running, n_seen = self._run_methods()
        seen = self.folds.first(n_seen)
        self.seen = list(self.folds)[:n_seen]
        for name, (first, second) in self.chains.items():
            if first not in running:
                self.skipped[name] = self.skipped.get(first, OUT_OF_TIME)
            elif n_seen < 2 or self._is_late():
                self.skipped[name] = OUT_OF_TIME
            elif self._cross_validate_chain(name, first, second, seen):
                running.append(name)
        part = self.data.take(seen.rows)
        scores = [
            MethodScore.from_logits(name, self.outputs[name][seen.rows], part, self._optimism(name))
            for name in self.methods
            if name in running or name in self.known
        ]
        if not scores:
            raise self._nothing_fitted()
        best, rows = choose_method(scores, self.preferred)
        self.best = best
        self.choices = nested_choices(scores, seen.codes, self.preferred) if n_seen > 1 else [best]
        skipped = [{"method": name, "skipped": why} for name, why in self.skipped.items() if name in self.methods]
        return best, [*rows, *skipped]

    def held_out_scores(self, name: str, best: str, data: Predictions | None = None) -> HeldOutScores | None:
        """The scores of the choice, under another name, beside those of the references; None if nothing was held out.

        Each fold is scored by the method that the others choose: the best of all folds owes a part of its score to luck. The
        guard reads ``above_of_choice``. ``data`` is what came, where the race was about what another map made of it.
        """
        if not self.seen:
            return None
        data, outputs = data or self.data, self.outputs[best]
        plain = score_rows(name, data, self.seen, outputs={name: outputs})
        optimism = np.full(self.data.n_samples, self._optimism(best))
        if any(choice != best for choice in self.choices):
            outputs = outputs.copy()
            for fold, choice in zip(self.seen, self.choices, strict=True):
                outputs[fold.outside] = self.outputs[choice][fold.outside]
                optimism[fold.outside] = self._optimism(choice)
        elif not optimism.any():
            return plain
        nested = score_rows(name, data, self.seen, outputs={name: outputs}, optimism={name: optimism})
        return replace(nested, above_of_choice=plain.above)

    def compare(self, other: Race) -> tuple[float, float]:
        """How far the NLL of another race's best method is above that of this one's on the same samples, and its error."""
        for race in (self, other):
            if not race.folds:
                return 0.0, 0.0
            if not race.seen:  # one method, which nothing was compared with
                validation = race._cross_validation(race.data, race.folds, race.fitted_by)  # noqa: SLF001 - our own
                if not all(race._advance(validation, race.best) for _ in race.folds):  # noqa: SLF001
                    return 0.0, 0.0
                race.seen = list(race.folds)
        mine, others = (np.concatenate([fold.outside for fold in race.seen]) for race in (self, other))
        rows = np.intersect1d(mine, others)
        counts = self.data.counts[rows]
        total = float(counts.sum())
        clusters = None if self.data.clusters is None else self.data.clusters[rows]
        first, second = (race.nll[race.best][rows] for race in (other, self))
        return paired_over_samples(first, second, counts / total, total, clusters)

    def _run_methods(self) -> tuple[list[str], int]:
        """Methods that are no chains, and first stages of chains: those still running, and the folds they were scored on."""
        validation = self._cross_validation(self.data, self.folds, self.fitted_by)
        running = [name for name in self.fitted_by if name not in self.chains]
        for n_seen in range(len(self.folds)):
            scored: list[str] = []
            for name in running:
                if self._is_late() and not (n_seen == 0 and name == self.first):
                    if n_seen == 0:  # not one fold is whole: the methods scored on it are compared
                        self.skipped |= dict.fromkeys((late for late in running if late not in scored), OUT_OF_TIME)
                        return scored, 1
                    return [name for name in running if name not in self.skipped], n_seen
                if self._advance(validation, name):
                    scored.append(name)
            if not scored:
                raise self._nothing_fitted()
            running = self._drop_behind(scored, self.folds.first(n_seen + 1).rows)
        return running, len(self.folds)

    def _cross_validate_chain(self, name: str, first: str, second: str, folds: Folds) -> bool:
        """Cross-validate the second stage on the held-out outputs of the first; False if it cannot be fitted."""
        between = replace(self.data, kind="logits", scores=self.outputs[first], mask_gap=None)
        validation = self._cross_validation(between, folds, {name: second})
        return all(self._advance(validation, name) for _ in folds)

    def _cross_validation(
        self, data: Predictions, folds: Folds, methods: Mapping[str, str | Calibrator]
    ) -> CrossValidation[str, Calibrator]:
        """Fits of methods by name, whose outputs on the fold held out are kept."""
        labels = required_labels(data)

        def fit(name: str, fold: Fold, _: Calibrator | None) -> Calibrator:
            return fit_inside(methods[name], data, fold)

        def score(name: str, model: Calibrator, fold: Fold) -> HeldOut:
            outside = fold.outside
            logits = model.map_.logits(data.take(outside))
            nll = SampleScores.from_logits(logits, labels[outside]).nll
            self.outputs.setdefault(name, np.zeros_like(data.logits))[outside] = logits
            self.nll.setdefault(name, np.zeros(data.n_samples))[outside] = nll
            return HeldOut(float(fold.held_out_weights[outside] @ nll) / fold.share)

        return CrossValidation(folds, fit, score)

    def _advance(self, validation: CrossValidation[str, Calibrator], name: str) -> bool:
        """Fit a method without its next fold; False if it cannot be fitted."""
        try:
            validation.advance(name)
        except InputError as error:
            self.skipped[name] = str(error)
            return False
        return True

    def _optimism(self, name: str) -> float:
        return self.known[name].optimism if name in self.known else 0.0

    def _nothing_fitted(self) -> InputError:
        return InputError(f"none of the methods can be fitted; the first, {self.first}: {self.skipped[self.first]}")

    def _is_late(self) -> bool:
        return time.monotonic() > self.deadline

    def _drop_behind(self, running: list[str], rows: NDArray[np.intp]) -> list[str]:
        """The methods not clearly behind on the samples seen so far; the preferred one and first stages of chains stay."""
        counts = self.data.counts[rows]
        weights, total = counts / max(counts.sum(), 1e-300), float(counts.sum())
        clusters = None if self.data.clusters is None else self.data.clusters[rows]
        nll = {name: self.nll[name][rows] for name in (*running, *self.known)}
        lowest = min(nll, key=lambda name: float(weights @ nll[name]))
        needed = {self.first, self.preferred, *(first for first, _ in self.chains.values())}
        kept = []
        for name in running:
            above, error = paired_over_samples(nll[name], nll[lowest], weights, total, clusters)
            if above <= MAX_ERRORS_BEHIND * error or name in needed:
                kept.append(name)
            else:
                self.skipped[name] = f"held-out nll {above:.4f} above {lowest}'s after a part of the folds"
        return kept


@dataclass(frozen=True, eq=False)
class MethodScore:
    """What a method scored on samples it was not fitted on."""

    method: str
    nll: Vector
    """Of every sample."""
    brier: Vector
    confidence: Vector
    correct: Vector
    weights: Vector
    """They sum to 1."""
    total_weight: float
    clusters: NDArray[np.intp] | None = None

    @classmethod
    def from_logits(cls, method: str, logits: Floats, data: Predictions, optimism: float = 0.0) -> MethodScore:
        """Measure calibrated logits; ``optimism`` is added to their NLL."""
        counts = data.counts
        total = float(counts.sum())
        scores, confidence, correct = measure(logits, data)
        nll = scores.nll + optimism
        return cls(method, nll, scores.brier, confidence, correct, counts / total, total, data.clusters)

    def take(self, rows: NDArray[np.bool_]) -> MethodScore:
        """The same on some of the samples."""
        share = float(self.weights[rows].sum())
        return replace(
            self,
            nll=self.nll[rows],
            brier=self.brier[rows],
            confidence=self.confidence[rows],
            correct=self.correct[rows],
            weights=self.weights[rows] / max(share, 1e-300),
            total_weight=self.total_weight * share,
            clusters=None if self.clusters is None else self.clusters[rows],
        )

    @cached_property
    def ece(self) -> float:
        """Of the confidence."""
        return BinSums.of(self.confidence, self.correct, n_bins=N_BINS, weights=self.weights).error(1)

    @cached_property
    def floor(self) -> float:
        """The ECE of a perfectly calibrated model on as many samples."""
        return perfect_error(self.confidence, self.total_weight * self.weights, N_BINS)

    @property
    def mean_nll(self) -> float:
        """Of all samples."""
        return float(self.weights @ self.nll)

    @property
    def mean_brier(self) -> float:
        """Of all samples."""
        return float(self.weights @ self.brier)

    @property
    def is_calibrated(self) -> bool:
        """Whether ECE is not above that of a perfectly calibrated model on as many samples."""
        return self.ece <= self.floor

    def gain_over(self, other: MethodScore) -> float:
        """By which share of its NLL it is below another method."""
        return 1 - self.mean_nll / max(other.mean_nll, 1e-300)

    def relative_to(self, first: MethodScore) -> Vector:
        """NLL and Brier score of every sample, each over the mean of the first method: what methods are chosen by.

        NLL alone is decided by a few surprising samples; the sum of both has the smaller standard error.
        """
        return self.nll / first.mean_nll + self.brier / first.mean_brier

    def difference(self, other: MethodScore) -> tuple[float, float]:
        """How far NLL is above that of another method, and the standard error."""
        return paired_over_samples(self.nll, other.nll, self.weights, self.total_weight, self.clusters)


def choose_method(scores: Sequence[MethodScore], preferred: str | None = None) -> tuple[str, list[dict[str, Any]]]:
    """The simplest method whose score is within one standard error of the lowest, and a row of evidence for each.

    Methods come in the order of their simplicity. The first is the one that the guard compares with. A ``preferred`` method is
    chosen before simpler ones, if it is within one standard error, or if it is calibrated and the lowest gains less than
    ``MIN_SHARE_GAINED`` of its NLL. Its own fit has compared it with simpler ones already, so that it passes the guard if
    neither its NLL nor its Brier score is above that of the first.
    """
    best, passed, tied = _choose(scores, preferred)
    rows = [
        {
            "method": score.method,
            "nll": score.mean_nll,
            "brier": score.mean_brier,
            "ece": score.ece,
            "floor": score.floor,
            "guarded": score not in passed,
            "tied": score in tied,
        }
        for score in scores
    ]
    return best.method, rows


def nested_choices(scores: Sequence[MethodScore], codes: NDArray[np.intp], preferred: str | None = None) -> list[str]:
    """The method that ``choose_method`` chooses without each fold. ``codes`` are the numbers of the samples' folds."""
    parts = ([score.take(codes != k) for score in scores] for k in range(int(codes.max()) + 1))
    return [_choose(part, preferred)[0].method for part in parts]


def _choose(
    scores: Sequence[MethodScore], preferred: str | None
) -> tuple[MethodScore, list[MethodScore], list[MethodScore]]:
    """The choice of ``choose_method``, what passes the guard, and what is within one standard error of the lowest."""
    first = scores[0]
    passed = [
        score
        for score in scores
        if passes_guard(*score.difference(first), first.mean_nll)
        or (score.method == preferred and score.mean_nll <= first.mean_nll and score.mean_brier <= first.mean_brier)
    ]
    relative = {score.method: score.relative_to(first) for score in passed}
    lowest = min(relative.values(), key=lambda values: float(first.weights @ values))
    tied = []
    for score in passed:
        above, error = paired_over_samples(
            relative[score.method], lowest, first.weights, first.total_weight, first.clusters
        )
        if above <= max(error, NEGLIGIBLE_SHARE):
            tied.append(score)
    best = next((score for score in passed if score.method == preferred), None)
    if best is None or not (best in tied or (best.is_calibrated and tied[0].gain_over(best) < MIN_SHARE_GAINED)):
        best = tied[0]
    return best, passed, tied


def required_labels(data: Predictions) -> NDArray[np.intp]:
    """The labels of data that has some."""
    return cast("NDArray[np.intp]", data.labels)


def _stages(cal: Calibrator) -> Stages | None:
    """The stages of a chain of two single methods; None for what is fitted whole."""
    if isinstance(cal, Chain) and isinstance(cal.first, str) and isinstance(cal.second, str):
        return None if ":" in cal.first else (cal.first, cal.second)
    return None
