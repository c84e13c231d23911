"""Options that a model prefers by their position."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import rhocal
from rhocal.calibrators.compose.position import PositionOffsets, fit_offsets
from rhocal.cli import app
from rhocal.data.predictions import Predictions
from rhocal.errors import InputError

BIAS = np.array([0.9, 0.1, -0.4, -0.6])


def options(n, seed, bias, share_absent=0.0):
    """Scores of four options with a temperature of 1.6 and an offset at each position; the last option may be absent."""
    rng = np.random.default_rng(seed)
    logits = 1.2 * rng.normal(size=(n, 4))
    is_absent = np.zeros((n, 4), bool)
    is_absent[:, 3] = rng.random(n) < share_absent
    probs = np.where(is_absent, 0, np.exp(logits))
    shares = np.cumsum(probs / probs.sum(axis=1, keepdims=True), axis=1)
    labels = (rng.random(n)[:, None] > shares).sum(axis=1).clip(max=3 - (share_absent > 0) * is_absent[:, 3])
    return np.where(is_absent, -1e9, 1.6 * logits + bias), labels


def auto(**more):
    return rhocal.AutoCalibrator(["temperature", "field"], exchangeable=True, **more)


@pytest.mark.parametrize("share_absent", [0.0, 0.3])
def test_offsets_remove_a_bias(share_absent):
    scores, labels = options(1500, 0, BIAS, share_absent)
    new, new_labels = options(4000, 1, BIAS, share_absent)
    plain, debiased = auto().fit(scores, labels), auto(debias="position").fit(scores, labels)
    row = debiased.solution_.trials[0]
    assert row["used"]
    assert row["p_value"] < 1e-6
    np.testing.assert_allclose(row["offsets"], -BIAS, atol=0.3)
    gain = rhocal.metrics.nll(plain.predict_proba(new), new_labels) - rhocal.metrics.nll(
        debiased.predict_proba(new), new_labels
    )
    assert gain > 0.02
    assert abs(gain + row["nll_above"]) < 4 * row["nll_error"]
    assert debiased.predict_proba(new)[new < -1e8].max(initial=0) < 1e-300


def test_nothing_changes_without_a_bias():
    scores, labels = options(1500, 2, np.zeros(4))
    plain, debiased = auto().fit(scores, labels), auto(debias="position").fit(scores, labels)
    assert debiased.solution_.trials[0]["offsets"] is None
    assert (plain.predict_proba(scores) == debiased.predict_proba(scores)).all()


def test_the_test_keeps_its_level():
    """Without a bias, with the answers of a question as clusters too."""
    p_values = {True: [], False: []}
    for seed in range(150):
        scores, labels = options(120, seed, np.zeros(4))
        copies = np.repeat(np.arange(120), 1 + seed % 4)
        for has_clusters in (True, False):
            data = Predictions.from_arrays(scores[copies], labels[copies], clusters=copies if has_clusters else None)
            p_values[has_clusters].append(PositionOffsets.from_predictions(data.prepared()).p_value)
    assert np.mean(np.array(p_values[True]) < 0.1) < 0.18
    assert np.mean(np.array(p_values[True]) < 0.5) > 0.35
    assert np.mean(np.array(p_values[False]) < 0.1) > 0.25  # copies are no evidence


def test_offsets_follow_the_order_of_options():
    scores, labels = options(800, 3, BIAS)
    order = np.array([2, 0, 3, 1])
    offsets = fit_offsets(Predictions.from_arrays(scores, labels).prepared())
    moved = fit_offsets(Predictions.from_arrays(scores[:, order], np.argsort(order)[labels]).prepared())
    np.testing.assert_allclose(moved, offsets[order], atol=1e-7)


def test_debias_is_for_options():
    scores, labels = options(300, 0, BIAS)
    with pytest.raises(InputError, match="exchangeable=True"):
        rhocal.AutoCalibrator(exchangeable=False, debias="position").fit(scores, labels)
    with pytest.raises(InputError, match="keep_decision"):
        auto(debias="position", keep_decision=True).fit(scores, labels)


def test_the_command_line_prints_what_was_done(tmp_path):
    scores, labels = options(600, 0, BIAS)
    with (tmp_path / "log.jsonl").open("w") as file:
        for row, label in zip(scores.tolist(), labels.tolist(), strict=True):
            file.write(json.dumps({"logprobs": row, "answer": label, "options": list("ABCD")}) + "\n")
    arguments = ["fit", str(tmp_path / "log.jsonl"), "-O", "debias=position", "-O", 'methods=["temperature"]']
    result = CliRunner().invoke(app, [*arguments, "-o", str(tmp_path / "cal.safetensors")])
    assert result.exit_code == 0, repr(result.exception)
    assert "a position bias is detected" in result.stdout
    loaded = rhocal.load(tmp_path / "cal.safetensors")
    assert loaded.chosen_.label == "prior-shift:temperature"
