"""The map of a calibrator for torch, ONNX, SQL and plain functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rhocal.calibrators.map import Map, calibrate
from rhocal.data.labels.per_sample import positive_column
from rhocal.errors import InputError
from rhocal.numerics.numpy_ops import ArrayOps
from rhocal.numerics.ops import Parameters

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.calibrators.base import Calibrator


MAX_SINGLE_GAP = 1e12
"""Gap of masks up to which single precision carries out a map. It is at least 32 times the largest difference of logits in the
calibration set: beyond, numbers of the map or products with logits leave the range of single precision."""

Output = Literal["probs", "logits"]
ApplyFn = Callable[[Parameters, Any], Any]


def exported_map(calibrator: Calibrator) -> Map:
    """The fitted map of a calibrator; an error if torch, ONNX and ``apply_fn`` cannot carry it out."""
    map_ = calibrator.map_
    if not calibrator.is_portable:
        from rhocal.calibrators import CALIBRATORS  # noqa: PLC0415 - the registry imports this module

        able = ", ".join(name for name, method in CALIBRATORS.items() if method.family.is_portable)
        with_so_many = f" with {map_.n_classes:,} classes" if type(calibrator).is_portable else ""
        raise InputError(
            f"{calibrator.label}{with_so_many} cannot be exported to torch, ONNX or a plain function; these can: {able}"
        )
    is_wide = map_.is_wide or MAX_SINGLE_GAP < map_.mask_gap < np.inf
    return replace(map_, single_column=single_column(calibrator), is_wide=is_wide)


def single_column(calibrator: Calibrator) -> int:
    """The column of the class that a single score belongs to: the positive class, if one was stated, else the second."""
    positive = calibrator.positive_
    return 1 if positive is None else positive_column(positive, calibrator.classes_)


def wants_probs(output: str) -> bool:
    """Whether probabilities are asked for."""
    if output not in {"probs", "logits"}:
        raise InputError(f"output is probs or logits; got {output!r}")
    return output == "probs"


def pure_function(calibrator: Calibrator, output: Output, xp: Any) -> tuple[ApplyFn, dict[str, NDArray[Any]]]:
    """The function and the parameters of ``Calibrator.apply_fn``."""
    map_, probs = exported_map(calibrator), wants_probs(output)
    if map_.is_wide and ArrayOps(xp).dtype != np.float64:
        raise InputError(
            f"{calibrator.label} is computed in double precision, and {getattr(xp, '__name__', xp)} has single precision only; "
            "with JAX: jax.config.update('jax_enable_x64', True)",
            argument="xp",
        )

    def apply(parameters: Parameters, logits: Any) -> Any:
        z = xp.asarray(logits)
        if z.ndim == 0 or z.shape[-1] != map_.n_classes:
            raise InputError(
                f"logits of shape {tuple(z.shape)} have the classes on the last axis, and the calibrator was fitted "
                f"with {map_.n_classes} of them"
            )
        double = map_.is_wide or "float32" not in str(z.dtype)
        ops = ArrayOps(xp, np.float64 if double else np.float32)
        held = {**map_.parameters, **{name: ops.constant(value) for name, value in parameters.items()}}
        with np.errstate(over="ignore"):  # a norm may be infinite in single precision: its scale is 0
            is_rounded = "float64" not in str(z.dtype)
            out = calibrate(ops, map_, held, ops.constant(z), probs=probs, is_rounded=is_rounded)
        return xp.asarray(out, dtype=z.dtype)

    return apply, map_.arrays
