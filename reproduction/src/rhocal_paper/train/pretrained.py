"""Weights to begin with, from a local file: a checkpoint of ours, or a state dict of the same architecture."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rhocal.errors import FileError

if TYPE_CHECKING:
    from pathlib import Path

COUNTER = "num_batches_tracked"
"""Of batch normalization; old files do not have it, and nothing depends on it."""


def digest(path: Path | None) -> str:
    """What identifies a file of weights wherever it lies; the empty text for none."""
    if path is None:
        return ""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise FileError(f"weights: cannot read {path}: {error.strerror}") from error


def state_of(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, in its order. No code of a file is run."""
    try:
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises whatever the damage leads to
        raise FileError(f"weights: {path} is no file of tensors: {str(error).splitlines()[0]}") from error
    for key in ("model", "state_dict"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    tensors = {k: v for k, v in content.items() if isinstance(v, Tensor)} if isinstance(content, dict) else {}
    if not tensors:
        raise FileError(f"weights: {path} holds no tensors by name")
    return {name: value for name, value in tensors.items() if not name.endswith(COUNTER)}


def load_weights(net: nn.Module, path: Path) -> list[str]:
    """Copy the tensors of a file into a network, in order; returns the names of those that were left.

    Names differ between libraries, the order of layers does not: torchvision's ResNet and VGG with batch normalization fit
    our form ``imagenet``. The last layer is left as drawn where the file has another number of classes.
    """
    ours = [(name, value) for name, value in net.state_dict().items() if not name.endswith(COUNTER)]
    theirs = list(state_of(path).items())
    if len(ours) != len(theirs):
        raise FileError(f"weights: {path} has {len(theirs)} tensors, the network has {len(ours)}: another architecture")
    last = ours[-1][0].rpartition(".")[0] + "."
    left = []
    for (name, mine), (their_name, value) in zip(ours, theirs, strict=True):
        if mine.shape == value.shape:
            continue
        if not name.startswith(last):
            raise FileError(
                f"weights: {their_name} of {path} is {tuple(value.shape)}, the network needs {tuple(mine.shape)}: "
                "another width, form (--form imagenet for 224 px) or architecture"
            )
        left = [n for n, _ in ours if n.startswith(last)]
    with torch.no_grad():
        for (name, mine), (_, value) in zip(ours, theirs, strict=True):
            if name not in left:
                mine.copy_(value)
    return left
