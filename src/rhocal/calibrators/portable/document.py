"""A fitted map as JSON, for any language: docs/portable.md describes it, with an interpreter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rhocal import __version__
from rhocal.calibrators.portable.program import trace

if TYPE_CHECKING:
    from rhocal.calibrators import Calibrator
    from rhocal.calibrators.portable.program import Instruction

SCHEMA = 1


def portable_map(calibrator: Calibrator, *, is_single_score: bool = False) -> dict[str, Any]:
    """The map as plain numbers, texts, lists and dictionaries.

    With ``is_single_score`` one score goes in, that of the positive class (by default the second of two).
    """
    program = trace(calibrator, is_single_score=is_single_score)
    return {
        "format": "rhocal-map",
        "schema": SCHEMA,
        "rhocal": __version__,
        "method": calibrator.label,
        "kind": calibrator.kind_,
        "classes": calibrator.classes_.tolist(),
        "n_inputs": program.n_inputs,
        "program": [_instruction(one) for one in program.instructions],
        "probs": program.probs,
        "scores": program.scores,
    }


def _instruction(one: Instruction) -> dict[str, Any]:
    """An instruction without what it does not have."""
    return {"op": one.op, "args": list(one.args), "width": one.width} | ({} if one.data is None else {"data": one.data})
