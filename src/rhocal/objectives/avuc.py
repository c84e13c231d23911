"""Accuracy versus uncertainty."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from rhocal.errors import InputError
from rhocal.objectives.base import Objective, Single, Slopes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rhocal.numerics.special import Vector
    from rhocal.profile.statistics import Facts


@dataclass(frozen=True, repr=False)
class AvUC(Single):
    """Accuracy versus uncertainty (Krishnan & Tickoo 2020), with soft counts.

    log(1 + (n_AU + n_IC) / (n_AC + n_IU)): accurate samples should be certain and inaccurate ones uncertain. A sample
    counts with its confidence (accurate) or one minus it (inaccurate), times 1 − tanh(H) as certain or tanh(H) as
    uncertain, H its entropy. Where the original cuts at a threshold, which has no slope, a sample is uncertain to the
    degree sigmoid((H − threshold) / width). Unless given, the threshold is the middle between the mean entropies of
    accurate and inaccurate samples when the fit starts (at the NLL-optimal temperature, so that the scale of the logits
    does not matter).

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> calibrator = rhocal.TemperatureScaling(rhocal.NLL() + rhocal.AvUC()).fit(logits, labels)
    >>> round(calibrator.temperature_, 2)
    1.81
    """

    threshold: float | None = None
    width: float = 0.1
    name = "avuc"
    statistics = frozenset({"confidence", "entropy"})

    def __post_init__(self) -> None:
        if not self.width > 0:
            raise InputError(f"avuc: width must be positive; got {self.width!r}")

    def prepare(self, values: Mapping[str, Vector], facts: Facts) -> Objective:
        if self.threshold is not None:
            return self
        right, wrong = facts.weights * facts.correct, facts.weights * (1 - facts.correct)
        means = [float(w @ values["entropy"] / w.sum()) for w in (right, wrong) if w.sum() > 0]
        return replace(self, threshold=sum(means) / len(means))

    def evaluate(self, values: Mapping[str, Vector], facts: Facts) -> tuple[float, Slopes]:
        entropy, confidence, right = values["entropy"], values["confidence"], facts.correct
        degree = 0.5 + 0.5 * np.tanh((entropy - (self.threshold or 0.0)) / (2 * self.width))
        d_degree = degree * (1 - degree) / self.width
        t = np.tanh(entropy)
        certain, uncertain = (1 - degree) * (1 - t), degree * t
        d_certain = -d_degree * (1 - t) - (1 - degree) * (1 - t**2)
        d_uncertain = d_degree * t + degree * (1 - t**2)
        count = facts.weights * np.where(right > 0, confidence, 1 - confidence)
        d_count = facts.weights * np.where(right > 0, 1.0, -1.0)
        # good: accurate and certain, inaccurate and uncertain; bad: the other two
        good_part, bad_part = np.where(right > 0, (certain, uncertain), (uncertain, certain))
        d_good_part, d_bad_part = np.where(right > 0, (d_certain, d_uncertain), (d_uncertain, d_certain))
        good = max(float(count @ good_part), 1e-12)
        bad = float(count @ bad_part)
        # log(1 + bad/good) = log(good + bad) − log(good)
        to_good, to_bad = 1 / (good + bad) - 1 / good, 1 / (good + bad)
        return math.log1p(bad / good), {
            "confidence": d_count * (to_good * good_part + to_bad * bad_part),
            "entropy": count * (to_good * d_good_part + to_bad * d_bad_part),
        }
