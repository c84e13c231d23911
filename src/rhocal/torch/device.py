"""Tensors in, tensors out: a fitted calibrator works where the data is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from rhocal.errors import InputError
from rhocal.torch.module import CalibratorModule

if TYPE_CHECKING:
    from rhocal.calibrators import Calibrator
    from rhocal.data.predictions import Kind


def calibrated_tensor(cal: Calibrator, scores: Tensor, output: str, kind: Kind, class_axis: int, groups: Any) -> Tensor:
    """Logits or probabilities on the device of the scores, without gradients (``to_torch`` has them).

    In the memory of the host NumPy does it on the same memory. On another device the portable map does it there.
    """
    values = scores.detach()
    if values.device.type == "cpu" or not cal.is_portable:
        array = values.cpu().float() if values.dtype == torch.bfloat16 else values.cpu()
        method = cal.predict_proba if output == "probs" else cal.transform
        found = method(array.numpy(), kind=kind, class_axis=class_axis, groups=groups)
        return torch.from_numpy(np.ascontiguousarray(found)).to(values.device)
    return on_device(cal, values, output, kind, class_axis)


def on_device(cal: Calibrator, values: Tensor, output: str, kind: Kind, class_axis: int) -> Tensor:
    """The portable map where the scores are; only the fitted numbers travel."""
    if not torch.isfinite(values).all():
        bad = int((~torch.isfinite(values)).sum())
        raise InputError(f"logits must be finite; {bad} entries are NaN or infinite. Leave those rows out")
    module = CalibratorModule(replace(cal.portable(), kind=kind), output=output, class_axis=class_axis)
    with torch.no_grad():
        wide = values.to(torch.promote_types(values.dtype, torch.float32))
        found: Tensor = module.to(values.device)(wide)
    return found
