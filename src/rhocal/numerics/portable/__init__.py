"""A fitted map written once, over a small set of operations, and carried out by NumPy, torch or ONNX."""

from __future__ import annotations

from rhocal.numerics.portable.arrays import ArrayOps
from rhocal.numerics.portable.ops import Constants, Formula, Ops
from rhocal.numerics.portable.tables import interpolated, line_tables, located, padded

__all__ = [
    "ArrayOps",
    "Constants",
    "Formula",
    "Ops",
    "interpolated",
    "line_tables",
    "located",
    "padded",
]
