"""A fitted map written once, over a small set of operations, and carried out by NumPy, torch or ONNX."""

from __future__ import annotations

from rhocal.portable.arrays import ArrayOps
from rhocal.portable.maps import Constants, Formula, Portable, calibrated, chained, log_mean, scaled
from rhocal.portable.ops import Ops
from rhocal.portable.tables import interpolated, line_tables, located, padded

__all__ = [
    "ArrayOps",
    "Constants",
    "Formula",
    "Ops",
    "Portable",
    "calibrated",
    "chained",
    "interpolated",
    "line_tables",
    "located",
    "log_mean",
    "padded",
    "scaled",
]
