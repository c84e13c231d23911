"""Advice that can be followed, and values that people write as they know them."""

import json

import numpy as np
import pytest

import rhocal
from helpers import run, synthetic
from rhocal.errors import FileError, InputError
from rhocal.metrics.inference import paired_differences


def test_options_are_written_as_in_python_or_json(tmp_path):
    logits, labels = synthetic(200, 3)
    np.savez(tmp_path / "d.npz", logits=logits, labels=labels)
    for value in ("True", "true"):
        run(
            "fit",
            tmp_path / "d.npz",
            "-O",
            f"exchangeable={value}",
            "-O",
            "n_folds=2",
            "-o",
            tmp_path / "c.safetensors",
        )
        assert rhocal.load(tmp_path / "c.safetensors").exchangeable is True


@pytest.mark.parametrize("names", [["-1", "0", "1"], ["nan", "b", "c"], ["0.5x", "1.5", "2.5"], ["1e3", "1e4", "x"]])
def test_names_of_columns_may_look_like_numbers(tmp_path, names):
    logits, labels = synthetic(60, 3)
    rows = [",".join([*(f"{z:.4f}" for z in row), names[k]]) for row, k in zip(logits, labels, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join([",".join([*names, "label"]), *rows]))
    found = json.loads(run("evaluate", tmp_path / "t.csv", "--labels-name", "label", "--json").stdout)
    assert found["values"]["uncalibrated"]["accuracy"] == pytest.approx((logits.argmax(1) == labels).mean())
    refused = run("evaluate", tmp_path / "t.csv", code=2).stderr
    assert "--labels-name" in refused
    (tmp_path / "headless.csv").write_text("\n".join(rows))
    assert "must hold column names" in run("evaluate", tmp_path / "headless.csv", code=2).stderr


def test_arguments_of_evaluate_are_checked(tmp_path):
    logits, labels = synthetic(50, 3)
    with pytest.raises(InputError, match="n_replicates must be a whole number, at least 1; got 0"):
        rhocal.evaluate(logits, labels, kind="logits", n_replicates=0)
    one, several = (rhocal.evaluate(logits, labels, kind="logits", metrics=names) for names in ("nll", ["nll"]))
    assert one.values == several.values
    assert list(rhocal.measure(logits, labels, metrics="ece")) == ["ece"]
    assert list(paired_differences(logits, logits, labels, kind="logits", metrics="ece")) == ["ece"]
    with pytest.raises(FileError, match="a folder, not a"):
        rhocal.load(tmp_path)


def test_a_usual_name_of_labels_is_advised(tmp_path):
    """The advice can be followed as it stands: the rest of the table is then unambiguous."""
    rng = np.random.default_rng(0)
    rows = [f"{p:.3f},{int(rng.random() < p)}" for p in rng.random(50)]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["score,y_true", *rows]))
    assert "Use --labels-name y_true to read the labels there" in run("evaluate", path, code=2).stderr
    assert "50 samples" in run("evaluate", path, "--labels-name", "y_true", "--kind", "probs").stdout
    for damaged, said in (
        ("0.5,", "labels are empty in 1 row, the first is row 2"),
        (",1", "column 'score' must hold numbers, but line 4 is empty"),
    ):
        path.write_text("\n".join(["score,y_true", *rows[:2], damaged, *rows[2:]]))
        assert said in run("evaluate", path, "--labels-name", "y_true", "--kind", "probs", code=2).stderr


def test_a_profile_in_the_place_of_something_else_is_named(tmp_path):
    for name, n_classes in (("few", 3), ("many", 150)):
        logits, labels = synthetic(400, n_classes)
        np.savez(tmp_path / f"{name}.npz", logits=logits, labels=labels)
        run("profile", tmp_path / f"{name}.npz", "-o", tmp_path / f"{name}.safetensors")
    refused = run("evaluate", tmp_path / "few.npz", "-c", tmp_path / "few.safetensors", code=2).stderr
    assert "this is a profile, not a calibrator. Fit a calibrator on it" in refused
    assert "this is a profile, without logits" in run("evaluate", tmp_path / "many.safetensors", code=2).stderr


def test_a_folder_that_is_missing_is_noticed_before_the_work(tmp_path, monkeypatch):
    logits, labels = synthetic(60, 3)
    np.savez(tmp_path / "d.npz", logits=logits, labels=labels)
    output = tmp_path / "none" / "c.safetensors"
    monkeypatch.setattr("rhocal.calibrators.fitting.fit", None)
    assert "the folder" in run("fit", tmp_path / "d.npz", "-o", output, code=2).stderr
    monkeypatch.setattr("rhocal.reporting.document.build_document", None)
    assert "does not exist" in run("report", tmp_path / "d.npz", "-o", output.with_suffix(".html"), code=2).stderr


def test_missing_values_and_columns_too_many_are_named():
    pd = pytest.importorskip("pandas")
    logits, labels = synthetic(200, 3)
    frame, names = pd.DataFrame(logits, columns=list("abc")), np.array(list("abc"))[labels]
    cal = rhocal.TemperatureScaling().fit(frame, names)
    with pytest.raises(InputError, match=r"1 column that the calibrator was not fitted with: extra\. Leave"):
        cal.predict_proba(frame.assign(extra=1.0))
    nullable = frame.astype("Float64")
    nullable.iloc[5, 1] = pd.NA
    with pytest.raises(InputError, match=r"row 5, a missing value \(<NA>\)\. Leave those rows out"):
        cal.predict_proba(nullable)
