"""The monitor: few false alarms however long one looks, and quick true ones."""

import re

import numpy as np
import pytest

import rhocal
from helpers import confidence_streams
from rhocal.errors import FileError, InputError
from rhocal.evaluation.bets import Margin
from rhocal.evaluation.monitor import Monitor


def test_false_alarms_are_rare_over_the_whole_stream():
    max_log_wealth = []
    for confidence, correct in zip(*confidence_streams(300, 2000, seed=0), strict=True):
        monitor = Monitor()
        monitor.add(confidence, correct)
        max_log_wealth.append(monitor.max_log_wealth)
    assert np.mean(np.array(max_log_wealth) >= np.log(20)) <= 0.05
    assert np.mean(np.exp(-np.array(max_log_wealth)) <= 0.5) <= 0.55  # p-values are valid all along, not only at 5 %


def test_a_monitor_prints_a_sentence():
    monitor = Monitor()
    assert repr(monitor) == "Monitor: 0 samples, no alarm; p at most 1"
    monitor.add(np.full(400, 0.9), np.r_[np.ones(200), np.zeros(200)])
    assert re.fullmatch(r"Monitor: 400 samples, alarm at sample \d+: .*; p at most [\d.e-]+", repr(monitor))


def test_a_tilt_without_a_mean_gap_is_seen():
    """Over-confident by .05 above the middle, under-confident below: the mean gap is 0."""
    rng = np.random.default_rng(0)
    confidence = np.minimum(0.1 + 0.9 * rng.beta(2.2, 0.7, 10_000), 1 - 1e-6)
    right = np.clip(confidence - 0.05 * np.sign(confidence - np.median(confidence)), 0, 1)
    correct = (rng.random(10_000) < right).astype(float)
    assert abs(np.mean(correct - confidence)) < 0.01
    monitor = Monitor()
    monitor.add(confidence, correct)
    assert monitor.alarm_at < 5000


def test_a_gap_within_the_tolerance_is_no_alarm():
    confidence, correct = (part[0] for part in confidence_streams(1, 20_000, seed=9, off=0.03))
    alarms = {}
    for tolerance in (0.0, 0.04):
        monitor = Monitor(tolerance=tolerance)
        monitor.add(confidence, correct)
        alarms[tolerance] = monitor.alarm
    assert alarms == {0.0: True, 0.04: False}


def test_the_calibration_set_is_part_of_the_null():
    """By hand: .02 and two standard errors of 400 samples at .8, sqrt(.16/400) = .02 each."""
    assert Margin(0.02, 400)(np.array([0.8, 1.0])) == pytest.approx([0.06, 0.02])
    alarms = {"plain": 0, "known": 0}
    for seed in range(12):
        rng = np.random.default_rng(seed)
        logits = rng.normal(0, 2, (12_400, 4))
        probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        labels = (np.cumsum(probs, axis=1) < rng.random((12_400, 1))).sum(axis=1).clip(0, 3)
        cal = rhocal.TemperatureScaling().fit(1.7 * logits[:400], labels[:400])
        found = cal.predict_proba(1.7 * logits[400:])
        for name, options in (("plain", {}), ("known", {"n_calibration": 400})):
            monitor = Monitor(**options)
            monitor.add(found.max(axis=1), (found.argmax(axis=1) == labels[400:]).astype(float))
            alarms[name] += monitor.alarm
    assert alarms["plain"] >= 3
    assert alarms["known"] <= 1


def test_samples_of_a_cluster_are_one_bet():
    """Ten copies of each sample: taken as independent they are an alarm too many."""
    false = {"independent": 0, "clusters": 0}
    for seed in range(40):
        confidence, correct = (np.repeat(part[0], 10) for part in confidence_streams(1, 200, seed=seed))
        for name, clusters in (("independent", None), ("clusters", np.repeat(np.arange(200), 10))):
            monitor = Monitor()
            monitor.add(confidence, correct, clusters)
            false[name] += monitor.alarm
            assert monitor.n == 2000
    assert false["independent"] >= 10
    assert false["clusters"] <= 2
    copies, single = Monitor(), Monitor()
    confidence, correct = (part[0] for part in confidence_streams(1, 300, seed=1))
    copies.add(np.repeat(confidence, 3), np.repeat(correct, 3), np.repeat(np.arange(300), 3))
    single.add(confidence, correct)
    assert copies.p_value == pytest.approx(single.p_value)


def test_a_cluster_that_goes_on_is_not_bet_on_twice():
    whole, cut = Monitor(), Monitor()
    confidence, correct = (part[0] for part in confidence_streams(1, 30, seed=1))
    clusters = np.repeat(["a", "b", "c"], 10)
    whole.add(confidence, correct, clusters)
    cut.add(confidence[:14], correct[:14], clusters[:14])
    cut.add(confidence[14:], correct[14:], clusters[14:])
    assert (whole.n, whole.n_units, cut.n, cut.n_units) == (30, 3, 30, 3)
    with pytest.raises(InputError, match="one name for each of the 5 samples"):
        cut.add(confidence[:5], correct[:5], ["a"])


def test_a_small_drift_is_seen_soon():
    """Five points at every confidence, after 100,000 clean samples: half of what constant stakes take (1,300 here)."""
    rng = np.random.default_rng(0)
    confidence = np.minimum(0.1 + 0.9 * rng.beta(2.2, 0.7, 104_000), 1 - 1e-6)
    right = confidence - 0.05 * (np.arange(104_000) >= 100_000)
    monitor = Monitor()
    monitor.add(confidence, (rng.random(104_000) < right).astype(float))
    assert 100_000 < monitor.alarm_at < 101_000


def test_drift_is_seen_even_if_it_comes_late():
    confidence, correct = confidence_streams(1, 20_000, seed=2)
    late, wrong = confidence_streams(1, 5000, seed=3, off=0.1)
    monitor = Monitor()
    monitor.add(confidence[0], correct[0])
    assert not monitor.alarm
    monitor.add(late[0], wrong[0])
    assert 20_000 < monitor.alarm_at < 23_000
    found = monitor.values()
    assert (
        found["recent"]["confidence"] - found["recent"]["accuracy"]
        > found["all"]["confidence"] - found["all"]["accuracy"]
    )


def test_cuts_do_not_matter_and_a_state_goes_on(tmp_path):
    confidence, correct = (part[0] for part in confidence_streams(1, 3000, seed=4, off=0.03))
    whole, cut = Monitor(), Monitor()
    whole.add(confidence, correct)
    for part in np.array_split(np.arange(3000), 17):
        cut.add(confidence[part], correct[part])
        cut.save(tmp_path / "state.json")
        cut = Monitor.load(tmp_path / "state.json")
    assert cut.alarm_at == whole.alarm_at
    assert cut.p_value == pytest.approx(whole.p_value)
    for name in ("all", "recent", "rolling"):
        assert cut.values()[name] == pytest.approx(whole.values()[name])
    assert len((tmp_path / "state.json").read_bytes()) < 20_000


def test_the_rolling_window_forgets():
    confidence, correct = (part[0] for part in confidence_streams(1, 1234, seed=5))
    monitor = Monitor(window=200)
    for part in np.array_split(np.arange(1234), 40):
        monitor.add(confidence[part], correct[part])
        last = min(monitor.n, 200 + (monitor.n - 1) % 20 + 1)  # a window, and the tenth that is being filled
        rows = slice(monitor.n - last, monitor.n)
        rolling = monitor.values()["rolling"]
        assert rolling["weight"] == last
        assert rolling["accuracy"] == pytest.approx(correct[rows].mean())
        assert rolling["confidence"] == pytest.approx(confidence[rows].mean())


def test_what_cannot_be_used_is_said(tmp_path):
    for bad in (
        {"alpha": 0},
        {"half_life": -1},
        {"window": 3},
        {"window": 99.5},
        {"tolerance": 1},
        {"n_calibration": 0},
    ):
        with pytest.raises(InputError):
            Monitor(**bad)
    with pytest.raises(InputError, match="between 0 and 1"):
        Monitor().add(np.array([2.0]), np.array([1.0]))
    for bad in (np.nan, np.inf, 2.0, -1.0):  # NaN as correct silenced every later alarm
        with pytest.raises(InputError, match="correct must be 0 or 1"):
            Monitor().add(np.array([0.5, 0.5]), np.array([1.0, bad]))
    with pytest.raises(InputError, match="one confidence"):
        Monitor().add(np.ones(3), np.ones(2))
    (tmp_path / "s.json").write_text("{}", encoding="utf-8")
    with pytest.raises(FileError, match="not the state"):
        Monitor.load(tmp_path / "s.json")


def alarm_reason(confidence, correct, n_clean=0):
    monitor = Monitor()
    clean, right = (part[0] for part in confidence_streams(1, n_clean, seed=6))
    monitor.add(clean, right)
    assert not monitor.alarm
    monitor.add(confidence, correct)
    return monitor.alarm_reason


def test_the_reason_has_a_direction_and_a_size():
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.6, 0.9, 3000)
    for off, direction, n_clean in ((0.15, "too high: ", 0), (-0.15, "too low: ", 0), (0.15, "too high: ", 20_000)):
        correct = (rng.random(3000) < confidence - off).astype(float)
        reason = alarm_reason(confidence, correct, n_clean)
        assert direction in reason
        numbers = [float(text) / 100 for text in re.findall(r"([0-9.]+) %", reason)]
        assert numbers[0] == pytest.approx(0.75, abs=0.02)
        assert 0.08 < (numbers[0] - numbers[1]) * np.sign(off) < 0.35
    tilt = confidence - 0.25 * np.sign(confidence - 0.75)
    assert "off, but not on average: " in alarm_reason(confidence, (rng.random(3000) < tilt).astype(float))
