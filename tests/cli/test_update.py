"""`rhocal update`: what it prints, writes and refuses."""

import json
import warnings

import numpy as np
import pytest
from typer.testing import CliRunner

import rhocal
from helpers import as_parquet
from rhocal.cli import app
from rhocal.errors import RhocalError


def invoke(*arguments, code=0):
    """A command in this process: what it printed, or its error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = CliRunner().invoke(app, [str(one) for one in arguments])
    assert done.exit_code == (1 if code else 0), done.output
    assert not code or isinstance(done.exception, RhocalError), done.exception
    return str(done.exception) if code else " ".join(done.output.split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("update")
    for k in range(6):
        rng = np.random.default_rng(k)
        truth = 1.5 * rng.normal(size=(600, 3))
        labels = (truth + rng.gumbel(size=truth.shape)).argmax(1)
        np.savez(folder / f"{k}.npz", logits=(1.5 if k < 2 else 3) * truth, labels=labels)
    invoke("fit", folder / "0.npz", "-m", "temperature", "-o", folder / "cal.safetensors")
    return folder


def test_batches_in_one_run_and_one_by_one(folder, tmp_path):
    cal, batches = folder / "cal.safetensors", [folder / f"{k}.npz" for k in range(1, 6)]
    one, two = ((tmp_path / f"{name}.safetensors", tmp_path / f"{name}-state.safetensors") for name in ("one", "two"))
    text = invoke("update", cal, *batches, "-o", one[0], "-s", one[1])
    assert "1.npz: began: 600 samples are the first in memory" in text
    assert "3.npz: updated: the correction is used from now on; NLL on 600 samples" in text
    assert f"saved {one[0]} (temperature:temperature)" in text.replace("- ", "-")
    begin = cal
    for k, batch in enumerate(batches):  # with the first calibrator, or with the one in use
        out = tmp_path / f"out{k}.safetensors"
        found = json.loads(invoke("update", begin, batch, "-o", out, "-s", two[1], "--json"))
        begin = out
    assert found["method"] == "temperature:temperature"
    z = np.load(batches[0])["logits"]
    assert rhocal.load(out).predict_proba(z) == pytest.approx(rhocal.load(one[0]).predict_proba(z), abs=1e-12)
    assert "5.npz: skipped: this batch was counted before" in invoke(
        "update", cal, batches[-1], "-o", two[0], "-s", two[1]
    )


def test_a_second_run_with_parameters_that_are_not_numbers(tmp_path):
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=900)
    y = z / 2 > rng.logistic(size=900)
    for k, rows in enumerate((slice(500), slice(500, 700), slice(700, 900))):
        np.savez(tmp_path / f"{k}.npz", logits=1 / (1 + np.exp(-z[rows])), labels=y[rows].astype(int))
    cal, files = tmp_path / "cal.safetensors", ("-o", tmp_path / "out.safetensors", "-s", tmp_path / "s.safetensors")
    invoke("fit", tmp_path / "0.npz", "-m", "beta", "--kind", "probs", "-o", cal)
    assert np.isnan(rhocal.load(cal).one_sided_).any()
    invoke("update", cal, tmp_path / "1.npz", *files)
    assert "2.npz: kept" in invoke("update", cal, tmp_path / "2.npz", *files)


def test_refused(folder, tmp_path):
    cal, batch = folder / "cal.safetensors", folder / "1.npz"
    out, state = tmp_path / "out.safetensors", tmp_path / "state.safetensors"
    assert "must end in .safetensors" in invoke("update", cal, batch, "-o", out, "-s", tmp_path / "state.json", code=2)
    assert "the same file" in invoke("update", cal, batch, "-o", out, "-s", out, code=2)
    invoke("update", cal, batch, "-o", out, "-s", state, "--half-life", 500)
    assert "begun with 500" in invoke("update", cal, batch, "-o", out, "-s", state, "--half-life", 600, code=2)
    invoke("fit", folder / "3.npz", "-m", "temperature", "-o", tmp_path / "other.safetensors")
    text = invoke("update", tmp_path / "other.safetensors", batch, "-o", out, "-s", state, code=2)
    assert "began with another calibrator" in text


def test_a_monitor_suggests_updates(folder, tmp_path):
    data = np.load(folder / "4.npz")
    (tmp_path / "stream").mkdir()
    as_parquet(tmp_path / "stream" / "0.parquet", 3 * data["logits"], data["labels"])
    command = ["monitor", tmp_path / "stream", "-s", tmp_path / "m.json", "-c", folder / "cal.safetensors"]
    done = CliRunner().invoke(app, list(map(str, command)))
    assert done.exit_code == 1
    assert "rhocal update" in done.output


def test_the_policy_of_the_calibrator_that_is_given_counts(folder, tmp_path):
    cal = rhocal.load(folder / "cal.safetensors")
    data = np.load(folder / "0.npz")
    state, out, given = (tmp_path / f"{name}.safetensors" for name in ("state", "out", "given"))
    for k, target in enumerate((None, 0.6, 0.5)):
        cal.policy_ = None if target is None else rhocal.decide(cal, data["logits"], data["labels"], target=target)
        cal.save(given)
        half = tmp_path / f"half{k}.npz"
        np.savez(half, logits=data["logits"][k * 50 : k * 50 + 50], labels=data["labels"][k * 50 : k * 50 + 50])
        assert "policy was removed" not in invoke("update", given, half, "-s", state, "-o", out)
        policy = rhocal.load(out).policy_
        assert (policy and policy.certificate.target) == target
    text = invoke("update", given, *(folder / f"{k}.npz" for k in range(1, 6)), "-s", state, "-o", out)
    assert "the policy was removed" in text
    assert rhocal.load(out).policy_ is None


def test_a_file_with_two_splits_is_no_batch(folder, tmp_path):
    data = np.load(folder / "1.npz")
    np.savez(tmp_path / "two.npz", **{f"{name}_{split}": data[name] for name in data for split in ("val", "test")})
    out, state = tmp_path / "out.safetensors", tmp_path / "state.safetensors"
    assert "holds two splits" in invoke(
        "update", folder / "cal.safetensors", tmp_path / "two.npz", "-o", out, "-s", state, code=2
    )


def test_a_skipped_batch_has_no_nll(folder):
    data = np.load(folder / "1.npz")
    online = rhocal.OnlineCalibration.begin(rhocal.load(folder / "cal.safetensors"))
    online = online.update(data["logits"], data["labels"]).online
    found = online.update(data["logits"], data["labels"]).to_dict()
    assert (found["action"], found["nll"], found["nll_candidate"]) == ("skipped", None, None)
    json.dumps(found, allow_nan=False)


def test_a_table_with_other_columns_of_numbers_is_a_batch(tmp_path):
    """The columns of the fit are known; those of a weight or an age are not asked for."""
    rng = np.random.default_rng(0)
    z, age = rng.normal(size=(200, 2)), rng.uniform(20, 80, size=200)
    names = np.where(z[:, 0] > z[:, 1], "no", "yes")
    lines = [f"{a!r},{b!r},{c!r},{name}" for (a, b), c, name in zip(z.tolist(), age.tolist(), names, strict=True)]
    (tmp_path / "data.csv").write_text("\n".join(["no,yes,age,labels", *lines]) + "\n")
    cal, state, out = (tmp_path / f"{name}.safetensors" for name in ("cal", "state", "out"))
    invoke("fit", tmp_path / "data.csv", "--columns", "no,yes", "-m", "temperature", "-o", cal)
    assert "200 samples" in invoke("update", cal, tmp_path / "data.csv", "-s", state, "-o", out)


def test_clusters(folder, tmp_path):
    """A batch whose samples are there four times, as clusters, is the batch."""
    begun = [folder / f"{k}.npz" for k in (1, 2)]
    data = np.load(folder / "3.npz")
    copies = {name: np.repeat(data[name], 4, axis=0) for name in ("logits", "labels")}
    np.savez(tmp_path / "copies.npz", **copies, patient=np.repeat(np.arange(600), 4))
    evidence = {}
    for name, batch, options in (
        ("once", folder / "3.npz", ()),
        ("clusters", tmp_path / "copies.npz", ("--clusters", "patient")),
        ("copies", tmp_path / "copies.npz", ()),
    ):
        paths = "-o", tmp_path / f"{name}.safetensors", "-s", tmp_path / f"{name}-state.safetensors"
        invoke("update", folder / "cal.safetensors", *begun, *paths)
        evidence[name] = json.loads(invoke("update", folder / "cal.safetensors", batch, *paths, *options, "--json"))[
            "batches"
        ][0]["evidence"]
    assert evidence["clusters"] == pytest.approx(evidence["once"], rel=1e-6)
    assert evidence["copies"] > 10 * evidence["once"]
