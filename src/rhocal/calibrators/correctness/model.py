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
from rhocal.calibrators.clusters import with_design_effect
from rhocal.calibrators.cross_validation import N_FOLDS, paired_over_samples
from rhocal.calibrators.folds import Folds
from rhocal.calibrators.guard import MIN_COMPARED_SAMPLES
from rhocal.data.columns import shown
from rhocal.data.labels.per_sample import per_sample, sample_groups, sample_weights
from rhocal.data.predictions import Predictions
from rhocal.data.spec import InputSpec
from rhocal.errors import BoundaryWarning, GuardWarning, InputError, SuspiciousInputWarning, not_fitted, warn
from rhocal.numerics.special import expit
from rhocal.profile.profile import Profile

if TYPE_CHECKING:
    from os import PathLike

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
    held_out_
        With features or subjects: NLL on held-out answers, that of the score alone, and the difference with its standard
        error; None with fewer than 100 answers.

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
    subjects_name_: str = field(default="subject", init=False)
    """The column of the subjects in files; the command line reads it."""

    def fit(
        self,
        score: Any,
        correct: Any,
        *,
        features: Mapping[str, Any] | None = None,
        subjects: Any = None,
        kind: Kind = "logits",
        sample_weight: Any = None,
        clusters: Any = None,
    ) -> Self:
        """Fit on answers with a score, and whether they are right (1) or wrong (0).

        ``features`` are numbers of each answer by name (length, entropy, how many of several answers agree), ``subjects`` the
        subject of each. ``kind`` states what the score is. ``clusters`` is the question of each answer, where questions have
        several.
        """
        _check_options(self.ridge, features)
        data = with_design_effect(_answers(score, kind, correct, sample_weight, clusters).prepared())
        odds, labels = _log_odds(data), np.asarray(data.labels, np.float64)
        n = len(odds)
        weight = data.counts
        names = list(features or {})
        values = _matrix(features, names, n)
        groups = np.zeros(n, np.int64) if subjects is None else sample_groups(subjects, n, "score")
        known, codes = np.unique(groups, return_inverse=True)
        if len(known) > MAX_SUBJECTS:
            raise InputError(f"subjects has {len(known):,} subjects; at most {MAX_SUBJECTS} can be fitted")
        has_subjects = subjects is not None and len(known) > 1
        answers = Answers(odds, labels, weight, values, codes, len(known))
        fitted = answers.fit(self.ridge, has_subjects=has_subjects)
        self.kind_, self.intercept_, self.slope_ = kind, fitted.intercept, fitted.slope
        self.weights_ = dict(zip(names, fitted.weights.tolist(), strict=True))
        self.deviation_ = fitted.spread
        self.offsets_ = {} if subjects is None else dict(zip(known.tolist(), fitted.offsets.tolist(), strict=True))
        self._standardization = fitted.mean, fitted.deviation
        self._limits = float(data.mask_gap or np.inf), data.smallest_prob
        self.held_out_ = (
            _compare(answers, data, self.ridge, has_subjects=has_subjects) if names or has_subjects else None
        )
        return self

    def predict_proba(
        self, score: Any, *, features: Mapping[str, Any] | None = None, subjects: Any = None
    ) -> NDArray[np.float64]:
        """The probabilities that answers are wrong and right, shape (n_answers, 2)."""
        if not hasattr(self, "offsets_"):
            raise not_fitted("this CorrectnessModel is not fitted yet; call fit(score, correct) first")
        _check_options(self.ridge, features)
        odds = _log_odds(_answers(score, self.kind_).prepared(*self._limits))
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
            names = [str(name) for name in groups.tolist()]
            _warn_of_unseen([name for name in names if name not in offsets], offsets)
            total = total + np.array([offsets.get(name, 0.0) for name in names])
        right = expit(total)
        return np.column_stack([1 - right, right])

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted model as one ``.safetensors`` file; ``CorrectnessModel.load`` and ``rhocal apply`` read it."""
        from rhocal.calibrators.correctness.file import save  # noqa: PLC0415 - it imports this module

        if not hasattr(self, "offsets_"):
            raise not_fitted("this CorrectnessModel is not fitted yet; call fit(score, correct) first")
        save(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> CorrectnessModel:
        """Read a model that ``save`` wrote; all of it is checked."""
        from rhocal.calibrators.correctness.file import load  # noqa: PLC0415 - it imports this module

        return load(path)


@dataclass(frozen=True, eq=False)
class FittedAnswers:
    """The numbers of a fit."""

    intercept: float
    slope: float
    weights: Vector
    mean: Vector
    deviation: Vector
    offsets: Vector
    spread: float

    def log_odds(self, answers: Answers) -> Vector:
        """Of answers whose subjects have the same numbers."""
        values = (answers.values - self.mean) / self.deviation
        return self.intercept + self.slope * answers.odds + values @ self.weights + self.offsets[answers.codes]


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers with a score, features and subjects."""

    odds: Vector
    labels: Vector
    weight: Vector
    values: Vector
    """Of the features, a column each."""
    codes: NDArray[np.intp]
    """The number of the subject of each."""
    n_subjects: int

    def take(self, rows: NDArray[np.intp]) -> Answers:
        """Some of them."""
        return Answers(
            self.odds[rows], self.labels[rows], self.weight[rows], self.values[rows], self.codes[rows], self.n_subjects
        )

    @property
    def without_features(self) -> Answers:
        """The same with the score alone."""
        return Answers(self.odds, self.labels, self.weight, self.values[:, :0], self.codes, self.n_subjects)

    def fit(self, ridge: float, *, has_subjects: bool) -> FittedAnswers:
        """The weights of largest posterior density, with the deviation of subjects of largest marginal likelihood."""
        n_features = self.values.shape[1]
        mean = np.average(self.values, axis=0, weights=self.weight)
        deviation = np.sqrt(np.average((self.values - mean) ** 2, axis=0, weights=self.weight))
        deviation = np.where(deviation > 0, deviation, 1.0)
        is_subject = self.codes == np.arange(self.n_subjects)[:, None]
        scaled = ((self.values - mean) / deviation).T
        design = np.vstack([np.ones(len(self.odds)), self.odds, scaled, is_subject])
        fits = {
            spread: _fit(design, self.labels, self.weight, ridge, n_features, spread)
            for spread in (DEVIATIONS if has_subjects else DEVIATIONS[:1])
        }
        spread = max(fits, key=lambda one: fits[one][1])
        x = fits[spread][0]
        if len(np.unique(self.labels[self.weight > 0])) < 2:
            x, spread = _one_outcome(self.odds, self.labels, self.weight, len(x)), 0.0
        weights, offsets = x[2 : 2 + n_features], x[2 + n_features :]
        return FittedAnswers(float(x[0]), float(x[1]), weights, mean, deviation, offsets, spread)


def _compare(answers: Answers, data: Predictions, ridge: float, *, has_subjects: bool) -> dict[str, float] | None:
    """NLL on answers that are held out, questions as a whole, beside that of the score alone; a warning if it is higher."""
    profile = Profile.from_predictions(data)
    folds = Folds.from_profile(profile, N_FOLDS, by_label=False)
    if profile.total_weight < MIN_COMPARED_SAMPLES or not folds:
        return None
    losses = np.zeros((2, len(answers.odds)))
    for fold in folds:
        inside, outside = answers.take(fold.inside), answers.take(fold.outside)
        if len(np.unique(inside.labels[inside.weight > 0])) < 2:
            return None
        whole, alone = (
            inside.fit(ridge, has_subjects=has_subjects),
            inside.without_features.fit(ridge, has_subjects=False),
        )
        sign = 1 - 2 * outside.labels
        for k, odds in enumerate((whole.log_odds(outside), alone.log_odds(outside.without_features))):
            losses[k, fold.outside] = np.logaddexp(0, sign * odds)
    above, error = paired_over_samples(losses[0], losses[1], profile.weights, profile.total_weight, data.clusters)
    if above > error:
        warn(
            f"features and subjects do not help on held-out answers: NLL is {above:.4f} ± {error:.4f} above that of the score "
            "alone; fit without them",
            GuardWarning,
        )
    nll, alone_nll = (losses @ profile.weights).tolist()
    return {"nll": nll, "nll_of_score_alone": alone_nll, "above": above, "standard_error": error}


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


def _answers(score: Any, kind: Any, correct: Any = None, weights: Any = None, clusters: Any = None) -> Predictions:
    """Validate scores of answers, and whether these are right."""
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
    weights = None if weights is None else sample_weights(weights, len(np.asarray(score)), "score")
    return Predictions.from_arrays(score, correct, weights=weights, clusters=clusters, spec=spec, name="score")


def _log_odds(data: Predictions) -> Vector:
    return (data.logits[:, 1] - data.logits[:, 0]).astype(np.float64)


def _matrix(features: Mapping[str, Any] | None, names: list[str], n: int) -> Vector:
    columns = []
    for name in names:
        assert features is not None
        values = per_sample(features[name], f"features[{name!r}]", n, "score")
        if values.dtype.kind not in "iufb" or not np.isfinite(values.astype(np.float64)).all():
            raise InputError(f"features[{name!r}] must hold finite numbers; texts are subjects")
        columns.append(values.astype(np.float64))
    return np.column_stack(columns) if columns else np.zeros((n, 0))


def _warn_of_unseen(names: list[str], offsets: Mapping[str, float]) -> None:
    """Warn of samples whose subject was not fitted: names may be written in another way, as 01 and 1."""
    if names:
        warn(
            f"{len(names):,} samples are of subjects that the fit has not seen ({shown(dict.fromkeys(names))}; it has seen "
            f"{shown(offsets)}): they are given the offset of an average subject",
            SuspiciousInputWarning,
        )


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
