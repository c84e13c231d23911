"""Calibrators: one file per method, sorted by the form of the map.

``scale/`` multiplies a sample's logits by one positive number, ``linear/`` maps them linearly, ``binary/`` maps one class at a
time, ``order/`` keeps the order of the classes, ``compose/`` combines calibrators, and ``cascade/`` has the stages of the
cascade. ``registry.py`` has one line per method, ``options.py`` what a family declares, ``base.py`` what users call. A fit goes
through ``fitting`` (a source), ``validated_fit`` (checked data) and ``guard`` (the comparison with references). What is built
on fitted calibrators has a package of its own. Metrics are never imported here.
"""

from rhocal.calibrators.base import Calibrator
from rhocal.calibrators.registry import CALIBRATORS, Method, calibrator
from rhocal.calibrators.scale.scale import ScaleCalibrator

__all__ = ["CALIBRATORS", "Calibrator", "Method", "ScaleCalibrator", "calibrator"]
