"""The plain function of a calibrator in JAX: compiled, mapped over samples, and its gradient."""

import numpy as np
import pytest

import rhocal
from helpers import fit_map, quick
from rhocal.calibrators.registry import CALIBRATORS, calibrator
from rhocal.errors import InputError

jax = pytest.importorskip("jax", reason="pip install 'rhocal[jax]'")

N = 200
QUICKLY = {"xla_backend_optimization_level": 0}
"""Most of the time of these tests is that of the compiler."""
EXPORTABLE = [name for name in CALIBRATORS if calibrator(name).is_portable]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    truth = 2 * rng.normal(size=(N, 4))
    return 2 * truth, (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)


@pytest.mark.parametrize("name", EXPORTABLE)
def test_jax_agrees_with_numpy_under_jit_vmap_and_grad(name, data):
    logits, labels = data
    cal = fit_map(quick(name), logits, labels)
    with jax.enable_x64(True):
        apply, parameters = cal.apply_fn(xp=jax.numpy)

        def loss(logits, label):
            probs = apply(parameters, logits)
            return -jax.numpy.log(probs[label] + 1e-9), probs

        gradient = jax.vmap(jax.value_and_grad(loss, has_aux=True))
        (_, mapped), slope = jax.jit(gradient, compiler_options=QUICKLY)(logits, labels)
        probs = apply(parameters, logits)
    for values in (mapped, probs):
        np.testing.assert_allclose(np.asarray(values), cal.predict_proba(logits), atol=1e-9, rtol=0)
    slope = np.asarray(slope)
    assert np.isfinite(slope).all()


@pytest.mark.parametrize("name", ["average", "svs", "field"])
def test_gradients_do_not_depend_on_optimizations_of_the_compiler(name, data):
    """Entries that are computed twice may differ in the last bit: the slope of a maximum was 0/0 in a quarter of the rows."""
    logits, labels = data
    cal = quick(name).fit(logits, labels)
    with jax.enable_x64(True):
        apply, parameters = cal.apply_fn(xp=jax.numpy)
        slope = jax.jit(jax.grad(lambda logits: apply(parameters, logits)[:, 0].sum())).lower(logits)
        slopes = [slope.compile({"xla_backend_optimization_level": level})(logits) for level in (0, 3)]
    np.testing.assert_allclose(*(np.asarray(one) for one in slopes), atol=1e-12)


def test_single_precision_stays_and_is_enough_for_scale_maps(data):
    logits, labels = data
    cal = rhocal.RhoNormScaling().fit(logits, labels)
    apply, parameters = cal.apply_fn(xp=jax.numpy)
    probs = jax.jit(apply)(parameters, logits.astype(np.float32))
    assert probs.dtype == np.float32
    np.testing.assert_allclose(np.asarray(probs), cal.predict_proba(logits), atol=3e-6, rtol=0)


def test_a_map_in_double_precision_is_refused_in_single(data):
    cal = calibrator("venn-abers").fit(*data)
    with pytest.raises(InputError, match="jax_enable_x64"):
        cal.apply_fn(xp=jax.numpy)
