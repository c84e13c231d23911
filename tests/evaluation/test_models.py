"""Models on the same questions: side by side, with paired tests."""

import json

import numpy as np
import pytest

from helpers import run, synthetic
from rhocal.data.predictions import Predictions
from rhocal.data.spec import InputSpec
from rhocal.errors import InputError
from rhocal.evaluation.models import ModelAnswers, compare_models, selective_accuracy
from rhocal.metrics import Scored


def answers(logits, labels, ids=None, **options):
    spec = InputSpec(**options)
    return ModelAnswers(Predictions.from_arrays(logits, labels, spec=spec), ids, np.ndim(logits) == 1)


def test_rows_are_matched_by_question():
    logits, labels = synthetic(300, 4)
    ids = np.array([f"q{k}" for k in range(300)])
    order = np.random.default_rng(0).permutation(300)
    worse = logits + 3 * np.random.default_rng(1).normal(size=logits.shape)
    plain = compare_models({"a": answers(logits, labels, ids), "b": answers(worse, labels, ids)})
    mixed = compare_models({"a": answers(logits, labels, ids), "b": answers(worse[order], labels[order], ids[order])})
    by_order = compare_models({"a": answers(logits, labels), "b": answers(worse, labels)})
    assert plain.to_dict() == mixed.to_dict() == by_order.to_dict()
    assert plain.values["a"]["accuracy"] == np.mean(logits.argmax(1) == labels)
    difference = plain.differences["b"]["accuracy"]
    assert (difference.verdict, difference.observed < 0) == ("worse", True)
    some = compare_models({"a": answers(logits, labels, ids), "b": answers(worse[:200], labels[:200], ids[:200])})
    assert (some.n_samples, dict(some.left_out)) == (200, {"a": 100, "b": 0})


def test_questions_with_the_same_names_but_other_answers_are_refused():
    logits, labels = synthetic(50, 4)
    ids = np.arange(50)
    with pytest.raises(InputError, match="of 50 with the same question_id 1 have another correct option"):
        compare_models(
            {"a": answers(logits, labels, ids), "b": answers(logits, np.r_[(labels[0] + 1) % 4, labels[1:]], ids)}
        )
    with pytest.raises(InputError, match="no question in common"):
        compare_models({"a": answers(logits, labels, ids), "b": answers(logits, labels, ids + 50)})


def test_answers_have_the_probability_that_they_are_right():
    rng = np.random.default_rng(0)
    p, q = rng.uniform(size=(2, 400))
    right, other = (rng.random(400) < p).astype(int), (rng.random(400) < q).astype(int)
    result = compare_models({"a": answers(p, right, kind="probs"), "b": answers(np.sqrt(q), other, kind="probs")})
    assert result.values["a"]["accuracy"] == pytest.approx(right.mean())
    assert result.values["a"]["ece"] < 0.06
    assert result.differences["b"]["ece"].verdict == "worse"
    nll = -np.mean(np.where(right, np.log(p), np.log1p(-p)))
    assert result.values["a"]["nll"] == pytest.approx(nll)
    assert result.values["a"]["brier"] == pytest.approx(2 * np.mean((p - right) ** 2))


def test_selective_accuracy_by_hand():
    def scored(confidence, correct):
        return Scored(np.array(confidence), np.array(correct, float), weights=np.ones(len(correct)))

    assert selective_accuracy(scored([0.9, 0.8, 0.7, 0.6, 0.5], [1, 1, 1, 0, 0])) == 3 / 4
    assert selective_accuracy(scored([0.5] * 5, [1, 1, 1, 0, 0])) == pytest.approx(3 / 5)


def test_repeated_questions_widen_the_intervals():
    logits, labels = synthetic(200, 4)
    other = logits + np.random.default_rng(1).normal(size=logits.shape)
    ids = np.arange(200)
    once = compare_models({"a": answers(logits, labels, ids), "b": answers(other, labels, ids)})
    both = [np.repeat(values, 4, axis=0) for values in (logits, other, labels, ids)]
    four = compare_models({"a": answers(both[0], both[2], both[3]), "b": answers(both[1], both[2], both[3])})
    widths = [result.differences["b"]["nll"].high - result.differences["b"]["nll"].low for result in (once, four)]
    assert widths[1] == pytest.approx(widths[0], rel=0.2)


def write_log(path, logits, labels, ids):
    rows = (
        {"question_id": str(name), "options": list("wxyz"), "logprobs": row, "answer": int(label)}
        for row, label, name in zip(logits.tolist(), labels, ids, strict=True)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def test_logs_of_the_same_questions_are_compared_with_each_other(tmp_path):
    logits, labels = synthetic(120, 4)
    other = logits + np.random.default_rng(1).normal(size=logits.shape)
    write_log(tmp_path / "a.jsonl", logits, labels, range(120))
    write_log(tmp_path / "b.jsonl", other[::-1], labels[::-1], range(119, -1, -1))
    few = ("--seeds", "1", "--methods", "identity,temperature,svs")
    done = run("compare", tmp_path / "a.jsonl", tmp_path / "b.jsonl", *few, "--json")
    models = json.loads(done.stdout)["models"]
    assert models["n_samples"] == 120
    assert set(models["differences"]["b"]) == {"accuracy", "ece", "nll", "brier", "aurc"}
    assert "fits a map for each column" in done.stdout + done.stderr
    shown = run("compare", tmp_path / "a.jsonl", tmp_path / "b.jsonl", *few[:2], "--methods", "identity").stdout
    assert "b against a, on the same samples" in " ".join(shown.split())
    assert "models on the same 120 samples" in shown
    write_log(tmp_path / "c.jsonl", logits, (labels + 1) % 4, range(120))
    done = run("compare", tmp_path / "a.jsonl", tmp_path / "c.jsonl", *few[:2], "--methods", "identity", "--json")
    assert "models" not in json.loads(done.stdout)
    assert "not about the same questions" in done.stderr


def test_files_that_differ_in_their_ending_are_two_models(tmp_path):
    logits, labels = synthetic(60, 4)
    write_log(tmp_path / "a.jsonl", logits, labels, range(60))
    write_log(tmp_path / "a.ndjson", -logits, labels, range(60))
    done = run(
        "compare", tmp_path / "a.jsonl", tmp_path / "a.ndjson", "--seeds", "1", "--methods", "identity", "--json"
    )
    assert set(json.loads(done.stdout)["models"]["values"]) == {"a.jsonl", "a.ndjson"}


def test_any_files_are_compared_if_that_is_stated(tmp_path):
    logits, labels = synthetic(120, 4)
    np.savez(tmp_path / "a.npz", logits=logits, labels=labels)
    np.savez(tmp_path / "b.npz", logits=-logits, labels=labels)
    few = ("--seeds", "1", "--methods", "identity", "--json")
    files = tmp_path / "a.npz", tmp_path / "b.npz"
    assert "models" not in json.loads(run("compare", *files, *few).stdout)
    assert json.loads(run("compare", *files, *few, "--models").stdout)["models"]["n_samples"] == 120
    np.savez(tmp_path / "b.npz", logits=logits[:90], labels=labels[:90])
    assert "the same samples in the same order" in run("compare", *files, *few, "--models", code=2).stderr


def test_a_log_of_options_and_a_log_of_answers_share_no_outcomes(tmp_path):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(80, 4))
    labels = scores.argmax(axis=1)
    labels[:20] = rng.integers(0, 4, 20)
    options = [
        {"question_id": k, "options": list("ABCD"), "logprobs": row.tolist(), "answer": "ABCD"[label]}
        for k, (row, label) in enumerate(zip(scores, labels, strict=True))
    ]
    answers = [{"question_id": k, "confidence": 0.7, "correct": bool(k % 4)} for k in range(80)]
    paths = [tmp_path / "options.jsonl", tmp_path / "answers.jsonl"]
    for path, rows in zip(paths, (options, answers), strict=True):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    document = json.loads(run("compare", *paths, "--methods", "temperature", "--seeds", 1, "--json").stdout)
    (found,) = document["models"]["differences"].values()
    assert set(found) == {"accuracy", "ece", "aurc"}
    for values in document["models"]["values"].values():
        assert set(values) == {"accuracy", "ece", "aurc", "selective_accuracy"}
