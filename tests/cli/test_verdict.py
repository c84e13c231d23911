"""The verdict on the command line: true for every class, and a gate for pipelines."""

import json

import numpy as np
import pytest

from helpers import run


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.fixture
def prior_shift(tmp_path):
    """Calibrated where half of the samples are positive, used where 2 % are: the top label is symmetric and looks perfect."""
    rng = np.random.default_rng(0)
    y = (rng.random(20_000) < 0.02).astype(int)
    p = sigmoid(1.5 * rng.normal(1.5 * y, 1) - 1.125)
    np.savez(tmp_path / "shift.npz", logits=np.stack([1 - p, p], axis=1), labels=y)
    return tmp_path / "shift.npz"


def test_a_prior_shift_is_seen_and_named(prior_shift):
    found = json.loads(run("evaluate", prior_shift, "--kind", "probs", "--json").stdout)["evaluation"]["uncalibrated"]
    assert all(found["tests"][name]["p_value"] > 0.05 for name in ("gap", "ece", "smooth", "spiegelhalter"))
    assert found["verdict"].startswith("class 1 gets too much probability: mean probability 31.")
    assert "observed 1.9 %" in found["verdict"]
    assert (found["state"], found["distinguishable"]) == ("beyond", True)


def test_a_rare_event_is_named_not_a_lack_of_confidence(tmp_path):
    rng = np.random.default_rng(1)
    q = rng.beta(0.3, 13, 20_000)
    y = (rng.random(20_000) < q).astype(int)
    p = np.clip(q + 0.053, 0, 1)
    np.savez(tmp_path / "rare.npz", logits=np.stack([1 - p, p], axis=1), labels=y)
    text = " ".join(run("evaluate", tmp_path / "rare.npz", "--kind", "probs").stdout.split())
    assert "verdict: class 1 gets too much probability: mean probability 7." in text
    assert "under-confident" not in text


def test_a_gate_for_pipelines(prior_shift, tmp_path):
    text = run("evaluate", prior_shift, "--kind", "probs", "--max-ece", "0.05", code=1).stdout
    assert "--max-ece 0.05: failed: the error of uncalibrated is shown to be above it" in text
    found = json.loads(run("evaluate", prior_shift, "--kind", "probs", "--max-ece", "0.05", "--json", code=1).stdout)
    assert (found["max_ece"], found["passed"]) == (0.05, False)
    rng = np.random.default_rng(2)
    p = rng.random(5000)
    np.savez(tmp_path / "fine.npz", logits=np.stack([1 - p, p], axis=1), labels=(rng.random(5000) < p).astype(int))
    fine = tmp_path / "fine.npz"
    assert (
        "--max-ece 0.05: passed: the error of uncalibrated is shown to be within it"
        in run("evaluate", fine, "--kind", "probs", "--max-ece", "0.05").stdout
    )
    text = run("evaluate", fine, "--kind", "probs", "--max-ece", "0.005").stdout
    assert "--max-ece 0.005: passed, but not shown: too few samples to tell" in text
    text = run("evaluate", fine, "--kind", "probs", "--max-ece", "0.005", "--strict", code=1).stdout
    assert "--max-ece 0.005: failed, as it is not shown: too few samples to tell" in text
    found = json.loads(run("evaluate", fine, "--kind", "probs", "--max-ece", "0.05", "--strict", "--json").stdout)
    assert (found["strict"], found["passed"]) == (True, True)
    assert "--strict needs --max-ece" in run("evaluate", fine, "--kind", "probs", "--strict", code=2).stderr
    found = json.loads(run("evaluate", fine, "--kind", "probs", "--tolerance", "0.05", "--json").stdout)
    assert found["evaluation"]["uncalibrated"]["state"] == "within"
    assert "--tolerance must lie between 0 and 1" in run("evaluate", fine, "--tolerance", "2", code=2).stderr


def test_groups_of_a_perfect_model_get_no_wrong_sentence(tmp_path):
    rng = np.random.default_rng(3)
    p = rng.dirichlet([0.5] * 4, 8000)
    y = (p.cumsum(axis=1) < rng.random((8000, 1))).sum(axis=1)
    np.savez(tmp_path / "g.npz", logits=p, labels=y, site=np.arange(8000) % 40)
    out = run("evaluate", tmp_path / "g.npz", "--kind", "probs", "--groups", "site", "--json").stdout
    groups = json.loads(out)["evaluation"]["uncalibrated"]["groups"]
    assert len(groups) == 40
    assert all("indistinguishable from perfect calibration" in group["verdict"] for group in groups)
    assert all(group["state"] != "beyond" for group in groups)


def test_figures_of_the_positive_class(prior_shift, tmp_path):
    data = np.load(prior_shift)
    named = tmp_path / "named.npz"
    np.savez(named, logits=data["logits"][:2000], labels=data["labels"][:2000], classes=np.array(["ham", "spam"]))
    text = " ".join(run("evaluate", named, "--kind", "probs").stdout.split())
    assert "positive class: spam, mean probability 0.3" in text
    found = json.loads(run("evaluate", named, "--kind", "probs", "--json").stdout)["evaluation"]["uncalibrated"]
    share, mean = data["labels"][:2000].mean(), data["logits"][:2000, 1].mean()
    figures = found["positive"]
    assert figures["prevalence"]["prevalence"] == pytest.approx(share)
    assert figures["prevalence"]["observed_expected"]["value"] == pytest.approx(share / mean)
    assert figures["intercept"]["high"] < -2
    assert figures["slope"]["low"] < 1 < figures["slope"]["high"]
    ham = run("evaluate", named, "--kind", "probs", "--positive", "ham", "--json").stdout
    of_ham = json.loads(ham)["evaluation"]["uncalibrated"]["positive"]
    assert of_ham["prevalence"]["name"] == "ham"
    assert of_ham["intercept"]["value"] == pytest.approx(-figures["intercept"]["value"], rel=1e-6)
    assert of_ham["slope"]["value"] == pytest.approx(figures["slope"]["value"], rel=1e-6)
    run("plot", "positive", named, "--kind", "probs", "-o", tmp_path / "p.svg")
    assert (tmp_path / "p.svg").stat().st_size > 10_000
