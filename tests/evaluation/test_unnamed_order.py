"""Columns without names, which belong to the sorted labels: another order is suspected where it explains them far better."""

import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest

import rhocal
from helpers import synthetic
from rhocal.errors import InputError, SuspiciousInputWarning

NAMES = np.array(["cat", "dog", "bee", "ant"])
Z, Y = synthetic(2000, 4, seed=5)
Z = Z + 2 * np.eye(4)[Y]
TEXT = NAMES[Y]
PROBS = (
    rhocal.TemperatureScaling().fit(pd.DataFrame(Z, columns=NAMES), TEXT).predict_proba(pd.DataFrame(Z, columns=NAMES))
)
RUNS = [
    lambda z, y, **kw: rhocal.evaluate(z, y, kind="logits", **kw),
    lambda z, y, **kw: rhocal.TemperatureScaling().fit(z, y, **kw),
    lambda z, y, **kw: rhocal.compare(z, y, methods=["temperature"], n_seeds=1, **kw),
    partial(rhocal.report, kind="logits"),
]


@pytest.mark.parametrize("run", RUNS)
def test_another_order_than_that_of_sorted_labels_is_suspected_once(run):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(Z, TEXT)
    found = [str(one.message) for one in caught if "another order" in str(one.message)]
    assert {one.category for one in caught} >= {SuspiciousInputWarning}
    assert len(found) == 1
    assert "Pass classes= to name the label of each column, in order" in found[0]
    order = np.argsort(NAMES)
    with warnings.catch_warnings(record=True) as others:
        warnings.simplefilter("always")
        run(Z, TEXT, classes=NAMES)
        run(Z[:, order], TEXT)
    assert not [one for one in others if "another order" in str(one.message)]


@pytest.mark.parametrize("m", [3, 10, 100])
def test_chance_and_shifted_priors_are_no_evidence(m):
    rng = np.random.default_rng(m)
    names = np.array([f"class {chr(97 + k // 26)}{chr(97 + k % 26)}" for k in range(m)])
    for seed in range(5):
        y = np.r_[np.arange(m), rng.choice(m, 3000, p=rng.dirichlet(np.full(m, 0.3)))]
        noise, constant = rng.normal(size=(len(y), m)), np.zeros((len(y), m))
        constant[:, seed % m] = 0.1 * rng.normal(size=len(y)) + 2
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for z in (noise, constant, noise + constant, noise[: m + 9]):
                rhocal.TemperatureScaling().fit(z, names[y[: len(z)]])
        assert not [one for one in caught if "another order" in str(one.message)]


@pytest.mark.filterwarnings("ignore::rhocal.errors.SuspiciousInputWarning")
def test_comparison_refuses_names_on_one_side_only():
    frame = pd.DataFrame(Z, columns=NAMES)
    for first, second in ((Z, frame), (frame, Z)):
        with pytest.raises(InputError, match="the columns have no names"):
            rhocal.compare(first, TEXT, test=(second, TEXT), methods=["temperature"])


def test_regression_to_the_mean_of_ordinal_classes_is_no_evidence():
    names = np.array([f"level {k:02d}" for k in range(50)])
    for seed in range(10):
        rng = np.random.default_rng(seed)
        y = np.r_[np.arange(50), rng.integers(50, size=2950)]
        rank = 0.4 * (y - 25) + 25 + rng.normal(size=len(y)) * (0.2 + 0.1 * seed)
        z = -((np.arange(50) - rank[:, None]) ** 2) / 2
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            rhocal.TemperatureScaling().fit(z, names[y])
        assert not [one for one in caught if "another order" in str(one.message)], seed
