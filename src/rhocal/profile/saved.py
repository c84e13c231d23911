"""A profile on disk: what fits of scale calibrators need, without the logits.

About 80 numbers a sample in single precision, however many classes there are; with few classes the logits themselves are
fewer, and are kept. Fits on a saved profile end at the optimum of its table (see ``curve_table.py``), without the exact
finish.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.container import class_list, read_tensors, write_tensors
from rhocal.errors import FileError, InputError
from rhocal.profile.curve_table import Table
from rhocal.profile.passes import FEW_CLASSES, ArrayPasses, HalfPasses
from rhocal.profile.plan import ALL_NAMES, RINGS
from rhocal.profile.profile import Profile

if TYPE_CHECKING:
    from os import PathLike

FORMAT = "rhocal-profile"
SCHEMA = 4
"""The table of 1 had its nodes elsewhere; 2 had no labels; 3 had no checksum and is still read."""
CHECKSUM_SINCE = 4


def save_profile(profile: Profile, path: str | PathLike[str]) -> None:
    """Write a profile, with the norms for the paper's grid of ρ and a table around the NLL-optimal temperature."""
    table = profile.table if isinstance(profile.table, Table) else None  # of a stream: its logits are released
    if table is not None and not isinstance(table.log_center, float):
        raise InputError("this profile was made for one fit; make one to save with rhocal.profile_logits(stream)")
    log_center = profile.log_center if table is None else float(table.log_center)
    if log_center is None:
        raise InputError("this profile has no center for its table; make one to save with rhocal.profile_logits")
    tensors: dict[str, Any] = {
        "top": profile.top,
        "label_gap": profile.label_gap,
        "labels": profile.labels,
        "predicted": profile.predicted,
        "weights": profile.weights * profile.total_weight,
    }
    if profile.n_classes <= FEW_CLASSES and isinstance(profile.passes, ArrayPasses | HalfPasses):
        tensors["logits"] = profile.passes.logits
    else:
        profile.read(ALL_NAMES)
        table = table or Table(profile, log_center)
        tensors |= {f"ring {ring}": table.nodes(ring).astype(np.float32) for ring in RINGS}
        tensors |= {f"kept {name}": value.astype(np.float32) for name, value in profile.kept.items()}
    card = {"classes": class_list(profile.classes), "kind": profile.kind, "log_centre": log_center}
    write_tensors(path, FORMAT, SCHEMA, card, tensors)


def load_profile(path: str | PathLike[str]) -> Profile:
    """Read a profile that ``save_profile`` wrote; ``fit_profile`` of scale calibrators takes it."""
    card, tensors = read_tensors(Path(path), FORMAT, SCHEMA, what="profile", oldest=3)
    try:
        weights = tensors["weights"]
        profile = Profile(
            passes=ArrayPasses(tensors["logits"]) if "logits" in tensors else None,
            classes=np.asarray(card["classes"]),
            kind=card["kind"],
            top=tensors["top"],
            label_gap=tensors["label_gap"],
            correct=(tensors["predicted"] == tensors["labels"]).astype(np.float64),
            labels=tensors["labels"],
            predicted=tensors["predicted"],
            weights=weights / weights.sum(),
            total_weight=float(weights.sum()),
            log_center=float(card["log_centre"]),
            kept={
                name.removeprefix("kept "): value.astype(np.float64)
                for name, value in tensors.items()
                if name.startswith("kept ")
            },
        )
        if profile.passes is not None:
            return profile
        table = Table(profile, float(card["log_centre"]))
        for ring in RINGS:
            table.set_nodes(ring, tensors[f"ring {ring}"].astype(np.float64))
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(f"{path}: damaged, its description does not fit: {error}") from error
    return replace(profile, table=table)
