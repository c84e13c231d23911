"""The logits shipped with the package: a compact residual network on CIFAR-10, trained by this project.

``data/README.md`` is their card: how they were made, accuracy, and the licence of the images.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.errors import InputError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from numpy.typing import NDArray


def demo_file() -> Traversable:
    """Where the shipped logits are."""
    return files("rhocal") / "data" / "demo.npz"


def demo_logits(split: str = "tune") -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Logits and labels of the shipped network on its 5,000 ``"tune"`` or 10,000 ``"test"`` images."""
    if split not in {"tune", "test"}:
        raise InputError(f"split is tune or test; got {split!r}")
    suffix = "val" if split == "tune" else "test"
    with demo_file().open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        return arrays[f"logits_{suffix}"], arrays[f"labels_{suffix}"]
