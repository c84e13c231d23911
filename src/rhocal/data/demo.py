"""The logits shipped with the package: two thin networks trained by this project, of 10 and of 102 classes.

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

NETWORKS = {"cifar10": "cifar10-resnet18-w16-wd1e-4", "flowers102": "flowers102_64px-resnet18-w16-wd1e-4"}
"""Name → the folder of the run (``rhocal-paper train``) that made it."""


def demo_file(network: str = "cifar10") -> Traversable:
    """Where the shipped logits of a network are."""
    if network not in NETWORKS:
        raise InputError(f"network is one of {', '.join(NETWORKS)}; got {network!r}")
    return files("rhocal") / "data" / "shipped" / NETWORKS[network] / "logits.npz"


def demo_logits(split: str = "cal", network: str = "cifar10") -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Logits and labels of a shipped network: its calibration set (``"cal"``) or its test set (``"test"``).

    ``"cifar10"`` has 5,000 and 10,000 images of 10 classes, ``"flowers102"`` 818 and 819 of 102 classes.
    """
    if split not in {"cal", "test"}:
        raise InputError(f"split is cal or test; got {split!r}")
    suffix = "val" if split == "cal" else "test"
    with demo_file(network).open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        return arrays[f"logits_{suffix}"].astype(np.float32), arrays[f"labels_{suffix}"].astype(np.int64)
