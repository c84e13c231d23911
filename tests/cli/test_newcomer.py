"""What a newcomer tries first: names from other libraries, other file endings, and output that fits a screen."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import rhocal
from helpers import ROOT, synthetic
from rhocal.cli import app
from rhocal.cli.compare import show_comparison
from rhocal.cli.monitor import files
from rhocal.cli.options import Arrays
from rhocal.data.spec import InputSpec
from rhocal.errors import InputError
from rhocal.evaluation.monitor import Monitor
from rhocal.evaluation.rows import Row
from rhocal.metrics import METRICS
from rhocal.reporting.model_card import model_card


def invoke(*arguments, code=0):
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result


@pytest.mark.parametrize(
    ("name", "method"), [("sigmoid", "platt"), ("TS", "temperature"), ("histogram", "histogram-binning")]
)
def test_names_of_other_libraries_are_hinted_at(name, method):
    with pytest.raises(InputError, match=f"there is no method '{name}'; did you mean '{method}'"):
        rhocal.calibrator(name)


def test_hints_are_methods():
    from rhocal.calibrators.registry import CALIBRATORS, KNOWN_AS

    assert set(KNOWN_AS.values()) <= set(CALIBRATORS)
    assert not set(KNOWN_AS) & set(CALIBRATORS)


@pytest.mark.parametrize("command", ["fit", "profile"])
def test_what_rhocal_reads_again_is_saved_with_its_ending(tmp_path, command):
    logits, labels = synthetic(200, 4)
    np.savez(tmp_path / "a.npz", logits=logits, labels=labels)
    done = CliRunner().invoke(app, [command, str(tmp_path / "a.npz"), "-o", str(tmp_path / "x.json")])
    assert "x.json must end in .safetensors" in str(done.exception)
    assert not (tmp_path / "x.json").exists()


def test_scores_in_the_place_of_a_calibrator_are_named(tmp_path):
    logits, labels = synthetic(200, 4)
    np.savez(tmp_path / "a.npz", logits=logits, labels=labels)
    done = CliRunner().invoke(app, ["evaluate", str(tmp_path / "a.npz"), "-c", str(tmp_path / "a.npz")])
    assert "A calibrator is a .safetensors file that rhocal wrote" in str(done.exception)


def shown_of_fit(folder, method):
    """What the screen and the card show of a fit."""
    logits, labels = synthetic(200, 4)
    np.savez(folder / "a.npz", logits=logits, labels=labels)
    screen = invoke("fit", folder / "a.npz", "-m", method, "-o", folder / "c.safetensors").stdout
    return screen, model_card(rhocal.load(folder / "c.safetensors"), {})


def test_a_fit_prints_many_arrays_in_one_line(tmp_path):
    for text in shown_of_fit(tmp_path, "quadratic"):
        assert "array of shape" not in text
        assert "arrays with" in text
        assert re.search(r"scope\W+one-vs-rest", text)
    few = model_card(rhocal.calibrator("vector").fit(*synthetic(200, 4)), {})
    assert "array of shape (4,)" in few


@pytest.mark.parametrize(
    ("method", "component"),
    [
        ("average", r"members\W+field \(\d+ numbers\), svs \(\d+ numbers\)"),
        ("cross-fitted", r"members\W+5 times sms \(\d+ numbers\)"),
        ("svs:temperature", r"first\W+svs \(\d+ numbers\)"),
        ("svs:temperature", r"second\W+temperature \(temperature = [\d.]+\)"),
        ("auto", r"chosen\W+[\w:-]+ \("),
    ],
)
def test_components_are_named_by_their_method(tmp_path, method, component):
    for text in shown_of_fit(tmp_path, method):
        assert re.search(component, text)
        assert not re.search(r"(chosen|first|second)\.", text)


def test_split_says_that_it_keeps_the_kind():
    assert "It is kept in the file (.npz, .safetensors)" in " ".join(
        invoke("split", "--help").stdout.replace("│", " ").split()
    )


def test_a_note_names_its_method_once(capsys):
    values = dict.fromkeys(METRICS, 0.1)
    rows = [Row("net", "0", "sms:field", values, 0.1, 10, 10, note="sms:field: few samples; sms:field: worse")]
    show_comparison(rows, output=None, per_network=False, as_json=False)
    assert "note: net, sms:field: few samples; worse" in capsys.readouterr().out


def test_waiting_names_options(tmp_path, capsys, monkeypatch):
    def stop(_seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", stop)
    pd.DataFrame({"scores": [[0.1, 0.9]], "labels": [1]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(KeyboardInterrupt):
        list(files(Monitor(), tmp_path, Arrays(), InputSpec(), None, 1.0))
    said = capsys.readouterr().err
    assert said.startswith("waiting: ")
    assert "--logits-name" in said
    assert "logits_name=" not in said


def test_lm_eval_scores_are_named():
    samples = ROOT / "tests/data/samples/samples_lists.jsonl"
    said = invoke("evaluate", samples, "--json")
    assert "log-likelihoods of the options, as in acc (--logits-name logits_per_character: " in said.stderr
    json.loads(said.stdout)
    by_length = invoke("evaluate", samples, "--logits-name", "logits_per_character", "--json")
    assert "as in acc_norm (--logits-name logits: log-likelihoods" in by_length.stderr


def test_identifiers_are_copied_to_the_output(tmp_path):
    """From every kind of table, texts and numbers, with two classes in one column and with lists of logits."""
    rng = np.random.default_rng(0)
    score, n = rng.random(60), 60
    labels = (rng.random(n) < score).astype(int)
    table = pd.DataFrame(
        {"customer": [f"c{k}" for k in range(n)], "score": score, "fraud": labels, "age": np.arange(n)}
    )
    table.to_csv(tmp_path / "a.csv", index=False)
    stated = ("--columns", "score", "--labels-name", "fraud")
    target = tmp_path / "c.safetensors"
    invoke("fit", tmp_path / "a.csv", *stated, "--kind", "probs", "-m", "platt", "-o", target)
    table.assign(note=[None, "x"] * 30, predicted=1).to_parquet(tmp_path / "a.parquet")
    for source, output in (("a.csv", "o.csv"), ("a.parquet", "o.parquet"), ("a.csv", "o.jsonl")):
        arguments = ("apply", target, tmp_path / source, "--labels-name", "fraud", "-o", tmp_path / output)
        invoke(*arguments, "--keep-columns", "customer,age")
        read = {".csv": pd.read_csv, ".parquet": pd.read_parquet, ".jsonl": lambda path: pd.read_json(path, lines=True)}
        found = read[(tmp_path / output).suffix](tmp_path / output)
        assert found["customer"].tolist() == table["customer"].tolist()
        assert found["age"].tolist() == table["age"].tolist()
        assert len(found) == n
    invoke(*arguments, "--keep-columns", "all")
    kept = pd.read_json(tmp_path / "o.jsonl", lines=True)
    assert {"customer", "age", "predicted", "confidence"} <= set(kept)
    arguments = ("apply", target, tmp_path / "a.parquet", "--labels-name", "fraud", "-o", tmp_path / "o.parquet")
    invoke(*arguments, "--keep-columns", "note")
    note = pd.read_parquet(tmp_path / "o.parquet")["note"]
    assert note.isna().tolist() == [True, False] * 30
    for options, message in (
        (("--keep-columns", "all"), "the output has predicted of its own; leave out that column"),
        (("--keep-columns", "id"), "has no other column id; there are customer, age"),
        (("--keep-columns", "age", "--stream"), "--keep-columns needs the file in memory"),
    ):
        assert message in str(CliRunner().invoke(app, [*map(str, arguments), *options]).exception)
