"""What ``decide`` answers: a policy with its certificate, or why there is none."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from rhocal.data.arguments import show_level
from rhocal.metrics.inference.risk_control import AT_LEAST

if TYPE_CHECKING:
    from rhocal.calibrators.policies.policy import Policy
    from rhocal.numerics.special import Vector

TITLES = {
    "error": "errors",
    "fpr": "false-positive rate",
    "fnr": "false-negative rate",
    "precision": "precision",
    "recall": "recall",
    "cost": "mean cost",
}
MAX_NAMED = 5
"""Segments that a sentence names."""

MAX_SHARE_FEW = 0.02
"""More labels than this share of the samples are counted in a sentence; the estimate of fewer is no better than that."""


@dataclass(frozen=True, eq=False)
class RiskCurve:
    """Coverage and risk at every tested threshold, highest threshold first."""

    threshold: Vector
    coverage: Vector
    """Share of samples with scores of at least the threshold."""
    risk: Vector
    bound: Vector
    """Upper bound of the risk at this threshold alone (of precision and recall, a lower bound); NaN where costs decide."""


@dataclass(frozen=True)
class ClassThreshold:
    """The threshold of samples that are predicted as one class."""

    name: Any
    n_samples: int
    threshold: float
    """Above 1: samples of this prediction are never automated."""
    n_automated: int
    observed: float
    """NaN if none is automated."""
    bound: float


@dataclass(frozen=True)
class SegmentRisk:
    """The samples of one segment at the common threshold."""

    name: Any
    n_samples: int
    is_feasible_alone: bool
    """Whether the target can be certified for this segment by itself."""
    n_automated: int
    observed: float | None
    """None if nothing is certified."""
    bound: float | None


@dataclass(frozen=True)
class Decision:
    """A policy whose risk is certified, or the closest one.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> calibrator = rhocal.TemperatureScaling().fit(logits, labels)
    >>> decision = rhocal.decide(calibrator, *rhocal.demo_logits("test"), target=0.05)
    >>> print(str(decision)[:24])
    automate 42.8 % of sampl
    >>> decision.policy is not None
    True
    """

    risk: str
    target: float
    confidence: float
    score: str
    n_samples: int
    policy: Policy | None
    """None if the target cannot be certified on these samples."""
    curve: RiskCurve = field(repr=False)
    coverage_if_known: float | None
    """Coverage if the observed risk were the true one; the difference to the certified coverage is the price of certainty."""
    best: tuple[float, float] | None
    """If nothing is certified: the observed risk that is nearest to it, and the share of samples with scores as high."""
    n_more: int | None
    """If nothing is certified: about how many more samples would do if the risks stayed; None: unknown, or no number."""
    classes: tuple[ClassThreshold, ...] = ()
    """Of a threshold for each class."""
    positive: Any = None
    """The positive class."""
    segments: tuple[SegmentRisk, ...] = ()
    """Where the risk of every segment is certified."""
    constant: tuple[Any, float] | None = None
    """Of the error rate with one threshold: the most frequent class, and the errors of deciding it always."""
    is_binary: bool = False

    def __str__(self) -> str:
        return self.verdict

    @property
    def is_feasible(self) -> bool:
        """Whether there is a certified policy."""
        return self.policy is not None

    @property
    def verdict(self) -> str:
        """In words."""
        if self.policy is None or self.policy.certificate is None:
            return self._infeasible
        certificate = self.policy.certificate
        low, high = show_percent(certificate.coverage_low), show_percent(certificate.coverage_high)
        share = f"{show_percent(certificate.coverage)} of samples ({low} – {high})"
        promise = f"{'at least' if self.risk in AT_LEAST else 'at most'} {self._value(self.target)}"
        promise += f" with {show_level(self.confidence)} confidence"
        evidence = f"{TITLES[self.risk]} {self._value(certificate.observed)} observed, {promise}"
        if self.segments:
            evidence += f" in each of {len(self.segments)} segments"
        if self.score == "positive":
            threshold = self.policy.thresholds[0]
            return f"decide {self.positive} for {share}: its probability at least {threshold:.4g}; {evidence}"
        if self.score == "answers":
            share, threshold = share.replace("of samples", "of answers"), self.policy.thresholds[1]
            return f"accept {share}: probability of being right at least {threshold:.4g}; {evidence} among accepted answers"
        if self.score == "per-class":
            n = sum(row.n_automated > 0 for row in self.classes)
            return (
                f"automate {share}: {n} of {len(self.classes)} predicted classes; {evidence}, in each of these classes"
            )
        threshold = self.policy.thresholds[0]
        return f"automate {share}: probability of the predicted class at least {threshold:.4g}; {evidence}"

    @property
    def price(self) -> str:
        """What certainty costs, in words; empty if nothing is certified."""
        if self.policy is None or self.policy.certificate is None or self.coverage_if_known is None:
            return ""
        points = 100 * abs(self.coverage_if_known - self.policy.certificate.coverage)
        if self.score == "per-class":
            return ""
        return (
            f"price of certainty: {points:.1f} points of coverage ({show_percent(self.coverage_if_known)} if the observed risk "
            "were the true one)"
        )

    @property
    def is_constant_enough(self) -> bool:
        """Whether deciding the most frequent class always would meet the target: the promise says little about rare classes."""
        return self.constant is not None and self.constant[1] <= self.target

    @property
    def note(self) -> str:
        """A sentence about a target that deciding one class always would meet; empty otherwise."""
        return self.note_with('risk="recall" or "fnr"', 'score="per-class"')

    def note_with(self, of_two: str, per_class: str) -> str:
        """The same with the names of arguments or options."""
        if not self.is_constant_enough or self.constant is None:
            return ""
        name, errors = self.constant
        other = f"{of_two}, or {per_class}" if self.is_binary else per_class
        rare = "the rare class" if self.is_binary else "rare classes"
        return f"always `{name!s}` would have {show_percent(errors)} errors; for {rare} use {other}"

    def summary(self) -> dict[str, str]:
        """Names and values of a table; empty if nothing is certified."""
        if self.policy is None or self.policy.certificate is None:
            return {}
        certificate, at_least = self.policy.certificate, self.risk in AT_LEAST
        low, high = show_percent(certificate.coverage_low), show_percent(certificate.coverage_high)
        samples = "answers" if self.score == "answers" else "samples"
        rows = {} if self.score == "per-class" else {"threshold": f"{self.policy.thresholds[-1]:.6g}"}
        return rows | {
            "share decided positive" if self.score == "positive" else "certified coverage": (
                f"{show_percent(certificate.coverage)} ({low} – {high}), {certificate.n_automated:,} of "
                f"{certificate.n_samples:,} {samples}"
            ),
            f"{TITLES[self.risk]}, observed": self._value(certificate.observed),
            f"{'lower' if at_least else 'upper'} bound": self._value(certificate.bound),
            f"promised with {show_level(self.confidence)} confidence": (
                f"{'at least' if at_least else 'at most'} {self._value(self.target)}"
            ),
        }

    @property
    def _infeasible(self) -> str:
        what = f"{TITLES[self.risk]} of {'at least' if self.risk in AT_LEAST else 'at most'} {self._value(self.target)}"
        if self.segments:
            alone = [f"{row.name!s} ({row.n_samples:,} samples)" for row in self.segments if not row.is_feasible_alone]
            more = f" and {len(alone) - MAX_NAMED} more" if len(alone) > MAX_NAMED else ""
            where = f"segment {', '.join(alone[:MAX_NAMED])}{more}" if alone else "all segments with one threshold"
            return f"infeasible: {what} cannot be certified in {where}; more labels there, a larger target, or fewer segments"
        if self.best is None:
            return f"infeasible: {what} cannot be certified on {self.n_samples:,} samples"
        observed, coverage = self.best
        is_met = observed >= self.target if self.risk in AT_LEAST else observed <= self.target
        if self.n_more is None and not is_met:
            at_best = f"at best {self._value(observed)} {TITLES[self.risk]} on {show_percent(coverage)} of samples"
            why = f"{self.n_samples:,} samples are too few to tell how many more labels would do"
            if self.coverage_if_known is None:
                why = "the observed risk misses the target at every threshold; if it is true, no number of labels would do"
            return f"infeasible: {at_best}; {why}"
        where = "all samples" if coverage == 1 else f"the {show_percent(coverage)} most confident samples"
        if self.score == "per-class":
            where = f"{show_percent(coverage)} of samples, of one predicted class"
        seen = f"{self._value(observed)} {TITLES[self.risk]} among {where}"
        if self.risk == "error" and not observed:
            seen = f"no errors among {where}"
        if self.score == "positive":
            share = show_percent(coverage)
            seen = f"{TITLES[self.risk]} {self._value(observed)} if {share} of samples are decided {self.positive}"
        proof = f"{'at least' if self.risk in AT_LEAST else 'at most'} {self._value(self.target)}"
        more = "too few also to tell how many more labels are needed"
        if self.n_more is not None:
            more = f"about {self.n_more:,} more labels needed"
            if (
                self.n_more <= MAX_SHARE_FEW * self.n_samples
            ):  # it would pass alone; tests of smaller thresholds come first
                more = "a few more labels may be enough"
        return f"not provable: {seen}, but {self.n_samples:,} samples are too few to prove {proof}; {more}"

    def _value(self, value: float) -> str:
        return f"{value:.4g}" if self.risk == "cost" else show_percent(value)

    def to_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        certificate = None if self.policy is None else self.policy.certificate
        document = {
            "feasible": self.is_feasible,
            "risk": self.risk,
            "target": self.target,
            "confidence": self.confidence,
            "score": self.score,
            "n_samples": self.n_samples,
            "thresholds": None if self.policy is None else self.policy.thresholds.tolist(),
            "certificate": None if certificate is None else asdict(certificate),
            "coverage_if_known": self.coverage_if_known,
            "best": None if self.best is None else {"risk": self.best[0], "coverage": self.best[1]},
            "n_more_samples": self.n_more,
            "verdict": self.verdict,
            "note": self.note,
            "curve": {name: [_finite(x) for x in values.tolist()] for name, values in vars(self.curve).items()},
        }
        if self.positive is not None:
            document["positive"] = plain_name(self.positive)
        if self.segments:
            document["segments"] = [asdict(row) | {"name": plain_name(row.name)} for row in self.segments]
        if self.classes:
            document["classes"] = [
                asdict(row) | {"name": plain_name(row.name), "observed": _finite(row.observed)} for row in self.classes
            ]
        return document


def _finite(value: float) -> float | None:
    """A number for JSON, which has no NaN: the risk where no sample is accepted."""
    return value if math.isfinite(value) else None


THRESHOLD_HEADER = ("predicted class", "samples", "threshold", "automated", "errors", "bound")


def threshold_cells(row: ClassThreshold) -> tuple[str, ...]:
    """The cells of a table row."""
    if not row.n_automated:
        return str(row.name), f"{row.n_samples:,}", "never", "0", "–", "–"
    shares = (show_percent(row.observed), show_percent(row.bound))
    return str(row.name), f"{row.n_samples:,}", f"{row.threshold:.4g}", f"{row.n_automated:,}", *shares


SEGMENT_HEADER = ("segment", "samples", "automated", "observed", "bound")


def segment_cells(row: SegmentRisk, risk: str) -> tuple[str, ...]:
    """The cells of a table row."""
    show = (lambda value: f"{value:.4g}") if risk == "cost" else show_percent
    values = ("–" if value is None else show(value) for value in (row.observed, row.bound))
    return str(row.name), f"{row.n_samples:,}", f"{row.n_automated:,}", *values


def plain_name(name: Any) -> Any:
    """The name of a class for JSON."""
    return name.item() if hasattr(name, "item") else name


def show_percent(share: float) -> str:
    """A share with as many digits as are useful."""
    return f"{100 * share:.4g} %" if share < 0.0995 else f"{100 * share:.3g} %"
