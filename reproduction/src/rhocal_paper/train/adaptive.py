"""Losses that change while a network is trained: by its errors on the calibration set, or by the past of each image.

Each is a module whose buffers are its state, so that a checkpoint holds it and a device keeps it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from rhocal.errors import InputError
from rhocal_paper.train.losses import LOSSES, cross_entropy, log_prob_of_label, loss, loss_options

if TYPE_CHECKING:
    from collections.abc import Callable


class Criterion(nn.Module):
    """A loss of logits, labels and the numbers of the training images; ``after_epoch`` may change it."""

    def forward(self, logits: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
        """The mean over the batch."""
        raise NotImplementedError

    def after_epoch(self, logits: Tensor, labels: Tensor) -> None:
        """Adapt to the logits of the calibration set."""


class Fixed(Criterion):
    """A loss of ``losses.py``, which knows neither epochs nor images."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, logits: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
        """The loss."""
        del rows
        return self.function(logits, labels)


class AdaFocal(Criterion):
    """Focal loss whose γ follows the over-confidence of the calibration set, bin by bin (Ghosh et al. 2022, AdaFocal).

    −(1 − p_y)^γ log p_y where γ > 0, and the inverse −(1 + p_y)^|γ| log p_y where γ < 0. The bins hold equally many samples of
    the calibration set. After each epoch γ_b is multiplied by exp(λ·E_b), or exp(−λ·E_b) where it is negative, with E_b =
    confidence − accuracy of bin b; between −``switch`` and ``switch`` it changes its sign.
    """

    def __init__(
        self, n_classes: int, n_train: int, *, rate: float = 1.0, n_bins: float = 15, largest: float = 20.0,
        smallest: float = -2.0, switch: float = 0.2,
    ) -> None:  # fmt: skip
        super().__init__()
        del n_classes, n_train
        self.rate, self.largest, self.smallest, self.switch = rate, largest, smallest, switch
        self.gamma: Tensor
        self.edges: Tensor
        self.register_buffer("gamma", torch.ones(int(n_bins)))
        self.register_buffer("edges", torch.linspace(0, 1, int(n_bins) + 1)[1:-1])

    def forward(self, logits: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
        """The loss with the γ of the bin of each p_y."""
        del rows
        log_p = log_prob_of_label(logits, labels)
        gamma = self.gamma[torch.bucketize(log_p.detach().exp(), self.edges)]
        base = torch.where(gamma > 0, -torch.expm1(log_p), 1 + log_p.exp())
        return -(base.clamp_min(1e-12) ** gamma.abs() * log_p).mean()

    def after_epoch(self, logits: Tensor, labels: Tensor) -> None:
        """Update γ of every bin."""
        confidence, decision = functional.softmax(logits.double(), 1).max(1)
        order = confidence.argsort()
        correct = (decision == labels).double()
        parts = [part for part in order.tensor_split(len(self.gamma)) if len(part)]
        if len(parts) < len(self.gamma):
            raise InputError(
                f"adafocal: {len(labels)} calibration images are fewer than {len(self.gamma)} bins; set n_bins="
            )
        excess = torch.stack([confidence[part].mean() - correct[part].mean() for part in parts])
        self.edges.copy_(torch.stack([confidence[part[-1]] for part in parts])[:-1])
        gamma = self.gamma.double()
        grown = gamma * torch.exp(torch.where(gamma > 0, self.rate * excess, -self.rate * excess))
        grown = grown.clamp(self.smallest, self.largest)
        near = grown.abs() < self.switch
        self.gamma.copy_(torch.where(near, -torch.sign(grown) * self.switch, grown))


class CorrectnessRanking(Criterion):
    """Cross entropy + weight · ranking of confidences by how often an image was right (Moon et al. 2020, CRL).

    Each image is compared with the next of its batch: max(0, |c_i − c_j| − sign(c_i − c_j)·(κ_i − κ_j)), c the share of past
    epochs in which it was classified correctly and κ its confidence.
    """

    def __init__(self, n_classes: int, n_train: int, *, weight: float = 1.0) -> None:
        super().__init__()
        del n_classes
        self.weight = weight
        self.n_right: Tensor
        self.n_seen: Tensor
        self.register_buffer("n_right", torch.zeros(n_train))
        self.register_buffer("n_seen", torch.zeros(n_train))

    def forward(self, logits: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
        """The loss; then the result of this step is counted."""
        confidence, decision = functional.softmax(logits, 1).max(1)
        share = self.n_right[rows] / self.n_seen[rows].clamp_min(1)
        gap = share - share.roll(-1)
        ranking = functional.relu(gap.abs() - torch.sign(gap) * (confidence - confidence.roll(-1))).mean()
        with torch.no_grad():
            self.n_right.index_add_(0, rows, (decision == labels).to(self.n_right.dtype))
            self.n_seen.index_add_(0, rows, torch.ones_like(confidence, dtype=self.n_seen.dtype))
        return cross_entropy(logits, labels) + self.weight * ranking


class ClassAdaptive(Criterion):
    """Cross entropy under a margin for every class, by an augmented Lagrangian (Liu et al. 2023, CALS).

    The penalty of class k is PHR(y, ρ_k, λ_k) with y = (max_j z_j − z_k) / margin − 1: λy + ρy²/2 where λ + ρy ≥ 0, else
    −λ²/(2ρ); mean over samples and classes. After each epoch λ_k becomes the mean slope of the penalty on the calibration set,
    and after every tenth ρ_k grows by ``growth`` where the mean of y has not fallen by a tenth since the epoch before. The
    rules and bounds are those of the authors' program.
    """

    PERIOD = 10
    MULTIPLIERS = 1e-6, 1e6
    LARGEST_PENALTY = 10.0
    ENOUGH = 0.9
    """Of the mean of y in the epoch before: below it a class has improved."""

    def __init__(
        self, n_classes: int, n_train: int, *, margin: float = 10.0, multiplier: float = 1e-6, penalty: float = 1.0,
        growth: float = 1.2,
    ) -> None:  # fmt: skip
        super().__init__()
        del n_train
        self.margin, self.growth = margin, growth
        self.multiplier: Tensor
        self.penalty: Tensor
        self.mean_excess: Tensor
        self.epochs: Tensor
        self.register_buffer("multiplier", torch.full((n_classes,), multiplier))
        self.register_buffer("penalty", torch.full((n_classes,), penalty))
        self.register_buffer("mean_excess", torch.full((n_classes,), torch.inf))
        self.register_buffer("epochs", torch.zeros((), dtype=torch.int64))

    def excess(self, logits: Tensor) -> Tensor:
        """(max_j z_j − z_k) / margin − 1."""
        return (logits.amax(1, keepdim=True) - logits) / self.margin - 1

    def forward(self, logits: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
        """The loss."""
        del rows
        y = self.excess(logits)
        slope = self.multiplier + self.penalty * y
        inside = self.multiplier * y + self.penalty * y**2 / 2
        outside = -(self.multiplier**2) / (2 * self.penalty)
        return cross_entropy(logits, labels) + torch.where(slope >= 0, inside, outside).mean()

    def after_epoch(self, logits: Tensor, labels: Tensor) -> None:
        """Update multipliers, and every tenth time the penalties."""
        del labels
        y = self.excess(logits)
        slope = (self.multiplier + self.penalty * y).clamp(*self.MULTIPLIERS)
        self.multiplier.copy_(slope.mean(0))
        self.epochs += 1
        mean = y.mean(0)
        if int(self.epochs) % self.PERIOD == 0:
            worse = mean > self.ENOUGH * self.mean_excess.clamp_min(0)
            grown = (self.growth * self.penalty).clamp_max(self.LARGEST_PENALTY)
            self.penalty.copy_(torch.where(worse, grown, self.penalty))
        self.mean_excess.copy_(mean)


ADAPTIVE: dict[str, type[Criterion]] = {
    "adafocal": AdaFocal,
    "crl": CorrectnessRanking,
    "cals": ClassAdaptive,
}
"""Losses with a state, by name."""


def validate_loss(text: str) -> None:
    """Raise an error if the text names no loss, or an option that it does not have."""
    criterion(text, 2, 2)


def criterion(text: str, n_classes: int, n_train: int) -> Criterion:
    """The loss that a text names, with or without a state.

    >>> criterion("adafocal:rate=0.5", 10, 50_000).rate
    0.5
    """
    name = text.partition(":")[0]
    if name in ADAPTIVE:
        return ADAPTIVE[name](n_classes, n_train, **loss_options(text, ADAPTIVE[name], skip=2))
    if name not in LOSSES:
        raise InputError(f"loss {name!r} is unknown; there are {', '.join([*LOSSES, *ADAPTIVE])}")
    return Fixed(loss(text))
