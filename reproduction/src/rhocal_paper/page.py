"""The page of a table: the published numbers beside ours, and the verdicts. Markdown from rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rhocal_paper.grid import OFFICIAL, RULE, RULE_OF_SEEDS, lines, verdicts
from rhocal_paper.networks import missing
from rhocal_paper.published import cells as published_cells
from rhocal_paper.published import published

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rhocal.evaluation.rows import Row
    from rhocal_paper.grid import Grid
    from rhocal_paper.networks import Network

STOPPED = "stopped before its tolerance was met"
"""In the note of a row whose fit did not converge."""

INTRO = {
    1: """\
`rho-norm-paper` is fitted by Algorithm 1 (mini-batches) on SCE + KL with α = 1, ρ by validation ECE; what the paper leaves
open is chosen by us ([what and how](open_choices.md)). `exact` minimizes the same objective exactly, `KL(s‖g)` with the other
direction of KL: whether ρ-norm is below temperature scaling depends on that choice, which the paper does not state.
`rho-norm` is ours, with its own defaults. Histogram binning bins the confidence of the predicted class; `scope=top` spreads
the rest over the other classes and changes decisions. TS-AvUC is far above temperature scaling here, because AvUC is not
lowest where a network is calibrated, and its weight (not stated; 1 here) lets it decide: [other weights](open_choices.md). The
published tables contradict each other in one place: temperature scaling of ResNet50 on CIFAR-100 has an ECE of .030 in Table 1
and of .048 in Table 2.""",
    2: """\
Every fit is exact (no mini-batches), so that nothing but structure and objective differs. `sce` without KL is not in the
paper.""",
    3: """\
`descent`: mini-batches from the identity; `descent-random`: from random scales; `exact`: the expected objective, from
temperature scaling. The descent is Adam with 3,000 steps. From both starts NLL, which is convex, ends within 0.001 of its
minimum (1.0042 for 1.0037 on `cifar100_resnet56`; the plain steps of Algorithm 1 end at 1.0204). The other objectives are not
convex, and the start decides where a descent ends. † marks means with fits that had not converged: 5 exact steps from their
end lower the objective by more than 2 %, or the exact optimizer stopped early.
KL is KL(g‖s) as a mean over samples and classes. The paper does not print accuracy, which vector
scaling can lose: it is in the verdicts below and in the rows.""",
    4: """\
The paper's preset at a fixed ρ, fitted exactly; then the same without the KL term (`alpha=0`).""",
    5: """\
`alpha=…` is the paper's preset (ρ-norm, KL(g‖s) as a mean over samples and classes); then other reductions and directions
of KL; then vector scaling by the mini-batches of [Table 3](table3.md), with † where fits had not converged. The CIFAR-100
row of the published table has the numbers of vector scaling in Table 3, not those of ρ-norm in Table 2, whatever its caption
says; so it stands beside both.""",
}
"""What a reader of each page should know."""


def markdown(head: list[str], lines: list[list[str]]) -> str:
    """A table."""
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *lines])


def shown(value: float, sd: float, digits: int) -> str:
    """A mean ± standard deviation; nothing for NaN."""
    return "" if math.isnan(value) else f"{value:.{digits}f}" + ("" if math.isnan(sd) else f" ± {sd:.{digits}f}")


class Measured:
    """The rows of a table, with what their networks are."""

    def __init__(self, grid: Grid, rows: Sequence[Row], networks: Mapping[str, Network]) -> None:
        self.grid, self.rows = grid, rows
        self.networks = {name: networks[name] for name in dict.fromkeys(row.network for row in rows)}
        self.lines = lines(grid, rows, self.networks)
        self.verdicts = verdicts(grid, rows, self.networks)
        self.missing = missing(grid.table, list(self.networks.values()))
        self.stopped = {(self.networks[row.network].label, row.method) for row in rows if STOPPED in row.note}
        self.rule = RULE_OF_SEEDS if rows and rows[0].split == OFFICIAL else RULE

    def beside(self, cell: tuple[str, str] | None) -> list[str]:
        """Labels of the networks shown beside a published one, or beside none."""
        wanted = cell or ("", "")
        return list(dict.fromkeys(line["network"] for line in self.lines if (line["dataset"], line["model"]) == wanted))

    def numbers(self, cell: tuple[str, str] | None) -> str:
        """A published network beside ours: a row for each metric and method."""
        labels = self.beside(cell)
        ours = {(line["network"], line["metric"], line["method"]): line for line in self.lines}
        theirs = {(p.metric, p.method): p for p in published(self.grid.table) if p.cell == cell}
        cells = []
        for metric in self.grid.metrics:
            for method, entry in self.grid.entries.items():
                known = theirs.get((metric, entry.theirs or ""))
                row = [metric, f"`{method}`", shown(known.value, known.sd, 3) if known else ""]
                for label in labels:
                    line = ours[label, metric, method]
                    mark = " †" if (label, method) in self.stopped else ""
                    row.append(shown(line["ours"], line["ours_sd"], 5 if metric == "KL" else 4) + mark)
                cells.append(row)
        floors = ["ECE", "*floor*", ""]
        for label in labels:
            found = [line["ece_floor"] for line in self.lines if line["network"] == label]
            floors.append(f"{min(found):.4f} to {max(found):.4f}")
        if labels:
            cells.append(floors)
        return markdown(["metric", "method", "published", *(f"`{label}`" for label in labels)], cells)

    def page(self) -> str:
        """The whole page."""
        number = self.grid.table
        parts = [f"# Table {number}: {self.grid.title.lower()}", INTRO[number]]
        for cell in published_cells(number):
            parts.append(f"## {cell[0]}, {cell[1]}")
            stand_ins = dict.fromkeys(
                line["network"] for line in self.lines if (line["dataset"], line["model"]) == cell and line["stand_in"]
            )
            if stand_ins:
                parts.append(f"Stand-ins: {', '.join(f'`{label}`' for label in stand_ins)}.")
            if cell in self.missing:
                parts.append(f"The paper's own network needs a GPU: `{self.missing[cell]}`")
            parts.append(self.numbers(cell))
        if self.beside(None):
            parts += ["## Networks on data that the published table does not have", self.numbers(None)]
        parts += ["## Verdicts", self.rule, verdict_table(self.verdicts), "[All claims](README.md)"]
        return "\n\n".join(parts) + "\n"


def verdict_table(verdicts: Sequence[Mapping[str, str]]) -> str:
    """A line for each claim and network, claim by claim."""
    cells = [[v["claim"], f"`{v['network']}`", v["verdict"], v["reason"]] for v in verdicts]
    order = list(dict.fromkeys(cell[0] for cell in cells))
    return markdown(["claim", "network", "verdict", "because"], sorted(cells, key=lambda cell: order.index(cell[0])))
