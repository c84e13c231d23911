"""Several models: columns by name or by position, never by a guess; arguments that cannot be used are named."""

import numpy as np
import pandas as pd
import pytest

import rhocal
from helpers import synthetic
from rhocal.errors import InputError

Z, Y = synthetic(300, 3)
NAMES = np.array(["ox", "cat", "dog"])
LABELS = NAMES[Y]
FRAME = pd.DataFrame(Z, columns=NAMES)


def test_an_array_after_a_frame_needs_classes():
    for use in (rhocal.report, rhocal.plot):
        with pytest.raises(InputError, match=r"model 'B': the columns have no names.*classes="):
            use({"A": FRAME, "B": Z}, LABELS, kind="logits")
    with pytest.raises(InputError, match=r"test: the columns have no names.*classes="):
        rhocal.compare(FRAME, LABELS, test=(Z, LABELS), methods=["identity"])
    stated = rhocal.report({"A": FRAME, "B": Z}, LABELS, kind="logits", classes=NAMES).to_frame()
    assert len(set(stated["accuracy"])) == 1
    in_order = FRAME[sorted(NAMES)]
    same = rhocal.report({"A": in_order, "B": in_order.to_numpy(), "C": FRAME}, LABELS, kind="logits").to_frame()
    assert len(set(same["accuracy"])) == 1
    rhocal.compare(FRAME, LABELS, test=(in_order, LABELS), methods=["identity"])


def test_names_of_models_are_compared_as_texts():
    with pytest.raises(InputError, match="two models have the name '1'"):
        rhocal.report({1: Z, "1": 2 * Z}, Y, kind="logits")


@pytest.mark.parametrize(
    ("use", "name"),
    [
        (lambda: rhocal.compare(Z, Y, n_seeds="a"), "n_seeds"),
        (lambda: rhocal.compare(Z, Y, n_seeds=1.5), "n_seeds"),
        (lambda: rhocal.compare(Z, Y, n_seeds=0), "n_seeds"),
        (lambda: rhocal.compare(Z, Y, methods=3), "methods"),
        (lambda: rhocal.compare(Z, Y, methods=[3]), "methods"),
        (lambda: rhocal.report(Z, Y, kind="logits", calibrators=3), "calibrators"),
        (lambda: rhocal.report(Z, Y, kind="logits", calibrators="temperature"), "calibrators"),
        (lambda: rhocal.report(Z, Y, kind="logits", tolerance="a"), "tolerance"),
        (lambda: rhocal.report(Z, Y, kind="logits", seed="a"), "seed"),
        (lambda: rhocal.evaluate(Z, Y, kind="logits", seed=1.5), "seed"),
    ],
)
def test_arguments_that_cannot_be_used_are_named(use, name):
    with pytest.raises(InputError, match=f"^{name} "):
        use()
