"""Scale maps of a few rows on the CPU without gradients: two compiled passes instead of thirty operations of torch."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from rhocal.calibrators.map import BEHIND
from rhocal.calibrators.serving import MAX_ROWS, RowScales
from rhocal.numerics import kernels

if TYPE_CHECKING:
    from rhocal.torch.module import CalibratorModule


class EagerRows:
    """The short way of a module. It follows the module's buffers: ``load_state_dict`` may change them."""

    def __init__(self) -> None:
        self.rows: RowScales | None = None
        self.buffers: list[Tensor] = []
        self.versions: list[int] = []

    def calibrated(self, module: CalibratorModule, logits: Tensor) -> Tensor | None:
        """Calibrated logits or probabilities; None where the operations of torch are needed.

        That is so while a graph is recorded, for gradients and other devices and types, many rows, and masked classes.
        """
        if (
            torch.compiler.is_compiling()
            or torch._C._get_tracing_state() is not None  # noqa: SLF001 - as torch.jit.is_tracing does
            or type(logits) is not Tensor
            or logits.device.type != "cpu"
            or logits.dim() != 2
            or len(logits) > MAX_ROWS
            or (logits.requires_grad and torch.is_grad_enabled())
            or getattr(forward_ad, "_current_level", -1) >= 0
            or module.map_.scale is None
        ):
            return None
        try:
            z = logits.detach().numpy()
            rows = self._current(module)
        except (RuntimeError, TypeError):  # batched by vmap, or of a type that NumPy does not have
            return None
        scales = rows.of(z)
        if scales is None:
            return None
        scale, top = scales
        if module.output == "probs":
            probs = kernels.softmax(z, scale)
            return None if probs is None else torch.from_numpy(probs)
        top = top.astype(z.dtype)[:, None]
        out = (z - top) * scale.astype(z.dtype)[:, None]
        np.minimum(out, -BEHIND * np.finfo(z.dtype).eps, out=out, where=z < top)
        return torch.from_numpy(out)

    def _current(self, module: CalibratorModule) -> RowScales:
        """The scales with the numbers that the module holds now."""
        buffers = list(module.buffers())
        versions = [buffer._version for buffer in buffers]  # noqa: SLF001 - torch has no other name
        is_known = self.versions == versions and all(map(operator.is_, self.buffers, buffers))
        if self.rows is None or not is_known:
            held = {name: module.get_buffer(name.replace(".", "__")).cpu().numpy() for name in module.map_.arrays}
            parameters = {**module.map_.parameters, **held}
            self.rows = RowScales(replace(module.map_, parameters=parameters))
            self.buffers, self.versions = buffers, versions
        return self.rows

    def __reduce__(self) -> Any:
        return EagerRows, ()
