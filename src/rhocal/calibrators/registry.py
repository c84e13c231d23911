"""The registry of methods: one line per method, which names its class as text. The class is imported when it is used.

A new method is a file in this package and a line below. ``rhocal.__all__``, the command line, the laws among the tests and the
index of the documentation follow.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rhocal.errors import InputError

if TYPE_CHECKING:
    from rhocal.calibrators.base import Calibrator

PACKAGES = ("scale", "linear", "binary", "order", "compose", "cascade")
"""Where the paths below begin; any other path is that of a module outside ``rhocal.calibrators``."""


@dataclass(frozen=True)
class Method:
    """A line of the registry: a family with preset options."""

    name: str
    path: str
    """Module and class, as ``module:Class``."""
    summary: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def module(self) -> str:
        """The full name of the module."""
        module = self.path.partition(":")[0]
        return f"{__package__}.{module}" if module.partition(".")[0] in PACKAGES else module

    @property
    def class_name(self) -> str:
        """The name of the class in its module."""
        return self.path.partition(":")[2]

    @property
    def family(self) -> type[Calibrator]:
        """The class, imported now."""
        family: type[Calibrator] = getattr(import_module(self.module), self.class_name)
        return family


PAPER: dict[str, Any] = {
    "rho": "grid",
    "objective": "sce",
    "alpha": 1.0,
    "kl": "kl(direction=to-base, reduction=mean)",
    "kappa": 1e-4,
    "batch_size": 128,
    "center": False,
    "solver": "sgd",
    "selection": "ece",
    "n_bins": 10,
    "random_state": 0,
}
"""The preset of the paper: Algorithm 1 with SCE + KL, α = 1, ρ by ECE on the calibration set. What the paper leaves
open (start, length and schedule of the descent, form of KL) is ours: ``reproduction/pages/open_choices.md``."""

MARGIN = {"features": ("margin", "log-margin"), "objective": "sb-ece"}

METHODS = (
    Method("identity", "scale.identity:Identity", "No calibration"),
    Method("temperature", "scale.temperature:TemperatureScaling", "One temperature for all samples"),
    Method(
        "temperature-avuc",
        "scale.temperature:TemperatureScaling",
        "One temperature, NLL + accuracy versus uncertainty",
        {"objective": "nll + avuc"},
    ),
    Method("rho-norm", "scale.rho_norm:RhoNormScaling", "A temperature that grows with the norm of the logits"),
    Method(
        "rho-norm-paper",
        "scale.rho_norm:RhoNormScaling",
        "The same with the objective and the algorithm of the paper",
        PAPER,
    ),
    Method("field", "scale.field:FieldScaling", "A scale from the norm of the logits and the margin of the top class"),
    Method("smart", "scale.field:FieldScaling", "A scale from the margin alone, soft-binned ECE", MARGIN),
    Method(
        "pts",
        "scale.pts:ParameterizedTemperatureScaling",
        "A scale from a small network that reads the largest logits",
    ),
    Method(
        "ets",
        "order.ets:EnsembleTemperatureScaling",
        "A mixture of temperature scaling, the network itself and no knowledge",
    ),
    Method("iop", "order.iop:IntraOrderPreserving", "One increasing function for all logits"),
    Method("polynomial", "order.polynomial:PolynomialScaling", "An increasing polynomial from scores to probabilities"),
    Method(
        "multi-domain",
        "scale.multi_domain:MultiDomainTemperatureScaling",
        "A temperature for each known domain (groups)",
    ),
    Method("auto", "compose.auto:AutoCalibrator", "The best of several methods by cross-validation"),
    Method("vector", "linear.vector:VectorScaling", "A scale and a bias for each class"),
    Method("matrix", "linear.matrix:MatrixScaling", "A full matrix and biases, regularized off the diagonal (ODIR)"),
    Method("dirichlet", "linear.matrix:MatrixScaling", "The same on log-probabilities", {"inputs": "log-probs"}),
    Method(
        "svs",
        "linear.structured:StructuredScaling",
        "Structured vector scaling: its ridge needs no tuning",
        {"ridge_off_diagonal": None},
    ),
    Method("sms", "linear.structured:StructuredScaling", "Structured matrix scaling: its ridge needs no tuning"),
    Method(
        "svs:field",
        "compose.chain:Chain",
        "svs, then field on its out-of-fold outputs",
        {"first": "svs", "second": "field"},
    ),
    Method(
        "sms:field",
        "compose.chain:Chain",
        "sms, then field on its out-of-fold outputs",
        {"first": "sms", "second": "field"},
    ),
    Method(
        "cross-fitted",
        "compose.ensemble:CrossFitted",
        "Mean of sms fitted on all folds but one",
        {"calibrator": "sms"},
    ),
    Method(
        "average",
        "compose.ensemble:Average",
        "Mean of the probabilities of field and svs",
        {"calibrators": ("field", "svs")},
    ),
    Method("cascade", "cascade.cascade:Cascade", "Shared stages for all classes, cross-fitted steps for single ones"),
    Method("cascade-order", "cascade.kept:KeptCascade", "The cascade, the order of the classes kept"),
    Method("cascade-top", "cascade.kept:KeptCascade", "The cascade, the predicted class kept", {"keeps": "top"}),
    Method("cascade-scale", "cascade.kept:KeptCascade", "A scale for each sample from the cascade", {"keeps": "scale"}),
    Method("platt", "binary.platt:PlattScaling", "A logistic function of the log-odds of each class"),
    Method("beta", "binary.beta:BetaCalibration", "Two slopes and a bias for the log-odds of each class"),
    Method("quadratic", "binary.quadratic:QuadraticCalibration", "A parabola in the log-odds of each class"),
    Method("isotonic", "binary.isotonic:IsotonicRegression", "The best non-decreasing map of each class's probability"),
    Method(
        "centered-isotonic",
        "binary.isotonic:IsotonicRegression",
        "The same with one knot in the middle of each step",
        {"centered": True},
    ),
    Method("histogram-binning", "binary.histogram_binning:HistogramBinning", "The accuracy of each bin of confidence"),
    Method("bbq", "binary.bbq:BayesianBinning", "Equal-mass binnings of each class, averaged by their likelihood"),
    Method("spline", "binary.spline:SplineCalibration", "The slope of a spline through the cumulative accuracy"),
    Method(
        "venn-abers",
        "binary.venn_abers:VennAbers",
        "Two isotonic regressions of each class, and the interval between them",
    ),
)

DEFAULT_METHOD = "auto"
"""What is fitted where no method is named: on tables, language models and image networks it is near the best of each."""

DEFAULT_PROFILE_METHOD = "field"
"""The same for a profile, which has no logits."""

PRIOR_SHIFT = Method("prior-shift", "linear.prior_shift:PriorShift", "Another mix of the classes, set by rhocal.adapt")
"""A stage that no fit makes, but that artifacts may hold."""

CALIBRATORS: dict[str, Method] = {method.name: method for method in METHODS}


def calibrator(name: str, **options: Any) -> Calibrator:
    """A calibrator by the name of its method, with options of its family; ``first:second`` is a chain of two.

    >>> calibrator("temperature", objective="brier")
    TemperatureScaling(objective='brier')
    >>> calibrator("vector:temperature", first__ridge=2.0)
    Chain(first=VectorScaling(ridge=2.0), second='temperature')
    """
    method = find_method(name)
    stage_options = {option: value for option, value in options.items() if "__" in option}
    own_options = {option: value for option, value in options.items() if "__" not in option}
    try:
        return method.family(**{**method.options, **own_options}).set_params(**stage_options)
    except TypeError:
        known = method.family(**method.options).get_params()
        unknown = [option for option in options if option not in known]
        if not unknown:
            raise
        raise InputError(f"{name} has no option {unknown[0]!r}; it has {', '.join(known) or 'none'}") from None


def method_name(calibrator: Calibrator) -> str:
    """The method of a calibrator: of those with its family and with presets that are its options, the one with most presets.

    >>> method_name(calibrator("svs", ridge_diagonal=2.0)), method_name(calibrator("sms"))
    ('svs', 'sms')
    """
    family, options = type(calibrator), calibrator.get_params(deep=False)
    fitting = [
        method
        for method in CALIBRATORS.values()
        if (method.module, method.class_name) == (family.__module__, family.__name__)
        and all(_plain(options[name]) == _plain(value) for name, value in method.options.items())
    ]
    return max(fitting, key=lambda method: len(method.options)).name if fitting else calibrator.name


def _plain(value: Any) -> Any:
    """An option as it is written: objectives as text, tuples as lists, as artifacts hold them."""
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else str(value)


KNOWN_AS = {
    "sigmoid": "platt", "logistic": "platt", "platt-scaling": "platt", "ts": "temperature", "temp": "temperature",
    "temperature-scaling": "temperature", "vs": "vector", "vector-scaling": "vector", "ms": "matrix",
    "matrix-scaling": "matrix", "histogram": "histogram-binning", "hist": "histogram-binning", "hb": "histogram-binning",
    "binning": "histogram-binning", "iso": "isotonic", "ir": "isotonic", "cir": "centered-isotonic", "dir": "dirichlet",
    "odir": "dirichlet", "splines": "spline", "va": "venn-abers", "ivap": "venn-abers", "none": "identity",
    "uncalibrated": "identity",
}  # fmt: skip
"""Names by which other libraries and papers call methods, for hints; the first is scikit-learn's."""


def find_method(name: str) -> Method:
    """The line of a method, or the chain that ``first:second`` stands for."""
    if not isinstance(name, str):
        raise InputError(f"a method is given by its name; got {name!r}")
    if name in CALIBRATORS:
        return CALIBRATORS[name]
    first, colon, second = name.rpartition(":")
    if colon:
        for stage in (first, second):
            find_method(stage)  # an unknown stage is an error now, not in the fit
        return Method(name, "compose.chain:Chain", f"{first}, then {second}", {"first": first, "second": second})
    close = [KNOWN_AS[name.lower()]] if name.lower() in KNOWN_AS else difflib.get_close_matches(name, CALIBRATORS, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    raise InputError(
        f"there is no method {name!r}{hint} There are {', '.join(CALIBRATORS)}, and first:second chains two"
    )
