"""The layer of Keras 3 on the backend of ``KERAS_BACKEND``; `make integrations` runs it with JAX and with torch."""

import os

import numpy as np
import pytest

import rhocal
from rhocal.calibrators.registry import CALIBRATORS, calibrator
from rhocal.errors import InputError

BACKENDS = ("jax", "torch", "tensorflow")
if os.environ.get("KERAS_BACKEND", "jax") not in BACKENDS:
    pytest.skip("KERAS_BACKEND names another backend", allow_module_level=True)
os.environ.setdefault("KERAS_BACKEND", "jax")
keras = pytest.importorskip("keras", reason="pip install keras; `make integrations` runs this")
from rhocal.integrations.keras import CalibrationLayer  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of Keras
EXPORTABLE = [name for name in CALIBRATORS if calibrator(name).is_portable]
JAX = keras.backend.backend() == "jax"


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    truth = 2 * rng.normal(size=(300, 4))
    return np.float32(2 * truth), (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)


@pytest.fixture(scope="module", autouse=True)
def double():
    """JAX with double precision, where this is the backend."""
    if not JAX:
        yield
        return
    import jax

    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("name", EXPORTABLE)
def test_a_layer_gives_what_the_calibrator_gives(name, data):
    cal = calibrator(name).fit(*data)
    probs = keras.ops.convert_to_numpy(CalibrationLayer(cal)(data[0]))
    np.testing.assert_allclose(probs, cal.predict_proba(data[0]), atol=3e-6, rtol=0)


@pytest.mark.parametrize("name", ["rho-norm", "isotonic"])
def test_a_model_is_saved_with_its_layer(name, data, tmp_path):
    cal = calibrator(name).fit(*data)
    inputs = keras.Input((4,))
    model = keras.Model(inputs, CalibrationLayer(cal, output="logits")(inputs))
    want = model.predict(data[0], verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again.predict(data[0], verbose=0), want)
    e = np.exp(want - want.max(axis=1, keepdims=True))
    np.testing.assert_allclose(e / e.sum(axis=1, keepdims=True), cal.predict_proba(data[0]), atol=1e-5)


def test_mixed_precision_does_not_round_the_map(data):
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        cal = rhocal.RhoNormScaling().fit(*data)
        half = data[0].astype(np.float16)
        probs = keras.ops.convert_to_numpy(CalibrationLayer(cal)(half))
    finally:
        keras.mixed_precision.set_global_policy("float32")
    assert probs.dtype == np.float32
    np.testing.assert_allclose(probs, cal.predict_proba(half), atol=3e-6, rtol=0)


@pytest.mark.skipif(not JAX, reason="only JAX may lack double precision")
def test_a_map_in_double_precision_is_refused_in_single(data):
    import jax

    with jax.enable_x64(False), pytest.raises(InputError, match="jax_enable_x64"):
        CalibrationLayer(calibrator("venn-abers").fit(*data))
