"""Several answers of one network: Monte Carlo dropout and BatchEnsemble. Their mean probability is the prediction."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from rhocal_paper.train.networks import Residual


class RankOne(nn.Module):
    """A layer shared by members that differ by two vectors each: y = layer(x∘r_i)∘s_i (Wen et al. 2020, BatchEnsemble).

    A batch is divided among the members by position, in equal parts. The vectors begin as random signs, as in the paper; the
    bias is shared.
    """

    def __init__(self, layer: nn.Conv2d | nn.Linear, n_members: int) -> None:
        super().__init__()
        self.layer, self.n_members = layer, n_members
        n_out, n_in = layer.weight.shape[:2]
        self.inputs, self.outputs = (
            nn.Parameter(torch.randint(0, 2, (n_members, n)).to(layer.weight.dtype) * 2 - 1) for n in (n_in, n_out)
        )

    def forward(self, x: Tensor) -> Tensor:
        """The outputs of all members, each for its part of the batch."""
        member = torch.arange(len(x), device=x.device) * self.n_members // len(x)
        spatial = (1,) * (x.ndim - 2)
        r, s = (vectors[member].view(len(x), -1, *spatial) for vectors in (self.inputs, self.outputs))
        return torch.mul(self.layer(x * r), s)


def with_members(module: nn.Module, n_members: int) -> None:
    """Replace every convolution and linear layer by one that members share."""
    for name, child in module.named_children():
        if isinstance(child, nn.Conv2d | nn.Linear):
            setattr(module, name, RankOne(child, n_members))
        else:
            with_members(child, n_members)


def with_dropout(net: nn.Sequential, rate: float) -> nn.Sequential:
    """The network with dropout after every block or pooling, and before its last layer."""
    layers: list[nn.Module] = []
    for layer in list(net)[:-1]:
        layers.append(layer)
        if isinstance(layer, Residual | nn.MaxPool2d):
            layers.append(nn.Dropout(rate))
    return nn.Sequential(*layers, nn.Dropout(rate), net[-1])


def predict(net: nn.Module, images: Tensor, *, n_members: int = 1, n_passes: int = 1) -> Tensor:
    """Logits; of several members or passes with dropout, the logarithm of the mean probability.

    A pass with dropout is one of Monte Carlo dropout (Gal and Ghahramani 2016).
    """
    if n_members == n_passes == 1:
        return torch.as_tensor(net(images)).float()
    if n_passes > 1:
        for module in net.modules():
            if isinstance(module, nn.Dropout):
                module.train()
    answers = []
    for _ in range(n_passes):
        out = net(images.repeat(n_members, 1, 1, 1)).float()
        answers.append(out.view(n_members, len(images), -1))
    log_p = functional.log_softmax(torch.cat(answers), 2)
    return torch.logsumexp(log_p, 0) - math.log(len(log_p))
