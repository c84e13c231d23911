"""Lower bounds by cross-fitting, and the interval of the debiased RMSCE."""

import numpy as np
import pytest

from rhocal.errors import InputError
from rhocal.metrics.binned import debiased_rmsce
from rhocal.metrics.inference import interval, variational_bounds
from rhocal.metrics.inference.l2_interval import rmsce_interval
from rhocal.metrics.inference.variational import bounds_of
from rhocal.metrics.scored import Scored


def draw(seed, n, gap=0.0):
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(0.5, 1, n)
    return Scored(confidence=confidence, correct=(rng.random(n) < confidence - gap) * 1.0, weights=np.ones(n))


def test_a_perfect_model_is_not_accused():
    found = [bounds_of(draw(seed, 300)) for seed in range(100)]
    for name in ("ece", "brier", "decision_loss"):
        assert (
            sum(getattr(bounds, name).low > 0 for bounds in found) <= 10
        )  # more than 5 % in one of 100 runs of this test


def test_a_gap_is_found_and_not_exaggerated():
    found = [bounds_of(draw(seed, 2000, gap=0.1)).ece for seed in range(30)]
    assert all(bound.low > 0 for bound in found)
    assert sum(bound.low > 0.1 for bound in found) <= 4
    assert np.mean([bound.estimate for bound in found]) == pytest.approx(0.1, abs=0.01)


def test_without_errors_nothing_is_proven():
    sure = Scored(confidence=np.full(60, 0.98), correct=np.ones(60), weights=np.ones(60))
    assert bounds_of(sure).ece.low <= 0


def test_order_and_copies_do_not_matter():
    scored = draw(3, 400, gap=0.05)
    probs = np.stack([1 - scored.confidence, scored.confidence], axis=1)
    labels, weights = scored.correct.astype(int), np.random.default_rng(0).integers(0, 4, 400)
    rows = np.random.default_rng(1).permutation(400)
    want = variational_bounds(probs, labels, sample_weight=weights)
    assert variational_bounds(probs[rows], labels[rows], sample_weight=weights[rows]) == want
    copies = np.repeat(np.arange(400), weights)
    assert variational_bounds(probs[copies], labels[copies]) == want


def test_clusters_widen():
    scored = draw(4, 400, gap=0.1)
    probs = np.repeat(np.stack([1 - scored.confidence, scored.confidence], axis=1), 5, axis=0)
    labels = np.repeat(scored.correct.astype(int), 5)
    alone = variational_bounds(probs, labels).ece
    together = variational_bounds(probs, labels, clusters=np.repeat(np.arange(400), 5)).ece
    assert together.low < alone.low


def test_too_few_samples():
    with pytest.raises(InputError, match="at least 20 samples; got 3"):
        variational_bounds([[0.4, 0.6]] * 3, [1, 0, 1])


@pytest.mark.parametrize("gap", [0.0, 0.05])
def test_the_interval_of_rmsce_contains_the_truth(gap):
    samples = [draw(seed, 500, gap) for seed in range(100)]
    found = [rmsce_interval(sample, debiased_rmsce(sample).value, 0.95) for sample in samples]
    assert sum(one.low > gap + 1e-12 for one in found) <= 8
    assert sum(one.high < gap for one in found) <= 8


def test_the_interval_of_rmsce_without_errors():
    """100 of 100 right at confidence 1: an error rate of 3 % would show no error in 5 % of samples."""
    found = interval("debiased_rmsce", np.tile([0.0, 1.0], (100, 1)), np.ones(100, int), classes=[0, 1])
    assert found.low == 0
    assert 0.01 < found.high < 0.1


def test_the_interval_of_rmsce_from_arrays():
    scored = draw(5, 500, 0.1)
    probs = np.stack([1 - scored.confidence, scored.confidence], axis=1)
    found = interval("debiased_rmsce", probs, scored.correct.astype(int))
    assert found.low <= found.estimate <= found.high
    assert found.low > 0
    heavy = interval("debiased_rmsce", probs, scored.correct.astype(int), sample_weight=np.full(500, 2))
    assert heavy.high - heavy.low < found.high - found.low
