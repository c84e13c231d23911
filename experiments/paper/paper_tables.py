"""`README.md` of the paper's tables, from the rows that `rhocal paper` wrote.

make paper

runs `rhocal paper table1 --logits LOGITS -o table1.csv`, `alpha.py`, and then this script.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np

from rhocal import paper
from rhocal.compare import read_rows
from rhocal.files import write_text

HERE = Path(__file__).parent
NUMBERS = ("ours", "ours_sd", "ece_floor", "published", "published_sd")


def markdown(head: list[str], lines: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *lines])


def read_lines(path: Path) -> list[dict[str, Any]]:
    with path.open(newline="", encoding="utf-8") as file:
        return [row | {name: float(row[name] or math.nan) for name in NUMBERS} for row in csv.DictReader(file)]


def shown(value: float, sd: float, digits: int) -> str:
    return "" if math.isnan(value) else f"{value:.{digits}f}" + ("" if math.isnan(sd) else f" ± {sd:.{digits}f}")


def network_table(lines: list[dict[str, Any]]) -> str:
    metrics = list(paper.METRICS.values())
    head = ["method", *(column for metric in metrics for column in (metric, "published")), "ECE floor"]
    cells = []
    for method in paper.TABLE1:
        mine = {line["metric"]: line for line in lines if line["method"] == method}
        row = [f"`{method}`"]
        for metric in metrics:
            line = mine[metric]
            row += [shown(line["ours"], line["ours_sd"], 4), shown(line["published"], line["published_sd"], 3)]
        cells.append([*row, f"{mine['ECE']['ece_floor']:.4f}"])
    return markdown(head, cells)


def alphas() -> str:
    rows = read_rows(HERE / "alpha.csv")
    cells = []
    for network, method in dict.fromkeys((row["network"], row["method"]) for row in rows):
        mine = [row for row in rows if (row["network"], row["method"]) == (network, method)]
        values = [np.array([row[name] for row in mine]) for name in paper.METRICS]
        sds = [float(v.std(ddof=1)) if len(v) > 1 else math.nan for v in values]
        cells.append([f"`{network}`", method, *(shown(v.mean(), sd, 4) for v, sd in zip(values, sds, strict=True))])
    return markdown(["network", "method", *paper.METRICS.values()], cells)


def main() -> None:
    lines = read_lines(HERE / "table1.csv")
    parts = []
    for network in dict.fromkeys(line["network"] for line in lines):
        mine = [line for line in lines if line["network"] == network]
        title = f"### `{network}` beside {mine[0]['dataset']}, {mine[0]['model']} (splits: {mine[0]['n']})"
        parts.append(f"{title}\n\n{network_table(mine)}")
    verdicts = markdown(
        ["network", "metric", "verdict", "lowest, and others"],
        [[f"`{v['network']}`", v["metric"], v["verdict"], v["reason"]] for v in paper.verdicts(lines)],
    )
    have = [paper.Network(line["network"], (line["dataset"], line["model"])) for line in lines]
    absent = markdown(
        ["published for", "needs a GPU"],
        [[f"{dataset}, {model}", f"`{command}`"] for (dataset, model), command in paper.missing(have).items()],
    )
    text = (HERE / "template.md").read_text(encoding="utf-8")
    for name, part in (
        ("NETWORKS", "\n\n".join(parts)),
        ("VERDICTS", verdicts),
        ("ALPHA", alphas()),
        ("MISSING", absent),
    ):
        text = text.replace(f"{{{name}}}", part)
    write_text(HERE / "README.md", text)


if __name__ == "__main__":
    main()
