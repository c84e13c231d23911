"""Data is validated once per command, however many steps the command has."""

import numpy as np
import pytest
from typer.testing import CliRunner

import rhocal
from helpers import synthetic
from rhocal.cli import app
from rhocal.data.predictions import Predictions


@pytest.fixture
def folder(tmp_path):
    logits, labels = synthetic(400, 4, dtype=np.float32)
    np.savez(tmp_path / "one.npz", logits=logits, labels=labels)
    rhocal.TemperatureScaling().fit(logits, labels).save(tmp_path / "cal.safetensors")
    return tmp_path


COMMANDS = {
    "fit": ("fit", "one.npz", "-m", "temperature", "-o", "fitted.safetensors"),
    "profile": ("profile", "one.npz", "-o", "profile.safetensors"),
    "apply": ("apply", "cal.safetensors", "one.npz", "-o", "out.npz"),
    "evaluate": ("evaluate", "one.npz", "-c", "cal.safetensors", "--json"),
    "compare": ("compare", "one.npz", "--methods", "temperature,vector", "--seeds", "2"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_data_is_validated_once(command, folder, monkeypatch):
    validated = []
    from_arrays = Predictions.from_arrays.__func__

    def counted(cls, scores, *arguments, **options):
        validated.append(np.shape(scores))
        return from_arrays(cls, scores, *arguments, **options)

    monkeypatch.setattr(Predictions, "from_arrays", classmethod(counted))
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(app, COMMANDS[command])
    assert done.exit_code == 0, done.output
    assert validated == [(400, 4)]
