"""Train the compact residual network whose logits rhocal ships, and write those logits.

    python experiments/demo_network/train.py --images ../shared/data/images/cifar10.tar.gz -o demo.npz

The archive holds CIFAR-10 as ``train/<class>/*.jpg`` and ``test/<class>/*.jpg``. 5,000 of the training images
(500 a class, drawn with the seed) are held out as the *tune* set; the 10,000 test images are the *test* set.
The network never sees either. Weight decay is off and the schedule runs to a low loss on purpose: the result is
an over-confident network, which is what a calibration demo needs.
Needs torch and Pillow (``pip install rhocal[dev] -c constraints.txt``).
"""

from __future__ import annotations

import argparse
import io
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from numpy.typing import NDArray

TUNE_PER_CLASS = 500
WIDTHS = (24, 48, 96, 192)


def read_images(archive: Path) -> dict[str, tuple[NDArray[np.uint8], NDArray[np.int64], list[str]]]:
    """Every image of each split as (images, labels, class names), in the order of their names."""
    found: dict[str, list[tuple[str, str, NDArray[np.uint8]]]] = {"train": [], "test": []}
    with tarfile.open(archive) as tar:
        for member in tar:
            if not member.isfile() or not member.name.endswith(".jpg"):
                continue
            split, label, name = member.name.removeprefix("./").split("/")
            handle = tar.extractfile(member)
            assert handle is not None
            found[split].append((label, name, np.asarray(Image.open(io.BytesIO(handle.read())).convert("RGB"))))
    splits = {}
    for split, rows in found.items():
        rows.sort(key=lambda row: row[:2])
        names = sorted({label for label, _, _ in rows})
        labels = np.array([names.index(label) for label, _, _ in rows])
        splits[split] = (np.stack([image for _, _, image in rows]), labels, names)
    return splits


class Residual(nn.Module):
    """x + conv(conv(x)), each convolution with batch normalisation."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = conv(width, width), nn.Sequential(*list(conv(width, width))[:2])

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(x + self.second(self.first(x)))


def conv(n_in: int, n_out: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False), nn.BatchNorm2d(n_out), nn.ReLU(inplace=True))


def network(n_classes: int) -> nn.Sequential:
    stem, one, two, three = WIDTHS
    return nn.Sequential(
        conv(3, stem),
        conv(stem, one, 2), Residual(one),
        conv(one, two, 2), Residual(two),
        conv(two, three, 2), Residual(three),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(three, n_classes),
    )  # fmt: skip


def augment(images: Tensor, generator: torch.Generator) -> Tensor:
    """One random 4-pixel shift for the batch and a random mirror for each image."""
    dy, dx = torch.randint(0, 9, (2,), generator=generator).tolist()
    padded = functional.pad(images, (4, 4, 4, 4))[:, :, dy : dy + 32, dx : dx + 32]
    mirrored = torch.rand(len(images), generator=generator) < 0.5
    return torch.where(mirrored[:, None, None, None], padded.flip(3), padded)


def logits_of(model: nn.Module, images: Tensor) -> NDArray[np.float32]:
    model.eval()
    with torch.inference_mode():
        out = torch.cat([model(block) for block in torch.split(images, 500)])
    return out.numpy().astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, required=True, help="cifar10.tar.gz")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the .npz file of logits to write")
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--learning-rate", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    splits = read_images(args.images)
    images, labels, classes = splits["train"]
    shuffled = np.random.default_rng(args.seed).permutation(len(labels))
    tune = np.concatenate([shuffled[labels[shuffled] == c][:TUNE_PER_CLASS] for c in range(len(classes))])
    kept = np.setdiff1d(np.arange(len(labels)), tune)
    mean, std = images[kept].mean((0, 1, 2)), images[kept].std((0, 1, 2))

    def tensor(block: NDArray[np.uint8]) -> Tensor:
        scaled = ((block - mean) / std).astype(np.float32).transpose(0, 3, 1, 2)
        return torch.from_numpy(scaled).to(memory_format=torch.channels_last)

    x, y = tensor(images[kept]), torch.from_numpy(labels[kept])
    model = network(len(classes)).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), args.learning_rate, momentum=0.9, nesterov=True)
    steps = args.epochs * (len(y) // args.batch_size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.learning_rate, total_steps=steps, pct_start=0.2)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {steps:,} steps", flush=True)

    for epoch in range(args.epochs):
        model.train()
        start, total = time.time(), 0.0
        order = torch.randperm(len(y), generator=generator)
        for rows in torch.split(order, args.batch_size)[: len(y) // args.batch_size]:
            loss = functional.cross_entropy(model(augment(x[rows], generator)), y[rows])
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(model.parameters(), 3.0)
            optimizer.step()
            schedule.step()
            total += loss.item() * len(rows)
        print(f"epoch {epoch + 1}/{args.epochs}  loss {total / len(y):.4f}  {time.time() - start:.0f} s", flush=True)

    test_images, test_labels, _ = splits["test"]
    logits_tune = logits_of(model, tensor(images[tune]))
    logits_test = logits_of(model, tensor(test_images))
    print(f"tune accuracy {(logits_tune.argmax(1) == labels[tune]).mean():.4f}")
    print(f"test accuracy {(logits_test.argmax(1) == test_labels).mean():.4f}")
    unfinished = args.output.with_name(args.output.name + ".partial.npz")
    np.savez_compressed(
        unfinished,
        logits_val=logits_tune,
        labels_val=labels[tune].astype(np.int16),
        logits_test=logits_test,
        labels_test=test_labels.astype(np.int16),
        classes=np.array(classes),
    )
    unfinished.replace(args.output)


if __name__ == "__main__":
    main()
