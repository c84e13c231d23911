"""What the scores are: stated, as in the fit of the calibrator, or suspected of being probabilities."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import rhocal
from rhocal.cli import app
from rhocal.cli.boundary import message
from rhocal.cli.options import Arrays, SpecOptions
from rhocal.cli.plot import _open
from rhocal.errors import FileError, InputError, SuspiciousInputWarning

LABELS = ["--labels-name", "fraud"]
STATED = ["--columns", "score", "--kind", "probs"]


def invoke(*arguments):
    """The standard output of a command, in this process."""
    done = CliRunner().invoke(app, list(map(str, arguments)))
    assert done.exception is None, done.exception
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Probabilities of a rare class in a table with other columns, and a calibrator that a command fitted on them."""
    path = tmp_path_factory.mktemp("kind")
    rng = np.random.default_rng(0)
    p = 1 / (1 + np.exp(-(1.5 * rng.normal(size=2000) - 3)))
    y = (rng.random(2000) < p**1.5).astype(int)
    rows = [f"{k},{score:.6f},{label}" for k, (score, label) in enumerate(zip(p, y, strict=True))]
    (path / "scores.csv").write_text("\n".join(["id,score,fraud", *rows]) + "\n")
    invoke("fit", path / "scores.csv", *LABELS, *STATED, "-m", "temperature", "-o", path / "cal.safetensors")
    return path


@pytest.mark.filterwarnings("error::rhocal.errors.SuspiciousInputWarning")
def test_evaluate_takes_the_kind_and_the_columns_of_the_fit(folder):
    command = ["evaluate", folder / "scores.csv", "-c", folder / "cal.safetensors", *LABELS, "--json"]
    values, stated = (json.loads(invoke(*command, *options))["values"] for options in ([], STATED))
    assert values == stated
    assert values["uncalibrated"]["accuracy"] > 0.9


@pytest.mark.filterwarnings("error::rhocal.errors.SuspiciousInputWarning")
def test_other_commands_take_them_too(folder):
    scores, c = folder / "scores.csv", ["-c", folder / "cal.safetensors", *LABELS]
    shifts = [invoke("shift", scores, scores, *c, *options, "--json") for options in ([], STATED)]
    assert shifts[0] == shifts[1]
    assert "| ECE |" in invoke("card", folder / "cal.safetensors", "--on", scores, *LABELS)
    pytest.importorskip("plotly")
    invoke("report", scores, *c, "-o", folder / "r.html", "--json-output", folder / "r.json")
    assert json.loads((folder / "r.json").read_text())["data"]["kind"] == "probs"
    pytest.importorskip("matplotlib")
    assert "reliability:" in invoke("plot", "reliability", scores, *c, "-o", folder / "r.svg")


def test_a_plot_matches_columns_with_the_classes_of_the_calibrator(folder):
    rng = np.random.default_rng(2)
    p = rng.random(300)
    names = np.where(rng.random(300) < p, "yes", "no")
    rows = [f"{q:.6f},{1 - q:.6f},{name}" for q, name in zip(p, names, strict=True)]
    (folder / "a.csv").write_text("\n".join(["yes,no,labels", *rows]) + "\n")
    turned = [f"{1 - q:.6f},{q:.6f},{name}" for q, name in zip(p, names, strict=True)]
    (folder / "b.csv").write_text("\n".join(["no,yes,labels", *turned]) + "\n")
    invoke("fit", folder / "a.csv", "--kind", "probs", "-m", "platt", "-o", folder / "p.safetensors")
    opened = [_open(folder / name, Arrays(), SpecOptions(), [folder / "p.safetensors"]) for name in ("a.csv", "b.csv")]
    np.testing.assert_allclose(opened[0].predictions.logits, opened[1].predictions.logits, atol=1e-5)
    assert opened[1].predictions.classes.tolist() == rhocal.load(folder / "p.safetensors").classes_.tolist()
    pytest.importorskip("matplotlib")
    c = ["-c", folder / "p.safetensors"]
    assert "confidence-map:" in invoke("plot", "confidence-map", folder / "b.csv", *c, "-o", folder / "b.svg")


def test_calibrators_of_two_kinds_need_a_statement(folder):
    rng = np.random.default_rng(1)
    cal = rhocal.TemperatureScaling().fit(rng.normal(size=500), (rng.random(500) < 0.5).astype(int))
    cal.save(folder / "logits.safetensors")
    both = ["-c", folder / "cal.safetensors", "-c", folder / "logits.safetensors", *LABELS]
    done = CliRunner().invoke(app, list(map(str, ["evaluate", folder / "scores.csv", *both])))
    assert isinstance(done.exception, InputError)
    text = "-c: the calibrators were fitted on logits and on probs. Use --kind to state which of them the file holds"
    assert message(done.exception, app) == text
    invoke("evaluate", folder / "scores.csv", *both, *STATED)


def test_a_single_column_of_probabilities_is_suspected(folder):
    p = np.linspace(0, 1, 50)
    rows = [f"{score:.6f},{int(score > 0.4)}" for score in p]
    (folder / "common.csv").write_text("\n".join(["score,fraud", *rows]) + "\n")
    with pytest.warns(SuspiciousInputWarning, match="a single column, all between 0 and 1"):
        invoke("evaluate", folder / "common.csv", *LABELS, "--columns", "score")
    with pytest.warns(SuspiciousInputWarning, match="kind='probs'"):
        rhocal.TemperatureScaling().fit(p, (p > 0.4).astype(int))


def test_margins_are_not_suspected(recwarn):
    margin = np.linspace(-2, 3, 50)
    cal = rhocal.TemperatureScaling().fit(margin, (margin + np.tile([1, -1], 25) > 0).astype(int))
    cal.predict_proba(np.array([0.2, 0.7]))  # a few margins may lie in 0 to 1 by chance
    assert not [w for w in recwarn if isinstance(w.message, SuspiciousInputWarning)]
    with pytest.raises(InputError, match="kind is one of"):
        cal.predict_proba(margin, kind="prob")


def test_a_table_without_labels_names_its_other_columns(folder):
    done = CliRunner().invoke(app, ["evaluate", str(folder / "scores.csv"), *STATED])
    assert isinstance(done.exception, FileError)
    text = message(done.exception, app)
    assert text.endswith("other columns of the table: id, fraud. Use --labels-name to name the column that holds them")


def test_power_reads_the_columns_of_a_table(folder):
    text = invoke("power", folder / "scores.csv", *STATED, "--excess", "0.05", "--json")
    assert json.loads(text)["needed"][0]["n_samples"] > 0


def test_a_calibrator_alone_is_no_whole_model(folder):
    pytest.importorskip("onnxruntime")
    assert "whole model" not in invoke("export", folder / "cal.safetensors", "-o", folder / "cal.onnx")


def test_a_monitor_names_options_not_arguments(folder):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (folder / "stream").mkdir()
    table = pa.table({"id": [1, 2], "score": [0.2, 0.4], "more": [0.5, 0.1], "fraud": [0, 1]})
    pq.write_table(table, folder / "stream" / "a.parquet")
    done = CliRunner().invoke(app, ["monitor", str(folder / "stream"), "-s", str(folder / "state.json")])
    assert message(done.exception, app).endswith("Use --columns to name those of the classes")


def test_groups_in_which_a_class_is_wrong_have_a_sentence(folder):
    rng = np.random.default_rng(3)
    p = np.where(rng.random(3000) < 0.5, 0.8, 0.2)  # as often right as it is confident, but class 1 is there in 1 of 4
    y = rng.random(3000) < np.where(p > 0.5, 0.55, 0.0)
    site = np.where(np.arange(3000) % 2, "north", "south")
    rows = [f"{score},{int(label)},{name}" for score, label, name in zip(p, y, site, strict=True)]
    (folder / "sites.csv").write_text("\n".join(["score,fraud,site", *rows]) + "\n")
    text = " ".join(invoke("evaluate", folder / "sites.csv", *LABELS, *STATED, "--groups", "site").split())
    assert "north: class 1 gets too much probability" in text
    assert "south: class 1 gets too much probability" in text
