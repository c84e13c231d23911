"""A fitted calibrator on disk: one ``.safetensors`` file."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal import __version__
from rhocal.calibrators import CALIBRATORS, Calibrator
from rhocal.calibrators.fitted_values import validate_fitted
from rhocal.calibrators.options import declarations, validate_options
from rhocal.calibrators.policies.policy import build_policy, describe_policy
from rhocal.calibrators.registry import PRIOR_SHIFT
from rhocal.calibrators.weighting import Weighting
from rhocal.data.spec import KINDS, Kind
from rhocal.data.storage.atomic import as_path
from rhocal.data.storage.container import (
    Tensors,
    build_verified,
    class_array,
    class_list,
    different_names,
    format_of,
    read_tensors,
    stored_smallest_prob,
    write_tensors,
)
from rhocal.errors import FileError, InputError
from rhocal.numerics.masks import MIN_MASK_GAP
from rhocal.objectives import Objective
from rhocal.optimize import DecisionChange, HeldOutScores, Solution

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path

    from numpy.typing import NDArray

SCHEMA = 2
"""1 had no checksum; it is still read."""
CHECKSUM_SINCE = 2
FORMAT = "rhocal-calibrator"
MODEL_OF_ANSWERS = "rhocal-correctness"
"""The format of ``correctness_file``."""
MAX_DEPTH = 20
"""How deep calibrators may be inside each other."""


def save(calibrator: Calibrator, path: str | PathLike[str]) -> None:
    """Write a fitted calibrator. The target appears whole or not at all."""
    card, tensors = describe(calibrator)
    write_tensors(path, FORMAT, SCHEMA, card, tensors)


def describe(calibrator: Calibrator) -> tuple[dict[str, Any], Tensors]:
    """The card and the tensors of a fitted calibrator, from which ``build`` makes it again."""
    calibrator._fitted()  # noqa: SLF001
    try:
        validate_fitted(calibrator, calibrator.map_.fitted)
    except InputError as error:
        raise InputError(f"this {type(calibrator).__name__} cannot be saved: {error}") from error
    tensors: Tensors = {}
    card: dict[str, Any] = {
        "classes": class_list(calibrator.classes_),
        "kind": calibrator.kind_,
        **({} if calibrator.positive_ is None else {"positive": calibrator.positive_}),
        **({} if calibrator.columns_ is None else {"columns": list(calibrator.columns_)}),
        **({} if calibrator.label_shares_ is None else {"label_shares": calibrator.label_shares_.tolist()}),
        **({} if calibrator.n_samples_ is None else {"n_samples": calibrator.n_samples_}),
        **({} if calibrator.n_clusters_ is None else {"n_clusters": calibrator.n_clusters_}),
        **({} if calibrator.weighting_ is None else {"weighting": asdict(calibrator.weighting_)}),
        **_describe(calibrator, "", tensors),
    }
    if calibrator.policy_ is not None:
        try:
            calibrator.policy_.check(len(calibrator.classes_))
        except InputError as error:
            raise InputError(f"the policy of this {type(calibrator).__name__} cannot be saved: {error}") from error
        card["policy"] = describe_policy(calibrator.policy_, tensors)
    # A file without tensors is allowed by the format but not by every reader.
    tensors["n_classes"] = np.array(len(calibrator.classes_))
    return card, tensors


def map_checksum(calibrator: Calibrator) -> str:
    """The same for calibrators that are the same map; policies and records of the fit do not matter."""
    card, tensors = describe(calibrator)
    digest = hashlib.blake2b(json.dumps([card[key] for key in ("classes", "kind", "method")]).encode(), digest_size=16)
    for name, values in sorted(tensors.items()):
        if not name.startswith("policy."):
            digest.update(f"{name} {values.dtype.str} {values.shape}".encode())
            digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


def load(path: str | PathLike[str]) -> Calibrator:
    """Read a calibrator that ``save`` wrote.

    Everything in the file is compared with what the registry declares for its method, and then with its checksum.

    Parameters
    ----------
    path
        A ``.safetensors`` file.

    Returns
    -------
    Calibrator

    Examples
    --------
    >>> import rhocal, tempfile
    >>> cal = rhocal.TemperatureScaling().fit(*rhocal.demo_logits("cal"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cal.save(f"{folder}/cal.safetensors")
    ...     rhocal.load(f"{folder}/cal.safetensors").temperature_ == cal.temperature_
    True
    """
    path = as_path(path)
    card, tensors = _read(path)
    return build_verified(path, card, tensors, build, CHECKSUM_SINCE)


def build(card: dict[str, Any], tensors: Tensors) -> Calibrator:
    """The calibrator of a card and its tensors, all of which are used."""
    classes = class_array(card["classes"])
    if card["kind"] not in KINDS:
        raise FileError(f"damaged, its kind is {card['kind']!r}")
    rest = dict(tensors)
    n_classes = rest.pop("n_classes", None)
    if n_classes is None or n_classes.shape != () or n_classes.dtype.kind not in "iu" or n_classes != len(classes):
        raise FileError(f"damaged, n_classes is {n_classes}, and there are {len(classes)} classes")
    calibrator = _build(card, "", rest, Common(classes, card["kind"], card["schema"]))
    if "policy" in card:
        calibrator.policy_ = build_policy(card["policy"], rest, len(classes))
    if rest:
        raise FileError(f"damaged, it has tensors that are no parameters: {', '.join(sorted(rest))}")
    calibrator.positive_ = _positive(card.get("positive"), classes)
    calibrator.columns_ = _columns(card.get("columns"))
    calibrator.label_shares_ = _label_shares(card.get("label_shares"), len(classes))
    calibrator.n_samples_ = _count(card.get("n_samples"), "samples")
    calibrator.n_clusters_ = _count(card.get("n_clusters"), "clusters")
    calibrator.weighting_ = _weighting(card.get("weighting"))
    return calibrator


def _positive(name: Any, classes: NDArray[Any]) -> Any:
    """The positive class, which is one of two."""
    if name is not None and (len(classes) != 2 or not any(name == known for known in classes.tolist())):
        raise FileError(f"damaged, its positive class {name!r} is none of two classes")
    return name


def _label_shares(shares: Any, n_classes: int) -> NDArray[np.float64] | None:
    """The shares of the classes, which sum to 1."""
    if shares is None:
        return None
    values = np.asarray(shares, np.float64)
    if values.shape != (n_classes,) or not (values >= 0).all() or not abs(values.sum() - 1) < 1e-6:
        raise FileError("damaged, its shares of labels are not one for each class, with a sum of 1")
    return values


def _count(n: Any, what: str) -> int | None:
    """Of samples or clusters of the calibration set, a whole number."""
    if n is not None and (type(n) is not int or n < 1):
        raise FileError(f"damaged, its number of {what} is {n!r}")
    return n


def _weighting(about: Any) -> Weighting | None:
    """The importance weights of the fit."""
    if about is None:
        return None
    weighting = Weighting(**about)
    n, size = weighting.n_samples, weighting.effective_size
    are_numbers = type(about["n_samples"]) is int and type(about["effective_size"]) is float and 0 < size <= n + 1e-6
    if not are_numbers or weighting.origin not in {"estimated", "given"}:
        raise FileError(f"damaged, its weights are {about!r}")
    return weighting


def _columns(names: Any) -> tuple[str, ...] | None:
    """The names of columns, which are different texts."""
    return None if names is None else tuple(different_names(names, "columns"))


@dataclass(frozen=True)
class Common:
    """What a calibrator and those inside it have in common."""

    classes: NDArray[Any]
    kind: Kind
    schema: int


def _describe(calibrator: Calibrator, prefix: str, tensors: Tensors) -> dict[str, Any]:
    """Method, options and evidence of a calibrator and of those it is made of; their numbers go into ``tensors``."""
    for name in calibrator.parameters:
        tensors[prefix + name] = np.asarray(getattr(calibrator, name))
    string_attributes = {name: getattr(calibrator, name).tolist() for name in calibrator.string_attributes}
    inside = {name: _describe_children(calibrator, name, prefix, tensors) for name in calibrator.children}
    return {
        "method": calibrator.label,
        "options": _options(calibrator),
        "evidence": asdict(calibrator.solution_),
        **({} if calibrator.smallest_prob_ is None else {"smallest_prob": calibrator.smallest_prob_}),
        **({"mask_gap": calibrator.mask_gap_} if np.isfinite(calibrator.mask_gap_) else {}),
        **({} if calibrator.n_best_ is None else {"n_best": calibrator.n_best_}),
        **({"string_attributes": string_attributes} if string_attributes else {}),
        **({"inside": inside} if inside else {}),
    }


def _describe_children(calibrator: Calibrator, name: str, prefix: str, tensors: Tensors) -> Any:
    child = getattr(calibrator, name)
    if isinstance(child, Calibrator):
        return _describe(child, f"{prefix}{name}.", tensors)
    return [_describe(member, f"{prefix}{name}.{k}.", tensors) for k, member in enumerate(child)]


def _build(about: dict[str, Any], prefix: str, tensors: Tensors, common: Common, depth: int = 0) -> Calibrator:
    """The calibrator that ``_describe`` described; its parameters are taken out of the tensors."""
    if depth > MAX_DEPTH:
        raise FileError(f"damaged, more than {MAX_DEPTH} calibrators are inside each other")
    calibrator = _unfitted(about)
    calibrator.classes_ = common.classes
    # The children of a calibrator take validated logits, whatever kind the calibrator takes.
    calibrator.kind_ = "logits" if prefix else common.kind
    fitted: dict[str, Any] = {}
    for name in calibrator.parameters:
        is_old = common.schema < CHECKSUM_SINCE  # a newer one has every parameter
        if is_old and prefix + name not in tensors and name in calibrator.absent_in_old_artifacts:
            fitted[name] = calibrator.absent_in_old_artifacts[name]
            continue
        if prefix + name not in tensors:
            raise FileError(f"damaged, the parameter {prefix + name} is missing")
        value = tensors.pop(prefix + name)
        fitted[name] = value.item() if value.ndim == 0 else value
    for name in calibrator.string_attributes:
        fitted[name] = np.array(about["string_attributes"][name])
    for name in calibrator.children:
        inside, is_list = about["inside"][name], bool(declarations(type(calibrator))[name].values.shape)
        if isinstance(inside, list) is not is_list:
            raise FileError(f"damaged, {prefix + name} is {'one calibrator' if is_list else 'a list'}")
        if isinstance(inside, list):
            paths = [f"{prefix}{name}.{k}." for k in range(len(inside))]
            fitted[name] = [
                _build(one, path, tensors, common, depth + 1) for one, path in zip(inside, paths, strict=True)
            ]
        else:
            fitted[name] = _build(inside, f"{prefix}{name}.", tensors, common, depth + 1)
    numbers = {name.removesuffix("_"): value for name, value in fitted.items()}
    calibrator.n_best_ = _n_best(about, len(common.classes))
    try:
        validate_fitted(calibrator, numbers)
    except InputError as error:
        raise FileError(f"damaged, {prefix}{error}") from error
    calibrator.mask_gap_ = _mask_gap(about)
    # It is absent in artifacts of earlier versions, and where scores are logits.
    calibrator.smallest_prob_ = stored_smallest_prob(about.get("smallest_prob"))
    calibrator.solution_ = _solution(about["evidence"])
    vars(calibrator)["map_"] = calibrator._new_map(**numbers)  # noqa: SLF001 - our own
    return calibrator


EVIDENCE = {
    "objective": str,
    "value": float,
    "converged": bool,
    "n_evaluations": int,
    "at_bound": str,
    "trials": list,
    "held_out": dict,
    "decisions": dict,
}


def _mask_gap(about: dict[str, Any]) -> float:
    gap = about.get("mask_gap", np.inf)  # absent in artifacts of earlier versions
    if not isinstance(gap, float) or not gap >= MIN_MASK_GAP:
        raise FileError(f"damaged, mask_gap is {gap!r}, not a number of at least {MIN_MASK_GAP:g}")
    return gap


def _n_best(about: dict[str, Any], n_classes: int) -> int | None:
    n = about.get("n_best")  # absent where the scale is computed from all logits
    if n is not None and (type(n) is not int or not 2 <= n < n_classes):
        raise FileError(f"damaged, n_best is {n!r}, not a number of classes")
    return n


def _solution(evidence: dict[str, Any]) -> Solution:
    wrong = [name for name, kind in EVIDENCE.items() if not isinstance(evidence.get(name, kind()), kind | NoneType)]
    if wrong or not all(isinstance(trial, dict) for trial in evidence["trials"]):
        raise FileError(f"damaged, its evidence does not fit: {', '.join(wrong) or 'trials'}")
    held_out = evidence.get("held_out")  # absent in artifacts of earlier versions
    scores = None if held_out is None else HeldOutScores(**held_out)
    if scores is not None:
        _ = scores.summary  # a fit, and temperature scaling, are among them
    counted = evidence.get("decisions")
    change = None if counted is None else DecisionChange(**counted)
    if change is not None:
        _ = change.sentence  # it has numbers
    return Solution(**{**evidence, "trials": tuple(evidence["trials"]), "held_out": scores, "decisions": change})


def _unfitted(about: dict[str, Any]) -> Calibrator:
    """The calibrator with its options, before its numbers are set."""
    family = _family(about["method"])
    try:
        calibrator = family(**{name: _option(value) for name, value in about["options"].items()})
    except TypeError as error:
        raise FileError(f"its options do not fit {about['method']}: {error}") from error
    validate_options(calibrator)
    return calibrator


def _family(name: str) -> type[Calibrator]:
    """The family of a method, or of its own name, which earlier versions wrote."""
    if not isinstance(name, str):
        raise FileError(f"damaged, its method is {name!r}")
    if name in CALIBRATORS or ":" in name:
        return CALIBRATORS.get(name, CALIBRATORS["svs:field"]).family  # any chain
    for method in (*CALIBRATORS.values(), PRIOR_SHIFT):
        if method.family.name == name:
            return method.family
    raise FileError(f"this version ({__version__}) does not know the method {name!r}")


def _read(path: Path) -> tuple[dict[str, Any], Tensors]:
    if format_of(path) == MODEL_OF_ANSWERS:
        raise FileError(
            f"{path}: a model of answers, not a calibrator of scores; evaluate, report and apply take it, and in Python "
            "rhocal.CorrectnessModel.load"
        )
    card, tensors = read_tensors(path, FORMAT, SCHEMA, what="calibrator")
    absent = {"method", "options", "classes", "kind", "evidence"} - card.keys()
    if absent:
        raise FileError(f"{path}: damaged, or not a calibrator (missing: {', '.join(sorted(absent))})")
    return card, tensors


def _options(calibrator: Calibrator) -> dict[str, Any]:
    return {name: _plain(value) for name, value in calibrator.get_params(deep=False).items()}


def _option(value: Any) -> Any:
    """An option from JSON, which has no tuples (options are never lists) and no calibrators."""
    if isinstance(value, list):
        return tuple(_option(one) for one in value)
    return _unfitted(value) if isinstance(value, dict) else value


def _plain(value: Any) -> Any:
    """An option as JSON; objectives have a text, calibrators a name and options."""
    if isinstance(value, Calibrator):
        return {"method": value.name, "options": _options(value)}
    if isinstance(value, Objective):
        return str(value)
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value
