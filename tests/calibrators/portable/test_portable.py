"""The reference interpreter of docs/portable.md gives what Python gives; the command writes what it reads."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import rhocal
from helpers import fit_map, reference_interpreter, synthetic
from rhocal.calibrators import CALIBRATORS
from rhocal.calibrators.portable import portable_map
from rhocal.cli import app
from rhocal.errors import InputError

RUN = reference_interpreter()
Z, Y = synthetic(600, 4, seed=5)
ROWS = np.concatenate([Z[:30], np.round(Z[:20]), Z[:20] * 200, np.round(Z[:10]) * 100, np.zeros((1, 4))])
NOT_EXPRESSIBLE = {"iop", "multi-domain"}
SLOW = {"auto", "pts", "rho-norm-paper"}  # to fit; their maps are those of others


@pytest.mark.parametrize("method", [name for name in CALIBRATORS if name not in NOT_EXPRESSIBLE | SLOW])
def test_the_interpreter_gives_what_python_gives(method):
    cal = fit_map(rhocal.calibrator(method), Z, Y)
    portable = json.loads(json.dumps(portable_map(cal), allow_nan=False))
    results = [RUN(portable, row) for row in ROWS.tolist()]
    np.testing.assert_allclose([probs for probs, _ in results], cal.predict_proba(ROWS), rtol=0, atol=1e-9)
    assert [portable["classes"][k] for _, k in results] == cal.predict(ROWS).tolist()


def test_what_cannot_be_a_program_is_an_error():
    with pytest.raises(InputError, match="export it to ONNX"):
        portable_map(rhocal.calibrator("iop").fit(Z, Y))


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_command_writes_json_and_sql(tmp_path):
    cal = rhocal.calibrator("platt").fit(Z[:, 1] - Z[:, 0], Y % 2)
    cal.save(tmp_path / "cal.safetensors")
    done = invoke("export", tmp_path / "cal.safetensors", "-o", tmp_path / "map.json", "--columns", "score")
    assert done.exit_code == 0, done.output
    portable = json.loads((tmp_path / "map.json").read_text())
    assert (portable["format"], portable["n_inputs"], portable["kind"]) == ("rhocal-map", 1, "logits")
    assert RUN(portable, [0.7])[0] == pytest.approx(cal.predict_proba(np.array([0.7]))[0], abs=1e-12)
    for columns, message in (("a,b\nc,d", "on one line"), ("a,b,c", "2 classes and 3 columns")):
        done = invoke("export", tmp_path / "cal.safetensors", "-o", tmp_path / "map.json", "--columns", columns)
        assert isinstance(done.exception, InputError)
        assert message in str(done.exception)
    options = ["--sql", "sqlite", "--columns", '"my, score"', "--keep-columns", "id", "--table", "main.scores"]
    done = invoke("export", tmp_path / "cal.safetensors", "-o", tmp_path / "map.sql", *options)
    assert done.exit_code == 0, done.output
    text = (tmp_path / "map.sql").read_text()
    assert '"my, score"' in text
    assert '"main"."scores"' in text


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--sql", "oracle", "-o", "map.sql"], "choose from duckdb"),
        (["--sql", "duckdb", "-o", "map.json"], "must end in .sql"),
        (["-o", "map.sql"], "--sql duckdb"),
        (["-o", "map.txt"], ".onnx, .sql or .json"),
        (["-o", "map.json", "--write", "logits"], "--write"),
        (["--sql", "duckdb", "-o", "map.sql", "--columns", "a,b"], "4 classes and 2 columns"),
    ],
)
def test_the_command_names_the_option(options, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rhocal.TemperatureScaling().fit(Z, Y).save("cal.safetensors")
    done = invoke("export", "cal.safetensors", *options)
    assert done.exit_code
    assert says in done.output + str(done.exception)
    assert not list(tmp_path.glob("map*"))
