"""Evaluate, compare, report and plot from Python: arrays, frames, two models, and results that leave Python."""

import inspect
import json
import re

import numpy as np
import pandas as pd
import pytest

import rhocal
from helpers import synthetic
from rhocal.errors import FileError, InputError

NAMES = ["ant", "bee", "cat"]


@pytest.fixture(scope="module")
def data():
    logits, labels = synthetic(900, 3, scale=2.0, seed=4)
    return logits, labels


@pytest.fixture(scope="module")
def probs(data):
    return rhocal.Identity().fit(*data).predict_proba(data[0])


@pytest.fixture(scope="module")
def two_models(data, probs):
    softer = rhocal.TemperatureScaling().fit(*data).predict_proba(data[0])
    return rhocal.report({"raw": probs, "soft": softer}, data[1], title="two models")


def test_a_report_of_two_models_compares_them(two_models, data, probs):
    raw, soft = two_models.document["methods"]
    assert (raw["name"], soft["name"], two_models.document["headline"]) == ("raw", "soft", "soft")
    assert raw["differences"] is None
    assert soft["differences"]["ece"]["verdict"] == "better"
    assert raw["values"]["ece"]["value"] == pytest.approx(rhocal.metrics.ece(probs, data[1]), abs=1e-6)
    difference = soft["values"]["nll"]["value"] - raw["values"]["nll"]["value"]
    assert soft["differences"]["nll"]["value"] == pytest.approx(difference, abs=1e-5)


def test_the_page_of_two_models_speaks_of_models(two_models, tmp_path):
    pytest.importorskip("plotly")
    two_models.save(tmp_path / "two.html")
    page = (tmp_path / "two.html").read_text(encoding="utf-8")
    text = page[: page.index('id="report"')]
    assert "Before calibration" not in text
    assert "uncalibrated" not in text
    assert "The fitted calibrators" not in text
    assert "raw</bdi> and <bdi" in text
    two_models.save(tmp_path / "two.json")
    assert json.loads((tmp_path / "two.json").read_text(encoding="utf-8"))["compares"] == "models"
    with pytest.raises(FileError, match=r"end in \.html"):
        two_models.save(tmp_path / "two.pdf")


def test_columns_of_models_are_matched_by_name(data, probs):
    """The same probabilities in frames whose columns come in another order are the same model."""
    labels = np.array(NAMES)[data[1]]
    first = pd.DataFrame(probs, columns=NAMES)
    second = first[["cat", "ant", "bee"]]
    document = rhocal.report({"A": first, "B": second}, labels).document
    a, b = document["methods"]
    assert a["values"] == b["values"]
    assert all(difference["value"] == 0 for difference in b["differences"].values())


def test_a_report_of_a_calibrator_takes_its_kind_and_classes(data):
    cal = rhocal.RhoNormScaling().fit(*data)
    logits, labels = synthetic(600, 3, scale=2.0, seed=5)
    found = rhocal.report(logits, labels, calibrators=cal).document
    values = found["methods"][1]["values"]
    assert values["ece"]["value"] == pytest.approx(rhocal.metrics.ece(cal.predict_proba(logits), labels), abs=1e-6)
    assert len(found["cite"]) == 2
    other = rhocal.TemperatureScaling().fit(*data)
    assert len(rhocal.report(logits, labels, calibrators=[other]).document["cite"]) == 1  # the paper is not used


def test_what_a_report_refuses(data, probs):
    cal = rhocal.TemperatureScaling().fit(*data)
    with pytest.raises(InputError, match="calibrators belong to one model"):
        rhocal.report({"A": probs, "B": probs}, data[1], calibrators=cal)
    with pytest.raises(InputError, match="same name"):
        rhocal.report(*data, calibrators=[cal, cal])
    with pytest.raises(InputError, match="model 'B': labels and probs differ in length"):
        rhocal.report({"A": probs, "B": probs[:-1]}, data[1])
    with pytest.raises(InputError, match="calibrators are fitted calibrators; got 'temperature'"):
        rhocal.report(*data, calibrators=["temperature"])
    with pytest.raises(rhocal.errors.RhocalError, match="fit"):
        rhocal.report(*data, calibrators=rhocal.TemperatureScaling())
    with pytest.raises(InputError, match="at least one model"):
        rhocal.report({}, data[1])
    with pytest.raises(InputError, match="two models or calibrators are called 'uncalibrated'"):
        rhocal.report(*data, calibrators={"uncalibrated": cal})


@pytest.fixture(scope="module")
def compared(data):
    return rhocal.compare(*data, methods=["identity", "temperature", rhocal.VectorScaling(ridge=2.0)], n_seeds=2)


def test_compare_finds_what_calibrates(compared):
    assert compared.best != "identity"
    assert "identity" not in compared.tied
    assert {row.split for row in compared.rows} == {"seed 0", "seed 1"}
    assert "VectorScaling(ridge=2.0)" in str(compared)
    with pytest.raises(KeyError, match="this comparison has identity, temperature"):
        compared["field"]


def test_compare_on_a_test_set_is_fit_and_measure(data):
    logits, labels = synthetic(700, 3, scale=2.0, seed=6)
    cal = rhocal.TemperatureScaling()
    line = rhocal.compare(*data, test=(logits, labels), methods={"t": cal})["t"]
    expected = rhocal.TemperatureScaling().fit(*data).predict_proba(logits)
    assert line["ece"] == pytest.approx(rhocal.metrics.ece(expected, labels), abs=1e-9)
    assert not cal.__sklearn_is_fitted__()  # what the caller passed is left alone


def test_compare_matches_the_columns_of_a_test_frame_by_name(data):
    labels = np.array(NAMES)[data[1]]
    frame = pd.DataFrame(data[0], columns=NAMES)
    same, turned = (
        rhocal.compare(frame, labels, test=(frame[order], labels), methods=["temperature"])
        for order in (NAMES, ["cat", "ant", "bee"])
    )
    assert same["temperature"]["nll"] == pytest.approx(turned["temperature"]["nll"], abs=1e-12)


def test_what_compare_refuses(data):
    with pytest.raises(InputError, match="methods is empty"):
        rhocal.compare(*data, methods=[])
    with pytest.raises(InputError, match="twice"):
        rhocal.compare(*data, methods=["field", "field"])
    with pytest.raises(InputError, match="n_seeds must be a whole number, at least 1"):
        rhocal.compare(*data, n_seeds=0)
    with pytest.raises(InputError, match=r"test is \(logits, labels\)"):
        rhocal.compare(*data, test=(data[0],))
    with pytest.raises(InputError, match=r"test is \(logits, labels\)"):
        rhocal.compare(*data, test=data[0][:2])


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_results_become_frames(two_models, compared, data, library):
    pytest.importorskip(library)
    evaluation = rhocal.evaluate(*data, kind="logits")
    for result, index, n_rows in ((evaluation, "metric", 5), (compared, "method", 3), (two_models, "name", 2)):
        frame = result.to_frame(library)
        assert type(frame).__module__.split(".")[0] == library
        assert len(frame) == n_rows
        assert frame.index.name == index if library == "pandas" else frame.columns[0] == index
    with pytest.raises(InputError, match="library is pandas or polars"):
        compared.to_frame("arrow")


def test_results_become_json_and_html(two_models, compared, data):
    evaluation = rhocal.evaluate(*data, kind="logits")
    for result in (evaluation, compared, two_models):
        assert json.loads(result.to_json()).keys() == json.loads(json.dumps(result.to_dict(), default=list)).keys()
        assert result._repr_html_().count("<tr>") >= 3
        assert "<script" not in result._repr_html_()
    hostile = rhocal.report({"<script>alert(1)</script>": data[0]}, data[1], kind="logits")
    assert "<script" not in hostile._repr_html_()


def test_plots_take_arrays_and_models(data, probs):
    plt = pytest.importorskip("matplotlib.pyplot")
    ax = rhocal.plot(probs, data[1])
    assert ax.get_xlabel() == "confidence"
    axes = rhocal.plot({"A": probs, "B": probs}, data[1], "smooth")
    assert [place.get_title() for place in axes] == ["A", "B"]
    rhocal.plot({"A": probs, "B": probs}, data[1], "risk-coverage")
    plt.close("all")
    with pytest.raises(InputError, match="what is one of reliability"):
        rhocal.plot(probs, data[1], "pie")
    with pytest.raises(InputError, match="of_positive needs two classes"):
        rhocal.plot(probs, data[1], "positive")


VERBS = (
    "adapt", "compare", "decide", "demo_logits", "estimate_weights", "evaluate", "load", "measure", "minimize_cost", "plot",
    "report", "reweight", "stream",
)  # fmt: skip


@pytest.mark.parametrize("name", VERBS)
def test_help_of_a_function_is_complete(name):
    """The doctests run with the module."""
    function = getattr(rhocal, name)
    text = inspect.getdoc(function)
    described = text[text.index("Parameters\n") : text.index("Returns\n")]
    for parameter in inspect.signature(function).parameters:
        assert re.search(rf"^(\w+, )*{parameter}(, \w+)*( :.*)?$", described, re.MULTILINE), parameter
    assert ">>> " in text[text.index("Examples\n") :]


def test_dir_shows_what_users_call():
    shown = dir(rhocal)
    assert {"evaluate", "compare", "report", "plot", "metrics", "errors"} <= set(shown)
    assert not {"Any", "annotations", "import_module", "numerics", "optimize", "public_names", "PUBLIC"} & set(shown)
