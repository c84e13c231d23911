"""Calibrate for a population with other features (covariate shift): importance weights, and fits with them.

>>> import numpy as np, rhocal
>>> rng = np.random.default_rng(0)
>>> age, new_age = rng.normal(50, 10, 2000), rng.normal(60, 10, 2000)
>>> rhocal.estimate_weights(age, new_age).is_shifted
True
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.compose.chain import Chain
from rhocal.calibrators.cross_validation import paired_over_samples
from rhocal.calibrators.estimator import unfitted
from rhocal.calibrators.fit_spec import check_calibrator, spec_of_fit
from rhocal.calibrators.fitting import fit
from rhocal.calibrators.folds import Folds
from rhocal.calibrators.guard import SampleScores, fit_without_warnings, scored_folds
from rhocal.calibrators.linear.prior_shift import PriorShift
from rhocal.calibrators.weighting import Weighting
from rhocal.data.features import feature_matrices
from rhocal.data.sources import Source, as_source
from rhocal.errors import FewSamplesWarning, InputError, ShiftWarning, warn
from rhocal.metrics.inference.density_ratio import Classifier, density_ratio
from rhocal.profile.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rhocal.calibrators.base import Calibrator
    from rhocal.data.predictions import Predictions
    from rhocal.data.spec import Kind
    from rhocal.numerics.special import Floats, Vector

DETECTED = 0.01
"""A p-value below which the features differ."""
MIN_EFFECTIVE = 30
"""Effective samples below which a fit is refused."""
FEW_EFFECTIVE = 200
"""Effective samples below which there is a warning."""
MAX_OUTSIDE = 0.05
"""Share of target samples without a counterpart above which there is a warning."""
MOST_OUTSIDE = 0.5
"""The share above which a fit is refused."""
MAX_DISTANCE = 0.1
"""Distance of weighted means from those of the target, in standard deviations, that is no warning."""
SMALLEST_ODDS = 1e-6
N_FOLDS = 5
"""Of the comparison with a fit without weights: ten more fits."""
Z95 = 1.96


@dataclass(frozen=True, eq=False)
class ImportanceWeights:
    """Weights that make samples of one population count as those of another, and how far that goes."""

    weights: Vector
    """One for each source sample; their mean is 1."""
    n_target: int
    auc: float
    """How well a classifier tells the populations apart on samples it has not seen; 0.5: not at all."""
    p_value: float
    """Of the test whether both are one population. It combines tests of folds and is accurate where it is small."""
    outside: float
    """Share of the target samples that lie where there are no, or hardly any, source samples."""
    features: tuple[str, ...]
    before: Vector
    """Of each feature, the distance of the means of source and target, in standard deviations."""
    after: Vector
    """The same with weights."""

    @property
    def effective_size(self) -> float:
        """(Σw)²/Σw²: as many samples of the target would be as precise."""
        return effective_size(self.weights)

    @property
    def is_shifted(self) -> bool:
        """Whether the features differ, by a test at 1 %."""
        return self.p_value < DETECTED

    @property
    def verdict(self) -> str:
        """Whether there is a shift, and what the weights leave."""
        p = "p < 1e-9" if self.p_value < 1e-9 else f"p = {self.p_value:.2g}"
        n, size = len(self.weights), self.effective_size
        if not self.is_shifted:
            return f"no sign of a shift of these features ({p}, AUC {self.auc:.3f}); weights leave {size:,.0f} of {n:,} samples"
        k = int(np.argmax(self.before))
        verb = "reduce" if round(self.after[k], 2) < round(self.before[k], 2) else "do not reduce"
        return (
            f"the features differ ({p}, AUC {self.auc:.3f}); weights leave {size:,.0f} effective samples of {n:,}, and "
            f"{verb} the largest distance of means ({self.features[k]}) from {self.before[k]:.2f} to {self.after[k]:.2f} "
            "standard deviations"
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything but the weights, as JSON takes it."""
        rows = zip(self.features, self.before.tolist(), self.after.tolist(), strict=True)
        return {
            "n_source": len(self.weights),
            "n_target": self.n_target,
            "effective_size": self.effective_size,
            "auc": self.auc,
            "p_value": self.p_value,
            "outside": self.outside,
            "features": [{"feature": name, "before": before, "after": after} for name, before, after in rows],
            "verdict": self.verdict,
        }


@dataclass(frozen=True, eq=False)
class Reweighting:
    """A calibrator that was fitted again with importance weights, and what that is worth."""

    calibrator: Calibrator
    n_samples: int
    effective_size: float
    nll: float | None = None
    """NLL for the target, estimated with the weights on samples that a fit with weights did not see; None of too few."""
    nll_unweighted: float | None = None
    """The same of a fit without weights."""
    difference: tuple[float, float, float] | None = None
    """The first minus the second, with its 95 % interval."""
    weights: ImportanceWeights | None = None

    @property
    def verdict(self) -> str:
        """What the weights are worth."""
        text = f"{self.calibrator.label} fitted with {self.effective_size:,.0f} effective samples of {self.n_samples:,}"
        if self.difference is None:
            return f"{text}; too few samples to estimate what the weights are worth"
        value, low, high = self.difference
        worth = "lower" if high < 0 else "higher: leave the weights out" if low > 0 else "no clear difference"
        return (
            f"{text}; held-out NLL for the target {self.nll:.4f} with weights, {self.nll_unweighted:.4f} without "
            f"({value:+.4f}, 95 % interval {low:+.4f} to {high:+.4f}: {worth})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything but the calibrator, as JSON takes it."""
        return {
            "method": self.calibrator.label,
            "n_samples": self.n_samples,
            "effective_size": self.effective_size,
            "nll": self.nll,
            "nll_unweighted": self.nll_unweighted,
            "difference": self.difference and dict(zip(("value", "low", "high"), self.difference, strict=True)),
            "weights": None if self.weights is None else self.weights.to_dict(),
            "verdict": self.verdict,
        }


def estimate_weights(source: Any, target: Any, *, classifier: Any = None) -> ImportanceWeights:
    """Estimate importance weights: how much more often samples like each source sample occur in the target.

    A classifier tells both apart; the weight of a sample is its odds of being a target sample, from a classifier that was
    fitted without it. Where nothing tells them apart, all weights are 1.

    Parameters
    ----------
    source
        Features of the labeled samples: an array, tensor or data frame of shape (n_samples, n_features). What the model
        reads, an embedding of it, or whatever may have changed; texts are categories. Columns of data frames are matched by
        name.
    target
        Features of samples of the new population. Labels are not needed.
    classifier
        An estimator with ``fit`` and ``predict_proba`` such as scikit-learn's, not fitted; copies of it are. Default: logistic
        regression on the features, their squares and, up to 10 features, their products, with a ridge chosen out of fold.

    Returns
    -------
    ImportanceWeights
        Its ``weights`` go to ``rhocal.reweight``, and to ``rhocal.evaluate`` with ``weight_kind="importance"``.

    Examples
    --------
    >>> import numpy as np, rhocal
    >>> rng = np.random.default_rng(0)
    >>> age, new_age = rng.normal(50, 10, 1000), rng.normal(58, 10, 1000)
    >>> estimated = rhocal.estimate_weights(age, new_age)
    >>> bool(abs(np.average(age, weights=estimated.weights) - new_age.mean()) < 1)
    True
    """
    ours, theirs, names = feature_matrices(source, target)
    given = None if classifier is None else [_classifier(classifier)]
    ratio = density_ratio(ours, theirs, given)
    weights = ImportanceWeights(
        ratio.weights,
        len(theirs),
        ratio.auc,
        ratio.p_value,
        ratio.outside,
        tuple(names),
        ratio.before,
        ratio.after,
    )
    _warn_of_weights(weights)
    return weights


def _warn_of_weights(weights: ImportanceWeights) -> None:
    if weights.outside > MAX_OUTSIDE:
        warn(
            f"{100 * weights.outside:.0f} % of the target samples lie where there are hardly any source samples: weights "
            "cannot stand for them. Label some of these samples, and fit on them too",
            ShiftWarning,
        )
    k = int(np.argmax(weights.after))
    noise = np.sqrt(1 / weights.effective_size + 1 / weights.n_target)
    if weights.after[k] > max(MAX_DISTANCE, 3 * noise) and weights.outside <= MAX_OUTSIDE:
        warn(
            f"with the weights the mean of {weights.features[k]} is still {weights.after[k]:.2f} standard deviations from "
            "that of the target: the classifier is too simple, or the populations are too far apart",
            ShiftWarning,
            argument="classifier",
            remedy="use another classifier",
        )


def _classifier(estimator: Any) -> Classifier:
    """An estimator of scikit-learn's protocol, as a function."""
    if not (hasattr(estimator, "fit") and hasattr(estimator, "predict_proba")) or isinstance(estimator, type):
        raise InputError(f"classifier has fit and predict_proba; got {type(estimator).__name__}")

    def fitted(x: Floats, is_target: Vector, _weight: Vector) -> Callable[[Floats], Vector]:
        model = deepcopy(estimator)
        model.fit(x, is_target.astype(int))
        column = list(getattr(model, "classes_", [0, 1])).index(1)
        prior = np.log(is_target.sum() / (len(is_target) - is_target.sum()))

        def odds(other: Floats) -> Vector:
            p = np.clip(np.asarray(model.predict_proba(other), np.float64)[:, column], SMALLEST_ODDS, 1 - SMALLEST_ODDS)
            return np.asarray(np.log(p / (1 - p)) - prior)

        return odds

    return fitted


def reweight(
    calibrator: Calibrator,
    logits: Any,
    labels: Any = None,
    weights: Any = None,
    *,
    kind: Kind | None = None,
    ignore_index: int | None = None,
) -> Reweighting:
    """Fit the method of a calibrator again, for a population whose features differ (covariate shift).

    It is assumed that samples with the same features have the same labels as before. Where the mix of the classes changed
    instead, use ``rhocal.adapt``.

    Parameters
    ----------
    calibrator
        A fitted calibrator; a new one with the same method and options is fitted.
    logits, labels
        Labeled samples, in the form that the calibrator takes. A method that fits the labels of every population equally well
        needs no weights, and they cost precision.
    weights
        The result of ``rhocal.estimate_weights``, or a number for each sample that is proportional to how much more often it
        occurs in the new population.
    kind
        What ``logits`` are; by default what the calibrator was fitted on.
    ignore_index
        Leave out samples with this label.

    Returns
    -------
    Reweighting
        Its ``calibrator`` is the new one. ``calibrator.weighting_`` keeps the effective sample size in the artifact.

    Examples
    --------
    >>> import numpy as np, rhocal
    >>> logits, labels = rhocal.demo_logits("cal", "cifar10")
    >>> cal = rhocal.TemperatureScaling().fit(logits, labels)
    >>> hard = np.exp(-0.1 * np.ptp(logits, axis=1))  # such samples are more frequent where the model is used
    >>> found = rhocal.reweight(cal, logits, labels, hard)
    >>> found.calibrator.temperature_ != cal.temperature_, found.effective_size < found.n_samples
    (True, True)
    """
    check_calibrator(calibrator, logits, "reweight")
    estimated = weights if isinstance(weights, ImportanceWeights) else None
    values = weights if estimated is None else estimated.weights
    if values is None:
        raise InputError("weights: give rhocal.estimate_weights(source, target), or a number for each sample")
    spec = spec_of_fit(calibrator, kind=kind, ignore_index=ignore_index)
    source = as_source(logits, labels, values, spec=spec)
    if not source.resident:
        raise InputError("logits: reweight needs the samples in memory; pass arrays")
    return reweight_data(calibrator, source.predictions, estimated)


def reweight_data(calibrator: Calibrator, data: Predictions, estimated: ImportanceWeights | None) -> Reweighting:
    """The same for validated samples, whose weights are the importance weights."""
    assert data.weights is not None
    if calibrator.takes_groups:
        raise InputError(f"{calibrator.label} reads groups; fit it with sample_weight and groups instead")
    size = effective_size(data.weights)
    text = f"the weights leave {size:,.0f} effective samples of {data.n_samples:,}"
    if size < MIN_EFFECTIVE:
        raise InputError(
            f"{text}, too few to fit on (at least {MIN_EFFECTIVE}): both populations hardly overlap. Label samples of the new "
            "population and fit on those, or use fewer features"
        )
    if estimated is not None and estimated.outside > MOST_OUTSIDE:
        raise InputError(
            f"{100 * estimated.outside:.0f} % of the new samples lie where there are hardly any labeled ones, so that weights "
            "cannot stand for them. Label samples of the new population and fit on those, or leave out features that only name "
            "the population"
        )
    if size < FEW_EFFECTIVE:
        warn(f"{text}; the fit is uncertain. Labels of the new population would help more", FewSamplesWarning)
    # A weight of k counts as k samples in a fit, so the weights sum to the effective sample size.
    data = replace(data, weights=data.weights * (size / data.weights.sum()))
    unfit = _method_of(calibrator)
    evidence = _held_out(unfit, data)
    fitted = unfitted(unfit)
    fit(fitted, Source.from_predictions(data))
    fitted.columns_, fitted.positive_ = calibrator.columns_, calibrator.positive_
    origin = "given" if estimated is None else "estimated"
    fitted.weighting_ = Weighting(origin, data.n_samples, size)
    return Reweighting(fitted, data.n_samples, size, *evidence, estimated)


def _method_of(calibrator: Calibrator) -> Calibrator:
    """The calibrator without a correction of the class mix behind it, which a fit on labels replaces."""
    is_moved = isinstance(calibrator, Chain) and isinstance(calibrator.second_, PriorShift)
    return calibrator.first_ if isinstance(calibrator, Chain) and is_moved else calibrator


def _held_out(
    method: Calibrator, data: Predictions
) -> tuple[float | None, float | None, tuple[float, float, float] | None]:
    """Weighted NLL of fits with and without weights on folds that they did not see, and their difference."""
    data = data.prepared()
    folds = Folds.from_profile(Profile.from_predictions(data), N_FOLDS)
    if not folds or data.weights is None or data.labels is None:
        return None, None, None
    rows: list[NDArray[np.intp]] = []
    with_weights: list[Vector] = []
    without: list[Vector] = []
    for fold in scored_folds(folds, data.clusters):
        outside, inside = data.take(fold.outside), data.take(fold.inside)
        rows.append(fold.outside)
        for losses, part in ((with_weights, inside), (without, replace(inside, weights=None))):
            try:
                fitted = fit_without_warnings(method, part)
            except InputError:  # too few samples without a fold
                return None, None, None
            losses.append(SampleScores.from_logits(fitted.map_.logits(outside), data.labels[fold.outside]).nll)
    weights = data.weights[np.concatenate(rows)]
    share = weights / weights.sum()
    mine, other = np.concatenate(with_weights), np.concatenate(without)
    value, _ = paired_over_samples(mine, other, share, float(weights.sum()))
    error = float(np.sqrt(share**2 @ (mine - other - value) ** 2))
    return float(share @ mine), float(share @ other), (value, value - Z95 * error, value + Z95 * error)


def effective_size(weights: NDArray[np.float64]) -> float:
    """(Σw)²/Σw² (Kish 1965)."""
    unit = weights / weights.max()
    return float(unit.sum() ** 2 / (unit @ unit))
