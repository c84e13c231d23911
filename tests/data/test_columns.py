"""Columns of tables belong to classes by name."""

import numpy as np
import pandas as pd
import pytest

import rhocal
from helpers import synthetic
from rhocal import metrics
from rhocal.calibrators.fit_spec import spec_of_fit
from rhocal.data.columns import match_columns, own_numbers, spellings
from rhocal.data.predictions import Predictions
from rhocal.data.spec import InputSpec
from rhocal.errors import InputError, SuspiciousInputWarning

NAMES = np.array(["zebra", "cat", "dog"])
Z, Y = synthetic(300, 3)
FRAME = pd.DataFrame(Z, columns=NAMES)
LABELS = NAMES[Y]


def probs(logits):
    return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


@pytest.mark.parametrize("prefix", ["", "logit_", "p."])
def test_labels_are_looked_up_among_the_names_of_columns(prefix):
    data = Predictions.from_arrays(FRAME.add_prefix(prefix), LABELS)
    np.testing.assert_array_equal(data.labels, Y)
    assert data.classes.tolist() == NAMES.tolist()


def test_classes_put_the_columns_in_order():
    spec = InputSpec(classes=np.sort(NAMES))
    data = Predictions.from_arrays(FRAME, LABELS, spec=spec)
    np.testing.assert_array_equal(data.scores, FRAME[sorted(NAMES)])
    np.testing.assert_array_equal(data.classes[data.labels], LABELS)


def test_metrics_and_evaluate_match_names():
    table = pd.DataFrame(probs(Z), columns=NAMES)
    expected = float((Z.argmax(axis=1) == Y).mean())
    assert metrics.accuracy(table, LABELS) == pytest.approx(expected)
    assert metrics.accuracy(probs(Z), LABELS, classes=NAMES) == pytest.approx(expected)
    assert metrics.ece(table, LABELS) == pytest.approx(metrics.ece(probs(Z), Y))
    assert metrics.ece(probs(Z), LABELS, classes=NAMES) == pytest.approx(metrics.ece(probs(Z), Y))
    assert rhocal.evaluate(table, LABELS)["accuracy"].value == pytest.approx(expected)
    assert rhocal.evaluate(probs(Z), LABELS, classes=NAMES)["accuracy"].value == pytest.approx(expected)


@pytest.mark.parametrize("labels", [LABELS, Y], ids=["names", "numbers"])
def test_predict_proba_puts_columns_in_order_or_refuses(labels):
    calibrator = rhocal.calibrator("vector").fit(FRAME, labels)
    expected = calibrator.predict_proba(FRAME)
    np.testing.assert_allclose(expected, calibrator.predict_proba(Z))
    np.testing.assert_array_equal(calibrator.predict_proba(FRAME[["dog", "zebra", "cat"]]), expected)
    with pytest.raises(InputError, match=r"columns cow, cat, dog, but the calibrator was fitted with cat, dog, zebra"):
        calibrator.predict_proba(FRAME.rename(columns={"zebra": "cow"}))


def test_names_that_do_not_match_are_refused():
    with pytest.raises(InputError, match=r"labels zebra have no column of that name; .* cow, cat, dog. Pass classes="):
        rhocal.evaluate(FRAME.rename(columns={"zebra": "cow"}), LABELS, kind="logits")
    with pytest.raises(InputError, match="only cat, dog are in both"):
        Predictions.from_arrays(FRAME.rename(columns={"zebra": "cow"}), LABELS, spec=InputSpec(classes=NAMES))
    other = FRAME.set_axis(["a", "b", "c"], axis=1)
    data = Predictions.from_arrays(other, LABELS, spec=InputSpec(classes=NAMES))
    np.testing.assert_array_equal(data.labels, Y)


def test_numbered_columns_go_by_number():
    wide, labels = synthetic(200, 12)
    names = [f"logit_{k}" for k in range(12)]
    shuffled = pd.DataFrame(wide, columns=names)[sorted(names)]  # logit_1, logit_10, logit_11, logit_2
    np.testing.assert_array_equal(Predictions.from_arrays(shuffled, labels).scores, wide)
    from_one = pd.DataFrame(wide, columns=[f"c{k}" for k in range(1, 13)])
    data = Predictions.from_arrays(from_one, labels + 1)
    np.testing.assert_array_equal(data.labels, labels)
    assert data.classes.tolist() == list(range(1, 13))
    with pytest.raises(InputError, match="count from 1, but labels hold 0, 1"):
        Predictions.from_arrays(from_one, labels)


def test_labels_that_count_from_1_get_a_hint():
    with pytest.raises(InputError, match=r"They seem to count from 1: subtract 1.* Pass classes="):
        Predictions.from_arrays(Z, Y + 1)
    data = Predictions.from_arrays(Z, Y + 1, spec=InputSpec(classes=[1, 2, 3]))
    np.testing.assert_array_equal(data.labels, Y)


def test_names_must_differ():
    with pytest.raises(InputError, match="'a' stands there more than once"):
        match_columns(["a", "a", "b"], None, np.array(["a", "b"]))


def test_spellings():
    assert own_numbers(["logit_10", "logit_11"]) == ["10", "11"]
    assert own_numbers(["V1", "V2"]) == ["1", "2"]
    assert own_numbers(["p_-1", "p_0", "p_01"]) == ["-1", "0", "1"]
    assert spellings(["cat", "car"]) == [["cat", "car"]] * 3
    assert spellings(["x(red cat)", "x(blue cat)"])[1:] == [["red cat)", "blue cat)"], ["red", "blue"]]
    assert ["red cat", "blue cat"] in spellings(["p_red cat", "p_blue cat"])
    assert spellings(["aa", "aaa"]) == [["aa", "aaa"]] * 3


def test_labels_that_may_count_from_0_or_1_are_warned_of():
    probs = pd.DataFrame(np.random.default_rng(0).dirichlet(np.ones(3), 40))
    middle, all_but_first = np.arange(40) % 2 + 1, np.arange(40) % 2 + 2
    numbered = probs.set_axis(["p1", "p2", "p3"], axis=1)[["p3", "p1", "p2"]]
    with pytest.warns(
        SuspiciousInputWarning, match=r"count from 1, and labels, which show neither 0 nor 3.* Pass classes="
    ):
        one = metrics.accuracy(numbered, middle)
    assert one == metrics.accuracy(
        numbered, middle, classes=[1, 2, 3]
    )  # stated: no warning, which is an error in tests
    assert metrics.accuracy(numbered, middle, classes=[0, 1, 2]) == metrics.accuracy(probs.to_numpy(), middle) != one
    metrics.accuracy(numbered, all_but_first)
    metrics.accuracy(probs.set_axis(["1", "2", "3"], axis=1), middle)  # as `columns=model.classes_` names them
    metrics.accuracy(probs.set_axis(["p0", "p1", "p2"], axis=1), middle)
    with pytest.raises(InputError, match="only 1, 2 are in both"):
        metrics.accuracy(probs.set_axis(["1", "2", "3"], axis=1), middle, classes=[0, 1, 2])


AROUND = [
    "P(y={})",
    "p({})",
    "{}_score",
    "prob[{}]",
    "p{}%",
    "('proba', {})",
    "Class {} probability",
    "model_p{}",
    "0{}",
    "{}.0",
]
"""What may stand around a number."""


@pytest.mark.parametrize("form", AROUND)
@pytest.mark.parametrize("start", [0, 1, 5])
def test_numbers_within_names_are_matched(form, start):
    wide, labels = synthetic(200, 12)
    names = [form.format(k) for k in range(start, start + 12)]
    shuffled = pd.DataFrame(wide, columns=names)[sorted(names)]
    expected = metrics.accuracy(wide, labels, kind="logits")
    assert metrics.accuracy(shuffled, labels + start, kind="logits") == expected
    fitted = rhocal.TemperatureScaling().fit(shuffled, labels + start)
    np.testing.assert_array_equal(fitted.predict(shuffled), wide.argmax(1) + start)


@pytest.mark.parametrize("form", ["p({})", "{}_score", "P[{}]", "prob {} (raw)"])
def test_texts_within_names_are_matched(form):
    frame = FRAME.rename(columns=form.format)
    expected = metrics.accuracy(FRAME, LABELS, kind="logits")
    assert metrics.accuracy(frame[frame.columns[::-1]], LABELS, kind="logits") == expected
    fitted = rhocal.TemperatureScaling().fit(FRAME, LABELS)
    np.testing.assert_array_equal(fitted.predict(frame), fitted.predict(FRAME))


@pytest.mark.parametrize("names", [[True, False], ["True", "False"], ["p_true", "p_false"]])
def test_columns_of_truth_values_are_matched_by_name(names):
    """``pd.DataFrame(probs, columns=model.classes_)`` of a model of booleans, with its columns in either order."""
    z, y = synthetic(300, 2)
    frame, labels = pd.DataFrame(z[:, ::-1], columns=names), y.astype(bool)
    other = frame.iloc[:, ::-1]
    expected = metrics.nll(z, y, kind="logits")
    assert metrics.nll(frame, labels, kind="logits") == pytest.approx(expected)
    assert metrics.nll(other, labels, kind="logits") == pytest.approx(expected)
    for fitted_on in (frame, other):
        fitted = rhocal.TemperatureScaling().fit(fitted_on, labels)
        assert fitted.classes_.dtype == bool
        np.testing.assert_array_equal(fitted.predict(frame), z[:, 1] > z[:, 0])
        np.testing.assert_array_equal(fitted.predict(other), z[:, 1] > z[:, 0])


def test_truth_values_in_the_wrong_place_are_no_classes_0_and_1():
    z, y = synthetic(300, 2)
    assert metrics.accuracy(pd.DataFrame(z, columns=[False, True]), y, kind="logits") == metrics.accuracy(
        z, y, kind="logits"
    )
    with pytest.raises(InputError, match="columns True, False are truth values, but labels hold 0, 1"):
        metrics.accuracy(pd.DataFrame(z, columns=[True, False]), y, kind="logits")


@pytest.mark.parametrize("names", [[True, False], ["True", "False"], ["p_true", "p_false"]])
def test_truth_values_are_not_read_by_position_after_a_fit_on_arrays(names):
    z, y = synthetic(300, 2)
    for labels in (y, y.astype(bool)):
        fitted = rhocal.TemperatureScaling().fit(z, labels)
        np.testing.assert_array_equal(
            fitted.predict_proba(pd.DataFrame(z, columns=names[::-1])), fitted.predict_proba(z)
        )
        with pytest.raises(InputError, match="are truth values, but the classes are 0 and 1; put the column of False"):
            fitted.predict_proba(pd.DataFrame(z[:, ::-1], columns=names))


DESCENDING = ["{}0C", "t_{}0", "P(>{}0)", "class_{}", "P(y={})", "{}.5x"]
"""Numbered columns that share nothing with classes that are texts."""


@pytest.mark.parametrize("form", DESCENDING)
def test_stated_classes_are_not_sorted_by_the_numbers_of_columns(form):
    frame = pd.DataFrame(Z, columns=[form.format(k) for k in (3, 2, 1)])
    ascending = frame.set_axis(frame.columns[::-1], axis=1)
    for run in (rhocal.calibrator("svs").fit, metrics.accuracy, rhocal.evaluate):
        with pytest.raises(InputError, match=r"unclear which column .* put the columns in ascending order"):
            run(frame, LABELS, classes=NAMES, kind="logits")
    expected = metrics.accuracy(Z, Y, kind="logits")
    assert metrics.accuracy(ascending, LABELS, classes=NAMES, kind="logits") == expected
    assert metrics.accuracy(frame[frame.columns[::-1]], LABELS, classes=NAMES[::-1], kind="logits") == expected


@pytest.mark.parametrize("form", ["{}0C", "P(>{}0)", "{}h_p"])
def test_the_order_of_a_fit_comes_before_numbers(form):
    """Calibrators that were fitted by position on columns whose numbers do not ascend."""
    calibrator = rhocal.calibrator("svs").fit(Z, LABELS, classes=NAMES)
    expected = calibrator.predict_proba(Z)
    columns = [form.format(k) for k in (3, 1, 2)]
    calibrator.columns_ = tuple(columns)
    frame = pd.DataFrame(Z, columns=columns)
    for one in (frame, frame[frame.columns[::-1]], frame[sorted(columns)]):
        np.testing.assert_array_equal(calibrator.predict_proba(one), expected)
        data = Predictions.from_arrays(one, LABELS, spec=spec_of_fit(calibrator))
        np.testing.assert_array_equal(data.scores, Z)


def test_counted_columns_in_the_order_of_texts_are_fitted_and_applied_by_number():
    wide, labels = synthetic(300, 12)
    for start in (0, 1):
        names = [f"p_{k}" for k in range(start, start + 12)]
        shuffled = pd.DataFrame(wide, columns=names)[sorted(names)]
        expected = rhocal.calibrator("svs").fit(wide, labels).predict_proba(wide)
        for spec in ({"classes": np.arange(12)}, *([{}] if start == 0 else [])):
            fitted = rhocal.calibrator("svs").fit(shuffled, labels, **spec)
            np.testing.assert_allclose(fitted.predict_proba(shuffled), expected)
            np.testing.assert_allclose(fitted.predict_proba(shuffled[names]), expected)


def test_numbers_that_neither_count_nor_ascend_are_unclear_beside_other_labels():
    frame = pd.DataFrame(Z, columns=["30C", "10C", "20C"])
    with pytest.raises(InputError, match="unclear which column belongs to which of the labels"):
        metrics.accuracy(frame, Y, kind="logits")
    assert metrics.accuracy(frame, 10 * np.array([3, 1, 2])[Y], kind="logits") == metrics.accuracy(Z, Y, kind="logits")


@pytest.mark.parametrize(
    ("columns", "classes"),
    [
        (["type1_diabetes", "type2_diabetes"], [-1, 1]),
        (["type1_diabetes", "type2_diabetes"], [0, 1]),
        (["P(y=0)", "P(y=1)"], [1, 2]),
    ],
)
def test_stated_numbers_may_differ_from_those_within_names(columns, classes):
    z, y = synthetic(300, 2)
    frame, labels = pd.DataFrame(z, columns=columns), np.array(classes)[y]
    assert metrics.accuracy(frame, labels, classes=classes, kind="logits") == metrics.accuracy(z, y, kind="logits")
    fitted = rhocal.TemperatureScaling().fit(frame, labels, classes=classes)
    np.testing.assert_array_equal(fitted.predict(frame), np.array(classes)[z.argmax(1)])
    with pytest.raises(InputError, match="only 1 are in both"):
        metrics.accuracy(frame, labels, classes=[1, -1] if columns[0] != "P(y=0)" else [2, 1], kind="logits")


def test_columns_that_are_numbers_are_not_said_to_be_other_classes():
    with pytest.raises(InputError, match=r"count from 1, but labels hold 0, 1, 2; rename the columns .* array$"):
        metrics.accuracy(pd.DataFrame(Z, columns=["1", "2", "3"]), Y, kind="logits")
