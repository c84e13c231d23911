"""`rhocal adapt`: what it prints, writes and refuses."""

import json

import numpy as np
import pandas as pd
import pytest

from helpers import run


def table(path, n, share, seed, columns=("no", "yes")):
    rng = np.random.default_rng(seed)
    y = rng.random(n) < share
    p = 1 / (1 + np.exp(1.125 - 1.5 * rng.normal(1.5 * y, 1)))
    frame = pd.DataFrame({"no": 1 - p, "yes": p})[list(columns)]
    frame.assign(id=np.arange(n), labels=np.where(y, "yes", "no")).to_csv(path, index=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapt")
    table(folder / "cal.csv", 4000, 0.5, 0)
    table(folder / "new.csv", 20_000, 0.02, 1, columns=("yes", "no"))
    how = ("--kind", "probs", "--columns", "no,yes", "--positive", "yes")
    run("fit", folder / "cal.csv", "-m", "beta", *how, "-o", folder / "cal.safetensors")
    return folder


def test_known_and_estimated(folder):
    cal, out = folder / "cal.safetensors", folder / "out.safetensors"
    text = run("adapt", cal, "--prevalence", 0.02, "-o", out).stdout
    assert "2.00 %" in text
    assert "nothing about them was tested" in text
    figures = json.loads(run("evaluate", folder / "new.csv", "-c", out, "--json").stdout)
    positive = figures["evaluation"]["beta:prior-shift"]["positive"]
    assert 0.8 < positive["prevalence"]["observed_expected"]["value"] < 1.25
    found = json.loads(
        run("adapt", cal, folder / "new.csv", "--labeled", folder / "cal.csv", "-o", out, "--json").stdout
    )
    yes = found["classes"][1]
    assert yes["low"] < 0.02 < yes["high"]
    assert found["n_samples"] == 20_000
    run("adapt", cal, "--sampling-rates", "no=0.02", "-o", out)


def test_refused(folder, tmp_path):
    cal, out = folder / "cal.safetensors", tmp_path / "out.safetensors"
    assert "exactly one of" in run("adapt", cal, "-o", out, code=2).stderr
    assert "CLASS=NUMBER" in run("adapt", cal, "--priors", "no", "-o", out, code=2).stderr
    assert "sum to 1" in run("adapt", cal, "--priors", "no=0.5,yes=0.1", "-o", out, code=2).stderr
    assert (
        "must end in .safetensors" in run("adapt", cal, "--prevalence", 0.1, "-o", tmp_path / "x.json", code=2).stderr
    )
    assert not out.exists()


def test_another_mix_does_not_explain_other_samples(folder, tmp_path):
    frame = pd.read_csv(folder / "new.csv")
    frame["yes"] = frame["yes"] ** 3
    frame.assign(no=1 - frame["yes"]).to_csv(tmp_path / "new.csv", index=False)
    out = tmp_path / "out.safetensors"
    text = run(
        "adapt", folder / "cal.safetensors", tmp_path / "new.csv", "--labeled", folder / "cal.csv", "-o", out, code=1
    )
    assert "does not explain them" in " ".join(text.stdout.split())
    assert out.exists()
