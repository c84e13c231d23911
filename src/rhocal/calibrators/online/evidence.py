"""What a batch of online calibration showed: evidence that adds up over batches, and what was done."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rhocal.calibrators.base import Calibrator
    from rhocal.calibrators.online.calibration import OnlineCalibration

LOST_POLICY = "the policy was removed: it was certified for another map; certify one on labeled samples (rhocal decide)"

Action = Literal["began", "kept", "updated", "rolled back", "skipped"]


@dataclass(frozen=True)
class Evidence:
    """Evidence of corrections against the map in use, and of that against the first calibrator, since the last change."""

    log_wealth: tuple[float, ...] = ()
    """Log of the ratio of likelihoods of each correction, with the shares of the batches at which it began."""
    n_compared: int = 0
    """Batches that it is from."""
    excess: float = 0.0
    """NLL of the map in use minus that of the first calibrator, summed up since its lowest point."""

    def advance(self, log_ratios: Sequence[float], above_first: float) -> Evidence:
        """After one more batch. The share 1/(n(n + 1)) enters at batch n; all shares together are 1.

        Without corrections, which need some memory, only the excess grows.
        """
        excess = max(0.0, self.excess + above_first)
        if not log_ratios:
            return replace(self, excess=excess)
        n = self.n_compared + 1
        old = self.log_wealth or (-math.inf,) * len(log_ratios)
        entering = -math.log(n * (n + 1))
        wealth = tuple(float(np.logaddexp(one, entering)) + gain for one, gain in zip(old, log_ratios, strict=True))
        return Evidence(wealth, n, excess)

    @property
    def total(self) -> float:
        """The mean over corrections, with the share 1/(n + 1) that waits for later drifts."""
        k, n = len(self.log_wealth), self.n_compared
        if not k:
            return 1.0
        return math.exp(min(float(np.logaddexp.reduce([*self.log_wealth, math.log(k / (n + 1))])) - math.log(k), 700.0))


@dataclass(frozen=True, eq=False)
class Update:
    """What a batch of labeled samples changed, and why."""

    online: OnlineCalibration
    action: Action
    n_samples: int = 0
    nll: float = math.nan
    """Of the map in use, on the batch."""
    nll_first: float = math.nan
    """Of the calibrator that updates began with."""
    nll_candidate: float = math.nan
    """Of the best correction that was fitted before the batch came."""
    difference: tuple[float, float, float] | None = None
    """Correction minus map in use on the batch, with its 95 % interval: NaN where all samples have the same difference."""
    evidence: float = 1.0
    """Against the map in use, in favor of corrections, over all batches since the last change; 1/α adopts one."""
    has_lost_policy: bool = False
    """Whether the map changed and had a policy, which was certified for the map before."""
    has_lost_too_much: bool = False
    """Whether a correction with enough evidence was not adopted, because of what the stream has lost so far."""

    def changed(self, action: Action, online: OnlineCalibration, correction: Calibrator | None) -> Update:
        """The same with another map in use: evidence begins anew, and there is no policy."""
        after = replace(online, correction=correction, evidence=Evidence(), policy=None)
        return replace(self, online=after, action=action, has_lost_policy=online.policy is not None)

    @property
    def calibrator(self) -> Calibrator:
        """What to use from now on; its ``update`` takes the next batch."""
        return self.online.calibrator

    @property
    def verdict(self) -> str:
        """What was done, and the figures that decided it."""
        if self.action == "skipped":
            return "skipped: this batch was counted before"
        n = f"{self.n_samples:,} samples"
        if self.difference is None and self.action != "rolled back":
            return f"{self.action}: {n} are the first in memory, NLL {self.nll:.4f}; later batches are compared"
        figures = f"NLL on {n} {self.nll:.4f} in use, "
        if self.difference is not None:
            value, low, high = self.difference
            interval = f"95 % interval {low:+.4f} to {high:+.4f}"
            interval = "no interval: the samples show no spread" if math.isnan(low) else interval
            figures += f"{self.nll_candidate:.4f} corrected ({value:+.4f}, {interval}), "
        evidence = "above 1e6" if self.evidence > 1e6 else f"{self.evidence:.3g}"
        figures += f"{self.nll_first:.4f} at first; evidence {evidence} of {1 / self.online.alpha:g}"
        reasons = {
            "updated": "updated: the correction is used from now on",
            "rolled back": "rolled back: the first calibrator is used again",
        }
        lost = f"; {LOST_POLICY}" if self.has_lost_policy else ""
        if self.has_lost_too_much:
            lost += (
                f"; the correction is not used: updates have lost {self.online.loss:.3g} nats in all, and may lose "
                f"{self.online.max_loss:.3g}. Fit a calibrator on recent samples, and begin anew with it"
            )
        return f"{reasons.get(self.action, self.action)}; {figures}{lost}"

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON takes it; what a batch does not have is None."""
        nlls = {"nll": self.nll, "nll_first": self.nll_first, "nll_candidate": self.nll_candidate}
        difference = self.difference and zip(("value", "low", "high"), self.difference, strict=True)
        return {
            "action": self.action,
            "method": self.calibrator.label,
            "n_samples": self.n_samples,
            **_without_nan(nlls.items()),
            "difference": difference and _without_nan(difference),
            "evidence": self.evidence,
            "excess": self.online.evidence.excess,
            "loss": self.online.loss,
            "max_loss": self.online.max_loss,
            "n_updates": self.online.n_updates,
            "verdict": self.verdict,
        }


def _without_nan(values: Iterable[tuple[str, float]]) -> dict[str, float | None]:
    return {name: None if math.isnan(value) else value for name, value in values}
