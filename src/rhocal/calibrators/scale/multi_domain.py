"""Multi-domain temperature scaling: a temperature for each known domain, one predicted from features for unknown ones."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from rhocal.calibrators.cross_validation import CAUTION, GUARD, N_FOLDS, CrossValidation, HeldOut, Rule
from rhocal.calibrators.fitted_values import POSITIVE
from rhocal.calibrators.folds import Fold, Folds
from rhocal.calibrators.map import Map, scale_map
from rhocal.calibrators.options import Fitted, option
from rhocal.calibrators.scale import ridge as ridges
from rhocal.calibrators.scale.features import ORDERED_RANGE, profile_features, raw_features, standardize
from rhocal.calibrators.scale.scale import ScaleCalibrator
from rhocal.calibrators.scale.standardized_features import StandardizedFeatures
from rhocal.calibrators.scale.temperature import TemperatureScaling
from rhocal.errors import InputError
from rhocal.numerics.special import Vector
from rhocal.objectives import Objective, objective

if TYPE_CHECKING:
    from rhocal import optimize
    from rhocal.calibrators.scale.scale_search import ScaleSearch
    from rhocal.numerics.ops import Ops, Parameters, Value
    from rhocal.profile.profile import Profile
    from rhocal.profile.sample_features import SampleFeatures

RIDGES = (np.inf, 300.0, 30.0, 3.0)
"""Pulls of the domains toward the common temperature that cross-validation tries, in samples."""

FEATURES = ("log-norm", "margin", "log-margin")
"""What the temperature of an unknown domain is predicted from."""

PENALTIES = (np.inf, 1.0, 0.1, 0.01)
"""Ridges of that prediction, in units of the features' variance; infinite is the common temperature for all."""

LARGEST_LOG_SCALE = 700.0
"""A predicted scale stays finite and positive."""

MAX_DOMAIN_FOLDS = 10
"""Domains are left out one at a time, or in so many parts if there are more of them."""


@dataclass(eq=False, repr=False)
class MultiDomainTemperatureScaling(ScaleCalibrator):
    """A temperature for each domain of ``groups`` (Yu, Bates, Ma & Jordan 2022).

    A domain's temperature is pulled toward the common one, the more the fewer samples it has; how strongly is chosen by
    cross-validation. For samples of domains that were not in the calibration set, or whose domain is not given, log T is
    predicted from features of the sample by a ridge regression on the samples of the known domains (the original: T, from the
    features of the network's last layer); the penalty is chosen by leaving domains out, and the common temperature is among
    the choices. Fitted without groups it is plain temperature scaling.

    Parameters
    ----------
    objective
        What to minimize; see ``rhocal.objectives``.
    ridge
        Pull toward the common temperature in samples, or ``"cv"``.
    n_folds
        Of the cross-validation.

    Attributes
    ----------
    temperature_
        The common temperature.
    domains_, temperatures_
        The known domains and the temperature of each.
    unit_, weights_, low_, high_, mean_, sd_
        The prediction for other domains: the unit of the features, the bias and the weights of log scale, and how the
        features are standardized.
    ridge_
        The pull used.

    Examples
    --------
    >>> import numpy as np
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> domains = np.where(np.arange(len(labels)) < 2500, "camera A", "camera B")
    >>> calibrator = rhocal.MultiDomainTemperatureScaling().fit(logits, labels, groups=domains)
    >>> calibrator.predict_proba(logits[:2], groups=["camera B", "camera A"]).shape
    (2, 10)
    """

    name = "multi-domain"
    takes_groups = True
    is_portable = False  # the map of a sample depends on its domain, which is not among its logits

    objective: str | Objective = "nll"
    _: KW_ONLY
    ridge: float | Literal["cv"] = option("cv", minimum=0)
    n_folds: int = option(N_FOLDS, minimum=2)

    unit_ = Fitted[float](**POSITIVE)
    temperature_ = Fitted[float](**POSITIVE)
    domains_ = Fitted[NDArray[Any]]("names", shape="domains", allows_empty=True)
    temperatures_ = Fitted[Vector](shape="domains", **POSITIVE, allows_empty=True)
    weights_ = Fitted[Vector](shape=str(1 + len(FEATURES)))
    low_ = Fitted[Vector](shape=str(len(FEATURES)))
    high_ = Fitted[Vector](shape=str(len(FEATURES)))
    mean_ = Fitted[Vector](shape=str(len(FEATURES)))
    sd_ = Fitted[Vector](shape=str(len(FEATURES)), minimum=1e-9)
    ridge_ = Fitted[float](minimum=0, maximum=np.inf)
    constraints = (ORDERED_RANGE,)

    def _fit(self, data: Profile, start: Map | None = None) -> tuple[Map, optimize.Solution]:
        if data.groups is None or not data.spread > 0:
            return self._fit_one_temperature(data)
        target = objective(self.objective)
        options = ridges.RidgeOptions(self.ridge, GUARD, CAUTION, self.n_folds)
        features = StandardizedFeatures.from_profile(data, lambda unit: profile_features(data, unit, FEATURES))
        search = features.search
        assert search is not None
        domains = np.unique(data.groups[data.weights > 0])
        codes = _codes(data.groups, domains)
        domain_scales = DomainScales(codes, len(domains), features.unit)
        what = "multi-domain temperature scaling"
        x, ridge, solution = ridges.fit_scale_map(search, domain_scales, target, RIDGES, options, what)
        scales = ridges.bounded_scale(x[0] + x[1:], features.unit)[0]
        prepared = search.prepared(target)
        weights = predict_log_scale(search, prepared, codes, np.log(scales), features.values, float(x[0]))
        map_ = self._new_map(
            **features.fitted,
            temperature=float(np.exp(-x[0])),
            domains=domains,
            temperatures=1 / scales,
            weights=weights,
            ridge=ridge,
        )
        return map_, solution

    def _fit_one_temperature(self, profile: Profile) -> tuple[Map, optimize.Solution]:
        """Plain temperature scaling."""
        plain = TemperatureScaling(self.objective).fit_profile(profile)
        n = len(FEATURES)
        domains = np.zeros(0, np.int64) if profile.groups is None else np.unique(profile.groups)
        map_ = self._new_map(
            unit=1.0,
            low=np.zeros(n),
            high=np.zeros(n),
            mean=np.zeros(n),
            sd=np.ones(n),
            temperature=plain.temperature_,
            domains=domains,
            temperatures=np.full(len(domains), plain.temperature_),
            weights=np.r_[-np.log(plain.temperature_), np.zeros(n)],
            ridge=np.inf,
        )
        return map_, plain.solution_

    def _map(self, *, ridge: float, **numbers: Any) -> Map:
        return scale_map(scale, **numbers)


def scale(ops: Ops, parameters: Parameters, sample: SampleFeatures) -> Value:
    """1/T of every sample's domain, or the scale predicted from its features where the domain is unknown."""
    weights = parameters["weights"]
    predicted = 1.0 / parameters["temperature"]
    if weights[1:].any():
        features = standardize(ops, raw_features(ops, sample, parameters["unit"], FEATURES), parameters)
        log_scale = ops.clip(weights[0] + ops.sum(features * weights[1:]), -LARGEST_LOG_SCALE, LARGEST_LOG_SCALE)
        predicted = ops.exp(log_scale)
    if sample.groups is None:
        return predicted
    codes = _codes(sample.groups, parameters["domains"])[:, None]
    own = 1 / np.append(parameters["temperatures"], parameters["temperature"])[codes]
    return ops.where(codes >= 0, own, predicted)


class DomainScales:
    """log σ = x₀ + x_g, g the domain of the sample; the ridge pulls the x_g to 0."""

    def __init__(self, codes: NDArray[np.intp], n_domains: int, unit: float) -> None:
        self.codes, self.n_domains, self.unit = codes, n_domains, unit
        self.known = codes >= 0

    def start(self, log_scale: float) -> Vector:
        """Temperature scaling."""
        return np.r_[log_scale, np.zeros(self.n_domains)]

    def scales(self, x: Vector) -> tuple[Vector, ridges.Vjp]:
        """Every sample's scale, and the way back to the parameters."""
        scale, slope = ridges.bounded_scale(x[0] + np.where(self.known, x[1:][self.codes], 0.0), self.unit)

        def vjp(outer: Vector) -> Vector:
            to_log = slope * outer
            return np.r_[to_log.sum(), np.bincount(self.codes[self.known], to_log[self.known], self.n_domains)]

        return scale, vjp


def _codes(groups: NDArray[Any], domains: NDArray[Any]) -> NDArray[np.intp]:
    """The number of each sample's domain; −1 where it is not among them."""
    if not len(domains):
        return np.full(len(groups), -1, np.intp)
    if (groups.dtype.kind == "U") != (domains.dtype.kind == "U"):  # 1 and "1" are one name
        names = domains.astype(str)
        order = np.argsort(names)
        codes = _codes(groups.astype(str), names[order])
        if len(codes) and (codes < 0).all():
            raise InputError(f"groups are of dtype {groups.dtype}, but those of the fit were of dtype {domains.dtype}")
        return np.where(codes < 0, -1, order[codes])
    at = np.minimum(np.searchsorted(domains, groups), len(domains) - 1)
    return np.where(domains[at] == groups, at, -1)


def predict_log_scale(
    search: ScaleSearch, target: Objective, codes: NDArray[np.intp], log_scales: Vector, features: Vector, common: float
) -> Vector:
    """Bias and weights of a ridge regression of the domains' log scale on the features of their samples.

    The penalty is the one with the lowest objective on domains left out of the regression; (common, 0, …) where that is
    the common temperature, or where there are too few domains to tell.
    """
    n_domains, weights = len(log_scales), search.profile.weights
    nothing = np.r_[common, np.zeros(features.shape[1])]
    if n_domains < 3:
        return nothing
    design = np.column_stack([np.ones(len(features)), features])
    y = np.where(codes >= 0, log_scales[codes], 0.0)

    def regression(w: Vector, penalty: float) -> Vector:
        if penalty == np.inf:
            return nothing
        ridge = np.diag(np.r_[0.0, np.full(features.shape[1], penalty * w.sum())])
        return np.linalg.solve(design.T @ (w[:, None] * design) + ridge, design.T @ (w * y))

    rows = np.flatnonzero(codes >= 0)
    folds = Folds.from_codes(codes[rows] % min(n_domains, MAX_DOMAIN_FOLDS), weights, rows)

    def fit(penalty: float, fold: Fold, _: Vector | None) -> Vector:
        return regression(weights - fold.held_out_weights, penalty)

    def score(_: float, x: Vector, fold: Fold) -> HeldOut:
        return HeldOut(search.weighted(fold.held_out_weights / fold.share).evaluate(target, np.exp(design @ x))[0])

    choice = CrossValidation(folds, fit, score).choose(PENALTIES, Rule(), "penalty")
    return regression(weights, choice.candidate)
