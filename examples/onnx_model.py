"""A calibrator behind an ONNX model: the Softmax is replaced, everything else stays.

    python examples/onnx_model.py

The same from the command line: rhocal export cal.safetensors model.onnx -o calibrated.onnx
"""

import tempfile
import warnings
from pathlib import Path

import onnxruntime
import torch
from torch import nn

import rhocal
from rhocal.onnx import export

logits, labels = rhocal.demo_logits("cal")
test, test_labels = rhocal.demo_logits("test")
cal = rhocal.RhoNormScaling().fit(logits, labels)

with tempfile.TemporaryDirectory() as folder:
    model, calibrated = Path(folder) / "model.onnx", Path(folder) / "calibrated.onnx"
    # Any exporter will do; this model gives its input back as probabilities.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.onnx.export(
            nn.Softmax(dim=-1), (torch.tensor(test[:2]),), model, dynamo=False, opset_version=17,
            input_names=["x"], output_names=["probs"], dynamic_axes={"x": {0: "batch"}, "probs": {0: "batch"}},
        )  # fmt: skip
    done = export(cal, model, calibrated)
    print(f"{done.output} holds {done.holds}, in the place of its {done.replaced}; proved to {done.difference:.0e}")
    for name, path in (("as it was", model), ("calibrated", calibrated)):
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        (probs,) = session.run(["probs"], {"x": test})
        print(f"{name}: ECE {rhocal.metrics.ece(probs, test_labels):.4f}")
