"""Whatever goes wrong is one line on stderr and exit code 2; ``--debug`` shows where it came from."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer

import rhocal
from helpers import run, synthetic
from rhocal.cli import boundary
from rhocal.errors import FileError
from rhocal.reporting.model_card import code, model_card, plain

Z, Y = synthetic(200, 3)
ERRORS = [
    SyntaxError("x"), TypeError("x"), IndexError("x"), ZeroDivisionError("x"), RecursionError("x"), KeyError("x"),
    MemoryError("x"), OSError(28, "No space left on device"), PermissionError(13, "Permission denied", "file"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x"), RuntimeError("two\nlines"), AssertionError(), FileError("a\nb"),
]  # fmt: skip


def raising(error, arguments, monkeypatch, capsys):
    app = typer.Typer()

    @app.command()
    def command():
        raise error

    monkeypatch.setattr(sys, "argv", ["rhocal", *arguments])
    with pytest.raises(SystemExit) as ended:
        boundary.run(app)
    return ended.value.code, capsys.readouterr().err


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_every_error_is_one_line_and_exit_code_2(monkeypatch, capsys, error):
    code_, said = raising(error, [], monkeypatch, capsys)
    assert code_ == 2
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    code_, said = raising(error, ["--debug"], monkeypatch, capsys)
    assert code_ == 2
    assert "Traceback" in said
    assert said.splitlines()[-1].startswith("error: ")


def command(*arguments, stdout=subprocess.PIPE, **environment):
    return subprocess.run(
        [Path(sys.executable).with_name("rhocal"), *map(str, arguments)],
        stdout=stdout, stderr=subprocess.PIPE, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
    )  # fmt: skip


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("arguments", [("methods",), ("methods", "--json"), ("--help",), ("--version",)])
def test_a_full_disk(arguments):
    with Path("/dev/full").open("wb") as full:
        done = command(*arguments, stdout=full)
    assert done.returncode == 2
    assert done.stderr.decode().strip().splitlines() == ["error: the output: No space left on device"]


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_a_terminal_that_does_not_know_a_letter(tmp_path, encoding):
    np.savez(tmp_path / "ρ.npz", logits=Z, labels=Y)
    for arguments in (("methods",), ("evaluate", tmp_path / "ρ.npz"), ("evaluate", tmp_path / "σ.npz")):
        done = command(*arguments, PYTHONIOENCODING=encoding)
        assert done.returncode == (2 if arguments[-1] == tmp_path / "σ.npz" else 0), done.stderr
        assert b"Traceback" not in done.stderr


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    done = run("demo", "-o", tmp_path / "file" / "demo", code=2)
    assert done.stderr == f"error: cannot make the folder {tmp_path}/file/demo: Not a directory\n"


def test_a_warning_is_printed_once(tmp_path):
    rows = [json.dumps({"score": k / 60, "correct": k % 3 > 0}) for k in range(60)]
    (tmp_path / "answers.jsonl").write_text("\n".join(rows), encoding="utf-8")
    assert run("evaluate", tmp_path / "answers.jsonl").stderr.count("the numbers look like probabilities") == 1


def test_the_cause_is_shown_with_debug(tmp_path):
    (tmp_path / "c.safetensors").write_bytes(b"nonsense")
    done = command("card", tmp_path / "c.safetensors", "--debug")
    assert done.returncode == 2
    assert b"SafetensorError" in done.stderr
    assert b"direct cause" in done.stderr


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"format": "rhocal-report", "schema": 2}', "[]", "{", '{"format": 1}']
)
def test_the_json_of_a_report_is_not_believed(tmp_path, text):
    (tmp_path / "report.json").write_text(text)
    done = run("report", tmp_path / "report.json", "-o", tmp_path / "report.html", code=2)
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "report.html").exists()


HOSTILE = ["<script>alert(1)</script>", "=1+1", "a|b`c\n# d"]


def test_names_are_text_in_a_card(tmp_path):
    cal = rhocal.TemperatureScaling().fit(Z[:, :2], Y % 2, classes=[HOSTILE[0], "b"], positive=HOSTILE[0])
    text = model_card(cal, {})
    assert "<script" not in text
    assert "positive class: &lt;script&gt;" in text
    assert plain(HOSTILE[2]) == r"a\|b\`c # d"
    assert code("a`b") == "``a`b``"
    path = tmp_path / "<b>`x`.safetensors"
    cal.save(path)
    assert "- file: ``<b>`x`.safetensors``" in run("card", path).stdout


def test_formulas_are_text_in_a_table(tmp_path):
    """A spreadsheet computes nothing, and the file is read as it was written."""
    names = ["=1+1", "@SUM(A1)", "-x"]
    labels = np.array(names)[Y]
    cal = rhocal.TemperatureScaling().fit(Z, labels, classes=names)
    cal.save(tmp_path / "c.safetensors")
    np.savez(tmp_path / "d.npz", logits=Z, labels=labels)
    for ending in ("csv", "tsv"):
        out = tmp_path / f"out.{ending}"
        run("apply", tmp_path / "c.safetensors", tmp_path / "d.npz", "-o", out)
        with out.open(newline="", encoding="utf-8") as file:
            cells = [cell for row in csv.reader(file, delimiter="," if ending == "csv" else "\t") for cell in row]
        assert not [cell for cell in cells if cell[:1] in "=@-+" and cell[:1] and not cell.lstrip("-+")[:1].isdigit()]
        said = json.loads(run("evaluate", out, "--kind", "probs", "--json").stdout)
        want = json.loads(run("evaluate", tmp_path / "d.npz", "--json", "-c", tmp_path / "c.safetensors").stdout)
        assert said["n_samples"] == want["n_samples"] == 200
