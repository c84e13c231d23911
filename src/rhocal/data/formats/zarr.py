"""Zarr: an array, or a group of arrays, in chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rhocal.data.formats.base import Names, StoredFile
from rhocal.errors import MissingExtraError

if TYPE_CHECKING:
    from pathlib import Path


def open_zarr(path: Path, names: Names) -> StoredFile:
    """Its arrays."""
    try:
        import zarr  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("zarr", "zarr", f"reading {path.name}") from error
    store: Any = zarr.open(str(path), mode="r")
    is_group = hasattr(store, "array_keys")
    return StoredFile(
        path, {name: store[name] for name in sorted(store.array_keys())} if is_group else {names.logits: store}
    )
