"""Training, from a dataset to a file of logits."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from rhocal._version import __version__
from rhocal.data.files import write_text
from rhocal.data.formats import write_arrays
from rhocal.data.predictions import Predictions
from rhocal.errors import FileError, InputError
from rhocal.evaluation.rows import write_rows
from rhocal.metrics import amplitude, measure_all
from rhocal_paper.train import checkpoints
from rhocal_paper.train.batches import Batch, Normal, epoch_batches, on
from rhocal_paper.train.losses import loss, mixed
from rhocal_paper.train.networks import LEAST_SIDE, WIDTH, n_parameters, network, on_device

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from rhocal_paper.train.data import Dataset
    from rhocal_paper.train.losses import Loss
    from rhocal_paper.train.recipe import Recipe

    Row = dict[str, float]

LOGITS, LOG, CARD = "logits.npz", "log.csv", "run.json"
AT_ONCE = 500
"""Images of a forward pass outside training."""


@dataclass(frozen=True)
class Model:
    """Which network."""

    name: str
    width: int = WIDTH
    form: str = "cifar"


def device_of(name: str) -> torch.device:
    """``auto`` is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"device {name!r} is unknown; say auto, cpu or cuda") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device {name}: this machine has no GPU that torch can use")
    return device


def train(
    data: Dataset, model: Model, recipe: Recipe, folder: Path, *,
    device: str = "auto", resume: bool = False, after_epoch: Callable[[Row], None] | None = None,
) -> Path:  # fmt: skip
    """Train, and write ``logits.npz`` (tune and test), ``log.csv`` (a row per epoch), ``run.json`` to the folder.

    A checkpoint is written after every epoch; with ``resume`` the run goes on from it, and ends as if it had never been
    interrupted (on one device, with as many threads). Without it, a folder that holds a checkpoint is an error.
    """
    place = device_of(device)
    settings = _settings(data, model, recipe)
    least, side = LEAST_SIDE.get(model.name, 1), min(data.train.pixels.shape[1:3])
    if side < least:
        raise InputError(
            f"{model.name} needs images of at least {least} pixels a side; {data.name} has {side} (--size)"
        )
    if len(data.train) < 2:
        raise InputError(f"{data.name}: {len(data.train)} training image; batch normalisation needs two at least")
    folder.mkdir(parents=True, exist_ok=True)
    if not resume and (folder / checkpoints.NAME).exists():
        raise FileError(f"{folder} holds a run already: --resume goes on with it; or name another folder")
    torch.manual_seed(recipe.seed)
    net = network(
        model.name, len(data.classes), width=model.width, form=model.form, channels=data.train.pixels.shape[3]
    )
    worker = Worker(on_device(net, place), recipe, place)
    before = checkpoints.read(folder, settings)
    rows = [] if before is None else list(before.rows)
    if before is not None:
        worker.restore(before)
    write_text(folder / CARD, json.dumps(settings | {"parameters": n_parameters(net), "rhocal": __version__}, indent=2))

    normal = Normal.of(data.train.pixels)
    pixels, labels = on(data.train, place)
    for epoch in range(len(rows), recipe.epochs):
        start = time.perf_counter()
        torch.manual_seed(recipe.seed * 100_003 + epoch)  # dropout
        batches = epoch_batches(pixels, labels, normal, recipe, epoch, mirror=data.mirror)
        row: Row = {"epoch": epoch + 1, "learning_rate": recipe.rate(epoch)}
        row |= worker.epoch(batches, recipe.rate(epoch))
        row |= measured(worker.logits(data.tune.pixels, normal), data.tune.labels)
        row["seconds"] = time.perf_counter() - start
        rows.append(row)
        worker.checkpoint(settings, rows).save(folder)
        write_rows(folder / LOG, rows)
        if after_epoch is not None:
            after_epoch(row)
    arrays: dict[str, NDArray[Any]] = {
        "logits_val": worker.logits(data.tune.pixels, normal),
        "labels_val": data.tune.labels,
        "logits_test": worker.logits(data.test.pixels, normal),
        "labels_test": data.test.labels,
        "classes": np.array(data.classes),
    }
    write_arrays(folder / LOGITS, arrays)
    return folder / LOGITS


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


class Worker:
    """A network with its optimiser: it learns from batches and gives logits."""

    def __init__(self, net: nn.Sequential, recipe: Recipe, place: torch.device) -> None:
        self.net, self.recipe, self.place = net, recipe, place
        self.criterion: Loss = loss(recipe.loss)
        self.optimizer = torch.optim.SGD(
            net.parameters(), recipe.learning_rate, recipe.momentum, weight_decay=recipe.weight_decay
        )
        self.half = place.type == "cuda"
        self.scaler = torch.amp.GradScaler(place.type, enabled=self.half)

    def epoch(self, batches: Any, rate: float) -> Row:
        """One pass over the training images: mean loss and accuracy on the way."""
        self.net.train()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        total, right, n = 0.0, 0, 0
        for batch in batches:
            value, hits = self.step(batch)
            total, right, n = total + value * len(batch.labels), right + hits, n + len(batch.labels)
        return {"loss": total / n, "train_accuracy": right / n}

    def step(self, batch: Batch) -> tuple[float, int]:
        """One step of descent."""
        with torch.autocast(self.place.type) if self.half else contextlib.nullcontext():
            logits = self.net(batch.images).float()
        if batch.partners is None:
            value = self.criterion(logits, batch.labels)
        else:
            value = mixed(self.criterion, logits, batch.labels, batch.partners, batch.share)
        self.optimizer.zero_grad()
        torch.autograd.backward(self.scaler.scale(value))
        self.scaler.unscale_(self.optimizer)  # the norm to clip is that of the true gradient
        nn.utils.clip_grad_norm_(self.net.parameters(), self.recipe.clip_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return value.item(), int((logits.argmax(1) == batch.labels).sum())

    def logits(self, pixels: NDArray[np.uint8], normal: Normal) -> NDArray[np.float32]:
        """Logits of images as they are, in single precision."""
        self.net.eval()
        out: list[Tensor] = []
        with torch.inference_mode():
            for start in range(0, len(pixels), AT_ONCE):
                block = torch.from_numpy(pixels[start : start + AT_ONCE]).to(self.place)
                out.append(self.net(normal(block)).float().cpu())
        return torch.cat(out).numpy()

    def checkpoint(self, settings: dict[str, Any], rows: list[Row]) -> checkpoints.Checkpoint:
        """All that going on needs: the order of images follows from seed and epoch."""
        states = self.net.state_dict(), self.optimizer.state_dict(), self.scaler.state_dict()
        return checkpoints.Checkpoint(settings, len(rows), *states, list(rows))

    def restore(self, before: checkpoints.Checkpoint) -> None:
        """Be as the run was."""
        self.net.load_state_dict(before.model)
        self.optimizer.load_state_dict(before.optimizer)
        self.scaler.load_state_dict(before.scaler)
