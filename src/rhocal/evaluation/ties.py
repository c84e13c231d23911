"""What a comparison says in words: the best method, ties with it, and whether calibration is needed at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rhocal.calibrators.guard import IDENTITY
from rhocal.metrics import METRICS
from rhocal.metrics.inference.verdict import TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rhocal.evaluation.best import DifferenceToBest


def ties(to_best: Mapping[str, Mapping[str, DifferenceToBest]]) -> list[str]:
    """For ECE and NLL: how many methods are not distinguished from the best one, and how much worse they may be."""
    sentences = []
    for metric in ("ece", "nll"):
        by_method = to_best.get(metric, {})
        for best in list(dict.fromkeys(difference.best for difference in by_method.values())):
            title = METRICS[metric].title
            tied = [difference.high for name, difference in by_method.items() if difference.is_tied and name != best]
            if IDENTITY in by_method and len(tied) == len(by_method) - 1:
                sentences.append(f"{title}: all {len(by_method)} methods tie{_need(metric, by_method, best)}")
                continue
            number = f"{len(tied)} others are" if len(tied) > 1 else "one other is"
            others = f"{number} tied with it, worse by at most {max(tied):.4f}" if tied else "no other is tied with it"
            what = f"{title}: {best} is the best of {len(by_method)} methods"
            sentences.append(f"{what}; {others} (95 % confidence)")
    return sentences


def _need(metric: str, by_method: Mapping[str, DifferenceToBest], best: str) -> str:
    """Whether calibration is needed, where every method ties with no calibration: only ECE has a tolerance."""
    if metric != "ece":
        return ", no calibration among them"
    if best == IDENTITY:
        gain = max((-difference.low for name, difference in by_method.items() if name != IDENTITY), default=0.0)
    else:
        gain = by_method[IDENTITY].high
    may_gain = f"it could lower the ECE by at most {gain:.4f} (95 % confidence)"
    if gain <= TOLERANCE:
        return f"; calibration is not needed: {may_gain}"
    return f"; too few samples to tell whether calibration is needed: {may_gain}"
