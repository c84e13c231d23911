"""Prediction sets: the classes that a sample may have, so that its own is among them with a stated probability.

``rhocal.decide_sets`` finds the limits on held-out samples (split conformal prediction). A set holds the classes whose score is
at most their limit. Scores do not depend on the order of columns: classes with one limit that are tied are in a set together
or not at all.

``lac``
    Minus the probability (Sadinle, Lei and Wasserman 2019): the smallest sets on average. They may be empty.
``aps``
    The sum of the probabilities of more probable classes (Romano, Sesia and Candès 2020, without randomization): sets that
    adapt to a sample. The most probable class is always in the set.
``raps``
    The same plus ``penalty`` for each rank beyond ``n_free`` (Angelopoulos, Bates, Malik and Jordan 2021): no large sets.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from rhocal.calibrators.fitted_values import Values
from rhocal.data.arguments import show_level
from rhocal.data.resolution import SMALLEST_PROB
from rhocal.errors import FileError, InputError
from rhocal.numerics.numpy_ops import NUMPY
from rhocal.numerics.threads import row_blocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.data.storage.container import Tensors
    from rhocal.numerics.ops import Ops, Parameters, Value
    from rhocal.numerics.special import Floats, Vector

SetScore = Literal["lac", "aps", "raps"]
SET_SCORES: tuple[SetScore, ...] = get_args(SetScore)
ALWAYS = 1e12
"""The limit of a class that is in every set."""
PENALTY = 0.01
N_FREE = 5
"""Penalty of each rank beyond ``n_free``, as in the examples of Angelopoulos and Bates (2023)."""
MAX_PENALTY = 1e3
ROUNDING = 1e-6
"""What rounding in single precision does to a score; more of it to the probability of a class, relatively."""
TENSOR = "policy.set_limits"


@dataclass(frozen=True)
class SetEvidence:
    """The samples that set the limits, and the sets that they get."""

    n_samples: int
    low: float
    """With a probability of 95 % over the draw of these samples the coverage of new ones is between ``low`` and ``high``."""
    high: float
    observed: float
    """Coverage on these samples, which follows from the limits."""
    mean_size: float
    median_size: float
    share_empty: float
    share_single: float


@dataclass(frozen=True, eq=False)
class SetRule:
    """Which classes are in the set of a sample."""

    score: SetScore
    coverage: float
    """The smallest probability that the class of a new sample is in its set; ``per_class``: for each class."""
    limits: Vector
    """The largest score of each class; one value for all unless ``per_class``."""
    per_class: bool = False
    penalty: float = PENALTY
    n_free: int = N_FREE
    evidence: SetEvidence | None = None

    def __post_init__(self) -> None:
        if self.score not in SET_SCORES:
            raise InputError(f"the score of prediction sets is one of {', '.join(SET_SCORES)}; got {self.score!r}")
        if not 0 < self.coverage < 1:
            raise InputError(f"coverage must lie between 0 and 1 (0.9 for 90 %); got {self.coverage!r}")
        if not 0 <= self.penalty <= MAX_PENALTY:
            raise InputError(f"penalty must be a number from 0 to {MAX_PENALTY:g}; got {self.penalty!r}")
        if self.n_free < 0 or self.n_free != int(self.n_free):
            raise InputError(f"n_free must be a whole number of at least 0; got {self.n_free!r}")

    def check(self, n_classes: int) -> None:
        """Raise an error unless it fits a calibrator with so many classes."""
        limits = Values("classes", minimum=-1.0, maximum=ALWAYS)
        limits.check("the limits of prediction sets", self.limits, {"classes": n_classes})

    @property
    def sentence(self) -> str:
        """What a set holds, in words."""
        limit = float(self.limits[0])
        what = {
            "lac": f"have a probability of at least {-limit:.4g}",
            "aps": f"have at most {limit:.4g} of probability above them",
            "raps": f"have at most {limit:.4g} of probability and penalties above them",
        }[self.score]
        if self.per_class:
            what = "reach their own limit"
        of_what = "of samples of each class" if self.per_class else "of samples"
        held = f"it holds the class of {show_level(self.coverage)} {of_what}"
        return f"the set of a sample holds the classes that {what}; {held}"

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The numbers that another backend must hold."""
        numbers = {"set_limits": self.limits}
        if self.score == "raps":
            rank = np.arange(1.0, len(self.limits) + 1)
            numbers["set_penalties"] = self.penalty * np.maximum(rank - self.n_free, 0.0)
        return numbers

    def scores(self, probs: Floats) -> Vector:
        """The score of each class of each sample, by rows that fit the cache."""
        out = np.empty(np.shape(probs))
        for rows in row_blocks(len(out), len(self.limits)):
            out[rows] = class_scores(NUMPY, self, self.arrays, np.asarray(probs[rows], np.float64))
        return out

    def is_clear(self, probs: Floats, tolerance: float) -> NDArray[np.bool_]:
        """Where a class stays in a set, or out of it, if probabilities and their sums change by less than ``tolerance``."""
        p = np.asarray(probs, np.float64)
        slack = np.full(p.shape, tolerance)
        if self.score != "lac":
            for k in range(p.shape[1]):  # a class that is nearly tied may come before it, or not
                is_near = np.abs(p - p[:, k : k + 1]) <= 2 * tolerance
                others = np.where(is_near, p, 0.0).sum(axis=1) - p[:, k]
                slack[:, k] += others + (is_near.sum(axis=1) - 1) * (self.penalty if self.score == "raps" else 0.0)
        return np.asarray(np.abs(self.scores(p) - self.limits) > slack)


def class_scores(ops: Ops, rule: SetRule, parameters: Parameters, probs: Value) -> Value:
    """The score of each class, by any backend; ``parameters`` are the arrays of the rule as it holds them."""
    if rule.score == "lac":
        return -probs
    above, count = ops.sum_above(probs, len(rule.limits))
    return above + ops.take(parameters["set_penalties"], count) if rule.score == "raps" else above


def with_slack(limit: float, score: SetScore) -> float:
    """A limit that scores equal to it reach in every backend: many samples may be tied there, and none may be left out."""
    if score == "lac":
        return limit * (1 - 10 * ROUNDING) if limit < -SMALLEST_PROB else 0.0
    return limit + (min(ROUNDING, (1 - limit) / 1000) if limit < 1 else ROUNDING)


def set_rows(ops: Ops, rule: SetRule, parameters: Parameters, probs: Value) -> Value:
    """1 for classes that are in the set of their sample, 0 for others."""
    return ops.where(class_scores(ops, rule, parameters, probs) <= parameters["set_limits"], 1.0, 0.0)


# In artifacts ----------------------------------------------------------------------------------------------------------


def describe_sets(rule: SetRule, tensors: Tensors) -> dict[str, Any]:
    """A rule as JSON; its limits go into ``tensors``."""
    tensors[TENSOR] = np.asarray(rule.limits, np.float64)
    names = ("score", "coverage", "per_class", "penalty", "n_free")
    evidence = None if rule.evidence is None else asdict(rule.evidence)
    return {name: getattr(rule, name) for name in names} | {"evidence": evidence}


def build_sets(about: Any, tensors: Tensors) -> SetRule | None:
    """The rule that ``describe_sets`` described; its limits are taken out of the tensors."""
    if about is None:
        return None
    limits = tensors.pop(TENSOR, None)
    if limits is None or not isinstance(about, dict):
        raise FileError("damaged, the prediction sets of its policy do not fit")
    kinds = {"score": str, "coverage": float, "per_class": bool, "penalty": float, "n_free": int}
    if set(about) != {*kinds, "evidence"} or any(type(about[name]) is not kind for name, kind in kinds.items()):
        raise FileError("damaged, the prediction sets of its policy have values of another type")
    evidence = None if about["evidence"] is None else SetEvidence(**about["evidence"])
    if evidence is not None:
        numbers = [value for name, value in asdict(evidence).items() if name != "n_samples"]
        if type(evidence.n_samples) is not int or not all(isinstance(x, float) and np.isfinite(x) for x in numbers):
            raise FileError("damaged, the evidence of its prediction sets has values that are no numbers")
    return SetRule(**{**about, "limits": limits, "evidence": evidence})
