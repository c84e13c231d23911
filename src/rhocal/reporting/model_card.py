"""A snippet for a model card: what the calibrator is, what it did, on how much data. Facts in, Markdown out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.metrics import METRICS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rhocal.calibrators import Calibrator
    from rhocal.evaluation.evaluation import Evaluation


def model_card(
    cal: Calibrator,
    facts: Mapping[str, Any],
    before: Evaluation | None = None,
    after: Evaluation | None = None,
    measured_on: str = "",
) -> str:
    """Markdown about a fitted calibrator; ``facts`` are further lines, such as the date and the versions."""
    options = repr(cal)
    solution = cal.solution_
    lines = {
        "method": f"{cal.name}, `{options}`",
        "parameters": parameters(cal) or "none",
        "objective": f"{solution.objective}{'' if solution.converged else ' (did not converge)'}",
        "classes": f"{len(cal.classes_):,}",
        "takes": cal.kind_,
        "keeps the predicted class": "yes" if cal.keeps_decision else "it may change it",
        **facts,
    }
    text = ["## Calibration", "", *(f"- {name}: {value}" for name, value in lines.items() if value)]
    if before is not None and after is not None:
        text += ["", *metric_table(before, after, measured_on)]
    return "\n".join(text) + "\n"


def parameters(cal: Calibrator) -> str:
    """The fitted numbers; of arrays, their shape; of what it is made of, theirs."""
    found = []
    for name in cal.parameters:
        value = getattr(cal, name)
        shown = f"{value:.6g}" if np.ndim(value) == 0 else f"array of shape {np.shape(value)}"
        found.append(f"{name.rstrip('_')} = {shown}")
    for name in cal.children:
        inside = getattr(cal, name)
        members = inside if isinstance(inside, list) else [inside]
        found += [f"{name.rstrip('_')}: {one.name} ({parameters(one)})" for one in members]
    return "; ".join(found)


def metric_table(before: Evaluation, after: Evaluation, measured_on: str) -> list[str]:
    """A table of the figures before and after, each with its 95 % interval, and what the tests say."""
    where = f" of {measured_on}" if measured_on else ""
    said = "95 % intervals; the floor is what a perfectly calibrated model scores on as many"
    text = [
        f"Measured on {before.n_samples:,} samples{where} ({said}):",
        "",
        "| | before | after | floor |",
        "|---|---|---|---|",
    ]
    for old, new in zip(before.values, after.values, strict=True):
        values = (f"{one.value:.4f} ({one.low:.4f} to {one.high:.4f})" for one in (old, new))
        text.append(f"| {METRICS[old.metric].title} | {' | '.join(values)} | {new.floor:.4f} |")
    return [*text, "", f"Before: {before.verdict}", "", f"After: {after.verdict}"]
