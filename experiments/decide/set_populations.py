"""Populations of probabilities whose labels are known in distribution, so that the coverage of sets is exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rhocal.numerics.special import softmax

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.numerics.special import Floats

N_ENTRIES = 200_000


@dataclass(frozen=True, eq=False)
class SetPopulation:
    """Equally frequent samples: the probabilities of the model, and the true ones."""

    name: str
    probs: Floats
    truth: Floats

    def draw(self, rng: np.random.Generator, n: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Rows and labels of independent samples."""
        rows = rng.integers(0, len(self.probs), n)
        labels = (np.cumsum(self.truth[rows], axis=1) < rng.random((n, 1))).sum(axis=1)
        return rows, np.minimum(labels, self.probs.shape[1] - 1)


def set_populations() -> list[SetPopulation]:
    """Calibrated, over-confident, tied, rare and many classes."""
    rng = np.random.default_rng(24)
    z = 2 * rng.normal(size=(N_ENTRIES // 10, 10))
    rare = rng.beta(0.05, 4.95, N_ENTRIES // 2)
    pair = np.stack([1 - rare, rare], axis=1)
    many = 2 * rng.normal(size=(N_ENTRIES // 100, 100)) + 6 * np.eye(100)[rng.integers(0, 100, N_ENTRIES // 100)]
    return [
        SetPopulation("10 classes", softmax(z), softmax(z)),
        SetPopulation("10 classes, over-confident", softmax(2 * z), softmax(z)),
        SetPopulation("10 classes, tied", softmax(np.round(z)), softmax(np.round(z))),
        SetPopulation("1 % positives", pair, pair),
        SetPopulation("100 classes", softmax(many), softmax(many)),
    ]
