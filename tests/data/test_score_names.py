"""A single column of scores that is named after a class belongs to that class, wherever it comes from."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

import rhocal
from rhocal.data.labels.per_sample import positive_column
from rhocal.data.predictions import Predictions
from rhocal.data.score_names import named_class, score_name
from rhocal.data.spec import InputSpec
from rhocal.errors import InputError

FRAUD = ["fraud", "legit"]

rng = np.random.default_rng(3)
scores = rng.normal(size=600)
p = 1 / (1 + np.exp(0.5 - 2 * scores))
labels = np.where(rng.random(600) < p, "fraud", "legit")


@pytest.mark.parametrize(
    ("name", "classes", "expected"),
    [
        ("fraud", FRAUD, 0),
        ("p_fraud", FRAUD, 0),
        ("Prob Fraud", FRAUD, 0),
        ("P(fraud)", FRAUD, 0),
        ("model.a.fraud", FRAUD, 0),
        ("fraud_score", FRAUD, 0),
        ("p_legit", FRAUD, 1),
        ("p_not_fraud", ["fraud", "not fraud"], 1),
        ("p_fraud", ["fraud", "not fraud"], 0),
        ("score_1", [0, 1], 1),
        ("-1", [-1, 1], 0),
        ("p_7", [7, 9], 0),
        ("p7", [7, 9], 0),
        ("Proba1", [0, 1], 1),
    ],
)
def test_a_name_states_a_class(name: str, classes: list[str], expected: int) -> None:
    assert named_class(name, classes) == (expected, False)


@pytest.mark.parametrize(
    ("name", "classes"),
    [
        ("not_fraud", FRAUD),
        ("fraud_vs_legit", FRAUD),
        ("fraud_watchlist", FRAUD),
        ("score_0", [0, 1]),
        ("score_1", [1, 2]),
        *((name, [0, 1]) for name in ("p0", "prob0", "proba0", "class0", "score0", "logit0", "P0", "y0", "model_p0")),
        ("p0", ["0", "1"]),
        ("p1", [1, 2]),
    ],
)
def test_a_name_that_leaves_the_class_open_is_refused(name: str, classes: list[str]) -> None:
    values = np.repeat(np.asarray(classes), 2)
    with pytest.raises(InputError, match="unclear whether the column of scores"):
        Predictions.from_arrays(pd.Series([0.1, 2, 3, 4], name=name), values, spec=InputSpec(classes=np.array(classes)))
    spec = InputSpec(classes=np.array(classes), positive=classes[0])
    data = Predictions.from_arrays(pd.Series([0.1, 2, 3, 4], name=name), values, spec=spec)
    assert data.classes[1] == classes[0]


@pytest.mark.parametrize(
    ("name", "classes"),
    [
        ("score", FRAUD),
        ("0", [0, 1]),
        ("model_1_score", [0, 1]),
        ("model1_score", [0, 1]),
        ("area0", [0, 1]),
        ("p0", FRAUD),
        ("defraud", FRAUD),
    ],
)
def test_other_names_state_nothing(name: str, classes: list[str]) -> None:
    assert named_class(name, classes) == (None, False)


def test_what_has_a_name() -> None:
    assert score_name(pd.Series(p, name="fraud")) == score_name(pd.DataFrame({"fraud": p})) == "fraud"
    assert score_name(pl.Series("fraud", p)) == score_name(pl.DataFrame({"fraud": p})) == "fraud"
    assert score_name(pd.Series(p)) is score_name(pd.DataFrame(p)) is score_name(p) is None


@pytest.mark.parametrize(
    "named",
    [
        pd.Series(p, name="fraud"),
        pd.DataFrame({"p_fraud": p}),
        pl.Series("fraud", p),
        pl.DataFrame({"fraud": p}),
        pd.Series(1 - p, name="legit"),
    ],
)
def test_every_verb_matches_the_column_by_name(named: object) -> None:
    expected = rhocal.evaluate(p, labels, positive="fraud")
    found = rhocal.evaluate(named, labels)
    assert found.accuracy == expected.accuracy > 0.7
    cal = rhocal.TemperatureScaling().fit(named, labels, kind="probs")
    want = rhocal.TemperatureScaling().fit(p, labels, kind="probs", positive="fraud")
    assert cal.temperature_ == pytest.approx(want.temperature_)
    column = cal.classes_.tolist().index("fraud")
    probs = want.predict_proba(p)[:, want.classes_.tolist().index("fraud")]
    assert cal.predict_proba(named)[:, column] == pytest.approx(probs)
    assert (cal.predict(named) == want.predict(p)).all()
    of_two = rhocal.TemperatureScaling().fit(np.c_[p, 1 - p], labels, kind="probs")  # fitted on two columns
    assert of_two.predict_proba(named)[:, 0] == pytest.approx(probs)


def test_the_line_of_the_positive_class_says_why() -> None:
    found = rhocal.evaluate(pd.Series(p, name="p_fraud"), labels)
    assert "positive class: fraud (by the name of column p_fraud), " in found.positive_line


def test_a_column_named_after_the_other_class_is_refused() -> None:
    named = pd.Series(p, name="fraud")
    with pytest.raises(InputError, match="'fraud' is named after class fraud, but the positive class is legit"):
        rhocal.evaluate(named, labels, positive="legit")
    assert rhocal.evaluate(named, labels, positive="fraud").accuracy > 0.7
    cal = rhocal.TemperatureScaling().fit(named, labels, kind="probs")
    with pytest.raises(InputError, match="named after class legit, but the positive class is fraud"):
        cal.predict_proba(pd.Series(p, name="legit"))


@pytest.mark.usefixtures("few_rows")
def test_blocks_are_matched_by_name() -> None:
    parts = [slice(0, 300), slice(300, 600)]
    want = rhocal.TemperatureScaling().fit(p, labels, kind="probs", positive="fraud")
    for blocks in (
        [(pd.Series(p[rows], name="fraud"), labels[rows]) for rows in parts],
        ((pd.Series(p[rows], name="fraud"), labels[rows]) for rows in parts),
    ):
        cal = rhocal.TemperatureScaling().fit(rhocal.stream(blocks), kind="probs")
        assert cal.positive_ == "fraud"
        assert cal.temperature_ == pytest.approx(want.temperature_, rel=1e-3)
    mixed = [(pd.Series(p[:300], name="fraud"), labels[:300]), (pd.Series(1 - p[300:], name="legit"), labels[300:])]
    with pytest.raises(InputError, match="blocks differ"):
        rhocal.TemperatureScaling().fit(rhocal.stream(mixed), kind="probs")


@pytest.mark.parametrize(
    ("positive", "classes", "expected"),
    [(1, ["1", "2"], 0), (2, ["1", "2"], 1), ("1", [1, 2], 0), (1, ["a", "b"], 1), (1, ["1", "0"], 0), (0, [1, 2], 0)],
)
def test_a_number_names_a_class_before_a_column(positive: object, classes: list[object], expected: int) -> None:
    assert positive_column(positive, np.array(classes)) == expected
