"""What the makers of the demo's files share: where they go, and how samples are divided and stored."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.formats import write_arrays

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

SHIPPED = Path(__file__).parents[2] / "src" / "rhocal" / "data" / "shipped"


def write_sets(path: Path, logits: NDArray[Any], labels: NDArray[Any], classes: Sequence[str], *, seed: int) -> None:
    """Write random halves as calibration set and test set: logits as float16, labels as bytes."""
    order = np.random.default_rng(seed).permutation(len(labels))
    halves = {"cal": order[: len(order) // 2], "test": order[len(order) // 2 :]}
    arrays: dict[str, Any] = {"classes": np.array(classes)}
    for name, rows in halves.items():
        arrays[f"logits_{name}"] = logits[rows].astype(np.float16)
        arrays[f"labels_{name}"] = labels[rows].astype(np.uint8)
    write_arrays(path, arrays)
    probs = np.exp(logits - logits.max(axis=1, keepdims=True))
    confidence = (probs.max(axis=1) / probs.sum(axis=1)).mean()
    accuracy = (logits.argmax(axis=1) == labels).mean()
    print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB, accuracy {accuracy:.3f}, mean confidence {confidence:.3f}")
