"""Rows of comparisons over many files: resumed, on several processes, with methods that fail; and their ranking."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from helpers import run, synthetic
from rhocal.cli import app
from rhocal.evaluation.ranking import critical_difference, ranking, ranks, ratios
from rhocal.evaluation.rows import FAILED, Row, complete, read_rows, summary


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("campaign")
    for name, m in (("few", 4), ("many", 220)):
        logits, labels = synthetic(500, m, dtype=np.float32)
        np.savez(folder / f"{name}.npz", logits=logits, labels=labels)
    return folder


def cells(path):
    return {(row["network"], row["split"], row["method"]): row for row in read_rows(path)}


def test_a_method_without_a_result_is_a_row_that_says_why(files):
    output = files / "rows.csv"
    arguments = [*sorted(files.glob("*.npz")), "--methods", "temperature,matrix", "--seeds", "1", "-o", output]
    done = run("compare", *arguments)
    assert "not in the means" in done.stdout
    row = cells(output)["many", "seed 0", "matrix"]
    assert row["note"].startswith(FAILED)
    assert "220" in row["note"]
    assert "nll" not in row


def test_an_interrupted_comparison_goes_on(files):
    output = files / "resumed.csv"
    sources = sorted(files.glob("*.npz"))
    run("compare", *sources, "--methods", "temperature,field", "--seeds", "2", "-o", output)
    whole = output.read_text(encoding="utf-8")
    lines = whole.splitlines()
    with output.open("w", encoding="utf-8") as file:  # as if it had been stopped half way
        file.write("\n".join(lines[:4]) + "\n")
    kept = cells(output)
    run("compare", *sources, "--methods", "temperature,field", "--seeds", "2", "-o", output, "--resume")
    again = cells(output)
    assert {key: row["nll"] for key, row in again.items()} == {
        (row["network"], row["split"], row["method"]): float(row["nll"]) for row in csv.DictReader(lines)
    }
    assert all(again[key]["seconds"] == row["seconds"] for key, row in kept.items())  # not run again
    assert "name it with -o" in run("compare", *sources, "--resume", code=2).stderr


def test_two_processes_give_what_one_gives(files):
    found = []
    for jobs in ("1", "2"):
        done = run(
            "compare", *sorted(files.glob("*.npz")), "--methods", "temperature,rho-norm", "--seeds", "1", "--jobs", jobs,
            "--json",
        )  # fmt: skip
        rows = json.loads(done.stdout)["rows"]
        found.append({(row["network"], row["method"]): row["nll"] for row in rows})
    assert found[0] == found[1]


def rows_of(table):
    """Rows from {method: [NLL on each network]}."""
    return [
        Row(f"net {k}", "own", method, {"nll": value}, 1.0, 10, 10, note="" if np.isfinite(value) else FAILED)
        for method, values in table.items()
        for k, value in enumerate(values)
    ]


def test_ranks_by_hand():
    rows = rows_of({"temperature": [0.3, 0.5, 0.4], "field": [0.2, 0.5, 0.3], "vector": [0.4, 0.1, 0.2]})
    lines = {line["method"]: line for line in ranking(rows, "nll")}
    assert np.isclose(lines["field"]["mean_rank"], (1 + 2.5 + 2) / 3)
    assert np.isclose(lines["temperature"]["mean_rank"], (2 + 2.5 + 3) / 3)
    assert np.isclose(lines["field"]["win_rate"], 2.5 / 3)
    assert ranks(np.array([[3.0, 1.0, 2.0]]), lower=False).tolist() == [[1, 3, 2]]
    assert np.isclose(critical_difference(10, 30), 2.474, atol=0.003)  # Demšar 2006: q = 3.164 for ten methods


def test_networks_without_a_result_are_left_out_for_all():
    rows = rows_of({"temperature": [0.3, 0.5], "matrix": [np.nan, 0.4]})
    assert complete(rows) == ["net 1"]
    assert [line["mean"] for line in ranking(rows, "nll")] == [0.4, 0.5]
    assert summary([]) == []


def test_ratios_are_of_the_same_split():
    def row(split, method, nll):
        return Row("net", split, method, {"nll": nll}, 0.1, 10, 10)

    rows = [row("0", "temperature", 2.0), row("0", "auto", 1.0), row("1", "temperature", 1.0), row("1", "auto", 1.5)]
    rows += [row("2", "auto", 9.0), row("3", "temperature", 1.0), row("3", "auto", float("nan"))]
    assert ratios(rows, "auto")["net"].tolist() == [0.5, 1.5]


def test_the_processor_time_of_a_fit_is_kept(files):
    output = files / "times.csv"
    run("compare", files / "few.npz", "--methods", "rho-norm", "--seeds", "1", "-o", output)
    (row,) = read_rows(output)
    assert 0 < row["cpu_seconds"] < 60
    assert Row.from_flat(row).cpu_seconds == row["cpu_seconds"]


def test_files_of_earlier_versions_are_read(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(
        "network,split,method,nll,seconds,n_tune,n_test,note\nnet,own,temperature,0.5,0.1,30,40,\n", encoding="utf-8"
    )
    row = Row.from_flat(read_rows(path)[0])
    assert (row.n_calibration, row.n_test, row.values["nll"]) == (30, 40, 0.5)


def test_rows_are_kept_by_the_content_of_files(tmp_path):
    def compare(*files, resume=True):
        options = ["--methods", "temperature", "--seeds", "1", "-o", str(tmp_path / "rows.csv"), *["--resume"] * resume]
        result = CliRunner().invoke(app, ["compare", *map(str, files), *options])
        assert result.exit_code == 0, result.output
        return {key[0]: row for key, row in cells(tmp_path / "rows.csv").items()}

    paths = {name: tmp_path / name / "x.npz" for name in "abc"}
    for k, path in enumerate(paths.values()):
        path.parent.mkdir()
        logits, labels = synthetic(200, 3, seed=k)
        np.savez(path, logits=logits, labels=labels)
    first = compare(paths["a"], resume=False)
    both = compare(paths["a"], paths["b"])  # the same name: b is not hidden, and a is not run again
    assert set(both) == {"a/x", "b/x"}
    assert both["a/x"]["nll"] == first["x"]["nll"] != both["b/x"]["nll"]
    assert both["a/x"]["seconds"] == first["x"]["seconds"]
    assert compare(paths["b"], paths["a"])["b/x"]["seconds"] == both["b/x"]["seconds"]
    paths["c"].replace(paths["a"])  # replaced data
    replaced = compare(paths["a"], paths["b"])
    assert replaced["a/x"]["nll"] != both["a/x"]["nll"]
    assert replaced["b/x"]["seconds"] == both["b/x"]["seconds"]
    other = compare(paths["a"], paths["b"], resume=False)
    assert {name: row["nll"] for name, row in other.items()} == {name: row["nll"] for name, row in replaced.items()}


def test_ranks_of_ece_are_those_of_the_debiased_one():
    """The coarse method has the smaller ECE of the samples, because its floor is smaller."""
    plain = {"temperature": 0.012, "coarse": 0.004}
    debiased = {"temperature": 0.0, "coarse": 0.003}
    rows = [Row("net", "own", m, {"ece": plain[m]}, 1.0, 10, 10, ece_debiased=debiased[m]) for m in plain]
    assert [line["method"] for line in ranking(rows, "ece")] == ["temperature", "coarse"]
    older = [replace(rows[0], ece_debiased=float("nan")), rows[1]]
    assert [line["method"] for line in ranking(older, "ece")] == ["coarse", "temperature"]
