"""A fitted calibrator as a layer of Keras 3, whatever its backend. The only importer of Keras.

>>> from rhocal.integrations.keras import CalibrationLayer  # doctest: +SKIP
>>> calibrated = keras.Sequential([model, CalibrationLayer(cal)])  # doctest: +SKIP
>>> calibrated.save("calibrated.keras")  # doctest: +SKIP

The layer computes in single precision under any policy, mixed precision included, except for maps of a class's probability
(isotonic and the like), which need double precision; JAX has it with ``jax_enable_x64``.
"""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.artifact import load
from rhocal.calibrators.exporting import exported_map, wants_probs
from rhocal.calibrators.map import calibrate
from rhocal.errors import InputError, MissingExtraError
from rhocal.numerics.numpy_ops import ArrayOps

try:
    import keras as _keras
except ImportError as error:
    raise MissingExtraError("keras", "keras", "layers of Keras") from error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rhocal.calibrators import Calibrator
    from rhocal.numerics.ops import Ops, Value

engine: Any = _keras


class KerasOps(ArrayOps):
    """Operations of ``keras.ops`` in one floating type."""

    def __init__(self, dtype: str) -> None:
        self.xp, self.name = engine.ops, dtype
        info = np.finfo(dtype)
        self.tiny, self.eps = float(info.tiny), float(info.eps)

    def cumsum(self, x: Value) -> Value:
        return self.xp.cumsum(x, axis=-1)

    def top(self, x: Value, k: int) -> Value:
        return self.xp.top_k(x, k)[0]

    def power(self, x: Value, exponent: Value) -> Value:
        return self.xp.power(x, exponent)

    def take(self, table: Value, index: Value) -> Value:
        return self.xp.take(table, index)

    def concat(self, parts: Sequence[Value]) -> Value:
        return self.xp.concatenate(list(parts), axis=-1)

    def _number(self, x: Value) -> Value:
        return self.xp.convert_to_tensor(x, self.name) if isinstance(x, float) else x


def _ops(dtype: str, scores: Any) -> Ops:
    """Those of torch itself where it is the backend: ``keras.ops`` there computes products of doubles in single precision."""
    if engine.backend.backend() != "torch":
        return KerasOps(dtype)
    from rhocal.torch.ops import TorchOps  # noqa: PLC0415 - torch is there if it is the backend

    return TorchOps(scores.dtype)


def _constant(value: Any, dtype: str) -> Value:
    """An array of the map: floats in the type of the computation, others as they are."""
    array = np.asarray(value)
    return engine.ops.convert_to_tensor(array if array.dtype.kind in "iub" else array.astype(dtype))


@engine.saving.register_keras_serializable("rhocal")
class CalibrationLayer(engine.layers.Layer):  # type: ignore[misc]
    """Logits in, calibrated ``"probs"`` or ``"logits"`` out, with the classes on the last axis.

    It is saved with its model: the configuration holds the artifact of the calibrator, numbers and no code.
    """

    def __init__(self, calibrator: Calibrator, *, output: str = "probs", **arguments: Any) -> None:
        self.gives_probs, self.output_kind = wants_probs(output), output
        self.map_ = exported_map(calibrator)
        dtype = "float64" if self.map_.is_wide else "float32"
        if str(engine.backend.standardize_dtype(engine.ops.convert_to_tensor(0.0, dtype).dtype)) != dtype:
            raise InputError(
                f"{calibrator.label} is computed in double precision, which JAX has with "
                "jax.config.update('jax_enable_x64', True)"
            )
        super().__init__(**{"name": "calibration", **arguments, "dtype": dtype, "trainable": False})
        self.calibrator, self.precision = calibrator, dtype

    def call(self, logits: Any) -> Any:
        """Calibrate."""
        scores = engine.ops.cast(engine.ops.convert_to_tensor(logits), self.precision)
        arrays = {name: _constant(value, self.precision) for name, value in self.map_.arrays.items()}
        held = {**self.map_.parameters, **arrays}
        return calibrate(_ops(self.precision, scores), self.map_, held, scores, probs=self.gives_probs)

    def compute_output_shape(self, shape: Any) -> Any:
        """The shape that came."""
        return shape

    def get_config(self) -> dict[str, Any]:
        """What the layer is made from again."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "calibrator.safetensors"
            self.calibrator.save(path)
            artifact = base64.b64encode(path.read_bytes()).decode()
        return {"name": self.name, "output": self.output_kind, "artifact": artifact}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> CalibrationLayer:
        """The layer of a saved model."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "calibrator.safetensors"
            path.write_bytes(base64.b64decode(config["artifact"]))
            return cls(load(path), output=config["output"], name=config["name"])
