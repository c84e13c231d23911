"""JAX"""  # packages: jax jaxlib

import jax
import numpy as np
from _tables import logits

import rhocal

values, labels = logits()
cal = rhocal.FieldScaling().fit(values, labels)

# begin
apply, parameters = cal.apply_fn(xp=jax.numpy)  # pure
probs = jax.jit(apply)(parameters, values)
# end

assert np.abs(np.asarray(probs) - cal.predict_proba(values)).max() < 3e-6
one_by_one = jax.vmap(apply, in_axes=(None, 0))(parameters, values)
assert np.abs(np.asarray(one_by_one - probs)).max() < 1e-6
slope = jax.grad(lambda z: jax.numpy.log(apply(parameters, z)[:, 0]).sum())(values)
assert np.isfinite(np.asarray(slope)).all()
