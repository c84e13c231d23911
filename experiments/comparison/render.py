"""The table of all methods on all networks, from the rows that `rhocal compare` wrote.

    make comparison

runs `rhocal compare LOGITS/*.npz --methods all --seeds 5 --resume --jobs 2 -o rows.csv` and then this script, which writes
`README.md` and `pareto.svg` beside itself. Interrupted, it goes on where it was.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np

from rhocal.compare import FAILED, Row, complete, read_rows, summary
from rhocal.files import write_text
from rhocal.ranking import critical_difference, ranking

mpl.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).parent
RANKED = ("ece", "adaptive_ece", "classwise_ece", "nll", "brier")
TITLES = ("ECE", "AdaECE", "Classwise ECE", "NLL", "Brier")


def markdown(head: list[str], lines: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *lines])


def means_table(rows: list[Row]) -> str:
    """Methods by mean NLL."""
    lines = sorted(summary(rows), key=lambda line: line["nll"])
    accuracy = next(line["accuracy"] for line in lines if line["method"] == "identity")
    cells = [
        [
            f"`{line['method']}`",
            *(
                f"{line[name]:.4f}"
                for name in ("ece", "ece_floor", "adaptive_ece", "mce", "classwise_ece", "nll", "brier")
            ),
            f"{100 * (line['accuracy'] - accuracy):+.2f}",
            f"{line['seconds']:.2f}",
        ]
        for line in lines
    ]
    head = [
        "method",
        "ECE",
        "floor",
        "AdaECE",
        "MCE",
        "classwise ECE",
        "NLL",
        "Brier",
        "accuracy change, points",
        "fit s",
    ]
    return markdown(head, cells)


def ranks_table(rows: list[Row]) -> str:
    """Mean rank of every method under every metric, and how often it beats temperature scaling."""
    by_metric = {name: {line["method"]: line for line in ranking(rows, name)} for name in RANKED}
    methods = sorted(by_metric["nll"], key=lambda method: by_metric["nll"][method]["mean_rank"])
    cells = [
        [f"`{m}`", *(f"{by_metric[n][m]['mean_rank']:.1f} ({by_metric[n][m]['win_rate']:.0%})" for n in RANKED)]
        for m in methods
    ]
    return markdown(["method", *TITLES], cells)


def groups_text(rows: list[Row]) -> str:
    """Who cannot be told from the best by mean rank, for each metric."""
    n_methods = len({row.method for row in rows})
    distance = critical_difference(n_methods, len(complete(rows)))
    lines = []
    for name, title in zip(RANKED, TITLES, strict=True):
        order = ranking(rows, name)
        level = [f"`{line['method']}`" for line in order if line["mean_rank"] - order[0]["mean_rank"] <= distance]
        lines.append(f"- {title}: {', '.join(level)}")
    return f"Critical difference of mean ranks (Nemenyi, 5 %): {distance:.1f}. Not told from the best:\n\n" + "\n".join(
        lines
    )


def failures(rows: list[Row]) -> str:
    found = {(row.network, row.method): row.note.removeprefix(FAILED) for row in rows if row.note.startswith(FAILED)}
    return "\n".join(f"- {network}, `{method}`: {why}" for (network, method), why in found.items()) or "None."


def pareto(rows: list[Row]) -> None:
    """ECE above its floor against NLL; the front is what no other method beats on both."""
    lines = summary(rows)
    points = {line["method"]: (line["nll"], max(line["ece"] - line["ece_floor"], 1e-4)) for line in lines}
    front = [
        name
        for name, (x, y) in points.items()
        if not any(a <= x and b <= y and (a, b) != (x, y) for a, b in points.values())
    ]
    figure, axis = plt.subplots(figsize=(8, 5.2), layout="constrained")
    for name, (x, y) in points.items():
        on = name in front
        axis.plot(x, y, "o" if on else "x", color="black" if on else "0.45", markersize=7 if on else 6)
        axis.annotate(
            name, (x, y), xytext=(4, 3), textcoords="offset points", fontsize=8, color="black" if on else "0.3"
        )
    line = np.array(sorted(points[name] for name in front))
    axis.step(line[:, 0], line[:, 1], where="post", color="black", linewidth=0.8)
    axis.set(xlabel="NLL, mean over networks", ylabel="ECE above its floor", yscale="log")
    axis.set_title("Lower left is better; circles: no other method is better on both", fontsize=10)
    axis.grid(visible=True, which="both", alpha=0.2)
    figure.savefig(HERE / "pareto.svg", metadata={"Date": None})


def main() -> None:
    rows = [Row.of_flat(row) for row in read_rows(HERE / "rows.csv")]
    networks, shared = {row.network for row in rows}, complete(rows)
    pareto(rows)
    text = (HERE / "template.md").read_text()
    for mark, value in {
        "METHODS": str(len({row.method for row in rows})),
        "NETWORKS": str(len(networks)),
        "SHARED": str(len(shared)),
        "MEANS": means_table(rows),
        "RANKS": ranks_table(rows),
        "GROUPS": groups_text(rows),
        "FAILURES": failures(rows),
    }.items():
        text = text.replace("{" + mark + "}", value)
    write_text(HERE / "README.md", text)


if __name__ == "__main__":
    main()
