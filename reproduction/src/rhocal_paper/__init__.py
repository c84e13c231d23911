"""The paper's tables and figures on any logits: ours, and the published numbers beside them.

*Parametric ρ-Norm Scaling Calibration*, Siyuan Zhang and Linbo Xie, arXiv:2412.15301. One file for each table (methods,
metrics, claims) and each figure; ``docs/paper.md`` is the study written from them.
"""

from __future__ import annotations

from rhocal_paper import open_choices, table1, table2, table3, table4, table5
from rhocal_paper.grid import lines, overall, verdicts
from rhocal_paper.networks import Network, logits_files, missing, network_of
from rhocal_paper.published import Published, cells, published

GRIDS = {module.GRID.table: module.GRID for module in (table1, table2, table3, table4, table5)}
"""The tables."""

OPEN_CHOICES = open_choices.GRID
"""What the paper leaves open."""

__all__ = [
    "GRIDS",
    "OPEN_CHOICES",
    "Network",
    "Published",
    "cells",
    "lines",
    "logits_files",
    "missing",
    "network_of",
    "overall",
    "published",
    "verdicts",
]
