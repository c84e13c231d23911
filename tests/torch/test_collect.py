"""From a model and its loader to a calibrated model: batches, outputs of any form, saving, several processes."""

import io
import pickle
import re
import subprocess
import sys
from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import rhocal
from helpers import PATIENCE, ROOT, fit_map, quick, synthetic
from rhocal.calibrators.registry import CALIBRATORS, calibrator
from rhocal.errors import InputError
from rhocal.torch import Calibrated, CalibratorModule, calibrate, collect


@pytest.fixture(scope="module")
def data():
    logits, labels = synthetic(600, 5, seed=1)
    return logits.astype(np.float32), labels


class Net(nn.Module):
    """Gives its input back, as logits; the batch norm shows whether eval mode was kept."""

    def __init__(self, m):
        super().__init__()
        self.norm, self.weight = nn.BatchNorm1d(m), nn.Parameter(torch.ones(1))

    def forward(self, x):
        assert not self.norm.training
        assert not torch.is_grad_enabled()
        return x * self.weight


def test_calibrate_a_classifier_and_leave_it_as_it_was(data):
    logits, labels = (torch.tensor(array) for array in data)
    model = Net(5).train()
    model.norm.eval()  # a frozen part stays frozen
    calibrated = calibrate(
        model, DataLoader(TensorDataset(logits, labels), batch_size=64), "temperature", objective="brier"
    )
    want = rhocal.TemperatureScaling(objective="brier").fit(*data)
    assert calibrated.fitted.temperature_ == pytest.approx(want.temperature_)
    assert model.training
    assert not model.norm.training
    np.testing.assert_allclose(calibrated.predict_proba(logits), want.predict_proba(data[0]), atol=1e-6)
    with torch.no_grad():
        np.testing.assert_allclose(calibrated(logits).softmax(-1), want.predict_proba(data[0]), atol=1e-6)
    assert {"calibrator.temperature", "model.weight"} <= set(calibrated.state_dict())


def test_images_and_tokens(data):
    logits, labels = (torch.tensor(array) for array in data)
    images, marks = logits.reshape(6, 10, 10, 5).movedim(-1, 1), labels.reshape(6, 10, 10).clone()
    marks[:, 0] = 255
    kept = (marks != 255).reshape(-1).numpy()
    want = rhocal.TemperatureScaling().fit(data[0][kept], data[1][kept]).temperature_
    model = Net(5).eval()
    loader = DataLoader(TensorDataset(images, marks), batch_size=4)
    seg = calibrate(model, loader, "temperature", class_axis=1, ignore_index=255)
    assert seg.fitted.temperature_ == pytest.approx(want)
    assert seg.predict_proba(images).shape == images.shape
    tokens = {"x": logits.reshape(6, 100, 5), "labels": labels.reshape(6, 100).clone()}
    tokens["labels"][:, :10] = -100
    seen, said = collect(model, [tokens])
    assert seen.shape == (540, 5)
    assert (said >= 0).all()
    assert len(collect(model, [tokens, tokens], max_samples=700)[0]) == 700
    with pytest.raises(InputError, match="say class_axis=1"):
        calibrate(model, loader, "temperature")
    turned = {"x": tokens["x"], "labels": tokens["labels"].T}
    with pytest.raises(InputError, match="transpose labels"):
        collect(model, [turned])


def test_batches_that_are_not_understood(data):
    model = Net(5).eval()
    with pytest.raises(InputError, match="pass step="):
        collect(model, [torch.tensor(data[0])])
    with pytest.raises(InputError, match="no 'labels'"):
        collect(model, [{"x": torch.tensor(data[0])}])
    with pytest.raises(InputError, match="gave no samples"):
        collect(model, [])
    with pytest.raises(InputError, match="a calibrator already"):
        calibrate(model, [], rhocal.TemperatureScaling(), objective="nll")
    step = lambda m, batch: (m(batch[0]), batch[1])  # noqa: E731
    seen, _ = collect(model, [(torch.tensor(data[0]), torch.tensor(data[1]), "name")], step=step)
    assert len(seen) == 600


# Outputs of models ----------------------------------------------------------------------------------------------------


class ModelOutput(OrderedDict):
    """As Hugging Face has it: entries are attributes too."""

    def __getattr__(self, name):
        if name in self:
            return self[name]
        raise AttributeError(name)


@dataclass(frozen=True)
class Frozen:
    logits: Tensor
    loss: float


Named = namedtuple("Named", ["loss", "logits"])  # noqa: PYI024 - as models have it


@pytest.mark.parametrize(
    "output",
    [
        lambda x: {"loss": 1.0, "logits": x},
        lambda x: ModelOutput(loss=1.0, logits=x),
        lambda x: Frozen(x, 1.0),
        lambda x: Named(1.0, x),
    ],
    ids=["dict", "hugging-face", "dataclass", "namedtuple"],
)
def test_outputs_keep_their_form_and_get_calibrated_logits(output, data):
    class Model(nn.Module):
        def forward(self, x):
            return output(x)

    logits, labels = (torch.tensor(array) for array in data)
    calibrated = calibrate(Model(), [(logits, labels)], "temperature")
    want = rhocal.TemperatureScaling().fit(*data).predict_proba(data[0])
    out = calibrated(logits)
    assert type(out) is type(output(logits))
    found = out["logits"] if isinstance(out, dict) else out.logits
    np.testing.assert_allclose(found.softmax(-1), want, atol=1e-6)
    assert (out["loss"] if isinstance(out, dict) else out.loss) == 1.0
    np.testing.assert_allclose(calibrated.predict_proba(logits), want, atol=1e-6)


def test_get_logits_finds_them_in_the_fit_and_afterwards(data):
    class Model(nn.Module):
        def forward(self, x):
            return {"heads": [x, 2 * x]}

    logits, labels = (torch.tensor(array) for array in data)
    with pytest.raises(InputError, match="get_logits="):
        calibrate(Model(), [(logits, labels)], "temperature")
    calibrated = calibrate(Model(), [(logits, labels)], "temperature", get_logits=lambda out: out["heads"][1])
    want = rhocal.TemperatureScaling().fit(2 * data[0], data[1])
    np.testing.assert_allclose(calibrated(logits).softmax(-1), want.predict_proba(2 * data[0]), atol=1e-6)
    np.testing.assert_allclose(calibrated.predict_proba(logits), want.predict_proba(2 * data[0]), atol=1e-6)


@pytest.mark.parametrize("method", [name for name in CALIBRATORS if calibrator(name).is_portable])
def test_a_calibrated_model_is_saved_whole(method, data):
    calibrated = Calibrated(nn.Linear(5, 5), fit_map(quick(method), data[0][:200], data[1][:200])).eval()
    stored = io.BytesIO()
    torch.save(calibrated, stored)
    stored.seek(0)
    x = torch.tensor(data[0][:20], dtype=torch.float32)
    with torch.no_grad():
        for again in (pickle.loads(pickle.dumps(calibrated)), torch.load(stored, weights_only=False)):  # noqa: S301
            torch.testing.assert_close(again(x), calibrated(x), rtol=0, atol=0)


# Several processes ----------------------------------------------------------------------------------------------------


DDP = """
import sys, torch
import torch.distributed as dist
from torch import nn
from rhocal.torch import calibrate
rank, store = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
logits, labels = torch.load(sys.argv[3], weights_only=True)
mine = slice(0, 150) if rank == 0 else slice(150, None)
print(calibrate(nn.Identity(), [(logits[mine], labels[mine])], "temperature").fitted.temperature_)
dist.destroy_process_group()
"""


def test_every_process_of_a_group_fits_on_the_logits_of_all(tmp_path, data):
    torch.save(tuple(torch.tensor(array) for array in data), tmp_path / "data.pt")
    started = [
        subprocess.Popen(
            [sys.executable, "-c", DDP, str(rank), str(tmp_path / "store"), str(tmp_path / "data.pt")],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in (0, 1)
    ]  # fmt: skip
    out = [process.communicate(timeout=PATIENCE) for process in started]
    want = rhocal.TemperatureScaling().fit(*data).temperature_
    for (printed, errors), process in zip(out, started, strict=True):
        assert process.returncode == 0, errors
        assert float(printed.split()[-1]) == pytest.approx(want, rel=1e-12)


def test_saving_and_loading_as_the_page_shows_it(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")
    snippet = re.search(r"Save the network as always.*?```python\n(.*?)```", page, re.DOTALL)[1]
    logits, labels = synthetic(200, 4, dtype=np.float32)
    batches = [(torch.tensor(logits), torch.tensor(labels))]
    torch.manual_seed(0)
    model = calibrate(nn.Linear(4, 4), batches, "field", progress=False)
    want = model.predict_proba(batches[0][0])
    names = {"torch": torch, "rhocal": rhocal, "model": model, "network": nn.Linear(4, 4)}
    monkeypatch.chdir(tmp_path)
    exec(snippet, names)  # noqa: S102 - our own page
    assert names["model"] is not model
    torch.testing.assert_close(names["model"].predict_proba(batches[0][0]), want, rtol=0, atol=0)


def test_a_module_with_other_numbers_is_not_saved(tmp_path):
    first, second = (rhocal.TemperatureScaling().fit(*synthetic(200, 4, seed=seed)) for seed in (0, 1))
    module = first.to_torch()
    module.load_state_dict(second.to_torch().state_dict())
    with pytest.raises(InputError, match="load_state_dict"):
        module.save(tmp_path / "cal.safetensors")
    with pytest.raises(InputError, match="made of a map"):
        CalibratorModule(first.map_).save(tmp_path / "cal.safetensors")


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore:.*torch.jit:FutureWarning")
def test_calibrated_models_are_scripted(tmp_path):
    logits, labels = synthetic(200, 4, dtype=np.float32)
    inputs = torch.tensor(logits)
    model = Calibrated(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), rhocal.calibrator("field").fit(logits, labels))
    torch.jit.save(torch.jit.script(model), tmp_path / "model.pt")
    torch.testing.assert_close(torch.jit.load(tmp_path / "model.pt")(inputs), model(inputs), rtol=1e-6, atol=1e-6)
    with pytest.raises(InputError, match="get_logits is set"):
        torch.jit.script(Calibrated(nn.Linear(4, 4), model.fitted, get_logits=lambda output: output))
    with pytest.raises(InputError, match="the model takes input1, input2"):
        torch.jit.script(Calibrated(nn.Bilinear(4, 4, 4), model.fitted))


def test_packages_of_frameworks_are_attributes():
    program = (
        "import rhocal; print(rhocal.torch.calibrate, rhocal.onnx.export, rhocal.sklearn.scorer, rhocal.torch.metrics)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_model_that_gives_probabilities_is_calibrated_as_the_warning_says():
    logits, labels = (torch.as_tensor(part) for part in synthetic(400, 3))
    loader = DataLoader(TensorDataset(logits, labels), batch_size=100)
    with pytest.warns(rhocal.errors.SuspiciousInputWarning, match="kind='probs'"):
        calibrate(nn.Softmax(1), loader, "temperature", progress=False)
    found = calibrate(nn.Softmax(1), loader, "temperature", kind="probs", progress=False)
    want = calibrate(nn.Identity(), loader, "temperature", progress=False)
    torch.testing.assert_close(found.predict_proba(logits), want.predict_proba(logits))
    torch.testing.assert_close(found(logits), want.predict_proba(logits))  # what the model gives: probabilities


def test_one_hot_labels_are_named():
    logits, labels = (torch.as_tensor(part) for part in synthetic(40, 3))
    with pytest.raises(InputError, match=r"one-hot.*argmax\(-1\)"):
        calibrate(nn.Identity(), [(logits, nn.functional.one_hot(labels))], "temperature", progress=False)
