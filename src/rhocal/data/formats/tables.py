"""Tables: which columns hold the classes, and tables in memory as files whose arrays are known."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.columns import LABEL_COLUMNS, first_number, is_index, is_other, name_key, shown
from rhocal.data.formats.base import Arrays, Names, StoredFile
from rhocal.data.formats.copies import CopiedArray, as_objects, matrix_of
from rhocal.errors import FileError, InputError, counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

FRACTIONS, ONES, WHOLE, TEXT, LISTS = "fractions", "zeros and ones", "whole numbers", "texts", "lists"
"""What a column holds. Zeros and ones may be probabilities, or counts."""

NUMBER_KINDS = (FRACTIONS, ONES, WHOLE)


def table_file(
    path: Path, table: Mapping[str, NDArray[Any]], names: Names, place: Callable[[int], str] = "row {}".format
) -> StoredFile:
    """A table in memory: every column is an array, and the columns of classes together are the logits.

    ``place`` is what messages call a row.
    """
    kinds = {name: column_kind(values) for name, values in table.items()}
    classes = class_columns(path, kinds, names, lambda: table.get(names.labels))
    arrays: dict[str, Any] = dict(table)
    if classes is None:
        return StoredFile(path, arrays, has_blocks=False)
    for name in classes:
        if table[name].dtype.kind not in "iuf":
            raise _not_numbers(path, name, table[name], place)
        arrays.pop(name, None)
    arrays[names.logits] = np.column_stack([table[name].astype(np.float64) for name in classes])
    unused = tuple(name for name in table if name not in {*classes, *names.beside})
    return StoredFile(path, arrays, has_blocks=False, columns=classes, unused=unused)


def columns_of(arrays: Arrays, *, has_lists: bool = False) -> Arrays:
    """Arrays as columns of a table: a matrix as one column a class, named by ``classes`` where these are there.

    A single column of logits is that of the second of two classes. Copied lists stay one column where the table has room for
    them (``has_lists``); otherwise those of one length are numbered columns.
    """
    columns: list[tuple[str, str, Any]] = []  # column, the array that it comes from, values
    n_rows = len(next(iter(arrays.values())))
    classes = arrays.get("classes", np.array([]))
    for name, array in arrays.items():
        if name == "classes":
            continue
        if isinstance(array, CopiedArray) and array.ndim > 1 and has_lists:
            columns.append((name, name, array))
        elif (matrix := None if has_lists else matrix_of(array)) is not None and matrix.shape[1]:
            columns += [(f"{name}_{j}", name, matrix[:, j]) for j in range(matrix.shape[1])]
        elif isinstance(array, CopiedArray) and array.ndim > 1:  # no list of plain values
            columns.append((name, name, as_objects(array.tolist())))
        elif array.ndim == 2:
            names = classes.tolist() if len(classes) == array.shape[1] else range(array.shape[1])
            columns += [(f"{name}_{label}", name, array[:, j]) for j, label in enumerate(names)]
        elif array.ndim == 1 and len(array) == n_rows:
            of_class = f"_{classes[1]}" if name == Names.logits and len(classes) == 2 else ""
            columns.append((name + of_class, name, array))
    _refuse_equal_names(columns, has_lists=has_lists)
    return {column: values for column, _, values in columns}


def _refuse_equal_names(columns: Sequence[tuple[str, str, Any]], *, has_lists: bool) -> None:
    """Raise an error where one column would replace another."""
    first: dict[str, str] = {}
    for column, source, _ in columns:
        if column in first:
            whole = "" if has_lists else "; or write .jsonl or .parquet, where copied lists stay one column"
            raise InputError(
                f"{shown([first[column]])} and {shown([source])} would both be written as column {column!r}: rename one of "
                f"them, or leave it out{whole}"
            )
        first[column] = source


def column_kind(values: NDArray[Any]) -> str:
    """What a column in memory holds. Numbers with other entries among them count as numbers: they are not left out silently."""
    if values.ndim > 1 or (values.dtype.kind == "O" and any(isinstance(value, list) for value in values.flat)):
        return LISTS
    if values.dtype.kind not in "iuf":
        return FRACTIONS if any(is_number(str(value)) for value in values.flat) else TEXT
    if (values != np.round(values)).any():
        return FRACTIONS
    return WHOLE if np.abs(values).max(initial=0) > 1 else ONES


def is_number(text: str) -> bool:
    """Whether a text is a number; 1_0 is one in Python only."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def class_columns(
    path: Path, kinds: Mapping[str, str], names: Names, labels: Callable[[], NDArray[Any] | None]
) -> tuple[str, ...] | None:
    """The columns that hold one class each; None where a single column holds the logits, or none does.

    They are named by the caller, named as the classes or as the labels, numbered (``logit_0``), or begin with the name of
    the logits (``logits_cat``). Otherwise all columns of numbers are classes, if there are as many as labels show. Beside
    classes that are inferred there may be columns of texts, of usual other names (``id``) and pandas' index; any other column
    of numbers may be a class, and is an error.
    """
    if names.columns is not None:
        missing = [name for name in names.columns if name not in kinds]
        if missing:
            raise FileError(f"{path}: no column {shown(missing)}; the columns are {shown(kinds)}")
        return tuple(name for name in kinds if name in names.columns) if names.in_table_order else names.columns
    numeric = [name for name, kind in kinds.items() if kind in NUMBER_KINDS and name not in names.beside]
    numeric = [name for name in numeric if not (is_index(name) and kinds[name] != FRACTIONS)]
    if names.logits in kinds:
        return None
    chosen = None
    if names.classes is not None:
        single = [name for name, kind in kinds.items() if kind != LISTS and name not in names.beside]
        chosen = _named(numeric, names.classes) or _named(
            single, names.classes
        )  # texts are refused where they are read
    if chosen is None and not numeric:
        return None
    values = _label_values(labels)
    if names.classes is not None and chosen is None:
        _refuse_missing(path, kinds, numeric, names.classes)
    chosen = chosen or _named_as_labels(path, kinds, names, numeric, values)
    chosen = chosen or _numbered(path, kinds, names, numeric, values)
    return chosen or _all_numbers(path, kinds, names, numeric, values)


def _refuse_missing(path: Path, kinds: Mapping[str, str], numeric: list[str], classes: Sequence[Any]) -> None:
    """Raise an error where some classes have a column of their name and others have none.

    Of two classes one column may be enough, and numbers may be positions.
    """
    have = {name_key(name) for name in numeric}
    missing = [name for name in classes if name_key(name) not in have]
    if len(classes) > 2 and 0 < len(missing) < len(classes) and not any(is_number(str(name)) for name in classes):
        raise FileError(f"{path}: no column {shown(missing)} for a class of that name; the columns are {shown(kinds)}")


def _named_as_labels(
    path: Path, kinds: Mapping[str, str], names: Names, numeric: list[str], values: NDArray[Any] | None
) -> tuple[str, ...] | None:
    """The columns whose names are the labels: texts, or numbers that do not count columns."""
    if values is None or not (values.dtype.kind == "U" or (values.dtype.kind == "i" and values.min() < 0)):
        return None
    matching = _named(numeric, values.tolist())
    if matching is None:
        return None
    _refuse_rest(path, kinds, names, numeric, matching)
    return matching


def _refuse_rest(path: Path, kinds: Mapping[str, str], names: Names, numeric: list[str], chosen: Sequence[str]) -> None:
    """Raise an error for columns of numbers beside those of classes whose names state nothing else."""
    rest = [name for name in numeric if name not in chosen and not is_other(name)]
    if rest:
        raise _ambiguous(path, kinds, names, f"{shown(rest)} may be classes without a label")


def _numbered(
    path: Path, kinds: Mapping[str, str], names: Names, numeric: list[str], values: NDArray[Any] | None
) -> tuple[str, ...] | None:
    """The columns that are numbered, or begin with the name of the logits."""
    families = _numbered_families(numeric)
    stems = (f"{names.logits}_", f"{names.logits.removesuffix('s')}_")
    for stem in stems:
        if stem in families:
            return families[stem]
    for stem in stems:
        begun = [name for name in numeric if name.startswith(stem)]
        if len(begun) > 1:
            _check_count(path, kinds, names, begun, values)
            return tuple(begun)
    if len(families) != 1:
        return None
    (family,) = families.values()
    _refuse_rest(path, kinds, names, numeric, family)
    return family


def _all_numbers(
    path: Path, kinds: Mapping[str, str], names: Names, numeric: list[str], values: NDArray[Any] | None
) -> tuple[str, ...]:
    """All columns of numbers, if nothing speaks against it."""
    others = [name for name in numeric if is_other(name)]
    if others:
        raise _ambiguous(path, kinds, names, f"{shown(others)} may hold something else")
    whole = [name for name in numeric if kinds[name] == WHOLE]
    if whole and any(kinds[name] == FRACTIONS for name in numeric):
        raise _ambiguous(path, kinds, names, f"{shown(whole)} hold whole numbers and the others fractions")
    beside = {name for name, kind in kinds.items() if name in names.beside or (is_index(name) and kind != FRACTIONS)}
    if len(numeric) == 1 and len(kinds) > 1 + len(beside):
        raise _ambiguous(path, kinds, names, "a single column is left")
    _check_count(path, kinds, names, numeric, values)
    return tuple(numeric)


def _check_count(
    path: Path, kinds: Mapping[str, str], names: Names, columns: Sequence[str], values: NDArray[Any] | None
) -> None:
    """Raise an error if there are more columns than the labels show classes."""
    n_classes = None if names.classes is None else len(names.classes)
    if n_classes is None and values is not None:
        is_text = values.dtype.kind == "U"
        n_classes = len(values) if is_text else int(values.max(initial=0)) + 1
        if not is_text and len(columns) == n_classes and values.size and values.min() >= 1:
            raise _ambiguous(
                path, kinds, names, f"labels show no 0, and may count from 1: then {n_classes} is one too many"
            )
    if n_classes is not None and len(columns) > max(n_classes, 2):
        raise _ambiguous(path, kinds, names, f"there are {len(columns)} for {counted(n_classes, 'class', 'classes')}")


def _named(numeric: Sequence[str], wanted: Sequence[Any]) -> tuple[str, ...] | None:
    """The columns with the wanted names, as they are or behind a common prefix, in the order of the table."""
    keys = {name_key(value) for value in wanted}
    direct = tuple(name for name in numeric if name_key(name) in keys)
    if len(direct) == len(keys) > 1:
        return direct
    for prefix in {name[: -len(str(wanted[0]))] for name in numeric if name.endswith(str(wanted[0]))}:
        behind = tuple(name for name in numeric if name.startswith(prefix) and name[len(prefix) :] in keys)
        if len(behind) == len(keys) > 1:
            return behind
    return None


def _numbered_families(numeric: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Columns that count on from 0 or 1, by what stands before the number; if there are none, by what stands around it."""
    for pattern in (r"(.*?)\d+()", r"(.*?)\d+(\D+)"):
        families: dict[str, list[str]] = {}
        for name in numeric:
            if match := re.fullmatch(pattern, name):
                families.setdefault(match[1] + match[2], []).append(name)
        counting = {
            stem: tuple(family)
            for stem, family in families.items()
            if len(family) > 1 and first_number(family) is not None
        }
        if counting:
            return counting
    return {}


def _label_values(labels: Callable[[], NDArray[Any] | None]) -> NDArray[Any] | None:
    values = labels()
    if values is None or values.ndim != 1 or not values.size:
        return None
    if values.dtype.kind == "O":  # a label that is missing is an error later on; the others name columns all the same
        values = values[[value is not None and value == value for value in values.tolist()]].astype(str)  # noqa: PLR0124
    if values.dtype.kind == "U":
        values = values[values != ""]
    if values.dtype.kind == "f":
        values = values[np.isfinite(values)]
    return np.unique(values) if values.dtype.kind in "iufU" else None


def _ambiguous(path: Path, kinds: Mapping[str, str], names: Names, reason: str) -> FileError:
    """The error where columns must be named: that of the labels, if one has a usual name of labels, else those of classes."""
    usual = [name for name in kinds if name.strip().lower() in LABEL_COLUMNS]
    if names.labels not in kinds and len(usual) == 1:
        return FileError(
            f"{path}: no column is named {names.labels!r}, and it is unclear which columns hold the classes: {reason}",
            argument=f"labels_name={usual[0]!r}",
            remedy="read the labels there",
        )
    rest = {name: kind for name, kind in kinds.items() if name not in names.beside}
    numbers = shown(name for name, kind in rest.items() if kind in NUMBER_KINDS)
    texts = [name for name, kind in rest.items() if kind == TEXT]
    others = f"; not numbers: {shown(texts)}" if texts else ""
    return FileError(
        f"{path}: unclear which columns hold the classes: {reason}. Columns of numbers: {numbers}{others}",
        argument="columns",
        remedy="name those of the classes",
    )


def _not_numbers(path: Path, name: str, values: NDArray[Any], place: Callable[[int], str]) -> FileError:
    """The error for a column of scores with other entries; of numbers that are stored as texts the first one."""
    texts = [str(value) for value in values.flat]
    row = next((k for k, text in enumerate(texts) if not is_number(text)), 0)
    what = repr(texts[row]) + (", a number that is stored as a text" if is_number(texts[row]) else "")
    entry = f"has {what}" if texts[row].strip() else "is empty"
    return FileError(f"{path}: column {name!r} must hold numbers, but {place(row)} {entry}")
