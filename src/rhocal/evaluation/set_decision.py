"""What ``decide_sets`` answers: the sets, their sizes, and what is promised about them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.policies.prediction_sets import ALWAYS, SetRule
from rhocal.data.arguments import show_level
from rhocal.evaluation.decision import plain_name, show_percent
from rhocal.metrics.inference.conformal import conformal_rank
from rhocal.metrics.inference.defaults import CONFIDENCE_LEVEL
from rhocal.numerics.special import binomial_upper

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rhocal.calibrators.policies.policy import Policy
    from rhocal.calibrators.policies.prediction_sets import SetEvidence

MIN_TIED_SHARE = 0.001
"""Share of samples that are tied at a limit before it is mentioned."""


@dataclass(frozen=True)
class ClassCoverage:
    """The sets of samples of one class."""

    name: Any
    n_samples: int
    limit: float
    """``ALWAYS``: the class is in every set."""
    coverage: float | None
    """Share of its samples whose set holds the class; None without samples."""
    mean_size: float | None


@dataclass(frozen=True)
class SetDecision:
    """Prediction sets and their evidence.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> calibrator = rhocal.TemperatureScaling().fit(logits, labels)
    >>> decision = rhocal.decide_sets(calibrator, *rhocal.demo_logits("test"), coverage=0.9)
    >>> calibrator.policy_ = decision.policy
    >>> calibrator.decide(logits[:3]).sets.shape
    (3, 10)
    """

    policy: Policy
    evidence: SetEvidence
    classes: tuple[ClassCoverage, ...]

    def __str__(self) -> str:
        return self.verdict

    @property
    def rule(self) -> SetRule:
        """Which classes are in a set."""
        assert self.policy.sets is not None
        return self.policy.sets

    @property
    def bounds(self) -> tuple[float, float]:
        """Between which values the coverage of new samples is, on average over draws of the samples; without ties.

        Of sets per class the largest upper bound of a class.
        """
        counts = [row.n_samples for row in self.classes if row.limit < ALWAYS]
        n = min(counts) if self.rule.per_class else self.evidence.n_samples
        return self.rule.coverage, min(self.rule.coverage + 1 / (n + 1), 1.0)

    @property
    def is_tied(self) -> bool:
        """Whether many samples have the score at a limit: the coverage is above the level then, and has no upper bound."""
        rows = self.classes if self.rule.per_class else ()
        parts = [(row.n_samples, row.coverage) for row in rows if row.coverage is not None and row.limit < ALWAYS]
        parts = parts or [(self.evidence.n_samples, self.evidence.observed)]
        return any(n * share - conformal_rank(n, self.rule.coverage) > 1 + MIN_TIED_SHARE * n for n, share in parts)

    @property
    def verdict(self) -> str:
        """In words."""
        evidence, rule = self.evidence, self.rule
        of_each = " of each class" if rule.per_class else ""
        return (
            f"sets with {show_level(rule.coverage)} coverage{of_each} ({rule.score}): {evidence.mean_size:.4g} classes on "
            f"average (median {evidence.median_size:g}), {show_percent(evidence.share_single)} of sets are a single class, "
            f"{show_percent(evidence.share_empty)} are empty"
        )

    @property
    def guarantee(self) -> str:
        """What is promised, and what it assumes."""
        low, high = self.bounds
        most = "more where scores are tied, as here" if self.is_tied else f"at most {_digits(high)} without ties"
        who = "a new sample of any class" if self.rule.per_class else "a new sample"
        return (
            f"guarantee: the set of {who} holds its class with a probability of at least {show_level(low)} "
            f"({most}), if new samples are exchangeable with these {self.evidence.n_samples:,}: "
            "independent draws from the same distribution. A shift, or samples that fitted the calibrator, void it"
        )

    @property
    def below(self) -> tuple[ClassCoverage, ...]:
        """Classes whose coverage is shown to be below the promised one, which is about all classes together; lowest first."""
        if self.rule.per_class:
            return ()
        level = 1 - (1 - CONFIDENCE_LEVEL) / len(self.classes)
        rows = [row for row in self.classes if row.coverage is not None and _upper(row, level) < self.rule.coverage]
        return tuple(sorted(rows, key=lambda row: row.coverage or 0.0))

    @property
    def note(self) -> str:
        """A sentence about classes that are covered less; empty if none is shown to be."""
        if not self.below:
            return ""
        first, others = self.below[0], len(self.below) - 1
        share = show_percent(first.coverage or 0.0)
        more = f", and {others} more {'class' if others == 1 else 'classes'}" if others else ""
        return (
            f"clearly below {show_level(self.rule.coverage)} (beyond chance): {first.name!s} has {share} coverage "
            f"on {first.n_samples:,} samples{more}; sets per class promise the coverage of each class"
        )

    def summary(self) -> dict[str, str]:
        """Names and values of a table."""
        evidence, rule = self.evidence, self.rule
        limit = {"lac": -rule.limits[0], "aps": rule.limits[0], "raps": rule.limits[0]}[rule.score]
        what = {"lac": "smallest probability", "aps": "largest probability above", "raps": "largest score"}[rule.score]
        low, high = self.bounds
        expected = (
            f"at least {show_level(low)} (scores are tied)" if self.is_tied else f"{show_level(low)} to {_digits(high)}"
        )
        return ({} if rule.per_class else {what: f"{limit:.6g}"}) | {
            "expected coverage": expected,
            **(
                {}
                if rule.per_class
                else {"for 95 % of draws": f"{show_percent(evidence.low)} to {show_percent(evidence.high)}"}
            ),
            "coverage on these samples": f"{show_percent(evidence.observed)} of {evidence.n_samples:,} samples",
            "classes in a set": f"{evidence.mean_size:.4g} on average, median {evidence.median_size:g}",
            "a single class": show_percent(evidence.share_single),
            "empty": show_percent(evidence.share_empty),
        }

    def to_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        rule = self.rule
        options = {"penalty": rule.penalty, "n_free": rule.n_free} if rule.score == "raps" else {}
        return {
            "coverage": rule.coverage,
            "score": rule.score,
            "per_class": rule.per_class,
            **options,
            "expected_coverage": [self.bounds[0], None if self.is_tied else self.bounds[1]],
            "tied": self.is_tied,
            **asdict(self.evidence),
            "verdict": self.verdict,
            "guarantee": self.guarantee,
            "below": [plain_name(row.name) for row in self.below],
            "classes": [
                asdict(row) | {"name": plain_name(row.name), "limit": None if row.limit >= ALWAYS else row.limit}
                for row in self.classes
            ],
        }


COVERAGE_HEADER = ("class", "samples", "limit", "coverage", "classes in a set")


def coverage_cells(row: ClassCoverage, score: str) -> tuple[str, ...]:
    """The cells of a table row."""
    limit = "in every set" if row.limit >= ALWAYS else f"{-row.limit if score == 'lac' else row.limit:.4g}"
    if row.coverage is None or row.mean_size is None:
        return str(row.name), "0", limit, "–", "–"
    return str(row.name), f"{row.n_samples:,}", limit, show_percent(row.coverage), f"{row.mean_size:.3g}"


def class_rows(rows: Sequence[ClassCoverage]) -> list[ClassCoverage]:
    """Classes for a screen, the least covered first."""
    return sorted(rows, key=lambda row: 2.0 if row.coverage is None else row.coverage)


def _upper(row: ClassCoverage, level: float) -> float:
    covered = round((row.coverage or 0.0) * row.n_samples)
    return float(binomial_upper(np.array(covered), np.array(row.n_samples), level))


def _digits(share: float) -> str:
    return f"{100 * share:.6g} %"
