"""Automatic choice: cross-validate several methods by a proper score, keep the best, fit it on all data."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Literal

from rhocal.calibrators.base import Calibrator
from rhocal.calibrators.cascade.cascade import Cascade, FreeCascade, fit_held_out
from rhocal.calibrators.cascade.fitting import in_data_order
from rhocal.calibrators.cascade.kept import KeptCascade
from rhocal.calibrators.compose.chain import Chain
from rhocal.calibrators.compose.exchangeability import look_exchangeable
from rhocal.calibrators.compose.position import PositionOffsets, held_out_shifted, shifted_predictions
from rhocal.calibrators.compose.race import KnownOutputs, Race
from rhocal.calibrators.cross_validation import N_FOLDS
from rhocal.calibrators.estimator import unfitted
from rhocal.calibrators.guard import TEMPERATURE
from rhocal.calibrators.linear.linear import MAX_SEARCHED_CLASSES
from rhocal.calibrators.linear.matrix import MatrixScaling
from rhocal.calibrators.options import Fitted, option
from rhocal.calibrators.scale.scale_search import is_errorless
from rhocal.calibrators.solutions import MIN_SAMPLES_PER_CLASS
from rhocal.calibrators.validated_fit import fit_validated
from rhocal.errors import FewSamplesWarning, InputError, SuspiciousInputWarning, warn
from rhocal.optimize import Solution
from rhocal.profile.profile import Profile

if TYPE_CHECKING:
    from rhocal.calibrators.map import Map
    from rhocal.data.predictions import Predictions

BINARY = (
    "svs", "temperature", "field", "quadratic", "beta", "centered-isotonic", "venn-abers", "svs:field", "cascade",
)  # fmt: skip
"""What is tried with two classes, the simple ones first. ``svs`` has one number more than temperature scaling, a bias, which
most binary problems need, and shrinks it by evidence, so that it is nearly as safe."""

MULTICLASS = ("temperature", "rho-norm", "field", "ets", "svs", "beta", "sms", "svs:field", "sms:field", "cascade")
"""What is tried with more classes."""

EXCHANGEABLE = ("temperature", "rho-norm", "field", "ets", "polynomial", "iop", "cascade")
"""What is tried where classes are options without a meaning of their own: no map of a single class."""


MIN_FIT_SAMPLES = 50
"""Samples below which even one parameter is mostly noise."""

NO_ERRORS = (
    "no calibration sample is wrong, or none by more than a near tie: the more confident of two methods looks better"
)


OF_CLASSES = "it has maps of single classes"
"""Why a method is not tried on columns that are exchangeable."""

KEPT = "cascade-top"
"""What is tried as well where the decision must not change."""


@dataclass(eq=False, repr=False)
class AutoCalibrator(Calibrator):
    """The method that cross-validation finds best.

    The criterion is held-out NLL plus Brier score, each relative to that of the first method: ``svs`` with two classes, else
    temperature scaling. Methods whose NLL may be more than 0.6 % above the first are left out (with one standard error of the
    paired difference); the cascade, unless its NLL or Brier score is above. The cascade, or with more classes what its fit
    uses in its place, is chosen if it is within one standard error of the lowest, or if it is calibrated and the lowest gains
    less than 1 % of its NLL; else the simplest, the first in the list, of those within one standard error. The winner is
    fitted on all samples. The cascade is fitted once and brings its own held-out outputs; methods that fall behind the best are
    dropped after each fold, so that only close ones are fitted on all of them. Of a chain the second stage is cross-validated
    on the held-out outputs of the first, which took part itself.
    It keeps the decision if the method chosen does; ``keep_decision=True`` leaves the others out, and adds ``cascade-top``.

    Parameters
    ----------
    methods
        Names of methods, or chains of them, the simplest first. The default depends on the problem: ``BINARY`` with two
        classes, ``MULTICLASS`` with more, ``EXCHANGEABLE`` where that is stated: then those with maps of classes are left out.
    n_folds
        Of the cross-validation.
    exchangeable
        Whether columns are options without a meaning of their own, as in multiple choice: no map of a single class is tried.
        None: found by a test (``exchangeability.py``), from 1,000 samples on and with 3 to 10 columns.
    keep_decision
        Try only methods that never change the predicted class.
    time_budget
        Seconds after which no further fit of the cross-validation is begun: the methods are then compared on the folds that
        all of them have been through. The fit of the winner on all samples comes on top.
    debias
        ``"position"``, for options: where a test shows that a model prefers options by their position, each position gets an
        offset, if that lowers the NLL on held-out samples. The first row of ``solution_.trials`` has the evidence.

    Attributes
    ----------
    chosen_
        The fitted calibrator. ``solution_.trials`` has the figures of every method, and why one was left out.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits(name="table")
    >>> calibrator = rhocal.AutoCalibrator(["temperature", "svs", "beta"]).fit(logits, labels)
    >>> calibrator.chosen_
    BetaCalibration()
    """

    name = "auto"

    methods: Sequence[str] | None = None
    _: KW_ONLY
    n_folds: int = option(N_FOLDS, minimum=2)
    exchangeable: bool | None = None
    keep_decision: bool = False
    time_budget: float = option(60.0, above=0)
    debias: Literal["position"] | None = None

    chosen_ = Fitted[Calibrator]("calibrator")

    def _fit(self, data: Predictions, start: Map | None = None) -> tuple[Map, Solution]:
        if data.total_weight < MIN_FIT_SAMPLES:
            warn(
                f"auto is fitted on {data.total_weight:,.6g} samples; below {MIN_FIT_SAMPLES} even a single temperature is "
                "mostly noise. Use more samples",
                FewSamplesWarning,
            )
        deadline = time.monotonic() + self.time_budget
        without_error = is_errorless(Profile.from_predictions(data))
        exchangeable = bool(self.exchangeable) if without_error else self._are_exchangeable(data)
        if self.debias is not None and not exchangeable:
            raise InputError("debias='position' is for options without a meaning of their own; state exchangeable=True")
        if self.debias is not None and self.keep_decision:
            raise InputError("debias='position' may change the predicted option; leave keep_decision out")
        if self.debias is not None and not without_error:
            return self._debiased(data, deadline)
        map_, solution, _ = self._choose(data, deadline, exchangeable=exchangeable, without_error=without_error)
        return map_, solution

    def _debiased(self, data: Predictions, deadline: float) -> tuple[Map, Solution]:
        """The choice with an offset of each position, where a test shows a bias and held-out samples that offsets help."""
        position = PositionOffsets.from_predictions(data)
        map_, solution, race = self._choose(data, deadline, exchangeable=True)
        outputs = None if position.offsets is None else held_out_shifted(data)
        if outputs is None:
            return map_, replace(solution, trials=({**position.row, "used": False}, *solution.trials))
        between = shifted_predictions(data, outputs)
        with_offsets, inner, other = self._choose(between, deadline, exchangeable=True)
        above, error = race.compare(other)
        row = {**position.row, "nll_above": above, "nll_error": error, "used": above < -error}
        if not row["used"]:
            return map_, replace(solution, trials=(row, *solution.trials))
        second = with_offsets.fitted["chosen"]
        held_out = other.held_out_scores(self.name, other.best, data)
        chain = Chain.from_fitted(position.shift(data), second, second)
        return self._new_map(chosen=chain), replace(inner, trials=(row, *inner.trials), held_out=held_out)

    def _choose(
        self, data: Predictions, deadline: float, *, exchangeable: bool, without_error: bool = False
    ) -> tuple[Map, Solution, Race]:
        """The map of the method that is best, the evidence, and the comparison."""
        methods, skipped = self._methods(data, exchangeable=exchangeable)
        tried = {name: cal for name, cal in methods.items() if not skipped[name]}
        if exchangeable and all(skipped[name] == OF_CLASSES for name in methods):
            raise InputError(
                f"exchangeable: each of the methods {', '.join(methods)} has maps of single classes; leave exchangeable out, "
                "or add one that treats all columns alike, such as temperature, field or cascade"
            )
        if self.keep_decision and not tried:
            raise InputError(
                f"none of the methods {', '.join(methods)} keeps the decision; leave keep_decision out, or add one that does, "
                "such as temperature, field or cascade-top"
            )
        tried = tried or {name: cal for name, cal in methods.items() if skipped[name] != OF_CLASSES}
        if without_error:
            first = TEMPERATURE if TEMPERATURE in tried else next(iter(tried))
            skipped |= dict.fromkeys((name for name in tried if name != first), NO_ERRORS)
            tried = {first: tried[first]}
        known, preferred = ({}, None) if len(tried) == 1 else self._fit_cascades(tried, data, skipped)
        tried = {name: cal for name, cal in tried.items() if not skipped[name]} or tried
        race = Race(data, tried, self.n_folds, deadline - time.monotonic(), known, preferred)
        best, trials = race.run()
        chosen = tried[best] if best in known else fit_validated(tried[best], data, kind="logits")
        inner = chosen.solution_
        reasons = tuple({"method": name, "skipped": why} for name, why in skipped.items() if why and name not in tried)
        solution = Solution(
            f"held-out nll ({best}: {inner.objective})",
            inner.value,
            inner.converged,
            inner.n_evaluations,
            inner.at_bound,
            (*trials, *reasons),
            race.held_out_scores(self.name, best),
        )
        return self._new_map(chosen=chosen), solution, race

    def _methods(self, data: Predictions, *, exchangeable: bool) -> tuple[dict[str, Calibrator], dict[str, str]]:
        """The methods, the simplest first, and why each is not tried; empty if it is."""
        names = self.methods or self._candidates(data.n_classes, exchangeable=exchangeable)
        methods = {name: self._candidate(name, exchangeable=exchangeable) for name in names}
        skipped = {
            name: OF_CLASSES if exchangeable and cal.has_class_maps else self._unfit(cal, data)
            for name, cal in methods.items()
        }
        return methods, skipped

    def _choice_candidates(self, data: Predictions) -> list[Calibrator]:
        """What a fit chooses among, the simplest first; none where no sample is wrong, and with offsets of positions."""
        if self.debias is not None or is_errorless(Profile.from_predictions(data)):
            return []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SuspiciousInputWarning)
            methods, skipped = self._methods(data, exchangeable=self._are_exchangeable(data))
        return [
            FreeCascade.from_options(cal) if isinstance(cal, Cascade) else cal
            for name, cal in methods.items()
            if not skipped[name]
        ]

    def _fit_cascades(
        self, tried: Mapping[str, Calibrator], data: Predictions, skipped: dict[str, str]
    ) -> tuple[dict[str, KnownOutputs], str | None]:
        """Fit the cascades among the methods: what they give for samples held out, and the method that is preferred.

        Cascades that are not compared, and what they replace, are added to ``skipped``. What a fit uses in place of a cascade
        is preferred with more than two classes; with two it is a matter of a bias, which the first method has.
        """
        known, preferred = {}, None
        for name, cal in tried.items():
            if isinstance(cal, Cascade):
                fit = fit_held_out(cal, data)
                if fit is None:
                    skipped[name] = f"{cal.fallback_[0].label} is used instead: a cascade gains too little"
                    preferred = preferred or (cal.fallback_[0].label if data.n_classes > 2 else None)
                else:
                    known[name] = KnownOutputs(in_data_order(fit, data).astype(data.logits.dtype), fit.optimism)
        if known and self.methods is None:
            chains = (name for name, cal in tried.items() if isinstance(cal, Chain))
            skipped |= dict.fromkeys(chains, "the cascade takes its place")
        return known, next(iter(known), preferred)

    @property
    def keeps_decision(self) -> bool:  # type: ignore[override]
        """Whether the predicted class can never change: asked for, or so with the method that was chosen."""
        return self.keep_decision or ("map_" in vars(self) and self.map_.keeps_decision)

    def _are_exchangeable(self, data: Predictions) -> bool:
        """Whether columns are options, as stated or by the test; what the test found is a warning."""
        if self.exchangeable is not None or self.methods is not None:
            return bool(self.exchangeable)
        are_exchangeable = look_exchangeable(data)
        if are_exchangeable:
            warn(
                f"the {data.n_classes} columns look like options without a meaning of their own: no difference between them is "
                f"detected in {data.total_weight:,.0f} samples. No map of a single column is tried (exchangeable)",
                SuspiciousInputWarning,
                argument="exchangeable=False",
                remedy="try them",
            )
        return are_exchangeable

    def _candidates(self, n_classes: int, *, exchangeable: bool = False) -> Sequence[str]:
        methods = EXCHANGEABLE if exchangeable else BINARY if n_classes == 2 else MULTICLASS
        return (*methods, KEPT) if self.keep_decision else methods

    def _candidate(self, name: str, *, exchangeable: bool) -> Calibrator:
        cal = unfitted(name)
        return cal.set_params(exchangeable=True) if exchangeable and isinstance(cal, Cascade | KeptCascade) else cal

    def _unfit(self, cal: Calibrator, data: Predictions) -> str:
        """Why a method is not tried; empty if it is."""
        if cal.keeps_decision:
            is_field = isinstance(cal, KeptCascade) and data.total_weight < cal.min_samples
            return "with so few samples it is field" if is_field else ""
        if self.keep_decision:
            return "it may change the decision"
        if isinstance(cal, Cascade):
            return "" if data.total_weight >= cal.min_samples else f"fewer than {cal.min_samples:,.0f} samples"
        if isinstance(cal, MatrixScaling) and data.total_weight < data.n_classes**2:
            return "fewer samples than entries of its matrix"
        if cal.label.partition(":")[0] in {"sms", "structured"} and data.n_classes > MAX_SEARCHED_CLASSES:
            return f"a matrix for more than {MAX_SEARCHED_CLASSES} classes takes minutes; fit it by name"
        return "" if data.total_weight >= MIN_SAMPLES_PER_CLASS * data.n_classes else "too few samples a class"

    def with_choices(self) -> Calibrator:
        return self.chosen_.with_choices()

    @property
    def has_class_maps(self) -> bool:
        return self.chosen_.has_class_maps if "map_" in vars(self) else True

    @property
    def is_guarded(self) -> bool:
        return True

    @property
    def errors_before_fallback(self) -> float:
        return 2.0  # the method was compared once already: at one error each, chance would decide too often

    def _fallback_map(self, reference: Calibrator, data: Predictions | Profile) -> Map:
        return self._new_map(chosen=reference)

    def _map(self, *, chosen: Calibrator) -> Map:
        return chosen.map_
