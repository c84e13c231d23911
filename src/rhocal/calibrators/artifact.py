"""A fitted calibrator on disk: one ``.safetensors`` file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal._version import __version__
from rhocal.calibrators import CALIBRATORS, Calibrator
from rhocal.data.container import Tensors, class_list, read_tensors, write_tensors
from rhocal.errors import FileError
from rhocal.objectives import Objective
from rhocal.optimize import HeldOutScores, Solution

if TYPE_CHECKING:
    from os import PathLike

SCHEMA = 1
FORMAT = "rhocal-calibrator"


def save(calibrator: Calibrator, path: str | PathLike[str]) -> None:
    """Write a fitted calibrator. The target appears whole or not at all."""
    calibrator._fitted()  # noqa: SLF001
    tensors: Tensors = {}
    card = {
        "classes": class_list(calibrator.classes_),
        "kind": calibrator.kind_,
        **({} if calibrator.positive_ is None else {"positive": calibrator.positive_}),
        **({} if calibrator.columns_ is None else {"columns": list(calibrator.columns_)}),
        **_describe(calibrator, "", tensors),
    }
    # A file without tensors is allowed by the format but not by every reader.
    tensors["n_classes"] = np.array(len(calibrator.classes_))
    write_tensors(path, FORMAT, SCHEMA, card, tensors)


def load(path: str | PathLike[str]) -> Calibrator:
    """Read a calibrator that ``save`` wrote."""
    card, tensors = _read(Path(path))
    try:
        calibrator = _build(card, "", tensors, card)
        calibrator.positive_ = card.get("positive")
        calibrator.columns_ = tuple(card["columns"]) if "columns" in card else None
    except (KeyError, TypeError) as error:
        raise FileError(f"{path}: damaged, its description does not fit: {error}") from error
    except FileError as error:
        raise FileError(f"{path}: {error}") from error
    return calibrator


def _describe(calibrator: Calibrator, prefix: str, tensors: Tensors) -> dict[str, Any]:
    """Method, options and evidence of a calibrator and of those it is made of; their numbers go into ``tensors``."""
    for name in calibrator.parameters:
        tensors[prefix + name] = np.asarray(getattr(calibrator, name))
    string_attributes = {name: getattr(calibrator, name).tolist() for name in calibrator.string_attributes}
    inside = {name: _describe_children(calibrator, name, prefix, tensors) for name in calibrator.children}
    return {
        "method": calibrator.label,
        "options": _options(calibrator),
        "evidence": asdict(calibrator.solution_),
        **({"string_attributes": string_attributes} if string_attributes else {}),
        **({"inside": inside} if inside else {}),
    }


def _describe_children(calibrator: Calibrator, name: str, prefix: str, tensors: Tensors) -> Any:
    child = getattr(calibrator, name)
    if isinstance(child, Calibrator):
        return _describe(child, f"{prefix}{name}.", tensors)
    return [_describe(member, f"{prefix}{name}.{k}.", tensors) for k, member in enumerate(child)]


def _build(about: dict[str, Any], prefix: str, tensors: Tensors, card: dict[str, Any]) -> Calibrator:
    """The calibrator that ``_describe`` described."""
    calibrator = _unfitted(about)
    fitted: dict[str, Any] = {}
    for name in calibrator.parameters:
        if prefix + name not in tensors:
            raise FileError(f"damaged, the parameter {prefix + name} is missing")
        value = tensors[prefix + name]
        fitted[name] = value.item() if value.ndim == 0 else value
    for name in calibrator.string_attributes:
        fitted[name] = np.array(about["string_attributes"][name])
    for name in calibrator.children:
        inside = about["inside"][name]
        if isinstance(inside, list):
            fitted[name] = [_build(one, f"{prefix}{name}.{k}.", tensors, card) for k, one in enumerate(inside)]
        else:
            fitted[name] = _build(inside, f"{prefix}{name}.", tensors, card)
    calibrator.classes_ = np.asarray(card["classes"])
    # The children of a calibrator take validated logits, whatever kind the calibrator takes.
    calibrator.kind_ = card["kind"] if not prefix else "logits"
    calibrator.solution_ = _solution(about["evidence"])
    new_map = calibrator._new_map  # noqa: SLF001 - our own
    vars(calibrator)["map_"] = new_map(**{name.removesuffix("_"): value for name, value in fitted.items()})
    return calibrator


def _solution(evidence: dict[str, Any]) -> Solution:
    held_out = evidence.get("held_out")  # absent in artifacts of earlier versions
    scores = None if held_out is None else HeldOutScores(**held_out)
    return Solution(**{**evidence, "trials": tuple(evidence["trials"]), "held_out": scores})


def _unfitted(about: dict[str, Any]) -> Calibrator:
    """The calibrator with its options, before its numbers are set."""
    family = _family(about["method"])
    try:
        return family(**{name: _option(value) for name, value in about["options"].items()})
    except TypeError as error:
        raise FileError(f"its options do not fit {about['method']}: {error}") from error


def _family(name: str) -> type[Calibrator]:
    """The family of a method, or of its own name, which earlier versions wrote."""
    if name in CALIBRATORS or ":" in name:
        return CALIBRATORS.get(name, CALIBRATORS["svs:field"]).family  # any chain
    for method in CALIBRATORS.values():
        if method.family.name == name:
            return method.family
    raise FileError(f"this version ({__version__}) does not know the method {name!r}")


def card_of(path: str | PathLike[str]) -> dict[str, Any]:
    """The description in an artifact."""
    return _read(Path(path))[0]


def _read(path: Path) -> tuple[dict[str, Any], Tensors]:
    card, tensors = read_tensors(path, FORMAT, SCHEMA, what="calibrator")
    absent = {"method", "options", "classes", "kind", "evidence"} - card.keys()
    if absent:
        raise FileError(f"{path}: damaged, or not a calibrator (missing: {', '.join(sorted(absent))})")
    return card, tensors


def _options(calibrator: Calibrator) -> dict[str, Any]:
    return {name: _plain(value) for name, value in calibrator.get_params(deep=False).items()}


def _option(value: Any) -> Any:
    """An option from JSON, which has no tuples (options are never lists) and no calibrators."""
    if isinstance(value, list):
        return tuple(_option(one) for one in value)
    return _unfitted(value) if isinstance(value, dict) else value


def _plain(value: Any) -> Any:
    """An option as JSON; objectives have a text, calibrators a name and options."""
    if isinstance(value, Calibrator):
        return {"method": value.name, "options": _options(value)}
    if isinstance(value, Objective):
        return str(value)
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value
