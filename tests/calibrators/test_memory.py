"""What online calibration remembers of a batch that is larger than its memory."""

import numpy as np
import pytest

from rhocal.calibrators.online.memory import MAX_SAMPLES, Memory


def tied(n, seed):
    rng = np.random.default_rng(seed)
    scores = rng.integers(8, size=n)
    return scores, np.log(np.c_[9.0 - scores, 1.0 + scores]), (rng.random(n) < (1 + scores) / 10).astype(int)


@pytest.mark.parametrize("seed", range(3))
def test_tied_scores_keep_the_shares_of_their_labels(seed):
    """Equal samples had one key, so that all or none of one outcome of a score were remembered."""
    scores, outputs, labels = tied(50_000, seed)
    memory = Memory.empty(2)
    for weight in (1.0, 2.0):  # the second batch takes the place of the first
        memory = memory.add(outputs, labels, np.full(50_000, weight), 1e6)
        assert memory.n_samples == MAX_SAMPLES
        assert (memory.base == weight).all()
        for k in range(8):
            chosen = memory.outputs[:, 1] == np.log(1.0 + k)
            assert chosen.sum() == pytest.approx(2500, abs=4 * np.sqrt(2500))
            truth = labels[scores == k].mean()
            assert memory.labels[chosen].mean() == pytest.approx(truth, abs=4 * np.sqrt(truth * (1 - truth) / 2500))


def test_what_is_remembered_of_equal_samples_does_not_follow_from_their_order():
    _, outputs, labels = tied(50_000, 3)
    rng = np.random.default_rng(4)
    weights, order = rng.integers(1, 3, 50_000).astype(float), rng.permutation(50_000)
    tables = []
    for rows in (np.arange(50_000), order):
        memory = Memory.empty(2).add(outputs[:9000], labels[:9000], weights[:9000], 1e6)
        memory = memory.add(outputs[rows], labels[rows], weights[rows], 1e6)
        tables.append(np.unique(np.c_[memory.outputs, memory.labels, memory.base], axis=0, return_counts=True))
    assert np.array_equal(tables[0][0], tables[1][0])
    assert np.array_equal(tables[0][1], tables[1][1])
