"""Keras 3 (JAX and torch)"""  # packages: keras

import os
import subprocess
import sys

os.environ.setdefault("KERAS_BACKEND", "jax")
import keras
import numpy as np
from _tables import logits

import rhocal
from rhocal.integrations.keras import CalibrationLayer

values, labels = logits()
model = keras.Sequential([keras.Input((10,)), keras.layers.Dense(10, use_bias=False, kernel_initializer="identity")])

# begin
cal = rhocal.RhoNormScaling().fit(model.predict(values), labels)
calibrated = keras.Sequential([model, CalibrationLayer(cal)])
calibrated.save("calibrated.keras")
probs = keras.models.load_model("calibrated.keras").predict(values)
# end

assert np.abs(probs - cal.predict_proba(values)).max() < 3e-6
if keras.backend.backend() == "jax":
    subprocess.run([sys.executable, __file__], env=os.environ | {"KERAS_BACKEND": "torch"}, check=True)
