"""Safetensors: a JSON header, then the numbers of every array."""

from __future__ import annotations

import json
import math
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.formats.base import (
    BFLOAT16,
    Arrays,
    Names,
    RawArray,
    StoredArray,
    StoredFile,
    UnreadableArray,
    without_duplicates,
)
from rhocal.data.formats.copies import json_values, storable
from rhocal.data.formats.npy import check_shape
from rhocal.errors import FileError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TYPES: dict[str, np.dtype[Any]] = {
    "F16": np.dtype("<f2"), "F32": np.dtype("<f4"), "F64": np.dtype("<f8"), "BF16": BFLOAT16, "BOOL": np.dtype("?"),
    "I8": np.dtype("i1"), "I16": np.dtype("<i2"), "I32": np.dtype("<i4"), "I64": np.dtype("<i8"),
    "U8": np.dtype("u1"), "U16": np.dtype("<u2"), "U32": np.dtype("<u4"), "U64": np.dtype("<u8"),
}  # fmt: skip
"""Types of the format, as NumPy names them."""

MAX_HEADER_BYTES = 100_000_000
"""The format's limit."""


def open_safetensors(path: Path, _names: Names) -> StoredFile:
    """Its arrays, which must account for every byte behind the header."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > min(MAX_HEADER_BYTES, path.stat().st_size - 8):
            raise FileError("the header is longer than the file, or than the format allows")
        header = json.loads(file.read(length), object_pairs_hook=without_duplicates)
    metadata = header.pop("__metadata__", {})
    texts = {name: _texts(value) for name, value in metadata.items()}
    if "classes" in metadata and texts["classes"] is None:
        raise FileError(
            "the names of the columns (classes, in the header) are not a JSON list of texts or whole numbers"
        )
    _check_spans(header, path.stat().st_size - 8 - length)
    arrays = {name: _array(path, name, entry, 8 + length) for name, entry in header.items()}
    return StoredFile(path, {name: value for name, value in texts.items() if value is not None} | arrays)


def _check_spans(entries: Mapping[str, Any], size: int) -> None:
    """Raise an error if arrays overlap, leave a gap, or end elsewhere than the file."""
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: tuple(item[1]["data_offsets"])):
        start, stop = check_shape(entry["data_offsets"])
        if start != end or stop < start:
            raise FileError(
                f"damaged, {name} lies at bytes {start:,} to {stop:,}, but the array before it ends at {end:,}"
            )
        dtype, end = TYPES.get(entry["dtype"]), stop
        if dtype is not None and math.prod(check_shape(entry["shape"])) * dtype.itemsize != stop - start:
            raise FileError(f"damaged, {name} of shape {entry['shape']} has {stop - start:,} bytes")
    if end != size:
        raise FileError(f"damaged, the arrays have {end:,} bytes, the file has {size:,} behind its header")


def _texts(value: str) -> Any:
    """An array of texts, or names that are whole numbers, that a writer put into the header; None for other entries of it."""
    try:
        values = json.loads(value)
    except ValueError:
        return None
    is_one_kind = isinstance(values, list) and any(all(type(one) is kind for one in values) for kind in (str, int))
    return np.asarray(values) if is_one_kind and values else None


def _array(path: Path, name: str, entry: Mapping[str, Any], start: int) -> StoredArray:
    shape = check_shape(entry["shape"])
    if entry["dtype"] not in TYPES:
        reason = f"{path}: {name} has type {entry['dtype']}; convert it to float16 or float32"
        return UnreadableArray(reason, shape, entry["dtype"])
    return RawArray(path, start + entry["data_offsets"][0], TYPES[entry["dtype"]], shape)


def write_safetensors(path: Path, arrays: Arrays) -> None:
    """Write arrays of numbers as tensors, texts as JSON in the header."""
    from safetensors.numpy import save_file  # noqa: PLC0415

    arrays = {name: storable(array) for name, array in arrays.items()}
    numeric = {name: np.ascontiguousarray(array) for name, array in arrays.items() if array.dtype.kind in "fiub"}
    texts = {name: json.dumps(json_values(array)) for name, array in arrays.items() if name not in numeric}
    save_file(numeric, path, metadata=texts or None)


def safetensors_header(
    dtypes: Mapping[str, np.dtype[Any]],
    shapes: Mapping[str, tuple[int, ...]],
    spans: Mapping[str, tuple[int, int]],
    metadata: Mapping[str, str],
) -> bytes:
    """The bytes before the numbers, a multiple of 8; ``spans`` are the places of the arrays behind it."""
    names = {dtype: name for name, dtype in TYPES.items()}
    entries: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    for name, dtype in dtypes.items():
        entries[name] = {"dtype": names[dtype], "shape": shapes[name], "data_offsets": spans[name]}
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text
