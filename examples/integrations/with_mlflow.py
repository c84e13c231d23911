"""MLflow"""  # packages: mlflow

import mlflow
import numpy as np
import pandas as pd
from _tables import logits

import rhocal

mlflow.set_tracking_uri("sqlite:///runs.db")
values, labels = logits(1500, 3)
cal = rhocal.VectorScaling().fit(values[:1000], labels[:1000])
frame = pd.DataFrame(values[1000:]).assign(label=labels[1000:])

# begin
import rhocal.integrations.mlflow

info = rhocal.integrations.mlflow.log_model(cal, "calibrator")  # pyfunc; nothing is pickled
probs = mlflow.pyfunc.load_model(info.model_uri).predict(values)
options = {"targets": "label", "model_type": "classifier", "evaluators": "rhocal"}
result = mlflow.models.evaluate(info.model_uri, frame, **options)
mlflow.log_metrics(rhocal.evaluate(probs, labels).metrics("all_"))
# end

assert np.abs(probs - cal.predict_proba(values)).max() == 0
assert abs(result.metrics["ece"] - rhocal.metrics.ece(probs[1000:], labels[1000:])) < 1e-9
assert repr(rhocal.integrations.mlflow.load_calibrator(info.model_uri)) == repr(cal)
