"""What to train: a TOML file with one table ``[[network]]`` for each network."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rhocal.errors import FileError, InputError
from rhocal_paper.train.data import OFFICIAL, READERS
from rhocal_paper.train.data.cifar import SOURCES
from rhocal_paper.train.job import OPTIONS, Job

if TYPE_CHECKING:
    from collections.abc import Mapping

SHIPPED = "paper.toml"
"""The configuration of the paper's experiment."""

IN_NAMES = ("width", "epochs", "learning_rate", "weight_decay", "loss", "mixup", "clip", "dropout", "members", "keep")
"""Options that a name has where they are not the paper's."""


@dataclass(frozen=True)
class CampaignNetwork:
    """A network of a configuration, to be trained with several seeds."""

    name: str
    job: Job

    def with_seed(self, seed: int) -> Job:
        """The job of one run."""
        return replace(self.job, recipe=replace(self.job.recipe, seed=seed))


def read_config(path: Path | None, data: Path) -> list[CampaignNetwork]:
    """The networks of a configuration; None is the paper's. Every option is validated here, before anything is trained."""
    where = SHIPPED if path is None else str(path)
    try:
        text = (files("rhocal_paper.campaign") / SHIPPED if path is None else path).read_text(encoding="utf-8")
        content = tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FileError(f"cannot read {where}: {getattr(error, 'strerror', None) or error}") from error
    unknown = content.keys() - {"defaults", "network"}
    tables, defaults = content.get("network", []), content.get("defaults", {})
    if unknown or not isinstance(tables, list) or not tables or not isinstance(defaults, dict):
        raise InputError(
            f"{where}: expected tables [[network]] and perhaps [defaults]"
            + (f"; got {min(unknown)!r}" if unknown else "")
        )
    networks = []
    for number, table in enumerate(tables, 1):
        try:
            networks.append(_network({**defaults, **table}, data))
        except InputError as error:
            raise InputError(f"{where}, network {number}: {error}") from error
    names = [network.name for network in networks]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{where}: two networks are called {twice}; give one of them a name of its own (name = …)")
    return networks


def _network(options: Mapping[str, Any], data: Path) -> CampaignNetwork:
    if "seed" in options:
        raise InputError("seed is no option of a network; --seeds says how many there are")
    given = {name: value for name, value in options.items() if name != "name"}
    unknown = [name for name in given if name not in OPTIONS]
    if unknown:
        raise InputError(f"unknown option {', '.join(unknown)}; there are name, {', '.join(OPTIONS)}")
    if isinstance(given.get("data"), str) and given["data"] not in READERS:
        given["data"] = str(data / given["data"])
    if isinstance(given.get("weights"), str):
        given["weights"] = str(data / given["weights"])
    job = Job.from_options(given)
    name = options.get("name", default_name(job))
    if not isinstance(name, str) or not re.fullmatch(r"[\w.+-]+", name) or name.startswith("."):
        raise InputError(f"name must be letters, digits and ._+-, because a folder has it; got {name!r}")
    return CampaignNetwork(name, job)


def default_name(job: Job) -> str:
    """Data, model, and what is not the paper's.

    >>> default_name(Job.from_options({"data": "cifar10", "model": "vgg16", "weight_decay": 0.0}))
    'cifar10-vgg16-weight_decay0'
    """
    options = job.to_options()
    parts = [Path(job.data).name.split(".", maxsplit=1)[0], job.model.name]
    for name in IN_NAMES:
        if name in options:
            value = options[name]
            parts.append(f"{name}{value:g}" if isinstance(value, int | float) else f"{value}")
    if job.weights is not None:
        parts.append("pretrained")
    return re.sub(r"[^\w.+-]", "-", "-".join(parts))


def missing_files(networks: list[CampaignNetwork], data: Path) -> list[str]:
    """What the data folder lacks, a sentence for each set of images."""
    sentences = []
    for name in dict.fromkeys(network.job.data for network in networks):
        if name not in OFFICIAL:
            if not Path(name).exists():
                sentences.append(f"no {name}")
            continue
        official = OFFICIAL[name]
        if name in SOURCES:
            present = any((data / source).exists() for source in SOURCES[name])
        else:  # archives may be unpacked
            present = all(
                (data / file).exists() or (data / file.rpartition(".")[0]).exists() for file in official.files
            )
        if not present:
            sentences.append(str(official.missing(data)))
    files_of_weights = dict.fromkeys(network.job.weights for network in networks)
    return sentences + [f"no file of weights {path}" for path in files_of_weights if path and not path.is_file()]
