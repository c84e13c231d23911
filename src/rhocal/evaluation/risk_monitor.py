"""Watching a certified risk as labels come in, with a test that may be looked at after every sample.

A policy promises that a loss (an error among automated samples, a missed positive, …) has a rate of at most the target. A bet
multiplies its wealth at every sample that the rate is about by 1 + λ·(loss − target), 0 < λ < 1/target: while the promise
holds, the expected factor is at most 1. Wealth is shared out over stakes and over the samples at which a drift may begin, as in
``bets.py``; an alarm at wealth ≥ 1/α is false with a chance of at most α, however long one watches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.errors import InputError
from rhocal.evaluation.bets import STAKES, UNITS_AT_ONCE, advance
from rhocal.metrics.inference.risk_control import AT_LEAST

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.calibrators.policies.policy import Certificate, Decisions, Policy
    from rhocal.numerics.special import Vector

TITLES = {
    "error": "the error rate of automated samples",
    "fpr": "the false-positive rate",
    "fnr": "the false-negative rate",
    "precision": "the share of false positives among positives",
    "recall": "the share of missed positives",
    "coverage": "the share of prediction sets without the class",
}


@dataclass
class RiskMonitor:
    """What is remembered of the losses of a policy."""

    risk: str
    target: float
    """The largest rate of losses that is promised (of precision and recall: 1 minus the smallest value)."""
    alpha: float = 0.05
    """Chance of a false alarm over the whole stream, if the promise holds."""
    n: int = 0
    """Samples that the rate is about."""
    n_losses: int = 0
    n_units: int = 0
    """Samples that were bet on: of a cluster its first."""
    n_seen: int = 0
    """All samples, for ``alarm_at``."""
    log_wealth: list[float] = field(default_factory=lambda: [-math.inf] * len(STAKES))
    max_log_wealth: float = 0.0
    alarm_at: int | None = None
    """The sample at which the alarm was raised; it stays."""
    last_cluster: str | None = None
    acknowledged: str | None = None
    """The note of whoever acknowledged the alarm."""
    is_notified: bool = False
    """Whether the alarm was reported."""

    def __post_init__(self) -> None:
        if self.risk not in TITLES or not 0 < self.target < 1 or not 0 < self.alpha < 1:
            raise InputError(f"a promise of {self.risk!r} at {self.target!r} cannot be watched")

    @classmethod
    def from_policy(cls, policy: Policy, alpha: float = 0.05) -> RiskMonitor | None:
        """The monitor of a policy's promise; None if it has none, or one of a mean cost.

        The coverage of prediction sets is a mean over draws of the samples that set the limits. Those of one draw cover less
        than the lower end of its 95 % range with a probability of 2.5 %, which adds to that of a false alarm.
        """
        promise = policy.certificate
        if promise is None and policy.sets is not None and policy.sets.evidence is not None:
            low = policy.sets.evidence.low
            return cls("coverage", 1 - low, alpha) if 0 < low < 1 else None
        if promise is None or promise.risk not in TITLES:
            return None
        return cls(promise.risk, largest_rate(promise), alpha)

    def add(self, subjects: NDArray[np.bool_], losses: NDArray[np.bool_], clusters: Any = None) -> None:
        """Take in samples in the order in which they came: which of them the rate is about, and which are losses.

        Of samples of a cluster that follow each other the first is bet on: they may depend on each other.
        """
        chosen = np.asarray(subjects, bool)
        losses = np.asarray(losses, bool)
        self.n += int(chosen.sum())
        self.n_losses += int((losses & chosen).sum())
        rows = np.flatnonzero(chosen)
        if clusters is not None and len(rows):
            names = np.asarray(clusters)[rows].astype(str)
            is_first = np.append(names[:1] != np.array([self.last_cluster], object), names[1:] != names[:-1])
            self.last_cluster = str(names[-1])
            rows = rows[is_first]
        for start in range(0, len(rows), UNITS_AT_ONCE):
            part = rows[start : start + UNITS_AT_ONCE]
            self._bet(losses[part].astype(np.float64), part)
        self.n_seen += len(chosen)

    def _bet(self, losses: Vector, rows: NDArray[np.intp]) -> None:
        stakes = np.array(STAKES)[:, None] / self.target
        factors = np.log1p(stakes * (losses - self.target))
        shares = np.full(len(STAKES), -math.log(len(STAKES)))
        wealth, total = advance(np.array(self.log_wealth), factors, self.n_units, shares)
        self.max_log_wealth = max(self.max_log_wealth, float(total.max()))
        over = np.flatnonzero(total >= -math.log(self.alpha))
        if len(over) and self.alarm_at is None:
            self.alarm_at = self.n_seen + int(rows[over[0]]) + 1
        self.log_wealth = wealth.tolist()
        self.n_units += len(losses)

    @property
    def alarm(self) -> bool:
        """Whether the promise is known to be broken."""
        return self.alarm_at is not None

    @property
    def p_value(self) -> float:
        """Valid at every moment: the chance that a stream that keeps the promise ever looks as bad as this one did."""
        return min(1.0, math.exp(-self.max_log_wealth))

    @property
    def sentence(self) -> str:
        """The alarm in words."""
        return f"{TITLES[self.risk]} exceeds {100 * self.target:.4g} %, which was promised"

    @property
    def alarm_reason(self) -> str | None:
        """The same if there is an alarm."""
        return self.sentence if self.alarm else None

    def values(self) -> dict[str, Any]:
        """The counts and the alarm."""
        return {
            "risk": self.risk,
            "largest_rate": self.target,
            "n": self.n,
            "rate": self.n_losses / self.n if self.n else None,
            "alarm": self.alarm,
            "alarm_at": self.alarm_at,
            "alarm_reason": self.alarm_reason,
            "acknowledged": self.acknowledged,
            "p_value": self.p_value,
        }


def largest_rate(promise: Certificate) -> float:
    """The promise as a largest rate of losses."""
    return 1 - promise.target if promise.risk in AT_LEAST else promise.target


def policy_losses(
    policy: Policy, decisions: Decisions, labels: NDArray[np.intp]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which samples the promise of a policy is about, and which of them are losses; labels are columns."""
    if policy.certificate is None:
        assert decisions.sets is not None
        return np.ones(len(labels), bool), ~decisions.sets[np.arange(len(labels)), labels]
    wrong = decisions.column != labels
    if policy.positive is None:
        return decisions.automated, wrong
    subjects = {
        "fpr": labels != policy.positive,
        "precision": decisions.column == policy.positive,
    }.get(policy.certificate.risk, labels == policy.positive)
    return subjects, wrong
