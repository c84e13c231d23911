"""Runs of a monitor: folders and lines, kills, interrupts and options."""

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
from helpers import PATIENCE, run, synthetic, wait_until
from rhocal.evaluation.monitor import Monitor


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
    assert wait_until(state.exists)
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


def monitored(tmp_path, text, *options, code=0):
    return run("monitor", "-", "-s", tmp_path / "s.json", "--json", *options, stdin=text, code=code)


def test_lines(tmp_path):
    logits, labels = synthetic(300, 3)
    lines = as_lines(logits, labels)
    assert json.loads(monitored(tmp_path, lines, code=1).stdout)["n_samples"] == 300  # and an alarm
    assert (
        json.loads(monitored(tmp_path, lines, code=1).stdout)["n_samples"] == 300
    )  # from its beginning again: nothing is new
    assert (
        json.loads(monitored(tmp_path, lines, "--resume", code=1).stdout)["n_samples"] == 600
    )  # more of the same stream
    bad = monitored(tmp_path, lines[:-1] + '\n{"x": 1}\n', "--resume", code=2)
    assert "line 901" in bad.stderr
    assert json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))["n"] == 900  # those before it were taken in
    for line, message in (
        ('{"logits": [1, 2], "labels": 1}\n{"logits": [1, 2, 3], "labels": 1}\n', "as many numbers in every line"),
        ('{"logits": [1, NaN, 2], "labels": 1}\n', "lines 901 to 901: logits must be finite"),
        ('{"logits": [1, 3, 2], "labels": 7}', "column numbers from 0 to 2"),
    ):
        assert message in monitored(tmp_path, line, "--resume", code=2).stderr
    assert "was begun with --alpha 0.05" in monitored(tmp_path, "", "--alpha", "0.01", code=2).stderr


def test_lines_are_taken_in_as_they_come_and_a_kill_loses_none_of_them(tmp_path):
    logits, labels = synthetic(60, 3)
    state = tmp_path / "s.json"
    process = subprocess.Popen(
        [Path(sys.executable).with_name("rhocal"), "monitor", "-", "-s", state],
        stdin=subprocess.PIPE, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    process.stdin.write(as_lines(logits[:25], labels[:25]).encode())
    process.stdin.flush()
    assert wait_until(lambda: state.exists() and json.loads(state.read_text(encoding="utf-8"))["n"] >= 25)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdin.close()
    assert json.loads(state.read_text(encoding="utf-8"))["n"] == 25  # though far fewer than a thousand came, and no end
    assert json.loads(monitored(tmp_path, as_lines(logits, labels), code=1).stdout)["n_samples"] == 60


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
    assert wait_until(lambda: json.loads(state.read_text(encoding="utf-8"))["n"] == 400)
    (folder / "0.parquet").unlink()  # cleaned up by somebody; what it said stays counted
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert "stopped" in err
    assert json.loads(out)["n_samples"] == 400


def test_tolerance_and_clusters_on_the_command_line(tmp_path):
    """The gap is four points, and samples come in pairs: an alarm without the options, none with them."""
    rng = np.random.default_rng(0)
    lines = []
    for k in range(6000):
        right = int(rng.random() < 0.76)
        lines.append(json.dumps({"logits": [0.0, float(np.log(4))], "labels": right, "session": f"s{k // 2}"}))
    text = "\n".join(lines)
    for name, options, code in (("a", (), 1), ("b", ("--tolerance", "0.06", "--clusters", "session"), 0)):
        done = run("monitor", "-", "-s", tmp_path / f"{name}.json", *options, "--json", stdin=text, code=code)
        assert json.loads(done.stdout)["tolerance"] == (0.06 if options else 0)
    changed = run("monitor", "-", "-s", tmp_path / "b.json", "--tolerance", "0.1", code=2)
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


def test_a_state_counts_one_calibrator_and_one_kind_of_scores(tmp_path):
    logits, labels = synthetic(900, 4, scale=2.0)
    first, other = tmp_path / "c.safetensors", tmp_path / "d.safetensors"
    rhocal.TemperatureScaling().fit(logits[:300], labels[:300]).save(first)
    rhocal.TemperatureScaling().fit(logits[:200], labels[:200]).save(other)
    lines = [as_lines(logits[300 + 100 * k :][:100], labels[300 + 100 * k :][:100]) for k in range(5)]
    assert json.loads(monitored(tmp_path, lines[0], "-c", first).stdout)["n_calibration"] == 300
    refused = monitored(tmp_path, lines[1], "--resume", code=2).stderr
    assert "s.json was begun with a calibrator (-c). Repeat that; or, if the change is meant" in refused
    assert "with another calibrator (-c)" in monitored(tmp_path, lines[1], "-c", other, "--resume", code=2).stderr
    for option in (["--kind", "log_probs"], ["--clusters", "c"], ["--labels-name", "y"]):
        refused = monitored(tmp_path, lines[1], "-c", first, "--resume", *option, code=2).stderr
        assert f"was begun with{'out' if option[0] == '--clusters' else ''} {option[0]}" in refused
    copy = tmp_path / "copy.safetensors"
    rhocal.load(first).save(copy)
    assert json.loads(monitored(tmp_path, lines[1], "-c", copy, "--resume").stdout)["n_samples"] == 200
    run("monitor", "-", "-s", tmp_path / "s.json", "--reset", "another calibrator")
    said = json.loads(monitored(tmp_path, lines[2], "-c", other, "--resume").stdout)
    assert (said["n_calibration"], sum(Monitor.load(tmp_path / "s.json").total["weight"])) == (200, 100)
    assert "with another calibrator" in monitored(tmp_path, lines[3], "-c", first, "--resume", code=2).stderr


def test_a_state_that_began_without_a_calibrator_stays_so(tmp_path):
    logits, labels = synthetic(400, 4, scale=1.0)
    rhocal.TemperatureScaling().fit(logits, labels).save(tmp_path / "c.safetensors")
    monitored(tmp_path, as_lines(logits[:200], labels[:200]))
    text = as_lines(logits[200:], labels[200:])
    assert "without a calibrator (-c)" in monitored(tmp_path, text, "-c", tmp_path / "c.safetensors", code=2).stderr
    state = json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))
    del state["counted"]  # of an earlier version
    (tmp_path / "s.json").write_text(json.dumps(state | {"schema": 4}), encoding="utf-8")
    monitored(tmp_path, text, "-c", tmp_path / "c.safetensors")
    assert "with a calibrator (-c)" in monitored(tmp_path, text, code=2).stderr
