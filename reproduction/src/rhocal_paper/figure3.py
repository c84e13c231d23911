"""Figure 3: confidence histograms and reliability diagrams of the methods of Table 1 on one network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.reporting import curves, plots
from rhocal_paper.grid import NOT, REPRODUCED
from rhocal_paper.table1 import GRID, OURS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rhocal.evaluation.compare import CalibrationSplit
    from rhocal.reporting.curves import Histogram, Reliability

SHOWN = {
    "uncalibrated": "identity",
    "ρ-norm (paper)": OURS,
    "temperature": "temperature",
    "vector": "vector",
    "TS-AvUC": "temperature-avuc",
    "histogram binning": "histogram-binning",
}
"""The panels, as the paper has them."""

FEW = 0.05
"""Share of the samples below which a bin has few."""

Panels = dict[str, tuple["Histogram", "Reliability"]]


def panels(split: CalibrationSplit) -> Panels:
    """Every method fitted on the tune half and drawn on the test half."""
    calibration, test = split.calibration.predictions, split.test.predictions
    found = {}
    for title, method in SHOWN.items():
        cal = GRID.entries[method].make(0).fit(calibration.logits, calibration.labels)
        seen = cal.transform(test.logits), test.labels
        found[title] = curves.histogram(*seen, kind="logits"), curves.reliability(*seen, kind="logits")
    return found


def rows(found: Panels, network: str) -> list[dict[str, Any]]:
    """Tidy: a row for each method and bin that holds a sample."""
    return [
        {
            "network": network, "method": title, "low": float(bins.low[k]), "n": int(bins.weight[k]),
            "confidence": float(bins.confidence[k]), "accuracy": float(bins.accuracy[k]),
        }
        for title, (_, bins) in found.items()
        for k in range(len(bins.low))
    ]  # fmt: skip


def verdicts(found: Mapping[str, tuple[Histogram, Reliability]], network: str) -> list[dict[str, str]]:
    """The claim with which the paper explains its MCE."""
    _, bins = found["ρ-norm (paper)"]
    gaps = np.abs(bins.accuracy - bins.confidence)
    worst = int(np.argmax(gaps))
    share = float(bins.weight[worst] / bins.weight.sum())
    told = f"MCE {gaps[worst]:.3f} is in the bin from {bins.low[worst]:.1f}, with {100 * share:.1f} % of the samples"
    claim = "the largest gap of ρ-norm scaling is in a bin of few samples"
    return [
        {"network": network, "claim": claim, "verdict": REPRODUCED if share < FEW else NOT, "reason": told},
    ]


def draw(found: Panels) -> Any:
    """Histogram above reliability diagram, for each method."""
    return plots.grid(found)
