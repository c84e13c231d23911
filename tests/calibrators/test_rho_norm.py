"""ρ-Norm Scaling."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from helpers import examples, fit_map, real, synthetic
from rhocal import RhoNormScaling, TemperatureScaling, calibrator, confidence_bounds, demo_logits
from rhocal.calibrators.scale.rho_norm import ALPHAS, GRID
from rhocal.errors import ConvergenceWarning, InputError
from rhocal.numerics.bins import BinSums
from rhocal.numerics.special import rho_norm_slope, rho_norms, softmax


def test_the_map_is_the_papers():
    logits, labels = synthetic(400, 5)
    cal = RhoNormScaling(center=False).fit(logits, labels)
    norm = (np.abs(logits) ** cal.rho_).sum(1) ** (1 / cal.rho_)
    expected = softmax(logits / (cal.gamma_ * norm + cal.beta_)[:, None])
    np.testing.assert_allclose(cal.predict_proba(logits), expected, atol=1e-12)


def test_every_grid_point_is_in_the_evidence():
    logits, labels = synthetic(400, 5)
    cal = RhoNormScaling().fit(logits, labels)
    trials = cal.solution_.trials
    assert [trial["rho"] for trial in trials] == list(GRID)
    assert min(trials, key=lambda trial: trial["ece"])["rho"] == cal.rho_
    confidence, correct = cal.predict_proba(logits).max(1), (logits.argmax(1) == labels) * 1.0
    ece = BinSums.of(confidence, correct, n_bins=10).error(1)
    assert np.isclose(min(trial["ece"] for trial in trials), ece)


@pytest.mark.parametrize("objective", ["nll", "sce", "brier", "top-brier", "sb-ece", "nll + avuc", "sce + 0.01*kl"])
@pytest.mark.parametrize("m", [5, 100])
def test_never_above_temperature_scaling_on_its_own_objective(objective, m):
    logits, labels = synthetic(500, m, seed=5)
    temperature = TemperatureScaling(objective=objective).fit(logits, labels).solution_.value
    for rho in (1.0, 2.0, "learn"):
        cal = RhoNormScaling(rho=rho, objective=objective).fit(logits, labels)
        assert cal.solution_.value <= temperature * (1 + 1e-7)


def test_learned_rho_is_no_worse_than_the_grid_on_the_objective():
    logits, labels, _, _ = real("cifar100_resnet56")
    grid = RhoNormScaling(selection="objective", objective="nll").fit(logits, labels)
    learned = RhoNormScaling(rho="learn", objective="nll").fit(logits, labels)
    assert learned.solution_.value <= grid.solution_.value * (1 + 1e-6)
    assert 1 <= learned.rho_ <= 3


def test_alpha_auto_tries_every_alpha():
    logits, labels = synthetic(300, 4)
    cal = RhoNormScaling(rho=2.0, alpha="auto").fit(logits, labels)
    assert [trial["alpha"] for trial in cal.solution_.trials] == list(ALPHAS)
    assert cal.alpha_ == min(cal.solution_.trials, key=lambda trial: trial["ece"])["alpha"]


def test_a_large_alpha_leaves_the_distribution_as_it_was():
    logits, labels = synthetic(300, 4)
    cal = RhoNormScaling(alpha=1e6).fit(logits, labels)
    np.testing.assert_allclose(cal.predict_proba(logits), softmax(logits), atol=1e-3)


def test_sgd_reaches_the_optimum_of_the_expected_objective():
    logits, labels, _, _ = real("cifar10_vgg16_bn")
    exact = RhoNormScaling(rho=2.0, objective="sce").fit(logits, labels).solution_.value
    drawn = RhoNormScaling(rho=2.0, objective="sce", solver="sgd", n_steps=40_000).fit(logits, labels).solution_.value
    assert exact <= drawn <= 1.01 * exact


def test_sgd_reaches_the_optimum_with_the_papers_objective():
    logits, labels, _, _ = real("cifar100_resnet56")
    options = {"rho": 2.0, "kappa": None}
    exact = RhoNormScaling.paper(**options, solver="expected").fit(logits, labels).solution_.value
    drawn = RhoNormScaling.paper(**options, n_steps=8_000).fit(logits, labels).solution_.value
    assert exact <= drawn <= 1.01 * exact


@pytest.mark.parametrize("make", [RhoNormScaling.paper, partial(RhoNormScaling, solver="sgd")])
def test_a_descent_that_stops_early_says_so(make):
    logits, labels = demo_logits("cal", "table")
    with pytest.warns(ConvergenceWarning, match="stopped before"):
        early = make(n_steps=5).fit(logits, labels)
    assert not early.solution_.converged
    assert make(n_steps=2000).fit(logits, labels).solution_.converged


@pytest.mark.filterwarnings("ignore::rhocal.errors.ConvergenceWarning")
def test_sgd_is_bit_reproducible_for_a_seed():
    logits, labels = synthetic(300, 4)

    def fit(seed):
        cal = RhoNormScaling.paper(n_steps=300, random_state=seed).fit(logits, labels)
        return cal.rho_, cal.gamma_, cal.beta_

    assert fit(7) == fit(7)
    assert fit(7) != fit(8)


def test_the_papers_preset():
    cal = RhoNormScaling.paper()
    assert (cal.solver, cal.alpha, cal.objective, cal.kappa, cal.selection) == ("sgd", 1.0, "sce", 1e-4, "ece")
    assert calibrator("rho-norm-paper").get_params() == cal.get_params()
    assert RhoNormScaling.paper(alpha=0.5).alpha == 0.5


def test_smoothing_the_maximum_changes_next_to_nothing():
    logits, labels = synthetic(500, 5)
    plain = RhoNormScaling(rho=2.0).fit(logits, labels).predict_proba(logits)
    smooth = RhoNormScaling(rho=2.0, kappa=1e-4).fit(logits, labels).predict_proba(logits)
    assert 0 < np.abs(plain - smooth).max() < 1e-3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rho": 0.5}, "at least 1"),
        ({"rho": "best"}, "rho is 'grid', 'learn' or a finite number of at least 1"),
        ({"grid": ()}, "grid is a sequence of at least one"),
        ({"alpha": -1}, "alpha is 'auto' or a number of at least 0"),
        ({"alpha": "big"}, "'auto'"),
        ({"solver": "newton"}, "solver is 'expected' or 'sgd'"),
        ({"selection": "nll"}, "selection is 'ece' or 'objective'"),
        ({"objective": "ece"}, "unknown term 'ece'"),
        ({"n_bins": 0}, "n_bins"),
        ({"rho": "learn", "solver": "sgd"}, "needs solver='expected'"),
        ({"batch_size": 0}, "batch_size"),
    ],
)
def test_bad_options_are_explained(options, message):
    with pytest.raises(InputError, match=message):
        RhoNormScaling(**options).fit(*synthetic(50, 3))


def test_norms_do_not_overflow_and_zero_rows_are_fine():
    z = np.array([[1e300, -1e300], [0.0, 0.0], [1e-300, 0.0]])
    norms = rho_norms(z, [1.0, 2.0, 3.0])
    np.testing.assert_allclose(norms[0], 1e300 * 2 ** np.array([1, 1 / 2, 1 / 3]))
    np.testing.assert_array_equal(norms[1], 0)
    np.testing.assert_allclose(norms[2], 1e-300)
    assert np.isfinite(rho_norm_slope(z, 1.5)).all()


def test_slope_of_the_norm_in_rho():
    z = np.random.default_rng(0).normal(size=(20, 6))
    h = 1e-6
    numeric = (rho_norms(z, [1.7 + h]) - rho_norms(z, [1.7 - h]))[:, 0] / (2 * h)
    norm, slope = rho_norm_slope(z, 1.7)
    np.testing.assert_allclose(norm, rho_norms(z, [1.7])[:, 0])
    np.testing.assert_allclose(slope, numeric, rtol=1e-7)


# Proposition 1 ----------------------------------------------------------------------------------------------------------


@given(
    z=hnp.arrays(np.float64, st.integers(2, 12), elements=st.floats(-10, 10, allow_subnormal=False)),
    rho=st.floats(1, 4),
    gamma=st.floats(0.02, 5),
)
@examples(500)
def test_no_probability_leaves_the_bounds(z, rho, gamma):
    norm = rho_norms(z[None], [rho])[0, 0]
    if norm == 0:
        return
    p = softmax(z[None] / (gamma * norm))[0]
    low, high = confidence_bounds(len(z), rho, gamma)
    assert low <= p.min() * (1 + 1e-9)
    assert p.max() <= high * (1 + 1e-9)


@pytest.mark.parametrize("m", [2, 3, 10, 1000])
@pytest.mark.parametrize("rho", [1.25, 2.0, 3.0])
@pytest.mark.parametrize("gamma", [0.05, 0.5])
def test_the_upper_bound_is_attained(m, rho, gamma):
    z = np.full(m, -((m - 1) ** (-1 / (rho - 1))))
    z[0] = 1
    p = softmax(z[None] / (gamma * rho_norms(z[None], [rho])[0, 0]))[0]
    assert np.isclose(p.max(), confidence_bounds(m, rho, gamma)[1], rtol=1e-9)


def smallest_found(m, rho, gamma):
    """The smallest probability of the first class, of logits with three values: its own, that of another class, the rest."""
    own, other = np.meshgrid(np.geomspace(1e-2, 1e3, 151), np.linspace(-1, 1, 81))
    z = np.stack([-own.ravel(), other.ravel(), np.ones(own.size)])
    shares = (np.array([1, m - 2, 1]), np.array([1, 1, m - 2]))  # the rest at `other`, or above it
    found = []
    for counts in shares:
        x = z / (gamma * (counts @ np.abs(z) ** rho) ** (1 / rho))
        found.append(1 / (counts @ np.exp(x - x[0])))
    return min(p.min() for p in found)


@pytest.mark.parametrize("m", [3, 10, 1000])
@pytest.mark.parametrize("rho", [1.0, 1.25, 2.0, 3.0])
@pytest.mark.parametrize("gamma", [0.05, 0.3, 2.0])
def test_the_lower_bound_is_near_the_smallest_probability(m, rho, gamma):
    """From below, by a factor of at most m − 1."""
    low, found = confidence_bounds(m, rho, gamma)[0], smallest_found(m, rho, gamma)
    assert low <= found * (1 + 1e-9)
    assert found <= low * (m - 1) * (1 + 1e-9)  # z ∝ (−1, 0, …, 1) is on the grid


@pytest.mark.parametrize(("m", "rho", "z"), [(2, 2.0, [-1, 1]), (2, 1.25, [-1, 1]), (5, 1.0, [-1, 0, 0, 0, 0])])
def test_the_lower_bound_is_attained_with_two_classes_and_at_rho_1(m, rho, z):
    z = np.array([z], np.float64)
    p = softmax(z / (0.3 * rho_norms(z, [rho])[0, 0]))[0]
    assert np.isclose(p.min(), confidence_bounds(m, rho, 0.3)[0], rtol=1e-12)


@pytest.mark.parametrize(
    ("m", "gamma", "holds"), [(3, 0.1, False), (3, 0.3, False), (3, 0.5, True), (100, 0.05, False), (100, 0.2, True)]
)
def test_where_the_printed_lower_bound_holds(m, gamma, holds):
    """At ρ = 2. It is the probability at z ∝ (−(m−1), 1, …, 1), so that it is attained where it holds."""
    z = np.array([[1.0 - m] + [1.0] * (m - 1)])
    printed = 1 / ((m - 1) * np.exp((1 + 1 / (m - 1)) ** 0.5 / gamma) + 1)
    assert np.isclose(softmax(z / (gamma * np.linalg.norm(z)))[0, 0], printed, rtol=1e-9)
    assert (smallest_found(m, 2.0, gamma) >= printed * (1 - 1e-9)) == holds


def test_the_printed_lower_bound_is_wrong():
    """m = 3, ρ = 2, γ = .1, z ∝ (1, −1, 0): the paper says no class gets less than 2.4e−6."""
    z = np.array([[1.0, -1.0, 0.0]])
    smallest = softmax(z / (0.1 * np.sqrt(2))).min()
    k = (1 + 2 ** (-1.0)) ** 0.5
    printed = 1 / (2 * np.exp(k / 0.1) + 1)
    assert smallest < 7.3e-7
    assert printed > 2.3e-6
    assert confidence_bounds(3, 2, 0.1)[0] <= smallest


def test_bounds_do_not_overflow_and_bad_arguments_are_said():
    assert confidence_bounds(10, 2, 1e-6) == (0.0, 1.0)
    with pytest.raises(InputError, match="gamma > 0"):
        confidence_bounds(10, 2, 0)


@pytest.mark.parametrize("ratio", [1, 4, 12, 40, 63, 500])
@pytest.mark.parametrize("m", [3, 20, 100])
def test_rows_with_an_offset_have_one_probability_in_both_precisions(m, ratio):
    """A mean of 35 times the range of a row was rounded before it was subtracted: 1.1e-6 apart, and up to 7e-6."""
    rng = np.random.default_rng(m)
    rows = rng.normal(size=(2_000, m)) * 5
    rows -= rows.mean(axis=1, keepdims=True)
    cal = fit_map(RhoNormScaling(), rows, (rows + 5 * rng.gumbel(size=rows.shape)).argmax(axis=1))
    moved = (rows + ratio * rows.max(axis=1, keepdims=True)).astype(np.float32)
    single, double = cal.predict_proba(moved), cal.predict_proba(moved.astype(np.float64))
    np.testing.assert_allclose(single, double, rtol=0, atol=1e-6)
