"""The base of objectives: frozen values that add and scale, with their slopes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar

from rhocal.errors import InputError
from rhocal.numerics.caching import cached_property
from rhocal.numerics.special import Vector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rhocal.profile.statistics import Facts

Slopes = dict[str, Vector]
"""The derivative in each statistic of each sample."""


class Objective(ABC):
    """A function of per-sample statistics, with its slope."""

    @property
    @abstractmethod
    def needs(self) -> frozenset[str]:
        """The statistics it depends on."""

    @abstractmethod
    def evaluate(self, values: Mapping[str, Vector], facts: Facts) -> tuple[float, Slopes]:
        """The value, and its derivative in each statistic of each sample."""

    @property
    def needs_preparation(self) -> bool:
        """Whether ``prepare`` has to set an option from the data."""
        return any(type(term).prepare is not Objective.prepare for _, term in self.terms())

    def prepare(self, values: Mapping[str, Vector], facts: Facts) -> Objective:  # noqa: ARG002
        """The objective with options that depend on the data (thresholds) set, once, before the fit."""
        return self

    def on_batch(self) -> Objective:
        """The same objective as the loss of one drawn mini-batch (Algorithm 1)."""
        return self

    @property
    def gap_weights(self) -> tuple[float, float, float] | None:
        """(a, b, c) if it is a·mean(d)² + b·mean(d²) + c·NLL with d = correct − confidence, else None."""
        return None

    @abstractmethod
    def terms(self) -> tuple[tuple[float, Objective], ...]:
        """The weighted single objectives that it is the sum of."""

    def __add__(self, other: Objective) -> Objective:
        if not isinstance(other, Objective):
            return NotImplemented
        return Sum(self.terms() + other.terms())

    def __mul__(self, factor: float) -> Objective:
        if not isinstance(factor, int | float):
            return NotImplemented
        if not (math.isfinite(factor) and factor >= 0):
            raise InputError(f"the weight of an objective must be finite and not negative; got {factor!r}")
        return Sum(tuple((factor * weight, term) for weight, term in self.terms()))

    __rmul__ = __mul__

    def __str__(self) -> str:
        return " + ".join(_text(term) if weight == 1 else f"{weight!r}*{_text(term)}" for weight, term in self.terms())

    def __repr__(self) -> str:
        return f"objective({str(self)!r})"


@dataclass(frozen=True, repr=False)
class Single(Objective):
    """One objective with a name; the fields of the class are its options."""

    name: ClassVar[str]
    statistics: ClassVar[frozenset[str]]
    """The statistics it depends on."""

    @property
    def needs(self) -> frozenset[str]:
        return self.statistics

    def terms(self) -> tuple[tuple[float, Objective], ...]:
        return ((1.0, self),)


@dataclass(frozen=True, repr=False)
class Sum(Objective):
    """Several objectives added up, each with its weight."""

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

    def prepare(self, values: Mapping[str, Vector], facts: Facts) -> Objective:
        return Sum(tuple((weight, term.prepare(values, facts)) for weight, term in self.weighted))

    @cached_property
    def gap_weights(self) -> tuple[float, float, float] | None:
        total = (0.0, 0.0, 0.0)
        for weight, term in self.weighted:
            if term.gap_weights is None:
                return None
            a, b, c = (x + weight * y for x, y in zip(total, term.gap_weights, strict=True))
            total = (a, b, c)
        return total

    def on_batch(self) -> Objective:
        return Sum(tuple((weight, term.on_batch()) for weight, term in self.weighted))


def _text(term: Objective) -> str:
    """Name and the options that differ from their defaults."""
    assert isinstance(term, Single)
    changed = [
        f"{field.name}={getattr(term, field.name)}"
        for field in fields(term)
        if getattr(term, field.name) != field.default
    ]
    return f"{term.name}({', '.join(changed)})" if changed else term.name
