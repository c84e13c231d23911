"""Columns that are copied to another file keep what was written."""

import csv
import datetime as dt
import json
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

import rhocal
from helpers import synthetic
from rhocal.cli import app
from rhocal.data.formats.copies import written_texts

NAMES = ("red", "green", "blue")
Z, Y = synthetic(6, 3)
LARGE = [10000000000000000001, 10000000000000000002, 3, 4, 5, 6]
TEXTS = {
    "customer": ["00421", "7", "007", "12", "0", "1"],
    "number": ["421", "7", "-3", "0", "12", "9007199254740993"],
    "large": list(map(str, LARGE)),
    "version": ["2.0", "1.10", "3", "1e5", "1_000", "+5"],
    "mixed": ["2.0", "3.0", "4.0", "1.5", "0.1", "7.25"],
    "feature": ["1", "2.5", "3", "-0.25", "5", "6"],
    "padded": [" 1", "2 ", "3", "4", "5", "6"],
    "gaps": ["1", "", "3", "nan", "5", "6"],
    "id": ["1.0", "2.0", "3.0", "4.0", "5.0", "6.0"],
    "formula": ["'=1+1", "b", "c", "d", "e", "f"],
}
ZONE = dt.timezone(dt.timedelta(hours=2))
MOMENT = dt.datetime(2026, 1, 2, 5, 0, tzinfo=ZONE)
ARROW = {
    "nullable": pa.array([9007199254740993, None, 3, 4, 5, 6]),
    "unsigned": pa.array(LARGE, pa.uint64()),
    "small": pa.array([1, 2, 3, 4, 5, None], pa.int8()),
    "price": pa.array([Decimal("1.50"), None, *[Decimal("2.00")] * 4], pa.decimal128(10, 2)),
    "at": pa.array([MOMENT, None, *[MOMENT] * 4], pa.timestamp("us", tz="+02:00")),
    "exact": pa.array([1, 2, 3, 4, 5, None], pa.timestamp("ns")),
    "day": pa.array([dt.date(2026, 1, 2)] * 5 + [None]),
    "time": pa.array([dt.time(5, 0, 1)] * 5 + [None], pa.time64("ns")),
    "spent": pa.array([dt.timedelta(seconds=1.5)] * 5 + [None]),
    "bytes": pa.array([b"ab"] * 5 + [None]),
    "raw": pa.array([b"\xff\x00"] * 6),
    "level": pa.array(["low", "high", None] * 2).dictionary_encode(),
    "flag": pa.array([True, False, None] * 2),
    "half": pa.array([0.5, None] * 3),
    "ragged": pa.array([[1, 2], [3]] * 3),
    "record": pa.array([{"a": 1, "at": MOMENT}] * 6),
}
PLAIN = {
    "nullable": [9007199254740993, None, 3, 4, 5, 6],
    "unsigned": LARGE,
    "small": [1, 2, 3, 4, 5, None],
    "price": ["1.50", None, *["2.00"] * 4],
    "at": ["2026-01-02T05:00:00+02:00", None, *["2026-01-02T05:00:00+02:00"] * 4],
    "exact": [*[f"1970-01-01T00:00:00.00000000{k}" for k in range(1, 6)], None],
    "day": ["2026-01-02"] * 5 + [None],
    "time": ["05:00:01"] * 5 + [None],
    "spent": ["PT1.5S"] * 5 + [None],
    "bytes": ["ab"] * 5 + [None],
    "raw": ["ff00"] * 6,
    "level": ["low", "high", None] * 2,
    "flag": [True, False, None] * 2,
    "half": [0.5, None] * 3,
    "ragged": [[1, 2], [3]] * 3,
}


def invoke(*arguments):
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == 0, result.output + repr(result.exception)


def rows_of(path):
    """Columns as texts (CSV, TSV) or values (JSON Lines)."""
    with path.open(encoding="utf-8", newline="") as file:
        if path.suffix == ".jsonl":
            rows = [json.loads(line) for line in file]
        else:
            rows = list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ","))
    return {name: [row[name] for row in rows] for name in rows[0]}


def cell(value):
    """How CSV writes a value of JSON."""
    if value is None:
        return ""
    return json.dumps(value) if isinstance(value, list | dict) else str(value)


@pytest.fixture
def folder(tmp_path):
    z, y = synthetic(200, 3)
    rhocal.TemperatureScaling().fit(z, y, classes=NAMES).save(tmp_path / "cal.safetensors")
    scores = {name: Z[:, k] for k, name in enumerate(NAMES)}
    columns = {name: [repr(float(value)) for value in column] for name, column in scores.items()} | TEXTS
    with (tmp_path / "a.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    parquet.write_table(pa.table(scores | ARROW), tmp_path / "a.parquet")
    return tmp_path


def test_numbers_are_those_whose_text_is_theirs():
    assert written_texts(TEXTS["number"]).dtype == np.int64
    assert written_texts(TEXTS["mixed"]).dtype == np.float64
    assert written_texts(TEXTS["feature"]).tolist() == [1, 2.5, 3, -0.25, 5, 6]
    for name in set(TEXTS) - {"number", "mixed", "id", "feature"}:
        assert written_texts(TEXTS[name]).tolist() == TEXTS[name]


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".npz", ".parquet"])
def test_texts_are_kept(folder, ending):
    output = folder / f"o{ending}"
    invoke("apply", folder / "cal.safetensors", folder / "a.csv", "-o", output, "--keep-columns", "all")
    expected = TEXTS | {"formula": ["=1+1", *"bcdef"]}
    if ending in {".csv", ".tsv"}:
        found = rows_of(output)
        expected = TEXTS
    elif ending == ".npz":
        found = {name: array.tolist() for name, array in np.load(output).items()}
    else:
        found = rows_of(output) if ending == ".jsonl" else parquet.read_table(output).to_pydict()
    if ending in {".npz", ".parquet"}:  # columns of one type, where equal numbers are one number
        assert found.pop("feature") == list(map(float, TEXTS["feature"]))
        expected = {name: texts for name, texts in expected.items() if name != "feature"}
    for name, texts in expected.items():
        assert list(map(str, found[name])) == texts, name


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_columns_of_parquet_are_kept(folder, ending):
    output = folder / f"o{ending}"
    invoke("apply", folder / "cal.safetensors", folder / "a.parquet", "-o", output, "--keep-columns", "all")
    if ending == ".parquet":
        found, stored = parquet.read_table(output), parquet.read_table(folder / "a.parquet")
        for name in ARROW:
            assert found[name].equals(stored[name]), name
            assert found[name].type == stored[name].type
        return
    found = rows_of(output)
    for name, values in PLAIN.items():
        assert found[name] == (list(map(cell, values)) if ending == ".csv" else values), name
    record = found["record"][0]
    assert (json.loads(record) if ending == ".csv" else record) == {"a": 1, "at": "2026-01-02T05:00:00+02:00"}


@pytest.mark.parametrize("source", ["a.csv", "a.parquet"])
@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_a_split_keeps_columns(folder, source, ending):
    labeled = folder / f"b{source[1:]}"
    if source == "a.csv":
        lines = (folder / source).read_text(encoding="utf-8").splitlines()
        texts = ["labels", *(NAMES[k] for k in Y)]
        labeled.write_text("\n".join(map(",".join, zip(lines, texts, strict=True))) + "\n", encoding="utf-8")
    else:
        table = parquet.read_table(folder / source)
        parquet.write_table(table.append_column("labels", pa.array(np.array(NAMES)[Y])), labeled)
    invoke("split", labeled, "-o", folder / f"s{ending}", "--columns", ",".join(NAMES))
    order = np.random.default_rng(0).permutation(6)
    for half, rows in (("val", order[:3]), ("test", order[3:])):
        path = folder / f"s_{half}{ending}"
        found = parquet.read_table(path).to_pydict() if ending == ".parquet" else rows_of(path)
        if source == "a.csv":
            for name in set(TEXTS) - {"formula", "feature" if ending == ".parquet" else ""}:
                assert list(map(str, found[name])) == [TEXTS[name][row] for row in rows], name
        elif ending == ".parquet":
            for name, column in ARROW.items():
                assert parquet.read_table(path)[name].equals(pa.chunked_array([column.take(rows)])), name
        else:
            for name, values in PLAIN.items():
                expected = [values[row] for row in rows]
                assert found[name] == (list(map(cell, expected)) if ending == ".csv" else expected), name


def test_arrays_take_texts_where_numpy_has_no_type(folder):
    invoke("apply", folder / "cal.safetensors", folder / "a.parquet", "-o", folder / "o.npz", "--keep-columns", "all")
    with np.load(folder / "o.npz") as found:
        assert found["nullable"].tolist() == ["9007199254740993", "", "3", "4", "5", "6"]
        assert found["unsigned"].tolist() == LARGE
        assert found["at"][0] == "2026-01-02T05:00:00+02:00"
    invoke(
        "apply", folder / "cal.safetensors", folder / "a.parquet", "-o", folder / "o.jsonl", "--keep-columns", "spent"
    )


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_values_of_json_are_kept(folder, ending):
    others = {
        "key": [2**63, 1, 2, 3, 4, 5],
        "gap": [2**53 + 1, None, 2, 3, 4, 5],
        "any": [1, "a", 2.5, None, True, [1]],
        "whole": [1, 2.5, 3, 4, 5, 6],
        "huge": [10**20] * 6,
        "dict": [{"a": None}] * 6,
    }
    with (folder / "a.jsonl").open("w", encoding="utf-8") as file:
        for row in range(6):
            scores = dict(zip(NAMES, Z[row].tolist(), strict=True))
            file.write(json.dumps(scores | {name: values[row] for name, values in others.items()}) + "\n")
    output = folder / f"o{ending}"
    invoke("apply", folder / "cal.safetensors", folder / "a.jsonl", "-o", output, "--keep-columns", "all")
    if ending == ".parquet":
        found = parquet.read_table(output).to_pydict()
        assert found["gap"] == others["gap"]
        assert list(map(int, found["key"])) == others["key"]
        assert found["huge"] == [str(10**20)] * 6
        assert found["any"] == ["1", "a", "2.5", None, "True", "[1]"]
        return
    found = rows_of(output)
    for name, values in others.items():
        assert found[name] == (list(map(cell, values)) if ending == ".csv" else values), name


def test_answers_keep_columns(folder):
    """A model of answers reads lines as answers; other columns are copied all the same."""
    rng = np.random.default_rng(0)
    right = rng.random(60) < 0.6
    rows = [f"{0.3 + 0.4 * one + 0.2 * rng.random():.6f},{int(one)},{k:05d}" for k, one in enumerate(right)]
    (folder / "answers.csv").write_text("confidence,correct,customer\n" + "\n".join(rows) + "\n")
    invoke("fit", folder / "answers.csv", "-m", "platt", "-o", folder / "right.safetensors")
    arguments = ("apply", folder / "right.safetensors", folder / "answers.csv", "--keep-columns", "customer")
    invoke(*arguments, "-o", folder / "o.csv")
    assert rows_of(folder / "o.csv")["customer"] == [f"{k:05d}" for k in range(60)]


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet", ".npz", ".safetensors"])
def test_times_and_bytes_of_arrays_are_kept(tmp_path, ending):
    times, spans = np.array(["2026-01-01T00:00", "NaT"] * 3, "M8[ns]"), np.array([5] * 6, "m8[h]")
    np.savez(tmp_path / "a.npz", logits=Z, labels=Y, at=times, spent=spans, text=np.array([b"ab"] * 6))
    invoke("split", tmp_path / "a.npz", "-o", tmp_path / f"s{ending}")
    if ending in {".csv", ".jsonl"}:
        found = rows_of(tmp_path / f"s_val{ending}")
        assert set(found["at"]) == {"2026-01-01T00:00:00", "" if ending == ".csv" else None}
        assert found["spent"] == ["PT18000S"] * 3
        assert found["text"] == ["ab"] * 3


LISTS = {
    "emb": pa.array([[1, 2]] * 6, pa.list_(pa.int32())),
    "fixed": pa.array([[0.5, 1.5, float("nan")]] * 6, pa.list_(pa.float32(), 3)),
    "words": pa.array([["a", "b"]] * 6),
    "gaps": pa.array([[1, None]] * 6),
    "empty": pa.array([[]] * 6, pa.list_(pa.float64())),
    "nested": pa.array([[[1, 2], [3, 4]]] * 6),
}


@pytest.fixture(params=[2, 3])
def lists(request, tmp_path):
    """A Parquet file with two or three named classes, and lists of two and three."""
    names = ["logit_cat", "logit_dog", "logit_eel"][: request.param]
    labels = pa.array([name.removeprefix("logit_") for name in names] * (6 // len(names)))
    table = {name: pa.array(Z[:, k]) for k, name in enumerate(names)} | {"labels": labels} | LISTS
    parquet.write_table(pa.table(table), tmp_path / "a.parquet")
    return tmp_path, ",".join(names)


@pytest.mark.filterwarnings("ignore::rhocal.errors.BoundaryWarning")
def test_lists_stay_lists_in_parquet(lists):
    folder, names = lists
    invoke("split", folder / "a.parquet", "--columns", names, "-o", folder / "o.parquet")
    found = parquet.read_table(folder / "o_val.parquet")
    classes = [name.removeprefix("logit_") for name in names.split(",")]
    assert found.column_names == [*(f"logits_{one}" for one in classes), "labels", *LISTS]
    for name, column in LISTS.items():
        assert found[name].type == column.type
        assert str(found[name].to_pylist()) == str(column.to_pylist()[:3])
    invoke("split", folder / "a.parquet", "--columns", names, "--cal", "0.7", "-o", folder / "p.parquet")
    invoke("fit", folder / "p_val.parquet", "-m", "temperature", "-o", folder / "c.safetensors")


def test_lists_are_numbered_where_they_must_be_columns(lists):
    folder, names = lists
    for ending in (".jsonl", ".csv", ".npz"):
        invoke("split", folder / "a.parquet", "--columns", names, "-o", folder / f"o{ending}")
    found = rows_of(folder / "o_val.jsonl")
    for name, column in LISTS.items():
        assert str(found[name]) == str(column.to_pylist()[:3]), name
    found = rows_of(folder / "o_val.csv")
    assert [name for name in found if name.startswith(("emb", "fixed"))] == [
        *("emb_0", "emb_1", "fixed_0", "fixed_1", "fixed_2")
    ]
    assert found["emb_1"] == ["2"] * 3
    assert found["gaps"] == ["[1, null]"] * 3
    assert found["empty"] == ["[]"] * 3
    assert found["nested"] == ["[[1, 2], [3, 4]]"] * 3
    with np.load(folder / "o.npz") as arrays:
        assert arrays["emb_val"].dtype == np.int32
        assert arrays["fixed_val"].dtype == np.float32
        assert arrays["fixed_val"].shape == (3, 3)


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet", ".npz"])
@pytest.mark.parametrize("source", ["a.csv", "a.jsonl", "a.npz"])
def test_lists_of_other_files_are_kept(folder, source, ending):
    """Lists as long as there are classes, and shorter ones."""
    values = {"two": [[1, 2]] * 6, "three": [[1, 2.5, 3]] * 6}
    if source == "a.csv":
        rows = ["red,green,blue,two,three", *(f'{a},{b},{c},"[1,2]","[1, 2.5,3]"' for a, b, c in Z)]
        (folder / source).write_text("\n".join(rows) + "\n")
    elif source == "a.jsonl":
        rows = [
            dict(zip(NAMES, row, strict=True)) | {name: lists[0] for name, lists in values.items()}
            for row in Z.tolist()
        ]
        (folder / source).write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        np.savez(
            folder / source, logits=Z, classes=np.array(NAMES), **{name: np.array(v) for name, v in values.items()}
        )
    output = folder / f"o{ending}"
    invoke("apply", folder / "cal.safetensors", folder / source, "-o", output, "--keep-columns", "two,three")
    if ending == ".npz":
        found = {name: array.tolist() for name, array in np.load(output).items()}
    else:
        found = parquet.read_table(output).to_pydict() if ending == ".parquet" else rows_of(output)
    if source == "a.csv":
        assert (found["two"], found["three"]) == (["[1,2]"] * 6, ["[1, 2.5,3]"] * 6)
    elif ending == ".csv":
        assert [name for name in found if name.startswith("t")] == ["two_0", "two_1", "three_0", "three_1", "three_2"]
        assert found["three_1"] == ["2.5"] * 6
    else:
        assert {name: found[name] for name in values} == values


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_columns_of_one_name_are_an_error(folder, ending):
    table = pa.table(
        {name: Z[:, k] for k, name in enumerate(NAMES)} | {"emb": [[1.5, 2.5]] * 6, "emb_0": ["keep0"] * 6}
    )
    parquet.write_table(table.append_column("probs_red", pa.array([1.0] * 6)), folder / "a.parquet")

    def run(kept):
        arguments = ("apply", folder / "cal.safetensors", folder / "a.parquet", "-o", folder / f"o{ending}")
        result = CliRunner().invoke(app, [*map(str, arguments), "--keep-columns", kept, "--columns", ",".join(NAMES)])
        return result.exit_code, " ".join((result.output + str(result.exception)).split())

    code, message = run("emb,emb_0")
    if ending == ".csv":
        assert code
        assert "emb and emb_0 would both be written as column 'emb_0'" in message
        assert "or write .jsonl or .parquet" in message
        assert not (folder / "o.csv").exists()
    else:
        assert not code, message
    code, message = run("probs_red")
    assert code
    assert "probs and probs_red would both be written as column 'probs_red': rename one of them" in message


def test_a_split_refuses_arrays_of_one_name(tmp_path):
    np.savez(tmp_path / "a.npz", logits=Z, y=Y, labels=Y[::-1])
    np.savez(tmp_path / "b.npz", logits=Z, labels=Y, x=Y, x_val=np.zeros(2))
    for name, options, says in (("a", ["--labels-name", "y"], "'labels'"), ("b", [], "'x_val'")):
        arguments = ["split", str(tmp_path / f"{name}.npz"), *options, "-o", str(tmp_path / "o.npz")]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code
        assert f"would {'both ' if name == 'a' else ''}be written as {says}" in str(result.exception)
