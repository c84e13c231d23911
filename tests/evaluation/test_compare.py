"""Comparisons: two passes over a file larger than memory give the rows of a comparison in memory."""

import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rhocal
from helpers import run, synthetic, uneven
from rhocal.calibrators import calibrator
from rhocal.calibrators.fitting import SUBSAMPLED
from rhocal.dask import DaskExecutor
from rhocal.data import sampling
from rhocal.data.formats import base
from rhocal.data.predictions import Predictions
from rhocal.data.sampling import Half
from rhocal.data.sources import as_source
from rhocal.errors import InputError
from rhocal.evaluation import compare as comparison
from rhocal.evaluation.compare import OWN, compare, random_split, splits
from rhocal.evaluation.rows import FAILED, read_rows, summary

SCALES = ("identity", "temperature", "rho-norm", "field")
OTHERS = ("vector", "histogram-binning")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(base, "BLOCK_ENTRIES", 20_000)
    monkeypatch.setattr(sampling, "PILOT_ENTRIES", 40_000)


@pytest.fixture(scope="module")
def data():
    return uneven(1501, 90, np.float16)


@pytest.fixture(scope="module")
def file(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("compare") / "z.npz"
    np.savez(path, logits=data[0], labels=data[1])
    return path


def same_rows(streamed, whole, rtol=2e-4):
    """To the accuracy of profiles; metrics of rank to that of their sketch."""
    assert [(row.split, row.method, row.n_calibration, row.n_test) for row in streamed] == [
        (row.split, row.method, row.n_calibration, row.n_test) for row in whole
    ]
    for mine, theirs in zip(streamed, whole, strict=True):
        assert mine.values["accuracy"] == theirs.values["accuracy"]
        for name, value in theirs.values.items():
            bound = 5e-3 if name == "adaptive_ece" else 1e-5
            assert mine.values[name] == pytest.approx(value, rel=rtol, abs=bound), (mine.method, name)
        assert mine.ece_floor == pytest.approx(theirs.ece_floor, rel=rtol)
        assert mine.note == theirs.note


def compared(methods, source, test=None, n_seeds=5):
    work = [(split, {name: calibrator(name) for name in methods}) for split in splits(source, test, n_seeds=n_seeds)]
    return list(compare("z", work))


def resident(data):
    return as_source(*data)


def test_halves_are_those_of_a_comparison_in_memory():
    whole = Predictions.from_arrays(np.arange(21.0).reshape(-1, 1) * [1, -1], np.zeros(21, int))
    split = random_split(whole, 3)
    sizes = (5, 9, 7)
    for test, part in ((False, split.calibration), (True, split.test)):
        rows = np.flatnonzero(np.concatenate([Half(sizes, 3, test=test)(k) for k in range(3)]))
        assert sorted(part.predictions.logits[:, 0]) == rows.tolist()


def test_two_passes_give_the_rows_of_a_comparison_in_memory(data, file):
    stream = rhocal.stream(file)
    assert len(stream.blocks) > 5
    rows = compared([*SCALES, *OTHERS], stream, n_seeds=2)
    assert stream.bytes_read == 2 * data[0].nbytes  # six methods, two seeds
    same_rows(rows, compared([*SCALES, *OTHERS], resident(data), n_seeds=2))


@pytest.mark.parametrize("is_on_workers", [False, True])
def test_streams_of_few_rows_are_compared_in_memory(is_on_workers):
    """The halves are the same rows in the same order, so that fits and values are those in memory, to the bit."""
    logits, labels = synthetic(600, 5)
    weights = np.random.default_rng(1).uniform(0.5, 2, 600)
    stream = rhocal.stream([(logits[k : k + 90], labels[k : k + 90], weights[k : k + 90]) for k in range(0, 600, 90)])
    source = stream.on(DaskExecutor()) if is_on_workers else stream
    methods = ["identity", "rho-norm", "vector"]
    rows = compared(methods, source, n_seeds=2)
    whole = compared(methods, as_source(logits, labels, weights), n_seeds=2)
    same_rows(rows, whole)
    assert len(rows) == 6
    assert [row.values for row in rows] == [row.values for row in whole]


def test_a_split_of_its_own(data):
    logits, labels = data
    calibration, test = ((logits[part], labels[part]) for part in (slice(700), slice(700, None)))
    sources = [rhocal.stream(iter([part])) for part in (calibration, test)]
    rows = compared(["temperature", "vector"], *sources)
    assert {row.split for row in rows} == {OWN}
    same_rows(rows, compared(["temperature", "vector"], resident(calibration), resident(test)))
    with pytest.raises(InputError, match="cannot be cut into halves"):
        compared(["temperature"], rhocal.stream(iter([calibration])))


def test_methods_that_need_whole_rows_draw_the_same_subsample_and_say_so(data, file, monkeypatch):
    monkeypatch.setattr(sampling, "SUBSAMPLE_ENTRIES", 90 * 600)
    rows = compared(["temperature", "histogram-binning"], rhocal.stream(file), n_seeds=2)
    exact, drawn = rows[0], rows[1]
    assert exact.note == ""
    assert f"histogram-binning {SUBSAMPLED}" in drawn.note
    numbers = np.concatenate(
        [sampling.sampling_keys(k, piece.n_rows) for k, piece in enumerate(rhocal.stream(file).blocks)]
    )
    kept = np.zeros(1501, bool)
    kept[np.argsort(numbers)[:600]] = True  # the stated rule
    sizes = tuple(piece.n_rows for piece in rhocal.stream(file).blocks)
    tuned = np.concatenate([Half(sizes, 0)(k) for k in range(len(sizes))])
    mine = tuned & kept
    assert f"{mine.sum()} of {tuned.sum()} samples were drawn" in drawn.note
    cal = calibrator("histogram-binning").fit(data[0][mine], data[1][mine])
    found = rhocal.metrics.nll(cal.transform(data[0][~tuned]), data[1][~tuned], kind="logits")
    assert drawn.values["nll"] == pytest.approx(found, rel=1e-6)
    assert drawn.n_calibration == tuned.sum()
    lines = summary(rows)
    assert [line["subsampled"] for line in lines] == [False, True]


def test_a_method_that_fails_is_a_row_and_the_others_have_figures(file, monkeypatch):
    monkeypatch.setattr(comparison, "MAX_CLASSES_CLASSWISE", 50)
    rows = compared(["multi-domain", "temperature"], rhocal.stream(file), n_seeds=1)
    assert rows[0].note.startswith(FAILED)
    assert rows[0].n_calibration == 750
    failed, fine = summary(rows)
    assert math.isnan(failed["nll"])
    assert fine["nll"] > 0
    assert math.isnan(rows[1].values["classwise_ece"])  # too many classes for its sums


def test_command_line(data, file, tmp_path):
    whole, streamed = tmp_path / "whole.csv", tmp_path / "streamed.csv"
    options = ("--methods", "temperature,vector", "--seeds", "2")
    run("compare", file, *options, "-o", whole)
    np.save(tmp_path / "z.npy", data[0])
    np.save(tmp_path / "y.npy", data[1])
    said = run("compare", tmp_path / "z.npy", "--labels", tmp_path / "y.npy", "--stream", *options, "-o", streamed)
    assert "temperature" in said.stdout
    for mine, theirs in zip(read_rows(streamed), read_rows(whole), strict=True):
        assert (mine["split"], mine["method"]) == (theirs["split"], theirs["method"])
        assert mine["nll"] == pytest.approx(theirs["nll"], rel=1e-4)
    before = streamed.read_text(encoding="utf-8")
    same = (tmp_path / "z.npy", "--labels", tmp_path / "y.npy", "--stream", *options, "-o", streamed)
    again = json.loads(run("compare", *same, "--resume", "--json", "--workers", "2").stdout)
    assert len(again["rows"]) == 4
    assert streamed.read_text(encoding="utf-8") == before  # nothing was left to do
    refused = run("compare", file, "--stream", *options, "--report", tmp_path / "r.html", code=2)
    assert "--report needs the file in memory" in refused.stderr
    assert "--labels belongs to one file" in run("compare", file, whole, "--labels", whole, code=2).stderr


def test_workers_compare_as_one_process_does(data, tmp_path):
    for k, part in enumerate(np.array_split(np.arange(1501), 3)):
        lists = pa.FixedSizeListArray.from_arrays(pa.array(data[0][part].astype(np.float32).ravel()), 90)
        pq.write_table(
            pa.table({"logits": lists, "labels": data[1][part]}), tmp_path / f"{k}.parquet", row_group_size=150
        )
    options = (tmp_path / "*.parquet", "--methods", "rho-norm,histogram-binning", "--seeds", "1", "--json")
    here = json.loads(run("compare", *options).stdout)["rows"]
    there = json.loads(run("compare", "--workers", "2", *options).stdout)["rows"]
    for mine, theirs in zip(there, here, strict=True):
        assert mine["accuracy"] == theirs["accuracy"]
        for name in ("ece", "mce", "nll", "brier", "classwise_ece", "ece_floor"):
            assert mine[name] == pytest.approx(theirs[name], rel=1e-9), name
