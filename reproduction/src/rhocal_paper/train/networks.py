"""The networks of the paper, written plainly: ResNet-18, -34 (which the paper calls 35), -50, and VGG-16.

Two forms. ``"cifar"`` is for images of 32 to 64 px: a 3×3 stem without pooling; VGG ends in one linear layer.
``"imagenet"`` is for 224 px: a 7×7 stem of stride 2 with pooling; VGG ends in three linear layers.
``width`` is the number of channels of the first stage, 64 as published; 16 trains on two cores.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from rhocal.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

WIDTH = 64
FORMS = ("cifar", "imagenet")


def conv(n_in: int, n_out: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    """A convolution that keeps the size at stride 1, with batch normalisation instead of a bias."""
    return nn.Sequential(
        nn.Conv2d(n_in, n_out, kernel, stride, kernel // 2, bias=False),
        nn.BatchNorm2d(n_out),
    )


class Residual(nn.Module):
    """relu(shortcut(x) + body(x)); the shortcut is a 1×1 convolution where the shape changes (He et al. 2016)."""

    def __init__(self, body: nn.Sequential, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.body = body
        self.shortcut: nn.Module = nn.Identity() if n_in == n_out and stride == 1 else conv(n_in, n_out, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.body(x) + self.shortcut(x))


def basic(n_in: int, width: int, stride: int) -> Residual:
    """Two 3×3 convolutions."""
    body = nn.Sequential(conv(n_in, width, 3, stride), nn.ReLU(inplace=True), conv(width, width))
    return Residual(body, n_in, width, stride)


def bottleneck(n_in: int, width: int, stride: int) -> Residual:
    """1×1 down, 3×3, 1×1 up to four times the width; the stride is in the 3×3 (the form called v1.5)."""
    body = nn.Sequential(
        conv(n_in, width, 1), nn.ReLU(inplace=True),
        conv(width, width, 3, stride), nn.ReLU(inplace=True),
        conv(width, 4 * width, 1),
    )  # fmt: skip
    return Residual(body, n_in, 4 * width, stride)


def resnet(
    block: Callable[[int, int, int], Residual], growth: int, depths: tuple[int, ...], n_classes: int, *,
    width: int, form: str, channels: int,
) -> nn.Sequential:  # fmt: skip
    """Four stages of residual blocks; each but the first halves the image and doubles the width."""
    if form == "cifar":
        layers: list[nn.Module] = [conv(channels, width), nn.ReLU(inplace=True)]
    else:
        layers = [conv(channels, width, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    n_in = width
    for stage, depth in enumerate(depths):
        for k in range(depth):
            layers.append(block(n_in, width << stage, 2 if stage and not k else 1))
            n_in = growth * (width << stage)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n_in, n_classes))


def vgg16(n_classes: int, *, width: int, form: str, channels: int) -> nn.Sequential:
    """Thirteen 3×3 convolutions in five stages (Simonyan & Zisserman 2015), with batch normalisation.

    The convolutions have a bias, as in the published counts of parameters, though the normalisation makes it idle.
    """
    layers: list[nn.Module] = []
    n_in = channels
    for factor, depth in ((1, 2), (2, 2), (4, 3), (8, 3), (8, 3)):
        for _ in range(depth):
            n_out = factor * width
            layers += [nn.Conv2d(n_in, n_out, 3, 1, 1), nn.BatchNorm2d(n_out), nn.ReLU(inplace=True)]
            n_in = n_out
        layers.append(nn.MaxPool2d(2))
    if form == "cifar":
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n_in, n_classes))
    hidden = 64 * width
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(7), nn.Flatten(),
        nn.Linear(49 * n_in, hidden), nn.ReLU(inplace=True), nn.Dropout(),
        nn.Linear(hidden, hidden), nn.ReLU(inplace=True), nn.Dropout(),
        nn.Linear(hidden, n_classes),
    )  # fmt: skip


NETWORKS: dict[str, Callable[..., nn.Sequential]] = {
    "resnet18": partial(resnet, basic, 1, (2, 2, 2, 2)),
    "resnet34": partial(resnet, basic, 1, (3, 4, 6, 3)),
    "resnet50": partial(resnet, bottleneck, 4, (3, 4, 6, 3)),
    "vgg16": vgg16,
}
"""Every network by name."""

LEAST_SIDE = {"vgg16": 32}
"""Pixels that a network halves five times; the others end in a mean over whatever is left."""


def network(name: str, n_classes: int, *, width: int = WIDTH, form: str = "cifar", channels: int = 3) -> nn.Sequential:
    """A network with weights drawn by torch's generator: ``torch.manual_seed`` first makes it repeatable."""
    if name not in NETWORKS:
        raise InputError(f"model {name!r} is unknown; there are {', '.join(NETWORKS)}")
    if form not in FORMS:
        raise InputError(f"form is {' or '.join(FORMS)}; got {form!r}")
    for option, value, least in (("n_classes", n_classes, 2), ("width", width, 1), ("channels", channels, 1)):
        if value < least:
            raise InputError(f"{option} must be at least {least}; got {value}")
    model = NETWORKS[name](n_classes, width=width, form=form, channels=channels)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return model


def n_parameters(model: nn.Module) -> int:
    """How many numbers training moves."""
    return sum(parameter.numel() for parameter in model.parameters())


def on_device(model: nn.Sequential, device: torch.device) -> nn.Sequential:
    """Moved there, images stored channel by channel last, which convolutions are quickest with."""
    return model.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
