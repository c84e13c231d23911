"""The page of all methods on all networks, from the rows that `rhocal compare` wrote.

    make comparison

runs `rhocal compare LOGITS/*.npz --methods all --seeds 5 --resume --jobs 2 -o rows.csv` and then this script, which writes
`README.md`, `pareto.svg` and `ranks.svg` beside itself, and says how far `auto` is above temperature scaling at worst. The run
can be interrupted; the next one goes on where it was.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pictures import pareto, pareto_front, rank_plot
from rhocal.calibrators import CALIBRATORS
from rhocal.data.files import write_text
from rhocal.evaluation.ranking import critical_difference, ranking, ratios
from rhocal.evaluation.rows import FAILED, Row, complete, read_rows, summary

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).parent
RANKED = {
    "ece": "ECE",
    "adaptive_ece": "AdaECE",
    "mce": "MCE",
    "classwise_ece": "classwise ECE",
    "nll": "NLL",
    "brier": "Brier",
}

KINDS = {
    "image classifiers": ("cifar", "fashionmnist", "svhn", "flowers", "pathmnist"),
    "language models' option logits": ("emotion6", "mmbench6", "mnli", "agnews"),
}
"""Kinds of networks that ask for different maps, by how their names begin."""

N_SPLITS = 5
"""Random halves of a network without a split of its own."""

INDISTINCT = 2 / 3
"""Share of the methods that may be within the critical difference of the best before a metric is said to say little."""


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *lines])


def whole(rows: Sequence[Row]) -> list[Row]:
    """The splits on which every method of the table has a row: others are not finished, and would bend the means."""
    methods_by_split: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        methods_by_split.setdefault((row.network, row.split), set()).add(row.method)
    return [
        row
        for row in rows
        if row.method in CALIBRATORS and methods_by_split[row.network, row.split] >= set(CALIBRATORS)
    ]


def coverage(used: Sequence[Row]) -> str:
    """How many rows there are, and whether any is missing."""
    splits = {(row.network, row.split) for row in used}
    failed = sum(row.note.startswith(FAILED) for row in used)
    text = (
        f"{len(used):,} rows: {len(CALIBRATORS)} methods on each of {len(splits)} splits of "
        f"{len({network for network, _ in splits})} networks; {failed} of them have no result, with the reason (below)."
    )
    splits_by_network: dict[str, set[str]] = {}
    for network, split in splits:
        splits_by_network.setdefault(network, set()).add(split)
    short = {
        network: len(names)
        for network, names in sorted(splits_by_network.items())
        if names != {"own"} and len(names) < N_SPLITS
    }
    if short:
        names = ", ".join(f"{network} {n}" for network, n in short.items())
        text += f" **Not finished: {names} of {N_SPLITS} splits; splits on which a method is missing are left out.**"
    return text


def costs(rows: Sequence[Row]) -> dict[str, tuple[float, float]]:
    """Of every method the median processor time of a fit, and the median of its ratio to temperature scaling's."""
    own = {(row.network, row.split): row.cpu_seconds for row in rows if row.method == "temperature"}
    costs: dict[str, tuple[float, float]] = {}
    for method in CALIBRATORS:
        mine = [row for row in rows if row.method == method and not row.note.startswith(FAILED)]
        ratio = [row.cpu_seconds / own[row.network, row.split] for row in mine]
        costs[method] = float(np.median([row.cpu_seconds for row in mine])), float(np.median(ratio))
    return costs


def means_table(rows: Sequence[Row]) -> str:
    """Methods by mean NLL; the best of each column is bold."""
    lines = sorted(summary(rows), key=lambda line: line["nll"])
    accuracy = next(line["accuracy"] for line in lines if line["method"] == "identity")
    for line in lines:
        line["above_floor"] = line["ece"] - line["ece_floor"]
    columns = {"ece": "ECE", "above_floor": "above floor", **RANKED}
    best = {name: min(line[name] for line in lines) for name in columns}
    cost = costs(rows)
    cells = []
    for line in lines:
        seconds, ratio = cost[line["method"]]
        cells.append(
            [
                f"`{line['method']}`",
                *(f"**{line[name]:.4f}**" if line[name] == best[name] else f"{line[name]:.4f}" for name in columns),
                f"{100 * (line['accuracy'] - accuracy):+.2f}",
                f"{seconds:.2g}",
                f"{ratio:.2g}" if ratio < 10 else f"{ratio:.0f}",
            ]
        )
    return markdown(["method", *columns.values(), "accuracy, points", "fit, CPU s", "× temperature's"], cells)


def kinds_table(rows: Sequence[Row]) -> str:
    """ECE above its floor and NLL of every method on each kind of network, by the NLL of the first kind."""
    by_kind = {}
    for kind, beginnings in KINDS.items():
        mine = [row for row in rows if row.network.startswith(beginnings)]
        n_networks = len(complete(mine))
        by_kind[f"{kind} ({n_networks})"] = {line["method"]: line for line in summary(mine)}
    first = next(iter(by_kind.values()))
    cells = [
        [
            f"`{method}`",
            *(
                f"{value:.4f}"
                for lines in by_kind.values()
                for value in (lines[method]["ece"] - lines[method]["ece_floor"], lines[method]["nll"])
            ),
        ]
        for method in sorted(first, key=lambda method: first[method]["nll"])
    ]
    head = ["method", *(f"{kind}: {what}" for kind in by_kind for what in ("ECE above floor", "NLL"))]
    return markdown(head, cells)


def ranks_table(rows: Sequence[Row]) -> str:
    """Mean rank of every method under every metric, and how often it beats temperature scaling."""
    by_metric = {name: {line["method"]: line for line in ranking(rows, name)} for name in RANKED}
    methods = sorted(by_metric["nll"], key=lambda method: by_metric["nll"][method]["mean_rank"])
    cells = [
        [f"`{m}`", *(f"{by_metric[n][m]['mean_rank']:.1f} ({100 * by_metric[n][m]['win_rate']:.0f} %)" for n in RANKED)]
        for m in methods
    ]
    return markdown(["method", *RANKED.values()], cells)


def groups_text(rows: Sequence[Row]) -> str:
    """Methods whose mean rank does not differ significantly from the best, for each metric."""
    distance = critical_difference(len(CALIBRATORS), len(complete(rows)))
    lines = []
    for name, title in RANKED.items():
        order = ranking(rows, name)
        level = [f"`{line['method']}`" for line in order if line["mean_rank"] - order[0]["mean_rank"] <= distance]
        if len(level) > INDISTINCT * len(order):
            level = [f"{len(level)} of {len(order)} methods; this metric hardly distinguishes them"]
        lines.append(f"- {title}: {', '.join(level)}")
    return (
        f"Two mean ranks that are less than {distance:.1f} apart are not distinguished (Nemenyi's critical difference, 5 %, "
        f"{len(CALIBRATORS)} methods, {len(complete(rows))} networks). Not distinguished from the best:\n\n"
        + "\n".join(lines)
    )


def auto_table(rows: Sequence[Row]) -> str:
    """`auto` beside temperature scaling on every network, the worst first."""
    by_network = ratios(rows, "auto")
    order = sorted(by_network, key=lambda network: -by_network[network].mean())
    cells = [
        [name, f"{by_network[name].mean():.4f}", f"{by_network[name].max():.4f}", str(len(by_network[name]))]
        for name in order
    ]
    return markdown(["network", "NLL / temperature's, mean", "worst split", "splits"], cells)


def auto_text(rows: Sequence[Row]) -> str:
    by_network = ratios(rows, "auto")
    mean = max(by_network, key=lambda network: by_network[network].mean())
    split = max(by_network, key=lambda network: by_network[network].max())
    means = [float(values.mean()) for values in by_network.values()]
    return (
        f"`auto`'s NLL over temperature scaling's is {np.mean(means):.4f} on average; at worst it is {max(means):.4f} as the "
        f"mean of a network's splits ({mean}) and {by_network[split].max():.4f} on a single split ({split})."
    )


def failures(rows: Sequence[Row]) -> str:
    """Every reason once, with the cells it stands for."""
    by_reason: dict[str, set[tuple[str, str]]] = {}
    for row in rows:
        if row.note.startswith(FAILED):
            by_reason.setdefault(row.note.removeprefix(FAILED), set()).add((row.network, row.method))
    lines = []
    for why, cells in by_reason.items():
        methods = ", ".join(f"`{name}`" for name in CALIBRATORS if name in {method for _, method in cells})
        lines.append(f"- {', '.join(sorted({network for network, _ in cells}))}; {methods}: {why}")
    return "\n".join(lines) or "None."


def warned(rows: Sequence[Row]) -> str:
    """Warnings of fits that have a result, those that differ in numbers and names of methods only together."""
    notes: dict[str, list[Row]] = {}
    for row in rows:
        if row.note and not row.note.startswith(FAILED):
            kind = re.sub(r"^[\w-]+ (?=fits a map)", "it ", re.sub(r"\d+\.\d+", "…", row.note))
            notes.setdefault(kind, []).append(row)
    lines = [
        f"- {len(mine)} times ({', '.join(sorted({row.network for row in mine}))}; "
        f"{', '.join(sorted({f'`{row.method}`' for row in mine}))}): {note}"
        for note, mine in sorted(notes.items(), key=lambda item: -len(item[1]))
    ]
    return "\n".join(lines) or "None."


def conclusions(rows: Sequence[Row]) -> str:
    """What the numbers say, in sentences that are computed from them."""
    lines = {line["method"]: line for line in summary(rows)}
    above = {name: line["ece"] - line["ece_floor"] for name, line in lines.items()}
    nll = {name: line["nll"] for name, line in lines.items()}
    front = pareto_front(lines.values())
    wins = {name: {line["method"]: line["win_rate"] for line in ranking(rows, name)} for name in ("ece", "nll")}
    both = [m for m in CALIBRATORS if min(wins["ece"][m], wins["nll"][m]) > 0.75]
    gamed = [m for m in CALIBRATORS if above[m] < above["temperature"] and nll[m] > nll["temperature"]]
    worse = [
        m for m in CALIBRATORS if above[m] > above["temperature"] and nll[m] > nll["temperature"] and m != "identity"
    ]
    gains = {m: 100 * (lines[m]["accuracy"] - lines["identity"]["accuracy"]) for m in lines}
    up = max(gains, key=lambda m: gains[m])
    down = min((m for m in gains if not CALIBRATORS[m].family.keeps_decision), key=lambda m: gains[m])
    sentences = [
        f"No other method has both a lower mean NLL and less ECE above its floor (circles in the plot): {named(front)}.",
        f"Better than temperature scaling on more than three quarters of the networks, in ECE *and* NLL: {named(both)}.",
        f"Lower ECE but higher NLL than temperature scaling, so that ECE alone is misleading: {named(gamed)}.",
        f"Worse than temperature scaling in both: {named(worse)}.",
        (
            f"Of the methods that may change decisions, `{up}` changes the mean accuracy most ({gains[up]:+.2f} points), "
            f"`{down}` least ({gains[down]:+.2f}). "
            f"{accuracy_by_network(rows, up)}"
        ),
    ]
    return "\n".join(f"- {sentence}" for sentence in sentences)


def accuracy_by_network(rows: Sequence[Row], method: str) -> str:
    """Where a method moves the accuracy most, and what is left elsewhere."""
    gains = {
        network: 100 * (np.mean(mine["accuracy", method]) - np.mean(mine["accuracy", "identity"]))
        for network, mine in by_network(rows).items()
    }
    most = sorted(gains, key=lambda network: -gains[network])[:4]
    rest = np.mean([value for network, value in gains.items() if network not in most])
    where = ", ".join(f"{network} ({gains[network]:+.1f})" for network in most)
    return f"`{method}` gains most on {where}; on the other networks {rest:+.2f} on average."


def by_network(rows: Sequence[Row]) -> dict[str, dict[tuple[str, str], list[float]]]:
    """Figures of every network that all methods have a result on, by metric and method."""
    values: dict[str, dict[tuple[str, str], list[float]]] = {network: {} for network in complete(rows)}
    for row in rows:
        for metric, value in row.values.items():
            values.get(row.network, {}).setdefault((metric, row.method), []).append(value)
    return values


def named(methods: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in methods) or "none"


def main() -> None:
    rows = [Row.from_flat(row) for row in read_rows(HERE / "rows.csv")]
    used = whole(rows)
    shared = complete(used)
    lines = summary(used)
    pareto(lines, HERE / "pareto.svg")
    rank_plot(
        {title: ranking(used, name) for name, title in (("ece", "ECE"), ("nll", "NLL"))},
        critical_difference(len(CALIBRATORS), len(shared)),
        HERE / "ranks.svg",
    )
    text = (HERE / "template.md").read_text(encoding="utf-8")
    for mark, value in {
        "COVERAGE": coverage(used),
        "SHARED": str(len(shared)),
        "CONCLUSIONS": conclusions(used),
        "MEANS": means_table(used),
        "KINDS": kinds_table(used),
        "RANKS": ranks_table(used),
        "GROUPS": groups_text(used),
        "AUTO": auto_text(used),
        "AUTO_TABLE": auto_table(used),
        "FAILURES": failures(used),
        "WARNINGS": warned(used),
    }.items():
        text = text.replace("{" + mark + "}", value)
    write_text(HERE / "README.md", text)
    print(coverage(used))
    print(auto_text(used))


if __name__ == "__main__":
    main()
