"""Logs of answers that are right or wrong: what is said is about the answers, not about guesses of "right" and "wrong"."""

import json

import numpy as np
import pytest

import rhocal
from helpers import run
from rhocal.numerics.bins import N_BINS

N = 600


def write(path, confidences, right, **others):
    rows = [
        {"confidence": float(p), "correct": bool(c)} | {key: values[k] for key, values in others.items()}
        for k, (p, c) in enumerate(zip(confidences, right, strict=True))
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def answers():
    rng = np.random.default_rng(5)
    stated = rng.beta(3.0, 1.5, N)
    return stated, rng.random(N) < np.clip(stated - 0.1, 0, 1)


@pytest.fixture(scope="module")
def path(answers, tmp_path_factory):
    subjects = ["law" if k % 3 else "art" for k in range(N)]
    return write(tmp_path_factory.mktemp("answers") / "answers.jsonl", *answers, subject=subjects)


def test_the_verdict_is_about_answers(path, answers):
    stated, right = answers
    document = json.loads(run("evaluate", path, "--json").stdout)
    found = document["evaluation"]["uncalibrated"]
    assert found["accuracy"] == pytest.approx(right.mean())
    assert found["confidence"] == pytest.approx(stated.mean())
    means = f"answers state {100 * stated.mean():.1f} % on average, {100 * right.mean():.1f} % are right"
    assert means in found["verdict"]
    places = (stated * N_BINS).astype(int)
    by_hand = sum(abs((right - stated)[places == place].sum()) for place in range(N_BINS)) / N
    assert found["values"]["ece"]["value"] == pytest.approx(by_hand)
    done = run("evaluate", path, "--groups", "subject")
    assert f"{N} answers" in done.stdout
    assert "right answers, mean probability" in done.stdout
    for words in ("class 1", "2 classes", "positive class:"):
        assert words not in done.stdout
    mine = rhocal.evaluate(rhocal.read_log(path))
    assert mine["ece"].value == found["values"]["ece"]["value"]
    assert mine.verdict == found["verdict"]
    assert f"{N} answers" in str(mine)


def test_a_perfect_judge_is_not_distinguished(tmp_path):
    rng = np.random.default_rng(1)
    p_values = []
    for k in range(12):
        stated = rng.beta(1.0, 2.0, 400)
        log = rhocal.read_log(write(tmp_path / f"{k}.jsonl", stated, rng.random(400) < stated))
        p_values.append(rhocal.evaluate(log, n_replicates=99).p_value)
    assert 0.2 < np.mean(p_values) < 0.8


def test_a_fit_counts_no_changed_predictions(path, tmp_path):
    target = tmp_path / "cal.safetensors"
    done = run("fit", path, "-m", "platt", "-o", target, "--json")
    assert "predictions" not in done.stderr
    document = json.loads(done.stdout)
    assert document["decisions"] is None
    values = document["calibration_set"]
    assert values["uncalibrated"]["accuracy"] == values["platt"]["accuracy"]
    assert values["platt"]["ece"] < values["uncalibrated"]["ece"]


def test_wrong_answers_are_not_accepted_however_certain(tmp_path):
    rng = np.random.default_rng(2)
    stated = np.r_[rng.uniform(0.0, 0.05, 1500), rng.uniform(0.9, 1.0, 1500)]
    log = write(tmp_path / "bimodal.jsonl", stated, rng.random(3000) < stated)
    target, output = tmp_path / "cal.safetensors", tmp_path / "out.npz"
    document = json.loads(run("decide", log, "-m", "platt", "--max-error", 0.1, "-o", target, "--json").stdout)
    assert document["certificate"]["coverage"] == pytest.approx(0.5, abs=0.05)
    assert document["verdict"].startswith("accept ")
    assert "of answers" in document["verdict"]
    run("apply", target, log, "-o", output)
    with np.load(output) as written:
        accepted = written["action"] == "automate"
        assert stated[accepted].min() >= 0.9
        assert (~accepted[stated < 0.1]).all()
    never = write(tmp_path / "wrong.jsonl", stated[:1500], rng.random(1500) < stated[:1500])
    assert "always" not in run("decide", never, "-m", "platt", "--max-error", 0.1, code=1).stdout
    done = run("decide", log, "-m", "platt", "--max-error", 0.1, "--score", "per-class", code=2)
    assert "answers have one threshold" in done.stderr


def test_the_report_is_about_answers(path, answers, tmp_path):
    stated, right = answers
    run("report", path, "-o", tmp_path / "r.html", "--json-output", tmp_path / "r.json")
    document = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert "are right" in document["verdict"]["before"]
    assert document["methods"][0]["mean_accuracy"] == pytest.approx(right.mean(), abs=1e-4)
    first = document["mistakes"]["rows"][0]
    assert (first["label"], first["predicted"]) == ("wrong", "right")
    assert first["confidence"] == pytest.approx(stated[~right].max(), abs=1e-4)
    assert {row["slice"] for row in document["slices"]["rows"]} in ({"law", "art"}, {"all"})
