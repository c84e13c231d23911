"""What users read: numbers that answer the question they belong to, remedies that help, and words that mean one thing."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import rhocal
from rhocal.cli import app


def invoke(*arguments, code=0):
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The images of `rhocal demo`, and the calibrator that the README fits."""
    folder = tmp_path_factory.mktemp("demo")
    (val, val_labels), (test, test_labels) = rhocal.demo_logits("cal"), rhocal.demo_logits("test")
    np.savez(folder / "images.npz", logits_val=val, labels_val=val_labels, logits_test=test, labels_test=test_labels)
    with pytest.warns(rhocal.errors.DecisionWarning):
        invoke("fit", folder / "images.npz", "-o", folder / "cal.safetensors")
    return folder


def test_power_counts_the_samples_of_the_verdict(demo):
    evaluation = json.loads(invoke("evaluate", demo / "images.npz", "-c", demo / "cal.safetensors", "--json").stdout)[
        "evaluation"
    ]["auto"]
    assert evaluation["state"] == "undecided"
    arguments = ["power", demo / "images.npz", "-c", demo / "cal.safetensors"]
    verdict = json.loads(invoke(*arguments, "--json").stdout)["verdict"]
    assert verdict == {"state": "undecided", "tolerance": 0.02, "n_samples": 5000, "n_needed": evaluation["n_needed"]}
    last = invoke(*arguments).stdout.splitlines()[-1]
    needed = f"about {evaluation['n_needed']:,} samples would decide"
    assert last == f"the verdict for a tolerance of 2.0 points is undecided at 5,000 samples: {needed}"
    assert needed in evaluation["verdict"]
    decided = invoke("power", demo / "images.npz").stdout.splitlines()[-1]
    assert decided.endswith("is decided at 5,000 samples: beyond it")


def test_power_without_labels_has_no_verdict(tmp_path):
    np.savez(tmp_path / "new.npz", logits=rhocal.demo_logits()[0])
    assert "verdict" not in invoke("power", tmp_path / "new.npz").stdout


@pytest.mark.parametrize("n_classes", [2, 10])
def test_the_p_value_of_a_class_agrees_with_its_interval(n_classes):
    """An over-confident model has a smaller variance than its samples; the interval knows, and so must the p-value."""
    rng = np.random.default_rng(3)
    for _ in range(5):
        logits = rng.normal(size=(3000, n_classes)) * 1.5
        p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        labels = (p.cumsum(axis=1) > rng.random((3000, 1))).argmax(axis=1)
        classes = rhocal.evaluate(4 * logits, labels, kind="logits", metrics=["ece"]).classes
        for figures in classes:
            interval = figures.observed_expected
            assert figures.p_value > 0.04 or not interval.low <= 1 <= interval.high, figures
