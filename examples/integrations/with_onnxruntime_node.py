"""JavaScript: onnxruntime-node"""  # packages: onnx; npm: onnxruntime-node; needs: node

import json
import os
import subprocess
from pathlib import Path

import numpy as np
from _tables import logits

import rhocal

values, labels = logits()
cal = rhocal.FieldScaling().fit(values, labels)
test = values[:200]

# begin
cal.to_onnx("calibrator.onnx")
Path("run.js").write_text("""
const ort = require("onnxruntime-node");
(async () => {
  const session = await ort.InferenceSession.create("calibrator.onnx");
  const {rows, dims} = JSON.parse(require("fs").readFileSync("logits.json"));
  const {calibrated_probs} = await session.run({logits: new ort.Tensor("float32", Float32Array.from(rows), dims)});
  console.log(JSON.stringify(Array.from(calibrated_probs.data)));
})();
""")
# end

Path("logits.json").write_text(json.dumps({"rows": test.ravel().tolist(), "dims": test.shape}))
environment = os.environ | {"NODE_PATH": os.environ["RHOCAL_NODE_MODULES"]}
done = subprocess.run(["node", "run.js"], capture_output=True, text=True, env=environment, check=False)
assert done.returncode == 0, done.stderr
probs = np.array(json.loads(done.stdout)).reshape(test.shape)
assert np.abs(probs - cal.predict_proba(test)).max() < 2e-6
assert (probs.argmax(axis=1) == test.argmax(axis=1)).all()
