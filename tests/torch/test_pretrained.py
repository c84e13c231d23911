"""Models of transformers: their arguments, loss and folders; with the package itself where it is installed."""

import inspect
import pickle
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import rhocal
from helpers import synthetic
from rhocal.torch import Calibrated, calibrate

Z, Y = (torch.tensor(array) for array in synthetic(300, 4, seed=2))


class Pretrained(nn.Module):
    """The part of ``PreTrainedModel`` that is used."""

    def __init__(self, shift=0, smoothing=0.0):
        super().__init__()
        self.config, self.shift, self.smoothing = SimpleNamespace(model_type="stand-in"), shift, smoothing

    def forward(self, input_ids=None, attention_mask=None, labels=None):
        logits = input_ids * 1.0
        loss = None
        if labels is not None:
            z, y = (logits[:, :-1], labels[:, 1:]) if self.shift else (logits, labels)
            smoothing = {"label_smoothing": self.smoothing}
            loss = nn.functional.cross_entropy(z.reshape(-1, z.shape[-1]), y.reshape(-1), **smoothing)
        return {"loss": loss, "logits": logits, "mask": attention_mask}

    def save_pretrained(self, folder):
        Path(folder, "config.json").write_text("{}")


def test_a_calibrated_model_has_the_arguments_and_folders_of_its_model(tmp_path):
    calibrated = calibrate(Pretrained(), [{"input_ids": Z, "labels": Y}], "temperature")
    assert isinstance(calibrated, Calibrated)
    for forward in (calibrated.forward, type(calibrated).forward):  # Trainer looks at both
        assert {"input_ids", "attention_mask", "labels"} <= set(inspect.signature(forward).parameters)
    assert calibrated.config.model_type == "stand-in"
    calibrated.save_pretrained(tmp_path)
    again = Calibrated(Pretrained(), rhocal.load(tmp_path / "calibrator.safetensors"))
    copy = pickle.loads(pickle.dumps(calibrated))  # noqa: S301
    for other in (again, copy):
        torch.testing.assert_close(other(input_ids=Z)["logits"], calibrated(Z)["logits"])
        assert type(other) is type(calibrated)
    assert type(Calibrated(nn.Identity(), calibrated.fitted)) is Calibrated


@pytest.mark.parametrize("shift", [0, 1])
def test_the_loss_is_that_of_the_calibrated_logits(shift):
    z, y = Z.reshape(30, 10, 4), Y.reshape(30, 10).clone()
    y[0, 5] = -100
    calibrated = calibrate(Pretrained(shift), [{"input_ids": z, "labels": y}], "temperature")
    out = calibrated(input_ids=z, labels=y)
    logits, labels = (out["logits"][:, :-1], y[:, 1:]) if shift else (out["logits"], y)
    want = nn.functional.cross_entropy(logits.reshape(-1, 4), labels.reshape(-1))
    torch.testing.assert_close(out["loss"], want)
    assert out["loss"] < Pretrained(shift)(z, labels=y)["loss"]


def test_a_loss_that_is_not_known_is_left_out():
    calibrated = calibrate(Pretrained(smoothing=0.1), [{"input_ids": Z, "labels": Y}], "temperature")
    assert calibrated(input_ids=Z, labels=Y)["loss"] is None
    assert calibrated(input_ids=Z)["loss"] is None


def test_trainer_evaluates_a_calibrated_model(tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.BertConfig(vocab_size=50, num_labels=3, **sizes)
    model = transformers.BertForSequenceClassification(config)
    rows = [{"input_ids": torch.randint(0, 50, (6,)), "labels": k % 3} for k in range(40)]
    batch = {"input_ids": torch.stack([row["input_ids"] for row in rows]), "labels": torch.arange(40) % 3}
    calibrated = calibrate(model, [batch], "temperature").eval()
    arguments = transformers.TrainingArguments(str(tmp_path), report_to=[], use_cpu=True, disable_tqdm=True)
    metrics = transformers.Trainer(calibrated, arguments, eval_dataset=rows).evaluate()
    with torch.no_grad():
        want = nn.functional.cross_entropy(calibrated(**batch).logits, batch["labels"])
    assert metrics["eval_loss"] == pytest.approx(float(want), abs=1e-5)
    calibrated.save_pretrained(tmp_path)
    again = transformers.BertForSequenceClassification.from_pretrained(tmp_path)
    again = Calibrated(again, rhocal.load(tmp_path / "calibrator.safetensors")).eval()
    torch.testing.assert_close(again(**batch).logits, calibrated(**batch).logits)
