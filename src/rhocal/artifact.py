"""A fitted calibrator on disk: one ``.safetensors`` file, numbers as tensors, the rest as JSON in its header.

Nothing is unpickled, ever. A file is refused if its schema is newer than this library knows.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal._version import __version__
from rhocal.atomic import writing
from rhocal.calibrators import CALIBRATORS, Calibrator
from rhocal.errors import FileError, InputError
from rhocal.objectives import Objective
from rhocal.solve import Solution

if TYPE_CHECKING:
    from os import PathLike

Tensors = dict[str, np.ndarray[Any, Any]]

SCHEMA = 1
FORMAT = "rhocal-calibrator"


def save(calibrator: Calibrator, path: str | PathLike[str]) -> None:
    """Write a fitted calibrator. The target appears whole or not at all."""
    from safetensors.numpy import save_file  # noqa: PLC0415

    calibrator._fitted()  # noqa: SLF001
    tensors: Tensors = {}
    card = {
        "format": FORMAT,
        "schema": SCHEMA,
        "version": __version__,
        "classes": _class_list(calibrator),
        "kind": calibrator.kind_,
        **_describe(calibrator, "", tensors),
    }
    # A file without tensors is allowed by the format but not by every reader.
    tensors["n_classes"] = np.array(len(calibrator.classes_))
    try:
        text = json.dumps(card)
    except TypeError as error:
        raise InputError(f"this calibrator cannot be saved: {error}") from error
    with writing(path) as unfinished:
        save_file(tensors, unfinished, metadata={"rhocal": text})


def load(path: str | PathLike[str]) -> Calibrator:
    """Read a calibrator that ``save`` wrote."""
    card, tensors = _read(Path(path))
    try:
        return _build(card, "", tensors, card)
    except (KeyError, TypeError) as error:
        raise FileError(f"{path}: damaged, its description does not fit: {error}") from error
    except FileError as error:
        raise FileError(f"{path}: {error}") from error


def _describe(calibrator: Calibrator, prefix: str, tensors: Tensors) -> dict[str, Any]:
    """Method, options and evidence of a calibrator and of those it is made of; their numbers go into ``tensors``."""
    for name in calibrator.parameters:
        tensors[prefix + name] = np.array(getattr(calibrator, name), order="C")
    inside = {name: _describe_children(calibrator, name, prefix, tensors) for name in calibrator.children}
    return {
        "method": calibrator.name,
        "options": _options(calibrator),
        "evidence": asdict(calibrator.solution_),
        **({"inside": inside} if inside else {}),
    }


def _describe_children(calibrator: Calibrator, name: str, prefix: str, tensors: Tensors) -> Any:
    found = getattr(calibrator, name)
    if isinstance(found, Calibrator):
        return _describe(found, f"{prefix}{name}.", tensors)
    return [_describe(one, f"{prefix}{name}.{k}.", tensors) for k, one in enumerate(found)]


def _build(about: dict[str, Any], prefix: str, tensors: Tensors, card: dict[str, Any]) -> Calibrator:
    """The calibrator that ``_describe`` described."""
    calibrator = _unfitted(about)
    for name in calibrator.parameters:
        if prefix + name not in tensors:
            raise FileError(f"damaged, the parameter {prefix + name} is missing")
        value = tensors[prefix + name]
        setattr(calibrator, name, value.item() if value.ndim == 0 else value)
    for name in calibrator.children:
        inside = about["inside"][name]
        if isinstance(inside, list):
            built = [_build(one, f"{prefix}{name}.{k}.", tensors, card) for k, one in enumerate(inside)]
            setattr(calibrator, name, built)
        else:
            setattr(calibrator, name, _build(inside, f"{prefix}{name}.", tensors, card))
    calibrator.classes_ = np.asarray(card["classes"])
    # What a calibrator is made of sees checked logits, whatever kind came in at the door.
    calibrator.kind_ = card["kind"] if not prefix else "logits"
    calibrator.solution_ = Solution(**{**about["evidence"], "trials": tuple(about["evidence"]["trials"])})
    return calibrator


def _unfitted(about: dict[str, Any]) -> Calibrator:
    """The calibrator with its options, before its numbers are set."""
    families = {method.family.name: method.family for method in CALIBRATORS.values()}
    if about["method"] not in families:
        raise FileError(f"this version ({__version__}) does not know the method {about['method']!r}")
    try:
        return families[about["method"]](**{name: _option(value) for name, value in about["options"].items()})
    except TypeError as error:
        raise FileError(f"its options do not fit {about['method']}: {error}") from error


def card_of(path: str | PathLike[str]) -> dict[str, Any]:
    """What an artifact says about itself."""
    return _read(Path(path))[0]


def _read(path: Path) -> tuple[dict[str, Any], Tensors]:
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415

    if not path.is_file():
        raise FileError(f"{path}: no such file")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except SafetensorError as error:
        raise FileError(f"{path}: not a safetensors file, or damaged: {error}") from error
    if "rhocal" not in metadata:
        raise FileError(f"{path}: a safetensors file, but not a rhocal calibrator (it holds {', '.join(tensors)})")
    try:
        card = json.loads(metadata["rhocal"])
        schema = int(card["schema"])
    except (ValueError, KeyError, TypeError) as error:
        raise FileError(f"{path}: damaged, its description cannot be read: {error}") from error
    if schema > SCHEMA:
        raise FileError(
            f"{path}: written by rhocal {card.get('version')} with schema {schema}; this version ({__version__}) reads up "
            f"to schema {SCHEMA}. Upgrade rhocal"
        )
    absent = {"format", "method", "options", "classes", "kind", "evidence"} - card.keys()
    if absent or card["format"] != FORMAT:
        raise FileError(f"{path}: damaged, or not a calibrator (missing: {', '.join(sorted(absent)) or 'its format'})")
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


def _class_list(calibrator: Calibrator) -> list[Any]:
    classes: list[Any] = calibrator.classes_.tolist()
    if not all(isinstance(name, str | int | float | bool) for name in classes):
        raise InputError(
            f"classes of type {type(classes[0]).__name__} cannot be saved; fit with texts or numbers as classes"
        )
    return classes
