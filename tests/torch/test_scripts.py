"""Modules in TorchScript, with and without a policy."""

import numpy as np
import pytest
import torch

import rhocal
from helpers import synthetic
from rhocal.calibrators.policies.policy import Policy
from rhocal.calibrators.policies.prediction_sets import SetRule

M = 5
POLICIES = {
    "confidence": Policy("confidence", np.array([0.6])),
    "cost": Policy("cost", costs=np.column_stack([1.0 - np.eye(M), np.full(M, 0.3)])),
    "sets": Policy("sets", sets=SetRule("aps", 0.9, np.linspace(0.5, 0.9, M), True, 0.05, 1)),
}


@pytest.fixture(scope="module")
def data():
    logits, labels = synthetic(600, M, seed=1)
    return logits.astype(np.float32), labels


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore:.*torch.jit:FutureWarning")
@pytest.mark.parametrize("method", ["temperature", "rho-norm", "sms:field", "isotonic", "cascade"])
def test_scripts_give_what_modules_give(data, method, tmp_path):
    logits = torch.tensor(data[0][:40])
    cal = rhocal.calibrator(method).fit(*data)
    for output in ("logits", "probs"):
        module = cal.to_torch(output=output)
        torch.jit.save(torch.jit.script(torch.nn.Sequential(torch.nn.Identity(), module)), tmp_path / "model.pt")
        script = torch.jit.load(tmp_path / "model.pt")
        for x in (logits, logits.double(), logits.half(), logits.reshape(4, 10, -1), logits[:0], torch.round(logits)):
            torch.testing.assert_close(script(x), module(x), rtol=1e-6, atol=1e-7)
    images = logits.T.reshape(1, -1, 5, 8)
    module = cal.to_torch(class_axis=1)
    torch.testing.assert_close(torch.jit.script(module)(images), module(images), rtol=1e-6, atol=1e-7)
    assert module.class_axis == 1
    with pytest.raises(torch.jit.Error, match="number of classes"):
        script(logits[:, :3])


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore:.*torch.jit:FutureWarning")
@pytest.mark.parametrize("output", ["logits", "probs"])
@pytest.mark.parametrize("rule", POLICIES)
def test_scripts_decide_as_modules_do(rule, output, tmp_path):
    logits, labels = synthetic(400, M)
    cal = rhocal.TemperatureScaling().fit(logits, labels)
    cal.policy_ = POLICIES[rule]
    x = torch.tensor(logits[:40])
    module = cal.to_torch(output=output, decide=True)
    torch.jit.save(torch.jit.script(module), tmp_path / "model.pt")
    script = torch.jit.load(tmp_path / "model.pt")
    images = x.T.reshape(1, M, 5, 8)
    other = cal.to_torch(output=output, class_axis=1, decide=True)
    forms = [(script, module, one) for one in (x, x.double(), x.half(), x.reshape(4, 10, M), x[:0])]
    for scripted, eager, scores in (*forms, (torch.jit.script(other), other, images)):
        got, want = scripted(scores), eager(scores)
        assert len(got) == len(want) == (4 if rule == "sets" else 3)
        for one, expected in zip(got, want, strict=True):
            torch.testing.assert_close(one, expected, rtol=1e-6, atol=1e-7)
    assert (other.class_axis, other.probs.class_axis) == (1, 1)
    assert 0 < want[2].float().mean() < 1
