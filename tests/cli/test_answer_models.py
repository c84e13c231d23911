"""`rhocal fit --features --subjects`: models of answers that are right or wrong, saved, applied and evaluated."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import rhocal
from rhocal.cli import app
from rhocal.errors import FileError, GuardWarning, InputError

SUBJECTS = {"law": 0.8, "chemistry": -0.8, "history": 0.0}


def invoke(*arguments):
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.stdout


def error(*arguments):
    return str(CliRunner().invoke(app, [str(one) for one in arguments]).exception)


def write_log(path, seed):
    rng = np.random.default_rng(seed)
    with path.open("w") as file:
        for k in range(600):
            subject, length, score = str(rng.choice(list(SUBJECTS))), int(rng.integers(5, 200)), rng.normal()
            odds = score - 0.01 * (length - 100) + SUBJECTS[subject]
            answer = {
                "question_id": f"{seed}-{k // 2}",
                "confidence": round(1 / (1 + np.exp(-2 * score)), 3),
                "correct": bool(rng.random() < 1 / (1 + np.exp(-odds))),
                "length": length,
                "topic": subject,
            }
            file.write(json.dumps(answer) + "\n")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two logs, and a model that is fitted on the first."""
    folder = tmp_path_factory.mktemp("answers")
    write_log(folder / "old.jsonl", 0)
    write_log(folder / "new.jsonl", 1)
    fitted = (
        "fit",
        folder / "old.jsonl",
        "--features",
        "length",
        "--subjects",
        "topic",
        "-o",
        folder / "m.safetensors",
    )
    (folder / "fit.json").write_text(invoke(*fitted, "--json"))
    return folder


def test_a_fit_is_the_one_of_python(folder):
    log = rhocal.read_log(folder / "old.jsonl")
    columns = {"features": {"length": log.arrays["length"]}, "subjects": log.arrays["topic"]}
    model = rhocal.CorrectnessModel().fit(log.scores, log.labels, kind=log.kind, clusters=log.question_id, **columns)
    document = json.loads((folder / "fit.json").read_text())
    assert document["weights"]["length"] == pytest.approx(model.weights_["length"])
    assert document["offsets"] == pytest.approx(model.offsets_)
    assert document["held_out"] == pytest.approx(model.held_out_)
    assert document["held_out"]["above"] < -2 * document["held_out"]["standard_error"]
    loaded = rhocal.CorrectnessModel.load(folder / "m.safetensors")
    assert (loaded.predict_proba(log.scores, **columns) == model.predict_proba(log.scores, **columns)).all()
    alone = model.predict_proba(
        log.scores[:1], features={"length": log.arrays["length"][:1]}, subjects=columns["subjects"][:1]
    )
    assert (alone == model.predict_proba(log.scores, **columns)[:1]).all()


def test_apply_evaluate_and_report_use_features_and_subjects(folder):
    log = rhocal.read_log(folder / "new.jsonl")
    model = rhocal.CorrectnessModel.load(folder / "m.safetensors")
    probs = model.predict_proba(log.scores, features={"length": log.arrays["length"]}, subjects=log.arrays["topic"])
    invoke("apply", folder / "m.safetensors", folder / "new.jsonl", "-o", folder / "out.csv", "--keep-columns", "topic")
    table = pd.read_csv(folder / "out.csv")
    np.testing.assert_allclose(table["probs_1"], probs[:, 1], rtol=1e-12)
    assert list(table["question_id"]) == list(log.question_id)
    assert list(table["topic"]) == list(log.arrays["topic"])
    evaluated = ("evaluate", folder / "new.jsonl", "-c", folder / "m.safetensors", "--groups", "topic", "--json")
    document = json.loads(invoke(*evaluated))["evaluation"]
    expected = rhocal.evaluate(probs, log.labels, positive=1, clusters=log.question_id)
    assert document["correctness"]["values"]["nll"]["value"] == pytest.approx(expected["nll"].value)
    assert len(document["correctness"]["groups"]) == 3
    reported = ("report", folder / "new.jsonl", "-c", folder / "m.safetensors", "--groups", "topic")
    page = json.loads(invoke(*reported, "-o", folder / "r.html", "--json"))
    assert {row["slice"] for row in page["slices"]["rows"]} == set(SUBJECTS)


def test_a_cluster_does_not_change_what_an_answer_states(folder):
    """With clusters, evaluations were about the more probable of right and wrong."""
    log = rhocal.read_log(folder / "new.jsonl")
    evaluation = rhocal.evaluate(log)
    assert evaluation["accuracy"].value == pytest.approx(log.labels.mean())
    document = json.loads(invoke("evaluate", folder / "new.jsonl", "--json"))["evaluation"]["uncalibrated"]
    assert document["values"]["accuracy"]["value"] == pytest.approx(log.labels.mean())
    assert document["values"]["ece"]["value"] == pytest.approx(rhocal.evaluate(log)["ece"].value)


def test_unknown_columns_and_other_files_are_named(folder):
    fitted = ("fit", folder / "old.jsonl", "-o", folder / "other.safetensors")
    assert "no column of numbers 'size'" in error(*fitted, "--features", "size")
    assert "there are confidence, length" in error(*fitted, "--features", "topic")
    assert "-m" in error(*fitted, "--features", "length", "-m", "platt")
    np.savez(folder / "logits.npz", logits=np.eye(4), labels=np.arange(4))
    assert "answers that are right or wrong" in error(
        "fit", folder / "logits.npz", "--features", "length", "-o", folder / "other.safetensors"
    )
    assert "answers that are right or wrong" in error("evaluate", folder / "logits.npz", "-c", folder / "m.safetensors")


def test_a_damaged_model_is_refused(folder):
    from safetensors import safe_open
    from safetensors.numpy import load_file, save_file

    with safe_open(folder / "m.safetensors", framework="numpy") as file:
        metadata = file.metadata()
    tensors = load_file(folder / "m.safetensors")
    card = json.loads(metadata["rhocal"])
    damages = [
        ({**tensors, "slope": np.array(9.0)}, card, "checksum"),
        ({**tensors, "offsets": tensors["offsets"][:1]}, card, "offsets"),
        ({**tensors, "weights": tensors["weights"] * np.nan}, card, "weights"),
        (tensors, {**card, "kind": "odds"}, "kind"),
        (tensors, {**card, "features": ["length", "length"]}, "features"),
        (tensors, {name: value for name, value in card.items() if name != "ridge"}, "ridge"),
    ]
    for numbers, text, what in damages:
        save_file(numbers, folder / "bad.safetensors", metadata={"rhocal": json.dumps(text)})
        with pytest.raises(FileError, match=what):
            rhocal.CorrectnessModel.load(folder / "bad.safetensors")
    with pytest.raises(FileError, match="a model of answers, not a calibrator"):
        rhocal.load(folder / "m.safetensors")


def test_features_that_do_not_help_are_a_warning():
    rng = np.random.default_rng(0)
    score = rng.normal(size=150)
    correct = rng.random(150) < 1 / (1 + np.exp(-score))
    noise = {f"x{k}": rng.normal(size=150) for k in range(25)}
    with pytest.warns(GuardWarning, match="do not help"):
        model = rhocal.CorrectnessModel(ridge=0).fit(score, correct, features=noise)
    assert model.held_out_["above"] > model.held_out_["standard_error"]
    with pytest.raises(InputError, match="clusters"):
        rhocal.CorrectnessModel().fit(score, correct, clusters=[1, 2])


def test_a_comparison_does_not_average_over_outcomes(folder):
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        with (folder / f"{name}.jsonl").open("w") as file:
            for k in range(80):
                scores, label = rng.normal(size=4).tolist(), int(rng.integers(4))
                file.write(json.dumps({"question_id": f"{name}{k}", "logprobs": scores, "answer": label}) + "\n")
    files = [folder / name for name in ("a.jsonl", "b.jsonl", "new.jsonl")]
    document = json.loads(invoke("compare", *files, "--methods", "identity", "--seeds", "1", "--json"))
    rows = {row["network"]: row["nll"] for row in document["rows"]}
    nll = {name: part["summary"][0]["nll"] for name, part in document["by_outcome"].items()}
    assert nll == pytest.approx(
        {"options and classes": (rows["a"] + rows["b"]) / 2, "answers that are right or wrong": rows["new"]}
    )
    alone = json.loads(invoke("compare", *files[:2], "--methods", "identity", "--seeds", "1", "--json"))
    assert alone["summary"][0]["nll"] == pytest.approx(nll["options and classes"])


def test_intervals_are_refused(folder):
    said = error("apply", folder / "m.safetensors", folder / "new.jsonl", "-o", folder / "interval.csv",
                 "--interval", "0.95", "--fitted-on", folder / "old.jsonl")  # fmt: skip
    assert "there are no intervals of models with --features or --subjects" in said


def test_subjects_are_written_alike_in_every_file(tmp_path):
    rng = np.random.default_rng(0)
    rows = [(site, rng.normal()) for site in ("01", "2", "x") for _ in range(60)]
    correct = [int(rng.random() < {"01": 0.9, "2": 0.2, "x": 0.5}[site]) for site, _ in rows]
    fitted, one, other = tmp_path / "fit.csv", tmp_path / "one.csv", tmp_path / "other.jsonl"
    lines = [f"{site},{score},{right}" for (site, score), right in zip(rows, correct, strict=True)]
    fitted.write_text("\n".join(["site,score,correct", *lines]), encoding="utf-8")
    one.write_text("site,score,correct\n01,0.0,1\n", encoding="utf-8")  # without the x all of them could be numbers
    other.write_text('{"site": 2, "score": 0.0, "correct": true}\n', encoding="utf-8")
    model, probs = tmp_path / "model.safetensors", []
    invoke("fit", fitted, "-o", model, "--subjects", "site")
    for path in (one, other):
        invoke("apply", model, path, "-o", tmp_path / "out.csv")  # a subject that was not seen is a warning
        probs.append(pd.read_csv(tmp_path / "out.csv")["probs_1"][0])
    assert probs[0] > 0.7
    assert probs[1] < 0.4


def test_a_threshold_is_one_of_the_probability_of_the_model(folder):
    question = ("decide", folder / "new.jsonl", "-c", folder / "m.safetensors", "--max-error", 0.3)
    decided = json.loads(invoke(*question, "--json"))
    log = rhocal.read_log(folder / "new.jsonl")
    columns = {"features": {"length": log.arrays["length"]}, "subjects": log.arrays["topic"]}
    right = rhocal.CorrectnessModel.load(folder / "m.safetensors").predict_proba(log.scores, **columns)[:, 1]
    accepted = right >= decided["thresholds"][1]
    assert 0 < accepted.sum() < 600
    assert abs(accepted.mean() - decided["certificate"]["coverage"]) < 0.08  # it is that of one answer of each question
    assert abs(1 - log.labels[accepted].mean() - decided["certificate"]["observed"]) < 0.08
    assert "is a model of answers, which has no policy" in error(*question, "-o", folder / "policy.safetensors")


def test_clusters_may_be_the_column_of_identifiers(tmp_path):
    rng = np.random.default_rng(0)
    p = rng.random(200).round(3)
    table = pd.DataFrame({"id": np.arange(200) // 4, "confidence": p, "correct": (rng.random(200) < p).astype(int)})
    table["length"] = rng.integers(5, 50, 200)
    shown = []
    for name, clusters in (("id", "id"), ("patient", "patient"), ("id", "question_id")):
        table.rename(columns={"id": name}).to_csv(tmp_path / "a.csv", index=False)
        shown.append(json.loads(invoke("evaluate", tmp_path / "a.csv", "--clusters", clusters, "--json")))
    assert shown[0] == shown[1] == shown[2]
    table.assign(question_id=np.arange(200)).to_csv(tmp_path / "a.csv", index=False)  # the one that is named counts
    assert json.loads(invoke("evaluate", tmp_path / "a.csv", "--clusters", "id", "--json")) == shown[0]
    assert "no array or column 'doc_id'" in error("evaluate", tmp_path / "a.csv", "--clusters", "doc_id")
