"""Questions of a log that occur more than once: fits and comparisons keep their samples together."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import rhocal
from rhocal.cli import app
from rhocal.cli.execution import _print_once


def invoke(*arguments):
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result


def error(*arguments):
    return str(CliRunner().invoke(app, [str(one) for one in arguments]).exception)


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """150 questions with 4 epochs each."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("log") / "epochs.jsonl"
    questions, answers = rng.normal(size=(150, 3)), rng.integers(0, 3, 150)
    questions[np.arange(150), answers] += 0.8
    with path.open("w") as file:
        for k in np.tile(np.arange(150), 4):
            scores = (questions[k] + 0.1 * rng.normal(size=3)).round(4).tolist()
            file.write(json.dumps({"question_id": f"q{k}", "logprobs": scores, "answer": int(answers[k])}) + "\n")
    return path


def test_questions_are_clusters_of_a_fit(log, tmp_path):
    arguments = ("fit", log, "-m", "field", "-o", tmp_path / "cal.safetensors", "--json")
    _print_once.cache_clear()  # another test of this process may have caused the line
    result = invoke(*arguments)
    assert "questions occur more than once" in result.stderr
    stored = rhocal.read_log(log)
    fits = [rhocal.FieldScaling().fit(stored.scores, stored.labels, clusters=c) for c in (stored.question_id, None)]
    held_out = [cal.solution_.held_out.above["nll"] for cal in fits]
    document = json.loads(result.stdout)
    assert document["held_out"]["above"]["nll"] == pytest.approx(held_out[0])
    assert document["held_out"]["above"]["nll"] != pytest.approx(held_out[1])
    same = json.loads(invoke(*arguments, "--clusters", "question_id").stdout)
    assert same["held_out"] == document["held_out"]


def test_clusters_of_a_table_and_of_a_comparison(log, tmp_path):
    stored = rhocal.read_log(log)
    np.savez(tmp_path / "a.npz", logits=stored.scores, labels=stored.labels, patient=stored.question_id)
    fitted = ("fit", tmp_path / "a.npz", "-m", "field", "-o", tmp_path / "cal.safetensors")
    above = [
        json.loads(invoke(*fitted, *more, "--json").stdout)["held_out"]["above"]
        for more in ((), ("--clusters", "patient"))
    ]
    assert above[0] != above[1]
    assert "no array or column 'nobody'" in error(*fitted, "--clusters", "nobody")
    compared = ("compare", tmp_path / "a.npz", "--methods", "identity,isotonic", "--seeds", "1", "--json")
    by_row, by_cluster = (
        {row["method"]: row["nll"] for row in json.loads(invoke(*compared, *more).stdout)["rows"]}
        for more in ((), ("--clusters", "patient"))
    )
    gains = [rows["identity"] - rows["isotonic"] for rows in (by_row, by_cluster)]
    assert gains[0] > gains[1] + 0.02  # by row it has seen the questions


def test_a_stream_has_no_clusters(log, tmp_path):
    stored = rhocal.read_log(log)
    np.savez(tmp_path / "a.npz", logits=stored.scores, labels=stored.labels, patient=stored.question_id)
    fitted = ("fit", tmp_path / "a.npz", "--stream", "-o", tmp_path / "cal.safetensors")
    assert "--clusters needs the file in memory" in error(*fitted, "--clusters", "patient")


def test_figures_know_weights_and_clusters(tmp_path):
    """Intervals of the diagram are wider for copies in clusters; fractions without a kind are warned of."""
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(40, 3)), rng.integers(0, 3, 40)
    arrays = {
        "logits": np.repeat(logits, 5, axis=0),
        "labels": np.repeat(labels, 5),
        "patient": np.repeat(range(40), 5),
    }
    np.savez(tmp_path / "copies.npz", **arrays, w=rng.random(200))
    drawn = []
    for k, options in enumerate(((), ("--clusters", "patient"), ("--weights", "w", "--weight-kind", "importance"))):
        invoke("plot", "reliability", tmp_path / "copies.npz", "-o", tmp_path / f"{k}.svg", *options)
        drawn.append((tmp_path / f"{k}.svg").read_text())
    assert len(set(drawn)) == 3
    with pytest.warns(rhocal.errors.SuspiciousInputWarning, match="not whole numbers"):
        CliRunner().invoke(
            app, ["plot", "reliability", str(tmp_path / "copies.npz"), "-o", str(tmp_path / "x.svg"), "--weights", "w"]
        )


def test_header_counts_weighted_rows(tmp_path):
    """Rows with counts: the header states both numbers."""
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "w.npz", logits=rng.normal(size=(60, 3)), labels=rng.integers(0, 3, 60), w=np.full(60, 4.0))
    assert "60 samples (weights count them as 240)" in invoke("evaluate", tmp_path / "w.npz", "--weights", "w").output
    assert "60 samples, 3" in invoke("evaluate", tmp_path / "w.npz").output
