"""A fitted calibrator as a pure function of its parameters, for JAX, NumPy, or anything that pickles functions.

    python examples/plain_function.py

With JAX: `apply, parameters = cal.apply_fn(xp=jax.numpy)`, then `jax.jit(apply)(parameters, logits)`.
"""

import numpy as np

import rhocal

cal = rhocal.FieldScaling().fit(*rhocal.demo_logits("cal"))
apply, parameters = cal.apply_fn()

logits, labels = rhocal.demo_logits("test")
probs = apply(parameters, logits)
print(f"{len(parameters)} parameters: {', '.join(parameters)}")
print(f"largest difference from predict_proba: {np.abs(probs - cal.predict_proba(logits)).max():.0e}")
print(f"ECE {rhocal.metrics.ece(probs, labels):.4f}")
