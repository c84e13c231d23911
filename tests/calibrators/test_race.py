"""The race of `auto`: who takes part, what is fitted once for several, what the guard lets through."""

import time
from dataclasses import replace

import numpy as np
import pytest

import rhocal
from helpers import synthetic
from rhocal import AutoCalibrator
from rhocal.calibrators.compose import race
from rhocal.calibrators.compose.race import MethodScore, Race
from rhocal.calibrators.cross_validation import GUARD
from rhocal.calibrators.linear.structured import StructuredScaling
from rhocal.data.predictions import Predictions
from rhocal.errors import InputError
from rhocal.numerics.special import log_softmax


def biased(n=1200, m=4, seed=0):
    logits, labels = synthetic(n, m, seed=seed)
    logits[:, 0] += 2
    return logits, labels


def nll(cal, logits, labels):
    return -np.log(cal.predict_proba(logits)[np.arange(len(labels)), labels]).mean()


def counted(monkeypatch, family):
    fits = []
    fit = family._fit

    def counting(self, data, start=None):
        fits.append(data.n_samples)
        return fit(self, data, start)

    monkeypatch.setattr(family, "_fit", counting)
    return fits


def raced(methods, n_folds=5, budget=60.0):
    data = Predictions.from_arrays(*biased())
    found = Race(data, {name: rhocal.calibrator(name) for name in methods}, n_folds, budget)
    return found, *found.run()


def test_a_chain_shares_the_fits_of_its_first_stage(monkeypatch):
    fits = counted(monkeypatch, StructuredScaling)
    _, _, rows = raced(["temperature", "svs", "svs:field"])
    assert len(fits) == 5
    assert {row["method"] for row in rows} == {"temperature", "svs", "svs:field"}
    assert all("nll" in row for row in rows)


def test_a_first_stage_that_is_no_candidate_is_fitted_for_its_chain(monkeypatch):
    fits = counted(monkeypatch, StructuredScaling)
    _, best, rows = raced(["temperature", "svs:field"])
    assert len(fits) == 5
    assert [row["method"] for row in rows] == ["temperature", "svs:field"]
    assert best == "svs:field"


def test_the_figures_of_a_chain_are_those_of_chains_fitted_fold_by_fold():
    """Sharing changes the folds of the second stage's inputs, and who fitted them; the held-out NLL says the same."""
    found, _, rows = raced(["temperature", "svs:field"])
    shared = next(row["nll"] for row in rows if row["method"] == "svs:field")
    total = 0.0
    for fold in found.folds:
        inside, outside = found.data.take(fold.inside), found.data.take(fold.outside)
        cal = rhocal.calibrator("svs:field").fit(inside.logits, inside.labels)
        total += outside.n_samples * nll(cal, outside.logits, outside.labels)
    assert np.isclose(shared, total / found.data.n_samples, rtol=5e-3)


def test_chains_of_three_and_a_chain_in_front_are_fitted_whole():
    _, best, rows = raced(["svs:field", "temperature", "vector:temperature:field"], n_folds=2)
    assert rows[0]["method"] == "svs:field"
    assert all("nll" in row or "skipped" in row for row in rows)
    assert best in {"svs:field", "temperature", "vector:temperature:field"}


def test_out_of_time_the_folds_that_all_have_seen_decide(monkeypatch):
    """The third fold is cut off: the first two decide, on their samples alone."""
    found = Race(
        Predictions.from_arrays(*biased()),
        {name: rhocal.calibrator(name) for name in ("temperature", "vector")},
        5,
        60.0,
    )
    fits, advance = [], Race._advance

    def slow(self, validation, name):
        fits.append(name)
        if len(fits) == 5:  # temperature on the third fold
            self.deadline = time.monotonic() - 1
        return advance(self, validation, name)

    monkeypatch.setattr(Race, "_advance", slow)
    best, rows = found.run()
    assert best == "vector"
    assert len(fits) == 5
    assert not any("skipped" in row for row in rows)


def test_who_was_not_seen_on_the_first_fold_is_out_of_time():
    found, best, rows = raced(["temperature", "vector", "svs:field"], budget=1e-9)
    assert best == "temperature"
    assert [row.get("skipped") for row in rows] == [None, "out of time", "out of time"]
    assert "svs" not in found.outputs


def test_nobody_can_be_fitted():
    logits, labels = synthetic(6000, 210)
    with pytest.raises(
        InputError, match=r"none of the methods can be fitted; the first, vector:matrix: .* limited to 200 classes"
    ):
        AutoCalibrator(["vector:matrix", "svs:matrix"]).fit(logits, labels)


def test_full_matrices_need_as_many_samples_as_entries():
    logits, labels = synthetic(300, 18)
    trials = AutoCalibrator(["temperature", "dirichlet"], n_folds=2).fit(logits, labels).solution_.trials
    assert (
        trials[-1] == {"method": "dirichlet", "skipped": "too few samples a class"}
        or "entries" in trials[-1]["skipped"]
    )
    logits, labels = synthetic(420, 21)
    trials = AutoCalibrator(["temperature", "dirichlet"], n_folds=2).fit(logits, labels).solution_.trials
    assert {"method": "dirichlet", "skipped": "fewer samples than entries of its matrix"} in trials


# The guard ----------------------------------------------------------------------------------------------------------


def held_out(method, nll, ece):
    n, half = len(nll), np.full(len(nll), 0.5)
    score = MethodScore(method, np.asarray(nll), half, half, half, np.full(n, 1 / n), float(n))
    vars(score).update(ece=ece, floor=0.01)  # known without bins
    return score


def noisy(base, above, error):
    """Scores whose mean is above by a share of the base's mean, with a given standard error of the difference."""
    noise = np.random.default_rng(1).normal(size=len(base))
    noise = (noise - noise.mean()) / noise.std() * error * np.sqrt(len(base))
    return base + above * base.mean() + noise


def test_the_simplest_method_within_a_standard_error_that_passes_the_guard():
    """All have less ECE than the first, which counts for nothing: the choice is by NLL."""
    base = np.random.default_rng(0).exponential(size=400)
    first = held_out("temperature", base, 0.05)
    for above, error, best, guarded in [
        (-0.2 * GUARD, 0.5 * GUARD * base.mean(), "temperature", False),  # within a standard error: the simpler one
        (0.2 * GUARD, 2 * GUARD * base.mean(), "temperature", True),  # not sure enough
        (1.5 * GUARD, 2 * GUARD * base.mean(), "temperature", True),  # too high
        (-5 * GUARD, 2 * GUARD * base.mean(), "other", False),  # far below
    ]:
        found, rows = race.choose_method([first, held_out("other", noisy(base, above, error), 0.02)])
        assert found == best
        assert rows[1]["guarded"] == guarded


def test_each_fold_is_scored_by_the_method_that_the_others_choose():
    """One fold alone makes the second method the best: without that fold the first is chosen."""
    codes = np.arange(400) % 4
    base = np.random.default_rng(0).exponential(size=400) + 1
    lucky = base + np.where(codes == 2, -0.5, 0.1)
    scores = [held_out("temperature", base, 0.01), held_out("other", lucky, 0.01)]
    assert race.choose_method(scores)[0] == "other"
    assert race.nested_choices(scores, codes) == ["other", "other", "temperature", "other"]


def test_stated_scores_are_those_of_nested_choices():
    found, best, _ = raced(["temperature", "svs", "vector"])
    plain = found.held_out_scores("auto", best)
    labels, seen = found.data.labels, found.seen
    by_hand = {name: -log_softmax(z)[np.arange(len(labels)), labels] for name, z in found.outputs.items()}
    assert plain.nll["auto"] == pytest.approx(by_hand[best].mean(), rel=1e-9)
    found.choices = ["temperature", *[best] * (len(seen) - 1)]
    mixed = by_hand[best].copy()
    mixed[seen[0].outside] = by_hand["temperature"][seen[0].outside]
    assert found.held_out_scores("auto", best).nll["auto"] == pytest.approx(mixed.mean(), rel=1e-9)
    assert mixed.mean() > by_hand[best].mean() + 1e-4
    np.testing.assert_array_equal(plain.nll["temperature"], found.held_out_scores("auto", best).nll["temperature"])


def test_the_stated_nll_of_a_cascade_has_its_optimism():
    logits, labels = confused(2500)
    cal = AutoCalibrator().fit(logits, labels)
    rows = {row["method"]: row for row in cal.solution_.trials}
    assert cal.chosen_.label == "cascade"
    assert cal.solution_.held_out.nll["auto"] == pytest.approx(rows["cascade"]["nll"], rel=1e-6)


def test_a_lead_by_rounding_is_a_tie():
    base = np.linspace(0.1, 1.0, 50)
    lead = held_out("ets", base * (1 - 1e-9), 0.01)  # the standard error of the difference is smaller than the lead
    assert race.choose_method([held_out("temperature", base, 0.01), lead])[0] == "temperature"


@pytest.mark.parametrize("n", [80, 150, 300, 600])
def test_never_far_above_temperature_on_small_calibration_sets(n):
    """Where temperature scaling is the truth; on the mean of four draws."""
    ratios = []
    for seed in range(4):
        logits, labels = synthetic(3000, 5, seed=seed)
        tune, test = (logits[:n], labels[:n]), (logits[n:], labels[n:])
        plain = rhocal.TemperatureScaling().fit(*tune)
        ratios.append(nll(AutoCalibrator().fit(*tune), *test) / nll(plain, *test))
    assert np.mean(ratios) <= 1.01


def confused(n, m=4, seed=0):
    """Logits of one class that depend on another, and not linearly: a cascade, which has a kernel, is clearly best."""
    logits, labels = synthetic(n, m, seed=seed)
    logits[:, 0] += 0.4 * logits[:, 1] * logits[:, 2]
    return logits, labels


def test_the_cascade_is_fitted_once_and_chosen_where_it_is_best(monkeypatch):
    fits = []
    fit = rhocal.Cascade._fit_and_keep
    monkeypatch.setattr(rhocal.Cascade, "_fit_and_keep", lambda self, data: fits.append(1) or fit(self, data))
    logits, labels = confused(2500)
    cal = AutoCalibrator().fit(logits, labels)
    assert len(fits) == 1
    assert cal.chosen_.label == "cascade"
    np.testing.assert_array_equal(cal.predict_proba(logits), rhocal.Cascade().fit(logits, labels).predict_proba(logits))
    rows = {row["method"]: row for row in cal.solution_.trials}
    assert rows["sms:field"]["skipped"] == "the cascade takes its place"
    assert rows["cascade"]["nll"] < rows["temperature"]["nll"]


def test_below_500_samples_the_chains_are_tried():
    rows = {row["method"]: row for row in AutoCalibrator(n_folds=2).fit(*confused(450)).solution_.trials}
    assert rows["cascade"] == {"method": "cascade", "skipped": "fewer than 500 samples"}
    assert rows["sms:field"].get("skipped") != "the cascade takes its place"


def test_a_cascade_for_exchangeable_columns_has_no_steps():
    cal = AutoCalibrator(("temperature", "cascade"), exchangeable=True).fit(*confused(2500))
    chosen = cal.chosen_ if cal.chosen_.label == "cascade" else None
    assert chosen is None or not any("step" in row for row in chosen.solution_.trials)


def test_the_preferred_method_wins_a_tie_and_loses_a_clear_difference():
    data = Predictions.from_arrays(*biased(4000))
    one = MethodScore.from_logits("temperature", data.logits / 2.5, data)
    same = MethodScore.from_logits("cascade", data.logits / 2.5, data)
    better = data.logits / 2.5
    better[:, 0] -= 0.8
    best = MethodScore.from_logits("svs", better, data)
    assert race.choose_method([one, same], preferred="cascade")[0] == "cascade"
    assert race.choose_method([one, best, same], preferred="cascade")[0] == "svs"
    assert race.choose_method([one, same])[0] == "temperature"


def test_the_preferred_method_passes_the_guard_where_nothing_is_higher():
    """With few samples a gain of 6 % is not sure, but its own fit has compared the cascade with simpler methods already."""
    base = np.random.default_rng(0).exponential(size=400)
    first = held_out("temperature", base, 0.01)
    lower = held_out("cascade", noisy(base, -0.06, 0.1 * base.mean()), 0.01)
    assert race.choose_method([first, lower])[0] == "temperature"
    assert race.choose_method([first, lower], preferred="cascade")[0] == "cascade"
    higher = held_out("cascade", noisy(base, 0.001, 0.1 * base.mean()), 0.01)
    assert race.choose_method([first, higher], preferred="cascade")[0] == "temperature"
    higher_brier = replace(lower, brier=lower.brier + 0.01)
    assert race.choose_method([first, higher_brier], preferred="cascade")[0] == "temperature"


@pytest.mark.parametrize(
    ("gain", "ece", "best"), [(0.005, 0.01, "svs"), (0.005, 0.02, "sms"), (0.015, 0.01, "sms"), (0.015, 0.02, "sms")]
)
def test_a_small_gain_over_the_preferred_method_counts_where_that_is_not_calibrated(gain, ece, best):
    base = np.random.default_rng(0).exponential(size=400)
    scores = [
        held_out("temperature", 1.1 * base, 0.05),
        held_out("svs", base, ece),  # the floor is 0.01
        held_out("sms", noisy(base, -gain, 0.1 * gain * base.mean()), 0.01),
    ]
    assert race.choose_method(scores, preferred="svs")[0] == best


def test_what_is_used_in_place_of_a_cascade_is_preferred(monkeypatch):
    monkeypatch.setattr(rhocal.Cascade, "_fit_and_keep", lambda self, data: (*self._fit_fallback(data), None))
    preferred = []
    choose = race.choose_method
    monkeypatch.setattr(race, "choose_method", lambda scores, name: preferred.append(name) or choose(scores, name))
    for m in (2, 3):
        AutoCalibrator(["temperature", "svs", "cascade"], n_folds=2).fit(*synthetic(600, m))
    assert preferred == [None, "svs"]
