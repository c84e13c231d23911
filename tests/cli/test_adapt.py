"""`rhocal adapt`: what it prints, writes and refuses."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import rhocal
from helpers import run
from rhocal.cli import app
from rhocal.errors import RhocalError


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
    assert "the shares were stated (positive class: yes); nothing about them was tested" in text
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
    assert "--prevalence must lie between 0 and 1" in run("adapt", cal, "--prevalence", 2, "-o", out, code=2).stderr
    assert not out.exists()


def test_a_prevalence_of_two_named_classes_needs_the_positive_one(folder, tmp_path):
    cal, out = tmp_path / "cal.safetensors", tmp_path / "out.safetensors"
    run("fit", folder / "cal.csv", "-m", "beta", "--kind", "probs", "--columns", "yes,no", "-o", cal)
    refused = run("adapt", cal, "--prevalence", 0.02, "-o", out, code=2)
    assert "not stated which of yes and no that is. Use --positive to name the positive class" in refused.stderr
    assert not out.exists()
    run("adapt", cal, "--prevalence", 0.02, "--positive", "yes", "-o", out)
    assert rhocal.load(out).label_shares_ == pytest.approx([0.02, 0.98])


def test_a_prevalence_of_several_classes_is_refused_with_the_option_to_use(tmp_path):
    logits, labels = rhocal.demo_logits()
    rhocal.TemperatureScaling().fit(logits, labels).save(tmp_path / "cal.safetensors")
    refused = run(
        "adapt", tmp_path / "cal.safetensors", "--prevalence", 0.1, "-o", tmp_path / "out.safetensors", code=2
    )
    assert "there are 10. Use --priors to state the share of each class" in refused.stderr


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


def shifted(n, shift, seed):
    """Scores whose true scale falls with age, and a category beside it."""
    rng = np.random.default_rng(seed)
    age = rng.normal(size=n) + shift
    z = 2 * rng.normal(size=(n, 2))
    y = (z[:, 1] - z[:, 0]) * np.exp(-age / 2) > rng.logistic(size=n)
    return {
        "logits": z,
        "labels": y.astype(int),
        "age": age,
        "site": np.where(rng.random(n) < 0.5 + shift / 5, "a", "b"),
    }


def as_table(path, data):
    z = data["logits"]
    pd.DataFrame({"no": z[:, 0], "yes": z[:, 1], "labels": np.array(["no", "yes"])[data["labels"]]}).assign(
        age=data["age"], site=data["site"]
    ).to_csv(path, index=False)


def invoke(*arguments, code=0):
    """A command in this process: what it printed, or its error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = CliRunner().invoke(app, [str(one) for one in arguments])
    assert done.exit_code == (1 if code else 0), done.output
    assert not code or isinstance(done.exception, RhocalError)
    return str(done.exception) if code else done.output


def test_other_features(tmp_path):
    cal, new = shifted(2000, 0, 0), shifted(3000, 1, 1)
    np.savez(tmp_path / "cal.npz", **cal)
    np.savez(tmp_path / "new.npz", **new)
    np.savez(
        tmp_path / "split.npz", **{f"{k}_val": v for k, v in cal.items()}, **{f"{k}_test": v for k, v in new.items()}
    )
    as_table(tmp_path / "cal.csv", cal)
    as_table(tmp_path / "new.csv", new)
    np.save(tmp_path / "ages.npy", cal["age"])
    np.save(tmp_path / "new_ages.npy", new["age"])
    old, out = tmp_path / "old.safetensors", tmp_path / "out.safetensors"
    invoke("fit", tmp_path / "cal.npz", "-m", "temperature", "-o", old)
    how = ("--features", "age,site", "-o", out)
    text = " ".join(invoke("adapt", old, tmp_path / "new.npz", "--labeled", tmp_path / "cal.npz", *how).split())
    assert "the features differ (p < 1e-9" in text
    assert "effective samples of 2,000; held-out NLL for the target" in text
    before, after = (
        rhocal.metrics.nll(rhocal.load(one).predict_proba(new["logits"]), new["labels"]) for one in (old, out)
    )
    assert after < before
    assert "estimated importance weights" in invoke("card", out)
    split = tmp_path / "split.npz"
    found = json.loads(invoke("adapt", old, split, "--labeled", split, *how, "--json"))
    assert [row["feature"] for row in found["weights"]["features"]] == ["age", "site = a", "site = b"]
    assert found["weights"]["n_target"] == 3000
    invoke("fit", tmp_path / "cal.csv", "-m", "temperature", "--columns", "no,yes", "-o", tmp_path / "csv.safetensors")
    table = json.loads(
        invoke(
            "adapt",
            tmp_path / "csv.safetensors",
            tmp_path / "new.csv",
            "--labeled",
            tmp_path / "cal.csv",
            *how,
            "--json",
        )
    )
    assert table["effective_size"] == pytest.approx(found["effective_size"])
    ages = ("--features", tmp_path / "ages.npy", "--target-features", tmp_path / "new_ages.npy", "--labeled")
    alone = json.loads(invoke("adapt", old, *ages, tmp_path / "cal.npz", "-o", out, "--json"))
    assert 500 < alone["effective_size"] < 1000
    np.savez(tmp_path / "weighted.npz", **cal, w=np.exp(cal["age"]))
    given = invoke("adapt", old, "--labeled", tmp_path / "weighted.npz", "--weights", "w", "-o", out)
    assert "temperature fitted with" in given


@pytest.mark.parametrize("cell", ["", "NA"])
def test_a_number_with_empty_cells_is_a_number(tmp_path, cell):
    cal, new = shifted(400, 0, 0), shifted(400, 1, 1)
    new["age"] = np.where(np.arange(400) == 7, cell, new["age"].astype(str))
    as_table(tmp_path / "cal.csv", cal)
    as_table(tmp_path / "new.csv", new)
    old = tmp_path / "old.safetensors"
    invoke("fit", tmp_path / "cal.csv", "-m", "temperature", "--columns", "no,yes", "-o", old)
    files = (tmp_path / "new.csv", "--labeled", tmp_path / "cal.csv", "-o", tmp_path / "out.safetensors")
    found = json.loads(invoke("adapt", old, *files, "--features", "age", "--json"))["weights"]
    assert [row["feature"] for row in found["features"]] == ["age", "age is missing"]
    assert found["p_value"] < 1e-6


def test_other_features_refused(tmp_path):
    data = shifted(300, 0, 0)
    np.savez(tmp_path / "cal.npz", **data, w=np.r_[np.ones(5), np.full(295, 1e-9)])
    np.save(tmp_path / "few.npy", data["age"][:100])
    old, out = tmp_path / "old.safetensors", tmp_path / "out.safetensors"
    invoke("fit", tmp_path / "cal.npz", "-m", "temperature", "-o", old)
    cal = ("--labeled", tmp_path / "cal.npz", "-o", out)
    assert "name a file with the same features" in invoke("adapt", old, *cal, "--features", "age", code=2)
    assert "name their file with --labeled" in invoke("adapt", old, "-o", out, "--features", "age", code=2)
    text = invoke("adapt", old, tmp_path / "cal.npz", *cal, "--features", "age", "--prevalence", 0.1, code=2)
    assert "--prevalence is about the mix of the classes" in text
    text = invoke("adapt", old, tmp_path / "cal.npz", *cal, "--features", "height", code=2)
    assert "'height'" in text
    few = ("--features", tmp_path / "few.npy", "--target-features", tmp_path / "few.npy")
    assert "100 rows of features and 300 samples" in " ".join(invoke("adapt", old, *cal, *few, code=2).split())
    text = " ".join(invoke("adapt", old, *cal, "--weights", "w", code=2).split())
    assert "5 effective samples of 300, too few to fit on" in text
    assert not out.exists()


def test_a_column_of_features_that_is_not_there(folder):
    cal, out = folder / "cal.safetensors", folder / "features.safetensors"
    arguments = ["adapt", cal, folder / "new.csv", "--labeled", folder / "cal.csv", "--features", "nosuch", "-o", out]
    error = CliRunner().invoke(app, [str(one) for one in arguments]).exception
    assert "there is no column 'nosuch' of features" in str(error)
