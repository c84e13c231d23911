"""CatBoost, also as ONNX"""  # packages: catboost onnxruntime

import numpy as np
import onnxruntime
from _tables import table
from catboost import CatBoostClassifier

import rhocal
import rhocal.onnx
from rhocal.sklearn import CalibratedClassifier

(X, y), (X_val, y_val), (X_test, y_test) = table()

# begin
model = CatBoostClassifier(iterations=100, verbose=0, allow_writing_files=False).fit(X, y)
calibrated = CalibratedClassifier(model, cv="prefit").fit(X_val, y_val)

model.save_model("model.onnx", format="onnx")
cal = rhocal.StructuredScaling().fit(model.predict_proba(X_val), y_val, kind="probs")
rhocal.onnx.export(cal, "model.onnx", "calibrated.onnx")
# end

session = onnxruntime.InferenceSession("calibrated.onnx", providers=["CPUExecutionProvider"])
label, probs = sorted(session.run(None, {session.get_inputs()[0].name: X_test}), key=np.ndim)
assert np.abs(probs - cal.predict_proba(model.predict_proba(X_test))).max() < 1e-6
assert (label == probs.argmax(axis=1)).all()
assert calibrated.predict_proba(X_test).shape == (600, 3)
