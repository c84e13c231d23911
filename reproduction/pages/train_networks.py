"""Train the thin networks whose logits the project ships and whose logs draw Fig. 2, one after the other.

    python reproduction/pages/train_networks.py -o runs --images FOLDER --fashion FOLDER

Each is one `rhocal-paper train` of 5 to 45 minutes on one core; finished ones are skipped, an interrupted one is resumed.
The recipe is the paper's but for the number of epochs, so weight decay is also run at 5e-4: 1e-4 has too few steps to act.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

RUNS: list[tuple[str, str, int, int, str]] = [
    ("flowers102_64px", "resnet18", 16, 16, "1e-4"),
    ("cifar10", "resnet18", 16, 20, "1e-4"),
    ("cifar10", "vgg16", 8, 16, "0"),
    ("cifar10", "vgg16", 8, 16, "5e-4"),
    ("fashion-mnist", "resnet18", 8, 5, "0"),
    ("fashion-mnist", "resnet18", 8, 5, "5e-4"),
    ("flowers102_64px", "vgg16", 8, 16, "0"),
    ("flowers102_64px", "vgg16", 8, 16, "5e-4"),
    ("cifar10", "vgg16", 8, 16, "1e-4"),
    ("cifar10", "resnet18", 8, 10, "0"),
    ("cifar10", "resnet18", 8, 10, "5e-4"),
]
"""Images, network, width, epochs, weight decay; the most wanted first."""


def command(run: tuple[str, str, int, int, str], folder: Path, images: Path, fashion: Path) -> list[str]:
    data, model, width, epochs, decay = run
    where = (
        ["--data", data, "--root", str(fashion)]
        if data == "fashion-mnist"
        else ["--data", str(images / f"{data}.tar.gz")]
    )
    network = ["--model", model, "--width", str(width), "--epochs", str(epochs), "--weight-decay", decay]
    return [sys.executable, "-m", "rhocal", "train", *where, *network, "-o", str(folder), "--resume"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, help="a folder; each run gets one in it")
    parser.add_argument(
        "--images", type=Path, required=True, help="the folder of cifar10.tar.gz and flowers102_64px.tar.gz"
    )
    parser.add_argument("--fashion", type=Path, required=True, help="the folder of Fashion-MNIST's idx files")
    args = parser.parse_args()
    for run in RUNS:
        data, model, width, _, decay = run
        folder = args.output / f"{data}-{model}-w{width}-wd{decay}"
        if not (folder / "logits.npz").exists():
            print(folder.name, flush=True)
            subprocess.run(command(run, folder, args.images, args.fashion), check=True)  # noqa: S603 - our own command


if __name__ == "__main__":
    main()
