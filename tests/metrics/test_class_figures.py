"""Figures of single classes: by hand, and where there is none."""

import math

import numpy as np
import pytest

import rhocal
from rhocal.metrics.inference.class_figures import cox


def test_cox_by_hand():
    """Two places: each fitted share is the observed one, so intercept and slope follow from two logits."""
    p = np.repeat([0.2, 0.7], [100, 200])
    y = np.r_[np.arange(100) < 30, np.arange(200) < 120].astype(float)  # 30 % and 60 %
    intercept, slope = cox(p, y, np.ones(300))
    logit = [math.log(x / (1 - x)) for x in (0.2, 0.7, 0.3, 0.6)]
    b = (logit[3] - logit[2]) / (logit[1] - logit[0])
    assert slope.value == pytest.approx(b)
    assert intercept.value == pytest.approx(logit[2] - b * logit[0])
    deviation = math.sqrt(1 / (100 * 0.3 * 0.7) + 1 / (200 * 0.6 * 0.4)) / (logit[1] - logit[0])
    assert slope.high - slope.value == pytest.approx(1.959964 * deviation, rel=1e-5)


def test_cox_of_saturated_probabilities_is_the_maximum():
    """Newton's steps without a line search cycle here, and end at a slope near 1 for a model that is far too confident."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        z = rng.normal(0, 3, 500)
        y = (rng.random(500) < 1 / (1 + np.exp(-0.4 * z))).astype(float)
        p = np.where(np.abs(z) > 3, z > 0, 1 / (1 + np.exp(-2 * z)))
        intercept, slope = cox(p, y, np.ones(500))
        logit = np.where(p == 1, 30, np.where(p == 0, -30, 2 * z))
        residual = y - 1 / (1 + np.exp(-intercept.value - slope.value * logit))
        assert abs(residual.sum()) < 1e-3
        assert abs(residual @ logit) < 1e-2
        assert slope.high < 0.5


def test_weights_count_copies():
    rng = np.random.default_rng(0)
    p, times = rng.random(200), rng.integers(0, 4, 200)
    y = (rng.random(200) < p).astype(float)
    once = cox(p, y, times.astype(float))
    copies = cox(np.repeat(p, times), np.repeat(y, times), np.ones(times.sum()))
    for a, b in zip(once, copies, strict=True):
        assert (a.value, a.low, a.high) == pytest.approx((b.value, b.low, b.high))


@pytest.mark.parametrize(
    ("p", "y"),
    [
        ([0.3] * 10, [0, 1] * 5),
        ([0.2, 0.9] * 5, [0] * 10),
        ([0.1] * 20 + [0.9] * 20, [0] * 20 + [1] * 20),
        ([1.0, 0.0], [1, 0]),
        ([0.1] * 20 + [0.5] * 20, [0] * 20 + [0, 1] * 10),  # one place holds one label only: the slope has no bound
    ],
)
def test_no_estimate_is_no_number(p, y):
    intercept, slope = cox(np.array(p, float), np.array(y, float), np.ones(len(p)))
    assert math.isnan(intercept.value)
    assert math.isnan(slope.value)
    found = rhocal.evaluate(p, y, classes=[0, 1])
    assert "Cox intercept –, slope –" in str(found)
    assert "NaN" not in found.to_json()


def test_the_classes_that_differ_most_come_first():
    rng = np.random.default_rng(0)
    z = rng.normal(0, 1.5, (3000, 6))
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    y = (p.cumsum(axis=1) < rng.random((3000, 1))).sum(axis=1)
    z[:, 4] += 0.7
    names = np.array(list("abcdef"))
    found = rhocal.evaluate(z, names[y], kind="logits", classes=names)
    assert found.classes[0].name == "e"
    assert found.classes[0].p_value == 1 / 500
    assert found.classes[0].observed_expected.high < 1
    assert len(found.classes) == 6
    assert found.positive is None
    assert "p (adjusted)" in str(found)
    assert found.verdict.startswith("class e gets too much probability")
