"""What a fit minimises. Objectives are frozen values that add and scale, in Python and as text.

>>> SCE(batch_size=128) + 0.01 * KL()
objective('sce + 0.01*kl')
>>> objective("nll + avuc(width=0.2)") == NLL() + AvUC(width=0.2)
True

Each gives its value and its slope in the statistics of ``statistics.py``; families pull the slope back to their parameters.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from rhocal.errors import InputError
from rhocal.special import Vector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rhocal.statistics import Facts

Slopes = dict[str, Vector]


class Objective(ABC):
    """A function of per-sample statistics, with its slope."""

    @property
    @abstractmethod
    def needs(self) -> frozenset[str]:
        """The statistics it looks at."""

    @abstractmethod
    def evaluate(self, values: Mapping[str, Vector], facts: Facts) -> tuple[float, Slopes]:
        """The value, and its derivative in each statistic of each sample."""

    @property
    def takes_from_data(self) -> bool:
        """Whether ``prepared`` has something to fill in."""
        return any(type(term).prepared is not Objective.prepared for _, term in self.terms())

    def prepared(self, values: Mapping[str, Vector], facts: Facts) -> Objective:  # noqa: ARG002
        """The objective with what it takes from the data (thresholds) filled in, once, before the fit."""
        return self

    def on_batch(self) -> Objective:
        """The same objective as the loss of one drawn mini-batch (Algorithm 1)."""
        return self

    @abstractmethod
    def terms(self) -> tuple[tuple[float, Objective], ...]:
        """The weighted single objectives it is made of."""

    def __add__(self, other: Objective) -> Objective:
        if not isinstance(other, Objective):
            return NotImplemented
        return _Sum(self.terms() + other.terms())

    def __mul__(self, factor: float) -> Objective:
        if not isinstance(factor, int | float):
            return NotImplemented
        if not (math.isfinite(factor) and factor >= 0):
            raise InputError(f"the weight of an objective must be finite and not negative; got {factor!r}")
        return _Sum(tuple((factor * weight, term) for weight, term in self.terms()))

    __rmul__ = __mul__

    def __str__(self) -> str:
        return " + ".join(_text(term) if weight == 1 else f"{weight!r}*{_text(term)}" for weight, term in self.terms())

    def __repr__(self) -> str:
        return f"objective({str(self)!r})"


@dataclass(frozen=True, repr=False)
class _Single(Objective):
    """One objective with a name; the fields of the class are its options."""

    name: ClassVar[str]
    looks_at: ClassVar[frozenset[str]]

    @property
    def needs(self) -> frozenset[str]:
        return self.looks_at

    def terms(self) -> tuple[tuple[float, Objective], ...]:
        return ((1.0, self),)


@dataclass(frozen=True, repr=False)
class _Sum(Objective):
    weighted: tuple[tuple[float, Objective], ...]

    @property
    def needs(self) -> frozenset[str]:
        return frozenset().union(*(term.needs for _, term in self.weighted))

    def terms(self) -> tuple[tuple[float, Objective], ...]:
        return self.weighted

    def evaluate(self, values: Mapping[str, Vector], facts: Facts) -> tuple[float, Slopes]:
        total, slopes = 0.0, Slopes()
        for weight, term in self.weighted:
            value, parts = term.evaluate(values, facts)
            total += weight * value
            for name, part in parts.items():
                slopes[name] = slopes.get(name, 0) + weight * part
        return total, slopes

    def prepared(self, values: Mapping[str, Vector], facts: Facts) -> Objective:
        return _Sum(tuple((weight, term.prepared(values, facts)) for weight, term in self.weighted))

    def on_batch(self) -> Objective:
        return _Sum(tuple((weight, term.on_batch()) for weight, term in self.weighted))


@dataclass(frozen=True, repr=False)
class NLL(_Single):
    """Negative log-likelihood: −mean log p_y."""

    name = "nll"
    looks_at = frozenset({"log_label"})

    def evaluate(self, values: Mapping[str, Vector], facts: Facts) -> tuple[float, Slopes]:
        return -float(facts.weights @ values["log_label"]), {"log_label": -facts.weights}


@dataclass(frozen=True, repr=False)
class Brier(_Single):
    """Multiclass Brier score: mean of Σ_j (p_j − y_j)² = Σp² − 2 p_y + 1."""

    name = "brier"
    looks_at = frozenset({"log_label", "sum_squares"})

    def evaluate(self, values: Mapping[str, Vector], facts: Facts) -> tuple[float, Slopes]:
        p_label = np.exp(values["log_label"])
        value = facts.weights @ (values["sum_squares"] - 2 * p_label + 1)
        return float(value), {"sum_squares": facts.weights, "log_label": -2 * facts.weights * p_label}


@dataclass(frozen=True, repr=False)
class TopBrier(_Single):
    """Top-label Brier score: mean of (correct − confidence)²."""

    name = "top-brier"
    looks_at = frozenset({"confidence"})

    def evaluate(self, values: Mapping[str, Vector], facts: Facts) -> tuple[float, Slopes]:
        d = facts.correct - values["confidence"]
        return float(facts.weights @ d**2), {"confidence": -2 * facts.weights * d}


@dataclass(frozen=True, repr=False)
class SCE(_Single):
    """Square calibration error of a random mini-batch taken as one bin (paper, Eq. 3), in expectation over the draw.

    With d = correct − confidence and a batch D of ``batch_size`` draws with replacement,
    E[(mean_D d)²] = mean(d)² + Var(d) / batch_size. The second term makes the parameters identifiable: the first alone
    is zero on a whole curve. ``batch_size=inf`` leaves the first alone, which on one drawn batch is the paper's loss.
    """

    batch_size: float = 128
    name = "sce"
    looks_at = frozenset({"confidence"})

    def __post_init__(self) -> None:
        if not self.batch_size >= 1:
            raise InputError(f"sce: batch_size must be at least 1; got {self.batch_size!r}")

    def evaluate(self, values: Mapping[str, Vector], facts: Facts) -> tuple[float, Slopes]:
        d = facts.correct - values["confidence"]
        mean = float(facts.weights @ d)
        value = mean**2 + float(facts.weights @ (d - mean) ** 2) / self.batch_size
        return value, {"confidence": -2 * facts.weights * (mean + (d - mean) / self.batch_size)}

    def on_batch(self) -> Objective:
        return SCE(math.inf)


@dataclass(frozen=True, repr=False)
class KL(_Single):
    """Divergence between the calibrated distribution g and the original s (paper, Eq. 4).

    direction
        ``to-base`` is KL(g‖s), as the equation is printed; ``from-base`` is KL(s‖g), as its text reads ("s replaces the
        label").
    reduction
        ``mean`` over samples and classes (the only one that fits the published values), ``samples``: mean over samples,
        ``sum``: over a mini-batch of ``batch_size`` as printed.
    """

    direction: str = "to-base"
    reduction: str = "mean"
    batch_size: float = 128
    name = "kl"

    def __post_init__(self) -> None:
        if self.direction not in {"to-base", "from-base"}:
            raise InputError(f"kl: direction is to-base or from-base; got {self.direction!r}")
        if self.reduction not in {"mean", "samples", "sum"}:
            raise InputError(f"kl: reduction is mean, samples or sum; got {self.reduction!r}")

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({self.statistic})

    @property
    def statistic(self) -> str:
        """The statistic of its direction."""
        return "kl_to_base" if self.direction == "to-base" else "kl_from_base"

    def evaluate(self, values: Mapping[str, Vector], facts: Facts) -> tuple[float, Slopes]:
        factor = {"mean": 1 / facts.n_classes, "samples": 1.0, "sum": self.batch_size}[self.reduction]
        return factor * float(facts.weights @ values[self.statistic]), {self.statistic: factor * facts.weights}


@dataclass(frozen=True, repr=False)
class AvUC(_Single):
    """Accuracy versus uncertainty (Krishnan & Tickoo 2020), with soft counts.

    log(1 + (n_AU + n_IC) / (n_AC + n_IU)): accurate samples should be certain and inaccurate ones uncertain. A sample
    counts with its confidence (accurate) or one minus it (inaccurate), times 1 − tanh(H) as certain or tanh(H) as
    uncertain, H its entropy. Where the original cuts at a threshold, which has no slope, a sample is uncertain to the
    degree sigmoid((H − threshold) / width). Unless given, the threshold is the middle between the mean entropies of
    accurate and inaccurate samples when the fit starts (at the NLL-optimal temperature, so that the scale of the logits
    does not matter).
    """

    threshold: float | None = None
    width: float = 0.1
    name = "avuc"
    looks_at = frozenset({"confidence", "entropy"})

    def __post_init__(self) -> None:
        if not self.width > 0:
            raise InputError(f"avuc: width must be positive; got {self.width!r}")

    def prepared(self, values: Mapping[str, Vector], facts: Facts) -> Objective:
        if self.threshold is not None:
            return self
        right, wrong = facts.weights * facts.correct, facts.weights * (1 - facts.correct)
        means = [float(w @ values["entropy"] / w.sum()) for w in (right, wrong) if w.sum() > 0]
        return replace(self, threshold=sum(means) / len(means))

    def evaluate(self, values: Mapping[str, Vector], facts: Facts) -> tuple[float, Slopes]:
        entropy, confidence, right = values["entropy"], values["confidence"], facts.correct
        unsure = 0.5 + 0.5 * np.tanh((entropy - (self.threshold or 0.0)) / (2 * self.width))
        d_unsure = unsure * (1 - unsure) / self.width
        t = np.tanh(entropy)
        certain, uncertain = (1 - unsure) * (1 - t), unsure * t
        d_certain = -d_unsure * (1 - t) - (1 - unsure) * (1 - t**2)
        d_uncertain = d_unsure * t + unsure * (1 - t**2)
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


@dataclass(frozen=True, repr=False)
class SoftBinnedECE(_Single):
    """Soft-binned calibration error (Karandikar et al. 2021), ℓ2: sqrt(Σ_b share_b · gap_b²).

    A sample belongs to bin b to the degree softmax_b(−(confidence − centre_b)² / temperature).
    """

    n_bins: int = 15
    temperature: float = 0.01
    name = "sb-ece"
    looks_at = frozenset({"confidence"})

    def __post_init__(self) -> None:
        if self.n_bins < 1 or not self.temperature > 0:
            raise InputError(f"sb-ece: n_bins ≥ 1 and temperature > 0; got {self.n_bins!r}, {self.temperature!r}")

    def evaluate(self, values: Mapping[str, Vector], facts: Facts) -> tuple[float, Slopes]:
        c, d = values["confidence"], facts.correct - values["confidence"]
        centres = (np.arange(self.n_bins) + 0.5) / self.n_bins
        away = c[:, None] - centres
        u = -(away**2) / self.temperature
        u = np.exp(u - u.max(axis=1, keepdims=True))
        u /= u.sum(axis=1, keepdims=True)
        h = -2 * away / self.temperature
        du = u * (h - (u * h).sum(axis=1, keepdims=True))
        share = facts.weights @ u
        gap = (facts.weights * d) @ u / np.maximum(share, 1e-300)
        square = float(share @ gap**2)
        # Σ_b D_b²/S_b with D = Σ w u d, S = Σ w u
        slope = facts.weights * (2 * d * (du @ gap) - 2 * (u @ gap) - du @ gap**2)
        root = math.sqrt(square)
        return root, {"confidence": slope / (2 * max(root, 1e-9))}


def with_batch_size(target: Objective, batch_size: float) -> Objective:
    """The same objective with every term that knows a mini-batch size using this one."""
    terms = (
        weight * (replace(term, batch_size=batch_size) if isinstance(term, SCE | KL) else term)
        for weight, term in target.terms()
    )
    first, *rest = terms
    return sum(rest, first)


OBJECTIVES: dict[str, type[_Single]] = {cls.name: cls for cls in (NLL, Brier, TopBrier, SCE, KL, AvUC, SoftBinnedECE)}

_TERM = re.compile(r"(?:(?P<weight>[0-9.][0-9.eE+-]*?)\s*\*\s*)?(?P<name>[a-z][a-z-]*)\s*(?:\((?P<options>[^()]*)\))?")


def objective(text: str | Objective) -> Objective:
    """An objective from its text, such as ``"sce + 0.01*kl"`` or ``"kl(direction=from-base)"``."""
    if isinstance(text, Objective):
        return text
    if not isinstance(text, str):
        raise InputError(f"objective must be a text or an Objective; got {type(text).__name__}")
    total: Objective | None = None
    for part in re.split(r"(?<![0-9.][eE])\+(?![^(]*\))", text):
        match = _TERM.fullmatch(part.strip())
        if match is None:
            raise InputError(f"objective {text!r}: cannot read {part.strip()!r}; write for example 'sce + 0.01*kl'")
        term: Objective = _single(match["name"], match["options"] or "", text)
        if match["weight"]:
            try:
                term = float(match["weight"]) * term
            except ValueError as error:
                raise InputError(f"objective {text!r}: {match['weight']!r} is not a number") from error
        total = term if total is None else total + term
    assert total is not None
    return total


def _single(name: str, options: str, text: str) -> Objective:
    if name not in OBJECTIVES:
        raise InputError(f"objective {text!r}: there is no {name!r}; there are {', '.join(OBJECTIVES)}")
    cls = OBJECTIVES[name]
    known = {field.name for field in fields(cls)}
    given: dict[str, str | float | None] = {}
    for pair in filter(None, (pair.strip() for pair in options.split(","))):
        key, _, value = (piece.strip() for piece in pair.partition("="))
        if key not in known:
            raise InputError(
                f"objective {text!r}: {name} has no option {key!r}; it has {', '.join(sorted(known)) or 'none'}"
            )
        given[key] = _value(value)
    try:
        return cls(**given)
    except TypeError as error:
        raise InputError(f"objective {text!r}: {name} cannot take {options!r}") from error


def _value(text: str) -> str | float | None:
    if text == "None":
        return None
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


def _text(term: Objective) -> str:
    """Name and the options that differ from their defaults."""
    assert isinstance(term, _Single)
    changed = [
        f"{field.name}={getattr(term, field.name)}"
        for field in fields(term)
        if getattr(term, field.name) != field.default
    ]
    return f"{term.name}({', '.join(changed)})" if changed else term.name
