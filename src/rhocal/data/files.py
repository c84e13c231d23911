"""Reads and writes files of scores. The ending of the name decides the format; nothing is ever unpickled."""

from __future__ import annotations

import csv
import json
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.atomic import writing
from rhocal.errors import FileError, MissingExtraError
from rhocal.numerics.special import widened

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

Arrays = dict[str, Any]

BFLOAT16_IN_NPY = np.dtype("V2")
"""What NumPy writes for bfloat16, a type that it does not know: two bytes without a meaning. No other type looks so."""


@dataclass(frozen=True)
class Names:
    """How the arrays of a file are called."""

    logits: str = "logits"
    labels: str = "labels"
    groups: str | None = None
    """The group of each sample, where it is asked for."""


@dataclass(frozen=True)
class Split:
    """Logits with their labels and groups (if known), unchecked."""

    logits: Any
    labels: Any | None
    groups: Any | None = None


@dataclass(frozen=True)
class Contents:
    """What a file holds: a calibration and a test split, or one set."""

    path: Path
    one: Split | None
    calibration: Split | None
    test: Split | None
    classes: Any | None

    def for_tuning(self) -> Split:
        """The split to fit on, which must have labels."""
        split = self.calibration or self.one
        if split is None or split.labels is None:
            raise FileError(
                f"{self.path}: labels are missing", argument="labels_name", remedy="name the array that holds them"
            )
        return split

    def for_testing(self) -> Split:
        """The split to apply or evaluate on."""
        split = self.test or self.one or self.calibration
        assert split is not None
        return split


def read(path: Path, names: Names | None = None, labels: Path | None = None) -> Contents:
    """Read logits and labels.

    Understands the arrays ``logits``/``labels`` (or ``names``), ``logits_val``/``labels_val`` (or ``_cal``) with
    ``logits_test``/``labels_test``, and ``classes``. ``labels`` names a second file with nothing but the labels.
    """
    names = names or Names()
    arrays = _read_arrays(path, names)
    found = ", ".join(f"{name} {np.shape(value)}" for name, value in arrays.items()) or "nothing"
    given = None if labels is None else only_array(labels, "labels")

    def split(suffix: str) -> Split | None:
        logits = arrays.get(names.logits + suffix)
        if logits is None:
            return None
        groups = None if names.groups is None else arrays.get(names.groups + suffix)
        return Split(logits, arrays.get(names.labels + suffix) if given is None else given, groups)

    one, calibration, test = split(""), split("_val") or split("_cal") or split("_tune"), split("_test")
    if one is None and (calibration is None or test is None):
        raise FileError(
            f"{path}: found {found}; need {names.logits!r} (with {names.labels!r}), or {names.logits}_val and "
            f"{names.logits}_test",
            argument="logits_name",
            remedy="give another name",
        )
    if given is not None and one is None:
        raise FileError(f"{path}: holds two splits; a second file of labels goes with a single set of logits")
    return Contents(path, one, calibration, test, arrays.get("classes"))


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays in the format that the ending of the name says; .npy takes the first one."""
    writer = WRITERS.get(path.suffix)
    if writer is None:
        raise FileError(f"{path}: cannot write {path.suffix or 'a file without ending'}; use {', '.join(WRITERS)}")
    with writing(path) as unfinished:
        writer(unfinished, dict(arrays))


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with writing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def _read_arrays(path: Path, names: Names) -> Arrays:
    if not path.is_file():
        raise FileError(f"{path}: no such file" if not path.is_dir() else f"{path}: a folder, not a file")
    reader = READERS.get(path.suffix)
    if reader is None:
        raise FileError(f"{path}: unknown kind of file {path.suffix!r}; understood are {', '.join(READERS)}")
    return reader(path, names)


def only_array(path: Path, name: str) -> Any:
    """The labels (or groups) of a file that holds nothing else, or the array of that name."""
    arrays = _read_arrays(path, Names(name, name))
    if name in arrays:
        return arrays[name]
    if len(arrays) != 1:
        raise FileError(f"{path}: expected {name} only; found {', '.join(arrays) or 'nothing'}")
    return next(iter(arrays.values()))


def _read_npz(path: Path, _names: Names) -> Arrays:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: _known(file[name]) for name in file.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, KeyError) as error:
        raise FileError(f"{path}: damaged, or with objects in it, which are never unpickled: {error}") from error


def _read_npy(path: Path, names: Names) -> Arrays:
    try:
        return {names.logits: _known(np.load(path, allow_pickle=False))}
    except (ValueError, OSError, EOFError) as error:
        raise FileError(f"{path}: damaged, or with objects in it, which are never unpickled: {error}") from error


def _known(array: NDArray[Any]) -> NDArray[Any]:
    """The array, bfloat16 as float32."""
    return widened(array.view(np.uint16)) if array.dtype == BFLOAT16_IN_NPY else array


def _read_safetensors(path: Path, _names: Names) -> Arrays:
    from safetensors import SafetensorError, deserialize, safe_open  # noqa: PLC0415

    try:
        with safe_open(path, framework="numpy") as file:
            types = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118 - not a dict
            arrays = {name: file.get_tensor(name) for name, kind in types.items() if kind != "BF16"}
        if len(arrays) < len(types):  # of bfloat16 NumPy knows nothing; the bits do
            for name, found in deserialize(path.read_bytes()):  # type: ignore[no-untyped-call]
                if types[name] == "BF16":
                    arrays[name] = widened(np.frombuffer(found["data"], "<u2").reshape(found["shape"]))
    except (SafetensorError, OSError) as error:
        raise FileError(f"{path}: damaged, or not a safetensors file: {error}") from error
    except (TypeError, AttributeError) as error:
        raise FileError(
            f"{path}: holds a type NumPy cannot read ({error}); convert it to float16 or float32"
        ) from error
    return arrays


def _read_csv(path: Path, names: Names) -> Arrays:
    """Columns: one of labels (if named), all others logits, in order. A first row of names is required."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        try:
            rows = [row for row in csv.reader(file) if row]
        except (csv.Error, UnicodeDecodeError) as error:
            raise FileError(f"{path}: not a readable CSV file: {error}") from error
    if len(rows) < 2:
        raise FileError(f"{path}: needs a row of column names and at least one row of numbers")
    header, *body = rows
    if _is_number(header[0]) and _is_number(header[-1]):
        raise FileError(f"{path}: the first row must hold column names (such as logit_0, …, {names.labels})")
    for line, row in enumerate(body, start=2):
        if len(row) != len(header):
            raise FileError(f"{path}: line {line} has {len(row)} fields, the first line has {len(header)}")
    columns = dict(zip(header, zip(*body, strict=True), strict=True))
    return _from_columns(path, columns, names)


def _from_columns(path: Path, columns: Mapping[str, Any], names: Names) -> Arrays:
    """Logits from all columns but the one of labels."""
    arrays: Arrays = {}
    rest = dict(columns)
    for name in (names.labels, names.groups):
        if name in rest:
            arrays[name] = _numbers_or_texts(rest.pop(name))
    if rest:
        try:
            arrays[names.logits] = np.array([np.asarray(values, np.float64) for values in rest.values()]).T
        except ValueError as error:
            raise FileError(f"{path}: a column besides {names.labels!r} is not numbers: {error}") from error
    return arrays


def _numbers_or_texts(values: Any) -> Any:
    try:
        return (
            np.asarray(values).astype(np.int64) if not isinstance(values, tuple) else np.array([int(v) for v in values])
        )
    except (TypeError, ValueError):
        return np.asarray(values)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_parquet(path: Path, names: Names) -> Arrays:
    """A column of lists called as the logits, or one column a class; and the column of labels."""
    try:
        from pyarrow import ArrowException  # noqa: PLC0415
        from pyarrow.parquet import read_table  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("pyarrow", "parquet", f"reading {path.name}") from error
    try:
        table = read_table(path)
    except (ArrowException, OSError) as error:
        raise FileError(f"{path}: damaged, or not a Parquet file: {error}") from error
    columns: dict[str, Any] = {}
    nested: dict[str, Any] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if str(column.type).startswith(("list", "fixed_size_list", "large_list")):
            lists = column.combine_chunks()
            flat = lists.flatten()
            lengths = set(lists.value_lengths().to_pylist())
            if len(lengths) > 1 or None in lengths:
                raise FileError(f"{path}: the lists of column {name!r} differ in length or are missing")
            nested[name] = flat.to_numpy(zero_copy_only=False).reshape(len(lists), -1)
        else:
            columns[name] = column.to_numpy()
    if nested:
        return {**nested, **columns}
    return _from_columns(path, columns, names)


def _read_pt(path: Path, names: Names) -> Arrays:
    """Tensors saved by torch.save, read with weights_only."""
    try:
        import torch  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("torch", "torch", f"reading {path.name}") from error
    try:
        value = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise FileError(
            f"{path}: damaged, or with more than tensors in it, which are never unpickled: {error}"
        ) from error
    if isinstance(value, torch.Tensor):
        return {names.logits: value}
    if isinstance(value, dict):
        return {str(name): tensor for name, tensor in value.items()}
    raise FileError(f"{path}: holds a {type(value).__name__}; need a tensor or a dict of tensors")


READERS: dict[str, Callable[[Path, Names], Arrays]] = {
    ".npz": _read_npz,
    ".npy": _read_npy,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".safetensors": _read_safetensors,
    ".pt": _read_pt,
}


def _write_npz(path: Path, arrays: Arrays) -> None:
    np.savez(path, **arrays)


def _write_npy(path: Path, arrays: Arrays) -> None:
    np.save(path, next(iter(arrays.values())), allow_pickle=False)


def _write_csv(path: Path, arrays: Arrays) -> None:
    """One column a class and one for each vector."""
    header: list[str] = []
    columns: list[Any] = []
    for name, array in arrays.items():
        if array.ndim == 2:
            header += [f"{name}_{j}" for j in range(array.shape[1])]
            columns += list(array.T)
        elif len(array) == len(next(iter(arrays.values()))):
            header.append(name)
            columns.append(array)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(zip(*(column.tolist() for column in columns), strict=True))


def _write_safetensors(path: Path, arrays: Arrays) -> None:
    from safetensors.numpy import save_file  # noqa: PLC0415

    numeric = {name: np.ascontiguousarray(array) for name, array in arrays.items() if array.dtype.kind in "fiub"}
    texts = {name: json.dumps(array.tolist()) for name, array in arrays.items() if name not in numeric}
    save_file(numeric, path, metadata=texts or None)


WRITERS: dict[str, Callable[[Path, Arrays], None]] = {
    ".npz": _write_npz,
    ".npy": _write_npy,
    ".csv": _write_csv,
    ".safetensors": _write_safetensors,
}
