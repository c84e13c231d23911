"""Plots: every function draws a curve of ``rhocal.reporting.curves`` on ``ax`` and returns it. The only importer of matplotlib.

A plot computes nothing; the numbers that it draws belong in ``curves``.

>>> import rhocal
>>> from rhocal.reporting import curves, plots
>>> ax = plots.reliability(curves.reliability(*rhocal.demo_logits("test"), kind="logits"))
>>> plots.save(ax, "reliability.pdf")  # doctest: +SKIP
"""

from __future__ import annotations

from rhocal.reporting.plots.fitted import alpha_curve, confidence_map, migration, rho_grid, temperature
from rhocal.reporting.plots.quality import class_heat, learning_curve, net_benefit, pareto, risk_coverage
from rhocal.reporting.plots.reliability import cumulative, grid, histogram, reliability, smooth
from rhocal.reporting.plots.style import save
from rhocal.reporting.plots.training import amplitude_histogram, amplitude_over_epochs, confidence_histogram

__all__ = [
    "alpha_curve", "amplitude_histogram", "amplitude_over_epochs", "class_heat", "confidence_histogram",
    "confidence_map", "cumulative", "grid", "histogram", "learning_curve", "migration", "net_benefit", "pareto",
    "reliability", "rho_grid", "risk_coverage", "save", "smooth", "temperature",
]  # fmt: skip
