"""A network with its optimizer: one step of descent after the other, without waiting for the device."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rhocal.errors import InputError
from rhocal_paper.train import checkpoints
from rhocal_paper.train.adaptive import Fixed, criterion
from rhocal_paper.train.ensembles import predict
from rhocal_paper.train.losses import mixed

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from rhocal_paper.train.batches import Batch, Normal
    from rhocal_paper.train.distributed import Processes
    from rhocal_paper.train.recipe import Recipe
    from rhocal_paper.train.run import Model

    Row = dict[str, float]

AT_ONCE = 500
"""Images of a forward pass outside training."""


class Worker:
    """A network with its optimizer: it learns from batches and gives logits."""

    def __init__(
        self, net: nn.Sequential, recipe: Recipe, place: torch.device, model: Model, group: Processes,
        n_classes: int, n_train: int,
    ) -> None:  # fmt: skip
        self.net, self.recipe, self.place, self.model, self.group = net, recipe, place, model, group
        self.criterion = criterion(recipe.loss, n_classes, n_train).to(place)
        if group.n > 1 and not isinstance(self.criterion, Fixed):
            raise InputError(f"loss {recipe.loss} has a state that several processes do not share; train it on one")
        self.parallel = group.wrap(net, place)
        on_gpu = place.type == "cuda"
        self.optimizer = torch.optim.SGD(
            net.parameters(), recipe.learning_rate, recipe.momentum, weight_decay=recipe.weight_decay,
            fused=on_gpu,  # else the scaler asks the device after every step whether gradients are finite
        )  # fmt: skip
        self.half = on_gpu and recipe.amp
        self.scaler = torch.amp.GradScaler(place.type, enabled=self.half)
        self.best: dict[str, Any] = {}
        """Weights of the epoch that is kept, unless that is the last."""

    def epoch(self, batches: Iterable[Batch], rate: float) -> Row:
        """One pass over the training images: mean loss and accuracy on the way.

        Both are summed where the network is, and read once: reading them after every step would make the host wait.
        """
        self.parallel.train()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        sums, n = torch.zeros(2, dtype=torch.float64, device=self.place), 0
        for batch in batches:
            if len(batch.labels) < 2 * self.group.n:
                continue  # batch normalization needs two images in each process
            sums += self.step(batch)
            n += len(batch.labels)
        loss_sum, n_right = self.group.add(sums).tolist()
        return {"loss": loss_sum / max(n, 1), "train_accuracy": n_right / max(n, 1)}

    def step(self, batch: Batch) -> Tensor:
        """One step of descent; the sum of the loss and the number of correct decisions, of the part of this process."""
        n_all = len(batch.labels)
        batch = batch.part(self.group.rank, self.group.n)
        with torch.autocast(self.place.type) if self.half else contextlib.nullcontext():
            logits = self.parallel(batch.images).float()
        if batch.partners is None:
            value = self.criterion(logits, batch.labels, batch.rows)
        else:
            fixed = lambda z, y: self.criterion(z, y, batch.rows)  # noqa: E731
            value = mixed(fixed, logits, batch.labels, batch.partners, batch.share)
        # gradients are averaged over processes, whose parts may differ by one image
        scaled = value * (self.group.n * len(batch.labels) / n_all)
        self.optimizer.zero_grad()
        torch.autograd.backward(self.scaler.scale(scaled))
        self.scaler.unscale_(self.optimizer)  # the norm to clip is that of the true gradient
        if self.recipe.clip == "gradient":
            nn.utils.clip_grad_norm_(self.net.parameters(), self.recipe.clip_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.recipe.clip == "weights":
            clip_weights(self.net, self.recipe.clip_norm)
        right = (logits.detach().argmax(1) == batch.labels).sum()
        return torch.stack([value.detach() * len(batch.labels), right.to(value.dtype)])

    def after_epoch(self, row: Row, logits: NDArray[np.float32], labels: NDArray[np.int64]) -> None:
        """Adapt the loss to the calibration set, and remember the weights if this is the epoch to keep."""
        with torch.no_grad():
            self.criterion.after_epoch(*(torch.from_numpy(values).to(self.place) for values in (logits, labels)))
        keep = self.recipe.keep
        if keep != "last" and (not self.best or row[keep] < self.best["value"]):
            state = {name: value.detach().cpu().clone() for name, value in self.net.state_dict().items()}
            self.best = {"epoch": int(row["epoch"]), "value": row[keep], "model": state}

    def logits(self, pixels: NDArray[np.uint8], normal: Normal) -> NDArray[np.float32]:
        """Logits of images as they are, in single precision."""
        self.net.eval()
        torch.manual_seed(self.recipe.seed)  # dropout, where predictions use it
        normalize = normal.on(self.place)
        out: list[Tensor] = []
        with torch.inference_mode():
            for start in range(0, len(pixels), AT_ONCE):
                block = torch.from_numpy(pixels[start : start + AT_ONCE]).to(self.place)
                images = normalize(block)
                answer = predict(self.net, images, n_members=self.model.members, n_passes=self.model.passes)
                out.append(answer.cpu())
        return torch.cat(out).numpy()

    def checkpoint(self, settings: dict[str, Any], rows: list[Row]) -> checkpoints.Checkpoint:
        """All that going on needs: the order of images follows from seed and epoch."""
        states = self.net.state_dict(), self.optimizer.state_dict(), self.scaler.state_dict()
        return checkpoints.Checkpoint(
            settings, len(rows), *states, list(rows), self.criterion.state_dict(), dict(self.best)
        )  # fmt: skip

    def restore(self, before: checkpoints.Checkpoint) -> None:
        """Be as the run was, on this device."""
        self.net.load_state_dict(before.model)
        self.optimizer.load_state_dict(before.optimizer)
        for group in self.optimizer.param_groups:
            group["fused"] = self.place.type == "cuda"  # a matter of the device, not of the run
        if self.half and before.scaler:  # runs on the CPU have none
            self.scaler.load_state_dict(before.scaler)
        self.criterion.load_state_dict(before.criterion)
        self.best = dict(before.best)


def clip_weights(net: nn.Module, norm: float) -> None:
    """Shorten the incoming weights of every unit to this norm where they are longer (Srivastava et al. 2014, max-norm)."""
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.ndim > 1:
                parameter.copy_(parameter.renorm(2, 0, norm))
