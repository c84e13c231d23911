"""What a fit minimises. Objectives are frozen values that add and scale, in Python and as text.

>>> SCE(batch_size=128) + 0.01 * KL()
objective('sce + 0.01*kl')
>>> objective("nll + avuc(width=0.2)") == NLL() + AvUC(width=0.2)
True

Each gives its value and its slope in the statistics of ``statistics.py``; families pull the slope back to their parameters.
"""

from __future__ import annotations

import re
from dataclasses import fields, replace
from functools import lru_cache

from rhocal.errors import InputError
from rhocal.objectives.avuc import AvUC
from rhocal.objectives.base import Objective, Single
from rhocal.objectives.brier import Brier, TopBrier
from rhocal.objectives.divergence import KL
from rhocal.objectives.likelihood import NLL, Focal, LabelSmoothing
from rhocal.objectives.mmce import MMCE
from rhocal.objectives.sce import SCE
from rhocal.objectives.soft_bins import SoftBinnedECE, SoftECE


def with_batch_size(target: Objective, batch_size: float) -> Objective:
    """The same objective with every term that knows a mini-batch size using this one."""
    terms = (
        weight * (replace(term, batch_size=batch_size) if isinstance(term, SCE | KL) else term)
        for weight, term in target.terms()
    )
    first, *rest = terms
    return sum(rest, first)


def batch_size_of(target: Objective) -> int:
    """The size of the mini-batch that an objective means; the paper's 128 where no term says."""
    sizes = (term.batch_size for _, term in target.terms() if isinstance(term, SCE | KL))
    return int(next(sizes, SCE().batch_size))


OBJECTIVES: dict[str, type[Single]] = {
    cls.name: cls for cls in (NLL, Brier, TopBrier, SCE, KL, AvUC, SoftBinnedECE, SoftECE, MMCE, Focal, LabelSmoothing)
}

_TERM = re.compile(r"(?:(?P<weight>[0-9.][0-9.eE+-]*?)\s*\*\s*)?(?P<name>[a-z][a-z-]*)\s*(?:\((?P<options>[^()]*)\))?")


def objective(text: str | Objective) -> Objective:
    """An objective from its text, such as ``"sce + 0.01*kl"`` or ``"kl(direction=from-base)"``."""
    if isinstance(text, Objective):
        return text
    if not isinstance(text, str):
        raise InputError(f"objective must be a text or an Objective; got {type(text).__name__}")
    return _read(text)


@lru_cache
def _read(text: str) -> Objective:
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
        raise InputError(f"objective {text!r}: there is no {name!r}; there are {', '.join(OBJECTIVES)}")
    cls = OBJECTIVES[name]
    known = {field.name for field in fields(cls)}
    given: dict[str, str | float | None] = {}
    for pair in filter(None, (pair.strip() for pair in options.split(","))):
        key, _, value = (piece.strip() for piece in pair.partition("="))
        if key not in known:
            raise InputError(
                f"objective {text!r}: {name} has no option {key!r}; it has {', '.join(sorted(known)) or 'none'}"
            )
        given[key] = _value(value)
    try:
        return cls(**given)
    except TypeError as error:
        raise InputError(f"objective {text!r}: {name} cannot take {options!r}") from error


def _value(text: str) -> str | float | None:
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
