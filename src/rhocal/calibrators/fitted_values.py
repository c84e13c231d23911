"""Which values a fitted attribute may have: type, shape, range and order, declared once beside its name.

``temperature_ = Fitted[float](minimum=SMALLEST_POSITIVE)`` and ``knots_ = Fitted[Vector](shape="maps knots", increasing=True)``
are such declarations. ``validate_fitted`` compares a calibrator with them before it is saved and when it is loaded: an artifact
may come from anybody. What one attribute requires of another is among the ``constraints`` of a family.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rhocal.errors import InputError

SMALLEST_POSITIVE = sys.float_info.min
"""The smallest temperature, unit or scale: its inverse is finite."""

POSITIVE: dict[str, Any] = {"minimum": SMALLEST_POSITIVE, "maximum": sys.float_info.max}
"""The limits of temperatures, units and scales."""

LARGEST_MAGNITUDE = 1e150
"""Fitted numbers are no larger in magnitude, so that the product of two is finite."""

Numbers = Mapping[str, Any]
"""Fitted values by name, without the underscore at the end, ``n_classes``, and the ``calibrator`` with its options."""

Constraint = tuple[str, Callable[[Numbers], bool]]
"""What holds between fitted values, in words and as a function."""

DType = Literal["float", "integer", "bool"]
DTYPE_KINDS: dict[DType, str] = {"float": "f", "integer": "iu", "bool": "b"}


@dataclass(frozen=True)
class Values:
    """The values that a fitted attribute may have."""

    shape: str = ""
    """Names of the lengths, ``"classes classes"``; empty for one number. ``|`` separates alternatives. A length of the same
    name is the same in all attributes of a family; ``classes`` is the number of classes; digits are a length itself."""
    dtype: DType = "float"
    minimum: float = -LARGEST_MAGNITUDE
    maximum: float = LARGEST_MAGNITUDE
    allows_nan: bool = False
    allows_empty: bool = False
    increasing: bool = False
    """Whether the numbers of each row increase, up to the first NaN."""

    def check(self, name: str, value: Any, lengths: dict[str, int]) -> None:
        """Raise an error if the value is none of these; lengths that it has under new names are added."""
        array = np.asarray(value)
        if array.dtype.kind not in DTYPE_KINDS[self.dtype]:
            raise InputError(f"{name} is of type {array.dtype}, not {self.dtype}")
        self.check_shape(name, array.shape, lengths)
        numbers = array.astype(np.float64)
        present = numbers[~np.isnan(numbers)] if self.allows_nan else numbers
        if not ((present >= self.minimum) & (present <= self.maximum)).all():
            raise InputError(f"{name} has a value that is not a number from {self.minimum:g} to {self.maximum:g}")
        if self.increasing and not all(map(_increases, np.atleast_2d(numbers))):
            raise InputError(f"{name} does not increase")

    def check_shape(self, name: str, shape: tuple[int, ...], lengths: dict[str, int]) -> None:
        """Raise an error if the shape is none of the alternatives."""
        for alternative in self.shape.split("|"):
            names = alternative.split()
            known = [int(one) if one.isdigit() else lengths.get(one) for one in names]
            smallest = 0 if self.allows_empty else 1
            if len(names) == len(shape) and all(
                length >= smallest and expected in {None, length} for length, expected in zip(shape, known, strict=True)
            ):
                fresh = {one: length for one, length in zip(names, shape, strict=True) if not one.isdigit()}
                if all(fresh[one] == length for one, length in zip(names, shape, strict=True) if one in fresh):
                    lengths.update(fresh)
                    return
        seen = ", ".join(f"{one} = {length}" for one, length in lengths.items())
        raise InputError(f"{name} has shape {shape}; it should be ({self.shape or 'one number'}) with {seen}")


def _increases(row: np.ndarray[Any, Any]) -> bool:
    """Whether numbers increase strictly and only NaN follow them."""
    is_missing = np.isnan(row)
    present = row[: len(row) - int(is_missing.sum())]
    return bool((present[1:] > present[:-1]).all()) and not np.isnan(present).any()


def validate_fitted(calibrator: Any, fitted: Numbers) -> None:
    """Raise an error if fitted values are not what the family of a calibrator declares."""
    from rhocal.calibrators.options import declarations  # noqa: PLC0415 - it imports this module

    family: type = type(calibrator)
    n_classes = len(calibrator.classes_)
    lengths = {"classes": n_classes}
    for name, declared in declarations(family).items():
        value = fitted[name.removesuffix("_")]
        if declared.kind == "number":
            declared.values.check(name, value, lengths)
        elif declared.kind == "names":
            _check_names(name, np.asarray(value), declared.values, lengths)
        elif declared.values.shape:
            declared.values.check_shape(name, (len(value),), lengths)
    numbers = {**fitted, "n_classes": n_classes, "calibrator": calibrator}
    for sentence, holds in family.constraints:  # type: ignore[attr-defined]
        if not holds(numbers):
            raise InputError(f"it does not hold that {sentence}")


def _check_names(name: str, value: np.ndarray[Any, Any], values: Values, lengths: dict[str, int]) -> None:
    if value.size and value.dtype.kind not in "Uiu":
        raise InputError(f"{name} are neither texts nor whole numbers but of type {value.dtype}")
    values.check_shape(name, value.shape, lengths)
    if not (value[1:] > value[:-1]).all():
        raise InputError(f"{name} are not sorted, or not different")
