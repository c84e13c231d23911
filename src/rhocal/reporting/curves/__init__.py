"""Curves as data. Every curve is a frozen value with arrays; ``rhocal.reporting.plots`` and the report draw it.

A new curve is a dataclass and the function that computes it from predictions; how it looks belongs in ``plots``.

>>> import rhocal
>>> from rhocal.reporting import curves
>>> bins = curves.reliability(*rhocal.demo_logits("test"), kind="logits", n_bins=10)
>>> round(bins.ece, 3)
0.145
"""

from __future__ import annotations

from rhocal.reporting.curves.benefit import NetBenefit, net_benefit
from rhocal.reporting.curves.cumulative import CumulativeGap, cumulative_gap
from rhocal.reporting.curves.fine import FineBins, FineSums, fine_bins
from rhocal.reporting.curves.fitted import (
    AlphaCurve,
    ConfidenceMap,
    RhoGrid,
    TemperatureMap,
    alpha_curve,
    confidence_map,
    rho_grid,
    temperature_map,
)
from rhocal.reporting.curves.migration import Migration, migration
from rhocal.reporting.curves.reliability import Reliability, reliability
from rhocal.reporting.curves.rows import LearningCurve, Pareto, learning_curve, pareto
from rhocal.reporting.curves.selection import RiskCoverage, risk_coverage
from rhocal.reporting.curves.smooth import SmoothReliability, smooth_reliability
from rhocal.reporting.curves.spread import ClassHeat, Histogram, class_heat, histogram
from rhocal.reporting.curves.training import Amplitudes, amplitudes

__all__ = [
    "AlphaCurve", "Amplitudes", "ClassHeat", "ConfidenceMap", "CumulativeGap", "FineBins", "FineSums", "Histogram",
    "LearningCurve", "Migration", "NetBenefit", "Pareto", "Reliability", "RhoGrid", "RiskCoverage",
    "SmoothReliability", "TemperatureMap", "alpha_curve", "amplitudes", "class_heat", "confidence_map",
    "cumulative_gap", "fine_bins", "histogram", "learning_curve", "migration", "net_benefit", "pareto", "reliability",
    "rho_grid", "risk_coverage", "smooth_reliability", "temperature_map",
]  # fmt: skip
