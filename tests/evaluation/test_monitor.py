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
from rhocal.evaluation.monitor import STAKES, Monitor, log_total_wealth


def streams(n_streams, n, seed, *, off=0.0):
    """Confidences of many shapes, and correctness drawn with chance confidence − off."""
    rng = np.random.default_rng(seed)
    shape = rng.uniform(0.5, 8, size=(n_streams, 1))
    confidence = 1 - rng.beta(1, shape, size=(n_streams, n))
    return confidence, (rng.random((n_streams, n)) < confidence - off).astype(float)


def all_money(confidence, correct):
    """The money of every stream at every moment: the same bets, many streams at once."""
    n = confidence.shape[1]
    max_log_wealth = np.zeros(len(confidence))
    for i, d in enumerate(correct - confidence):
        steps = np.log1p(np.outer(STAKES, d))
        begun, at = 0, 0
        money = np.zeros((0, len(STAKES)))
        while at < n:
            money = np.vstack([money, np.zeros((1, len(STAKES)))])
            end = min(1 if at == 0 else 2 * at, n)
            paths = money[:, :, None] + np.cumsum(steps[:, at:end], axis=1)
            max_log_wealth[i] = max(max_log_wealth[i], log_total_wealth(paths).max())
            money, at, begun = paths[:, :, -1], end, begun + 1
    return max_log_wealth


def test_false_alarms_are_rare_over_the_whole_stream():
    max_log_wealth = all_money(*streams(1500, 2000, seed=0))
    rate = np.mean(max_log_wealth >= np.log(20))
    assert rate <= 0.05
    one = Monitor()
    one.add(*(part[7] for part in streams(1500, 2000, seed=0)))
    assert one.max_log_wealth == pytest.approx(max_log_wealth[7])  # what is simulated is what the monitor does
    assert np.mean(np.exp(-max_log_wealth) <= 0.5) <= 0.5 + 0.04  # p-values are valid all along, not only at 5 %


def test_the_money_of_a_fair_game_has_mean_one():
    confidence, correct = streams(40_000, 12, seed=1)
    paths = np.cumsum(np.log1p(np.array(STAKES)[:, None, None] * (correct - confidence)), axis=2)
    np.testing.assert_allclose(np.exp(paths[:, :, -1]).mean(axis=1), 1, atol=0.06)


def test_by_hand():
    monitor = Monitor()
    monitor.add(np.array([0.8]), np.array([0.0]))
    shares = np.mean([1 - 0.8 * stake for stake in STAKES])  # one start: it holds 1/2, the other half waits
    assert monitor.p_value == pytest.approx(min(1.0, 1 / (0.5 * shares + 0.5)))
    monitor.add(np.array([0.8]), np.array([0.0]))
    first = np.mean([(1 - 0.8 * stake) ** 2 for stake in STAKES])
    assert monitor.p_value == pytest.approx(1 / (first / 2 + shares / 6 + 1 / 3))


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
    for bad in ({"alpha": 0}, {"half_life": -1}, {"window": 3}, {"window": 99.5}):
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
    alone.add(probs.max(1), (probs.argmax(1) == labels).astype(float))
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
