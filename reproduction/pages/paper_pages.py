"""The pages of the paper's tables and figures, from the rows that `paper_rows.py` wrote. Run by `make paper`."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paper_rows import HERE, NETWORKS, OWN, ROWS, grids, here, rows_file

import rhocal_paper as paper
from rhocal.data.files import write_text
from rhocal_paper.grid import ECE, RULE
from rhocal_paper.measure import old_rows
from rhocal_paper.open_choices import LEFT_OPEN

if TYPE_CHECKING:
    from rhocal.evaluation.rows import Row

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
`sgd`: mini-batch descent from the identity; `sgd-random`: from random scales; `exact`: the expected objective, from
temperature scaling. The mini-batch fits stop after a fixed number of steps and have not all converged (NLL, which is convex,
ends above its optimum): their rows show where such a descent stops, not where the objective has its minimum; that is `exact`.
KL is KL(g‖s) as a mean over samples and classes. The paper does not print accuracy, which vector
scaling can lose: it is in the verdicts below and in the rows.""",
    4: """\
The paper's preset at a fixed ρ, fitted exactly; then the same without the KL term (`alpha=0`).""",
    5: """\
`alpha=…` is the paper's preset (ρ-norm, KL(g‖s) as a mean over samples and classes); then other reductions and directions
of KL; then vector scaling by mini-batches. The CIFAR-100 row of the published table has the numbers of vector scaling in
Table 3, not those of ρ-norm in Table 2, whatever its caption says; so it stands beside both.""",
}
"""What a reader of each page should know."""


def markdown(head: list[str], lines: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *lines])


def shown(value: float, sd: float, digits: int) -> str:
    return "" if math.isnan(value) else f"{value:.{digits}f}" + ("" if math.isnan(sd) else f" ± {sd:.{digits}f}")


class Measured:
    """The rows of a table, with what their networks are."""

    def __init__(self, number: int, known: dict[str, Path]) -> None:
        self.grid = grids()[number]
        self.rows: list[Row] = [row for row in old_rows(rows_file(number)) if row.network in NETWORKS[number]]
        names = dict.fromkeys(row.network for row in self.rows)
        self.networks = {name: paper.network_of(known.get(name, Path(f"{name}.npz"))) for name in names}
        self.lines = paper.lines(self.grid, self.rows, self.networks)
        self.verdicts = paper.verdicts(self.grid, self.rows, self.networks)
        self.missing = paper.missing(number, list(self.networks.values()))

    def beside(self, cell: tuple[str, str] | None) -> list[str]:
        """Labels of the networks shown beside a published one, or beside none."""
        wanted = cell or ("", "")
        return list(dict.fromkeys(line["network"] for line in self.lines if (line["dataset"], line["model"]) == wanted))

    def numbers(self, cell: tuple[str, str] | None) -> str:
        """A published network beside ours: a row for each metric and method."""
        labels = self.beside(cell)
        ours = {(line["network"], line["metric"], line["method"]): line for line in self.lines}
        theirs = {(p.metric, p.method): p for p in paper.published(self.grid.table) if p.cell == cell}
        cells = []
        for metric in self.grid.metrics:
            for method, entry in self.grid.entries.items():
                known = theirs.get((metric, entry.theirs or ""))
                row = [metric, f"`{method}`", shown(known.value, known.sd, 3) if known else ""]
                for label in labels:
                    line = ours[label, metric, method]
                    row.append(shown(line["ours"], line["ours_sd"], 5 if metric == "KL" else 4))
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
        for cell in paper.cells(number):
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
        parts += ["## Verdicts", RULE, verdict_table(self.verdicts), "[All claims](README.md)"]
        return "\n\n".join(parts) + "\n"


EXPLAINED = """\
ECE on all public networks on CIFAR-100 (mean ± standard deviation over five cuts). Each line changes one thing of the preset.
The last column judges the claim that the line is below temperature scaling."""


def open_choices_page(known: dict[str, Path]) -> str:
    """What the paper leaves open, what we chose, and what other choices give."""
    found = Measured(paper.OPEN_CHOICES.table, known)
    labels = list(dict.fromkeys(line["network"] for line in found.lines))
    ours = {(line["network"], line["method"]): line for line in found.lines if line["metric"] == ECE}
    verdicts = {(v["network"], v["claim"]): v["verdict"] for v in found.verdicts}
    cells = []
    for method in found.grid.entries:
        row = [method, *(shown(ours[label, method]["ours"], ours[label, method]["ours_sd"], 4) for label in labels)]
        mine = [verdicts[label, method] for label in labels if (label, method) in verdicts]
        cells.append([*row, paper.overall([{"verdict": verdict} for verdict in mine])[1] if mine else ""])
    head = ["choice", *(f"`{label.removeprefix('cifar100_')}`" for label in labels), "below temperature scaling"]
    return (
        "\n\n".join(
            [
                "# What the paper leaves open",
                "`RhoNormScaling.paper()` has the objective and the algorithm of the paper. These choices are ours:",
                markdown(["what", "the paper", "our choice"], [list(line) for line in LEFT_OPEN]),
                "## What other choices give",
                EXPLAINED,
                markdown(head, cells),
                RULE,
                "[All claims](README.md)",
            ]
        )
        + "\n"
    )


def verdict_table(verdicts: list[dict[str, str]]) -> str:
    cells = [[v["claim"], f"`{v['network']}`", v["verdict"], v["reason"]] for v in verdicts]
    order = list(dict.fromkeys(cell[0] for cell in cells))
    return markdown(["claim", "network", "verdict", "because"], sorted(cells, key=lambda cell: order.index(cell[0])))


def figure_verdicts(number: int) -> list[dict[str, str]]:
    path = ROWS / f"figure{number}_verdicts.csv"
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def figures_page() -> str:
    titles = {
        2: "Amplitude during training, confidence and amplitude at the end (our own runs; `rhocal-paper figure2`)",
        3: "Confidence histograms and reliability diagrams (`rhocal-paper figure3`)",
        4: "Where vector scaling moves the samples of a bin (`rhocal-paper figure4`)",
    }
    notes = {
        2: "The amplitude is ‖z‖₂/m of the tune set after each epoch; the histograms are of the test set after the last.",
        3: "On a stand-in for ResNet35 on CIFAR-100, the first of its five cuts. The paper's ρ-norm is second.",
        4: "For each bin of raw confidence 5, 25, 50, 75 and 95 % of the calibrated confidence. SCE above, SCE + KL below.",
    }
    parts = ["# Figures 2 to 4"]
    for number, title in titles.items():
        parts += [f"## Figure {number}", f"{title}. {notes[number]}"]
        if (HERE / f"figure{number}.svg").is_file():
            parts.append(f"![Figure {number}](figure{number}.svg)")
        parts.append(verdict_table(figure_verdicts(number)))
    return "\n\n".join([*parts, "[All claims](README.md)"]) + "\n"


def reason(claim: str) -> str:
    """Why a claim came out as it did: the line of `reasons.csv` that has the longest beginning of it."""
    with (HERE / "reasons.csv").open(newline="", encoding="utf-8") as file:
        known = {row["claim"]: row["why"] for row in csv.DictReader(file)}
    return known[max((start for start in known if claim.startswith(start)), key=len)]


def claims(found: dict[str, list[dict[str, str]]]) -> str:
    """One line for each claim of each table and figure."""
    cells = []
    for where, verdicts in found.items():
        for claim in dict.fromkeys(v["claim"] for v in verdicts):
            verdict, told = paper.overall([v for v in verdicts if v["claim"] == claim])
            cells.append([where, claim, f"**{verdict}**", told, reason(claim)])
    return markdown(["where", "claim", "verdict", "networks", "why"], cells)


def networks(known: dict[str, Path], tables: dict[int, Measured]) -> str:
    cells = []
    names = dict.fromkeys(name for found in tables.values() for name in found.networks)
    for name in names:
        used = [f"{number}" for number, found in tables.items() if name in found.networks]
        own = any(folder in known[name].parents for folder in OWN) if name in known else False
        rows = [row for found in tables.values() for row in found.rows if row.network == name]
        plain = next((row.values["accuracy"] for row in rows if row.method in {"identity", "uncalibrated"}), math.nan)
        sizes = f"{rows[0].n_calibration:,} / {rows[0].n_test:,}"
        label = next(found.networks[name].label for found in tables.values() if name in found.networks)
        cells.append([f"`{label}`", "ours" if own else "public", ", ".join(used), sizes, shown(plain, math.nan, 3)])
    return markdown(["network", "", "tables", "tune / test", "accuracy"], cells)


def missing(tables: dict[int, Measured]) -> str:
    cells: dict[tuple[str, str], list[Any]] = {}
    for number, found in tables.items():
        for cell, command in found.missing.items():
            cells.setdefault(cell, [command]).append(number)
    lines = [
        [f"{dataset}, {model}", ", ".join(map(str, numbers)), f"`{command}`"]
        for (dataset, model), (command, *numbers) in cells.items()
    ]
    return markdown(["published for", "tables", "needs a GPU"], lines)


def main() -> None:
    known = here(OWN)
    tables = {number: Measured(number, known) for number in paper.GRIDS}
    for number, found in tables.items():
        write_text(HERE / f"table{number}.md", found.page())
    write_text(HERE / "figures.md", figures_page())
    write_text(HERE / "open_choices.md", open_choices_page(known))
    every: dict[str, list[dict[str, Any]]] = {
        f"[Table {n}](table{n}.md)": found.verdicts for n, found in tables.items()
    }
    every |= {f"[Figure {n}](figures.md#figure-{n})": figure_verdicts(n) for n in (2, 3, 4)}
    text = (HERE / "template.md").read_text(encoding="utf-8")
    parts = {"CLAIMS": claims(every), "NETWORKS": networks(known, tables), "MISSING": missing(tables), "RULE": RULE}
    for name, part in parts.items():
        text = text.replace(f"{{{name}}}", part)
    write_text(HERE / "README.md", text)


if __name__ == "__main__":
    main()
