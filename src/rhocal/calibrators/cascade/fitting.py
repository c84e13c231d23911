"""The fit of a cascade: base, shared stage, steps, and a shared stage on the outputs of the models out of fold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.cascade.candidates import feature_parameters
from rhocal.calibrators.cascade.evidence import fit_shared
from rhocal.calibrators.cascade.rounds import FoldModels, losses, take_steps
from rhocal.calibrators.cascade.samples import Samples
from rhocal.calibrators.cascade.shared import shared_stage
from rhocal.calibrators.cascade.steps import KINDS
from rhocal.calibrators.guard import SampleScores
from rhocal.optimize.blas import single_threaded_blas

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rhocal.calibrators.cascade.samples import Block
    from rhocal.calibrators.cascade.shared import SharedWeights
    from rhocal.calibrators.cascade.steps import Kind, Steps
    from rhocal.calibrators.scale.scale_search import ScaleSearch
    from rhocal.data.predictions import Predictions
    from rhocal.numerics.special import Floats
    from rhocal.profile.profile import Profile

N_FOLDS, N_FOLDS_MANY = 10, 5
"""Folds of few samples or few classes, and of many."""

FEW_CLASSES, FEW_SAMPLES = 30, 3_000
"""Up to so many classes, or below so many samples with at most ``MANY_CLASSES`` classes, there are ten folds."""

MANY_CLASSES = 300

MAX_SHARE_ABOVE = 0.02
"""Share by which the NLL of the model of all samples may be above that held out. It is below it unless a few samples have
nearly all weight: fold models, each without one of them, then say nothing about the model of all."""


@dataclass(frozen=True, eq=False)
class CascadeFit:
    """A fitted cascade."""

    scale: float
    mix: float
    first: SharedWeights
    features: dict[str, Any]
    """The numbers of ``StepFeatures``."""
    steps: Steps
    last: SharedWeights
    trials: tuple[dict[str, Any], ...]
    """A row for each stage and step."""
    is_consistent: bool
    """Whether the model of all samples has no higher NLL on its samples than the fold models have on samples held out."""
    held_out: Floats
    """Calibrated logits of every calibration sample by steps that were not fitted on it, in the order of ``folds``."""
    folds: Samples

    @property
    def optimism(self) -> float:
        """By how much the mean NLL of ``held_out`` is too low: shared stages are fitted on all samples.

        It is the effective number of their weights over the number of samples: half of it is what a fit gains on its own
        samples, half what it loses on others.
        """
        return sum(row.get("freedom", 0.0) for row in self.trials) / self.folds.total_weight

    def held_out_losses(self) -> SampleScores:
        """NLL, with the optimism added, and Brier score of every calibration sample, from these logits."""
        parts = self.folds.each(lambda block: losses(self.held_out[block.rows], block))
        nll, brier = (np.concatenate(values) for values in zip(*parts, strict=True))
        return SampleScores(nll + self.optimism, brier)


def can_be_cross_fitted(profile: Profile, min_samples: float) -> bool:
    """Whether there are enough samples, and a cluster for every fold."""
    n_clusters = N_FOLDS if profile.clusters is None else len(np.unique(profile.clusters[profile.weights > 0]))
    return profile.total_weight >= min_samples and n_clusters >= N_FOLDS and profile.spread > 0


def n_folds_for(n_samples: float, n_classes: int) -> int:
    """More folds where they are cheap or where samples are few."""
    is_small = n_classes <= FEW_CLASSES or (n_samples < FEW_SAMPLES and n_classes <= MANY_CLASSES)
    return N_FOLDS if is_small else N_FOLDS_MANY


def fit_cascade(
    data: Predictions, search: ScaleSearch, *, exchangeable: bool, kinds: Sequence[Kind] = KINDS
) -> CascadeFit:
    """Fit on validated data, with some kinds of steps; with ``exchangeable`` without any, because they know classes."""
    samples = Samples(data, search, n_folds_for(data.total_weight, data.n_classes))
    with single_threaded_blas():
        held_out = np.empty((len(samples.order), data.n_classes), samples.ops.dtype)

        def fill(block: Block) -> None:
            held_out[block.rows] = samples.scores(block).log_probs

        samples.each(fill)
        first, first_row = fit_shared(samples, held_out, has_top=True)
        apply_stage(samples, first, held_out)
        steps: Steps = {}
        features: dict[str, Any] = {}
        rows: list[dict[str, Any]] = []
        is_consistent = True
        if not exchangeable:
            features = feature_parameters(samples, search)
            models = FoldModels(samples, features, held_out)
            rows = take_steps(models, features, kinds)
            steps = models.steps[-1]
            if steps:
                is_consistent = models.own_nll() <= (1 + MAX_SHARE_ABOVE) * models.losses()[0]
        last, last_row = fit_shared(samples, held_out, has_top=False)
        apply_stage(samples, last, held_out)
    trials = ({"stage": "shared", **first_row}, *rows, {"stage": "shared, out of fold", **last_row})
    parameters = samples.parameters
    return CascadeFit(
        parameters["scale"], parameters["mix"], first, features, steps, last, trials, is_consistent, held_out, samples
    )


def apply_stage(samples: Samples, stage: SharedWeights, logits: Floats) -> None:
    """Apply a shared stage to logits in the order of the samples, in place."""
    parameters = {**samples.parameters, **samples.cast(stage.parameters)}

    def work(block: Block) -> None:
        scores = samples.scores(block)
        is_top = scores.is_top if stage.has_top else None
        logits[block.rows] = shared_stage(samples.ops, parameters, scores.log_norm, is_top, logits[block.rows])

    samples.each(work)


def in_data_order(fit: CascadeFit, data: Predictions) -> Floats:
    """The held-out logits of every sample of the data; those without weight keep their own."""
    out = data.logits.astype(fit.held_out.dtype)
    out[fit.folds.order] = fit.held_out
    return out
