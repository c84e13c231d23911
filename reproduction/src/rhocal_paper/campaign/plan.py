"""Which runs there are, which are done, and what the others cost."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from rhocal.errors import FileError
from rhocal_paper.networks import MODELS, Network, named, tables_of
from rhocal_paper.train.data import OFFICIAL
from rhocal_paper.train.pretrained import digest
from rhocal_paper.train.run import CARD, LOG, LOGITS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rhocal_paper.campaign.config import CampaignNetwork
    from rhocal_paper.train.job import Job
    from rhocal_paper.train.run import Model

SIZES = {
    "cifar10": (45_000, 10, 32, 3),
    "cifar100": (45_000, 100, 32, 3),
    "svhn": (65_931, 10, 32, 3),
    "flowers102": (1_020, 102, 224, 3),
    "tiny-imagenet": (90_000, 200, 64, 3),
    "fashion-mnist": (54_000, 10, 32, 1),
}
"""Training images without the calibration set, classes, pixels a side, channels of the official sets."""

GPU_TFLOPS, CPU_TFLOPS = 15.0, 0.03
"""Sustained speed that an estimate assumes: of an A100 with mixed precision on these small images, and of one core."""


@dataclass(frozen=True)
class PlannedRun:
    """A network with a seed, and where it is or will be."""

    network: CampaignNetwork
    seed: int
    folder: Path

    @property
    def job(self) -> Job:
        """What to train."""
        return self.network.with_seed(self.seed)

    @property
    def is_done(self) -> bool:
        """Whether its logits are written; that is the last thing that a run does."""
        return (self.folder / LOGITS).is_file()


def plan(networks: Sequence[CampaignNetwork], n_seeds: int, output: Path) -> list[PlannedRun]:
    """Every run, all networks of the first seed first: a table can be read before all seeds are done."""
    return [
        PlannedRun(network, seed, output / f"{network.name}-{seed}") for seed in range(n_seeds) for network in networks
    ]


def validate_folders(runs: Sequence[PlannedRun]) -> None:
    """Raise an error if a folder holds a run with other settings: it would be taken for a run of this campaign."""
    for run in runs:
        if not (run.folder / CARD).is_file():
            continue
        try:
            card: dict[str, Any] = json.loads((run.folder / CARD).read_text(encoding="utf-8"))
        except ValueError as error:
            raise FileError(f"{run.folder / CARD}: not the card of a run; remove the folder to train again") from error
        changed = [
            f"{name} was {card[name]!r} and is {value!r}"
            for name, value in settings(run.job).items()
            if name in card and card[name] != value
        ]
        if changed:
            raise FileError(
                f"{run.folder} holds a run with other settings: {'; '.join(changed)}. Name another folder with -o, "
                "or remove that one"
            )


def settings(job: Job) -> dict[str, Any]:
    """What the card of a run says about a job."""
    model = {f"model_{name}": value for name, value in asdict(job.model).items()}
    recipe = asdict(job.recipe) | {"milestones": list(job.recipe.milestones)}
    weights = digest(job.weights) if job.weights is None or job.weights.is_file() else "?"
    source = {"data": OFFICIAL[job.data].title} if job.data in OFFICIAL else {}
    return model | recipe | source | {"weights": weights}


def tables_of_network(network: CampaignNetwork) -> list[int]:
    """The tables of the paper that have it."""
    job = network.job
    dataset, model = named(f"{OFFICIAL[job.data].title if job.data in OFFICIAL else job.data} {job.model.name}")
    return tables_of(Network(network.name, dataset, model), settings(job))


def pairs(networks: Sequence[CampaignNetwork]) -> list[tuple[CampaignNetwork, CampaignNetwork]]:
    """Networks that differ in weight decay alone, one of them without: what Figure 2 compares."""

    def key(network: CampaignNetwork) -> dict[str, Any]:
        return {name: value for name, value in network.job.to_options().items() if name != "weight_decay"}

    plain = [network for network in networks if network.job.recipe.weight_decay == 0]
    return [(one, other) for other in plain for one in networks if one is not other and key(one) == key(other)]


@cache
def multiply_adds(model: Model, n_classes: int, side: int, channels: int) -> float:
    """Of one image, forward: counted by a pass without memory."""
    count = 0.0

    def add(layer: nn.Module, _inputs: Any, out: torch.Tensor) -> None:
        nonlocal count
        weight = layer.weight
        assert isinstance(weight, torch.Tensor)
        places = out[0, 0].numel() if out.ndim > 2 else 1
        count += weight.numel() * places

    with torch.device("meta"):
        net = model.build(n_classes, channels).eval()
        for layer in net.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                layer.register_forward_hook(add)
        net(torch.empty(1, channels, side, side))
    return count


def hours(network: CampaignNetwork, runs: Sequence[PlannedRun], tflops: float) -> tuple[float, bool]:
    """Device hours of one run, and whether they were measured: by the epochs that its runs have logged.

    An estimate counts three times the forward pass for a step, and two operations for a multiply-add. NaN where the number of
    images is not known before they are read.
    """
    epochs = network.job.recipe.epochs
    seconds = [second for run in runs if run.network is network for second in logged_seconds(run.folder)]
    if seconds:
        return float(np.median(seconds)) * epochs / 3600, True
    if network.job.data not in SIZES:
        return float("nan"), False
    n_images, n_classes, side, channels = SIZES[network.job.data]
    once = multiply_adds(network.job.model, n_classes, network.job.size or side, channels)
    operations = 6 * once * n_images * epochs
    return operations / (tflops * 1e12) / 3600, False


def logged_seconds(folder: Path) -> list[float]:
    """Seconds of the epochs of a run."""
    if not (folder / LOG).is_file():
        return []
    with (folder / LOG).open(newline="", encoding="utf-8") as file:
        return [float(row["seconds"]) for row in csv.DictReader(file) if row.get("seconds")]


def remaining_epochs(run: PlannedRun) -> int:
    """How many epochs a run still needs."""
    return 0 if run.is_done else max(0, run.job.recipe.epochs - len(logged_seconds(run.folder)))


def title(network: CampaignNetwork) -> str:
    """Data and model as people write them."""
    job = network.job
    data = OFFICIAL[job.data].title if job.data in OFFICIAL else job.data
    return f"{data}, {MODELS.get(job.model.name, job.model.name)}"
