"""Labels of every type as column numbers, from arrays and files, in memory and block by block."""

import json
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

import rhocal
from helpers import as_parquet, run, synthetic
from rhocal.data.labels.columns import label_columns
from rhocal.data.predictions import Predictions
from rhocal.data.spec import InputSpec
from rhocal.errors import InputError
from rhocal.evaluation.measure import measure

Z, Y = synthetic(600, 11)
ACCURACY = float((Z.argmax(axis=1) == Y).mean())
NUMBERS = [str(k) for k in range(11)]

WHOLE = {
    "int": Y,
    "float": Y.astype(float),
    "half": Y.astype(np.float16),
    "unsigned": Y.astype(np.uint8),
    "objects": Y.astype(object),
    "objects of floats": Y.astype(float).astype(object),
    "decimals": np.array([Decimal(int(y)) for y in Y]),
    "nullable": pd.array(Y, dtype="Int64"),
    "categories": pd.Categorical(Y),
}
TEXTS = {
    "digits": Y.astype(str),
    "bytes": Y.astype("S"),
    "decimal points": Y.astype(float).astype(str),
    "signs": np.array([f"{y:+d}" for y in Y]),
    "zeros in front": np.array([f"{y:02d}" for y in Y]),
    "spaces": np.array([f" {y}" for y in Y]),
    "names with numbers": np.array([f"c{y}" for y in Y]),
    "one is a number": np.where(Y == 3, "7", np.char.add("c", (Y % 10).astype(str))),
}


def columns(labels, classes=None):
    return Predictions.from_arrays(Z, labels, spec=InputSpec(classes=None if classes is None else np.asarray(classes)))


def accuracy(*arguments):
    return json.loads(run("evaluate", *arguments, "--json").stdout)["values"]["uncalibrated"]["accuracy"]


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers_of_every_type_are_column_numbers(name):
    data = columns(WHOLE[name])
    np.testing.assert_array_equal(data.labels, Y)
    few = Y < 3  # column numbers need not show every class
    np.testing.assert_array_equal(Predictions.from_arrays(Z[few], WHOLE[name][few]).labels, Y[few])


@pytest.mark.parametrize("name", TEXTS)
def test_texts_of_numbers_are_refused_with_the_remedy(name):
    with pytest.raises(InputError, match=r"unclear which column.*Pass classes="):
        columns(TEXTS[name])


@pytest.mark.parametrize("classes", [range(11), NUMBERS], ids=["numbers", "texts"])
@pytest.mark.parametrize("name", ["digits", "bytes"])
def test_the_remedy_works(name, classes):
    np.testing.assert_array_equal(columns(TEXTS[name], classes).labels, Y)
    np.testing.assert_array_equal(columns(TEXTS["decimal points"], range(11)).labels, Y)
    with pytest.raises(InputError, match="not in classes"):
        columns(np.where(Y == 4, "40", TEXTS["digits"]), classes)


def test_fractions_and_missing_labels_are_refused():
    for bad in (0.5, np.inf, 2.0**60):
        with pytest.raises(InputError, match="labels must be"):
            columns(np.where(np.arange(600) == 7, bad, Y))


def test_whole_numbers_beside_names_that_are_other_numbers():
    with pytest.raises(InputError, match="unclear whether a label is the name of a column or its number"):
        columns(Y, NUMBERS[::-1])
    np.testing.assert_array_equal(columns(Y, NUMBERS).labels, Y)
    np.testing.assert_array_equal(columns(Y, range(10, -1, -1)).labels, 10 - Y)


def test_names_that_are_one_number():
    frame = pd.DataFrame(Z[:, :3], columns=["1", "01", "2"])
    with pytest.raises(InputError, match="1, 01 are one name"):
        Predictions.from_arrays(frame, np.array(["1", "01", "2"])[Y % 3])


def files(folder, labels):
    np.savez(folder / "x.npz", logits=Z, labels=labels)
    as_parquet(folder / "x.parquet", Z, labels)
    rows = [{"logits": z, "labels": y} for z, y in zip(Z.tolist(), labels.tolist(), strict=True)]
    (folder / "x.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    return [["x.npz"], ["x.npz", "--stream"], ["x.parquet"], ["x.parquet", "--stream"], ["x.jsonl"]]


@pytest.mark.parametrize("name", ["digits", "decimal points", "names with numbers"])
def test_files_with_texts_of_numbers(tmp_path, name):
    forms = files(tmp_path, TEXTS[name])
    forms = forms if name == "digits" else [forms[1], forms[2]]  # a process each takes time
    for file, *how in forms:
        message = run("evaluate", tmp_path / file, *how, code=2).stderr
        assert "unclear which column" in message
        assert "Use --classes to name the label of each column" in message
    if name != "names with numbers":
        for file, *how in forms:
            assert accuracy(tmp_path / file, *how, "--classes", ",".join(NUMBERS)) == pytest.approx(ACCURACY)


def test_files_with_whole_numbers_as_floats(tmp_path):
    for file, *how in files(tmp_path, Y.astype(float)):
        assert accuracy(tmp_path / file, *how) == pytest.approx(ACCURACY)
    for file, *how in files(tmp_path, Y + 0.25):
        assert "continuous" in run("evaluate", tmp_path / file, *how, code=2).stderr
    table = pd.DataFrame(Z).assign(labels=Y.astype(float))
    table.to_csv(tmp_path / "x.csv", index=False)
    assert accuracy(tmp_path / "x.csv") == pytest.approx(ACCURACY)


def test_blocks_that_show_different_classes(tmp_path):
    labels = np.array(["a", "b", "c"])[Y % 3]
    three = Z[:, :3]
    as_parquet(tmp_path / "x.parquet", three, labels)
    assert accuracy(tmp_path / "x.parquet", "--stream") == pytest.approx(accuracy(tmp_path / "x.parquet"))
    part = labels.copy()
    part[300:][part[300:] == "c"] = "a"  # the second block shows two of three classes
    as_parquet(tmp_path / "x.parquet", three, part)
    assert accuracy(tmp_path / "x.parquet", "--stream") == pytest.approx(accuracy(tmp_path / "x.parquet"))
    labels[300:][labels[300:] == "c"] = "d"  # each block shows three classes, but not the same
    as_parquet(tmp_path / "x.parquet", three, labels)
    for how in ([], ["--stream"]):
        run("evaluate", tmp_path / "x.parquet", *how, code=2)
    blocks = [(three[rows], labels[rows]) for rows in (slice(300), slice(300, 600))]
    with pytest.raises(InputError, match="different classes"):
        measure(rhocal.stream(iter(blocks)))


def test_names_that_are_numbers_survive_every_output(tmp_path):
    names = np.array(["7", "3", "12"])
    three, labels = synthetic(200, 3)
    np.savez(tmp_path / "x.npz", logits=three, labels=names[labels], classes=names)
    right = float((three.argmax(axis=1) == labels).mean())
    run("fit", tmp_path / "x.npz", "-m", "temperature", "-o", tmp_path / "c.safetensors")
    for ending in (".npz", ".safetensors", ".csv", ".parquet", ".jsonl"):
        run("apply", tmp_path / "c.safetensors", tmp_path / "x.npz", "-o", tmp_path / f"out{ending}")
        options = ("--kind", "probs", "--logits-name", "probs")
        assert accuracy(tmp_path / f"out{ending}", *options) == pytest.approx(right), ending


def test_a_label_that_is_no_name_shows_that_labels_are_column_numbers():
    names = np.array(["001", "002", "003"])
    codes, kept = label_columns(np.array([0, 1, 2, 0]), names, 3)
    np.testing.assert_array_equal(codes, [0, 1, 2, 0])
    assert kept is names
    with pytest.raises(InputError, match="unclear whether a label is the name of a column or its number"):
        label_columns(np.array([1, 2, 1, 2]), names, 3)


def test_missing_numbers_and_truth_values_for_many_columns():
    with pytest.raises(InputError, match="labels hold missing values"):
        label_columns(np.array([0.0, np.nan, 1.0]), None, 2)
    with pytest.raises(InputError, match="labels are true or false, but there are 3 columns"):
        label_columns(np.array([True, False]), None, 3)
    assert label_columns(np.array([True, False]), None, 2)[0].tolist() == [1, 0]
