"""Greedy steps, cross-fitted: a model without each fold and one of all samples take the same steps, each from its own gradient.

What a step gains is measured on the fold that a model is not fitted on, in NLL and in Brier score.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.cascade.candidates import (
    Candidate,
    Preconditioner,
    candidate_steps,
    preconditioners,
    step_from_gradient,
)
from rhocal.calibrators.cascade.samples import MAX_KEPT_ENTRIES, Block, Samples, Sums
from rhocal.calibrators.cascade.steps import KINDS, Kind, StepFeatures, Steps, add_steps, kind_logits, step_logits
from rhocal.numerics.special import row_dot, row_sum, softmax

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rhocal.numerics.special import Floats, Vector

MAX_ROUNDS = 25
MAX_FAILURES = 2
"""Rounds without a gain after which a candidate is not tried again."""

MIN_GAIN = 1e-4
"""Of NLL and of Brier score, relatively, that a step must gain."""

MIN_ERRORS = 0.5
"""Standard errors of the gain that it must be above 0."""

N_MEASURED = 3
"""Kinds of steps with the largest expected gains, of which the best candidate is measured."""

SHORTER = (1.0, 0.3, 0.1)
"""Shares of the rate at which the expected gain is largest: where the losses are far from parabolas it is too long."""

RATE_RANGE = (0.05, 8.0)
REPEAT_SHARE = 0.5
"""A step that gains this share of what it gained before is taken again, without a look at the others."""


@dataclass(frozen=True, eq=False)
class Trial:
    """A candidate with the rate that its expected gain is largest at."""

    candidate: Candidate
    steps: list[Vector]
    """The step of each fold model."""
    rate: float
    expected: float
    gain: float = float("nan")
    """On the samples held out; NaN if it was not measured."""
    error: float = float("nan")

    @property
    def gains(self) -> bool:
        """Whether it was measured, and gains enough."""
        return self.gain >= max(2 * MIN_GAIN, MIN_ERRORS * self.error)

    @property
    def fails(self) -> bool:
        """Whether it does not gain enough, or is not expected to."""
        return self.expected < 2 * MIN_GAIN or self.gain < max(2 * MIN_GAIN, MIN_ERRORS * self.error)


class FoldModels:
    """A model for each fold and one of all samples (the last), and the logits of every sample by the model without it.

    Models are kept as the sums of their steps. The logits of another model are those held out plus the difference of the
    steps: memory does not grow with the number of folds.
    """

    def __init__(self, samples: Samples, parameters: Mapping[str, Any], held_out: Floats) -> None:
        self.samples, self.held_out = samples, held_out
        self.parameters = samples.cast(parameters)
        self.steps: list[Steps] = [{} for _ in range(samples.n_folds + 1)]
        self._kept: dict[int, StepFeatures] = {}

    def features(self, block: Block) -> StepFeatures:
        """The features of a block; kept if all of them are small."""
        if block.number in self._kept:
            return self._kept[block.number]
        features = StepFeatures(self.samples.ops, self.parameters, self.samples.scores(block))
        width = 3 * self.samples.n_classes + len(self.parameters.get("landmark_squares", ()))
        if width * len(self.samples.order) <= MAX_KEPT_ENTRIES:
            self._kept[block.number] = features
        return features

    def gradients(self, kinds: set[Kind]) -> Sums:
        """The sums that steps of some kinds are computed from, for every model on its own samples."""
        if not any(self.steps):  # all models are equal: each has the sum of all folds but one
            return self._without_each_fold(
                self.samples.sums(lambda block, sums: self._add(block, kinds, sums, block.fold))
            )

        def add(block: Block, sums: Sums) -> None:
            for model in range(self.samples.n_folds + 1):
                if model != block.fold:
                    self._add(block, kinds, sums, model)

        return self.samples.sums(add)

    def _without_each_fold(self, by_fold: Sums) -> Sums:
        names = dict.fromkeys(name for _, name in by_fold)
        n_folds, sums = self.samples.n_folds, Sums()
        for name in names:
            total = np.sum([by_fold[fold, name] for fold in range(n_folds)], axis=0)
            sums |= {(fold, name): total - by_fold[fold, name] for fold in range(n_folds)}
            sums[n_folds, name] = total
        return sums

    def _add(self, block: Block, kinds: set[Kind], sums: Sums, model: int) -> None:
        """Add what a block contributes to the gradients of a model."""
        features, w = self.features(block), block.weights[:, None]
        p = softmax(self._logits(block, model))
        residual = p * -w
        residual[block.label_entries] += block.weights
        if "bias" in kinds:
            n_classes = self.samples.n_classes
            sums.add((model, "labels"), np.bincount(block.labels, block.weights, n_classes))
            sums.add((model, "probs"), (block.weights @ p).astype(np.float64))
        if "slope" in kinds:
            x = features.slope
            sums.add((model, "slope"), np.einsum("ij,ij->j", residual, x).astype(np.float64))
            curvature = np.einsum("ij,ij,ij->j", p * (1 - p) * w, x, x)
            sums.add((model, "slope curvature"), curvature.astype(np.float64))
        if "matrix" in kinds:
            sums.add((model, "matrix"), (features.matrix.T @ residual).astype(np.float64))
        if "kernel" in kinds:
            sums.add((model, "kernel"), (features.kernel.T @ residual).astype(np.float64))
        if "tail" in kinds:
            residual *= features.mask
            sums.add((model, "tail"), (features.matrix.T @ residual).astype(np.float64))

    def _logits(self, block: Block, model: int) -> Floats:
        held_out = self.held_out[block.rows]
        if model == block.fold or not any(self.steps):
            return held_out
        difference = add_steps(self.steps[model], self.steps[block.fold], -1.0)
        logits: Floats = held_out + step_logits(self.samples.ops, difference, self.features(block))
        return logits

    def losses(self) -> tuple[float, float]:
        """Mean NLL and Brier score of the samples held out."""

        def add(block: Block, sums: Sums) -> None:
            nll, brier = losses(self.held_out[block.rows], block)
            sums.add("nll", float(block.weights @ nll))
            sums.add("brier", float(block.weights @ brier))

        sums = self.samples.sums(add)
        return sums["nll"] / self.samples.total_weight, sums["brier"] / self.samples.total_weight

    def own_nll(self) -> float:
        """Mean NLL of the model of all samples, on these samples."""

        def add(block: Block, sums: Sums) -> None:
            nll, _ = losses(self._logits(block, self.samples.n_folds), block)
            sums.add("nll", float(block.weights @ nll))

        return float(self.samples.sums(add)["nll"]) / self.samples.total_weight

    def expect(self, steps: Mapping[Candidate, list[Vector]], nll: float, brier: float) -> list[Trial]:
        """The rate of each candidate and its expected gain, from slope and curvature of both losses along the step."""

        def add(block: Block, sums: Sums) -> None:
            p = softmax(self.held_out[block.rows])
            for candidate, change in self._changes(steps, block):
                sums.add(candidate, slopes_and_curvatures(p, change, block))

        sums, trials = self.samples.sums(add), []
        for candidate, by_model in steps.items():
            slope_nll, curvature_nll, slope_brier, curvature_brier = sums[candidate] / self.samples.total_weight
            slope, curvature = slope_nll / nll + slope_brier / brier, curvature_nll / nll + curvature_brier / brier
            rate = float(np.clip(slope / max(curvature, 1e-12), *RATE_RANGE))
            trials.append(Trial(candidate, by_model, rate, slope * rate - 0.5 * curvature * rate**2))
        return trials

    def _changes(self, steps: Mapping[Candidate, list[Vector]], block: Block) -> Sequence[tuple[Candidate, Floats]]:
        """The change of the held-out logits by each candidate; candidates of a kind in one product."""
        by_kind: dict[Kind, list[Candidate]] = defaultdict(list)
        for candidate in steps:
            by_kind[candidate.kind].append(candidate)
        changes: list[tuple[Candidate, Floats]] = []
        features, n_classes = self.features(block), self.samples.n_classes
        for kind, candidates in by_kind.items():
            weights = [steps[candidate][block.fold].astype(self.samples.ops.dtype) for candidate in candidates]
            if kind in {"bias", "slope"}:
                products = [kind_logits(self.samples.ops, kind, weight, features) for weight in weights]
            else:
                together = (features.kernel if kind == "kernel" else features.matrix) @ np.concatenate(weights, axis=1)
                products = [together[:, k * n_classes : (k + 1) * n_classes] for k in range(len(candidates))]
                products = [product * features.mask for product in products] if kind == "tail" else products
            shape = (len(block.labels), n_classes)
            changes += [
                (one, np.broadcast_to(product, shape)) for one, product in zip(candidates, products, strict=True)
            ]
        return changes

    def measure(self, trials: Sequence[Trial], nll: float, brier: float) -> list[Trial]:
        """The same trials at the rate of ``SHORTER`` that gains most, with the gain and its standard error."""
        steps = {trial.candidate: trial.steps for trial in trials}
        rates = {trial.candidate: [share * trial.rate for share in SHORTER] for trial in trials}

        def add(block: Block, sums: Sums) -> None:
            held_out = self.held_out[block.rows]
            nll_before, brier_before = losses(held_out, block)
            for candidate, change in self._changes(steps, block):
                for rate in rates[candidate]:
                    nll_after, brier_after = losses(held_out + rate * change, block)
                    gain = (nll_before - nll_after) / nll + (brier_before - brier_after) / brier
                    sums.add((candidate, rate), np.array([block.weights @ gain, block.weights @ gain**2]))

        sums, measured = self.samples.sums(add), []
        for trial in trials:
            rate = max(rates[trial.candidate], key=lambda rate: float(sums[trial.candidate, rate][0]))
            mean, square = sums[trial.candidate, rate] / self.samples.total_weight
            error = float(np.sqrt(max(square - mean**2, 0) / self.samples.total_weight))
            measured.append(replace(trial, rate=rate, gain=float(mean), error=error))
        return measured

    def take(self, trial: Trial, last_step: Vector) -> None:
        """Take a step with every model; ``last_step`` is that of the model of all samples."""
        kind = trial.candidate.kind
        for model, step in enumerate([*trial.steps, last_step]):
            self.steps[model] = add_steps(self.steps[model], {kind: (trial.rate * step).astype(self.samples.ops.dtype)})

        def move(block: Block) -> None:
            ((_, change),) = self._changes({trial.candidate: trial.steps}, block)
            self.held_out[block.rows] += trial.rate * change

        self.samples.each(move)


def losses(logits: Floats, block: Block) -> tuple[Vector, Vector]:
    """NLL and Brier score of every sample of a block."""
    top = logits.max(axis=1)
    label = logits[block.label_entries].astype(np.float64) - top
    e = np.exp(logits - top[:, None])
    total = row_sum(e).astype(np.float64)
    nll = np.log(total) - label
    return nll, row_dot(e, e) / total**2 - 2 * np.exp(-nll) + 1


def slopes_and_curvatures(p: Floats, change: Floats, block: Block) -> Vector:
    """How fast NLL and Brier score fall along a change of the logits, and how they curve: four sums over the samples.

    With d = p∘(δ − p·δ), the change of p: NLL falls by δ_y − p·δ and curves by d·δ; the Brier score |p − y|² falls by
    2(y − p)·d and curves by 2 d·d, where terms of p's own curvature are left out.
    """
    at, w = block.label_entries, block.weights
    mean = row_dot(p, np.ascontiguousarray(change))
    d = p * (change - mean[:, None])
    return np.array(
        [
            w @ (change[at] - mean),
            w @ row_dot(d, np.ascontiguousarray(change)),
            2 * (w @ (d[at] - row_dot(p, d))),
            2 * (w @ row_dot(d, d)),
        ],
        dtype=np.float64,
    )


def take_steps(models: FoldModels, parameters: dict[str, Any], kinds: Sequence[Kind] = KINDS) -> list[dict[str, Any]]:
    """Take steps while one gains; a row of evidence for each."""
    samples = models.samples
    live = [candidate for candidate in candidate_steps(samples.n_classes) if candidate.kind in kinds]
    solvers = preconditioners(samples, parameters, models.held_out, {c.feature for c in live} - {""})
    failures, rows = dict.fromkeys(live, 0), []
    before: Trial | None = None
    nll, brier = models.losses()
    for _ in range(MAX_ROUNDS):
        tried = live if before is None else [before.candidate]
        gradients = models.gradients({candidate.kind for candidate in tried})
        trials = _trials(models, tried, gradients, solvers, nll, brier)
        best = max((trial for trial in trials if trial.gains), key=lambda trial: trial.gain, default=None)
        if before is not None and (best is None or best.gain < REPEAT_SHARE * before.gain):
            before = None
            continue
        for trial in trials:
            failures[trial.candidate] = failures[trial.candidate] + 1 if trial.fails else 0
        live = [candidate for candidate in live if failures[candidate] < MAX_FAILURES]
        if best is None:
            break
        solver = solvers.get(best.candidate.feature, [])
        models.take(best, step_from_gradient(best.candidate, gradients, samples.n_folds, solver))
        nll, brier = models.losses()
        rows.append(
            {
                "step": best.candidate.kind,
                "strength": best.candidate.strength,
                "rate": best.rate,
                "gain": best.gain,
                "standard_error": best.error,
                "nll": nll,
                "brier": brier,
            }
        )
        before = best
    return rows


def _trials(
    models: FoldModels,
    candidates: Sequence[Candidate],
    gradients: Sums,
    solvers: Mapping[str, list[Preconditioner]],
    nll: float,
    brier: float,
) -> list[Trial]:
    """A trial of every candidate; those with the largest expected gains are measured."""
    folds = range(models.samples.n_folds)
    steps = {
        candidate: [
            step_from_gradient(candidate, gradients, model, solvers.get(candidate.feature, [])) for model in folds
        ]
        for candidate in candidates
    }
    expected = sorted(models.expect(steps, nll, brier), key=lambda trial: -trial.expected)
    best_of = {trial.candidate.kind: trial for trial in reversed(expected)}
    first = sorted(best_of.values(), key=lambda trial: -trial.expected)[:N_MEASURED]
    promising = [trial for trial in first if trial.expected >= 2 * MIN_GAIN]
    measured = models.measure(promising, nll, brier) if promising else []
    return [*measured, *(trial for trial in expected if trial not in promising)]
