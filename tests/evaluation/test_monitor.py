"""The monitor: few false alarms however long one looks, quick true ones, and a state that survives a kill."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rhocal
from helpers import run, synthetic
from rhocal.errors import FileError, InputError
from rhocal.evaluation.bets import (
    DIRECTION_SHARES,
    GAPS,
    MIN_ERROR,
    N_BETS,
    STAKES,
    Margin,
    advance,
    directions,
    gap_gains,
    log_factors,
    unit_gains,
    waiting,
)
from rhocal.evaluation.monitor import Monitor


def streams(n_streams, n, seed, *, off=0.0):
    """Confidences of many shapes, and correctness drawn with chance confidence − off."""
    rng = np.random.default_rng(seed)
    shape = rng.uniform(0.5, 8, size=(n_streams, 1))
    confidence = 1 - rng.beta(1, shape, size=(n_streams, n))
    return confidence, (rng.random((n_streams, n)) < confidence - off).astype(float)


def test_false_alarms_are_rare_over_the_whole_stream():
    max_log_wealth = []
    for confidence, correct in zip(*streams(300, 2000, seed=0), strict=True):
        monitor = Monitor()
        monitor.add(confidence, correct)
        max_log_wealth.append(monitor.max_log_wealth)
    assert np.mean(np.array(max_log_wealth) >= np.log(20)) <= 0.05
    assert np.mean(np.exp(-np.array(max_log_wealth)) <= 0.5) <= 0.55  # p-values are valid all along, not only at 5 %


def test_the_wealth_of_a_fair_game_has_mean_one():
    """Of every bet, and of all together; with a margin it is below 1."""
    confidence, correct = (part.ravel() for part in streams(40_000, 1, seed=1))
    each = np.arange(len(confidence))

    def factors(margin):
        price = np.full(len(confidence), margin)
        gains = unit_gains(confidence, correct, price, 0.7, each)
        return np.exp(log_factors(*gains, gap_gains(confidence, correct, price, each)))

    fair = factors(0.0)
    assert fair.shape == (N_BETS, len(confidence))
    assert (np.abs(fair.mean(axis=1) - 1) < 4.5 * fair.std(axis=1) / np.sqrt(len(confidence))).all()
    assert (factors(0.05).mean(axis=1) < 1).all()
    assert fair.min() >= 0.1 - 1e-12  # no sample ruins a bet


def test_the_bet_on_a_gap_is_a_ratio_of_likelihoods():
    """An accuracy of .9 − .02 − .08 against .9 − .02, and an error or none."""
    for correct, ratio in ((0.0, (0.12 + 0.08) / 0.12), (1.0, 0.80 / 0.88)):
        gains = gap_gains(np.array([0.9]), np.array([correct]), np.array([0.02]), np.array([0]))
        assert 1 + gains[1, GAPS.index(0.08), 0] == pytest.approx(ratio)
    sure = gap_gains(np.array([1.0]), np.array([0.0]), np.array([0.0]), np.array([0]))
    assert 1 + sure[1, GAPS.index(0.08), 0] == pytest.approx(1 + 0.08 / MIN_ERROR)  # no more than of an error in 1,000


def test_by_hand():
    """Two wrong samples at .8, by the recursion of the docstring, one sample after the other."""
    monitor = Monitor()
    wealth, shares = np.zeros(N_BETS), np.repeat(DIRECTION_SHARES, 2 * len(STAKES))
    f = directions(np.array([0.8]), 0.75)[:, 0]
    assert f[:2] == pytest.approx([1, 0.5])
    signs = np.tile(np.repeat([1, -1], len(STAKES)), len(f))
    factors = 1 + np.tile(STAKES, 2 * len(f)) * signs * np.repeat(f, 2 * len(STAKES)) * -0.8
    up, down = [1 - min(gap / 0.2, 0.9) for gap in GAPS], [1 + gap / 0.2 for gap in GAPS]
    factors = np.concatenate([factors, up, down])
    highest = 1.0
    for n in (1, 2):
        entering = float(waiting(np.array([n - 1]))[0] - waiting(np.array([n]))[0])
        wealth = (wealth + entering) * factors
        highest = max(highest, float(wealth @ shares) / (2 * len(STAKES)) + float(waiting(np.array([n]))[0]))
        monitor.add(np.array([0.8]), np.array([0.0]))
        assert monitor.p_value == pytest.approx(1 / highest)
    assert waiting(np.array([0, 1])).tolist() == [1.0, 0.5]


def test_losing_streaks_stay_finite():
    """The largest stake loses 256 times in a row, and again."""
    factors = np.full((N_BETS, 256), np.log(0.1))
    wealth = np.full(N_BETS, -np.inf)
    for k in range(20):
        wealth, total = advance(wealth, factors, 256 * k)
        assert np.isfinite(wealth).all()
        assert np.isfinite(total).all()


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
    confidence, correct = (part[0] for part in streams(1, 20_000, seed=9, off=0.03))
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
        confidence, correct = (np.repeat(part[0], 10) for part in streams(1, 200, seed=seed))
        for name, clusters in (("independent", None), ("clusters", np.repeat(np.arange(200), 10))):
            monitor = Monitor()
            monitor.add(confidence, correct, clusters)
            false[name] += monitor.alarm
            assert monitor.n == 2000
    assert false["independent"] >= 10
    assert false["clusters"] <= 2
    copies, single = Monitor(), Monitor()
    confidence, correct = (part[0] for part in streams(1, 300, seed=1))
    copies.add(np.repeat(confidence, 3), np.repeat(correct, 3), np.repeat(np.arange(300), 3))
    single.add(confidence, correct)
    assert copies.p_value == pytest.approx(single.p_value)


def test_a_cluster_that_goes_on_is_not_bet_on_twice():
    whole, cut = Monitor(), Monitor()
    confidence, correct = (part[0] for part in streams(1, 30, seed=1))
    clusters = np.repeat(["a", "b", "c"], 10)
    whole.add(confidence, correct, clusters)
    cut.add(confidence[:14], correct[:14], clusters[:14])
    cut.add(confidence[14:], correct[14:], clusters[14:])
    assert (whole.n, whole.n_units, cut.n, cut.n_units) == (30, 3, 30, 3)
    with pytest.raises(InputError, match="one name for each of the 5 samples"):
        cut.add(confidence[:5], correct[:5], ["a"])


def test_states_of_the_first_schema_are_read(tmp_path):
    """Sums and an alarm stay; the bets were others, so the test begins anew."""
    monitor = Monitor()
    monitor.add(*(part[0] for part in streams(1, 500, seed=4)))
    monitor.save(tmp_path / "s.json")
    state = json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))
    fields = ("tolerance", "n_calibration", "n_units", "center", "confidence_sum", "last_cluster")
    old = {name: value for name, value in state.items() if name not in fields}
    old |= {"schema": 1, "log_wealth": [[0.1] * 10], "max_log_wealth": 2.0}
    (tmp_path / "s.json").write_text(json.dumps(old), encoding="utf-8")
    found = Monitor.load(tmp_path / "s.json")
    assert (found.n, found.p_value) == (500, 1.0)
    assert found.values()["all"] == monitor.values()["all"]


def test_states_without_bets_on_gaps_go_on(tmp_path):
    monitor = Monitor()
    monitor.add(*(part[0] for part in streams(1, 500, seed=4)))
    monitor.save(tmp_path / "s.json")
    state = json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))
    (tmp_path / "s.json").write_text(json.dumps(state | {"log_wealth": state["log_wealth"][:96]}), encoding="utf-8")
    found = Monitor.load(tmp_path / "s.json")
    assert found.log_wealth == [*monitor.log_wealth[:96], *[-np.inf] * (N_BETS - 96)]
    assert (found.n_units, found.p_value) == (500, monitor.p_value)


def test_a_small_drift_is_seen_soon():
    """Five points at every confidence, after 100,000 clean samples: half of what constant stakes take (1,300 here)."""
    rng = np.random.default_rng(0)
    confidence = np.minimum(0.1 + 0.9 * rng.beta(2.2, 0.7, 104_000), 1 - 1e-6)
    right = confidence - 0.05 * (np.arange(104_000) >= 100_000)
    monitor = Monitor()
    monitor.add(confidence, (rng.random(104_000) < right).astype(float))
    assert 100_000 < monitor.alarm_at < 101_000


def test_drift_is_seen_even_if_it_comes_late():
    confidence, correct = streams(1, 20_000, seed=2)
    late, wrong = streams(1, 5000, seed=3, off=0.1)
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
    confidence, correct = (part[0] for part in streams(1, 3000, seed=4, off=0.03))
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
    confidence, correct = (part[0] for part in streams(1, 1234, seed=5))
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


def as_parquet(path, logits, labels):
    lists = pa.FixedSizeListArray.from_arrays(pa.array(logits.ravel()), logits.shape[1])
    part = path.with_suffix(".part")
    pq.write_table(pa.table({"logits": lists, "labels": labels}), part, row_group_size=200)
    part.rename(path)


def test_a_folder_and_a_kill(tmp_path):
    folder, state = tmp_path / "in", tmp_path / "state.json"
    folder.mkdir()
    logits, labels = synthetic(1600, 4, scale=1.0)
    for k in range(4):
        as_parquet(folder / f"{k}.parquet", logits[400 * k : 400 * (k + 1)], labels[400 * k : 400 * (k + 1)])
    process = subprocess.Popen(
        [Path(sys.executable).with_name("rhocal"), "monitor", folder, "-s", state, "--follow", "--every", "0.05"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 30
    while not state.exists() and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    json.loads(state.read_text(encoding="utf-8"))  # whole, whenever it was killed
    said = json.loads(run("monitor", folder, "-s", state, "--json").stdout)
    alone = Monitor()
    probs = rhocal.Identity().fit(logits, labels).predict_proba(logits)
    alone.add_probs(probs, labels)
    assert said["n_samples"] == 1600  # nothing twice, nothing left out
    assert said["p_value"] == pytest.approx(alone.p_value)
    assert not said["alarm"]
    more, wrong = synthetic(1000, 4, scale=4.0, seed=1)
    as_parquet(folder / "5.parquet", more, wrong)
    assert "alarm: calibration is off" in run("monitor", folder, "-s", state, code=1).stderr


def as_lines(logits, labels):
    rows = zip(logits.tolist(), labels.tolist(), strict=True)
    return "".join(json.dumps({"logits": z, "labels": y}) + "\n" for z, y in rows)


def told(tmp_path, text, *options):
    return subprocess.run(
        [Path(sys.executable).with_name("rhocal"), "monitor", "-", "-s", tmp_path / "s.json", "--json", *options],
        input=text, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_lines(tmp_path):
    logits, labels = synthetic(300, 3)
    lines = as_lines(logits, labels)
    assert json.loads(told(tmp_path, lines).stdout)["n_samples"] == 300
    assert json.loads(told(tmp_path, lines).stdout)["n_samples"] == 300  # from its beginning again: nothing is new
    assert json.loads(told(tmp_path, lines, "--resume").stdout)["n_samples"] == 600  # more of the same stream
    bad = told(tmp_path, lines[:-1] + '\n{"x": 1}\n', "--resume")
    assert bad.returncode == 2
    assert "line 901" in bad.stderr
    assert json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))["n"] == 900  # those before it were taken in
    for line, message in (
        ('{"logits": [1, 2], "labels": 1}\n{"logits": [1, 2, 3], "labels": 1}\n', "as many numbers in every line"),
        ('{"logits": [1, NaN, 2], "labels": 1}\n', "lines 901 to 901: logits must be finite"),
        ('{"logits": [1, 3, 2], "labels": 7}', "column numbers from 0 to 2"),
    ):
        wrong = told(tmp_path, line, "--resume")
        assert (wrong.returncode, message in wrong.stderr, "Traceback" in wrong.stderr) == (2, True, False)
    assert "was begun with --alpha 0.05" in told(tmp_path, "", "--alpha", "0.01").stderr


def test_lines_are_taken_in_as_they_come_and_a_kill_loses_none_of_them(tmp_path):
    logits, labels = synthetic(60, 3)
    state = tmp_path / "s.json"
    process = subprocess.Popen(
        [Path(sys.executable).with_name("rhocal"), "monitor", "-", "-s", state],
        stdin=subprocess.PIPE, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    process.stdin.write(as_lines(logits[:25], labels[:25]).encode())
    process.stdin.flush()
    deadline = time.monotonic() + 60
    while (
        not state.exists() or json.loads(state.read_text(encoding="utf-8"))["n"] < 25
    ) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdin.close()
    assert json.loads(state.read_text(encoding="utf-8"))["n"] == 25  # though far fewer than a thousand came, and no end
    assert json.loads(told(tmp_path, as_lines(logits, labels)).stdout)["n_samples"] == 60


def test_who_follows_waits_for_unfinished_files_and_can_be_stopped(tmp_path):
    folder, state = tmp_path / "in", tmp_path / "state.json"
    folder.mkdir()
    logits, labels = synthetic(400, 4, scale=1.0)
    as_parquet(folder / "0.parquet", logits[:200], labels[:200])
    as_parquet(folder / "whole", logits[200:], labels[200:])
    whole = (folder / "whole").read_bytes()
    (folder / "1.parquet").write_bytes(whole[: len(whole) // 2])  # somebody writes it, under its final name
    assert "1.parquet" in run("monitor", folder, "-s", tmp_path / "other.json", code=2).stderr
    # Under a shell's & an interrupt is ignored, and whoever is started there inherits that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [Path(sys.executable).with_name("rhocal"), "monitor", folder, "-s", state, "--follow", "--every", "0.05", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    signal.signal(signal.SIGINT, before)
    assert process.stderr.readline().startswith("waiting: ")
    (folder / "1.parquet").write_bytes(whole)
    deadline = time.monotonic() + 60
    while json.loads(state.read_text(encoding="utf-8"))["n"] < 400 and time.monotonic() < deadline:
        time.sleep(0.02)
    (folder / "0.parquet").unlink()  # cleaned up by somebody; what it said stays counted
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "stopped" in err
    assert json.loads(out)["n_samples"] == 400


def test_states_of_earlier_versions_are_read(tmp_path):
    monitor = Monitor()
    monitor.add(np.full(30, 0.9), np.r_[np.ones(20), np.zeros(10)])
    monitor.save(tmp_path / "state.json")
    text = (tmp_path / "state.json").read_text(encoding="utf-8")
    for old, new in (("log_money", "log_wealth"), ("highest", "max_log_wealth"), ("seen", "positions")):
        assert f'"{new}"' in text
        text = text.replace(f'"{new}"', f'"{old}"')
    (tmp_path / "state.json").write_text(text, encoding="utf-8")
    assert Monitor.load(tmp_path / "state.json") == monitor


def test_tolerance_and_clusters_on_the_command_line(tmp_path):
    """The gap is four points, and samples come in pairs: an alarm without the options, none with them."""
    rng = np.random.default_rng(0)
    lines = []
    for k in range(6000):
        right = int(rng.random() < 0.76)
        lines.append(json.dumps({"logits": [0.0, float(np.log(4))], "labels": right, "session": f"s{k // 2}"}))
    text = "\n".join(lines)
    for name, options, code in (("a", (), 1), ("b", ("--tolerance", "0.06", "--clusters", "session"), 0)):
        command = [Path(sys.executable).with_name("rhocal"), "monitor", "-", "-s", tmp_path / f"{name}.json", *options]
        done = subprocess.run([*command, "--json"], input=text, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        assert json.loads(done.stdout)["tolerance"] == (0.06 if options else 0)
    changed = subprocess.run(
        [Path(sys.executable).with_name("rhocal"), "monitor", "-", "-s", tmp_path / "b.json", "--tolerance", "0.1"],
        input="", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "was begun with --tolerance 0.06" in changed.stderr
    folder = tmp_path / "in"
    folder.mkdir()
    table = pa.table({"logits": [[0.0, 1.0]] * 6, "labels": [1] * 6, "session": list("aabbcc")})
    pq.write_table(table, folder / "a.parquet", row_group_size=4)
    run("monitor", folder, "-s", tmp_path / "c.json", "--clusters", "session")
    assert Monitor.load(tmp_path / "c.json").n_units == 3
    assert (
        "no column 'visit'" in run("monitor", folder, "-s", tmp_path / "d.json", "--clusters", "visit", code=2).stderr
    )


def test_a_state_that_no_monitor_writes_is_refused(tmp_path):
    """A NaN in the wealth of a bet would silence every alarm."""
    path = tmp_path / "state.json"
    monitor = Monitor()
    monitor.add(np.full(50, 0.9), np.ones(50))
    monitor.save(path)
    state = json.loads(path.read_text())
    assert Monitor.load(path).n == 50
    changes = [
        *({name: value} for name in state for value in ("x", [], {}, [1], float("nan"), -1.5) if name != "positions"),
        {"positions": 3},
        {"log_wealth": [float("nan")] * len(state["log_wealth"])},
        {"total": {**state["total"], "weight": ["a"] * len(state["total"]["weight"])}},
    ]
    for change in changes:
        path.write_text(json.dumps({**state, **change}))
        texts = ({"last_cluster": "x"}, {"alarm_reason": "x"}, {"acknowledged": "x"})
        if change in (*texts, {"rolling": []}, {"history": []}, {"max_log_wealth": -1.5}):
            continue
        with pytest.raises((FileError, InputError)):
            print(change, Monitor.load(path))
    path.write_text("[" * 100_000)
    with pytest.raises(FileError):
        Monitor.load(path)
