"""The probability that an answer is right, from its score, features of the answer, and its subject.

P(right) = sigmoid(a + b·s + c·x + u_g): s is the log-odds of the score, x standardized features, u_g the offset of subject g.
Offsets are drawn from a normal distribution whose deviation is estimated, so that subjects with few answers stay near the
others (partial pooling).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from rhocal import optimize
from rhocal.data.labels import per_sample, sample_groups, sample_weights
from rhocal.data.predictions import Predictions
from rhocal.data.spec import InputSpec
from rhocal.errors import BoundaryWarning, InputError, not_fitted, warn
from rhocal.numerics.special import expit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.data.spec import Kind
    from rhocal.numerics.special import Vector

DEVIATIONS = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Standard deviations of the offsets of subjects, in log-odds, that are tried."""

MAX_SUBJECTS = 500
"""Subjects of a fit, whose curvature is a dense matrix."""

FIXED = 1e8
"""The ridge of an offset that stays at 0."""


@dataclass(eq=False)
class CorrectnessModel:
    """Logistic regression of whether an answer is right, with partially pooled subjects.

    Parameters
    ----------
    ridge
        Pull of the weights of features toward 0, in answers; that of the score is pulled toward 1, which is no change.

    Attributes
    ----------
    intercept_, slope_
        Of the log-odds of the score.
    weights_
        Of the standardized features, by name.
    offsets_
        The offset of each subject in log-odds; an unknown subject has 0.
    deviation_
        The standard deviation of the offsets, of largest marginal likelihood (Laplace approximation).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> score, length = rng.normal(size=400), rng.normal(size=400)
    >>> right = rng.random(400) < 1 / (1 + np.exp(-score - length))
    >>> model = CorrectnessModel().fit(score, right, features={"length": length})
    >>> model.predict_proba([0.0], features={"length": [2.0]})[0, 1] > 0.75
    np.True_
    """

    ridge: float = 1.0
    kind_: str = field(default="logits", init=False)

    def fit(
        self,
        score: Any,
        correct: Any,
        *,
        features: Mapping[str, Any] | None = None,
        subjects: Any = None,
        kind: Kind = "logits",
        sample_weight: Any = None,
    ) -> Self:
        """Fit on answers with a score, and whether they are right (1) or wrong (0).

        ``features`` are numbers of each answer by name (length, entropy, how many of several answers agree), ``subjects`` the
        subject of each. ``kind`` states what the score is.
        """
        _check_options(self.ridge, features)
        odds, labels = _log_odds(score, kind, correct)
        n = len(odds)
        weight = np.ones(n) if sample_weight is None else sample_weights(sample_weight, n, "score")
        names = list(features or {})
        values = _matrix(features, names, n)
        mean, deviation = np.average(values, axis=0, weights=weight), values.std(axis=0)
        deviation = np.where(deviation > 0, deviation, 1.0)
        groups = np.zeros(n, np.int64) if subjects is None else sample_groups(subjects, n, "score")
        known, codes = np.unique(groups, return_inverse=True)
        if len(known) > MAX_SUBJECTS:
            raise InputError(f"subjects has {len(known):,} subjects; at most {MAX_SUBJECTS} can be fitted")
        design = np.vstack([np.ones(n), odds, ((values - mean) / deviation).T, codes == np.arange(len(known))[:, None]])
        fits = {
            spread: _fit(design, labels, weight, self.ridge, len(names), spread)
            for spread in (DEVIATIONS if subjects is not None and len(known) > 1 else DEVIATIONS[:1])
        }
        spread = max(fits, key=lambda one: fits[one][1])
        x = fits[spread][0]
        if len(np.unique(labels[weight > 0])) < 2:
            x, spread = _one_outcome(odds, labels, weight, len(x)), 0.0
        self.kind_, self.intercept_, self.slope_ = kind, float(x[0]), float(x[1])
        self.weights_ = dict(zip(names, x[2 : 2 + len(names)].tolist(), strict=True))
        self.deviation_ = spread
        own = x[2 + len(names) :] if subjects is not None else np.zeros(0)
        self.offsets_ = dict(zip(known.tolist(), own.tolist(), strict=False))
        self._standardization = mean, deviation
        return self

    def predict_proba(
        self, score: Any, *, features: Mapping[str, Any] | None = None, subjects: Any = None
    ) -> NDArray[np.float64]:
        """The probabilities that answers are wrong and right, shape (n_answers, 2)."""
        if not hasattr(self, "offsets_"):
            raise not_fitted("this CorrectnessModel is not fitted yet; call fit(score, correct) first")
        _check_options(self.ridge, features)
        odds, _ = _log_odds(score, self.kind_, None)
        names = list(self.weights_)
        if set(features or {}) != set(names):
            given = ", ".join(features or {}) or "none"
            raise InputError(f"features must be those of the fit: {', '.join(names) or 'none'}; got {given}")
        mean, deviation = self._standardization
        values = (_matrix(features, names, len(odds)) - mean) / deviation
        total = self.intercept_ + self.slope_ * odds + values @ np.array([self.weights_[name] for name in names])
        if subjects is not None:
            groups = sample_groups(subjects, len(odds), "score")
            offsets = {str(name): offset for name, offset in self.offsets_.items()}  # 1 and "1" are one subject
            total = total + np.array([offsets.get(str(name), 0.0) for name in groups.tolist()])
        right = expit(total)
        return np.column_stack([1 - right, right])


def _check_options(ridge: Any, features: Any) -> None:
    if isinstance(ridge, bool) or not isinstance(ridge, Real) or not 0 <= float(ridge) < np.inf:
        raise InputError(f"ridge must be a number of at least 0; got {ridge!r}")
    if features is not None and not isinstance(features, Mapping):
        raise InputError(f'features are numbers by name ({{"length": [...]}}); got {type(features).__name__}')


def _one_outcome(odds: Vector, labels: Vector, weight: Vector, n_parameters: int) -> Vector:
    """Parameters where every answer is right, or every one wrong: the optimal intercept is infinite.

    The score keeps its slope of 1, and the intercept is such that the mean probability is (n + 1) / (n + 2).
    """
    is_right = bool(labels[weight > 0][0])
    warn(
        f"correct: every answer is {'right' if is_right else 'wrong'}, so the optimal probability is {int(is_right)}; the mean "
        "probability was stopped at (n + 1) / (n + 2)",
        BoundaryWarning,
    )
    total = float(weight.sum())
    wanted = (total + 1) / (total + 2) if is_right else 1 / (total + 2)
    low, high = -np.abs(odds).max() - 50.0, np.abs(odds).max() + 50.0
    for _ in range(100):
        middle = (low + high) / 2
        is_below = float(weight @ expit(odds + middle)) / total < wanted
        low, high = (middle, high) if is_below else (low, middle)
    return np.r_[(low + high) / 2, 1.0, np.zeros(n_parameters - 2)]


def _log_odds(score: Any, kind: Any, correct: Any) -> tuple[Vector, Vector]:
    """The log-odds of a score, and whether the answer is right."""
    spec = InputSpec(kind, np.array([0, 1]), positive=1)
    if np.ndim(score) != 1:
        raise InputError(f"score must have shape (n_answers,); got {np.shape(score)}")
    if correct is not None:
        flat = per_sample(correct, "correct", len(np.asarray(score)), "score")
        if not np.isin(flat, (0, 1)).all():
            raise InputError(
                f"correct must be 1 or 0 (true or false) for each answer; got {np.unique(flat).tolist()[:5]}"
            )
        correct = flat.astype(np.int64)
    data = Predictions.from_arrays(score, correct, spec=spec, name="score").prepared()
    labels = np.zeros(0) if data.labels is None else data.labels.astype(np.float64)
    return (data.logits[:, 1] - data.logits[:, 0]).astype(np.float64), labels


def _matrix(features: Mapping[str, Any] | None, names: list[str], n: int) -> Vector:
    columns = []
    for name in names:
        assert features is not None
        values = per_sample(features[name], f"features[{name!r}]", n, "score")
        if values.dtype.kind not in "iufb" or not np.isfinite(values.astype(np.float64)).all():
            raise InputError(f"features[{name!r}] must hold finite numbers; texts are subjects")
        columns.append(values.astype(np.float64))
    return np.column_stack(columns) if columns else np.zeros((n, 0))


def _fit(
    design: Vector, labels: Vector, weight: Vector, ridge: float, n_features: int, spread: float
) -> tuple[Vector, float]:
    """The weights of largest posterior density, and the log of the marginal likelihood (Laplace approximation)."""
    n_offsets = len(design) - 2 - n_features
    offset_ridge = FIXED if spread == 0 else 1 / spread**2
    penalty = np.r_[0.0, ridge, np.full(n_features, ridge), np.full(n_offsets, offset_ridge)]
    toward = np.zeros(len(design))
    toward[1] = 1.0
    minimum = optimize.logistic(design, labels, weight, penalty, toward)
    probs = expit(minimum.x @ design)
    curvature = (design * (weight * probs * (1 - probs))) @ design.T + np.diag(penalty)
    log_prior = n_offsets * np.log(offset_ridge) / 2
    return minimum.x, log_prior - minimum.value * float(weight.sum()) - float(np.linalg.slogdet(curvature)[1]) / 2
