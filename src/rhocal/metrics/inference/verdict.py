"""What the figures say, in a sentence that needs no statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rhocal.metrics.inference.calibration_tests import TITLES
from rhocal.metrics.inference.paired import holm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rhocal.metrics.inference.calibration_tests import Outcome
    from rhocal.metrics.inference.floor import Floor
    from rhocal.metrics.inference.inverted import Interval
    from rhocal.metrics.scored import Scored

SIGNIFICANCE_LEVEL = 0.05
"""Chance of calling a perfectly calibrated model miscalibrated."""


def alarm(tests: Mapping[str, Outcome]) -> tuple[bool, str]:
    """Whether any test sees miscalibration (Holm over all of them), and the one that sees it best."""
    names = list(tests)
    adjusted = holm([tests[name].p_value for name in names])
    best = int(np.argmin(adjusted))
    return adjusted[best] <= SIGNIFICANCE_LEVEL, names[best]


def verdict(scored: Scored, ece: Floor, interval: Interval, tests: Mapping[str, Outcome]) -> str:
    """One sentence: indistinguishable from perfect, over- or under-confident by so much, or off in places."""
    w, total = scored.weights, float(scored.weights.sum())
    said, right = float(w @ scored.confidence) / total, float(w @ scored.correct) / total
    n = f"{round(total):,} sample{'' if round(total) == 1 else 's'}"
    compared = f"ECE {ece.value:.3f}, a perfect model scores {ece.mean:.3f} ± {(ece.high - ece.low) / 2:.3f}"
    seen, by = alarm(tests)
    if not seen:
        return f"indistinguishable from perfect calibration at {n} ({compared}; the true ECE is at most {interval.high:.3f})"
    if ece.p_value > SIGNIFICANCE_LEVEL:
        return (
            f"nearly perfect: {compared}, so ECE cannot tell them apart at {n}; only the test {TITLES[by]} can "
            f"(p = {tests[by].p_value:.2g}). It says {100 * said:.1f} % and is right {100 * right:.1f} % of the time"
        )
    gap = right - said
    if tests["gap"].p_value <= SIGNIFICANCE_LEVEL and abs(gap) >= max(ece.excess, interval.estimate) / 2:
        word = "over-confident" if gap < 0 else "under-confident"
        return (
            f"{word} by {100 * abs(gap):.1f} points: it says {100 * said:.1f} % and is right {100 * right:.1f} % "
            f"of the time ({compared})"
        )
    return f"miscalibrated: {_where(scored)}; off by about {100 * interval.estimate:.1f} points ({compared})"


def _where(scored: Scored) -> str:
    """Compare the less with the more confident half."""
    order = np.argsort(scored.confidence, kind="stable")
    w, d = scored.weights[order], (scored.correct - scored.confidence)[order]
    first = np.cumsum(w) <= w.sum() / 2
    unsure, sure = float(w[first] @ d[first]), float(w[~first] @ d[~first])
    if unsure > 0 > sure:
        return "too sure where it is sure, too unsure where it is not"
    if unsure < 0 < sure:
        return "too sure where it is unsure, too unsure where it is sure"
    return "too sure in places" if unsure + sure < 0 else "too unsure in places"
