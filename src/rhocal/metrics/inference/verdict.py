"""The verdict: one sentence about calibration that a reader without statistics understands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rhocal.metrics.inference.calibration_tests import TITLES
from rhocal.metrics.inference.defaults import SIGNIFICANCE_LEVEL
from rhocal.metrics.inference.paired import holm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rhocal.metrics.inference.calibration_tests import Outcome
    from rhocal.metrics.inference.ece_interval import Interval
    from rhocal.metrics.inference.floor import Floor
    from rhocal.metrics.scored import Scored


def detect_miscalibration(tests: Mapping[str, Outcome]) -> tuple[bool, str]:
    """Whether any test rejects calibration (with Holm's correction), and the name of the test with the smallest p-value."""
    names = list(tests)
    adjusted = holm([tests[name].p_value for name in names])
    best = int(np.argmin(adjusted))
    return adjusted[best] <= SIGNIFICANCE_LEVEL, names[best]


def verdict(scored: Scored, ece: Floor, interval: Interval, tests: Mapping[str, Outcome]) -> str:
    """One sentence: indistinguishable from perfect, over- or under-confident by so much, or off in places."""
    confidence, accuracy, total = scored.mean_confidence, scored.accuracy, round(float(scored.weights.sum()))
    n = f"{total:,} sample{'' if total == 1 else 's'}"
    compared = f"ECE {ece.value:.3f}, floor {ece.mean:.3f} ± {(ece.high - ece.low) / 2:.3f}"
    detected, by = detect_miscalibration(tests)
    if not detected:
        return f"indistinguishable from perfect calibration at {n} ({compared}; the true ECE is at most {interval.high:.3f})"
    if ece.p_value > SIGNIFICANCE_LEVEL:
        return (
            f"nearly perfect: {compared}, so ECE does not distinguish them at {n}; only the test {TITLES[by]} does "
            f"(p = {tests[by].p_value:.2g}). Mean confidence {100 * confidence:.1f} %, accuracy {100 * accuracy:.1f} %"
        )
    gap = accuracy - confidence
    if tests["gap"].p_value <= SIGNIFICANCE_LEVEL and abs(gap) >= max(ece.excess, interval.estimate) / 2:
        word = "over-confident" if gap < 0 else "under-confident"
        return (
            f"{word} by {100 * abs(gap):.1f} points: mean confidence {100 * confidence:.1f} %, accuracy "
            f"{100 * accuracy:.1f} % ({compared})"
        )
    return f"miscalibrated: {_direction(scored)}; by about {100 * interval.estimate:.1f} points ({compared})"


def _direction(scored: Scored) -> str:
    """Compare the less confident half of the samples with the more confident half."""
    order = np.argsort(scored.confidence, kind="stable")
    w, d = scored.weights[order], (scored.correct - scored.confidence)[order]
    first = np.cumsum(w) <= w.sum() / 2
    low, high = float(w[first] @ d[first]), float(w[~first] @ d[~first])
    if low > 0 > high:
        return "over-confident at high confidence, under-confident at low confidence"
    if low < 0 < high:
        return "over-confident at low confidence, under-confident at high confidence"
    return "over-confident in places" if low + high < 0 else "under-confident in places"
