"""`rhocal-paper train`: from images to a file of logits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rhocal.cli.options import Json, print_json


def train(
    *,
    data: Annotated[
        str,
        typer.Option(
            help="cifar10, cifar100, svhn, flowers102, tiny-imagenet or fashion-mnist; or the path of a folder, tar or "
            "zip of pictures: train/<class>/*.jpg and test/<class>/*.jpg.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="The folder of the run: logits.npz, log.csv, run.json, checkpoint.pt."),
    ],
    model: Annotated[str, typer.Option(help="resnet18, resnet34, resnet50 or vgg16.", show_default=False)],
    root: Annotated[Path, typer.Option(help="Where the official files of a named set are.")] = Path(),
    width: Annotated[
        int | None, typer.Option(min=1, help="Channels of the first stage: 64 as published; 16 trains on two cores.")
    ] = None,
    form: Annotated[str | None, typer.Option(help="cifar, for 32 to 64 px, or imagenet, for 224 px.")] = None,
    size: Annotated[int | None, typer.Option(help="Bring pictures to this many pixels a side.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training images.  [paper: 200]")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images a step.  [paper: 128, Tiny-ImageNet 64]")] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="At the start; ×0.1 at 40 % and 80 %.  [paper: 0.1, Tiny-ImageNet 0.01]")
    ] = None,
    weight_decay: Annotated[float | None, typer.Option(help="0 switches it off.  [paper: 0.0001]")] = None,
    loss: Annotated[
        str | None,
        typer.Option(
            help="cross-entropy, label-smoothing, focal, flsd53, dual-focal, mmce, logit-norm, margin-smoothing, adafocal, "
            "crl or cals; options as in focal:gamma=5.  [paper: cross-entropy]"
        ),
    ] = None,
    mixup: Annotated[float | None, typer.Option(help="Blend images, with this α (0.2, say).")] = None,
    augment: Annotated[
        bool | None,
        typer.Option("--augment/--no-augment", help="Shift and mirror training images.  [default: augment]"),
    ] = None,
    share: Annotated[float | None, typer.Option(help="Use this share of the training images.  [paper: 1]")] = None,
    momentum: Annotated[float | None, typer.Option(help="Of the descent.  [paper: 0.9]")] = None,
    milestones: Annotated[
        str | None, typer.Option(help="Shares of the epochs at which the learning rate falls.  [paper: 0.4,0.8]")
    ] = None,
    clip: Annotated[
        str | None,
        typer.Option(
            help="gradient, weights (of each unit) or none; the paper says weight clipping.  [default: gradient]"
        ),
    ] = None,
    clip_norm: Annotated[float | None, typer.Option(help="The norm to clip at.  [paper: 3]")] = None,
    amp: Annotated[
        bool | None, typer.Option("--amp/--no-amp", help="Mixed precision, on GPUs only.  [default: amp]")
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(help="Begin with the weights of a local file: a checkpoint.pt, or a state dict of torchvision."),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(help="The epoch whose weights are used: last, or that of the lowest nll or ece (early stopping)."),
    ] = None,
    dropout: Annotated[float | None, typer.Option(help="Dropout after every block, at this rate.")] = None,
    passes: Annotated[
        int | None, typer.Option(help="Predict by the mean of so many passes with dropout (Monte Carlo dropout).")
    ] = None,
    members: Annotated[int | None, typer.Option(help="A BatchEnsemble of so many members.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Weights, order and augmentation.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run that the folder holds.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Check the official files against their MD5 first.")] = False,
    as_json: Json = False,
) -> None:
    """Train a network as the paper did, and write its logits on a calibration and a test set.

    Nothing is downloaded. The calibration set is held out of training: the set's own, or a fixed tenth of every class. On
    several GPUs: torchrun --nproc-per-node 2 -m rhocal_paper train …
    """
    from rhocal.errors import FileError, InputError
    from rhocal.reporting import tables
    from rhocal_paper import train as training
    from rhocal_paper.train import data as images

    try:
        shares = None if milestones is None else [float(part) for part in milestones.split(",") if part.strip()]
    except ValueError:
        raise InputError(f"--milestones are numbers separated by commas; got {milestones!r}") from None
    job = training.Job.from_options(
        {
            "data": data, "model": model, "width": width, "form": form, "size": size, "epochs": epochs,
            "batch_size": batch_size, "learning_rate": learning_rate, "weight_decay": weight_decay, "loss": loss,
            "mixup": mixup, "augment": augment, "share": share, "momentum": momentum, "milestones": shares, "clip": clip,
            "clip_norm": clip_norm, "amp": amp, "weights": None if weights is None else str(weights), "keep": keep,
            "dropout": dropout, "passes": passes, "members": members, "seed": seed,
        }
    )  # fmt: skip
    if verify:
        wrong = [name for name, right in images.verify(data, root).items() if not right]
        if wrong:
            raise FileError(f"{', '.join(wrong)} in {root}: the MD5 is not the published one; fetch it again")
    content = images.load(job.data, root, job.size)
    rows = []
    with tables.progress("training", job.recipe.epochs) as step:

        def after_epoch(row: dict[str, float]) -> None:
            rows.append(row)
            line = f"epoch {row['epoch']:.0f}  loss {row['loss']:.4f}  "
            line += "  ".join(f"{name} {row[name]:.4f}" for name in ("accuracy", "ece", "amplitude"))
            step(line)

        written = training.train(
            content, job.model, job.recipe, output,
            weights=job.weights, device=device, resume=resume, after_epoch=after_epoch,
        )  # fmt: skip
    if as_json:
        print_json({"logits": str(written), "log": rows})
        return
    screen = tables.console()
    if rows:
        last = rows[-1]
        shown = ("epoch", "loss", "train_accuracy", "accuracy", "ece", "nll", "confidence", "amplitude")
        screen.print(tables.pairs({name: last[name] for name in shown}, f"{content.name}, calibration set, last epoch"))
    screen.print(f"logits: {written}    next: rhocal compare {written}")
