"""How samples were drawn: what their weights mean, and which of them depend on each other.

Inference assumes independent samples, and that a weight of k stands for k of them. Where this does not hold, weights are scaled
so that they sum to the effective sample size. Metrics are means, so their values stay; floors, intervals, tests and paired
differences all read how many samples there are from the weights, and widen.

* ``weight_kind="importance"``: weights correct for how samples were selected (survey weights, shifted classes). The effective
  sample size is (Σw)²/Σw² (Kish 1965), whatever the weights sum to, and less where samples that vary more weigh more.
* ``clusters``: samples of a cluster (patient, session, document) may depend on each other. The design effect is the variance of
  Σ w·(correct − confidence) with whole clusters as units, over its variance if samples were independent; the largest of the top
  label and of the most frequent classes counts, and at least 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.labels.per_sample import refuse_empty_clusters
from rhocal.errors import InputError, SuspiciousInputWarning, counted, warn
from rhocal.metrics.scored import Scored
from rhocal.numerics.bins import bin_totals
from rhocal.numerics.special import student_quantile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from rhocal.numerics.special import Vector

WEIGHT_KINDS = ("frequency", "importance")
MAX_CLASSES = 10
"""The most frequent classes whose design effect is computed."""
QUANTILE = 0.975


@dataclass(frozen=True, eq=False)
class SamplingDesign:
    """What weights mean, and the cluster of each sample."""

    weight_kind: str | None = "frequency"
    """None: not stated; weights are counts, and a warning is given where they are not whole."""
    clusters: Any = None

    def __post_init__(self) -> None:
        if self.weight_kind is not None and self.weight_kind not in WEIGHT_KINDS:
            raise InputError(
                f"weight_kind is one of {', '.join(WEIGHT_KINDS)}; got {self.weight_kind!r}", argument="weight_kind"
            )

    @classmethod
    def from_weights(cls, weights: Vector | None) -> SamplingDesign:
        """Where nobody can state what weights are: whole numbers are counts, others are taken with their effective number."""
        is_whole = weights is None or bool((weights == np.round(weights)).all())
        return cls("frequency" if is_whole else "importance")

    @property
    def is_simple(self) -> bool:
        """Whether samples are independent and weights are counts, so that nothing is to be done."""
        return self.weight_kind != "importance" and self.clusters is None

    def check_weights(self, weights: Vector) -> None:
        """Raise an error for counts that add up to less than a sample; warn of fractions whose kind is not stated."""
        if self.weight_kind == "importance":
            return
        total = float(weights.sum())
        if total < 1:
            raise InputError(
                f"the weights sum to {total:.3g}, which is less than one sample",
                argument="weight_kind='importance'",
                remedy="use weights that correct a selection",
            )
        if self.weight_kind is None and bool((weights != np.round(weights)).any()):
            warn(
                f"some weights are not whole numbers; they count as shares of samples, {total:,.6g} in all. Floors, intervals "
                "and tests are wrong if the weights correct a selection",
                SuspiciousInputWarning,
                argument="weight_kind",
                remedy="state which they are, 'frequency' or 'importance'",
            )

    def counts(self, weights: Vector) -> Vector:
        """How many samples each one stands for: counts as they are, and one for each weight that corrects a selection."""
        return (weights > 0).astype(np.float64) if self.weight_kind == "importance" else weights

    def apply(self, scored: Scored, with_probs: Scored | None = None) -> Scored:
        """The samples with weights that sum to the effective sample size.

        ``with_probs`` are those whose probabilities are known, all or a random part, if the samples do not bring them.
        """
        return scored if self.is_simple else with_weights(scored, *self.effective_weights(scored, with_probs))

    def apply_to_pair(
        self, a: Scored, b: Scored, with_probs: tuple[Scored | None, Scored | None] = (None, None)
    ) -> tuple[Scored, Scored]:
        """Both views of the same samples with the same weights, those of the smaller effective sample size."""
        if self.is_simple:
            return a, b
        pairs = (self.effective_weights(view, known) for view, known in zip((a, b), with_probs, strict=True))
        weights, scale = min(pairs, key=lambda pair: float(pair[0].sum()))
        return with_weights(a, weights, scale), with_weights(b, weights, scale)

    def effective_weights(self, scored: Scored, with_probs: Scored | None = None) -> tuple[Vector, Vector | None]:
        """Weights that sum to the effective sample size, and what drawn labels add to sums, if it does not follow from them.

        A weight that corrects a selection multiplies a label as it is: sums of labels drawn with these weights have the
        distribution of a perfect model, however much the weights differ, unless they depend on the label itself.
        """
        effect = 1.0 if self.clusters is None else self._design_effect(scored)
        weights = scored.weights / effect
        if self.weight_kind != "importance":
            return weights, None
        weights = weights / self._weight_effect(scored if with_probs is None else with_probs)
        return weights, weights * np.sqrt(effect)

    def _weight_effect(self, scored: Scored) -> float:
        """The variance of weighted sums over that of as many counts: Σw²v / Σwv, the largest of all views.

        Of samples with the same variance v it is Σw²/Σw (Kish). It is more where samples that vary more have larger weights.
        """
        w = scored.weights
        effects = [float(w @ w) / float(w.sum())]
        for probability in _probabilities(scored):
            weighted = w * probability * (1 - probability)
            if weighted.sum() > 0:
                effects.append(float(w @ weighted) / float(weighted.sum()))
        return max(effects)

    def _design_effect(self, scored: Scored) -> float:
        codes = cluster_codes(self.clusters, scored.n_samples)
        w = scored.weights
        n_clusters = len(np.unique(codes[w > 0]))
        if n_clusters < 2:
            raise InputError(
                f"clusters must name at least two clusters; got {n_clusters}: nothing can be inferred from a single one"
            )
        # A few clusters tell their own variance badly: as in a t-test.
        few = (student_quantile(n_clusters - 1, QUANTILE) / student_quantile(np.inf, QUANTILE)) ** 2
        effects = [1.0]
        for residual in _residuals(scored):
            centered = residual - w @ residual / w.sum()
            squares = w @ (w * centered**2) if self.weight_kind == "importance" else w @ centered**2
            total = bin_totals(codes, w * centered) ** 2
            if squares > 0:
                effects.append(float(total.sum() / squares) * n_clusters / (n_clusters - 1))
        return max(effects) * float(few)


def _residuals(scored: Scored) -> Iterator[Vector]:
    """Correct − confidence, and label − probability of the most frequent classes."""
    return (view.correct - view.confidence for view in _views(scored))


def _probabilities(scored: Scored) -> Iterator[Vector]:
    """The confidence, and the probability of the most frequent classes."""
    return (view.confidence for view in _views(scored))


def _views(scored: Scored) -> Iterator[Scored]:
    """The top label, and each of the most frequent classes."""
    yield scored
    if scored.has_probs:
        counts = bin_totals(scored.labels, scored.weights, scored.source.n_classes)
        for k in np.argsort(-counts, kind="stable")[:MAX_CLASSES]:
            yield scored.one_class(int(k))


def cluster_codes(clusters: Any, n_samples: int) -> NDArray[np.intp]:
    """The number of the cluster of each sample."""
    names = np.asarray(clusters)
    if names.shape != (n_samples,):
        raise InputError(
            f"clusters must hold one name for each of the {counted(n_samples, 'sample')}; got shape {names.shape}"
        )
    missing = names != names if names.dtype.kind in "fO" else np.zeros(n_samples, bool)  # noqa: PLR0124 - NaN is not itself
    if names.dtype.kind == "O":
        missing = missing | np.array([name is None for name in names])
    if missing.any():
        raise InputError("clusters has missing values; every sample needs a cluster")
    if names.dtype.kind == "O":
        names = names.astype(str)
    refuse_empty_clusters(names)
    return np.unique(names, return_inverse=True)[1].astype(np.intp)


def with_weights(scored: Scored, weights: Vector, draw_scale: Vector | None = None) -> Scored:
    """The same samples with other weights, and with what their drawn labels add to sums."""
    if scored.has_probs:
        return Scored.from_predictions(replace(scored.source, weights=weights), draw_scale)
    return replace(scored, weights=weights, draw_scale=draw_scale)
