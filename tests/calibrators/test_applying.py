"""`apply` block by block: killed between blocks and run again, it gives the file of an uninterrupted run."""

import errno
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

import rhocal
from helpers import run, synthetic
from rhocal.calibrators import applying
from rhocal.calibrators.applying import apply
from rhocal.data.formats import base
from rhocal.errors import FileError, InputError

ONE_BLOCK_AT_A_TIME = """
import itertools, sys, time
from pathlib import Path
import rhocal
from rhocal.data.formats import base
from rhocal.calibrators.applying import apply
base.BLOCK_ENTRIES = 2_000
source, artifact, output, n_blocks = sys.argv[1:]
blocks = itertools.count(1)
stop = lambda: next(blocks) == int(n_blocks) and time.sleep(600)  # long enough to be killed
stream = rhocal.stream(source).with_progress(lambda n: (print("block", flush=True), stop()))
apply(rhocal.load(artifact), stream, Path(output))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("apply")
    logits, labels = synthetic(1000, 20, dtype=np.float16)
    np.savez(folder / "z.npz", logits=logits, labels=labels)
    rhocal.RhoNormScaling().fit(logits, labels).save(folder / "cal.safetensors")
    return folder


def start(folder, output, n_blocks=0):
    """A process that applies block by block; after so many it waits, if any are given."""
    arguments = folder / "z.npz", folder / "cal.safetensors", output, str(n_blocks)
    return subprocess.Popen(
        [sys.executable, "-c", ONE_BLOCK_AT_A_TIME, *arguments],
        stdout=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def finished(process):
    """How many blocks it did."""
    said, _ = process.communicate()
    assert process.returncode == 0
    return said.count(b"block")


@pytest.mark.parametrize(("ending", "n_blocks"), [("npy", 1), ("safetensors", 4)])
def test_killed_and_run_again(folder, ending, n_blocks):
    whole, output = folder / f"whole.{ending}", folder / f"killed.{ending}"
    assert finished(start(folder, whole)) == 10

    process = start(folder, output, n_blocks)
    for _ in range(n_blocks):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert not output.exists()  # half-written, it never has the name
    assert finished(start(folder, output)) <= 10 - n_blocks
    assert output.read_bytes() == whole.read_bytes()
    assert not list(folder.glob(".killed*"))


def test_what_is_written(folder, monkeypatch):
    monkeypatch.setattr(base, "BLOCK_ENTRIES", 2_000)
    cal = rhocal.load(folder / "cal.safetensors")
    with np.load(folder / "z.npz") as file:
        logits, labels = file["logits"], file["labels"]
    done = apply(cal, rhocal.stream(folder / "z.npz"), folder / "o.safetensors")
    assert done == {
        "rows": 1000, "resumed_at": 0, "blocks": 10, "arrays": ["probs", "predicted", "confidence", "labels"]
    }  # fmt: skip
    written = load_file(folder / "o.safetensors")
    np.testing.assert_array_equal(written["probs"], cal.predict_proba(logits))
    np.testing.assert_array_equal(written["predicted"], logits.argmax(1))
    np.testing.assert_array_equal(written["confidence"], cal.predict_proba(logits).max(1))
    np.testing.assert_array_equal(written["labels"], labels)
    apply(cal, rhocal.stream(folder / "z.npz"), folder / "o.npy", write="logits")
    np.testing.assert_array_equal(np.load(folder / "o.npy"), cal.transform(logits))


def test_another_calibrator_does_not_continue(folder, monkeypatch):
    monkeypatch.setattr(base, "BLOCK_ENTRIES", 2_000)
    process = start(folder, folder / "other.npy", 1)
    process.stdout.readline()
    process.kill()
    process.wait()
    process.stdout.close()
    assert (folder / ".other.npy.journal").exists()
    with np.load(folder / "z.npz") as file:
        logits, labels = file["logits"], file["labels"]
    cal = rhocal.TemperatureScaling().fit(logits, labels)
    left = (folder / ".other.npy.part").read_bytes()
    for other in ({"calibrator": cal}, {"write": "logits"}):
        arguments = {"calibrator": rhocal.load(folder / "cal.safetensors"), "output": folder / "other.npy"} | other
        with pytest.raises(FileError, match="left by an interrupted run with another calibrator"):
            apply(scores=rhocal.stream(folder / "z.npz"), **arguments)
    assert (folder / ".other.npy.part").read_bytes() == left  # nothing of it is lost
    done = apply(cal, rhocal.stream(folder / "z.npz"), folder / "other.npy", restart=True)
    assert done["resumed_at"] == 0
    np.testing.assert_array_equal(np.load(folder / "other.npy"), cal.predict_proba(logits))


def test_calibrators_made_of_others_are_told_apart(folder):
    """What makes a run the same run looks into the members."""
    with np.load(folder / "z.npz") as file:
        halves = [
            rhocal.calibrator("average", calibrators=("temperature", "field")).fit(
                file["logits"][k::2], file["labels"][k::2]
            )
            for k in range(2)
        ]
    stream = rhocal.stream(folder / "z.npz")
    marks = {applying._fingerprint(cal, stream, "probs") for cal in halves}
    assert len(marks) == 2
    apply(halves[0], stream, folder / "average.npy")


def test_a_full_disk_is_noticed_before_the_work(folder, monkeypatch):
    def full(_file, _offset, _size):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(FileError, match=r"No space left on device \(0\.1 MB are needed\)"):
        apply(rhocal.load(folder / "cal.safetensors"), rhocal.stream(folder / "z.npz"), folder / "full.npy")
    assert not list(folder.glob(".full*"))


def test_the_input_is_never_overwritten(folder):
    with np.load(folder / "z.npz") as file:
        np.save(folder / "in.npy", file["logits"])
    before = (folder / "in.npy").read_bytes()
    (folder / "link.npy").symlink_to(folder / "in.npy")
    cal = folder / "cal.safetensors"
    for output in ("in.npy", "link.npy"):
        for stream in ("--stream", "--no-stream"):
            said = run("apply", cal, folder / "in.npy", stream, "-o", folder / output, code=2)
            assert "this is the input" in said.stderr
    assert "this is the input" in run("apply", cal, folder / "in.npy", "-o", cal, code=2).stderr
    assert "this is the input" in run("fit", cal, "-o", cal, code=2).stderr
    decide = ("decide", folder / "z.npz", "-c", cal, "--max-error", "0.1")
    assert "this is the input" in run(*decide, "-o", cal, code=2).stderr
    assert (folder / "in.npy").read_bytes() == before


def test_what_cannot_be_done_is_said(folder):
    cal = rhocal.load(folder / "cal.safetensors")
    stream = rhocal.stream(folder / "z.npz")
    with pytest.raises(FileError, match=r"\.npy and \.safetensors"):
        apply(cal, stream, folder / "o.csv")
    with pytest.raises(FileError, match="does not exist"):
        apply(cal, stream, folder / "nowhere" / "o.npy")
    with pytest.raises(InputError, match="how many rows"):
        apply(cal, rhocal.stream(iter([])), folder / "o.npy")
    with pytest.raises(InputError, match="shift the rows"):
        apply(cal, rhocal.stream(folder / "z.npz", skip_bad=True), folder / "o.npy")
    np.savez(folder / "none.npz", logits=np.zeros((0, 20)), labels=np.zeros(0, int))
    with pytest.raises(InputError, match="no samples"):
        apply(cal, rhocal.stream(folder / "none.npz"), folder / "o2.npy")
    three = rhocal.TemperatureScaling().fit(*synthetic(100, 3))
    with pytest.raises(InputError, match="20 classes, but the calibrator was fitted with 3"):
        apply(three, stream, folder / "o.npy")


def test_command_line(folder):
    said = json.loads(
        run(
            *("apply", folder / "cal.safetensors", folder / "z.npz", "--stream", "-o", folder / "c.npy", "--json"),
        ).stdout
    )
    assert said["rows"] == 1000
    run("apply", folder / "cal.safetensors", folder / "z.npz", "-o", folder / "m.npy")
    np.testing.assert_array_equal(np.load(folder / "c.npy"), np.load(folder / "m.npy"))


@pytest.mark.parametrize("ending", ["npy", "safetensors"])
def test_the_same_file_however_it_was_read(tmp_path, ending):
    """Text classes too: names and types of the arrays, and every byte."""
    logits, labels = synthetic(600, 3, dtype=np.float32)
    names = np.array(["ant", "bee", "cow"])
    np.savez(tmp_path / "z.npz", logits=logits, labels=names[labels], classes=names)
    rhocal.TemperatureScaling().fit(logits, names[labels], classes=names).save(tmp_path / "cal.safetensors")
    for how in ("--stream", "--no-stream"):
        output = tmp_path / f"{how}.{ending}"
        run("apply", tmp_path / "cal.safetensors", tmp_path / "z.npz", how, "-o", output)
    assert (tmp_path / f"--stream.{ending}").read_bytes() == (tmp_path / f"--no-stream.{ending}").read_bytes()
    if ending == "safetensors":
        written = load_file(tmp_path / "--stream.safetensors")
        np.testing.assert_array_equal(written["labels"], labels)
        np.testing.assert_array_equal(written["predicted"], logits.argmax(1))
        with safe_open(tmp_path / "--stream.safetensors", "numpy") as file:
            assert json.loads(file.metadata()["classes"]) == names.tolist()
        again = json.loads(
            run(
                "evaluate", tmp_path / "--stream.safetensors", "--logits-name", "probs", "--kind", "probs", "--json"
            ).stdout
        )
        assert again["n_samples"] == 600


def test_labels_are_copied_and_not_validated(folder, tmp_path):
    """Rows that a fit would ignore are calibrated like others."""
    cal = rhocal.load(folder / "cal.safetensors")
    with np.load(folder / "z.npz") as file:
        logits, labels = file["logits"], file["labels"].copy()
    labels[:7] = -100
    np.savez(tmp_path / "z.npz", logits=logits, labels=labels.astype(np.int16))
    for scores, output in ((rhocal.stream(tmp_path / "z.npz"), "s.safetensors"), (logits, "m.safetensors")):
        apply(cal, scores, tmp_path / output)
    written = load_file(tmp_path / "s.safetensors")
    np.testing.assert_array_equal(written["labels"], labels)
    assert written["labels"].dtype == np.int64
    assert load_file(tmp_path / "m.safetensors").keys() == {"probs", "predicted", "confidence"}


def test_images_keep_their_shape(tmp_path):
    logits, labels = synthetic(4 * 6, 3, dtype=np.float32)
    cal = rhocal.TemperatureScaling().fit(logits, labels)
    images = np.moveaxis(logits.reshape(2, 3, 4, 3), -1, 1)
    np.savez(tmp_path / "z.npz", logits=images, labels=labels.reshape(2, 3, 4))
    cal.save(tmp_path / "cal.safetensors")
    run("apply", tmp_path / "cal.safetensors", tmp_path / "z.npz", "--class-axis", "1", "-o", tmp_path / "o.npz")
    with np.load(tmp_path / "o.npz") as file:
        np.testing.assert_array_equal(file["probs"], cal.predict_proba(images, class_axis=1))
        np.testing.assert_array_equal(file["predicted"], cal.predict(images, class_axis=1))
        np.testing.assert_array_equal(file["confidence"], file["probs"].max(1))
        np.testing.assert_array_equal(file["labels"], labels.reshape(2, 3, 4))


@pytest.mark.parametrize(("size", "dtype"), [(1e9, np.float64), (1e37, np.float32)])
def test_large_logits_and_masks_block_by_block(size, dtype, tmp_path, monkeypatch):
    """Logits below -5e8 were taken for options that a question does not have; and masks must not change the type of a block."""
    logits, labels = synthetic(300, 4)
    large = (logits * (size / 10)).astype(dtype)
    cal = rhocal.calibrator("temperature").fit(large, labels)
    assert cal.predict_proba(large)[large < -5e8].max() > 1e-3
    large[100:, 3] = -np.inf  # not in the first block
    expected = cal.predict_proba(large)
    monkeypatch.setattr(base, "BLOCK_ENTRIES", 200)
    np.savez(tmp_path / "z.npz", logits=large, labels=labels)
    apply(cal, rhocal.stream(tmp_path / "z.npz"), tmp_path / "out.npy")
    found = np.load(tmp_path / "out.npy")
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-7)
