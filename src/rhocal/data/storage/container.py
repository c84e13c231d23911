"""Our own ``.safetensors`` files: numbers as tensors, the rest as JSON in the header.

Nothing is unpickled, ever. A file is refused if its schema is newer than this library knows, or older than it can read.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from rhocal import __version__
from rhocal.data.storage.atomic import ARTIFACT_ENDING, writing
from rhocal.errors import FileError, InputError, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from os import PathLike
    from pathlib import Path

    from numpy.typing import NDArray

Tensors = dict[str, np.ndarray[Any, Any]]
T = TypeVar("T")

PROFILE = "rhocal-profile"
"""The format of profiles."""

FIT_A_PROFILE = "Fit a calibrator on it (rhocal fit), and use that with a file of scores"
"""What to do with a profile in the place of something else."""


def write_tensors(
    path: str | PathLike[str], form: str, schema: int, card: Mapping[str, Any], tensors: Mapping[str, Any]
) -> None:
    """Write a file of one of our formats. The target appears whole or not at all."""
    from safetensors.numpy import save_file  # noqa: PLC0415

    arrays = {name: np.array(value, order="C") for name, value in tensors.items()}
    described = {"format": form, "schema": schema, "version": __version__, **card}
    try:
        text = json.dumps({**described, "checksum": checksum(described, arrays)})
    except TypeError as error:
        raise InputError(f"this cannot be saved: {error}") from error
    with writing(path) as unfinished:
        save_file(arrays, unfinished, metadata={"rhocal": text})


def checksum(card: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 of a card without its checksum, and of the names, types, shapes and bytes of tensors.

    It detects damage. It is no signature: whoever writes a file can compute it.
    """
    described = {name: value for name, value in card.items() if name != "checksum"}
    digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
    for name, array in sorted(tensors.items()):
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def build_verified(
    path: Path, card: dict[str, Any], tensors: Tensors, build: Callable[[dict[str, Any], Tensors], T], since: int = 1
) -> T:
    """What ``build`` makes of a card and its tensors, which are then compared with their checksum.

    ``build`` compares them with their description first, which gives the better message. Files have a checksum since some
    schema.
    """
    try:
        value = build(card, tensors)
    except (FileError, InputError) as error:
        raise FileError(f"{path}: {error}") from error
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
        raise FileError(f"{path}: damaged, its description does not fit: {one_line(error)}") from error
    has_checksum = card["schema"] >= since or "checksum" in card
    if has_checksum and card.get("checksum") != checksum(card, tensors):
        raise FileError(f"{path}: damaged, its checksum does not fit its content")
    return value


def different_names(names: Any, what: str) -> list[str]:
    """Names of a card, which are different texts."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise FileError(f"damaged, its {what} are not different names")
    return names


def stored_smallest_prob(value: Any) -> float | None:
    """What smaller probabilities are raised to; None where scores are logits."""
    if value is not None and not (isinstance(value, float) and 0 < value <= 0.5):
        raise FileError(f"damaged, smallest_prob is {value!r}, not a number between 0 and 0.5")
    return value


def read_tensors(path: Path, form: str, schema: int, what: str, oldest: int = 1) -> tuple[dict[str, Any], Tensors]:
    """The card and the tensors of a file that ``write_tensors`` wrote in that format; ``build_verified`` takes them."""
    card, tensors = _read(path, what)
    if card.get("format") == PROFILE != form:
        raise FileError(f"{path}: this is a profile, not a {what}. {FIT_A_PROFILE}")
    if card.get("format") != form:
        raise FileError(f"{path}: damaged, or not a {what} (it says {card.get('format')!r})")
    if card["schema"] > schema:
        raise FileError(
            f"{path}: written by rhocal {card.get('version')} with schema {card['schema']}; this version ({__version__}) "
            f"reads up to schema {schema}. Upgrade rhocal"
        )
    if card["schema"] < oldest:
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
    except (SafetensorError, OSError):
        return None
    try:
        return None if text is None else str(json.loads(text)["format"])
    except (ValueError, KeyError, TypeError, RecursionError):
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
    from safetensors import safe_open  # noqa: PLC0415

    if path.is_dir():
        raise FileError(f"{path}: a folder, not a {what}")
    if not path.is_file():
        raise FileError(f"{path}: no such file")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {one_line(error)}") from error
    except Exception as error:
        hint = "" if path.suffix == ARTIFACT_ENDING else f". A {what} is a {ARTIFACT_ENDING} file that rhocal wrote"
        raise FileError(f"{path}: not a safetensors file, or damaged: {one_line(error)}{hint}") from error
    if "rhocal" not in metadata:
        raise FileError(f"{path}: a safetensors file, but not a rhocal {what} (it holds {', '.join(tensors)})")
    try:
        card = json.loads(metadata["rhocal"])
        schema = card["schema"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FileError(f"{path}: damaged, its description cannot be read: {one_line(error)}") from error
    if not isinstance(card, dict) or type(schema) is not int:
        raise FileError(f"{path}: damaged, its description cannot be read: its schema is {schema!r}")
    return card, tensors


def class_array(listed: Any) -> NDArray[Any]:
    """The names of classes that ``class_list`` wrote: at least two, different, all texts or all numbers."""
    kinds = {"text" if isinstance(name, str) else "number" for name in listed} if isinstance(listed, list) else set()
    if len(kinds) != 1 or not all(isinstance(name, str | int | float) for name in listed):
        raise FileError("damaged, its classes are neither texts nor numbers")
    names = np.asarray(listed)
    if names.dtype.kind not in "UiufbO" or (names.dtype.kind == "f" and not np.isfinite(names).all()):
        raise FileError("damaged, its classes are not finite numbers")
    if len(listed) < 2 or len(set(listed)) != len(listed):
        raise FileError(f"damaged, it has {len(listed)} classes, {len(set(listed))} of them different")
    return names
