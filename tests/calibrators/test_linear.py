"""Linear maps of logits: matrix scaling, Dirichlet calibration, structured vector and matrix scaling."""

import warnings

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

import rhocal
from helpers import real, synthetic
from rhocal import NLL, MatrixScaling, StructuredScaling
from rhocal.calibrators.compose.cross_fit import CrossFit
from rhocal.calibrators.cross_validation import CrossValidation, HeldOut
from rhocal.calibrators.folds import Folds
from rhocal.calibrators.linear.linear_problem import LinearProblem, Ridge
from rhocal.calibrators.linear.odir import INTERCEPT, OFF_DIAGONAL, search_coordinate
from rhocal.calibrators.validated_fit import fit_validated
from rhocal.data.predictions import Predictions
from rhocal.errors import BoundaryWarning, InputError
from rhocal.numerics.special import log_softmax, softmax
from rhocal.profile.profile import Profile

SIX = [
    "cifar100_resnet56", "cifar10_resnet56", "fashionmnist_densenet", "emotion6_Qwen-14B_task", "mmbench6_llava-v1.5-7b",
    "20news_cleanlab_cv_logp",
]  # fmt: skip


def nll(p, labels):
    return -np.log(p[np.arange(len(labels)), labels].astype(np.float64)).mean()


@pytest.mark.parametrize("method", ["svs", "sms"])
def test_structured_scaling_agrees_with_probmetrics(method):
    """probmetrics 1.3.0, float32 and a looser stop: probabilities within 0.01, mean NLL far within 0.2 %."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns when imported
        from probmetrics.calibrators import get_calibrator
        from probmetrics.distributions import CategoricalLogits
    ours, theirs = [], []
    for name in SIX:
        tune, tune_labels, test, test_labels = real(name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a peer's own
            peer = get_calibrator(method).fit_torch(
                CategoricalLogits(torch.tensor(tune, dtype=torch.float32)), torch.tensor(tune_labels)
            )
            q = peer.predict_proba_torch(CategoricalLogits(torch.tensor(test, dtype=torch.float32))).get_probs().numpy()
        p = rhocal.calibrator(method).fit(tune, tune_labels).predict_proba(test)
        np.testing.assert_allclose(p, q, atol=0.01)
        ours.append(nll(p, test_labels))
        theirs.append(nll(q, test_labels))
    np.testing.assert_allclose(ours, theirs, rtol=1e-3)
    assert np.isclose(np.mean(ours), np.mean(theirs), rtol=2e-4)


@pytest.mark.parametrize("name", ["cifar10_resnet56", "fashionmnist_densenet"])
def test_vector_scaling_agrees_with_probmetrics(name):
    """probmetrics 1.3.0, BFGS in double precision, no ridge: our tune NLL is not above theirs, the probabilities are equal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns when imported
        from probmetrics.calibrators.logistic import VectorScalingCalibrator
        from probmetrics.distributions import CategoricalLogits
    tune, tune_labels, test, _ = (np.asarray(a) for a in real(name))
    tune, test = tune.astype(np.float64), test.astype(np.float64)
    peer = VectorScalingCalibrator().fit_torch(CategoricalLogits(torch.tensor(tune)), torch.tensor(tune_labels))
    ours = rhocal.VectorScaling(ridge=0.0).fit(tune, tune_labels)
    theirs = [peer.predict_proba_torch(CategoricalLogits(torch.tensor(z))).get_probs().numpy() for z in (tune, test)]
    np.testing.assert_allclose(ours.predict_proba(test), theirs[1], atol=3e-3)
    assert ours.solution_.value <= nll(theirs[0], tune_labels) + 1e-9


@pytest.mark.parametrize("method", ["matrix", "dirichlet"])
def test_free_matrix_is_multinomial_logistic_regression(method):
    """scikit-learn's LogisticRegression without penalty, on logits and on log-probabilities."""
    tune, tune_labels, test, test_labels = (np.asarray(a) for a in real("agnews_gpt2"))
    tune, test = tune.astype(np.float64), test.astype(np.float64)
    cal = rhocal.calibrator(method, ridge_off_diagonal=0, ridge_intercept=0).fit(tune, tune_labels)
    if method == "dirichlet":
        tune, test = log_softmax(tune), log_softmax(test)
    # Columns of mean 0 and deviation 1 are the same model and let the peer converge.
    mean, sd = tune.mean(0), tune.std(0)
    peer = LogisticRegression(C=np.inf, max_iter=5000, tol=1e-8).fit((tune - mean) / sd, tune_labels)
    p, q = cal.predict_proba(real("agnews_gpt2")[2]), peer.predict_proba((test - mean) / sd)
    assert np.isclose(nll(p, test_labels), nll(q, test_labels), rtol=1e-4)
    np.testing.assert_allclose(p, q, atol=1e-3)


@pytest.mark.parametrize("off_diagonal", [None, 0.02])
def test_hessian_is_the_slope_of_the_gradient(off_diagonal):
    data = Predictions.from_arrays(*synthetic(60, 3), weights=np.arange(60) % 4)
    problem = LinearProblem(
        data.logits / 3, data, Profile.from_predictions(data), NLL(), Ridge(0.01, 0.03, off_diagonal), 1e-4
    )
    shape = problem.strengths.shape
    at = np.random.default_rng(0).normal(size=shape) * 0.3
    steps = 1e-5 * np.eye(at.size).reshape(-1, *shape)
    by_differences = [((problem(at + step)[1] - problem(at - step)[1]) / 2e-5).ravel() for step in steps]
    np.testing.assert_allclose(problem.hessian(at), by_differences, atol=1e-8)


def fits_of_each_solver(monkeypatch, cal, logits, labels, names):
    """With Newton steps, with blocks of the Hessian, and with L-BFGS."""
    fits = {}
    for name in names:
        with monkeypatch.context() as patch:
            if name != "newton":
                patch.setattr("rhocal.calibrators.linear.linear_problem.FEW_PARAMETERS", 0)
            if name == "lbfgs":
                patch.setattr(LinearProblem, "has_blocks", False)
            fits[name] = clone(cal).fit(logits, labels)
    return fits


@pytest.mark.parametrize("cal", [StructuredScaling(), StructuredScaling(ridge_off_diagonal=None)], ids=["sms", "svs"])
def test_newton_steps_blocks_and_lbfgs_agree(monkeypatch, cal):
    logits, labels = synthetic(500, 5)
    newton, blocks, lbfgs = fits_of_each_solver(
        monkeypatch, cal, logits, labels, ["newton", "blocks", "lbfgs"]
    ).values()
    assert newton.solution_.n_evaluations < 15
    assert blocks.solution_.n_evaluations < lbfgs.solution_.n_evaluations
    for other in (blocks, lbfgs):
        np.testing.assert_allclose(newton.predict_proba(logits), other.predict_proba(logits), atol=2e-6)


@pytest.mark.parametrize(
    "cal",
    [StructuredScaling(), StructuredScaling(ridge_off_diagonal=None), rhocal.VectorScaling()],
    ids=["sms", "svs", "vector"],
)
def test_blocks_of_the_hessian_save_evaluations_in_single_precision(monkeypatch, cal):
    logits, labels = synthetic(5300, 50, dtype=np.float32)
    logits += 100  # slopes and biases are then correlated
    blocks, lbfgs = fits_of_each_solver(monkeypatch, cal, logits, labels, ["blocks", "lbfgs"]).values()
    assert blocks.solution_.converged
    assert 2 * blocks.solution_.n_evaluations < lbfgs.solution_.n_evaluations
    assert blocks.solution_.value < lbfgs.solution_.value * (1 + 1e-8)
    np.testing.assert_allclose(blocks.predict_proba(logits), lbfgs.predict_proba(logits), atol=2e-3)


def test_blocks_of_samples_do_not_depend_on_their_order():
    logits, labels = synthetic(5300, 50, dtype=np.float32)
    order = np.random.default_rng(0).permutation(len(labels))
    one, other = (StructuredScaling().fit(logits[rows], labels[rows]) for rows in (slice(None), order))
    np.testing.assert_allclose(one.predict_proba(logits), other.predict_proba(logits), atol=1e-6)


def test_matrix_scaling_is_the_minimum_of_its_formula():
    logits, labels = synthetic(300, 3)
    off, intercept, n = 0.7, 0.2, 300
    cal = MatrixScaling(ridge_off_diagonal=off, ridge_intercept=intercept).fit(logits, labels)
    a0 = 1 / rhocal.TemperatureScaling().fit(logits, labels).temperature_

    def formula(x):
        w, b = x[:9].reshape(3, 3), x[9:]
        apart = w / a0 - np.diag(np.diag(w / a0))
        ridge = off * (apart**2).sum() / 6 + intercept * (b**2).mean() + 0.5 / n * ((np.diag(w) / a0 - 1) ** 2).sum()
        return nll(softmax(logits @ w.T + b), labels) + ridge

    peer = minimize(formula, np.r_[a0 * np.eye(3).ravel(), 0, 0, 0], method="BFGS", tol=1e-9)
    assert np.isclose(formula(np.r_[cal.weight_.ravel(), cal.bias_]), peer.fun, rtol=1e-8)
    assert np.isclose(cal.solution_.value, peer.fun, rtol=1e-8)


def test_dirichlet_is_matrix_scaling_of_log_probabilities():
    logits, labels = synthetic(300, 4)
    a = rhocal.calibrator("dirichlet").fit(logits, labels)
    b = rhocal.calibrator("matrix").fit(log_softmax(logits), labels)
    np.testing.assert_allclose(a.predict_proba(logits), b.predict_proba(log_softmax(logits)), atol=1e-6)


def test_structured_scaling_without_off_diagonal_is_its_limit():
    logits, labels = synthetic(400, 4)
    stiff = StructuredScaling(ridge_off_diagonal=1e9).fit(logits, labels)
    vector = StructuredScaling(ridge_off_diagonal=None).fit(logits, labels)
    assert vector.weight_.shape == (4,)
    np.testing.assert_allclose(stiff.predict_proba(logits), vector.predict_proba(logits), atol=1e-5)


def test_full_maps_undo_a_mixing_of_classes():
    """Centred logits mixed by a known invertible matrix: cross-validation must find that it is worth undoing."""
    logits, labels = synthetic(4000, 3, scale=1.0)
    mixed = (logits - logits.mean(1, keepdims=True)) @ (np.eye(3) + 0.6 * np.outer([1, -1, 0], [0, 1, -1]))
    truth = nll(softmax(logits), labels)
    plain = nll(rhocal.TemperatureScaling().fit(mixed, labels).predict_proba(mixed), labels)
    for method in ("matrix", "dirichlet", "sms"):
        found = nll(rhocal.calibrator(method).fit(mixed, labels).predict_proba(mixed), labels)
        assert found < truth + 0.1 * (plain - truth)


def test_the_strengths_tried_are_evidence():
    cal = MatrixScaling().fit(*synthetic(300, 4))
    trials = cal.solution_.trials
    assert len(trials) >= 4
    assert {"ridge_off_diagonal", "ridge_intercept", "held_out", "chosen"} == set(trials[0])
    assert sum(row["chosen"] for row in trials) == 1


def three_folds():
    return Folds.from_codes(np.arange(9) % 3, np.full(9, 1 / 9), np.arange(9))


@pytest.mark.parametrize("lowest", [(1e5, 1e-3), (1e4, 1.0), (1e3, 0.1), (10.0, 100.0), (1e-3, 1e5)])
def test_the_search_by_coordinates_ends_at_the_lowest_strengths(lowest):
    """A bowl in log λ and log μ, the same on every fold; no pair is fitted twice, and each starts next to where it is."""
    seen = []

    def fit(pair, fold, start):
        assert start is None or abs(np.log10(start) - np.log10(pair)).sum() < 1.5
        seen.append((pair, fold))
        return np.array(pair)

    def score(pair, _model, _fold):
        return HeldOut(2 + 0.001 * float(((np.log10(pair) - np.log10(lowest)) ** 2).sum()))

    validation = CrossValidation(three_folds(), fit, score)
    best = search_coordinate(validation, 0, (OFF_DIAGONAL, INTERCEPT))
    assert search_coordinate(validation, 1, best) == lowest
    assert len(seen) == len(set(seen))


def test_a_pair_far_behind_is_not_fitted_on_further_folds():
    seen = []

    def fit(pair, fold, _start):
        seen.append((pair[0], fold.number))
        return np.zeros(1)

    validation = CrossValidation(
        three_folds(), fit, lambda pair, _model, _fold: HeldOut(1.0 if pair[0] == OFF_DIAGONAL else 1.5)
    )
    assert search_coordinate(validation, 0, (OFF_DIAGONAL, INTERCEPT)) == (OFF_DIAGONAL, INTERCEPT)
    assert seen == [(OFF_DIAGONAL, 0), (OFF_DIAGONAL, 1), (OFF_DIAGONAL, 2), (1e4, 0), (1e2, 0)]


def test_folds_begin_where_another_fit_ended():
    logits, labels = synthetic(500, 14)  # more parameters than Newton steps are taken for
    near = StructuredScaling().fit(logits, labels)
    some = logits[:450], labels[:450]
    cold, warm = (
        StructuredScaling().fit(*some),
        fit_validated(StructuredScaling(), Predictions.from_arrays(*some), start=near.map_),
    )
    assert warm.solution_.n_evaluations < cold.solution_.n_evaluations
    np.testing.assert_allclose(warm.predict_proba(logits), cold.predict_proba(logits), atol=1e-5)
    # another shape: from the beginning
    other = fit_validated(StructuredScaling(ridge_off_diagonal=None), Predictions.from_arrays(*some), start=near.map_)
    np.testing.assert_array_equal(other.weight_, StructuredScaling(ridge_off_diagonal=None).fit(*some).weight_)


@pytest.mark.parametrize("name", ["vector", "matrix", "dirichlet", "svs", "sms"])
@pytest.mark.parametrize("text", ["brier", "nll + 0.1*kl", "nll + kl(direction=from-base)"])
def test_any_objective(name, text):
    logits, labels = synthetic(400, 4)
    cal = rhocal.calibrator(name, objective=text).fit(logits, labels)
    assert cal.solution_.converged
    assert cal.solution_.objective == str(rhocal.objective(text))


@pytest.mark.filterwarnings("ignore::rhocal.errors.FewSamplesWarning")
@pytest.mark.parametrize("name", ["svs", "vector"])
def test_a_thousand_classes(name):
    logits, labels = synthetic(1500, 1000)
    cal = rhocal.calibrator(name).fit(logits.astype(np.float32), labels)
    temperature = rhocal.TemperatureScaling().fit(logits, labels)
    assert cal.solution_.converged
    assert nll(cal.predict_proba(logits), labels) <= 1.0001 * nll(temperature.predict_proba(logits), labels)


@pytest.mark.parametrize("name", ["matrix", "dirichlet"])
def test_full_matrices_say_what_to_use_for_many_classes(name):
    with pytest.raises(InputError, match=r"201² = 40,401 numbers .* limited to 200 classes; use sms or svs"):
        rhocal.calibrator(name).fit(*synthetic(300, 201))


def test_sms_is_limited_by_memory(monkeypatch):
    logits, labels = synthetic(300, 201)
    assert rhocal.calibrator("sms").fit(logits, labels).solution_.converged
    monkeypatch.setattr("rhocal.calibrators.linear.linear.MAX_MATRIX_BYTES", 8 * 28 * 200**2)
    with pytest.raises(InputError, match=r"201² = 40,401 numbers .* limited to 200 classes; use svs"):
        rhocal.calibrator("sms").fit(logits, labels)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("matrix", {"inputs": "probs"}),
        ("matrix", {"ridge_off_diagonal": "auto"}),
        ("matrix", {"ridge_intercept": -1}),
        ("matrix", {"n_folds": 1}),
        ("matrix", {"kappa": 0}),
        ("sms", {"ridge_off_diagonal": -1}),
        ("svs", {"ridge_diagonal": float("nan")}),
    ],
)
def test_bad_options_are_said(name, options):
    with pytest.raises(InputError, match=next(iter(options))):
        rhocal.calibrator(name, **options).fit(*synthetic(40, 3))


@pytest.mark.parametrize("name", ["vector", "matrix"])
def test_forms_of_binary_scores_give_the_same_map(name):
    """One column, two columns with any mean, probabilities."""
    rng = np.random.default_rng(0)
    score = 3 * rng.normal(size=400)
    labels = (rng.random(400) < 1 / (1 + np.exp(-0.5 * score - 0.3))).astype(int)
    two = np.stack([np.zeros(400), score], axis=1)
    p = 1 / (1 + np.exp(-score))
    expected = rhocal.calibrator(name).fit(score, labels).predict_proba(score)
    for logits in (two, two + rng.normal(size=(400, 1))):
        np.testing.assert_allclose(
            rhocal.calibrator(name).fit(logits, labels).predict_proba(logits), expected, atol=1e-7
        )
    of_probs = rhocal.calibrator(name).fit(np.stack([1 - p, p], axis=1), labels, kind="probs")
    np.testing.assert_allclose(of_probs.predict_proba(np.stack([1 - p, p], axis=1)), expected, atol=1e-6)


@pytest.mark.parametrize("name", ["svs", "vector", "sms", "svs:field"])
def test_single_precision_gives_the_same_map(name, monkeypatch):
    """Large data are fitted in single precision, and folds of a chain share their features."""
    logits, labels = synthetic(1700, 80)
    double = rhocal.calibrator(name).fit(logits.astype(np.float32), labels)
    monkeypatch.setattr("rhocal.calibrators.linear.linear.MIN_SINGLE_ENTRIES", 0)
    single = rhocal.calibrator(name).fit(logits.astype(np.float32), labels)
    assert single.solution_.converged
    ours, other = (cal.predict_proba(logits).astype(np.float64) for cal in (single, double))
    losses = [nll(p, labels) for p in (ours, other)]
    assert losses[0] == pytest.approx(losses[1], rel=2e-5)
    np.testing.assert_allclose(ours, other, atol=2e-3)


@pytest.mark.parametrize("name", ["svs", "sms"])
def test_held_out_logits_are_those_of_fits_without_the_fold(name, monkeypatch):
    """But for their one temperature, which all samples share."""
    logits, labels = synthetic(1500, 80)
    data = Predictions.from_arrays(logits.astype(np.float32), labels).prepared()
    monkeypatch.setattr("rhocal.calibrators.linear.linear.MIN_SINGLE_ENTRIES", 0)
    monkeypatch.setattr("rhocal.calibrators.linear.structured.MIN_SHARED_SAMPLES", 0)
    cal = fit_validated(rhocal.calibrator(name), data)
    folds = Folds.from_profile(Profile.from_predictions(data), 10)
    together = cal._held_out_logits(data, folds)
    one_by_one = CrossFit.from_folds(cal, data, folds, cal).outputs(data)
    ours, other, own = (
        nll(softmax(out.astype(np.float64)), labels) for out in (together, one_by_one, cal.transform(logits))
    )
    assert ours == pytest.approx(other, abs=2 / len(labels))
    assert ours - own > 4 * (other - ours)


def test_an_offset_of_all_logits_costs_no_digits_in_single_precision():
    """Scale and bias of a class are nearly one parameter then: probabilities were 5e-4 from those of double precision."""
    logits, labels = synthetic(4000, 90)
    for offset, limit in ((0.0, 1e-4), (100.0, 1e-6)):
        single = (logits + offset).astype(np.float32)
        double = single.astype(np.float64)
        probs = [rhocal.VectorScaling().fit(z, labels).predict_proba(double) for z in (single, double)]
        np.testing.assert_allclose(*probs, atol=limit, rtol=0)


@pytest.mark.parametrize("n_classes", [3, 90])
@pytest.mark.parametrize("reason", ["has no sample", "right with certainty", ""])
def test_vector_without_ridge_states_that_there_is_no_minimum(n_classes, reason):
    logits, labels = synthetic(40 * n_classes, n_classes)
    if reason == "has no sample":
        labels = np.where(labels == n_classes - 1, 0, labels)
    elif reason:
        labels = logits.argmax(axis=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        solution = rhocal.VectorScaling(ridge=0.0).fit(logits, labels).solution_
        assert rhocal.VectorScaling().fit(logits, labels).solution_.converged
    assert solution.converged is (reason == "")
    assert reason in solution.at_bound
    assert any(issubclass(one.category, BoundaryWarning) and reason in str(one.message) for one in caught) or not reason
