"""Several models on one page: verdict before and after calibration, two diagrams and a table for each.

The page holds no script and makes no request; its diagrams are SVG. Details stand on the report of each model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rhocal.metrics.scored import Scored
from rhocal.reporting.curves.reliability import reliability_from_scored
from rhocal.reporting.page import LEVELS, load_templates, read_template
from rhocal.reporting.sections.summary import level

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rhocal.data.predictions import Predictions
    from rhocal.evaluation.evaluation import Evaluation

SIZE = 220
"""Of a diagram, in units of its own."""


@dataclass(frozen=True)
class ModelSummary:
    """A model before and after calibration."""

    title: str
    about: str
    lesson: str
    """What it teaches, in a sentence."""
    method: str
    page: str
    """The address of its report."""
    states: tuple[Mapping[str, Any], Mapping[str, Any]]
    """Before and after."""
    table: Sequence[Mapping[str, Any]]
    """Lines of ``rhocal.evaluation.rows.summary``."""
    conclusion: str
    n_calibration: int


def describe_state(name: str, evaluation: Evaluation, data: Predictions) -> dict[str, Any]:
    """A model as it stands on test samples: verdict, metrics and the points of its diagram.

    With two classes the diagram is that of the positive class: the predicted class hides it where it is rare.
    """
    is_binary = data.n_classes == 2
    bins = reliability_from_scored(Scored.from_predictions(data), of_positive=is_binary)
    points = zip(bins.confidence, bins.accuracy, bins.band_low, bins.band_high, bins.low, bins.high, strict=True)
    return {
        "name": name,
        "verdict": evaluation.verdict,
        "level": level(evaluation),
        "n_samples": evaluation.n_samples,
        "n_classes": evaluation.n_classes,
        "values": {value.metric: value for value in evaluation.values},
        "points": [
            {"x": _x(p), "y": _y(a), "band_top": _y(top), "band_bottom": _y(low), "left": _x(left), "right": _x(right)}
            for p, a, low, top, left, right in points
        ],
        "axes": (f"probability of {bins.of_class}", f"share of {bins.of_class}")
        if is_binary
        else ("confidence", "accuracy"),
    }


def render_overview(title: str, models: Sequence[ModelSummary], commands: Sequence[str]) -> str:
    """The page."""
    return (
        load_templates()
        .get_template("overview.html.j2")
        .render(
            title=title, models=models, commands=commands, levels=LEVELS, size=SIZE, style=read_template("report.css")
        )
    )


def _x(value: float) -> float:
    return round(SIZE * float(value), 1)


def _y(value: float) -> float:
    return round(SIZE * (1 - float(value)), 1)
