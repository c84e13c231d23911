"""Rows without a softmax (NaN, +∞, −∞ alone) give NaN wherever nothing is validated, as in torch's own softmax."""

import numpy as np
import onnxruntime
import pytest
import torch

import rhocal
from helpers import synthetic
from rhocal.errors import InputError

Z, Y = synthetic(300, 3)
METHODS = ["temperature", "rho-norm", "field", "ets", "polynomial", "isotonic", "svs:field"]
UNDEFINED = np.array(
    [[5, np.nan, 0], [np.nan, 5, 0], [np.nan] * 3, [-np.inf] * 3, [np.inf, 0, 1], [-np.inf, np.nan, 1]]
)
DEFINED = np.array([[5.0, 1, 0], [-np.inf, 5, 0], [0, 0, 0]])


@pytest.mark.parametrize("method", METHODS)
def test_undefined_rows_are_nan(method, tmp_path):
    cal = rhocal.calibrator(method).fit(Z, Y)
    cal.to_onnx(tmp_path / "cal.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "cal.onnx")
    function, parameters = cal.apply_fn()
    module = cal.to_torch(output="probs")
    runs = {
        "torch": lambda z: module(torch.tensor(z)),
        "single precision": lambda z: module(torch.tensor(z, dtype=torch.float32)),
        "onnx": lambda z: session.run(None, {"logits": z.astype(np.float32)})[0],
        "function": lambda z: function(parameters, z),
    }
    for name, run in runs.items():
        with np.errstate(invalid="ignore"):
            out = np.asarray(run(np.concatenate([UNDEFINED, DEFINED])))
        assert np.isnan(out[: len(UNDEFINED)]).all(), name
        np.testing.assert_allclose(out[len(UNDEFINED) :], cal.predict_proba(DEFINED), atol=1e-5, err_msg=name)


@pytest.mark.parametrize("kind", ["probs", "log_probs"])
def test_undefined_probabilities_are_nan(kind):
    p = np.exp(Z) / np.exp(Z).sum(axis=1, keepdims=True)
    cal = rhocal.TemperatureScaling().fit(p if kind == "probs" else np.log(p), Y, kind=kind)
    rows = torch.tensor([[0.5, np.nan, 0.5], [np.nan] * 3])
    assert cal.to_torch(output="probs")(rows).isnan().all()


def test_gradients_pass_rows_that_are_defined():
    cal = rhocal.calibrator("field").fit(Z, Y)
    z = torch.tensor(np.concatenate([DEFINED[:1], UNDEFINED[:1]]), requires_grad=True)
    cal.to_torch(output="probs")(z)[0, 0].backward()
    assert z.grad[0].isfinite().all()
    assert z.grad[0].abs().max() > 0


@pytest.mark.parametrize("shape", [(2, 1), (2, 5), (3,), ()])
@pytest.mark.parametrize("method", ["temperature", "platt"])
def test_a_plain_function_takes_as_many_classes_as_the_fit(method, shape):
    function, parameters = rhocal.calibrator(method).fit(Z[:, :2], Y % 2).apply_fn()
    assert function(parameters, np.zeros((4, 3, 2))).shape == (4, 3, 2)
    with pytest.raises(InputError, match="fitted with 2 of them"):
        function(parameters, np.zeros(shape))
