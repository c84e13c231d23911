"""The pages of the paper's tables and figures, from the rows that `paper_rows.py` wrote. Run by `make paper`."""

from __future__ import annotations

import argparse
import csv
import math
from pathlib import Path
from typing import Any

from paper_rows import HERE, OWN, ROWS, grids, here, rows_file

import rhocal_paper as paper
from rhocal.data.files import write_text
from rhocal_paper.grid import ECE, RULE
from rhocal_paper.measure import old_rows
from rhocal_paper.open_choices import LEFT_OPEN
from rhocal_paper.page import Measured, markdown, shown, verdict_table


def measured(number: int, known: dict[str, Path]) -> Measured:
    """The rows of a grid, with what their networks are."""
    rows = old_rows(rows_file(number))
    names = dict.fromkeys(row.network for row in rows)
    networks = {name: paper.network_of(known.get(name, Path(f"{name}.npz"))) for name in names}
    return Measured(grids()[number], rows, networks)


EXPLAINED = """\
ECE on all public networks on CIFAR-100 (mean ± standard deviation over five cuts). Each line changes one thing of the preset.
The last column judges the claim that the line is below temperature scaling."""


def open_choices_page(known: dict[str, Path]) -> str:
    """What the paper leaves open, what we chose, and what other choices give."""
    found = measured(paper.OPEN_CHOICES.table, known)
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
        4: "For each bin of raw confidence 5, 25, 50, 75 and 95 % of the calibrated confidence. SCE above, SCE + KL below. "
        "One network, the first of its cuts: the verdicts below rest on it alone.",
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, nargs="*", default=[], help="folders of runs of `rhocal-paper train`")
    known = here([*OWN, *parser.parse_args().runs])
    tables = {number: measured(number, known) for number in paper.GRIDS}
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
