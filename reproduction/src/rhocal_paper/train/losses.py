"""What training minimises: cross entropy and the rivals that calibrate while they train.

A loss takes logits (n, m) and labels (n,) and gives one number, the mean over the batch. As text: ``focal`` or
``focal:gamma=5`` (options separated by commas).
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from rhocal.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    Loss = Callable[[Tensor, Tensor], Tensor]


def log_prob_of_label(logits: Tensor, labels: Tensor) -> Tensor:
    """The logarithm of p_y, for every sample."""
    return functional.log_softmax(logits, 1).gather(1, labels[:, None])[:, 0]


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """−log p_y."""
    return -log_prob_of_label(logits, labels).mean()


def label_smoothing(logits: Tensor, labels: Tensor, smoothing: float = 0.05) -> Tensor:
    """Cross entropy to (1 − ε) one-hot + ε/m (Szegedy et al. 2016)."""
    log_p = functional.log_softmax(logits, 1)
    return -((1 - smoothing) * log_p.gather(1, labels[:, None])[:, 0] + smoothing * log_p.mean(1)).mean()


def focal(logits: Tensor, labels: Tensor, gamma: float = 3.0) -> Tensor:
    """−(1 − p_y)^γ log p_y (Lin et al. 2017; γ = 3 as in Mukhoti et al. 2020)."""
    log_p = log_prob_of_label(logits, labels)
    return -(_rest(log_p) ** gamma * log_p).mean()


def flsd53(logits: Tensor, labels: Tensor) -> Tensor:
    """Focal with γ = 5 where p_y < 0.2 and γ = 3 elsewhere (Mukhoti et al. 2020, FLSD-53)."""
    log_p = log_prob_of_label(logits, labels)
    gamma = torch.where(log_p.detach().exp() < 0.2, 5.0, 3.0)
    return -(_rest(log_p) ** gamma * log_p).mean()


def dual_focal(logits: Tensor, labels: Tensor, gamma: float = 5.0) -> Tensor:
    """−(1 − p_y + p_j)^γ log p_y with p_j the largest probability below p_y, or 0 (Tao et al. 2023)."""
    log_p = functional.log_softmax(logits, 1)
    mine = log_p.gather(1, labels[:, None])
    p = log_p.exp()
    runner_up = torch.where(log_p < mine, p, torch.zeros_like(p)).amax(1)
    return -((_rest(mine[:, 0]) + runner_up) ** gamma * mine[:, 0]).mean()


def mmce(logits: Tensor, labels: Tensor, weight: float = 2.0, width: float = 0.4) -> Tensor:
    """Cross entropy + weight · sqrt(Σ_ij d_i d_j exp(−|c_i − c_j| / width)) / n, d = correct − c (Kumar et al. 2018)."""
    confidence, decision = functional.softmax(logits, 1).max(1)
    d = (decision == labels).to(confidence.dtype) - confidence
    kernel = torch.exp(-(confidence[:, None] - confidence[None, :]).abs() / width)
    square = (d[:, None] * d[None, :] * kernel).sum()
    # the root has no slope at 0, where a batch is calibrated perfectly: there the term rests
    return cross_entropy(logits, labels) + weight * square.clamp_min(1e-12).sqrt() / len(labels)


def logit_norm(logits: Tensor, labels: Tensor, temperature: float = 0.04) -> Tensor:
    """Cross entropy of z / (τ ‖z‖₂) (Wei et al. 2022). The logits that are stored are z itself."""
    norm = torch.linalg.vector_norm(logits, dim=1, keepdim=True) + 1e-7
    return cross_entropy(logits / (temperature * norm), labels)


def margin_smoothing(logits: Tensor, labels: Tensor, margin: float = 10.0, weight: float = 0.1) -> Tensor:
    """Cross entropy + weight · mean over samples and classes of max(0, max_j z_j − z_k − margin) (Liu et al. 2022).

    The paper writes the sum over classes, the authors' program takes the mean; their weight of 0.1 belongs to the mean.
    """
    distance = logits.max(1, keepdim=True).values - logits
    return cross_entropy(logits, labels) + weight * functional.relu(distance - margin).mean()


def _rest(log_p: Tensor) -> Tensor:
    """1 − p without cancellation where p is near 1."""
    return -torch.expm1(log_p)


LOSSES: dict[str, Callable[..., Tensor]] = {
    "cross-entropy": cross_entropy,
    "label-smoothing": label_smoothing,
    "focal": focal,
    "flsd53": flsd53,
    "dual-focal": dual_focal,
    "mmce": mmce,
    "logit-norm": logit_norm,
    "margin-smoothing": margin_smoothing,
}
"""Every loss by name. Mixup changes the batch, not the loss, and goes with any of them: ``Recipe.mixup``."""


def loss(text: str) -> Loss:
    """The loss that a text names.

    >>> loss("focal:gamma=2").keywords
    {'gamma': 2.0}
    """
    name = text.partition(":")[0]
    if name not in LOSSES:
        raise InputError(f"loss {name!r} is unknown; there are {', '.join(LOSSES)}")
    return partial(LOSSES[name], **loss_options(text, LOSSES[name], skip=2))


def loss_options(text: str, function: Callable[..., object], *, skip: int) -> dict[str, float]:
    """The options of a text; ``skip`` arguments of the function are no options."""
    name, _, rest = text.partition(":")
    allowed = list(inspect.signature(function).parameters)[skip:]
    options = {}
    for part in filter(None, rest.split(",")):
        key, _, value = part.partition("=")
        if key not in allowed:
            raise InputError(f"loss {name} has no option {key!r}; it has {', '.join(allowed) or 'none'}")
        try:
            options[key] = float(value)
        except ValueError:
            raise InputError(f"loss {name}: {key} must be a number; got {value!r}") from None
    return options


def mixed(criterion: Loss, logits: Tensor, labels: Tensor, partners: Tensor, share: float) -> Tensor:
    """The loss of a batch that mixup blended: share · loss(z, y) + (1 − share) · loss(z, y′) (Zhang et al. 2018)."""
    return share * criterion(logits, labels) + (1 - share) * criterion(logits, partners)
