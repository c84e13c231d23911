"""A text among scores is named with its column and its line."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import rhocal
from helpers import run, synthetic
from rhocal.cli import app
from rhocal.errors import FileError, InputError

NAMES = ("red", "green", "blue")
Z, Y = synthetic(200, 3)
HEADER = "red,green,blue\n"
CASES = {
    "an underscore": (HEADER + "1_000,2,3\n4,5,6\n", "line 2 has '1_000'"),
    "underscores only": (HEADER + "1_000,2,3\n4_000,5,6\n", "line 2 has '1_000'"),
    "a decimal comma": (HEADER + '"12,5",2,3\n"1,5",5,6\n', "line 2 has '12,5'"),
    "a percentage": (HEADER + "1,2,3\n\n12.5%,5,6\n", "line 4 has '12.5%'"),
    "percentages": (HEADER + "1%,2%,3%\n4%,5%,6%\n", "line 2 has '1%'"),
    "words": (HEADER + "low,2,3\nhigh,5,6\n", "line 2 has 'low'"),
    "a gap": (HEADER + "1,2,3\n,5,6\n", "line 3 is empty"),
    "behind a note of two lines": ("note," + HEADER + '"a\nb",1,2,3\nc,x,5,6\n', "line 4 has 'x'"),
}


@pytest.fixture
def calibrator(tmp_path):
    rhocal.TemperatureScaling().fit(Z, Y, classes=NAMES).save(tmp_path / "cal.safetensors")
    return tmp_path / "cal.safetensors"


def error(*arguments):
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert isinstance(result.exception, FileError), result.output + repr(result.exception)
    return str(result.exception)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("options", [(), ("--columns", "red,green,blue")], ids=["of the fit", "stated"])
def test_lines_of_csv_are_named(calibrator, name, options):
    text, message = CASES[name]
    source = calibrator.with_name("u.csv")
    source.write_text(text)
    said = error("apply", calibrator, source, "-o", calibrator.with_name("x.csv"), *options)
    assert f"u.csv: column 'red' must hold numbers, but {message}" in said


@pytest.mark.parametrize(("value", "message"), [("12,5", "line 2 has '12,5'"), ("1_0", "line 2 has '1_0'")])
def test_lines_of_json_are_named(calibrator, value, message):
    source = calibrator.with_name("u.jsonl")
    rows = [{"red": "1.5", "green": 2, "blue": 3}, {"red": value, "green": 2, "blue": 3}]
    source.write_text("\n".join(map(json.dumps, rows)))
    assert message in error("apply", calibrator, source, "-o", calibrator.with_name("x.csv"))
    source.write_text("\n".join(map(json.dumps, rows[:1] * 2)))
    said = error("apply", calibrator, source, "-o", calibrator.with_name("x.csv"))
    assert "column 'red' must hold numbers, but line 1 has '1.5', a number that is stored as a text" in said


@pytest.mark.parametrize("options", [(), ("--stream",), ("--columns", "red,green,blue")])
def test_texts_in_parquet_are_named(calibrator, options):
    table = pd.DataFrame(Z, columns=NAMES).assign(red="12.5%")
    table.to_parquet(calibrator.with_name("u.parquet"))
    said = error("apply", calibrator, calibrator.with_name("u.parquet"), "-o", calibrator.with_name("x.npy"), *options)
    assert "u.parquet: column 'red' is not numbers, but" in said


def test_texts_beside_numbers_are_no_scores(calibrator):
    """Columns of numbers named as the classes are theirs, whatever texts are named so too."""
    table = pd.DataFrame(Z, columns=[f"logit_{name}" for name in NAMES]).assign(
        **dict.fromkeys([*NAMES, *(f"note_{name}" for name in NAMES)], "text")
    )
    table.to_csv(calibrator.with_name("u.csv"), index=False)
    result = CliRunner().invoke(
        app, ["apply", *map(str, (calibrator, calibrator.with_name("u.csv"))), "-o", str(calibrator.with_name("x.npz"))]
    )
    assert result.exit_code == 0, result.output + repr(result.exception)
    with np.load(calibrator.with_name("x.npz")) as found:
        assert found["probs"].shape == Z.shape


def test_rows_of_different_lengths_are_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"logits": [1, 2, 3], "labels": 0}\n{"logits": [1, 2], "labels": 0}\n', encoding="utf-8")
    assert "row 1 has 2 entries, row 0 has 3" in run("evaluate", path, code=2).stderr


def test_the_k_best_are_not_the_scores_of_every_class(tmp_path):
    best, places = np.log([[0.6, 0.2], [0.5, 0.4]]), np.array([[7, 2], [0, 9]])
    labels = np.array([7, 0])
    top = rhocal.TopK.from_arrays(best, places, n_classes=20)
    for refuse in (rhocal.compare, rhocal.measure):
        with pytest.raises(
            InputError, match=r"the scores of every class are needed; rhocal\.TopK holds those of the k best"
        ):
            refuse(top, labels)
    path = tmp_path / "top.npz"
    np.savez(path, top_log_probs=best, top_indices=places, n_classes=20, labels=labels)
    assert "holds the k best scores of each sample (top_log_probs)" in run("power", path, code=2).stderr
