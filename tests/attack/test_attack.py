"""A short run of every attack, with a fixed seed. `make attack MINUTES=30` looks further."""

import pytest
from tests.attack import Counts, attack, modules

from rhocal.errors import InputError

SECONDS = 0.5


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", modules())
def test_attack(name):
    counts = attack(name, 0, SECONDS)
    assert counts.calls
    assert counts.is_clean, "\n".join(counts.examples)


def refuse():
    raise InputError("refused")


def test_counts_tell_findings_from_refusals():
    counts = Counts()
    counts.attempt("ours", refuse)
    counts.attempt("foreign", lambda: {}[0])
    counts.check("sum", 1 + 1 == 3)
    counts.check_finite("nan", [float("nan")])
    assert (counts.calls, counts.refused, counts.foreign, counts.silent_wrong, counts.nan) == (2, 1, 1, 1, 1)
    assert not counts.is_clean
    assert (counts + counts).calls == 4
