"""Columns that are no classes are never taken for classes: ids, pandas' index, features, and what our own outputs hold."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import rhocal
from helpers import synthetic
from rhocal.cli import app
from rhocal.data.files import read
from rhocal.data.predictions import Predictions
from rhocal.errors import FileError, InputError, RhocalError

Z, Y = synthetic(120, 3)
NAMES = np.array(["zebra", "cat", "dog"])
N = np.arange(120)
RIGHT = float((Z.argmax(axis=1) == Y).mean())
TABLES = {
    "names, labels by name": (NAMES, NAMES[Y]),
    "names, labels by number": (NAMES, Y),
    "numbers": (["0", "1", "2"], Y),
    "logit_0": ([f"logit_{k}" for k in range(3)], Y),
    "logits_cat": ([f"logits_{name}" for name in NAMES], NAMES[Y]),
    "logits_cat, labels by number": ([f"logits_{name}" for name in NAMES], Y),
    "p_cat": ([f"p_{name}" for name in NAMES], Y),
    "V1": (["V1", "V2", "V3"], Y + 1),
    "P(y=0)": ([f"P(y={k})" for k in range(3)], Y),
}
FOREIGN = {
    "": N, "Unnamed: 0": N, "__index_level_0__": N, "level_0": N, "id": N, "ID": N * 1.5, "sample_id": N / 7, "fold": N % 2,
    "confidence": N / 120, "predicted": Y, "correct": Y % 2, "weight": N / 60, "target": Y, "y": Y, "age": N / 2, "cow": -Y,
    "entropy": N / 50, "logit_max": N / 9, "logits_margin": N / 8, "feature_0": N / 7, "timestamp": N * 1e5 + 0.5,
    "nll": Z[:, 0], "masked": np.full(120, -1e4),
}  # fmt: skip


def write(path, table):
    if path.suffix == ".csv":
        table.to_csv(path, index=False)
    elif path.suffix == ".jsonl":
        table.to_json(path, orient="records", lines=True)
    else:
        table.to_parquet(path, index=False)
    return path


@pytest.mark.parametrize("form", ["P(y={})", "{}_score", "p_{}"])
def test_numbered_columns_beside_an_id(tmp_path, form):
    columns = [form.format(k) for k in range(3)]
    table = pd.DataFrame(Z, columns=columns).assign(id=N, labels=Y)
    assert list(read(write(tmp_path / "x.csv", table)).file.columns) == columns


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".jsonl"])
@pytest.mark.parametrize("kind", TABLES)
def test_one_foreign_column(tmp_path, kind, ending):
    columns, labels = TABLES[kind]
    n_read = 0
    for name, values in FOREIGN.items():
        for place in (0, 2, 4):
            table = pd.DataFrame(Z, columns=columns).assign(labels=labels)
            table.insert(place, name, values)
            try:
                found = read(write(tmp_path / f"x{ending}", table)).file.columns
            except FileError as error:
                assert error.argument == "columns"  # noqa: PT017 - refused with the remedy, or right
            else:
                assert set(found) == set(columns), name
                n_read += 1
    assert n_read >= 12  # pandas' index at least


def test_features_beside_classes(tmp_path):
    table = pd.DataFrame(Z, columns=NAMES).assign(labels=Y, x1=Z[:, 0], x2=Z[:, 1], x3=Z[:, 2])
    with pytest.raises(FileError, match="unclear which columns"):
        read(write(tmp_path / "x.csv", table))


def test_labels_from_1_with_one_column_too_many(tmp_path):
    table = pd.DataFrame(Z, columns=NAMES).assign(labels=Y + 1, entropy=N / 50)
    with pytest.raises(FileError, match="count from 1"):
        read(write(tmp_path / "x.csv", table))


@pytest.mark.parametrize("labels", [Y, NAMES[Y]], ids=["numbers", "names"])
@pytest.mark.parametrize("name", ["id", "Unnamed: 0", "confidence", "predicted"])
def test_data_frames(name, labels):
    frame = pd.DataFrame(Z, columns=NAMES).assign(**{name: N})
    with pytest.raises(InputError, match=f"columns {name} beside those of classes"):
        Predictions.from_arrays(frame, labels)
    with pytest.raises(InputError, match="beside those of classes"):
        rhocal.TemperatureScaling().fit(frame, labels)
    assert (
        Predictions.from_arrays(frame, np.append(NAMES, name)[np.r_[Y[:-1], 3]]).n_classes == 4
    )  # a class of that name


def run_in_process(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.stdout


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".jsonl", ".tsv"])
@pytest.mark.parametrize("labels", [Y, NAMES[Y]], ids=["numbers", "names"])
def test_our_own_outputs_are_read_again(tmp_path, ending, labels):
    classes = {} if labels is Y else {"classes": NAMES}
    np.savez(tmp_path / "x.npz", logits=Z, labels=labels, **classes)
    run_in_process("fit", tmp_path / "x.npz", "-m", "temperature", "-o", tmp_path / "c.safetensors")
    for write_what, kind in (("probs", "probs"), ("logits", "logits")):
        run_in_process(
            "apply",
            tmp_path / "c.safetensors",
            tmp_path / "x.npz",
            "-o",
            tmp_path / f"o{ending}",
            "--write",
            write_what,
        )
        options = ("--logits-name", write_what, "--kind", kind, "--json")
        document = json.loads(run_in_process("evaluate", tmp_path / f"o{ending}", *options))
        assert document["values"]["uncalibrated"]["accuracy"] == pytest.approx(RIGHT)


def test_parts_with_columns_in_another_order(tmp_path):
    table = pd.DataFrame(Z, columns=NAMES).assign(labels=NAMES[Y], id=N)
    table[:60].to_parquet(tmp_path / "a.parquet")
    table[60:][["dog", "labels", "zebra", "id", "cat"]].to_parquet(tmp_path / "b.parquet")
    assert rhocal.measure(rhocal.stream(tmp_path), metrics=["accuracy"])["accuracy"] == pytest.approx(RIGHT)
    table[60:].assign(cow=Z[60:, 0]).to_parquet(tmp_path / "b.parquet")
    with pytest.raises(RhocalError, match=r"b\.parquet: has columns cow"):
        rhocal.stream(tmp_path)


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("labels", [Y, NAMES[Y]], ids=["numbers", "names"])
def test_split_writes_tables(tmp_path, ending, labels):
    table = pd.DataFrame(Z, columns=NAMES).assign(labels=labels, note=[f"n{k}" for k in N])
    source = write(tmp_path / "x.csv", table)
    run_in_process("split", source, "-o", tmp_path / f"y{ending}", "--seed", 3, "--columns", ",".join(NAMES))
    n_right = n_rows = 0
    for half in ("val", "test"):
        document = json.loads(run_in_process("evaluate", tmp_path / f"y_{half}{ending}", "--json"))
        n_rows += document["n_samples"]
        n_right += document["values"]["uncalibrated"]["accuracy"] * document["n_samples"]
        assert "note" in read(tmp_path / f"y_{half}{ending}").file.arrays
    assert n_rows == 120
    assert n_right == pytest.approx(RIGHT * 120)


def test_the_column_of_a_class_of_the_fit_that_is_missing_is_named(tmp_path):
    z, y = synthetic(60, 3)
    names = np.array(["cat", "dog", "emu"])
    fitted = rhocal.TemperatureScaling().fit(pd.DataFrame(z, columns=names), names[y])
    fitted.save(tmp_path / "cal.safetensors")
    pd.DataFrame(z[:, :2], columns=names[:2]).assign(id=np.arange(60)).to_csv(tmp_path / "new.csv", index=False)
    result = CliRunner().invoke(
        app, ["apply", str(tmp_path / "cal.safetensors"), str(tmp_path / "new.csv"), "-o", str(tmp_path / "out.csv")]
    )
    assert isinstance(result.exception, FileError)
    assert "no column emu for a class of that name; the columns are cat, dog, id" in str(result.exception)
