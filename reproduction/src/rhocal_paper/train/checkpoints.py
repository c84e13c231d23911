"""A run that was interrupted goes on: what is needed for it is written after every epoch, whole or not at all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from rhocal.data.storage.atomic import writing
from rhocal.errors import FileError

if TYPE_CHECKING:
    from pathlib import Path

NAME = "checkpoint.pt"


@dataclass(frozen=True)
class Checkpoint:
    """A run after some epochs."""

    settings: dict[str, Any]
    """What the run was started with: going on with anything else would be another run."""
    epochs: int
    """How many are done."""
    model: dict[str, Any]
    optimizer: dict[str, Any]
    scaler: dict[str, Any]
    rows: list[dict[str, float]]
    criterion: dict[str, Any] = field(default_factory=dict)
    """The state of a loss that adapts."""
    best: dict[str, Any] = field(default_factory=dict)
    """The weights of the epoch that is kept, unless that is the last."""

    def save(self, folder: Path) -> None:
        """Write it, in place of the one before."""
        with writing(folder / NAME) as unfinished:
            torch.save(vars(self), unfinished)


def read(folder: Path, settings: dict[str, Any], defaults: dict[str, Any]) -> Checkpoint | None:
    """The checkpoint of a run folder, if there is one; it must be of the same run.

    ``defaults`` are those of settings that checkpoints of earlier versions do not have.
    """
    path = folder / NAME
    if not path.is_file():
        return None
    try:
        found = Checkpoint(**torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:  # torch raises whatever the damage leads to
        raise FileError(f"{path}: damaged, or not a checkpoint of ours; remove it to start again: {error}") from error
    old = defaults | found.settings
    changed = [
        f"{name} was {found.settings.get(name)!r} and is {settings[name]!r}"
        for name in sorted(settings)
        if old.get(name) != settings[name]
    ]
    if changed:
        raise FileError(
            f"{path}: belongs to another run: {'; '.join(changed)}. Use another folder, or the same settings"
        )
    return found
