"""Whether a batch whose rows came before is a copy of the earlier one, or other samples that chance made equal.

Continuous scores do not repeat, so that equal rows are a copy: a retry, or a file that is given twice. Tied scores (trees,
votes, rounded probabilities) do. If small batches of them were skipped as copies, common batches would be skipped and rare
ones counted: labels would be a biased sample, and a calibrator that is right would look wrong. The rule:

* Scores are tied if two batches in memory share outputs, or two of its samples have equal outputs and different labels. If
  nothing is tied, equal rows are a copy.
* Otherwise the chance of these rows is that of a multinomial draw, n!/Π mᵢ! · Π fᵢ^mᵢ for mᵢ samples of each content, with the
  frequencies in memory fᵢ, times the batches that it may repeat. Below ``MAX_CHANCE`` it is a copy. The frequencies include
  the earlier batch itself, which makes the chance larger: in doubt a batch counts.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.calibrators.online.memory import Memory
    from rhocal.numerics.special import Floats, Vector

MAX_CHANCE = 1e-6
"""That a batch of new samples is skipped because its rows came before."""


def is_copy(
    memory: Memory,
    outputs: Floats,
    labels: NDArray[np.intp],
    weights: Vector,
    n_before: int,
    *,
    clustered: bool = False,
) -> bool:
    """Whether rows that came in one of ``n_before`` earlier batches are a copy of it.

    Weights are what samples count; in clusters, which count as one sample each, they say nothing about what a row holds.
    """
    used = weights > 0
    n, n_memory = int(used.sum()), memory.n_samples
    if not n or not is_tied(memory):
        return True
    batch, remembered = [outputs[used], labels[used]], [memory.outputs, memory.labels]
    if not clustered:
        batch, remembered = [*batch, weights[used]], [*remembered, memory.base]
    codes = _codes(np.concatenate([np.column_stack(batch), np.column_stack(remembered)]))
    size = int(codes.max()) + 1
    in_batch, in_memory = np.bincount(codes[:n], minlength=size), np.bincount(codes[n:], minlength=size)
    present = in_batch > 0
    times = in_batch[present]
    frequencies = np.maximum(times, in_memory[present]) / max(n, n_memory)
    log_chance = (
        math.lgamma(n + 1) - sum(math.lgamma(m + 1) for m in times.tolist()) + float(times @ np.log(frequencies))
    )
    if clustered:  # samples of a cluster repeat each other: as many independent draws as there are clusters
        log_chance *= min(1.0, float(weights.sum()) / n)
    return min(log_chance, 0.0) + math.log(max(n_before, 1)) < math.log(MAX_CHANCE)


def is_tied(memory: Memory) -> bool:
    """Whether different samples have equal outputs: in two batches, or with two labels. Copies in a batch are no evidence."""
    codes = _codes(memory.outputs)
    order = np.argsort(codes, kind="stable")
    equal = codes[order[1:]] == codes[order[:-1]]
    differ = (memory.age[order[1:]] != memory.age[order[:-1]]) | (memory.labels[order[1:]] != memory.labels[order[:-1]])
    return bool((equal & differ).any())


def _codes(rows: NDArray[Any]) -> NDArray[np.intp]:
    """The number of the distinct row that each row equals; -0 is 0."""
    values = np.ascontiguousarray(rows, np.float64) + 0.0
    whole = values.view(np.dtype((np.void, values.itemsize * values.shape[1]))).ravel()
    return np.asarray(np.unique(whole, return_inverse=True)[1], np.intp)
