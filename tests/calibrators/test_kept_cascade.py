"""The decision-keeping cascade: projections by hand, decisions and orders bit for bit, its confidence and its warning."""

import warnings
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import minimize

import rhocal
from helpers import synthetic
from rhocal.calibrators.cascade.confidence import KeptConfidence, corners
from rhocal.calibrators.cascade.keeping import keep, pool_top, project, with_confidence
from rhocal.calibrators.cascade.kept import KeptCascade
from rhocal.errors import DecisionWarning, InputError, RhocalWarning
from rhocal.numerics.numpy_ops import NUMPY, ArrayOps
from rhocal.numerics.special import softmax
from rhocal.numerics.tables import line_tables

METHODS = ("cascade-order", "cascade-top", "cascade-scale")
every = pytest.mark.parametrize("name", METHODS)
both = pytest.mark.parametrize("ops", [NUMPY, ArrayOps()], ids=["compiled", "portable"])


def parameters(m, scale=1.0):
    """Of ``keep``, with the confidence left as it is."""
    lines = line_tables(np.array([0.0, 1.0]), np.array([0.0, 1.0]))
    return {"scale": scale, "share": 0.0, "confidence": lines, "places": np.arange(float(m)), "n_classes": float(m)}


def fitted(name, logits, labels, weight=None, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhocalWarning)
        return rhocal.calibrator(name, **options).fit(logits, labels, weight)


def misled(n, m, seed=0):
    """Logits whose largest is often not the class: its probability goes to the next one."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, m)) * 2
    true = logits.copy()
    true[:, 1] += 2.5
    labels = (softmax(true).cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    return logits, labels


@both
def test_pooling_by_hand(ops):
    p = np.array([[0.1, 0.5, 0.3, 0.1], [0.7, 0.1, 0.1, 0.1], [0.4, 0.2, 0.3, 0.1], [0.05, 0.05, 0.5, 0.4]])
    top = np.array([[1, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0.0]])
    want = [[0.3, 0.3, 0.3, 0.1], [0.7, 0.1, 0.1, 0.1], [0.3, 0.3, 0.3, 0.1], [0.25, 0.25, 0.25, 0.25]]
    np.testing.assert_allclose(pool_top(ops, parameters(4), p, top), want)


@pytest.mark.parametrize("keeps", ["order", "top"])
@pytest.mark.parametrize("loss", ["nll", "brier"])
def test_a_projection_is_the_best_law_that_keeps(keeps, loss):
    """No other law of the family has a lower expected score: a solver with the same constraints finds no better one."""
    rng = np.random.default_rng(3)
    for _ in range(10):
        p, z = rng.dirichlet(np.ones(4), 1), rng.normal(size=(1, 4))
        q = project(NUMPY, parameters(4), keeps, p, z)[0][0]
        order = np.argsort(-z[0])

        def expected(q, p=p[0]):
            return -(p * np.log(np.maximum(q, 1e-12))).sum() if loss == "nll" else ((p - q) ** 2).sum()

        pairs = pairwise(order) if keeps == "order" else ((order[0], k) for k in order[1:])
        limits = [{"type": "ineq", "fun": lambda q, a=a, b=b: q[a] - q[b]} for a, b in pairs]
        limits.append({"type": "eq", "fun": lambda q: q.sum() - 1})
        best = minimize(expected, np.full(4, 0.25), bounds=[(0, 1)] * 4, constraints=limits, options={"ftol": 1e-12})
        np.testing.assert_allclose(q.sum(), 1)
        assert expected(q) <= best.fun + 1e-6
        np.testing.assert_allclose(q, best.x, atol=2e-3)


@both
def test_a_law_with_a_confidence_by_hand(ops):
    p = np.array([[0.4, 0.3, 0.2, 0.1], [0.4, 0.4, 0.15, 0.05]])
    top = np.array([[1.0, 0, 0, 0], [1, 0, 0, 0]])
    q = with_confidence(ops, parameters(4), p, top, np.array([[0.7], [0.3]]))
    # The second would give 0.4 / 0.6 * 0.7 = 0.47 to the next class: it gets 0.3, and the other two share the rest as 3 : 1.
    np.testing.assert_allclose(q, [[0.7, 0.15, 0.1, 0.05], [0.3, 0.3, 0.3, 0.1]])


@both
def test_a_scale_is_found_again(ops):
    z = np.random.default_rng(0).normal(size=(20, 5)) * 3
    p = softmax(0.7 * z)
    out = keep(ops, parameters(5), "scale", p, z)
    np.testing.assert_allclose(softmax(out), p, atol=5e-3)


@pytest.mark.parametrize("keeps", ["order", "top", "scale"])
def test_both_operations_give_the_same(keeps):
    rng = np.random.default_rng(1)
    z = rng.normal(size=(300, 7)).round(1) * 3
    z[:20] = 1.5  # all equal
    z[20:40, 3] = -1e9
    p = rng.dirichlet(np.full(7, 0.3), 300)
    one, two = (keep(ops, parameters(7, 1.3), keeps, p, z) for ops in (NUMPY, ArrayOps()))
    np.testing.assert_allclose(softmax(one), softmax(two), atol=1e-10)


@every
@pytest.mark.parametrize("m", [2, 3, 12, 70])
def test_no_decision_changes(name, m):
    logits, labels = misled(1_000, m)
    logits = logits.round(1).astype(np.float32)  # full of ties, also of the largest logit
    cal = fitted(name, logits, labels)
    assert cal.law_.label == "cascade"
    if m > 2 and name != "cascade-scale":
        assert cal.solution_.trials[-1]["preferred_otherwise"] > 0.05
    fresh = misled(3_000, m, seed=7)[0].round(1)
    fresh[:50, :2] = -1e9
    fresh[50:80] = 0.5
    for dtype in (np.float32, np.float64):
        check_decisions(name, cal, fresh.astype(dtype))


def check_decisions(name, cal, fresh):
    probs, out = cal.predict_proba(fresh), cal.transform(fresh)
    top = fresh.argmax(axis=1)
    for values in (probs, out):
        assert values.dtype == fresh.dtype
        np.testing.assert_array_equal(values.argmax(axis=1), top)
    np.testing.assert_array_equal(cal.predict(fresh), top)
    np.testing.assert_allclose(probs.sum(axis=1), 1, atol=1e-6)
    if name != "cascade-top":
        order = np.argsort(fresh, axis=1, kind="stable")
        for values in (probs, out):
            ranked = np.take_along_axis(values, order, axis=1)
            assert (np.diff(ranked, axis=1) >= 0).all()
            is_tied = np.diff(np.take_along_axis(fresh, order, axis=1), axis=1) == 0
            assert (np.diff(ranked, axis=1)[is_tied] == 0).all()


@every
def test_masks_constant_logits_and_absent_classes(name):
    logits, labels = synthetic(800, 5, seed=3)
    masked = logits.copy()
    masked[:, 4] = -1e9
    kept = labels < 4
    cal = fitted(name, masked[kept], labels[kept])
    assert np.isfinite(np.log(np.maximum(cal.predict_proba(masked), 1e-300))).all()
    assert np.isfinite(cal.transform(masked.astype(np.float32))).all()
    equal = fitted(name, np.ones((800, 5)), labels)
    np.testing.assert_allclose(equal.predict_proba(np.ones((3, 5))), 0.2)
    some = logits.copy()
    some[:400] = 0.0
    np.testing.assert_allclose(fitted(name, some, labels).predict_proba(np.zeros((3, 5))), 0.2, atol=1e-12)


@every
def test_laws_of_samples(name):
    logits, labels = misled(900, 4)
    order = np.random.default_rng(0).permutation(900)
    cal = fitted(name, logits, labels)
    again = fitted(name, logits[order], labels[order])
    np.testing.assert_allclose(cal.predict_proba(logits), again.predict_proba(logits), atol=2e-6)
    times = np.random.default_rng(1).integers(0, 3, 900)
    weighted = fitted(name, logits, labels, times)
    repeated = fitted(name, np.repeat(logits, times, axis=0), np.repeat(labels, times))
    np.testing.assert_allclose(weighted.predict_proba(logits), repeated.predict_proba(logits), atol=2e-6)
    columns = np.array([2, 0, 3, 1])
    renamed = fitted(name, logits[:, columns], np.argsort(columns)[labels])
    np.testing.assert_allclose(
        cal.predict_proba(logits)[:, columns], renamed.predict_proba(logits[:, columns]), atol=2e-6
    )


@every
def test_an_artifact_gives_the_same_bits(name, tmp_path):
    logits, labels = misled(900, 4)
    cal = fitted(name, logits, labels)
    cal.save(tmp_path / "kept.safetensors")
    loaded = rhocal.load(tmp_path / "kept.safetensors")
    assert loaded.label == name
    np.testing.assert_array_equal(loaded.predict_proba(logits), cal.predict_proba(logits))


@every
def test_torch_and_functions_give_the_same(name):
    import torch

    logits, labels = misled(900, 4)
    logits = logits.round(1)
    cal = fitted(name, logits, labels)
    want = cal.predict_proba(logits)
    function, numbers = cal.apply_fn()
    np.testing.assert_allclose(function(numbers, logits), want, atol=1e-6)
    module = cal.to_torch(output="probs")
    np.testing.assert_allclose(module(torch.tensor(logits)).numpy(), want, atol=1e-6)
    single = module(torch.tensor(logits, dtype=torch.float32)).numpy()
    np.testing.assert_array_equal(single.argmax(axis=1), logits.astype(np.float32).argmax(axis=1))


def test_the_order_of_many_classes_is_not_exported():
    logits, labels = misled(900, 70)
    cal = fitted("cascade-order", logits, labels)
    assert not cal.is_portable
    with pytest.raises(InputError, match="70 classes"):
        cal.to_torch()
    function, numbers = fitted("cascade-top", logits, labels).apply_fn()
    assert function(numbers, logits).shape == logits.shape


def test_few_samples_fall_back_to_field():
    cal = fitted("cascade-top", *synthetic(300, 4, seed=3))
    assert cal.law_.label == "field"


def test_what_keeping_costs_is_said():
    logits, labels = misled(4_000, 3)
    with pytest.warns(DecisionWarning, match=r"costs 0\.\d+ NLL here.*another class in \d\d\.\d %.*cascade"):
        rhocal.calibrator("cascade-top").fit(logits, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DecisionWarning)
        rhocal.calibrator("cascade-top").fit(*synthetic(4_000, 3, seed=3))


def test_slack_is_between_likelihood_and_calibration():
    logits, labels = misled(4_000, 3)
    shares = [fitted("cascade-top", logits, labels, slack=slack).share_ for slack in (0.0, 0.5, np.inf)]
    assert shares[0] >= shares[1] >= shares[2] == 0
    assert shares[0] > 0


def test_the_confidence_map():
    c = np.linspace(0.3, 0.9, 2_000)
    confidence = KeptConfidence.fit(c, c, np.ones(2_000), 3, 0.0)
    assert confidence.share == 0  # nothing binds: nothing to correct
    low = KeptConfidence.fit(c, np.maximum(c - 0.2, 0.1), np.ones(2_000), 3, 0.0)
    assert low.share == 1
    knots, values = corners(np.array([0.4, 0.5, 0.6]), np.array([0.1, 0.3, 0.8]), np.ones(3), 0.25)
    np.testing.assert_allclose(knots, [0.4, 0.5, 0.6])
    np.testing.assert_allclose(values, [0.25, 0.25, 0.8])  # the first two have the mean 0.2: below the lowest


def test_options_are_checked():
    with pytest.raises(InputError, match=r"^keeps is 'order', 'top' or 'scale'; got 'rank'"):
        KeptCascade(keeps="rank").fit(*synthetic(600, 3))
