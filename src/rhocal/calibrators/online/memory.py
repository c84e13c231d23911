"""Samples that online calibration remembers: the latest ones, each with its age."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rhocal.data.sampling import distinct_keys

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.numerics.special import Floats, Vector

MAX_SAMPLES = 20_000
MAX_ENTRIES = 1 << 22
"""Outputs that are held: 32 MB in double precision."""
MAX_HALF_LIVES = 8.0
"""After as many a sample counts 0.4 % and is dropped."""


@dataclass(frozen=True, eq=False)
class Memory:
    """Outputs of a calibrator, labels, and how many samples came after each. Samples of a batch have the same age."""

    outputs: Floats
    labels: NDArray[np.intp]
    base: Vector
    """Weights that samples came with."""
    age: Vector

    @classmethod
    def empty(cls, n_classes: int) -> Memory:
        """Nothing yet."""
        return cls(np.zeros((0, n_classes)), np.zeros(0, np.intp), np.zeros(0), np.zeros(0))

    @property
    def n_samples(self) -> int:
        """Samples that are held."""
        return len(self.labels)

    def weights(self, half_life: float) -> Vector:
        """What samples count now."""
        return np.asarray(self.base * np.maximum(0.5 ** (self.age / half_life), 1e-12))

    def add(self, outputs: Floats, labels: NDArray[np.intp], weights: Vector, half_life: float) -> Memory:
        """The memory with a batch more. Without room for all, it drops the oldest samples, and in a batch those by content."""
        new = weights > 0
        age = np.append(self.age + weights.sum(), np.zeros(int(new.sum())))
        all_outputs = np.concatenate([self.outputs, outputs[new]]) if self.n_samples else np.array(outputs[new])
        all_labels = np.append(self.labels, labels[new]).astype(np.intp)
        base = np.append(self.base, weights[new])
        kept = np.flatnonzero(age <= MAX_HALF_LIVES * half_life)
        room = max(1, min(MAX_SAMPLES, MAX_ENTRIES // max(outputs.shape[1], 1)))
        if len(kept) > room:
            keys = distinct_keys(_content_keys(all_outputs[kept], all_labels[kept]), [age[kept], base[kept]])
            kept = np.sort(kept[np.lexsort((keys, age[kept]))[:room]])
        return Memory(all_outputs[kept], all_labels[kept], base[kept], age[kept])


def _content_keys(outputs: Floats, labels: NDArray[np.intp]) -> NDArray[np.uint64]:
    """A number for each sample that looks random and follows from its content, so that the order in a batch does not matter."""
    factors = np.random.default_rng(0).integers(1 << 63, size=outputs.shape[1], dtype=np.uint64) | np.uint64(1)
    bits = np.ascontiguousarray(outputs, np.float64).view(np.uint64)
    keys = (bits * factors).sum(axis=1, dtype=np.uint64) + labels.astype(np.uint64)
    keys = (keys ^ (keys >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)
    return np.asarray(keys ^ (keys >> np.uint64(29)))
