"""The table of methods. A new one is a file here and a line below; CLI, laws, docs and report read the table."""

from __future__ import annotations

import dataclasses
import difflib
from typing import Any

from rhocal.calibrators.base import Calibrator, ScaleCalibrator
from rhocal.calibrators.binary.bbq import BayesianBinning
from rhocal.calibrators.binary.beta import BetaCalibration
from rhocal.calibrators.binary.histogram_binning import HistogramBinning
from rhocal.calibrators.binary.isotonic import IsotonicRegression
from rhocal.calibrators.binary.platt import PlattScaling
from rhocal.calibrators.binary.spline import SplineCalibration
from rhocal.calibrators.binary.venn_abers import VennAbers
from rhocal.calibrators.compose.auto import AutoCalibrator
from rhocal.calibrators.compose.chain import Chain
from rhocal.calibrators.compose.ensemble import Average, CrossFitted
from rhocal.calibrators.linear.matrix import MatrixScaling
from rhocal.calibrators.linear.structured import StructuredScaling
from rhocal.calibrators.linear.vector import VectorScaling
from rhocal.calibrators.order.ets import EnsembleTemperatureScaling
from rhocal.calibrators.order.iop import IntraOrderPreserving
from rhocal.calibrators.order.polynomial import PolynomialScaling
from rhocal.calibrators.scale.bounds import confidence_bounds
from rhocal.calibrators.scale.field import FieldScaling
from rhocal.calibrators.scale.identity import Identity
from rhocal.calibrators.scale.multi_domain import MultiDomainTemperatureScaling
from rhocal.calibrators.scale.pts import ParameterisedTemperatureScaling
from rhocal.calibrators.scale.rho_norm import RhoNormScaling
from rhocal.calibrators.scale.temperature import TemperatureScaling
from rhocal.errors import InputError


@dataclasses.dataclass(frozen=True)
class Method:
    """A line of the table: a family with preset options."""

    family: type[Calibrator]
    summary: str
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


CALIBRATORS: dict[str, Method] = {
    "identity": Method(Identity, "No calibration"),
    "temperature": Method(TemperatureScaling, "One temperature for all samples"),
    "temperature-avuc": Method(
        TemperatureScaling, "One temperature, NLL + accuracy versus uncertainty", {"objective": "nll + avuc"}
    ),
    "rho-norm": Method(RhoNormScaling, "A temperature that grows with the norm of the logits"),
    "rho-norm-paper": Method(RhoNormScaling, "The same exactly as the paper fits it", RhoNormScaling.PAPER),
    "field": Method(FieldScaling, "A scale from the norm of the logits and the margin of the top class"),
    "smart": Method(
        FieldScaling,
        "A scale from the margin alone, soft-binned ECE",
        {"features": ("margin", "log-margin"), "objective": "sb-ece"},
    ),
    "pts": Method(ParameterisedTemperatureScaling, "A scale from a small network that reads the largest logits"),
    "ets": Method(EnsembleTemperatureScaling, "A mixture of temperature scaling, the network itself and no knowledge"),
    "iop": Method(IntraOrderPreserving, "One increasing function for all logits"),
    "polynomial": Method(PolynomialScaling, "An increasing polynomial from scores to probabilities"),
    "multi-domain": Method(MultiDomainTemperatureScaling, "A temperature for each known domain (groups)"),
    "auto": Method(AutoCalibrator, "The best of several methods by cross-validation"),
    "vector": Method(VectorScaling, "A scale and a bias for each class"),
    "matrix": Method(MatrixScaling, "A full matrix and biases, regularised off the diagonal (ODIR)"),
    "dirichlet": Method(MatrixScaling, "The same on log-probabilities", {"inputs": "log-probs"}),
    "svs": Method(
        StructuredScaling, "Structured vector scaling: its ridge needs no tuning", {"ridge_off_diagonal": None}
    ),
    "sms": Method(StructuredScaling, "Structured matrix scaling: its ridge needs no tuning"),
    "svs:field": Method(Chain, "svs, then field on its out-of-fold outputs", {"first": "svs", "second": "field"}),
    "sms:field": Method(Chain, "sms, then field on its out-of-fold outputs", {"first": "sms", "second": "field"}),
    "cross-fitted": Method(CrossFitted, "Mean of sms fitted on all folds but one", {"calibrator": "sms"}),
    "average": Method(Average, "Mean of the probabilities of field and svs", {"calibrators": ("field", "svs")}),
    "platt": Method(PlattScaling, "A logistic function of the log-odds of each class"),
    "beta": Method(BetaCalibration, "Two slopes and a bias for the log-odds of each class"),
    "isotonic": Method(IsotonicRegression, "The best non-decreasing map of each class's probability"),
    "centered-isotonic": Method(
        IsotonicRegression, "The same with one knot in the middle of each step", {"centered": True}
    ),
    "histogram-binning": Method(HistogramBinning, "The accuracy of each bin of confidence"),
    "bbq": Method(BayesianBinning, "Equal-mass binnings of each class, averaged by their likelihood"),
    "spline": Method(SplineCalibration, "The slope of a spline through the cumulative accuracy"),
    "venn-abers": Method(VennAbers, "Two isotonic regressions of each class, and the interval between them"),
}


def calibrator(name: str, **options: Any) -> Calibrator:
    """A calibrator by its name in the table, with options of its family; ``first:second`` is a chain of two.

    >>> calibrator("temperature", objective="brier")
    TemperatureScaling(objective='brier')
    >>> calibrator("vector:temperature", first__ridge=2.0)
    Chain(first=VectorScaling(ridge=2.0), second='temperature')
    """
    method = _method(name)
    of_stages = {option: value for option, value in options.items() if "__" in option}
    own = {option: value for option, value in options.items() if "__" not in option}
    try:
        return method.family(**{**method.options, **own}).set_params(**of_stages)
    except TypeError:
        known = method.family(**method.options).get_params()
        unknown = [option for option in options if option not in known]
        if not unknown:
            raise
        raise InputError(f"{name} has no option {unknown[0]!r}; it has {', '.join(known) or 'none'}") from None


def _method(name: str) -> Method:
    """A line of the table, or the chain that ``first:second`` spells."""
    if name in CALIBRATORS:
        return CALIBRATORS[name]
    first, colon, second = name.rpartition(":")
    if colon:
        for stage in (first, second):
            _method(stage)  # an unknown stage is an error now, not in the fit
        return Method(Chain, f"{first}, then {second}", {"first": first, "second": second})
    close = difflib.get_close_matches(name, CALIBRATORS, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise InputError(
        f"there is no method {name!r}{hint} There are {', '.join(CALIBRATORS)}, and first:second chains two"
    )


__all__ = [
    "CALIBRATORS",
    "AutoCalibrator",
    "Average",
    "BayesianBinning",
    "BetaCalibration",
    "Calibrator",
    "Chain",
    "CrossFitted",
    "EnsembleTemperatureScaling",
    "FieldScaling",
    "HistogramBinning",
    "Identity",
    "IntraOrderPreserving",
    "IsotonicRegression",
    "MatrixScaling",
    "Method",
    "MultiDomainTemperatureScaling",
    "ParameterisedTemperatureScaling",
    "PlattScaling",
    "PolynomialScaling",
    "RhoNormScaling",
    "ScaleCalibrator",
    "SplineCalibration",
    "StructuredScaling",
    "TemperatureScaling",
    "VectorScaling",
    "VennAbers",
    "calibrator",
    "confidence_bounds",
]
