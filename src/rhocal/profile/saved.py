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

from rhocal.data.spec import KINDS
from rhocal.data.storage.container import PROFILE, build_verified, class_array, class_list, read_tensors, write_tensors
from rhocal.errors import FileError, InputError
from rhocal.numerics.masks import MIN_MASK_GAP
from rhocal.profile.curve_table import Table
from rhocal.profile.passes import FEW_CLASSES, ArrayPasses, HalfPasses, MaskedPasses
from rhocal.profile.plan import ALL_NAMES, RINGS
from rhocal.profile.profile import TOP_K, Profile, array_passes

if TYPE_CHECKING:
    from os import PathLike

FORMAT = PROFILE
SCHEMA = 4
"""The table of 1 had its nodes elsewhere; 2 had no labels; 3 had no checksum and is still read."""
CHECKSUM_SINCE = 4


def save_profile(profile: Profile, path: str | PathLike[str]) -> None:
    """Write a profile, with the norms for the paper's grid of ρ and a table around the NLL-optimal temperature.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/profile.safetensors"
    >>> rhocal.save_profile(rhocal.profile_logits(logits, labels), path)
    >>> rhocal.load_profile(path).n_samples
    5000
    """
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
    if np.isfinite(profile.mask_gap):
        card["mask_gap"] = profile.mask_gap
    if profile.smallest_prob is not None:
        card["smallest_prob"] = profile.smallest_prob
    if isinstance(profile.passes, MaskedPasses):
        card["has_masks"] = True
    try:
        _validate(card, tensors)
    except FileError as error:
        raise InputError(f"this profile cannot be saved: {error}") from error
    write_tensors(path, FORMAT, SCHEMA, card, tensors)


def load_profile(path: str | PathLike[str]) -> Profile:
    """Read a profile that ``save_profile`` wrote; ``fit_profile`` of scale calibrators takes it.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/profile.safetensors"
    >>> rhocal.save_profile(rhocal.profile_logits(logits, labels), path)
    >>> rhocal.TemperatureScaling().fit_profile(rhocal.load_profile(path)).temperature_ > 2
    True
    """
    path = Path(path)
    card, tensors = read_tensors(path, FORMAT, SCHEMA, what="profile", oldest=3)
    return build_verified(path, card, tensors, _build, CHECKSUM_SINCE)


def _build(card: dict[str, Any], tensors: dict[str, Any]) -> Profile:
    _validate(card, tensors)
    return _profile(card, tensors)


def _validate(card: dict[str, Any], tensors: dict[str, Any]) -> None:
    """Raise an error unless the numbers of a profile have the shapes and ranges that fits rely on."""
    n_classes = len(class_array(card["classes"]))
    is_known = card["kind"] in KINDS and np.isfinite(float(card["log_centre"]))
    smallest = card.get("smallest_prob")  # absent in profiles of earlier versions, and of logits
    is_known = is_known and (smallest is None or 0 < float(smallest) <= 0.5)
    if not is_known or not float(card.get("mask_gap", np.inf)) >= MIN_MASK_GAP:
        raise FileError("damaged, its description does not fit")
    n = len(np.atleast_1d(tensors["top"]))
    vectors = dict.fromkeys(("top", "label_gap", "labels", "predicted", "weights"), (n,))
    nodes = {"logits": (n, n_classes)} if "logits" in tensors else {f"ring {ring}": (15, n) for ring in RINGS}
    rows = {"kept base": (3, n), "kept largest": (min(TOP_K, n_classes), n)}
    kept = {name: rows.get(name, (n,)) for name in tensors if name.startswith("kept ")}
    for name, shape in {**vectors, **nodes, **kept}.items():
        if np.shape(tensors[name]) != shape or not n:
            raise FileError(f"damaged, {name} has shape {np.shape(tensors[name])} instead of {shape}")
    for name, value in tensors.items():
        array, is_column = np.asarray(value), name in {"labels", "predicted"}
        if array.dtype.kind != ("i" if is_column else "f") or name not in {*vectors, *nodes, *kept}:
            raise FileError(f"damaged, {name} has type {array.dtype}, or is no number of a profile")
        if not np.isfinite(array).all() or (is_column and not ((array >= 0) & (array < n_classes)).all()):
            raise FileError(f"damaged, {name} has values that are not finite, or no classes")
    if (tensors["weights"] < 0).any() or not tensors["weights"].any():
        raise FileError("damaged, weights are negative, or all 0")
    if (tensors["label_gap"] > 0).any():
        raise FileError("damaged, a label_gap is positive: no logit is above the largest")


def _profile(card: dict[str, Any], tensors: dict[str, Any]) -> Profile:
    """The profile of a validated file."""
    weights, gap = tensors["weights"], float(card.get("mask_gap", np.inf))
    profile = Profile(
        passes=array_passes(tensors["logits"], gap=gap if card.get("has_masks") else None)
        if "logits" in tensors
        else None,
        mask_gap=gap,
        smallest_prob=card.get("smallest_prob"),
        classes=class_array(card["classes"]),
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
    return replace(profile, table=table)
