"""A section for a model card, in Markdown: the calibrator, its parameters, and metrics before and after."""

from __future__ import annotations

import html
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.binary.one_vs_rest import SCOPES
from rhocal.metrics import METRICS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rhocal.calibrators import Calibrator
    from rhocal.evaluation.evaluation import Evaluation

MAX_SHAPES = 4
"""Arrays whose shapes are printed one by one; of more, how many numbers they hold."""


def model_card(
    cal: Calibrator,
    facts: Mapping[str, Any],
    before: Evaluation | None = None,
    after: Evaluation | None = None,
    measured_on: str = "",
) -> str:
    """Markdown about a fitted calibrator; ``facts`` are further lines, such as the date and the versions."""
    solution = cal.solution_
    lines = {
        "method": f"{plain(cal.label)}, {code(repr(cal))}",
        "parameters": plain(parameters(cal)) or "none",
        "objective": f"{plain(solution.objective)}{'' if solution.converged else ' (did not converge)'}",
        "evidence": plain(solution.held_out.summary) if solution.held_out is not None else "",
        "weights": "" if cal.weighting_ is None else plain(cal.weighting_.sentence),
        "classes": f"{len(cal.classes_):,}",
        "positive class": "" if cal.positive_ is None else plain(str(cal.positive_)),
        "takes": cal.kind_,
        "keeps the predicted class": decisions(cal),
        "policy": "" if cal.policy_ is None else plain(cal.policy_.sentence),
        **facts,
    }
    text = ["## Calibration", "", *(f"- {name}: {value}" for name, value in lines.items() if value)]
    if before is not None and after is not None:
        text += ["", *metric_table(before, after, measured_on)]
    return "\n".join(text) + "\n"


def decisions(cal: Calibrator) -> str:
    """Whether predictions change, and how many did on the calibration set."""
    if cal.map_.keeps_decision:
        return "yes"
    change = cal.solution_.decisions
    return "not always" if change is None else f"not always; it {change.sentence}"


def parameters(cal: Calibrator) -> str:
    """The fitted parameters in a line."""
    return "; ".join(
        f"{name}: {value}" if isinstance(value, str) else f"{name} = {value:.6g}"
        for name, value in shown_parameters(cal).items()
    )


def shown_parameters(cal: Calibrator) -> dict[str, Any]:
    """The fitted parameters for people: numbers, the shapes of arrays (of many their size alone), and components in words."""
    shown: dict[str, Any] = {}
    arrays = {name: value for name, value in _own_parameters(cal).items() if np.ndim(value) > 0}
    for name, value in _own_parameters(cal).items():
        if name not in arrays:
            shown[name] = value
        elif len(arrays) <= MAX_SHAPES:
            shown[name] = f"array of shape {np.shape(value)}"
    if len(arrays) > MAX_SHAPES:
        shown["parameters"] = arrays_text(list(arrays.values()))
    for name in cal.children:
        children = getattr(cal, name)
        members = children if isinstance(children, list) else [children]
        counts = Counter(map(component_text, members))
        shown[name.rstrip("_")] = ", ".join(text if n == 1 else f"{n} times {text}" for text, n in counts.items())
    return shown


def component_text(cal: Calibrator) -> str:
    """A component by the name of its method, with its numbers, or their count where arrays are among them."""
    own = _own_parameters(cal)
    if cal.children or any(np.ndim(value) for value in own.values()):
        return f"{cal.label} ({_n_numbers(cal):,} numbers)"
    if not own:
        return cal.label
    texts = (f"{name} {value}" if isinstance(value, str) else f"{name} = {value:.6g}" for name, value in own.items())
    return f"{cal.label} ({', '.join(texts)})"


def _own_parameters(cal: Calibrator) -> dict[str, Any]:
    """Those of the calibrator without its components; a scope, which is fitted as a number, is its word."""
    own = {name.rstrip("_"): getattr(cal, name) for name in cal.parameters}
    return {name: SCOPES[value] if name == "scope" else value for name, value in own.items()}


def _n_numbers(cal: Calibrator) -> int:
    """How many numbers were fitted, those of components included."""
    n_own = sum(int(np.size(value)) for value in _own_parameters(cal).values())
    children = (getattr(cal, name) for name in cal.children)
    return n_own + sum(_n_numbers(one) for part in children for one in (part if isinstance(part, list) else [part]))


def arrays_text(arrays: Sequence[Any]) -> str:
    """Many arrays in a few words."""
    return f"{len(arrays)} arrays with {sum(np.size(array) for array in arrays):,} numbers"


def metric_table(before: Evaluation, after: Evaluation, measured_on: str) -> list[str]:
    """A table of the metrics before and after, each with its 95 % interval, and the verdicts."""
    where = f" of {plain(measured_on)}" if measured_on else ""
    note = "95 % intervals; the floor is the value for a perfectly calibrated model on as many samples"
    text = [
        f"Measured on {before.n_samples:,} samples{where} ({note}):",
        "",
        "| | before | after | floor |",
        "|---|---|---|---|",
    ]
    for old, new in zip(before.values, after.values, strict=True):
        values = (f"{value.value:.4f} ({value.low:.4f} to {value.high:.4f})" for value in (old, new))
        text.append(f"| {METRICS[old.metric].title} | {' | '.join(values)} | {new.floor:.4f} |")
    return [*text, "", f"Before: {plain(before.verdict)}", "", f"After: {plain(after.verdict)}"]


MARKUP = re.compile(r"([\\`*\[\]|])")


def plain(text: str) -> str:
    r"""Text for Markdown: one line in which nothing is markup or HTML. Names are chosen by others.

    >>> print(plain("<img src=x> | *x*"))
    &lt;img src=x&gt; \| \*x\*
    """
    return html.escape(MARKUP.sub(r"\\\1", " ".join(text.split())), quote=False)


def code(text: str) -> str:
    """Code for Markdown: between more backticks than stand in it."""
    line = " ".join(text.split())
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{space}{line}{space}{fence}"
