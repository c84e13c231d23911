"""skl2onnx and onnxruntime"""  # packages: skl2onnx onnx onnxruntime

import numpy as np
import onnxruntime
import skl2onnx
from _tables import table
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import rhocal
import rhocal.onnx

(X, y), (X_val, y_val), (X_test, y_test) = table()
pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)

# begin
cal = rhocal.RhoNormScaling().fit(pipeline.predict_proba(X_val), y_val, kind="probs")
rhocal.onnx.export(cal, skl2onnx.to_onnx(pipeline, X[:1]), "calibrated.onnx")
session = onnxruntime.InferenceSession("calibrated.onnx", providers=["CPUExecutionProvider"])
label, probs = session.run(None, {"X": X_test})
# end

assert np.abs(probs - cal.predict_proba(pipeline.predict_proba(X_test))).max() < 1e-6
assert (label == probs.argmax(axis=1)).all()
