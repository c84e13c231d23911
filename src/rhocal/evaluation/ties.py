"""What a comparison says in words: the best method, ties with it, and whether calibration is needed at all."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rhocal.calibrators.guard import IDENTITY
from rhocal.evaluation.best import ORDER
from rhocal.metrics import METRICS
from rhocal.metrics.inference.verdict import TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rhocal.evaluation.best import DifferenceToBest

NO_OTHER = "no other is tied with it"
CLASSWISE_MARGIN = 0.02
"""How much worse the classwise ECE of the method with the best ECE may be without a note."""


def ties(to_best: Mapping[str, Mapping[str, DifferenceToBest]], lines: Sequence[Mapping[str, Any]] = ()) -> list[str]:
    """For ECE and NLL: how many methods are not distinguished from the best one, and how much worse they may be.

    With ``lines`` (``rows.summary``) also which methods with a low ECE are off for single classes.
    """
    note = class_note(lines, to_best.get("ece", {}))
    sentences = []
    for metric in ("ece", "nll"):
        by_method = to_best.get(metric, {})
        for best in list(dict.fromkeys(difference.best for difference in by_method.values())):
            title = METRICS[metric].title
            what = "true ECE" if metric == "ece" else f"expected {title}"
            tied = [difference.high for name, difference in by_method.items() if difference.is_tied and name != best]
            if IDENTITY in by_method and len(tied) == len(by_method) - 1:
                need = _need(metric, by_method, best, has_note=bool(note))
                sentences.append(f"{title}: all {len(by_method)} methods tie{need}")
                continue
            number = f"{len(tied)} others are" if len(tied) > 1 else "one other is"
            others = f"{number} tied with it: their {what} is higher by at most {max(tied):.4f}" if tied else NO_OTHER
            first = f"{title}: {best} is the best of {len(by_method)} methods"
            sentences.append(f"{first}; {others} (95 % confidence)")
    return sentences + note


def class_note(lines: Sequence[Mapping[str, Any]], to_best: Mapping[str, DifferenceToBest]) -> list[str]:
    """A warning where a method that is the best in ECE, or tied with it, is off for single classes.

    The ECE looks at the predicted class alone: it may be low where a class has far too much probability.
    """
    known = [
        line for line in lines if not math.isnan(line["nll"]) and not math.isnan(line.get("classwise_ece", math.nan))
    ]
    if not known:
        return []
    by_class = min(known, key=lambda line: line["classwise_ece"])
    lowest = f"{min(line[ORDER['ece']] for line in known):.4f}"
    leading = [
        line
        for line in known
        if f"{line[ORDER['ece']]:.4f}" == lowest or (line["method"] in to_best and to_best[line["method"]].is_tied)
    ]
    off = [line for line in leading if line["classwise_ece"] >= by_class["classwise_ece"] + CLASSWISE_MARGIN]
    if not off:
        return []
    names, up_to = ", ".join(line["method"] for line in off), "" if len(off) == 1 else "up to "
    has = "has the best ECE or ties with it" if len(off) == 1 else "have the best ECE or tie with it"
    largest = max(line["classwise_ece"] for line in off)
    sentence = (
        f"the ECE looks at the predicted class alone: {names} {has}, but a classwise ECE of {up_to}{largest:.4f}; that of "
        f"{by_class['method']} is {by_class['classwise_ece']:.4f}"
    )
    return [sentence]


def _need(metric: str, by_method: Mapping[str, DifferenceToBest], best: str, *, has_note: bool) -> str:
    """Whether calibration is needed, where every method ties with no calibration: only ECE has a tolerance.

    With a note about classes nothing is concluded from the ECE.
    """
    if metric != "ece" or has_note:
        return ", no calibration among them"
    if best == IDENTITY:
        gain = max((-difference.low for name, difference in by_method.items() if name != IDENTITY), default=0.0)
    else:
        gain = by_method[IDENTITY].high
    may_gain = f"it could lower the ECE by at most {gain:.4f} (95 % confidence)"
    if gain <= TOLERANCE:
        return f"; calibration is not needed: {may_gain}"
    return f"; too few samples to tell whether calibration is needed: {may_gain}"
