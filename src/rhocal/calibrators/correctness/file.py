"""A fitted ``CorrectnessModel`` on disk: one ``.safetensors`` file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.artifact import MODEL_OF_ANSWERS
from rhocal.calibrators.correctness.model import CorrectnessModel
from rhocal.data.spec import KINDS
from rhocal.data.storage.atomic import as_path
from rhocal.data.storage.container import (
    Tensors,
    build_verified,
    different_names,
    read_tensors,
    stored_smallest_prob,
    write_tensors,
)
from rhocal.errors import FileError

if TYPE_CHECKING:
    from os import PathLike

SCHEMA = 1
FORMAT = MODEL_OF_ANSWERS
SINGLE_NUMBERS = ("intercept", "slope", "subject_deviation", "mask_gap")
BY_FEATURE = ("weights", "feature_mean", "feature_deviation")


def save(model: CorrectnessModel, path: str | PathLike[str]) -> None:
    """Write a fitted model. The target appears whole or not at all."""
    mean, deviation = model._standardization  # noqa: SLF001 - our own
    gap, smallest_prob = model._limits  # noqa: SLF001
    tensors: Tensors = {
        "intercept": np.array(model.intercept_),
        "slope": np.array(model.slope_),
        "subject_deviation": np.array(model.deviation_),
        "mask_gap": np.array(gap),
        "weights": np.array(list(model.weights_.values()), np.float64),
        "feature_mean": np.asarray(mean, np.float64),
        "feature_deviation": np.asarray(deviation, np.float64),
        "offsets": np.array(list(model.offsets_.values()), np.float64),
    }
    card = {
        "ridge": float(model.ridge),
        "kind": model.kind_,
        "features": list(model.weights_),
        "subjects": [str(name) for name in model.offsets_],
        "subjects_name": model.subjects_name_,
        "smallest_prob": smallest_prob,
        "held_out": model.held_out_,
    }
    write_tensors(path, FORMAT, SCHEMA, card, tensors)


def load(path: str | PathLike[str]) -> CorrectnessModel:
    """Read a model that ``save`` wrote."""
    path = as_path(path)
    card, tensors = read_tensors(path, FORMAT, SCHEMA, what="model of answers")
    return build_verified(path, card, tensors, _model)


def _model(card: dict[str, Any], tensors: Tensors) -> CorrectnessModel:
    features, subjects = (different_names(card[what], what) for what in ("features", "subjects"))
    sizes = (
        dict.fromkeys(SINGLE_NUMBERS, ()) | dict.fromkeys(BY_FEATURE, (len(features),)) | {"offsets": (len(subjects),)}
    )
    if tensors.keys() != sizes.keys():
        raise FileError(f"damaged, its tensors are {', '.join(sorted(tensors))}")
    for name, shape in sizes.items():
        is_finite = np.isfinite(tensors[name]).all() if name != "mask_gap" else tensors[name] > 0
        if tensors[name].shape != shape or tensors[name].dtype != np.float64 or not is_finite:
            raise FileError(f"damaged, {name} does not hold {shape} finite numbers")
    if (tensors["feature_deviation"] <= 0).any() or tensors["subject_deviation"] < 0:
        raise FileError("damaged, a deviation is not positive")
    if card["kind"] not in KINDS:
        raise FileError(f"damaged, its kind is {card['kind']!r}")
    smallest = stored_smallest_prob(card["smallest_prob"])
    if not isinstance(card["subjects_name"], str):
        raise FileError(f"damaged, the name of its subjects is {card['subjects_name']!r}")
    if not isinstance(card["ridge"], float) or not 0 <= card["ridge"] < np.inf:
        raise FileError(f"damaged, its ridge is {card['ridge']!r}")
    model = CorrectnessModel(card["ridge"])
    model.subjects_name_ = card["subjects_name"]
    model.kind_, model.held_out_ = card["kind"], _held_out(card["held_out"])
    model.intercept_, model.slope_ = float(tensors["intercept"]), float(tensors["slope"])
    model.deviation_ = float(tensors["subject_deviation"])
    model.weights_ = dict(zip(features, tensors["weights"].tolist(), strict=True))
    model.offsets_ = dict(zip(subjects, tensors["offsets"].tolist(), strict=True))
    model._standardization = tensors["feature_mean"], tensors["feature_deviation"]  # noqa: SLF001 - our own
    model._limits = float(tensors["mask_gap"]), smallest  # noqa: SLF001
    return model


def _held_out(values: Any) -> dict[str, float] | None:
    known = {"nll", "nll_of_score_alone", "above", "standard_error"}
    is_known = isinstance(values, dict) and values.keys() == known
    if values is not None and not (is_known and all(isinstance(value, float) for value in values.values())):
        raise FileError("damaged, its evidence does not fit")
    return values
