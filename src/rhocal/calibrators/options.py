"""What a family declares: options, which the user sets, and fitted numbers, which a fit sets.

Options are the fields of a ``@dataclass(eq=False, repr=False)``. Their types state the choices (``Literal``), ``option`` states
the limits. ``validate_options`` checks both at the start of a fit, and ``rhocal methods`` prints both.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Generic, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints, overload

import numpy as np

from rhocal.calibrators.fitted_values import Values
from rhocal.errors import InputError, not_fitted

T = TypeVar("T")
Check = Callable[[Any], bool]


def option(
    default: Any = MISSING,
    *,
    minimum: float | None = None,
    above: float | None = None,
    maximum: float | None = None,
    finite: bool = False,
    stage: bool = False,
) -> Any:
    """Declare an option that has limits, or that is a calibrator itself (``stage``).

    The limits are for numbers, also for those in a sequence. A stage may be given by its name; its own options are then
    written ``stage__option``.
    """
    limits = Limits(minimum, above, maximum, finite)
    return field(default=default, metadata={"limits": limits, "stage": stage})


@dataclass(frozen=True)
class Limits:
    """Between which values a number lies."""

    minimum: float | None = None
    above: float | None = None
    maximum: float | None = None
    finite: bool = False

    def __contains__(self, value: float) -> bool:
        return (
            not math.isnan(value)
            and (self.minimum is None or value >= self.minimum)
            and (self.above is None or value > self.above)
            and (self.maximum is None or value <= self.maximum)
            and not (self.finite and math.isinf(value))
        )

    def describe(self, noun: str) -> str:
        """The noun with its limits.

        >>> Limits(1, maximum=20).describe("whole number"), Limits(above=0).describe("number")
        ('a whole number from 1 to 20', 'a number above 0')
        """
        noun = f"a finite {noun}" if self.finite else f"a {noun}"
        if self.minimum is not None and self.maximum is not None:
            return f"{noun} from {self.minimum:g} to {self.maximum:g}"
        parts = (("of at least", self.minimum), ("above", self.above), ("of at most", self.maximum))
        return " ".join([noun, *(f"{relation} {limit:g}" for relation, limit in parts if limit is not None)])


@dataclass(frozen=True)
class Option:
    """An option as its family declares it."""

    name: str
    default: Any
    is_stage: bool
    accepts: Check
    """Whether a value has the type and lies within the limits."""
    values: str
    """The values it accepts, in words."""


@cache
def options_of(family: type) -> tuple[Option, ...]:
    """The options of a family, in the order of its declaration."""
    declared = []
    for item in fields(family):
        if item.init:
            hint, limits = _type_of(family, item.name), item.metadata.get("limits", Limits())
            is_stage = bool(item.metadata.get("stage"))
            declared.append(Option(item.name, item.default, is_stage, _check(hint, limits), _describe(hint, limits)))
    return tuple(declared)


def validate_options(calibrator: Any) -> None:
    """Raise if an option of a calibrator has a value that its declaration does not allow."""
    family: type = type(calibrator)
    for declared in options_of(family):
        value = getattr(calibrator, declared.name)
        if not declared.accepts(value):
            raise InputError(f"{declared.name} is {declared.values}; got {value!r}")


class Fitted(Generic[T]):
    """A fitted attribute of a calibrator, read from ``map_.fitted``: ``temperature_ = Fitted[float](minimum=1e-300)``.

    ``kind`` is ``"number"`` for a number or an array of numbers, ``"names"`` for an array of texts or whole numbers, and
    ``"calibrator"`` for a fitted calibrator or, with a shape, a list of them. The rest are the ``Values`` that it may have.
    """

    def __init__(self, kind: Literal["number", "names", "calibrator"] = "number", **values: Any) -> None:
        self.kind, self.values = kind, Values(**values)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, calibrator: None, owner: type) -> Self: ...
    @overload
    def __get__(self, calibrator: object, owner: type) -> T: ...
    def __get__(self, calibrator: object | None, owner: type) -> Self | T:
        if calibrator is None:
            return self
        if "solution_" not in vars(calibrator):
            raise not_fitted(
                f"this {owner.__name__} is not fitted yet: it has no {self.name}; call fit(logits, labels) first"
            )
        value: T = vars(calibrator)["map_"].fitted[self.name.removesuffix("_")]
        return value

    def __set__(self, calibrator: Any, value: T) -> None:
        fitted = {**calibrator.map_.fitted, self.name.removesuffix("_"): value}
        vars(calibrator)["map_"] = calibrator._new_map(**fitted)  # noqa: SLF001 - our own


def declarations(family: type) -> dict[str, Fitted[Any]]:
    """The fitted attributes of a family, those of base classes first."""
    declared = {name: value for base in reversed(family.__mro__) for name, value in vars(base).items()}
    return {name: value for name, value in declared.items() if isinstance(value, Fitted)}


def fitted_attributes(family: type, kind: str) -> tuple[str, ...]:
    """The names of the fitted attributes of a kind."""
    return tuple(name for name, declared in declarations(family).items() if declared.kind == kind)


def _type_of(family: type, name: str) -> Any:
    """The type of a field, evaluated where it was written."""
    owner = next(base for base in family.__mro__ if name in inspect.get_annotations(base))
    annotation = SimpleNamespace(__annotations__={name: inspect.get_annotations(owner)[name]})
    return get_type_hints(annotation, vars(inspect.getmodule(owner)))[name]


def _alternatives(hint: Any) -> Sequence[Any]:
    """The members of a union, its words first and None last."""
    members: Sequence[Any] = get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)
    literal: Any = Literal
    return sorted(members, key=lambda member: (member is NoneType, get_origin(member) is not literal))


def _check(hint: Any, limits: Limits) -> Check:
    """Whether a value has the type and lies within the limits, as a function: types are taken apart once."""
    checks = [_check_alternative(part, limits) for part in _alternatives(hint)]
    return lambda value: any(check(value) for check in checks)


def _check_alternative(hint: Any, limits: Limits) -> Check:
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        return lambda value: isinstance(value, str) and value in choices
    if get_origin(hint) is Sequence:
        check_item = _check(get_args(hint)[0], limits)
        return lambda value: _is_sequence(value) and len(value) > 0 and all(map(check_item, value))
    if hint is bool:
        return _is_bool
    if hint in {int, float}:
        kinds = (int, np.integer) if hint is int else (int, float, np.integer, np.floating)
        return lambda value: isinstance(value, kinds) and not _is_bool(value) and float(value) in limits
    return lambda value: isinstance(value, hint)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


def _is_sequence(value: Any) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str | Mapping)


def _describe(hint: Any, limits: Limits) -> str:
    alternatives = [text for part in _alternatives(hint) for text in _describe_alternative(part, limits)]
    return " or ".join(filter(None, [", ".join(alternatives[:-1]), alternatives[-1]]))


def _describe_alternative(hint: Any, limits: Limits) -> list[str]:
    if get_origin(hint) is Literal:
        return [repr(choice) for choice in get_args(hint)]
    if get_origin(hint) is Sequence:
        return [f"a sequence of at least one item, each {_describe(get_args(hint)[0], limits)}"]
    if hint is bool:
        return ["True", "False"]
    if hint in {int, float}:
        return [limits.describe("whole number" if hint is int else "number")]
    name = {NoneType: "None", str: "a string"}.get(hint)
    return [name or f"{'an' if hint.__name__[0] in 'AEIOU' else 'a'} {hint.__name__}"]
