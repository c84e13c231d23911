"""Intervals of calibrated probabilities: how far they depend on which samples the calibrator was fitted on.

A calibrator is fitted again on reweighted calibration sets (the Bayesian bootstrap, Rubin 1981): the weight of a sample is
drawn from a gamma distribution whose shape is its weight, so that a weight of 2 has the distribution of two copies, and a
class never disappears. Clusters of samples that depend on each other are reweighted as a whole. The interval covers the error
of the fit, not of the family: it holds what the same fit would give on endlessly many samples, which is the true probability
only if a member of the family is right.

A ridge pulls all replicates alike, so that the centers of ridges are drawn too (``rhocal.calibrators.ridge_centers``).

Where a fit chose a method, or fell back to one, replicates are fits of the richest method that the samples do not exclude
(``rhocal.calibrators.bootstrap.refitted_method``).

Isotonic regression, Venn–Abers and Bayesian binning are not fitted again, because a bootstrap of them covers less than its
level: their intervals are those of likelihood ratios (``rhocal.calibrators.binary.monotone_interval``).

>>> import rhocal
>>> logits, labels = rhocal.demo_logits("cal")
>>> cal = rhocal.TemperatureScaling().fit(logits, labels)
>>> replicates = rhocal.bootstrap(cal, logits, labels)
>>> low, high = replicates.predict_interval(rhocal.demo_logits("test")[0][:2])
>>> low.shape
(2, 10)
"""

from __future__ import annotations

import hashlib
import math
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rhocal.calibrators.binary.monotone_bounds import MonotoneBounds
from rhocal.calibrators.binary.one_vs_rest import BinaryCalibrator
from rhocal.calibrators.bootstrap.refitted_method import method_of_refits, richest_method
from rhocal.calibrators.bootstrap.resampling import draw_weights, effective_clusters, effective_variance_clusters
from rhocal.calibrators.clusters import with_design_effect
from rhocal.calibrators.compose.auto import AutoCalibrator
from rhocal.calibrators.compose.chain import Chain
from rhocal.calibrators.estimator import unfitted
from rhocal.calibrators.fit_spec import check_calibrator, named_positive, spec_of_fit
from rhocal.calibrators.guard import fit_without_warnings
from rhocal.calibrators.linear.prior_shift import PriorShift
from rhocal.calibrators.ridge_centers import drawn_centers
from rhocal.calibrators.scoring import validated_scores
from rhocal.calibrators.validated_fit import effective_size
from rhocal.data.arguments import check_level, check_whole
from rhocal.data.arrays import restore_shape
from rhocal.data.sources import as_source
from rhocal.errors import FewSamplesWarning, InputError, RhocalWarning, SuspiciousInputWarning, warn
from rhocal.numerics.special import student_quantile
from rhocal.numerics.threads import row_blocks
from rhocal.profile.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rhocal.calibrators.base import Calibrator
    from rhocal.calibrators.map import Map
    from rhocal.data.predictions import Predictions
    from rhocal.data.sources import Source
    from rhocal.data.spec import Kind
    from rhocal.numerics.special import Floats, Vector

N_REPLICATES = 100
MIN_REPLICATES, MAX_REPLICATES = 20, 10_000
LEVEL = 0.95
MIN_CLUSTERS = 2
"""Effective number of clusters; fewer have no variance."""
FEW_CLUSTERS = 30
"""Effective number of clusters for variances below which there is a warning."""
MAX_DISTANCE = 1e-3
"""Distance of a probability to that of a fit on the same samples; in memory it is below 1e-12, fits on blocks approximate."""
REPLICATED_ENTRIES = 1 << 22
"""Probabilities of all replicates in memory at a time."""


class ProbabilityInterval(NamedTuple):
    """Bounds of every probability, in the shape of ``predict_proba``."""

    low: Floats
    high: Floats


@dataclass(frozen=True, eq=False)
class Replicates:
    """A fitted calibrator, and the maps of its fits on reweighted calibration sets."""

    calibrator: Calibrator
    maps: tuple[Map, ...]
    monotone: MonotoneBounds | None = None
    """Of isotonic regression, Venn–Abers and Bayesian binning, instead of maps."""
    n_units: float = math.inf
    """The effective number of clusters; infinite where samples are independent."""
    n_variance_units: float = math.inf
    """The same for variances, at most ``n_units``: 1 more than their degrees of freedom."""

    def predict_interval(
        self,
        logits: Any,
        *,
        level: float = LEVEL,
        kind: Kind | None = None,
        class_axis: int = -1,
        groups: Any = None,
    ) -> ProbabilityInterval:
        """The interval of every calibrated probability: what the family would give if it were fitted on endless samples.

        Each probability has the level by itself, not all of a sample together.
        """
        check_level(level, "level", "0.95 for 95 %")
        check_calibrator(self.calibrator, logits, "predict_interval")
        data = validated_scores(self.calibrator, logits, kind, class_axis, groups)
        low, high = self.bounds(data, level)
        return ProbabilityInterval(*(restore_shape(side, logits, class_axis) for side in (low, high)))

    def bounds(self, data: Predictions, level: float = LEVEL) -> tuple[Floats, Floats]:
        """The same of validated data."""
        center = self.calibrator.map_.probs(data)
        if self.monotone is not None:
            return self._monotone_bounds(self.monotone, data, center.astype(np.float64), level)
        low, high = np.empty_like(center), np.empty_like(center)
        for rows in row_blocks(data.n_samples, data.n_classes * len(self.maps), REPLICATED_ENTRIES):
            part = data.take(np.arange(rows.start, rows.stop))
            drawn = np.stack([map_.probs(part).astype(np.float64) for map_ in self.maps])
            middle = center[rows].astype(np.float64)
            low[rows], high[rows] = interval_of(middle, drawn, level, self.n_units, self.n_variance_units)
        return low, high

    def _monotone_bounds(
        self, monotone: MonotoneBounds, data: Predictions, center: Vector, level: float
    ) -> tuple[Floats, Floats]:
        """Bounds of the fitted map; another mix of classes multiplies their odds as it does those of the probability."""
        low, high = monotone.bounds(data, level)
        if _before_adaptation(self.calibrator) is not self.calibrator:
            before = _before_adaptation(self.calibrator).map_.probs(data).astype(np.float64)
            low, high = (_with_odds_ratio(side, before, center) for side in (low, high))
        return np.minimum(low, center), np.maximum(high, center)

    def describe(self) -> tuple[int, str]:
        """The number of maps, and a digest of their numbers."""
        if self.monotone is not None:
            return 0, self.monotone.digest()
        digest = hashlib.sha256()
        for map_ in self.maps:
            for name, value in sorted(map_.arrays.items()):
                digest.update(name.encode() + np.ascontiguousarray(value).tobytes())
        return len(self.maps), digest.hexdigest()


def _with_odds_ratio(probs: Vector, before: Vector, after: Vector) -> Vector:
    """Probabilities whose odds are multiplied by those of ``after`` over those of ``before``."""
    yes, no = probs * after * (1 - before), (1 - probs) * before * (1 - after)
    return np.asarray(yes / np.maximum(yes + no, np.finfo(float).tiny))


def interval_of(
    center: Vector, drawn: Vector, level: float, n_units: float = math.inf, n_variance_units: float = math.inf
) -> tuple[Vector, Vector]:
    """Bounds of probabilities from those of replicates, which are the first axis: their percentiles.

    Percentiles stay right where an estimate is at a bound (a weight that is 0, a method that was not chosen), and replicates
    repeat it. The q-quantile is the q·(n + 1)-th smallest of n replicates: of exchangeable draws it has the level exactly.
    Beyond the outermost ones distances to the center grow as quantiles of Student's t do. All is counted in the angle
    2·asin(√p), which is near normal and finite at 0 and 1.

    Reweighted means of few units vary less than their means do, by (n − 1)/(n + 1), and their variance has n − 1 degrees of
    freedom, where units differ in size of the number of ``effective_variance_clusters``: distances are multiplied by both.
    """
    n, q = len(drawn), (1 + level) / 2
    inner = min(q, 1 - 1 / (n + 1))
    factor = student_quantile(n - 1, q) / student_quantile(n - 1, inner) if inner < q else 1.0
    if math.isfinite(n_units):
        freedom = max(min(n_units, n_variance_units), MIN_CLUSTERS) - 1
        factor *= student_quantile(freedom, q) / student_quantile(math.inf, q)
        factor *= math.sqrt((n_units + 1) / (n_units - 1))
    angles, middle = np.sort(_angle(drawn), axis=0), _angle(center)
    place, share = divmod(max((1 - inner) * (n + 1) - 1, 0.0), 1.0)
    bounds = []
    for sign, ordered in ((-1, angles), (1, angles[::-1])):
        at = ordered[int(place)] + share * (ordered[int(place) + 1] - ordered[int(place)])
        distance = factor * np.maximum(sign * (at - middle), 0.0)
        bounds.append(np.sin(np.clip(middle + sign * distance, 0.0, np.pi) / 2) ** 2)
    return np.minimum(bounds[0], center), np.maximum(bounds[1], center)


def _angle(probs: Vector) -> Vector:
    return np.asarray(2 * np.arcsin(np.sqrt(np.clip(probs, 0.0, 1.0))))


def bootstrap(
    calibrator: Calibrator,
    logits: Any,
    labels: Any = None,
    sample_weight: Any = None,
    *,
    n_replicates: int = N_REPLICATES,
    seed: int = 0,
    groups: Any = None,
    kind: Kind | None = None,
    classes: Any = None,
    ignore_index: int | None = None,
    class_axis: int = -1,
    positive: Any = None,
    clusters: Any = None,
) -> Replicates:
    """Fit a calibrator again on reweighted calibration sets, for intervals of its probabilities.

    Parameters
    ----------
    calibrator
        Fitted on these samples; it stays as it is.
    logits, labels, sample_weight
        The samples of its fit.
    n_replicates
        Number of fits; ``isotonic``, ``centered-isotonic``, ``venn-abers`` and ``bbq`` need none.
    seed
        Of the weights, which belong to samples by what they hold: their order does not matter.
    groups, kind, classes, ignore_index, class_axis
        As in ``fit``.
    positive
        As in ``fit``; what a single column is scores of is known from it.
    clusters
        What each sample belongs to (its patient, its question), as in ``fit``. Whole clusters are reweighted, and likelihood
        ratios count the independent samples that tell as much. A calibrator that was fitted with clusters needs them.

    Where ``auto`` chose a method, a cascade or another guarded fit fell back to one, or ``field`` chose a ridge, the fits are
    those of the richest candidate whose loss, the mean of held-out and in-sample losses, is at most two standard errors above
    that of the one in use; the interval holds the calibrated probability as well. A warning states where this is another
    method. Fits of a cascade take the time of as many cascades. The degree of ``polynomial`` and the ridges of ``iop``,
    ``matrix`` and ``dirichlet`` stay as chosen.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits(name="table")
    >>> calibrator = rhocal.PlattScaling().fit(logits, labels)
    >>> replicates = rhocal.bootstrap(calibrator, logits, labels, n_replicates=20)
    >>> low, high = replicates.predict_interval(logits[:3])
    >>> low.shape
    (3, 2)
    """
    check_calibrator(calibrator, logits, "bootstrap")
    spec = spec_of_fit(calibrator, kind=kind, classes=classes, ignore_index=ignore_index, class_axis=class_axis)
    named_positive(positive, calibrator, classes)  # it has to be a class
    calibrator.check_groups(groups)
    source = as_source(logits, labels, sample_weight, groups, clusters, spec=spec)
    return bootstrap_source(calibrator, source, n_replicates, seed)


def bootstrap_source(
    calibrator: Calibrator,
    source: Source,
    n_replicates: int = N_REPLICATES,
    seed: int = 0,
    report: Callable[[str], None] = lambda _method: None,
) -> Replicates:
    """The same for a source; ``report`` is called after each fit, with the name of the method."""
    check_whole(n_replicates, "n_replicates", MIN_REPLICATES, MAX_REPLICATES)
    check_whole(seed, "seed", 0)
    if not source.resident:
        raise InputError("a bootstrap fits many times on the same samples, which must be in memory; give arrays")
    data = source.predictions.in_order_of(calibrator.classes_)[0].prepared()
    n_units = _check_clusters(calibrator, data)
    n_variance_units = math.inf if data.clusters is None else effective_variance_clusters(data)
    data = with_design_effect(data)
    _check_samples(calibrator, data)
    method = richest_method(_before_adaptation(calibrator), data)
    _warn_of_choice(_before_adaptation(calibrator), method)
    if isinstance(method, BinaryCalibrator) and method.has_monotone_bounds:
        fitted = fit_without_warnings(method, data)
        assert isinstance(fitted, BinaryCalibrator)
        return Replicates(calibrator, (), MonotoneBounds.from_fit(fitted, data, n_units), n_units)
    maps = []
    for map_ in replicated_maps(calibrator, method, data, n_replicates, seed):
        maps.append(map_)
        report(method.label)
    return Replicates(calibrator, tuple(maps), None, n_units, n_variance_units)


def _check_clusters(calibrator: Calibrator, data: Predictions) -> float:
    """The effective number of clusters, infinite without any; an error where they are missing, or there is only one."""
    if data.clusters is None:
        if calibrator.n_clusters_ is None:
            return math.inf
        raise InputError(
            f"the calibrator was fitted on samples of {calibrator.n_clusters_:,} clusters; intervals without them would be too "
            "narrow",
            argument="clusters",
            remedy="state what each sample belongs to, as in the fit",
        )
    n_units = effective_clusters(data)
    if n_units < MIN_CLUSTERS:
        raise InputError(
            f"clusters: the samples are those of {n_units:.2g} clusters, by their weights; how far fits vary from cluster to "
            f"cluster needs {MIN_CLUSTERS} at least"
        )
    n_variance_units = effective_variance_clusters(data)
    if n_variance_units < FEW_CLUSTERS:
        warn(
            f"clusters: how far fits vary is known as from {n_variance_units:.3g} equal clusters, (Σw²)²/Σw⁴ of their weights; "
            f"below {FEW_CLUSTERS} intervals are wide, and their level is approximate",
            FewSamplesWarning,
        )
    return n_units


def _check_samples(calibrator: Calibrator, data: Predictions) -> None:
    """Warn unless the samples are those of the fit: as many, and a fit on them gives the same probabilities."""
    n, n_fitted = effective_size(data), calibrator.n_samples_
    is_clustered = calibrator.n_clusters_ is not None, data.clusters is not None
    if n_fitted is not None and n != n_fitted and len(set(is_clustered)) == 1:
        reason = f"the calibrator was fitted on {n_fitted:,} samples, and these are {n:,}"
    else:
        fitted = _before_adaptation(calibrator)
        weights = data.counts
        (again,) = _refits(method_of_refits(fitted), data, [weights / weights.sum()], start=fitted.map_)
        distance = float(np.abs(again.probs(data) - fitted.map_.probs(data)).max())
        if distance <= MAX_DISTANCE:
            return
        reason = (
            f"a fit on these samples gives other probabilities, by up to {100 * distance:.2g} points: they are not those that "
            f"{fitted.label} was fitted on"
        )
    warn(
        f"{reason}; intervals are those of a fit on these. Give the samples of the fit",
        SuspiciousInputWarning,
    )


def _warn_of_choice(calibrator: Calibrator, method: Calibrator) -> None:
    """Warn where replicates are fits of another method than the one in use, or the choice is not covered."""
    used = method_of_refits(calibrator)
    if method.label != used.label:
        warn(
            f"intervals are those of {method.label}: the samples do not exclude that it is nearer to the truth than "
            f"{used.label}, which is used. Fit {used.label} by its name for intervals of it alone",
            RhocalWarning,
        )
    elif isinstance(calibrator, AutoCalibrator) and calibrator.debias is not None:
        warn(
            f"intervals are those of {used.label}: they do not cover the choice of offsets and of a method by held-out "
            "samples, and may hold the true probability less often than their level",
            RhocalWarning,
        )


def _before_adaptation(calibrator: Calibrator) -> Calibrator:
    """The calibrator that was fitted, of one that was adapted to another mix."""
    is_adapted = isinstance(calibrator, Chain) and isinstance(calibrator.second_, PriorShift)
    return calibrator.first_ if is_adapted and isinstance(calibrator, Chain) else calibrator


def replicated_maps(
    calibrator: Calibrator, method: Calibrator, data: Predictions, n_replicates: int, seed: int
) -> Iterator[Map]:
    """The maps of fits of a method in place of a calibrator."""
    if isinstance(calibrator, Chain) and isinstance(calibrator.second_, PriorShift):
        for map_ in replicated_maps(calibrator.first_, method, data, n_replicates, seed):
            first = unfitted(calibrator.first_)
            first.__dict__ |= vars(calibrator.first_) | {"map_": map_}
            yield Chain.from_fitted(first, calibrator.second_, like=calibrator).map_
        return
    start = calibrator.map_ if method.label == method_of_refits(calibrator).label else None
    yield from _refits(method, data, draw_weights(data, n_replicates, seed), seed, start)


def _refits(
    method: Calibrator,
    data: Predictions,
    weights: Iterable[Vector],
    seed: int | None = None,
    start: Map | None = None,
) -> Iterator[Map]:
    """The maps of fits with other weights, which have a sum of 1; with a seed the centers of ridges are drawn too."""
    total = data.total_weight
    profile = Profile.from_predictions(data) if method.fits_on == "profile" else None
    for k, drawn in enumerate(weights):
        sample = replace(data, weights=drawn * total) if profile is None else replace(profile, weights=drawn)
        with nullcontext() if seed is None else drawn_centers(seed, k):
            fitted = fit_without_warnings(method, sample, start, is_compared=False)
        yield fitted.map_
