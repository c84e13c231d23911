"""Our own ``.safetensors`` files: numbers as tensors, the rest as JSON in the header.

Nothing is unpickled, ever. A file is refused if its schema is newer than this library knows, or older than it can read.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal._version import __version__
from rhocal.data.atomic import writing
from rhocal.errors import FileError, InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike
    from pathlib import Path

    from numpy.typing import NDArray

Tensors = dict[str, np.ndarray[Any, Any]]


def write_tensors(
    path: str | PathLike[str], form: str, schema: int, card: Mapping[str, Any], tensors: Mapping[str, Any]
) -> None:
    """Write a file of one of our formats. The target appears whole or not at all."""
    from safetensors.numpy import save_file  # noqa: PLC0415

    try:
        text = json.dumps({"format": form, "schema": schema, "version": __version__, **card})
    except TypeError as error:
        raise InputError(f"this cannot be saved: {error}") from error
    with writing(path) as unfinished:
        save_file(
            {name: np.array(value, order="C") for name, value in tensors.items()}, unfinished, metadata={"rhocal": text}
        )


def read_tensors(path: Path, form: str, schema: int, what: str, oldest: int = 1) -> tuple[dict[str, Any], Tensors]:
    """The card and the tensors of a file that ``write_tensors`` wrote in that format."""
    card, tensors = _read(path, what)
    if card.get("format") != form:
        raise FileError(f"{path}: damaged, or not a {what} (it says {card.get('format')!r})")
    if int(card["schema"]) > schema:
        raise FileError(
            f"{path}: written by rhocal {card.get('version')} with schema {card['schema']}; this version ({__version__}) "
            f"reads up to schema {schema}. Upgrade rhocal"
        )
    if int(card["schema"]) < oldest:
        raise FileError(
            f"{path}: written by an earlier rhocal ({card.get('version')}) with schema {card['schema']}; this version "
            f"({__version__}) reads from schema {oldest} on. Make the {what} again"
        )
    return card, tensors


def format_of(path: Path) -> str | None:
    """Which of our formats a file is in; None if it is none of them."""
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415

    if path.suffix != ".safetensors" or not path.is_file():
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            text = (file.metadata() or {}).get("rhocal")
    except SafetensorError:
        return None
    try:
        return None if text is None else str(json.loads(text)["format"])
    except (ValueError, KeyError, TypeError):
        return None


def class_list(classes: NDArray[Any]) -> list[Any]:
    """The names of classes as JSON."""
    listed: list[Any] = classes.tolist()
    if not all(isinstance(name, str | int | float | bool) for name in listed):
        raise InputError(
            f"classes of type {type(listed[0]).__name__} cannot be saved; fit with texts or numbers as classes"
        )
    return listed


def _read(path: Path, what: str) -> tuple[dict[str, Any], Tensors]:
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
        raise FileError(f"{path}: a safetensors file, but not a rhocal {what} (it holds {', '.join(tensors)})")
    try:
        card = json.loads(metadata["rhocal"])
        int(card["schema"])
    except (ValueError, KeyError, TypeError) as error:
        raise FileError(f"{path}: damaged, its description cannot be read: {error}") from error
    return card, tensors
