"""The positive class of a binary problem: wherever labels and scores come in, and in what is written."""

import json

import numpy as np
import pytest

import rhocal
from helpers import card_of, fit_map, quick, run
from rhocal import metrics
from rhocal.calibrators import CALIBRATORS
from rhocal.data.predictions import Predictions
from rhocal.data.spec import InputSpec
from rhocal.errors import InputError

METHODS = [name for name in CALIBRATORS if name not in {"vector", "matrix"}]
"""Not vector and matrix scaling: they scale every column by itself, so that log-probabilities, which differ from margins by a
number for each row, are other inputs to them. ``svs``, ``sms`` and ``dirichlet`` remove that number first."""

OPTIONS = {"rho-norm-paper": {"grid": (2.0,), "n_steps": 4000}}
"""Forms differ in the path of a descent by steps, and agree where it ends."""


def unfitted(method):
    return quick(method, **OPTIONS.get(method, {}))


@pytest.fixture(scope="module")
def binary():
    """Margins of the class spam, over-confident and biased, and labels by name."""
    rng = np.random.default_rng(0)
    margin = 3 * rng.normal(size=600) + 1
    return margin, np.where(rng.random(600) < 1 / (1 + np.exp(-(margin - 1) / 2)), "spam", "ham")


def forms(margin):
    """The same scores as one column, as two, as margins and as probabilities; columns are ham and spam."""
    p = 1 / (1 + np.exp(-margin))
    return {
        "margins": (margin, "logits"),
        "one column": (margin[:, None], "logits"),
        "two columns": (np.stack([0 * margin, margin], axis=1), "logits"),
        "probabilities": (p, "probs"),
        "two probabilities": (np.stack([1 - p, p], axis=1), "probs"),
        "log-probabilities": (np.log(np.stack([1 - p, p], axis=1)), "log_probs"),
    }


SAME_ROWS = {"one column": "margins", "probabilities": "two probabilities"}
"""Forms whose rows are those of another form bit for bit, and so are their fits."""


def test_one_column_is_the_same_rows_as_its_other_form(binary):
    margin, labels = binary
    rows = {
        form: Predictions.from_arrays(scores, labels, spec=InputSpec(kind, positive="spam"))
        for form, (scores, kind) in forms(margin).items()
    }
    for form, same in SAME_ROWS.items():
        np.testing.assert_array_equal(rows[form].scores, rows[same].scores)
        np.testing.assert_array_equal(rows[form].labels, rows[same].labels)
        assert rows[form].classes.tolist() == rows[same].classes.tolist() == ["ham", "spam"]


@pytest.mark.parametrize("method", METHODS)
def test_every_form_of_scores_and_either_class_gives_the_same_fit(binary, method):
    margin, labels = binary
    results = {}
    for form, (scores, kind) in forms(margin).items():
        if form in SAME_ROWS and method != "temperature":
            continue
        calibrator = fit_map(unfitted(method), scores, labels, kind=kind, positive="spam")
        assert calibrator.positive_ == "spam"
        assert calibrator.classes_.tolist() == ["ham", "spam"]
        results[form] = calibrator.predict_proba(scores)
    ham = fit_map(unfitted(method), -margin, labels, positive="ham")
    assert ham.classes_.tolist() == ["spam", "ham"]
    results["the other class"] = ham.predict_proba(-margin)[:, ::-1]
    for form, probs in results.items():
        np.testing.assert_allclose(probs, results["margins"], atol=1e-6, err_msg=form)


def test_metrics_and_evaluate(binary):
    margin, labels = binary
    p, is_spam = 1 / (1 + np.exp(-margin)), labels == "spam"
    for name in ("ece", "nll", "brier", "binary_brier", "accuracy", "classwise_ece"):
        metric = metrics.METRICS[name]
        want = metric(p, is_spam)
        assert metric(p, labels, positive="spam") == pytest.approx(want)
        assert metric(1 - p, labels, positive="ham") == pytest.approx(want)
        assert metric(1 - p, is_spam.astype(int), positive=0) == pytest.approx(want)
        assert metric(1 - p, labels, positive="spam") != pytest.approx(want)
    evaluation = rhocal.evaluate(1 - p, labels, positive="ham")
    assert evaluation.verdict == rhocal.evaluate(p, is_spam).verdict


def test_a_positive_class_is_a_name_before_it_is_a_column():
    def classes(positive, labels, names=None):
        return Predictions.from_arrays(
            [1.0, -1.0], labels, spec=InputSpec(classes=names, positive=positive)
        ).classes.tolist()

    assert classes(1, [0, 1]) == classes("1", [0, 1]) == [0, 1]
    assert classes(0, [0, 1]) == classes("0", [0, 1]) == [1, 0]
    assert classes(-1, [-1, 1], [-1, 1]) == [1, -1]
    assert classes(1, [0, 1], [1, 0]) == [0, 1]
    assert classes(0, ["a", "b"]) == classes("0", ["a", "b"]) == ["b", "a"]
    two = Predictions.from_arrays([[1.0, -2.0]], [0], spec=InputSpec(positive=0))
    assert (two.classes.tolist(), two.positive) == ([0, 1], 0)  # two columns stay where they are
    with pytest.raises(InputError, match="one of the classes a and b, or a column, 0 or 1; got 'c'"):
        classes("c", ["a", "b"])
    with pytest.raises(InputError, match="labels are column numbers"):
        classes("a", [0, 1], ["a", "b"])
    with pytest.raises(InputError, match="positive is for two classes; there are 3"):
        Predictions.from_arrays([[1.0, 0.0, 2.0]], [0], spec=InputSpec(positive=0))


def test_commands(binary, tmp_path):
    margin, labels = binary
    np.savez(tmp_path / "ham.npz", logits=-margin, labels=labels)
    np.savez(tmp_path / "spam.npz", logits=margin, labels=labels)
    documents = []
    for name in ("ham", "spam"):
        source, cal = tmp_path / f"{name}.npz", tmp_path / f"{name}.safetensors"
        fitted = json.loads(run("fit", source, "-m", "beta", "--positive", name, "-o", cal, "--json").stdout)
        assert fitted["positive"] == card_of(cal)["positive"] == rhocal.load(cal).positive_ == name
        assert f"- positive class: {name}\n" in run("card", cal).stdout
        arguments = ("evaluate", source, "-c", cal, "--metrics", "ece,binary_brier", "--positive", name, "--json")
        documents.append(json.loads(run(*arguments).stdout))
        assert documents[-1]["positive"] == name
        page, document = tmp_path / "page.html", tmp_path / "page.json"
        run("report", source, "-c", cal, "--positive", name, "-o", page, "--json-output", document)
        assert json.loads(document.read_text(encoding="utf-8"))["data"]["positive"] == name
        assert "positive: " in page.read_text(encoding="utf-8")
        rows = run("compare", source, "--methods", "temperature", "--positive", name, "--seeds", 1, "--json").stdout
        documents[-1]["compare"] = json.loads(rows)["rows"][0]["nll"]
    ham, spam = documents
    assert ham["compare"] == pytest.approx(spam["compare"])
    for model in ("uncalibrated", "beta"):
        assert ham["values"][model] == pytest.approx(spam["values"][model], abs=1e-6)
    error = run("evaluate", source, "-c", cal, "--positive", "ham", code=2).stderr
    assert "the calibrator was fitted on ham, spam" in error
    error = run("fit", source, "--positive", "eggs", "-o", cal, code=2).stderr
    assert "positive must be one of the classes ham and spam" in error


def test_commands_give_a_single_column_to_the_class_that_it_is_named_after(tmp_path):
    rng = np.random.default_rng(5)
    p = rng.random(400)
    labels = np.where(rng.random(400) < p, "fraud", "legit")
    rows = "\n".join(f"{a:.17g},{b}" for a, b in zip(p, labels, strict=True))
    (tmp_path / "one.csv").write_text(f"p_fraud,labels\n{rows}\n")
    options = ["--kind", "probs"]
    line = run("evaluate", tmp_path / "one.csv", *options).stdout.replace("\n", " ")
    assert "positive class: fraud (by the name of column p_fraud)" in line
    for more in (["--logits-name", "p_fraud"], ["--columns", "p_fraud", "--classes", "fraud,legit"]):
        found = json.loads(run("evaluate", tmp_path / "one.csv", *options, *more, "--json").stdout)
        assert found["values"]["uncalibrated"]["accuracy"] > 0.7
    refused = run("evaluate", tmp_path / "one.csv", *options, "--positive", "legit", code=2)
    assert "named after class fraud, but the positive class is legit" in refused.stderr.replace("\n", " ")
    run("fit", tmp_path / "one.csv", *options, "-m", "temperature", "-o", tmp_path / "c.safetensors")
    assert rhocal.load(tmp_path / "c.safetensors").positive_ == "fraud"
    run("apply", tmp_path / "c.safetensors", tmp_path / "one.csv", "-o", tmp_path / "out.csv")
    written = np.genfromtxt(tmp_path / "out.csv", delimiter=",", names=True, dtype=None, encoding="utf-8")
    assert np.corrcoef(written["probs_fraud"], p)[0, 1] > 0.9
    run("split", tmp_path / "one.csv", "-o", tmp_path / "halves.npz")
    halves = json.loads(run("evaluate", tmp_path / "halves.npz", *options, "--json").stdout)
    assert halves["values"]["uncalibrated"]["accuracy"] > 0.7
