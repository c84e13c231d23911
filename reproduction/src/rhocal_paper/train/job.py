"""A run as options say it: images, network and recipe. Commands, configurations and workers read it the same way."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rhocal.errors import InputError
from rhocal_paper.train.networks import FORMS, NETWORKS
from rhocal_paper.train.recipe import PAPER, Recipe
from rhocal_paper.train.run import Model

if TYPE_CHECKING:
    from collections.abc import Mapping

MODEL = {"model": "name"} | {field.name: field.name for field in fields(Model) if field.name != "name"}
"""Options of the network → fields of ``Model``."""

RECIPE = tuple(field.name for field in fields(Recipe))
OPTIONS = ("data", "size", "weights", *MODEL, *RECIPE)
"""Every option of a run, by name."""


@dataclass(frozen=True)
class Job:
    """What to train."""

    data: str
    model: Model
    recipe: Recipe
    size: int | None = None
    weights: Path | None = None

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Job:
        """Validate options by name; what is not given is the paper's for that data."""
        unknown = [name for name in options if name not in OPTIONS]
        if unknown:
            raise InputError(f"unknown option {', '.join(unknown)}; there are {', '.join(OPTIONS)}")
        missing = [name for name in ("data", "model") if not options.get(name)]
        if missing:
            raise InputError(f"{' and '.join(missing)} must be given")
        given = {name: value for name, value in options.items() if value is not None}
        for name, value in given.items():
            kind = KINDS.get(name)
            if kind is not None and (not isinstance(value, kind) or isinstance(value, bool) != (kind is bool)):
                raise InputError(f"{name} must be {SPOKEN[kind]}; got {value!r}")
        if given["model"] not in NETWORKS:
            raise InputError(f"model {given['model']!r} is unknown; there are {', '.join(NETWORKS)}")
        if given.get("form", FORMS[0]) not in FORMS:
            raise InputError(f"form is {' or '.join(FORMS)}; got {given['form']!r}")
        model = Model(**{field: given[name] for name, field in MODEL.items() if name in given})
        recipe: dict[str, Any] = {name: given[name] for name in RECIPE if name in given}
        if "milestones" in recipe:
            recipe["milestones"] = tuple(recipe["milestones"])
        weights = Path(given["weights"]) if "weights" in given else None
        return cls(
            given["data"], model, replace(PAPER.get(given["data"], Recipe()), **recipe), given.get("size"), weights
        )  # fmt: skip

    def to_options(self) -> dict[str, Any]:
        """The options that differ from the defaults for that data; ``from_options`` gives the same job."""
        usual = asdict(PAPER.get(self.data, Recipe())) | asdict(Model(""))
        mine = asdict(self.recipe) | asdict(self.model)
        changed = {name: value for name, value in mine.items() if value != usual[name] and name not in {"name", "seed"}}
        changed |= {"size": self.size, "weights": None if self.weights is None else str(self.weights)}
        named = {"data": self.data, "model": self.model.name, **changed, "seed": self.recipe.seed}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in named.items()
            if value is not None
        }

    def command(self, root: Path, folder: Path) -> list[str]:
        """The command that trains it."""
        words = ["rhocal-paper", "train"]
        for name, value in self.to_options().items():
            flag = name.replace("_", "-")
            if isinstance(value, bool):
                words.append(f"--{flag}" if value else f"--no-{flag}")
            else:
                shown = ",".join(f"{part:g}" for part in value) if isinstance(value, list) else f"{value}"
                words += [f"--{flag}", shown]
        return [*words, "--root", str(root), "-o", str(folder), "--resume"]


SPOKEN: dict[Any, str] = {
    str: "text", int: "a whole number", bool: "true or false", list | tuple: "a list", int | float: "a number",
}  # fmt: skip
_NUMBERS = ("dropout", "learning_rate", "momentum", "weight_decay", "clip_norm", "decay", "mixup", "share")
KINDS: dict[str, Any] = {
    **dict.fromkeys(("data", "model", "form", "weights", "loss", "clip", "keep"), str),
    **dict.fromkeys(("size", "width", "passes", "members", "epochs", "batch_size", "seed"), int),
    **dict.fromkeys(("augment", "amp"), bool),
    **dict.fromkeys(_NUMBERS, int | float),
    "milestones": list | tuple,
}
"""The type of every option in a configuration."""
