"""scikit-learn's protocol for calibrators, without importing it: options, output containers, how a calibrator is shown.

``Calibrator`` has the methods that scikit-learn calls; these functions do their work.
"""

from __future__ import annotations

import html
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from rhocal.calibrators.options import options_of
from rhocal.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rhocal.calibrators.base import Calibrator

C = TypeVar("C", bound="Calibrator")
P = ParamSpec("P")


def unchanged_on_error(fit: Callable[Concatenate[C, P], C]) -> Callable[Concatenate[C, P], C]:
    """A fit that leaves the calibrator as it was if it fails."""

    @wraps(fit)
    def fit_or_restore(calibrator: C, /, *args: P.args, **kwargs: P.kwargs) -> C:
        before = vars(calibrator).copy()
        try:
            return fit(calibrator, *args, **kwargs)
        except BaseException:
            vars(calibrator).clear()
            vars(calibrator).update(before)
            raise

    return fit_or_restore


def get_options(calibrator: Calibrator, *, deep: bool) -> dict[str, Any]:
    """The options as they were set; ``deep`` adds those of its stages as ``stage__option``."""
    declared = options_of(type(calibrator))
    options = {item.name: getattr(calibrator, item.name) for item in declared}
    for stage in (item.name for item in declared if deep and item.is_stage):
        inner = unfitted(options[stage]).get_params()
        options |= {f"{stage}__{name}": value for name, value in inner.items()}
    return options


def set_options(calibrator: Calibrator, options: dict[str, Any]) -> None:
    """Change options, also those of stages."""
    declared = {item.name: item for item in options_of(type(calibrator))}
    for name, value in options.items():
        stage, _, inner = name.partition("__")
        if inner and stage in declared and declared[stage].is_stage:
            setattr(calibrator, stage, unfitted(getattr(calibrator, stage)).set_params(**{inner: value}))
        elif name in declared:
            setattr(calibrator, name, value)
        else:
            known = ", ".join(declared) or "none"
            raise InputError(f"{type(calibrator).__name__} has no option {name!r}; it has {known}")


def describe_options(calibrator: Calibrator) -> dict[str, dict[str, str]]:
    """The value of every option, and the values it accepts, in words; those of stages as ``stage__option``."""
    rows: dict[str, dict[str, str]] = {}
    for item in options_of(type(calibrator)):
        value = getattr(calibrator, item.name)
        rows[item.name] = {"default": str(value), "values": item.values}
        if item.is_stage:
            inner = describe_options(unfitted(value))
            rows |= {f"{item.name}__{name}": row for name, row in inner.items()}
    return rows


def output_container(transform: str | None, current: str | None) -> str | None:
    """The container that ``set_output`` asks for; None is a NumPy array."""
    if transform not in {None, "default", "pandas", "polars"}:
        raise InputError(f"transform is default, pandas or polars; got {transform!r}")
    if transform is None:
        return current
    return None if transform == "default" else transform


def text(calibrator: Calibrator) -> str:
    """The class and the options that differ from their defaults."""
    options = [(item.name, getattr(calibrator, item.name), item.default) for item in options_of(type(calibrator))]
    changed = [f"{name}={value!r}" for name, value, default in options if not _same(value, default)]
    return f"{type(calibrator).__name__}({', '.join(changed)})"


def html_text(calibrator: Calibrator) -> str:
    """What a notebook shows: the text and the fitted numbers."""
    values = {name: getattr(calibrator, name, [0]) for name in calibrator.parameters}
    numbers = ", ".join(f"{name} = {value:.6g}" for name, value in values.items() if np.ndim(value) == 0)
    return f"<pre>{html.escape(text(calibrator))}{'<br>' if numbers else ''}{numbers}</pre>"


def unfitted(stage: str | Calibrator) -> Calibrator:
    """A calibrator with the same options that is not fitted, from a calibrator or from the name of a method."""
    if isinstance(stage, str):
        from rhocal.calibrators.registry import calibrator  # noqa: PLC0415 - the registry imports families when used

        return calibrator(stage)
    return type(stage)(**stage.get_params(deep=False))


def _same(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and bool(np.all(a == b)))
