"""Tables through the command line: columns by name, other columns, separators, the standard input."""

import json

import numpy as np
import pandas as pd
import pytest

import rhocal
from helpers import run, synthetic
from rhocal.data.formats import open_file
from rhocal.data.formats.base import Names

NAMES = np.array(["zebra", "cat", "dog"])
Z, Y = synthetic(400, 3)
ACCURACY = float((Z.argmax(axis=1) == Y).mean())
TABLE = pd.DataFrame(Z, columns=NAMES).assign(labels=NAMES[Y])


def write(path, table, **options):
    if path.suffix == ".parquet":
        table.to_parquet(path)
    elif path.suffix == ".jsonl":
        table.to_json(path, orient="records", lines=True)
    else:
        table.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",", **options)
    return path


def accuracy(path, *options):
    result = run("evaluate", path, "--json", *options)
    return json.loads(result.stdout)["values"]["uncalibrated"]["accuracy"]


@pytest.fixture(params=[".csv", ".tsv", ".parquet", ".jsonl"])
def path(request, tmp_path):
    return tmp_path / f"table{request.param}"


def test_columns_belong_to_classes_by_name(path):
    assert accuracy(write(path, TABLE)) == pytest.approx(ACCURACY)
    assert accuracy(write(path, TABLE[["labels", "dog", "zebra", "cat"]])) == pytest.approx(ACCURACY)


@pytest.mark.parametrize("prefix", ["logit_", "p_"])
def test_columns_with_a_prefix(path, prefix):
    table = TABLE.rename(columns={name: prefix + name for name in NAMES})
    assert accuracy(write(path, table.assign(id=np.arange(400)))) == pytest.approx(ACCURACY)


def test_other_columns_are_never_classes(path):
    table = TABLE.assign(id=np.arange(400), weight=0.5, fold=Y % 2, note="a text")
    assert accuracy(write(path, table)) == pytest.approx(ACCURACY)
    assert "classes in columns zebra, cat, dog; other columns: id, weight, fold, note" in run("evaluate", path).stderr
    numbers = table.assign(labels=Y)
    message = run("evaluate", write(path, numbers), code=2).stderr
    assert "unclear which columns hold the classes" in message
    assert "--columns" in message
    assert message.count("\n") == 1
    assert accuracy(path, "--columns", "zebra,cat,dog") == pytest.approx(ACCURACY)
    assert "no column cow" in run("evaluate", path, "--columns", "zebra,cow", code=2).stderr


def test_a_column_of_unknown_meaning_is_an_error(path):
    message = run("evaluate", write(path, TABLE.assign(cow=Z[:, 0] / 3)), code=2).stderr
    assert "cow may be classes without a label" in message
    assert accuracy(path, "--classes", "cat,dog,zebra") == pytest.approx(ACCURACY)


def test_numbered_columns_beside_others(path):
    table = pd.DataFrame(Z, columns=["logit_0", "logit_1", "logit_2"]).assign(id=np.arange(400) / 7, labels=Y)
    assert accuracy(write(path, table[["id", "logit_2", "labels", "logit_0", "logit_1"]])) == pytest.approx(ACCURACY)


def test_labels_that_count_from_1(path):
    table = pd.DataFrame(Z, columns=["a", "b", "c"]).assign(labels=Y + 1)
    message = run("evaluate", write(path, table), code=2).stderr
    assert "count from 1" in message
    assert "--classes" in message
    assert accuracy(path, "--classes", "1,2,3") == pytest.approx(ACCURACY)


def test_labels_with_a_decimal_point(tmp_path):
    wide, labels = synthetic(600, 11)
    table = pd.DataFrame(wide, columns=[f"logit_{k}" for k in range(11)]).assign(labels=labels.astype(float))
    right = float((wide.argmax(axis=1) == labels).mean())
    assert accuracy(write(tmp_path / "x.csv", table)) == pytest.approx(right)


def test_classes_name_the_columns_of_an_array(tmp_path):
    np.savez(tmp_path / "x.npz", logits=Z, labels=NAMES[Y])
    assert accuracy(tmp_path / "x.npz", "--classes", "zebra,cat,dog") == pytest.approx(ACCURACY)
    assert "are not in classes" in run("evaluate", tmp_path / "x.npz", "--classes", "zebra,cat,cow", code=2).stderr


def test_semicolons_and_decimal_commas(tmp_path):
    TABLE.to_csv(tmp_path / "x.csv", index=False, sep=";", decimal=",")
    assert accuracy(tmp_path / "x.csv") == pytest.approx(ACCURACY)


def test_lists(tmp_path):
    table = pd.DataFrame({"logits": [row.tolist() for row in Z], "labels": Y, "tokens": [[1, 2]] * 400, "id": "a"})
    for ending in (".parquet", ".jsonl", ".csv"):
        assert accuracy(write(tmp_path / f"x{ending}", table)) == pytest.approx(ACCURACY)


def test_weights_and_groups_by_name(path):
    weight = np.where(np.arange(400) < 100, 1.0, 0.0)
    table = TABLE.assign(importance=weight + 0.0, site=np.where(Y == 0, "north", "south"))
    write(path, table)
    expected = float((Z.argmax(axis=1) == Y)[:100].mean())
    assert accuracy(path, "--weights", "importance") == pytest.approx(expected)
    text = run("evaluate", path, "--weights", "importance", "--groups", "site").stdout
    assert "north" in text
    missing = run("evaluate", path, "--columns", "zebra,cat,dog", "--weights", "mass", code=2)
    assert "no array or column 'mass'" in missing.stderr


def test_weights_block_by_block(tmp_path):
    weight = np.where(np.arange(400) < 100, 1.0, 0.0)
    path = write(tmp_path / "x.parquet", TABLE.assign(importance=weight))
    expected = float((Z.argmax(axis=1) == Y)[:100].mean())
    assert accuracy(path, "--weights", "importance", "--stream") == pytest.approx(expected)
    np.savez(tmp_path / "x.npz", logits=Z, labels=Y, importance=weight)
    assert accuracy(tmp_path / "x.npz", "--weights", "importance") == pytest.approx(expected)
    assert accuracy(tmp_path / "x.npz", "--weights", "importance", "--stream") == pytest.approx(expected)


def test_a_calibrator_meets_columns_in_another_order(path):
    calibrator = path.with_name("c.safetensors")
    run("fit", write(path, TABLE), "-m", "vector", "-o", calibrator)
    run("apply", calibrator, path, "-o", path.with_name("a.npz"))
    other = TABLE[["dog", "labels", "cat", "zebra"]]
    run("apply", calibrator, write(path, other), "-o", path.with_name("b.npz"))
    first, second = (np.load(path.with_name(f"{name}.npz")) for name in "ab")
    np.testing.assert_allclose(first["probs"], second["probs"])
    renamed = TABLE.drop(columns="labels").rename(columns={"zebra": "cow"})
    message = run("apply", calibrator, write(path, renamed), "-o", path.with_name("d.npz"), code=2).stderr
    assert "no column zebra for a class of that name; the columns are cow, cat, dog" in message


@pytest.mark.parametrize("output", [".npz", ".csv", ".tsv", ".jsonl", ".parquet", ".safetensors"])
@pytest.mark.parametrize("labels", [NAMES[Y], Y], ids=["names", "numbers"])
def test_every_output_can_be_read(tmp_path, output, labels):
    source = write(tmp_path / "x.csv", TABLE.assign(labels=labels))
    calibrator, out = tmp_path / "c.safetensors", tmp_path / f"out{output}"
    run("fit", source, "-m", "temperature", "-o", calibrator)
    run("apply", calibrator, source, "-o", out)
    assert accuracy(out, "--kind", "probs", "--logits-name", "probs") == pytest.approx(ACCURACY)


@pytest.mark.parametrize("ending", [".csv", ".jsonl"])
def test_standard_input(tmp_path, ending):
    path = write(tmp_path / f"x{ending}", TABLE)
    text = path.read_text(encoding="utf-8")
    result = run("evaluate", "-", "--json", stdin=text)
    assert json.loads(result.stdout)["values"]["uncalibrated"]["accuracy"] == pytest.approx(ACCURACY)
    run("compare", "-", "--methods", "temperature", "--seeds", "1", stdin=text)


@pytest.mark.parametrize("output", [".npz", ".safetensors"])
@pytest.mark.parametrize("source", [".csv", ".parquet", ".jsonl"])
def test_split_keeps_every_column(tmp_path, source, output):
    table = TABLE.assign(
        site=np.where(Y == 0, "north", "süd"), id=np.arange(400), tokens=[[1] * (k % 3) for k in range(400)]
    )
    path, out = write(tmp_path / f"x{source}", table), tmp_path / f"out{output}"
    run("split", path, "-o", out)
    file = open_file(out, Names())
    for half in ("val", "test"):
        rows = file.arrays[f"id_{half}"][:]
        np.testing.assert_allclose(file.arrays[f"logits_{half}"][:], Z[rows])
        for name in ("labels", "site"):
            np.testing.assert_array_equal(file.arrays[f"{name}_{half}"][:], table[name].to_numpy(str)[rows])
        assert [json.loads(text) for text in file.arrays[f"tokens_{half}"][:]] == [[1] * (k % 3) for k in rows]
    expected = float((Z.argmax(axis=1) == Y)[file.arrays["id_test"][:]].mean())
    assert accuracy(out) == pytest.approx(expected)
    assert ".npz, .safetensors, .csv" in run("split", path, "-o", tmp_path / "out.npy", code=2).stderr


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_an_artifact_knows_the_columns_it_was_fitted_on(tmp_path, ending):
    """Labels are numbers of columns, so names of classes do not help: the order of the columns at the fit counts."""
    logits, labels = synthetic(300, 3, seed=5)
    logits[:, 0] *= 3
    frame = pd.DataFrame(logits, columns=["zebra", "cat", "dog"]).assign(labels=labels)
    write = {
        "csv": lambda table, path: table.to_csv(path, index=False),
        "parquet": lambda table, path: table.to_parquet(path),
    }
    write[ending](frame, tmp_path / f"a.{ending}")
    write[ending](frame[["dog", "labels", "zebra", "cat"]], tmp_path / f"b.{ending}")
    cal = tmp_path / "cal.safetensors"
    run("fit", tmp_path / f"a.{ending}", "-m", "vector", "-o", cal)
    for name in "ab":
        run("apply", cal, tmp_path / f"{name}.{ending}", "-o", tmp_path / f"{name}.npz")
    with np.load(tmp_path / "a.npz") as a, np.load(tmp_path / "b.npz") as b:
        np.testing.assert_allclose(a["probs"], b["probs"], atol=1e-12)
    loaded = rhocal.load(cal)
    reordered = loaded.predict_proba(frame[["dog", "zebra", "cat"]])
    np.testing.assert_allclose(reordered, loaded.predict_proba(logits), atol=1e-12)
