"""Tensors saved by ``torch.save``, read with ``weights_only``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rhocal.data.formats.base import Names, StoredFile
from rhocal.errors import FileError, MissingExtraError

if TYPE_CHECKING:
    from pathlib import Path


def open_pt(path: Path, names: Names) -> StoredFile:
    """A tensor of logits, or a dictionary of tensors; the file is read whole."""
    try:
        import torch  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("torch", "torch", f"reading {path.name}") from error
    try:
        value = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        message = f"{path}: damaged, or with more than tensors in it, which are never unpickled: {error}"
        raise FileError(message) from error
    if isinstance(value, torch.Tensor):
        value = {names.logits: value}
    if not isinstance(value, dict):
        raise FileError(f"{path}: holds a {type(value).__name__}; need a tensor or a dict of tensors")
    arrays = {str(name): item if isinstance(item, torch.Tensor) else np.asarray(item) for name, item in value.items()}
    return StoredFile(path, arrays, has_blocks=False)
