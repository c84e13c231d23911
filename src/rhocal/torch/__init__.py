"""PyTorch: fitted maps as modules, a model calibrated from its loader, metrics and losses. The only importer of torch."""

from __future__ import annotations

from rhocal.errors import MissingExtraError

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise MissingExtraError("torch", "torch", "rhocal.torch") from error

from rhocal.torch.collect import Calibrated, calibrate, collect
from rhocal.torch.decisions import DecisionModule
from rhocal.torch.losses import CalibrationLoss
from rhocal.torch.module import CalibratorModule

__all__ = [
    "Calibrated",
    "CalibrationLoss",
    "CalibratorModule",
    "DecisionModule",
    "calibrate",
    "collect",
]
