"""PyTorch: fitted maps as modules, a model calibrated from its loader, metrics and losses. The only importer of torch."""

from __future__ import annotations

from importlib import import_module
from typing import Any

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

SUBMODULES = ("lightning", "metrics")
"""Imported when they are used: each needs an extra of its own."""


def __getattr__(name: str) -> Any:
    if name in SUBMODULES:
        return import_module(f"rhocal.torch.{name}")
    raise AttributeError(f"module 'rhocal.torch' has no attribute {name!r}")
