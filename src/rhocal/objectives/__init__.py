"""What a fit minimizes. An objective is a frozen value with a text form; objectives add and scale.

>>> SCE(batch_size=128) + 0.01 * KL()
objective('sce + 0.01*kl')
>>> objective("nll + avuc(width=0.2)") == NLL() + AvUC(width=0.2)
True

An objective maps per-sample statistics (``rhocal.profile.statistics``) to a value and its slopes; a family turns the slopes in
statistics into slopes in its parameters. A new objective is one file and an entry of ``OBJECTIVES``. It does not know the
family it is used with; what a report shows is a metric and belongs in ``rhocal.metrics``.
"""

from __future__ import annotations

import re
from dataclasses import fields, replace
from functools import lru_cache

from rhocal.errors import InputError
from rhocal.objectives.avuc import AvUC
from rhocal.objectives.base import Objective, Single
from rhocal.objectives.mmce import MMCE
from rhocal.objectives.sce import KL, SCE
from rhocal.objectives.scores import NLL, Brier, Focal, LabelSmoothing, TopBrier
from rhocal.objectives.soft_bins import SoftBinnedECE, SoftECE


def with_batch_size(target: Objective, batch_size: float) -> Objective:
    """The same objective, with this mini-batch size in every term that has one."""
    terms = (
        weight * (replace(term, batch_size=batch_size) if isinstance(term, SCE | KL) else term)
        for weight, term in target.terms()
    )
    first, *rest = terms
    return sum(rest, first)


def batch_size_of(target: Objective) -> int:
    """The mini-batch size of an objective; the paper's 128 if no term has one."""
    sizes = (term.batch_size for _, term in target.terms() if isinstance(term, SCE | KL))
    return int(next(sizes, SCE().batch_size))


OBJECTIVES: dict[str, type[Single]] = {
    cls.name: cls for cls in (NLL, Brier, TopBrier, SCE, KL, AvUC, SoftBinnedECE, SoftECE, MMCE, Focal, LabelSmoothing)
}

_TERM = re.compile(r"(?:(?P<weight>[0-9.][0-9.eE+-]*?)\s*\*\s*)?(?P<name>[a-z][a-z-]*)\s*(?:\((?P<options>[^()]*)\))?")


def objective(text: str | Objective) -> Objective:
    """An objective from its text, such as ``"sce + 0.01*kl"`` or ``"kl(direction=from-base)"``.

    Examples
    --------
    >>> import rhocal
    >>> rhocal.objective("sce + 0.01*kl")
    objective('sce + 0.01*kl')
    >>> rhocal.objective("kl(direction=from-base)")
    objective('kl(direction=from-base)')
    """
    if isinstance(text, Objective):
        return text
    if not isinstance(text, str):
        raise InputError(f"objective must be a text or an Objective; got {type(text).__name__}")
    return _parse(text)


@lru_cache
def _parse(text: str) -> Objective:
    total: Objective | None = None
    for part in re.split(r"(?<![0-9.][eE])\+(?![^(]*\))", text):
        match = _TERM.fullmatch(part.strip())
        if match is None:
            raise InputError(f"objective {text!r}: cannot read {part.strip()!r}; write for example 'sce + 0.01*kl'")
        term: Objective = _single(match["name"], match["options"] or "", text)
        if match["weight"]:
            try:
                term = float(match["weight"]) * term
            except ValueError as error:
                raise InputError(f"objective {text!r}: {match['weight']!r} is not a number") from error
        total = term if total is None else total + term
    assert total is not None
    return total


def _single(name: str, options: str, text: str) -> Objective:
    if name not in OBJECTIVES:
        raise InputError(f"objective {text!r}: unknown term {name!r}; the terms are {', '.join(OBJECTIVES)}")
    cls = OBJECTIVES[name]
    known = {field.name for field in fields(cls)}
    values: dict[str, str | float | None] = {}
    for pair in filter(None, (pair.strip() for pair in options.split(","))):
        key, _, value = (piece.strip() for piece in pair.partition("="))
        if key not in known:
            raise InputError(
                f"objective {text!r}: {name} has no option {key!r}; it has {', '.join(sorted(known)) or 'none'}"
            )
        values[key] = _parse_value(value)
    try:
        return cls(**values)
    except TypeError as error:
        raise InputError(f"objective {text!r}: {name} cannot take {options!r}") from error


def _parse_value(text: str) -> str | float | None:
    if text == "None":
        return None
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


__all__ = [
    "KL",
    "MMCE",
    "NLL",
    "OBJECTIVES",
    "SCE",
    "AvUC",
    "Brier",
    "Focal",
    "LabelSmoothing",
    "Objective",
    "SoftBinnedECE",
    "SoftECE",
    "TopBrier",
    "batch_size_of",
    "objective",
    "with_batch_size",
]
