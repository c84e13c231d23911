"""The engine of cross-validation: folds, warm starts, early stopping, rules."""

import gc
import warnings
import weakref

import numpy as np
import pytest

import rhocal
from helpers import synthetic
from rhocal.calibrators.cross_validation import (
    GUARD,
    LOWEST,
    MAX_SHARE_BEHIND,
    CrossValidation,
    HeldOut,
    Rule,
    paired_over_folds,
    passes_guard,
)
from rhocal.calibrators.folds import Folds, lexical_order, thinned_rows
from rhocal.calibrators.scale.scale_search import ScaleSearch
from rhocal.data.predictions import Predictions
from rhocal.data.spec import InputSpec
from rhocal.errors import RhocalWarning
from rhocal.profile.profile import Profile


def folds_of(n_folds, n=12):
    return Folds.from_codes(np.arange(n) % n_folds, np.full(n, 1 / n), np.arange(n))


def search_of(n=600, m=4, **options):
    return ScaleSearch.from_profile(
        Profile.from_predictions(Predictions.from_arrays(*synthetic(n, m), spec=InputSpec(**options)))
    )


def validation_of(values, folds, **options):
    """Candidates whose held-out value on each fold is known."""

    def fit(candidate, fold, start):
        return (candidate, fold.number, start and start[:2])

    def score(candidate, _model, fold):
        return values[candidate][fold.number]

    return CrossValidation(folds, fit, score, **options)


def test_each_sample_is_held_out_once():
    folds = Folds.stratified(search_of(), 5)
    assert len(folds) == 5
    assert sorted(np.concatenate([fold.outside for fold in folds])) == list(range(600))
    for fold in folds:
        assert sorted([*fold.inside, *fold.outside]) == list(range(600))
        assert np.isclose(fold.share, 0.2)
        np.testing.assert_array_equal(np.flatnonzero(fold.held_out_weights), fold.outside)


@pytest.mark.parametrize(("n", "n_folds_of_errors"), [(150, 5), (1500, 1)])
def test_equal_errors_are_no_lump(n, n_folds_of_errors):
    """Eight equal errors of 150 samples are in every fold; of 1,500 they stay together, like one sample with a weight."""
    rng = np.random.default_rng(0)
    logits = np.stack([np.zeros(n), np.r_[np.full(8, 3.0), rng.normal(size=n - 8)]], axis=1)
    labels = np.r_[np.zeros(8, int), logits[8:, 1] > 0]
    folds = Folds.from_profile(Profile.from_predictions(Predictions.from_arrays(logits, labels)), 5)
    assert len(set(folds.codes[:8])) == n_folds_of_errors


def test_thinned_folds_hold_about_so_many_entries():
    search = search_of()
    folds = Folds.stratified(search, 3, max_entries=600)
    np.testing.assert_array_equal(folds.rows, thinned_rows(search, 600))
    assert len(folds.rows) == 150
    assert np.bincount(folds.codes).tolist() == [50] * 3


def test_samples_without_weight_join_a_fold_and_carry_nothing():
    weights = np.array([0.5, 0.5, 0.0, 0.0])
    folds = Folds.from_codes(np.array([1, 4, 0, 9]), weights, np.arange(4))
    assert len(folds) == 2
    assert sorted(np.concatenate([fold.outside for fold in folds])) == [0, 1, 2, 3]
    assert [fold.share for fold in folds] == [0.5, 0.5]


def test_one_fold_is_none():
    assert not Folds.from_codes(np.zeros(4, int), np.full(4, 0.25), np.arange(4))
    assert not Folds.from_profile(
        Profile.from_predictions(Predictions.from_arrays(np.zeros((9, 3)), np.arange(9) % 3)), 5
    )


def test_the_first_folds_are_a_division_of_their_samples():
    part = folds_of(4).first(2)
    assert [fold.outside.tolist() for fold in part] == [[0, 4, 8], [1, 5, 9]]
    assert [fold.inside.tolist() for fold in part] == [[1, 5, 9], [0, 4, 8]]


@pytest.mark.parametrize(
    ("warm_start", "starts"),
    [
        ("neighbor", [None, None, None, ("a", 0), ("a", 1), ("a", 2)]),
        ("previous fold", [None, ("a", 0), ("a", 1), ("a", 0), ("b", 0), ("b", 1)]),
    ],
)
def test_fits_start_where_a_similar_one_ended(warm_start, starts):
    values = {name: [HeldOut(1.0)] * 3 for name in "ab"}
    validation = validation_of(values, folds_of(3), warm_start=warm_start)
    validation.choose("ab", LOWEST, "name")
    assert [start for name in "ab" for _, _, start in validation.models[name]] == starts


def test_a_candidate_that_falls_behind_its_rival_stops():
    values = {"a": [HeldOut(1.0)] * 3, "b": [HeldOut(1 + 0.5 * MAX_SHARE_BEHIND), HeldOut(2.0), HeldOut(0.0)]}
    validation = validation_of(values, folds_of(3))
    assert validation.complete("a")
    assert not validation.complete("b", "a", rival="a")
    assert len(validation.models["b"]) == 2
    assert np.isclose(validation.mean("b"), (1 + 0.5 * MAX_SHARE_BEHIND + 2) / 2)
    assert not validation.complete("b")  # not fitted again
    assert len(validation.models["b"]) == 2


def test_the_rule_prefers_the_earlier_candidate_within_its_standard_errors():
    values = {"simple": [HeldOut(v) for v in (1.3, 0.9, 1.1)], "rich": [HeldOut(1.0)] * 3}
    names = ["simple", "rich"]
    lowest, cautious = (validation_of(values, folds_of(3)).choose(names, Rule(c), "name") for c in (0.0, 2.0))
    assert lowest.candidate == "rich"
    assert cautious.candidate == "simple"
    row = lowest.trials[0]
    assert row["name"] == "simple"
    assert np.isclose(row["above_lowest"], 0.1)
    assert np.isclose(row["standard_error"], np.std([0.3, -0.1, 0.1], ddof=1) / np.sqrt(3))


@pytest.mark.parametrize(("above", "passes"), [(0.5 * GUARD, True), (2 * GUARD, False)])
def test_the_guard_compares_with_the_first_candidate(above, passes):
    values = {"first": [HeldOut(2.0, 1.0)] * 3, "other": [HeldOut(1.0, 1 + above)] * 3}
    choice = validation_of(values, folds_of(3)).choose(["first", "other"], Rule(0.0, GUARD), "name")
    assert choice.candidate == "other"
    assert choice.passes_guard == passes
    assert choice.trials[1]["nll_above"] == pytest.approx(above)


def test_the_guard_adds_a_standard_error():
    nll = np.array([[1.0, 1.01], [1.0, 0.99], [1.0, 1.0]])
    above, error = paired_over_folds(nll, nll[:, [0]], np.full(3, 1 / 3))
    assert abs(above[1]) < 1e-12
    assert error[1] > 0.005
    assert passes_guard(0.0, 0.005, 1.0)
    assert not passes_guard(0.005, 0.005, 1.0)


def test_an_engine_is_released_with_its_samples():
    gc.collect()
    gc.disable()
    try:
        search = search_of()
        validation = validation_of({"a": [HeldOut(1.0)] * 5}, Folds.stratified(search, 5))
        validation.complete("a")
        there = weakref.ref(search.profile)
        del search, validation
        assert there() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("n_values", [1, 3, 40, 10_000])
@pytest.mark.parametrize("n", [0, 1, 50])
def test_order_by_several_keys_is_that_of_all_of_them(n, n_values):
    rng = np.random.default_rng([n, n_values])
    keys = [rng.integers(0, n_values, n).astype(float) for _ in range(3)]
    np.testing.assert_array_equal(lexical_order(keys), np.lexsort(keys[::-1]))


@pytest.mark.parametrize("scores", ["votes", "whole numbers"])
@pytest.mark.parametrize("method", ["svs:field", "sms:field", "matrix", "dirichlet", "cascade", "auto"])
def test_the_order_of_samples_changes_nothing_where_their_scores_are_tied(method, scores):
    """Samples with the scores of other classes exchanged had the folds of the order in which they came: up to .2 apart."""
    rng = np.random.default_rng(1)
    if scores == "votes":
        shares = rng.dirichlet(np.full(4, 0.7), 400)
        rows, kind = rng.multinomial(10, shares) / 10, "probs"
        labels = (np.cumsum(shares, axis=1) > rng.random((400, 1))).argmax(axis=1)
    else:
        rows, kind = rng.integers(-3, 4, (400, 4)).astype(float), "logits"
        labels = (rows + rng.gumbel(size=rows.shape)).argmax(axis=1)
    order = rng.permutation(400)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhocalWarning)
        one = rhocal.calibrator(method).fit(rows, labels, kind=kind)
        other = rhocal.calibrator(method).fit(rows[order], labels[order], kind=kind)
    np.testing.assert_allclose(one.predict_proba(rows), other.predict_proba(rows), rtol=0, atol=1e-9)


def test_the_order_of_tied_samples_of_many_classes_changes_no_fold():
    """Rows of whole numbers may have the same sum with multiples of the golden ratio, of which one is the sum of two others."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        labels = rng.integers(0, 5, 240)
        rows = rng.integers(-1, 2, (240, 5)) + np.eye(5)[labels]
        divisions = []
        for order in (np.arange(240), rng.permutation(240)):
            profile = Profile.from_predictions(Predictions.from_arrays(rows[order], labels[order]))
            codes = Folds.from_profile(profile, 5).codes
            divisions.append(sorted(map(tuple, np.column_stack([rows[order], labels[order], codes]))))
        assert divisions[0] == divisions[1], seed
