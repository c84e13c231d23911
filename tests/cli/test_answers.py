"""What users read: numbers that answer the question they belong to, remedies that help, and words that mean one thing."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import rhocal
from helpers import synthetic
from rhocal.cli import app, in_options
from rhocal.errors import BoundaryWarning, DecisionWarning, FewSamplesWarning, InputError, SuspiciousInputWarning


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


@pytest.fixture
def transactions(tmp_path):
    """A table of two classes: a score, an amount, percentages, labels."""
    rng = np.random.default_rng(0)
    is_fraud = rng.random(600) < 0.1
    score = 1 / (1 + np.exp(-rng.normal(3 * is_fraud - 1, 1)))
    table = pd.DataFrame(
        {
            "score": score, "amount": rng.lognormal(4, 1, 600).round(2), "margin": rng.normal(size=600),
            "percent": (100 * score).round(1), "low": 0.1 * score, "rest": 0.9 - 0.1 * score,
            "labels": np.where(is_fraud, "fraud", "legit"),
        }
    )  # fmt: skip
    table.to_csv(tmp_path / "cal.csv", index=False)
    return tmp_path / "cal.csv", table


def refusal(path, columns, kind="probs"):
    output = path.with_suffix(".safetensors")
    found = invoke("fit", path, "--columns", columns, "--kind", kind, "--positive", "fraud", "-o", output, code=1)
    assert not output.exists()
    return in_options(found.exception, app)


def test_logits_are_suggested_only_where_numbers_may_be_logits(transactions):
    path, table = transactions
    text = refusal(path, "amount")
    row = int((table["amount"] > 1.001).argmax())
    assert f"column amount has {table['amount'][row]:g} in row {row}, which is no probability" in text
    assert "Another column may hold the probabilities" in text
    assert "--kind" not in text
    assert "If these are percentages, divide them by 100" in refusal(path, "percent")
    assert "--kind" not in refusal(path, "percent")
    assert "Use --kind logits to use the numbers as logits, if they are logits" in refusal(path, "margin")
    table.rename(columns={"low": "fraud", "rest": "legit"}).to_csv(path, index=False)
    text = refusal(path, "fraud,legit")
    assert " sums to 0.9. If a column is missing, add it; otherwise divide each row by its sum" in text
    assert "--kind" not in text


def test_log_probabilities_are_shown_as_they_were_passed():
    with pytest.raises(InputError, match=r"has 0.5 in row 1, which is no log-probability: those are at most 0"):
        rhocal.TemperatureScaling().fit([[-0.7, -0.69], [0.5, -2.0]], [0, 1], kind="log_probs")


def test_a_single_column_of_the_other_class_is_answered_with_positive(transactions):
    path, _ = transactions
    with pytest.warns(SuspiciousInputWarning) as warned:
        invoke("fit", path, "--columns", "score", "--kind", "probs", "-o", path.with_suffix(".safetensors"))
    texts = [in_options(one.message, app) for one in warned if "of the predictions are right" in str(one.message)]
    assert len(texts) == 1
    assert "Use --positive to name the class of a single column" in texts[0]


def test_logits_that_look_like_probabilities_are_the_default_kind(transactions):
    path, _ = transactions
    with pytest.warns(SuspiciousInputWarning, match="used as logits, the default kind"):
        invoke("power", path, "--columns", "score", "--positive", "fraud")


def test_keeping_decisions_is_no_remedy_where_their_change_helps():
    """A classifier that was calibrated for balanced classes, where 3 % are positive: the changed decisions are right."""
    logits, labels = rhocal.demo_logits("cal", name="table")
    with pytest.warns(DecisionWarning, match="accuracy there goes from") as warned:
        rhocal.PlattScaling().fit(logits, labels)
    assert all("keep" not in str(one.message) for one in warned)


def test_swapped_arguments_and_one_hot_labels_are_recognized():
    logits, labels = rhocal.demo_logits("test")
    for scores, given in ((labels, logits), (logits, np.eye(10)[labels])):
        with pytest.raises(
            InputError, match=r"labels has shape \(5000, 10\).*swapped with the scores, or one-hot\?.*argmax\(1\)"
        ):
            rhocal.TemperatureScaling().fit(scores, given)


def test_apply_with_swapped_files_names_the_order(demo, tmp_path):
    arguments = ["apply", demo / "images.npz", demo / "cal.safetensors", "-o", tmp_path / "out.npz"]
    assert "the calibrator comes first: rhocal apply" in str(invoke(*arguments, code=1).exception)


@pytest.mark.parametrize(("n", "m"), [(8, 2), (30, 10)])
def test_auto_warns_of_few_samples(n, m):
    logits, labels = synthetic(n, m)
    warnings.filterwarnings("ignore", category=BoundaryWarning)
    with pytest.warns(FewSamplesWarning, match=f"auto is fitted on {n} samples"):
        rhocal.AutoCalibrator().fit(logits, labels)


def test_a_fit_without_errors_is_explained():
    with pytest.warns(BoundaryWarning, match="all calibration samples are predicted correctly .* use more samples"):
        rhocal.TemperatureScaling().fit(5 * np.eye(3)[[0, 1, 2, 0, 1, 2, 0, 1]], [0, 1, 2, 0, 1, 2, 0, 1])


def test_a_difference_of_ece_is_no_larger_than_the_ece(demo):
    """Debiased, a model that scores below its floor seems to be better by more than the error that there was."""
    rhocal.RhoNormScaling().fit(*rhocal.demo_logits("cal")).save(demo / "rho.safetensors")
    arguments = ["evaluate", demo / "images.npz", "-c", demo / "rho.safetensors"]
    document = json.loads(invoke(*arguments, "--json").stdout)
    ece = document["evaluation"]["uncalibrated"]["values"]["ece"]
    found = document["differences"]["rho-norm"]["ece"]
    assert found["low"] >= -ece["high"]
    assert found["value"] >= -ece["value"]
    text = " ".join(invoke(*arguments).stdout.split())
    assert f"ece {found['observed']:+.4f} observed, {found['value']:+.4f} [" in text
    assert "true ECE at most 0.005 with 95 % confidence, as chance adds about 0.012" in text


def test_a_fit_says_what_auto_compares_and_shows_no_mce(demo, tmp_path):
    with pytest.warns(DecisionWarning):
        text = invoke("fit", demo / "images.npz", "-o", tmp_path / "cal.safetensors").stdout
    assert text.startswith("auto chose cascade: on 5,000 held-out samples NLL")
    assert "auto compares methods by their NLL on held-out samples, not by ECE" in text
    assert "MCE" not in text


@pytest.fixture(scope="module")
def rare():
    """Probabilities of two classes where 3 % are positive: balanced, and calibrated."""
    rng = np.random.default_rng(5)
    logit = rng.normal(-4.2, 1.2, 8000)
    labels = (rng.random(8000) < 1 / (1 + np.exp(-logit))).astype(int)
    return 1 / (1 + np.exp(-(logit + 3))), 1 / (1 + np.exp(-logit)), labels


def test_of_two_classes_the_verdict_has_the_ece_of_the_positive_one(rare):
    balanced, _, labels = rare
    evaluation = rhocal.evaluate(balanced, labels)
    value = rhocal.metrics.ece(np.stack([1 - balanced, balanced], axis=1), labels)
    bins = np.minimum((balanced * 10).astype(int), 9)
    by_hand = sum(abs((labels - balanced)[bins == k].sum()) for k in range(10)) / len(labels)
    assert evaluation.verdict.startswith("class 1 gets too much probability: mean probability 2")
    assert f"(ECE of class 1 {by_hand:.3f}, floor " in evaluation.verdict
    assert abs(value - by_hand) > 0.05


def test_a_tolerance_that_is_wide_beside_the_prevalence_is_named(rare):
    _, calibrated, labels = rare
    evaluation = rhocal.evaluate(calibrated, labels)
    assert evaluation.state == "within"
    assert [
        note
        for note in evaluation.notes
        if "is wide for class 1, which is 3." in note and "try a tolerance of 0.00" in note
    ]
    assert not rhocal.evaluate(calibrated, labels, tolerance=0.005).notes


def test_methods_that_tie_in_ece_and_miss_a_class_are_named(rare):
    balanced, _, labels = rare
    comparison = rhocal.compare(balanced, labels, kind="probs", methods=["identity", "temperature", "platt"])
    tied = [name for name, d in comparison.to_best["ece"].items() if d.is_tied]
    note = next(text for text in comparison.notes if text.startswith("the ECE looks at the predicted class alone"))
    for name in tied:
        assert (f"{name}" in note) == (name != "platt") or name == "platt"
    assert "that of platt is 0.0" in note
    assert not [text for text in comparison.notes if "calibration is needed" in text or "not needed" in text]


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_a_split_keeps_the_kind_of_its_scores(transactions, suffix):
    path, _ = transactions
    data, cal = path.with_name(f"data{suffix}"), path.with_name("cal.safetensors")
    stated = ["--columns", "score", "--kind", "probs"]
    invoke("split", path, *stated, "-o", data)
    invoke("fit", data, "--positive", "fraud", "-m", "platt", "-o", cal)  # logits would be a SuspiciousInputWarning
    assert rhocal.load(cal).kind_ == "probs"
    for command in (
        ["power", data],
        ["evaluate", data],
        ["evaluate", data, "--stream"],
        ["compare", data, "--methods", "platt"],
    ):
        invoke(*command, "--positive", "fraud") if command[0] != "compare" else invoke(*command)
    with pytest.warns(SuspiciousInputWarning, match="used as logits"):
        invoke("power", data, "--positive", "fraud", "--kind", "logits")
    text = str(invoke("split", path, *stated, "-o", path.with_name("x.csv"), code=1).exception)
    assert text.startswith("--kind: .csv files do not keep it")


def test_labels_are_written_as_predicted_classes_are(tmp_path):
    logits, labels = synthetic(300, 3)
    names = np.array(["cat", "dog", "bee"])
    logits = logits.astype(np.float16)
    np.savez(tmp_path / "data.npz", logits=logits, labels=labels, classes=names)
    invoke("fit", tmp_path / "data.npz", "-m", "temperature", "-o", tmp_path / "cal.safetensors")
    for output in ("out.csv", "out.parquet"):
        invoke("apply", tmp_path / "cal.safetensors", tmp_path / "data.npz", "-o", tmp_path / output)
    for table in (pd.read_csv(tmp_path / "out.csv"), pd.read_parquet(tmp_path / "out.parquet")):
        assert table["labels"].tolist() == names[labels].tolist()
        assert (table["predicted"] == table["labels"]).mean() == (logits.argmax(axis=1) == labels).mean()
