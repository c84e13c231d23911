"""Binary problems: scores of one column, and metrics that scikit-learn has under a name of its own."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss

from rhocal import metrics


@pytest.fixture(scope="module")
def binary():
    rng = np.random.default_rng(0)
    margin = 2 * rng.normal(size=600)
    return margin, (rng.random(600) < 1 / (1 + np.exp(-margin / 2))).astype(int)


@pytest.mark.parametrize("weighted", [False, True])
def test_metrics_equal_those_of_scikit_learn(binary, weighted):
    margin, labels = binary
    p = 1 / (1 + np.exp(-margin))
    weights = np.random.default_rng(1).random(len(p)) if weighted else None
    both = np.stack([1 - p, p], axis=1)
    for scores in (p, p[:, None], both):
        spec = {"sample_weight": weights}
        assert metrics.binary_brier(scores, labels, **spec) == pytest.approx(brier_score_loss(labels, p, **spec))
        assert metrics.brier(scores, labels, **spec) == pytest.approx(2 * brier_score_loss(labels, p, **spec))
        assert metrics.nll(scores, labels, **spec) == pytest.approx(log_loss(labels, p, **spec))
        assert metrics.accuracy(scores, labels, **spec) == pytest.approx(accuracy_score(labels, p > 0.5, **spec))


def test_of_more_classes_the_binary_brier_score_is_half_the_sum():
    probs, labels = np.random.default_rng(2).dirichlet(np.ones(4), 300), np.arange(300) % 4
    assert metrics.brier(probs, labels) == pytest.approx(brier_score_loss(labels, probs, scale_by_half=False))
    assert metrics.binary_brier(probs, labels) == pytest.approx(brier_score_loss(labels, probs, scale_by_half=True))
