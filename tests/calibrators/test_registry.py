"""A new method is one file and one line of the registry: a toy method shows that the rest follows."""

import json
import sys

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import rhocal
from helpers import synthetic
from rhocal.calibrators import CALIBRATORS, Method
from rhocal.cli import app
from rhocal.errors import InputError

FILE = '''
"""A toy method: a temperature that is a multiple of the mean amplitude."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from rhocal.calibrators import ScaleCalibrator
from rhocal.calibrators.map import Map, scale_map
from rhocal.calibrators.options import Fitted, option
from rhocal.optimize import Solution


@dataclass(eq=False, repr=False)
class ToyScaling(ScaleCalibrator):
    """Divide by a multiple of the mean norm of the logits."""

    name = "toy"

    factor: float = option(1.0, above=0)
    _: KW_ONLY
    center: Literal["mean", "none"] = "mean"

    temperature_ = Fitted[float]()

    def _fit(self, data, start=None):
        norm = data.norms([2.0], center=self.center == "mean")[0]
        temperature = self.factor * float(data.weights @ norm)
        return self._new_map(temperature=temperature), Solution("none", 0.0, converged=True, n_evaluations=1)

    def _map(self, *, temperature) -> Map:
        return scale_map(scale, temperature=temperature)


def scale(ops, parameters, sample):
    return 1.0 / parameters["temperature"]
'''
LINE = Method("toy", "toy_method:ToyScaling", "A multiple of the mean norm", {"factor": 0.5})


@pytest.fixture
def toy(tmp_path, monkeypatch):
    (tmp_path / "toy_method.py").write_text(FILE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(CALIBRATORS, LINE.name, LINE)
    yield
    sys.modules.pop("toy_method", None)


@pytest.fixture
def data():
    return synthetic(300, 4)


@pytest.mark.usefixtures("toy")
def test_it_has_its_options(data):
    calibrator = rhocal.calibrator("toy", center="none")
    assert repr(calibrator) == "ToyScaling(factor=0.5, center='none')"
    assert calibrator.get_params() == {"factor": 0.5, "center": "none"}
    with pytest.raises(InputError, match="factor is a number above 0; got 0"):
        calibrator.set_params(factor=0).fit(*data)
    with pytest.raises(InputError, match="toy has no option 'speed'; it has factor, center"):
        rhocal.calibrator("toy", speed=3)


@pytest.mark.usefixtures("toy")
def test_it_fits_predicts_and_is_saved(data, tmp_path):
    logits, labels = data
    calibrator = rhocal.calibrator("toy").fit(logits, labels)
    centered = logits - logits.mean(axis=1, keepdims=True)
    assert np.isclose(calibrator.temperature_, 0.5 * np.linalg.norm(centered, axis=1).mean())
    probs = calibrator.predict_proba(logits)
    np.testing.assert_array_equal(probs.argmax(axis=1), logits.argmax(axis=1))
    calibrator.save(tmp_path / "toy.safetensors")
    loaded = rhocal.load(tmp_path / "toy.safetensors")
    assert repr(loaded) == repr(calibrator)
    np.testing.assert_array_equal(loaded.predict_proba(logits), probs)


@pytest.mark.usefixtures("toy")
def test_it_is_exported(data, tmp_path):
    logits, labels = data
    calibrator = rhocal.calibrator("toy").fit(logits, labels)
    probs = calibrator.predict_proba(logits)
    module = calibrator.to_torch(output="probs")
    np.testing.assert_allclose(module(torch.from_numpy(logits)).numpy(), probs, atol=1e-12)
    calibrator.to_onnx(tmp_path / "toy.onnx")  # compares the model with predict_proba before it writes
    assert (tmp_path / "toy.onnx").exists()


@pytest.mark.usefixtures("toy")
def test_it_is_part_of_chains_and_of_automatic_choice(data):
    chain = rhocal.calibrator("vector:toy", second__factor=2.0).fit(*data)
    assert chain.second.factor == 2.0
    auto = rhocal.AutoCalibrator(("temperature", "toy"), n_folds=2).fit(*data)
    assert {trial["method"] for trial in auto.solution_.trials} == {"temperature", "toy"}


@pytest.mark.usefixtures("toy")
def test_the_command_line_lists_and_fits_it(data, tmp_path):
    listed = CliRunner().invoke(app, ["methods", "toy", "--json"])
    (method,) = json.loads(listed.stdout)["methods"]
    assert method["summary"] == "A multiple of the mean norm"
    assert method["options"]["factor"] == {"default": "0.5", "values": "a number above 0"}
    assert "toy" in CliRunner().invoke(app, ["methods"]).stdout
    np.savez(tmp_path / "data.npz", logits=data[0], labels=data[1])
    output = tmp_path / "cal.safetensors"
    arguments = ["fit", tmp_path / "data.npz", "--method", "toy", "-O", "factor=0.25", "-o", output, "--json"]
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    assert rhocal.load(output).factor == 0.25


@pytest.mark.usefixtures("toy")
def test_public_names_and_laws_follow():
    assert rhocal.ToyScaling is CALIBRATORS["toy"].family
    del rhocal.ToyScaling  # the name is kept once it is used
    assert "toy" in list(CALIBRATORS)  # what the laws run over


def test_the_toy_is_gone_afterwards():
    assert "toy" not in CALIBRATORS
    assert not hasattr(rhocal, "ToyScaling")
