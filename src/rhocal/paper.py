"""The paper's tables on any logits: ours, and the published numbers beside them.

*Parametric ρ-Norm Scaling Calibration*, Siyuan Zhang and Linbo Xie, arXiv:2412.15301; ``data/README.md`` says what is stored.
"""

from __future__ import annotations

import csv
import json
import math
import re
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.errors import FileError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rhocal.compare import Row

TABLE1 = {
    "identity": "uncalibrated",
    "histogram-binning": "histogram-binning",
    "temperature": "temperature",
    "vector": "vector",
    "temperature-avuc": "temperature-avuc",
    "rho-norm-paper": "rho-norm",
    "rho-norm": None,
}
"""Our methods and what Table 1 calls them. The last is ours with its own defaults, which the paper does not have."""

METRICS = {"ece": "ECE", "adaptive_ece": "AdaECE", "mce": "MCE"}
"""The metrics of Table 1, with 10 bins as in the paper."""

DATASETS = {
    "cifar100": "CIFAR-100",
    "cifar10": "CIFAR-10",
    "svhn": "SVHN",
    "flowers102": "102 Flower",
    "tinyimagenet": "Tiny-ImageNet",
}
MODELS = {
    "resnet18": "ResNet18",
    "resnet34": "ResNet35",
    "resnet35": "ResNet35",
    "resnet50": "ResNet50",
    "vgg16": "VGG16",
}
WIDTH = 64
"""Channels of the first stage of the paper's networks; thin ones are shown beside, but do not take their place."""

Cell = tuple[str, str]
"""Dataset and model, in the paper's words."""


@dataclass(frozen=True)
class Published:
    """A number of the paper."""

    table: int
    dataset: str
    model: str
    method: str
    metric: str
    value: float
    sd: float = math.nan


def published(table: int) -> list[Published]:
    """The numbers of a table."""
    text = (files("rhocal") / "data" / "published.csv").read_text(encoding="utf-8")
    return [
        Published(
            table, row["dataset"], row["model"], row["method"], row["metric"],
            float(row["value"]), float(row["std"] or math.nan),
        )
        for row in csv.DictReader(text.splitlines())
        if int(row["table"]) == table
    ]  # fmt: skip


def cells(table: int) -> list[Cell]:
    """The networks of a table."""
    return list(dict.fromkeys((p.dataset, p.model) for p in published(table)))


def logits_files(folder: Path) -> list[Path]:
    """The .npz files of a folder, and the logits of the runs (``rhocal train``) in it."""
    found = [*sorted(folder.glob("*.npz")), *sorted(folder.glob("*/logits.npz"))]
    if not found:
        raise FileError(f"{folder}: no .npz files, and no folders of runs with a logits.npz")
    return found


@dataclass(frozen=True)
class Network:
    """What a file of logits comes from. Runs that differ in the seed alone have one label."""

    label: str
    cell: Cell | None
    """Dataset and model in the paper's words; a table need not have that pair."""
    full: bool = True
    """Whether it is as wide as the paper's."""


def network_of(path: Path) -> Network:
    """From the card of the run, where there is one; else from the name of the file: ``cifar100_vgg16_bn``."""
    card = path.parent / "run.json"
    if path.name == "logits.npz" and card.is_file():
        try:
            run: dict[str, Any] = json.loads(card.read_text(encoding="utf-8"))
            data, model, width = str(run["data"]), str(run["model_name"]), run["model_width"]
            parts = [data, MODELS.get(model, model), f"width {width}", f"weight decay {run['weight_decay']:g}"]
            parts += [str(run["loss"])] + ([f"mixup {run['mixup']:g}"] if run["mixup"] else [])
        except (KeyError, TypeError, ValueError) as error:
            raise FileError(f"{card}: not the card of a run: {error!r}") from error
        return Network(", ".join(parts), cell_of(f"{data} {model}"), width == WIDTH)
    return Network(path.stem, cell_of(path.stem))


def cell_of(text: str) -> Cell | None:
    """The dataset and model that words of a name say; None unless both are in the paper's words.

    >>> cell_of("cifar-100_ResNet34")
    ('CIFAR-100', 'ResNet35')
    >>> cell_of("cifar100_resnet56")
    """
    joined = re.sub(r"(cifar|flowers|tiny|resnet|vgg)[-_ ](\d+|imagenet)", r"\1\2", text.lower())
    joined = joined.replace("102 flowers", "flowers102")
    words = re.split(r"[_\W]+", joined)
    dataset = next((title for word, title in DATASETS.items() if word in words), None)
    model = next((title for word, title in MODELS.items() if word in words), None)
    return (dataset, model) if dataset and model else None


def table1(rows: Sequence[Row], networks: Mapping[str, Network]) -> list[dict[str, Any]]:
    """Tidy lines: network, metric, method; ours (mean and sd over splits and seeds), the floor, and the published number."""
    numbers = {(p.dataset, p.model, p.method, p.metric): p for p in published(1)}
    lines = []
    labels = dict.fromkeys(networks[row.network].label for row in rows)
    for label in labels:
        mine = [row for row in rows if networks[row.network].label == label]
        cell = networks[mine[0].network].cell
        for metric, title in METRICS.items():
            for method, theirs in TABLE1.items():
                same = [row for row in mine if row.method == method]
                values = np.array([row.figures[metric] for row in same])
                known = numbers.get((*cell, theirs, title)) if cell and theirs else None
                lines.append(
                    {
                        "network": label,
                        "dataset": cell[0] if cell else "",
                        "model": cell[1] if cell else "",
                        "metric": title,
                        "method": method,
                        "ours": float(values.mean()) if len(values) else math.nan,
                        "ours_sd": float(values.std(ddof=1)) if len(values) > 1 else math.nan,
                        "n": len(values),
                        "ece_floor": float(np.mean([row.ece_floor for row in same])) if same else math.nan,
                        "published": known.value if known else math.nan,
                        "published_sd": known.sd if known else math.nan,
                    }
                )
    return lines


def verdicts(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """For each network, what becomes of the claims of Table 1: lowest ECE and AdaECE for ρ-norm, but not the lowest MCE.

    *Reproduced*: ρ-norm (fitted as the paper does) has the lowest mean. *In direction*: it is below temperature scaling and
    the uncalibrated network, but another method is lower. For MCE: reproduced if it is not the lowest. Differences
    smaller than the standard deviation over splits are no more than that; the lines say how large it is.
    """
    found = []
    for network in dict.fromkeys(line["network"] for line in lines):
        for metric in METRICS.values():
            ours = {
                line["method"]: line["ours"]
                for line in lines
                if (line["network"], line["metric"]) == (network, metric)
                and TABLE1[line["method"]]
                and not math.isnan(line["ours"])
            }
            if not {"rho-norm-paper", "temperature", "identity"} <= ours.keys():
                found.append({"network": network, "metric": metric, "verdict": "no verdict", "reason": "a fit failed"})
                continue
            rho = ours["rho-norm-paper"]
            best = min(ours, key=lambda method: ours[method])
            if metric == "MCE":
                verdict = "reproduced" if best != "rho-norm-paper" else "not reproduced"
            elif best == "rho-norm-paper":
                verdict = "reproduced"
            elif rho < min(ours["temperature"], ours["identity"]):
                verdict = "reproduced in direction"
            else:
                verdict = "not reproduced"
            told = dict.fromkeys((best, "rho-norm-paper", "temperature"))
            reason = ", ".join(f"{TABLE1[method]} {ours[method]:.4f}" for method in told)
            found.append({"network": network, "metric": metric, "verdict": verdict, "reason": reason})
    return found


def missing(networks: Sequence[Network]) -> dict[Cell, str]:
    """Published cells of Table 1 without a network here, and the command that trains one."""
    names = {title: name for name, title in DATASETS.items()} | {"Tiny-ImageNet": "tiny-imagenet"}
    models = {title: name for name, title in MODELS.items() if name != "resnet35"}
    have = {network.cell for network in networks if network.full}
    commands = {}
    for dataset, model in cells(1):
        if (dataset, model) in have:
            continue
        extra = " --form imagenet --size 224" if dataset == "102 Flower" else ""
        name, short = names[dataset], models[model]
        commands[dataset, model] = (
            f"rhocal train --data {name} --model {short}{extra} --seed 0 -o runs/{name}-{short}-0"
        )
    return commands
