"""Names are words of the field: identifiers that were replaced do not come back."""

import io
import tokenize
from pathlib import Path

import pytest

import rhocal

SOURCE = Path(rhocal.__file__).parent

REPLACED = {
    "said": "spec",
    "told": "spec",
    "Told": "InputSpec",
    "How": "ExecutionOptions",
    "in_shape": "restore_shape",
    "Ground": "StandardizedFeatures",
    "_fits_there": "a score backend",
    "_fit_there": "a score backend",
    "_fit_elsewhere": "a source",
    "words": "string_attributes",
    "joined": "concat",
    "Left": "BlockSummary",
    "leave_behind": "summarize_block",
    "named": "with_block_context",
    "under": "apply_calibrator",
    "blame": "validate_pilot_blocks",
    "lots": "sampling_keys",
    "pull": "vjp",
    "serves": "supports_matrix",
    "adds": "supports_vectors",
    "StandIn": "CurveTable",
    "stand_in": "CurveTable",
    "assess": "evaluate",
    "measuring": "measure",
    "ink": "plot",
    "goes_on": "resume",
    "ScaleFit": "ScaleSearch",
}
MODULES = {"desk", "arrivals", "ground", "campaign", "tensors", "where", "assess", "measuring", "ink", "solve"}
FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_replaced_identifier(path):
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline)
    names = {token.string for token in tokens if token.type == tokenize.NAME}
    assert not {name: REPLACED[name] for name in names & REPLACED.keys()}


def test_no_replaced_module():
    assert not MODULES & {path.stem for path in FILES}


def test_solvers_have_names_of_the_field():
    assert not {"two", "few", "many", "smooth"} & set(dir(rhocal.optimize))
