"""Compare models on the same questions: accuracy, calibration and selective accuracy, with paired tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.errors import InputError
from rhocal.metrics import METRICS, Scored
from rhocal.metrics.inference.design import SamplingDesign
from rhocal.metrics.inference.paired import adjust_for_candidates, differences

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rhocal.data.predictions import Predictions
    from rhocal.metrics.inference.paired import Difference

MODEL_METRICS = ("accuracy", "ece", "nll", "brier", "aurc")
"""What models are compared on; AURC is the error rate among the most confident share, averaged over all shares."""

OF_OUTCOMES = ("nll", "brier")
"""Metrics of the probabilities of all outcomes: which option is correct, or whether an answer is right. A model of the one kind
and a model of the other cannot be compared on them."""

SELECTED_SHARE = 0.8
"""Share of the samples, the most confident ones, whose accuracy is the selective accuracy."""


@dataclass(frozen=True, eq=False)
class ModelAnswers:
    """The answers of one model: validated scores, and what identifies the question of each."""

    data: Predictions
    question_id: NDArray[Any] | None = None
    """None: samples are those of the other models in the same order."""
    is_correctness: bool = False
    """Whether labels state that an answer is right (1), and scores how probable that is."""

    def keys(self) -> list[tuple[str, int]]:
        """The question of each sample, with how often it occurred before."""
        if self.question_id is None:
            return [("", k) for k in range(self.data.n_samples)]
        seen: dict[str, int] = {}
        keys = []
        for name in np.asarray(self.question_id).astype(str).tolist():
            keys.append((name, seen.get(name, 0)))
            seen[name] = seen.get(name, 0) + 1
        return keys

    def scored(self, rows: NDArray[np.intp]) -> Scored:
        """Some samples as metrics read them; of answers the confidence is the probability that the answer is right."""
        scored = Scored.from_predictions(self.data.take(rows))
        if not self.is_correctness:
            return scored
        right = scored.labels == 1
        label_probs = np.exp(scored.log_label)
        confidence = np.where(right, label_probs, 1 - label_probs)
        squares = label_probs**2 + (1 - label_probs) ** 2
        return Scored(confidence, right.astype(float), scored.log_label, squares, scored.weights)


@dataclass(frozen=True, eq=False)
class ModelComparison:
    """Models side by side, and their differences to the first on the same questions."""

    values: Mapping[str, Mapping[str, float]]
    """Metrics by model."""
    differences: Mapping[str, Mapping[str, Difference]]
    """Each model but the first minus the first; p-values adjusted for the number of models by Holm's method."""
    n_samples: int
    left_out: Mapping[str, int]
    """Samples of a model whose question not all models have."""

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and texts."""
        return {
            "n_samples": self.n_samples,
            "left_out": dict(self.left_out),
            "values": {name: dict(values) for name, values in self.values.items()},
            "differences": {
                name: {metric: difference.to_dict() for metric, difference in by_metric.items()}
                for name, by_metric in self.differences.items()
            },
        }


def compare_models(models: Mapping[str, ModelAnswers], *, seed: int = 0) -> ModelComparison:
    """Compare two or more models on the questions that all of them answered."""
    if len(models) < 2:
        raise InputError(f"need two models or more; got {len(models)}")
    rows, names = _common_rows(models)
    scored = {name: model.scored(rows[name]) for name, model in models.items()}
    metrics = list(MODEL_METRICS)
    if len({model.is_correctness for model in models.values()}) > 1:
        metrics = [name for name in metrics if name not in OF_OUTCOMES]
    clusters = names if len(set(names)) < len(names) else None
    design = SamplingDesign(None, None if clusters is None else np.array(clusters))
    reference, *others = models
    by_model = {}
    for name in others:
        pair = design.apply_to_pair(scored[name], scored[reference])
        by_model[name] = differences(*pair, metrics, seed=seed)
    values = {
        name: {metric: METRICS[metric].value(part) for metric in metrics}
        | {"selective_accuracy": selective_accuracy(part)}
        for name, part in scored.items()
    }
    left_out = {name: model.data.n_samples - len(names) for name, model in models.items()}
    return ModelComparison(values, adjust_for_candidates(by_model), len(names), left_out)


def _common_rows(models: Mapping[str, ModelAnswers]) -> tuple[dict[str, NDArray[np.intp]], list[str]]:
    """The rows of each model whose questions all models have, in one order, and the names of these questions."""
    places = {name: {key: k for k, key in enumerate(model.keys())} for name, model in models.items()}
    first = next(iter(places.values()))
    common = [key for key in first if all(key in other for other in places.values())]
    if not common:
        raise InputError(f"{' and '.join(models)} have no question in common: their question_id differ")
    rows = {name: np.array([place[key] for key in common], np.intp) for name, place in places.items()}
    _check_same_labels(models, rows, len(common))
    return rows, [name or str(k) for name, k in common]


def _check_same_labels(models: Mapping[str, ModelAnswers], rows: Mapping[str, NDArray[np.intp]], n: int) -> None:
    """Raise an error if questions with the same identifier have different correct options."""
    labels = {
        name: model.data.labels[rows[name]]
        for name, model in models.items()
        if model.data.labels is not None and not model.is_correctness
    }
    reference = next(iter(labels), "")
    for name, own in labels.items():
        n_different = int(np.count_nonzero(own != labels[reference]))
        if n_different:
            raise InputError(
                f"{reference} and {name} are not about the same questions: of {n:,} with the same question_id {n_different:,} "
                "have another correct option"
            )


def selective_accuracy(scored: Scored, share: float = SELECTED_SHARE) -> float:
    """Accuracy on the most confident share; samples of equal confidence at its border count with their mean."""
    order = np.argsort(-scored.confidence, kind="stable")
    weights, correct, confidence = scored.weights[order], scored.correct[order], scored.confidence[order]
    wanted = share * weights.sum()
    border = confidence[min(int(np.searchsorted(np.cumsum(weights), wanted)), len(order) - 1)]
    above, tied = confidence > border, confidence == border
    n_above = float(weights[above].sum())
    rate = float(weights[tied] @ correct[tied] / weights[tied].sum())
    return float((weights[above] @ correct[above] + (wanted - n_above) * rate) / wanted)
