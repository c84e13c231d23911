"""Vector scaling, histogram binning and the table of names."""

import numpy as np
import pytest
from scipy.optimize import minimize

import rhocal
from helpers import real, synthetic
from rhocal import HistogramBinning, TemperatureScaling, VectorScaling
from rhocal.calibrators import CALIBRATORS
from rhocal.errors import ConvergenceWarning, InputError
from rhocal.numerics.special import log_softmax, softmax
from rhocal.optimize import stochastic


def test_vector_scaling_is_the_minimum_of_its_objective():
    logits, labels = synthetic(400, 3)
    cal = VectorScaling(ridge=0.0).fit(logits, labels)

    def nll(x):
        return -log_softmax(logits * x[:3] + x[3:])[np.arange(400), labels].mean()

    peer = minimize(nll, np.r_[np.ones(3), np.zeros(3)], method="BFGS", tol=1e-9)
    assert np.isclose(nll(np.r_[cal.weight_, cal.bias_]), peer.fun, rtol=1e-8)


def test_vector_scaling_finds_a_bias_that_temperature_cannot():
    logits, labels = synthetic(5000, 3)
    shifted = logits + np.array([2.0, 0.0, -2.0])
    cal = VectorScaling().fit(shifted, labels)
    relative = cal.bias_ - cal.bias_.mean()
    np.testing.assert_allclose(relative, [-2 / 2.5, 0, 2 / 2.5], atol=0.15)


def test_the_ridge_holds_an_absent_class():
    logits, labels = synthetic(400, 3)
    kept = labels != 2
    cal = VectorScaling().fit(logits[kept], labels[kept])
    assert np.abs(cal.bias_).max() < 20


@pytest.mark.filterwarnings("ignore::rhocal.errors.ConvergenceWarning")  # accuracy jumps where a decision changes
def test_vector_scaling_under_sce_needs_the_kl_term():
    """Table 3 of the paper in direction: with SCE alone the distribution is free to go anywhere; KL holds it."""
    logits, labels, _, _ = (values[:2000] for values in real("cifar100_resnet56"))
    base = log_softmax(logits.astype(np.float64))

    def divergence(objective):
        g = log_softmax(VectorScaling(objective=objective).fit(logits, labels).transform(logits.astype(np.float64)))
        return (np.exp(g) * (g - base)).sum(1).mean()

    assert divergence("sce + kl") < divergence("sce")


def test_histogram_binning_by_hand():
    p = np.array([[0.95, 0.03, 0.02], [0.93, 0.05, 0.02], [0.91, 0.08, 0.01], [0.91, 0.01, 0.08], [0.4, 0.35, 0.25]])
    cal = HistogramBinning().fit(p, [0, 0, 0, 1, 0], kind="probs")
    assert cal.bins_[0, 9] == 0.75  # three of four right
    assert np.isclose(cal.bins_[0, 3], 2 / 3)  # one of one right: 1 − 1/(1 + 2)
    out = cal.predict_proba([[0.96, 0.03, 0.01], [0.55, 0.25, 0.2], [1.0, 0.0, 0.0]])
    np.testing.assert_allclose(out[0], [0.75, 0.25 * 3 / 4, 0.25 / 4])  # the rest in proportion
    np.testing.assert_allclose(out[1], [0.55, 0.25, 0.2])  # an empty bin changes nothing
    np.testing.assert_allclose(out[2], [0.75, 0.125, 0.125], atol=1e-6)  # nothing to go by: evenly


def test_histogram_binning_one_vs_rest_by_hand():
    p = np.array([[0.9, 0.1], [0.9, 0.1], [0.9, 0.1], [0.9, 0.1]])
    cal = HistogramBinning(scope="one-vs-rest").fit(p, [0, 0, 0, 1], kind="probs")
    np.testing.assert_allclose(cal.predict_proba([[0.95, 0.05]])[0], [0.95 / 1.2, 0.25 / 1.2])  # the first bin is empty
    np.testing.assert_allclose(cal.predict_proba([[0.9, 0.1]])[0], [0.75, 0.25])


@pytest.mark.parametrize("options", [{"n_bins": 0}, {"n_bins": 2.5}, {"scope": "all"}])
def test_histogram_binning_bad_options(options):
    with pytest.raises(InputError, match=next(iter(options))):
        HistogramBinning(**options).fit(*synthetic(20, 3))


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ({"ridge": -1}, "ridge"),
        ({"solver": "newton"}, "solver is 'expected', 'sgd' or 'adam'; got 'newton'"),
        ({"start": "zero"}, "start is 'temperature', 'identity' or 'random'; got 'zero'"),
    ],
)
def test_vector_scaling_bad_options(option, says):
    with pytest.raises(InputError, match=says):
        VectorScaling(**option).fit(*synthetic(20, 3))


@pytest.mark.parametrize(
    ("start", "solver", "n_steps"),
    [("temperature", "sgd", 2500), ("identity", "adam", 1500), ("random", "sgd", 2500), ("random", "adam", 1500)],
)
def test_mini_batches_end_at_the_exact_minimum(start, solver, n_steps):
    """NLL is convex: descent and the exact solver agree, wherever they begin."""
    logits, labels = synthetic(2000, 3)
    logits = logits + np.array([2.0, 0.0, -2.0])
    exact = VectorScaling(ridge=0, start=start).fit(logits, labels)
    drawn = VectorScaling(ridge=0, start=start, solver=solver, n_steps=n_steps).fit(logits, labels)
    assert drawn.solution_.converged
    assert exact.solution_.value == pytest.approx(VectorScaling(ridge=0).fit(logits, labels).solution_.value, rel=1e-9)
    assert drawn.solution_.value == pytest.approx(exact.solution_.value, rel=2e-3)
    np.testing.assert_allclose(drawn.predict_proba(logits), exact.predict_proba(logits), atol=0.02)


@pytest.mark.filterwarnings("ignore::rhocal.errors.ConvergenceWarning")
def test_mini_batches_are_drawn_by_the_seed():
    logits, labels = synthetic(300, 3)
    one, same, other = (
        VectorScaling("sce", solver="sgd", n_steps=50, random_state=seed).fit(logits, labels) for seed in (0, 0, 1)
    )
    assert np.array_equal(one.weight_, same.weight_)
    assert not np.array_equal(one.weight_, other.weight_)
    assert one.solution_.n_evaluations == 50


@pytest.mark.parametrize("solver", ["sgd", "adam"])
def test_a_descent_that_stops_early_says_so(solver):
    logits, labels = synthetic(2000, 3, scale=8.0)
    with pytest.warns(ConvergenceWarning, match="stopped before"):
        drawn = VectorScaling(ridge=0, solver=solver, start="identity", n_steps=5).fit(logits, labels)
    assert not drawn.solution_.converged


def test_two_steps_of_adam_by_hand():
    """The first is as long as ``ADAM_STEP`` in every parameter, whatever the slopes; the second is the second half of both.

    Slopes are (4, -0.01), then (2, 0.01). The second step has half the length; its means of slopes are (0.9·4 + 2)/1.9 and
    (−0.9·0.01 + 0.01)/1.9, those of squares (0.999·16 + 4)/1.999 and 0.0001.
    """
    slopes = iter([np.array([[4.0, -0.01]]), np.array([[2.0, 0.01]])])
    start = np.array([[1.0, 1.0]])
    end = stochastic.adam(
        lambda _x, _rows: next(slopes), start, weights=np.ones(3), batch_size=2, n_steps=2, random_state=0
    )
    first = np.array([1 - 0.05, 1 + 0.05])
    means, squares = np.array([5.6, 0.001]) / 1.9, np.array([(0.999 * 16 + 4) / 1.999, 1e-4])
    second = first - 0.025 * means / np.sqrt(squares)
    np.testing.assert_allclose(end[0], second, rtol=1e-9)


@pytest.mark.filterwarnings("ignore::rhocal.errors.FewSamplesWarning")
@pytest.mark.filterwarnings("ignore::rhocal.errors.ConvergenceWarning")
def test_a_step_of_mini_batch_descent_by_hand():
    """From the identity, one step along the slope of the batch's NLL, as long as ``stochastic.MAX_STEP``.

    All samples are z = (2, 0), a third of them of class 1: temperature scaling has e^(2/T) = 2. Two classes are centered, so
    that the map sees (1, −1).
    """
    logits, labels = np.array([[2.0, 0.0]] * 3), np.array([0, 0, 1])
    cal = VectorScaling(ridge=0, solver="sgd", start="identity", n_steps=1, random_state=5).fit(logits, labels)
    share = (np.random.default_rng(5).random(128) > 2 / 3).mean()  # of class 1 in the batch
    excess = 1 / (1 + np.exp(-2.0)) - (1 - share)
    scale = np.log(2) / 2
    slope = excess * np.array([[scale, 1.0], [scale, -1.0]])  # rows (Δ_j, b_j), in units of x = scale·z
    step = stochastic.MAX_STEP * slope / np.linalg.norm(slope)
    np.testing.assert_allclose(cal.weight_, 1 - scale * step[:, 0], rtol=1e-6)
    np.testing.assert_allclose(cal.bias_, -step[:, 1], rtol=1e-6)


@pytest.mark.filterwarnings("ignore::rhocal.errors.ConvergenceWarning")
@pytest.mark.parametrize("start", ["identity", "random"])
def test_sce_alone_costs_vector_scaling_its_accuracy(start):
    """What the paper's Table 3 does not print: SCE does not see accuracy, and mini-batches of it give it away; KL keeps it."""
    logits, labels, test, test_labels = real("cifar100_resnet56")

    def accuracy(objective):
        cal = VectorScaling(objective, ridge=0, solver="adam", start=start, n_steps=250).fit(logits, labels)
        return (cal.predict(test) == test_labels).mean()

    raw = (test.argmax(1) == test_labels).mean()
    assert accuracy("sce") < min(raw - 0.03, accuracy("sce + kl") - 0.03)


def test_the_table_builds_every_method():
    assert list(CALIBRATORS) == [
        "identity", "temperature", "temperature-avuc", "rho-norm", "rho-norm-paper", "field", "smart", "pts", "ets",
        "iop", "polynomial", "multi-domain", "auto", "vector", "matrix", "dirichlet", "svs", "sms", "svs:field",
        "sms:field", "cross-fitted", "average", "cascade", "cascade-order", "cascade-top", "cascade-scale", "platt", "beta",
        "quadratic", "isotonic", "centered-isotonic", "histogram-binning", "bbq", "spline", "venn-abers",
    ]  # fmt: skip
    assert rhocal.calibrator("temperature-avuc").objective == "nll + avuc"


def test_the_table_says_what_there_is():
    with pytest.raises(InputError, match="did you mean 'temperature'"):
        rhocal.calibrator("temprature")
    with pytest.raises(InputError, match="no option 'T'; it has objective"):
        rhocal.calibrator("temperature", T=3)


def test_identity_is_softmax():
    logits, labels = synthetic(50, 4)
    np.testing.assert_allclose(rhocal.Identity().fit(logits, labels).predict_proba(logits), softmax(logits))


def test_numbers_of_a_float32_network_stay_calibrated():
    """float32 input is fitted as well as float64 (a peer silently does nothing on it)."""
    logits, labels = synthetic(2000, 10)
    assert np.isclose(
        TemperatureScaling().fit(logits.astype(np.float32), labels).temperature_,
        TemperatureScaling().fit(logits, labels).temperature_,
        rtol=1e-6,
    )
