"""What a file of logits comes from, and beside which published network it belongs."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rhocal.errors import FileError
from rhocal_paper.published import Cell, cells

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

DATASETS = {
    "cifar100": "CIFAR-100",
    "cifar10": "CIFAR-10",
    "svhn": "SVHN",
    "flowers102": "102 Flower",
    "tinyimagenet": "Tiny-ImageNet",
}
MODELS = {
    "resnet18": "ResNet18",
    "resnet34": "ResNet35",
    "resnet35": "ResNet35",
    "resnet50": "ResNet50",
    "vgg16": "VGG16",
}
RECIPE: dict[str, Any] = {
    "model_width": 64, "loss": "cross-entropy", "mixup": 0, "epochs": 200, "weight_decay": 1e-4, "batch_size": 128,
    "learning_rate": 0.1, "momentum": 0.9, "clip_norm": 3.0, "milestones": [0.4, 0.8], "decay": 0.1,
}  # fmt: skip
"""What the card of a run must say to be a network of the paper; all others are stand-ins, and files without a card too."""

EXCEPTIONS: dict[str, dict[str, Any]] = {
    "Tiny-ImageNet": {"learning_rate": 0.01, "batch_size": 64},
    "102 Flower": {"model_form": "imagenet"},
}
"""Where the recipe is another one, by the paper's name of the data."""

ABSENT: dict[str, Any] = {
    "model_dropout": 0.0, "model_passes": 1, "model_members": 1, "keep": "last", "clip": "gradient", "augment": True,
    "model_form": "cifar", "weights": "", "share": 1.0,
}  # fmt: skip
"""Settings that the paper does not mention, with our choice; cards of earlier versions do not have all of them."""

SPOKEN = {
    "model_dropout": "dropout", "model_passes": "passes", "model_members": "members", "keep": "epoch of the lowest",
    "clip": "clipping", "batch_size": "batches of", "epochs": "epochs", "learning_rate": "learning rate",
    "momentum": "momentum", "clip_norm": "clipping at", "milestones": "milestones", "decay": "factor", "mixup": "mixup",
    "share": "share of images",
}  # fmt: skip
"""How a label names a setting that is not the recipe's."""


@dataclass(frozen=True)
class Network:
    """What a file of logits comes from. Runs that differ in the seed alone have one label."""

    label: str
    dataset: str | None = None
    """In the paper's words; None if the paper does not have it."""
    model: str | None = None
    """In the paper's words; None if the paper does not have it."""
    follows_recipe: bool = False
    """Whether its card says that it was trained as the paper's."""

    def beside(self, table: int) -> tuple[Cell | None, bool]:
        """The published network of a table that it is shown beside, and whether it is that one or a stand-in.

        A network stands in for one of its dataset: that of the same name if there is one, else the first.
        """
        same = [cell for cell in cells(table) if cell[0] == self.dataset]
        if not same:
            return None, False
        named = [cell for cell in same if cell[1] == self.model]
        return (named or same)[0], bool(named) and self.follows_recipe


def logits_files(folders: Iterable[Path]) -> list[Path]:
    """The .npz files of folders, and the logits of the runs (``rhocal-paper train``) in them."""
    found = []
    for folder in folders:
        here = [*sorted(folder.glob("*.npz")), *sorted(folder.glob("*/logits.npz"))]
        if not here:
            raise FileError(f"{folder}: no .npz files, and no folders of runs with a logits.npz")
        found += here
    return found


def network_of(path: Path) -> Network:
    """From the card of the run, where there is one; else from the name of the file: ``cifar100_vgg16_bn``."""
    if path.name == "logits.npz" and (path.parent / "run.json").is_file():
        run = card_of(path.parent)
        data, model = str(run["data"]), str(run["model_name"])
        dataset, title = named(f"{data} {model}")
        parts = [
            data.split(".", maxsplit=1)[0], MODELS.get(model, model), f"width {run['model_width']}",
            f"weight decay {run['weight_decay']:g}", *differences(run, dataset),
        ]  # fmt: skip
        return Network(", ".join(parts), dataset, title, follows_recipe(run, dataset))
    return Network(path.stem, *named(path.stem))


def recipe_of(dataset: str | None) -> dict[str, Any]:
    """The paper's recipe for a data set."""
    return RECIPE | EXCEPTIONS.get(dataset or "", {})


def follows_recipe(card: Mapping[str, Any], dataset: str | None) -> bool:
    """Whether a run was trained as the paper's networks; pretrained weights are allowed where it does not say."""
    wanted = ABSENT | recipe_of(dataset)
    del wanted["weights"]
    full = ABSENT | dict(card)
    return all(full.get(key) == value for key, value in wanted.items())


def differences(card: Mapping[str, Any], dataset: str | None) -> list[str]:
    """What a label says besides width and weight decay: each setting of the run that is not the recipe's.

    Runs of one label are pooled as seeds, so nothing but the seed may differ between them.
    """
    wanted = ABSENT | recipe_of(dataset)
    parts = []
    for key, usual in wanted.items():
        value = card.get(key, usual)
        if value == usual or key in {"model_width", "weight_decay"}:
            continue
        if key == "loss":
            parts.append(str(value))
        elif key == "weights":
            parts.append(f"pretrained {str(value)[:8]}")
        elif key == "model_form":
            parts.append(f"form {value}")
        elif key == "augment":
            parts.append("no augmentation")
        else:
            shown = ", ".join(f"{part:g}" for part in value) if isinstance(value, list) else value
            shown = f"{shown:g}" if isinstance(shown, float) else f"{shown}"
            parts.append(f"{shown} epochs" if key == "epochs" else f"{SPOKEN[key]} {shown}")
    return parts


def tables_of(network: Network, card: Mapping[str, Any]) -> list[int]:
    """The tables that have a network as it is trained by these settings."""
    exact = replace(network, follows_recipe=follows_recipe(card, network.dataset))
    return [table for table in range(1, 6) if exact.beside(table)[1]]


def card_of(folder: Path) -> dict[str, Any]:
    """What ``rhocal-paper train`` wrote about a run."""
    card = folder / "run.json"
    try:
        run: dict[str, Any] = json.loads(card.read_text(encoding="utf-8"))
        missing = {"data", "model_name", "model_width", "weight_decay", "loss", "mixup"} - run.keys()
    except (OSError, AttributeError, ValueError) as error:
        raise FileError(f"{card}: not the card of a run: {error!r}") from error
    if missing:
        raise FileError(f"{card}: not the card of a run: it lacks {', '.join(sorted(missing))}")
    return run


def named(text: str) -> tuple[str | None, str | None]:
    """The dataset and the model that words of a name say, in the paper's words.

    >>> named("cifar-100_ResNet34")
    ('CIFAR-100', 'ResNet35')
    >>> named("cifar100_resnet56")
    ('CIFAR-100', None)
    """
    joined = re.sub(r"(cifar|flowers|tiny|resnet|vgg)[-_ ](\d+|imagenet)", r"\1\2", text.lower())
    joined = joined.replace("102 flowers", "flowers102")
    words = re.split(r"[_\W]+", joined)
    return (
        next((title for word, title in DATASETS.items() if word in words), None),
        next((title for word, title in MODELS.items() if word in words), None),
    )


def missing(table: int, networks: Sequence[Network]) -> dict[Cell, str]:
    """Published cells of a table whose own network is not here, and the command that trains it."""
    names = {title: name for name, title in DATASETS.items()} | {"Tiny-ImageNet": "tiny-imagenet"}
    models = {title: name for name, title in MODELS.items() if name != "resnet35"}
    here = [network.beside(table) for network in networks]
    have = {cell for cell, exact in here if exact}
    commands = {}
    for dataset, model in cells(table):
        if (dataset, model) in have:
            continue
        extra = " --form imagenet --size 224" if dataset == "102 Flower" else ""
        name, short = names[dataset], models[model]
        commands[dataset, model] = (
            f"rhocal-paper train --data {name} --model {short}{extra} --seed 0 -o runs/{name}-{short}-0"
        )
    return commands
