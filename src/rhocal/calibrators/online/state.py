"""Online calibration as a file, so that a process that was stopped goes on where it was."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.artifact import SCHEMA as ARTIFACT_SCHEMA
from rhocal.calibrators.artifact import build, describe
from rhocal.calibrators.online.calibration import MEMORY_SHARES, OnlineCalibration
from rhocal.calibrators.online.evidence import Evidence
from rhocal.calibrators.online.memory import Memory
from rhocal.data.storage.atomic import as_path
from rhocal.data.storage.container import Tensors, build_verified, read_tensors, write_tensors
from rhocal.errors import FileError

if TYPE_CHECKING:
    from os import PathLike

    from rhocal.calibrators.base import Calibrator

FORMAT, SCHEMA = "rhocal-online", 1
STATE_NUMBERS = ("half_life", "alpha", "n_batches", "n_updates", "loss")
MEMORY = ("outputs", "labels", "base", "age")


def save_online(online: OnlineCalibration, path: str | PathLike[str]) -> None:
    """Write a state."""
    tensors: Tensors = {f"memory/{name}": np.asarray(getattr(online.memory, name)) for name in MEMORY}
    card: dict[str, Any] = {name: getattr(online, name) for name in STATE_NUMBERS}
    card["evidence"] = asdict(online.evidence)
    card["digests"] = list(online.digests)
    for name in ("first", "correction"):
        calibrator: Calibrator | None = getattr(online, name)
        if calibrator is not None:
            card[name], parts = describe(calibrator)
            tensors |= {f"{name}/{key}": value for key, value in parts.items()}
    write_tensors(path, FORMAT, SCHEMA, card, tensors)


def load_online(path: str | PathLike[str]) -> OnlineCalibration:
    """Read a state."""
    path = as_path(path)
    card, tensors = read_tensors(path, FORMAT, SCHEMA, what="state of updates")
    return build_verified(path, card, tensors, _online)


def _online(card: dict[str, Any], tensors: Tensors) -> OnlineCalibration:
    first = _part("first", card, tensors)
    first.policy_ = None  # files of earlier versions have one; that of the calibrator that is given counts
    correction = _part("correction", card, tensors) if "correction" in card else None
    memory = Memory(*(tensors[f"memory/{name}"] for name in MEMORY))
    n = memory.n_samples
    shapes = [array.shape for array in (memory.outputs, memory.labels, memory.base, memory.age)]
    if (
        shapes != [(n, len(first.classes_)), (n,), (n,), (n,)]
        or not np.isin(memory.labels, range(len(first.classes_))).all()
    ):
        raise FileError("damaged, its memory does not fit its classes")
    evidence = Evidence(**{**card["evidence"], "log_wealth": tuple(card["evidence"]["log_wealth"])})
    numbers = {name: card[name] for name in STATE_NUMBERS}
    values = (*numbers.values(), *evidence.log_wealth, evidence.n_compared, evidence.excess)
    if not all(isinstance(value, int | float) and math.isfinite(value) for value in values):
        raise FileError("damaged, its numbers are not finite")
    if (
        len(evidence.log_wealth) not in {0, len(MEMORY_SHARES)}
        or not numbers["half_life"] >= 1
        or not 0 < numbers["alpha"] < 1
    ):
        raise FileError("damaged, its evidence does not fit")
    return OnlineCalibration(first, correction, memory, evidence=evidence, digests=tuple(card["digests"]), **numbers)


def _part(name: str, card: dict[str, Any], tensors: Tensors) -> Calibrator:
    inside = {key.partition("/")[2]: value for key, value in tensors.items() if key.startswith(f"{name}/")}
    return build({**card[name], "schema": ARTIFACT_SCHEMA}, inside)
