"""LightGBM, also as ONNX"""  # packages: lightgbm onnxmltools onnxruntime

import numpy as np
import onnxruntime
from _tables import table
from lightgbm import LGBMClassifier
from onnxmltools import convert_lightgbm
from onnxmltools.convert.common.data_types import FloatTensorType

import rhocal
import rhocal.onnx
from rhocal.sklearn import CalibratedClassifier

(X, y), (X_val, y_val), (X_test, y_test) = table()

# begin
model = LGBMClassifier(n_estimators=40, verbose=-1).fit(X, y)
calibrated = CalibratedClassifier(model, cv="prefit").fit(X_val, y_val)

graph = convert_lightgbm(model, initial_types=[("input", FloatTensorType([None, X.shape[1]]))])
cal = rhocal.StructuredScaling().fit(model.predict_proba(X_val), y_val, kind="probs")
rhocal.onnx.export(cal, graph, "calibrated.onnx")
# end

session = onnxruntime.InferenceSession("calibrated.onnx", providers=["CPUExecutionProvider"])
label, probs = sorted(session.run(None, {"input": X_test}), key=np.ndim)
want = cal.predict_proba(model.predict_proba(X_test).astype(np.float64))
assert np.abs(probs - want).max() < 1e-6
assert (label == probs.argmax(axis=1)).all()
plain = model.predict_proba(X_test)
assert rhocal.metrics.nll(calibrated.predict_proba(X_test), y_test) < rhocal.metrics.nll(plain, y_test)
