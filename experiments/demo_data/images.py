"""A small network that overfits CIFAR-10: the over-confident image classifier of the demo.

    python experiments/demo_data/images.py --images cifar10.tar.gz

The network is trained without augmentation until it knows its training images by heart. Its calibration set and its test set
are random halves of the images that it was not trained on (CIFAR-10's own test images).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from shipped_sets import SHIPPED, write_sets
from torch import nn

from rhocal_paper.train.data import load

if TYPE_CHECKING:
    from numpy.typing import NDArray

N_TRAIN, EPOCHS, BATCH, LEARNING_RATE, SEED = 30_000, 14, 128, 0.05, 0
CHANNELS = (32, 64, 128)


def network(n_classes: int) -> nn.Sequential:
    """Three stages of convolution and pooling, and one hidden layer."""
    layers: list[nn.Module] = []
    for n_in, n_out in zip((3, *CHANNELS[:-1]), CHANNELS, strict=True):
        layers += [nn.Conv2d(n_in, n_out, 3, padding=1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(CHANNELS[-1] * 16, 256), nn.ReLU(), nn.Linear(256, n_classes))


def as_input(pixels: NDArray[Any]) -> torch.Tensor:
    """Pixels from -1 to 1, channels first."""
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).to(torch.float32) / 127.5 - 1


def train(model: nn.Sequential, pixels: NDArray[Any], labels: NDArray[Any]) -> None:
    """Minimize cross-entropy by SGD; the rate falls to zero along a cosine."""
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    order = np.random.default_rng(SEED)
    for epoch in range(EPOCHS):
        n_right, total = 0, 0.0
        for rows in np.array_split(order.permutation(len(labels)), len(labels) // BATCH):
            target = torch.from_numpy(labels[rows].astype(np.int64))
            logits = model(as_input(pixels[rows]))
            loss = nn.functional.cross_entropy(logits, target)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            n_right += int((logits.argmax(1) == target).sum())
            total += float(loss.detach()) * len(rows)
        schedule.step()
        print(
            f"epoch {epoch + 1}: loss {total / len(labels):.3f}, training accuracy {n_right / len(labels):.3f}",
            flush=True,
        )


@torch.no_grad()
def logits_of(model: nn.Sequential, pixels: NDArray[Any]) -> NDArray[Any]:
    """The logits of every image."""
    model.eval()
    return np.concatenate([model(as_input(part)).numpy() for part in np.array_split(pixels, 20)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", required=True, help="cifar10.tar.gz: train/<class>/*.jpg and test/<class>/*.jpg")
    parser.add_argument("-o", "--output", type=Path, default=SHIPPED / "images.npz")
    args = parser.parse_args()
    torch.manual_seed(SEED)
    torch.set_num_threads(1)  # sums are then the same on every machine of this kind
    data = load(args.images)
    rows = np.random.default_rng(SEED).permutation(len(data.train))[:N_TRAIN]
    model = network(len(data.classes))
    train(model, data.train.pixels[rows], data.train.labels[rows])
    write_sets(args.output, logits_of(model, data.test.pixels), data.test.labels, data.classes, seed=SEED)


if __name__ == "__main__":
    main()
