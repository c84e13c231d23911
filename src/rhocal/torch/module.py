"""A fitted map as a module: its numbers are buffers, in ``state_dict`` and on the device of the model."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from torch import Tensor, nn

from rhocal.calibrators.exporting import wants_probs
from rhocal.calibrators.map import calibrate, two_columns
from rhocal.errors import InputError
from rhocal.torch.eager import EagerRows
from rhocal.torch.ops import TorchOps

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

    from rhocal.calibrators import Calibrator
    from rhocal.calibrators.map import Map


class ExactBuffers(nn.Module):
    """A module whose own numbers move with the model and keep their precision: ``half()`` does not round them."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:  # noqa: FBT001, FBT002 - torch's signature
        """Move with the model, but keep the precision of the fitted numbers."""
        kept = dict(self._buffers)
        try:
            super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        except TypeError:  # a device without double precision
            for name, value in kept.items():
                if value is not None and value.dtype == torch.float64:
                    self._buffers[name] = value.float()
            super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
            return self
        for name, value in kept.items():
            moved = self._buffers[name]
            if value is not None and moved is not None and value.dtype != moved.dtype:
                self._buffers[name] = value.to(moved.device)
        return self


class CalibratorModule(ExactBuffers):
    """Logits in, calibrated logits or probabilities out, for any leading axes.

    Half precision, autocast included, is worked out in single precision; logits come back in the type that came,
    probabilities at least in single precision (in bfloat16 two classes of .498 and .5 would be tied). Maps of a class's
    probability (isotonic and the like) are worked out in double precision where the device has it. ``half()`` and
    ``bfloat16()`` do not touch the fitted numbers. Calibrated logits of maps that keep the decision have their largest
    entry at 0: a shift of all logits of a sample, which softmax does not see.
    """

    def __init__(
        self, map_: Map, *, output: str = "logits", class_axis: int = -1, fitted: Calibrator | None = None
    ) -> None:
        super().__init__()
        self.fitted = fitted
        self._gives_probs = wants_probs(output)
        self.map_, self.output, self.class_axis = map_, output, class_axis
        for name, value in map_.arrays.items():
            self.register_buffer(_buffer(name), torch.from_numpy(np.array(value)))
        self._rows = EagerRows()

    def forward(self, logits: Tensor) -> Tensor:
        """Calibrate; the classes are on ``class_axis``, or there is one score for the positive class of two."""
        if not logits.is_floating_point() and logits.is_complex():
            raise InputError(f"logits are complex ({logits.dtype}); pass real numbers")
        if logits.layout != torch.strided or logits.is_quantized or logits.is_nested or logits.dim() == 0:
            raise InputError("logits are sparse, quantized, nested or a single number; pass a dense tensor of scores")
        double = logits.dtype == torch.float64 or (self.map_.is_wide and logits.device.type != "mps")
        dtype = torch.float64 if double else torch.float32
        if self.class_axis == -1 and (short := self._rows.calibrated(self, logits)) is not None:
            return short
        ops = TorchOps(dtype)
        z, axis = self._as_table(ops, logits)
        held = {name: _in(self.get_buffer(_buffer(name)), dtype) for name in self.map_.arrays}
        probs = self._gives_probs
        is_rounded = logits.dtype != torch.float64
        numbers = {**self.map_.parameters, **held}
        out = calibrate(ops, self.map_, numbers, z.to(dtype), probs=probs, is_rounded=is_rounded)
        out = _back(out, logits.dtype, probs=probs)
        return out if axis == -1 else out.movedim(-1, axis)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the calibrator that the module was made of, as ``Calibrator.save`` does; ``rhocal.load`` reads it."""
        if self.fitted is None:
            raise InputError("this module was made of a map; save the calibrator that it came from")
        for name, value in self.map_.arrays.items():
            if not np.array_equal(self.get_buffer(_buffer(name)).cpu().numpy(), value, equal_nan=True):
                raise InputError(
                    "the numbers of this module are not those of its calibrator (load_state_dict changed them); save the "
                    "calibrator whose numbers they are"
                )
        self.fitted.save(path)

    def __prepare_scriptable__(self) -> nn.Module:
        """What ``torch.jit.script`` compiles in the place of this module."""
        from rhocal.torch.script import ScriptableCalibrator  # noqa: PLC0415 - it is about this module

        return ScriptableCalibrator(self)

    def extra_repr(self) -> str:
        return f"{self.map_.n_classes} classes, output={self.output!r}, class_axis={self.class_axis}"

    def _as_table(self, ops: TorchOps, scores: Tensor) -> tuple[Tensor, int]:
        """Two or more classes on the last axis, and where they are to go back."""
        m = self.map_.n_classes
        flat = scores.dim() == 1
        n_columns = 1 if flat else _size(scores, self.class_axis)
        if n_columns == 1 and m == 2:
            score = scores[:, None] if flat else scores.movedim(self.class_axis, -1)
            return two_columns(ops, self.map_, score), -1 if flat else self.class_axis
        if n_columns != m:
            raise InputError(
                f"logits of shape {tuple(scores.shape)} have {n_columns} classes on axis {self.class_axis}, but the "
                f"calibrator was fitted with {m}; the axis of the classes is class_axis"
            )
        return (scores, -1) if self.class_axis == -1 else (scores.movedim(self.class_axis, -1), self.class_axis)


def _buffer(name: str) -> str:
    return name.replace(".", "__")


def _in(value: Tensor, dtype: torch.dtype) -> Tensor:
    return value.to(dtype) if value.is_floating_point() else value


def _back(out: Tensor, stored: torch.dtype, *, probs: bool) -> Tensor:
    if not stored.is_floating_point:
        return out
    dtype = torch.promote_types(stored, torch.float32) if probs else stored
    return out.clamp(min=torch.finfo(dtype).min).to(dtype) if dtype == torch.float16 else out.to(dtype)


def _size(scores: Tensor, axis: int) -> int:
    """The length of an axis as a plain number, also while a graph is traced."""
    length = scores.size(axis)
    if type(length) is int:
        return length
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the tracer, that the number of classes becomes a constant: it is one
        return int(length)
