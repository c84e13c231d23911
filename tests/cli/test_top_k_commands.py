"""`rhocal compare`, `report` and `fit --clusters` on files of the k best classes."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import rhocal
from helpers import synthetic
from rhocal.cli import app
from rhocal.numerics.special import log_softmax

N = 900


def invoke(*arguments):
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.stdout


def error(*arguments):
    return str(CliRunner().invoke(app, [str(one) for one in arguments]).exception)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("top_k")
    logits, labels = synthetic(N, 40, scale=2.0)
    for name, scale in (("a", 1.0), ("b", 1.5)):
        log_p = log_softmax(scale * np.asarray(logits, np.float64))
        order = np.argsort(-log_p, axis=1)[:, :8]
        best = {"top_log_probs": np.take_along_axis(log_p, order, axis=1), "top_indices": order, "n_classes": 40}
        beside = {"site": np.where(np.arange(N) % 2, "x", "y"), "question_id": np.arange(N) // 3}
        np.savez(folder / f"{name}.npz", **best, **beside, labels=labels)
        np.savez(folder / f"{name}_ignore.npz", **best, **beside, labels=np.where(np.arange(N) < 30, -100, labels))
        np.savez(folder / f"{name}_all.npz", logits=log_p, labels=labels)
    return folder


def test_a_report_is_about_the_best_class(folder):
    cal, page, document = folder / "t.safetensors", folder / "r.html", folder / "r.json"
    invoke("fit", folder / "a_ignore.npz", "--ignore-index", -100, "-o", cal)
    invoke(
        "report",
        folder / "a_ignore.npz",
        "--ignore-index",
        -100,
        "-c",
        cal,
        "-o",
        page,
        "--json-output",
        document,
        "--groups",
        "site",
    )
    found = json.loads(document.read_text(encoding="utf-8"))
    evaluated = json.loads(invoke("evaluate", folder / "a_ignore.npz", "--ignore-index", -100, "-c", cal, "--json"))
    for method in found["methods"]:
        values = evaluated["evaluation"][method["name"]]["values"]
        for metric in ("ece", "accuracy"):
            assert method["values"][metric]["value"] == pytest.approx(values[metric]["value"], abs=1e-9)
    assert found["data"]["top_k"] == {"k": 8, "n_classes": 40}
    assert found["warnings"][0]["kind"] == "top k"
    assert "the 8 best of 40 classes" in page.read_text(encoding="utf-8")
    with np.load(folder / "a_ignore.npz") as file:
        worst = found["mistakes"]["rows"][0]
        assert worst["label"] == str(file["labels"][worst["row"]])
        assert worst["predicted"] == str(file["top_indices"][worst["row"], 0])
        top = rhocal.TopK.from_arrays(file["top_log_probs"], file["top_indices"], n_classes=40).take(np.arange(30, N))
        labels, sites = file["labels"][30:], file["site"][30:]
    report = rhocal.report(top, labels, calibrators=rhocal.load(cal), groups=sites)
    ece = [method["values"]["ece"]["value"] for method in report.document["methods"]]
    assert ece == [method["values"]["ece"]["value"] for method in found["methods"]]
    assert {row["slice"] for row in report.document["slices"]["rows"]} == {"x", "y"}
    invoke(
        "report", folder / "b.npz", "--ignore-index", -100, "-o", page, "--groups", "site", "--json-output", document
    )
    assert {row["slice"] for row in json.loads(document.read_text())["slices"]["rows"]} == {"x", "y"}


def test_methods_are_compared_on_halves(folder):
    methods = ("--methods", "identity,temperature,svs", "--seeds", 2, "--clusters", "question_id")
    found = json.loads(invoke("compare", folder / "a.npz", *methods, "-o", folder / "rows.csv", "--json"))
    rows = {(row["method"], row["split"]): row for row in found["rows"]}
    assert len(rows) == 6
    assert rows["temperature", "seed 0"]["nll"] < rows["identity", "seed 0"]["nll"]
    assert rows["temperature", "seed 0"]["n_calibration"] % 3 == 0  # questions stay together
    assert rows["temperature", "seed 0"]["n_calibration"] + rows["temperature", "seed 0"]["n_test"] == N
    assert "needs the logits of all classes" in rows["svs", "seed 1"]["note"]
    again = json.loads(invoke("compare", folder / "a.npz", *methods, "-o", folder / "rows.csv", "--resume", "--json"))
    nll = [[row["nll"] for row in document["rows"] if row["nll"]] for document in (again, found)]
    assert nll[0] == pytest.approx(nll[1], rel=1e-5)  # the file has six digits
    both = invoke("compare", folder / "a.npz", folder / "b.npz", "--seeds", 1, "--methods", "temperature", "--json")
    assert json.loads(both)["models"]["n_samples"] == N
    assert "compare files of one sort" in error("compare", folder / "a.npz", folder / "a_all.npz")
    assert "--report is not for" in error("compare", folder / "a.npz", "--report", folder / "c.html")


def test_copies_of_a_question_are_no_more_samples(folder):
    with np.load(folder / "a.npz") as file:
        values, indices, labels = (file[name] for name in ("top_log_probs", "top_indices", "labels"))
    copies = np.repeat(np.arange(N), 3)
    plain, copied = (
        rhocal.TopK.from_arrays(values[rows], indices[rows], n_classes=40) for rows in (slice(None), copies)
    )
    once = rhocal.FieldScaling(ridge=50.0).fit(plain, labels)
    thrice = rhocal.FieldScaling(ridge=50.0).fit(copied, labels[copies], clusters=copies)
    np.testing.assert_allclose(thrice.weights_, once.weights_, rtol=1e-3, atol=1e-6)
    naive = rhocal.FieldScaling(ridge=50.0).fit(copied, labels[copies])
    assert np.abs(naive.weights_ - once.weights_).max() > 1e-3


@pytest.mark.parametrize("is_top_k", [True, False])
def test_tokens_without_a_target_are_left_out_of_comparisons(folder, is_top_k, tmp_path):
    paths = [folder / f"{name}_ignore.npz" for name in "ab"]
    if not is_top_k:
        paths = [tmp_path / f"{name}.npz" for name in "ab"]
        for name, path in zip("ab", paths, strict=True):
            with np.load(folder / f"{name}_all.npz") as file:
                np.savez(path, logits=file["logits"], labels=np.where(np.arange(N) < 30, -100, file["labels"]))
    options = ("--seeds", 1, "--methods", "temperature", "--json")
    found = json.loads(invoke("compare", *paths, "--models", "--ignore-index", -100, *options))
    assert found["models"]["n_samples"] == N - 30
    assert {row["n_calibration"] + row["n_test"] for row in found["rows"]} == {N - 30}
    assert "-100" in error("compare", *paths, *options)


def test_models_that_leave_out_other_samples_are_not_compared(folder, tmp_path):
    paths = [tmp_path / f"{name}.npz" for name in "ab"]
    for k, path in enumerate(paths):
        with np.load(folder / "a_all.npz") as file:
            labels = np.where(np.arange(N) // 30 == k, -100, file["labels"])
            np.savez(path, logits=file["logits"], labels=labels)
    assert "other samples are left out" in error("compare", *paths, "--models", "--ignore-index", -100, "--seeds", 1)
