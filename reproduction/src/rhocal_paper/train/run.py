"""Training, from a dataset to a file of logits."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rhocal import __version__
from rhocal.data.files import write_text
from rhocal.data.formats import write_arrays
from rhocal.data.predictions import Predictions
from rhocal.errors import FileError, InputError
from rhocal.evaluation.rows import write_rows
from rhocal.metrics import amplitude, measure_all
from rhocal_paper.train import checkpoints
from rhocal_paper.train.batches import Normal, epoch_batches, on
from rhocal_paper.train.distributed import processes, synchronized
from rhocal_paper.train.ensembles import with_dropout, with_members
from rhocal_paper.train.networks import LEAST_SIDE, WIDTH, n_parameters, network, on_device
from rhocal_paper.train.pretrained import digest, load_weights
from rhocal_paper.train.recipe import Recipe
from rhocal_paper.train.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import nn

    from rhocal_paper.train.data import Dataset

    Row = dict[str, float]

LOGITS, LOG, CARD = "logits.npz", "log.csv", "run.json"


@dataclass(frozen=True)
class Model:
    """Which network."""

    name: str
    width: int = WIDTH
    form: str = "cifar"
    dropout: float = 0.0
    """Rate after every block; with ``passes`` Monte Carlo dropout."""
    passes: int = 1
    """Predictions are means of so many passes with dropout."""
    members: int = 1
    """BatchEnsemble of so many members."""

    def __post_init__(self) -> None:
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout must be at least 0 and below 1; got {self.dropout}")
        for name in ("passes", "members"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1; got {getattr(self, name)}")

    def build(self, n_classes: int, channels: int) -> nn.Sequential:
        """The network with weights drawn by torch's generator."""
        net = network(self.name, n_classes, width=self.width, form=self.form, channels=channels)
        if self.dropout:
            net = with_dropout(net, self.dropout)
        if self.members > 1:
            with_members(net, self.members)
        return net


def device_of(name: str) -> torch.device:
    """``auto`` is a GPU where there is one; of several processes on a machine each has its own."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"device {name!r} is unknown; say auto, cpu or cuda") from error
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise InputError(f"device {name}: this machine has no GPU that torch can use")
        own = int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
        device = torch.device("cuda", own if name == "cuda" else device.index)
        torch.cuda.set_device(device)
    return device


def train(
    data: Dataset, model: Model, recipe: Recipe, folder: Path, *, weights: Path | None = None,
    device: str = "auto", resume: bool = False, after_epoch: Callable[[Row], None] | None = None,
) -> Path:  # fmt: skip
    """Train, and write ``logits.npz`` (tune and test), ``log.csv`` (a row per epoch), ``run.json`` to the folder.

    A checkpoint is written after every epoch; with ``resume`` the run goes on from it, on this or another device, and ends
    as if it had never been interrupted (on one device, with as many threads). Without it, a folder that holds a checkpoint is
    an error.
    """
    place = device_of(device)
    data = data.with_share(recipe.share)
    settings = _settings(data, model, recipe) | {"weights": digest(weights)}
    _validate_images(data, model)
    folder.mkdir(parents=True, exist_ok=True)
    if not resume and (folder / checkpoints.NAME).exists():
        raise FileError(f"{folder} holds a run already: --resume goes on with it; or name another folder")
    before = checkpoints.read(folder, settings, DEFAULTS)
    torch.manual_seed(recipe.seed)
    net = model.build(len(data.classes), data.train.pixels.shape[3])
    if weights is not None and before is None:
        load_weights(net, weights)
    group = processes(place)
    net = on_device(synchronized(net, group, place), place)
    worker = Worker(net, recipe, place, model, group, len(data.classes), len(data.train))
    rows = [] if before is None else list(before.rows)
    if before is not None:
        worker.restore(before)
    card = settings | {"parameters": n_parameters(net), "rhocal": __version__}
    if group.is_first:
        _begin_files(folder, card, rows)
    normal = Normal.of(data.train.pixels)
    pixels, labels = on(data.train, place)
    for epoch in range(len(rows), recipe.epochs):
        start = time.perf_counter()
        torch.manual_seed(recipe.seed * 100_003 + epoch)  # dropout
        batches = epoch_batches(pixels, labels, normal, recipe, epoch, mirror=data.mirror)
        row: Row = {"epoch": epoch + 1, "learning_rate": recipe.rate(epoch)}
        row |= worker.epoch(batches, recipe.rate(epoch))
        if not group.is_first:
            continue
        logits = worker.logits(data.tune.pixels, normal)
        row |= measured(logits, data.tune.labels)
        row["seconds"] = time.perf_counter() - start
        rows.append(row)
        worker.after_epoch(row, logits, data.tune.labels)
        worker.checkpoint(settings, rows).save(folder)
        write_rows(folder / LOG, rows)
        if after_epoch is not None:
            after_epoch(row)
    if group.is_first:
        if worker.best:
            net.load_state_dict(worker.best["model"])
            write_text(folder / CARD, json.dumps(card | {"kept_epoch": worker.best["epoch"]}, indent=2))
        write_logits(folder / LOGITS, worker, data, normal)
    return folder / LOGITS


def _begin_files(folder: Path, card: dict[str, Any], rows: list[Row]) -> None:
    """Write the settings of a run, and the log as of its checkpoint: it may have ended between the two."""
    write_text(folder / CARD, json.dumps(card, indent=2))
    if rows:
        write_rows(folder / LOG, rows)


def _validate_images(data: Dataset, model: Model) -> None:
    least, side = LEAST_SIDE.get(model.name, 1), min(data.train.pixels.shape[1:3])
    if side < least:
        raise InputError(
            f"{model.name} needs images of at least {least} pixels a side; {data.name} has {side} (--size)"
        )
    if len(data.train) < 2:
        raise InputError(f"{data.name}: {len(data.train)} training image; batch normalisation needs two at least")


def write_logits(path: Path, worker: Worker, data: Dataset, normal: Normal) -> None:
    """The logits of the calibration and the test set, with labels and names of classes."""
    arrays: dict[str, NDArray[Any]] = {
        "logits_val": worker.logits(data.tune.pixels, normal),
        "labels_val": stored_labels(data.tune.labels, data.classes),
        "logits_test": worker.logits(data.test.pixels, normal),
        "labels_test": stored_labels(data.test.labels, data.classes),
        "classes": np.array(data.classes),
    }
    write_arrays(path, arrays)


def stored_labels(labels: NDArray[np.int64], classes: tuple[str, ...]) -> NDArray[Any]:
    """Labels as column numbers; as names where those are texts of other numbers, so that a 1 cannot mean class "001".

    >>> stored_labels(np.array([0, 1]), ("001", "002")).tolist()
    ['001', '002']
    """
    if all(name.isdigit() for name in classes) and [int(name) for name in classes] != list(range(len(classes))):
        return np.array(classes)[labels]
    return labels


def measured(logits: NDArray[np.float32], labels: NDArray[np.int64]) -> Row:
    """The figures of the calibration set that a log row has; the amplitude ‖z‖₂ / m is that of the paper's Fig. 2."""
    if not np.isfinite(logits).all():
        raise InputError("training diverged: the logits are not finite any more; use a lower --learning-rate")
    found = measure_all(Predictions.from_arrays(logits, labels), ("accuracy", "ece", "nll", "confidence_gap"))
    return found | {"confidence": found["accuracy"] + found["confidence_gap"], "amplitude": amplitude(logits)}


def _settings(data: Dataset, model: Model, recipe: Recipe) -> dict[str, Any]:
    sizes = {"n_train": len(data.train), "n_calibration": len(data.tune), "n_test": len(data.test)}
    image = list(data.train.pixels.shape[1:])
    chosen = {f"model_{name}": value for name, value in asdict(model).items()}
    plain = asdict(recipe) | {"milestones": list(recipe.milestones)}
    return {"data": data.name, "image": image, "n_classes": len(data.classes), **sizes, **chosen, **plain}


DEFAULTS = {f"model_{name}": value for name, value in asdict(Model("")).items()} | asdict(Recipe()) | {"weights": ""}
"""Of settings that checkpoints of earlier versions do not have."""
