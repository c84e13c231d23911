"""The border: what is accepted, and how it says no."""

import re
import warnings
from dataclasses import replace

import ml_dtypes
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import rhocal
from helpers import examples
from rhocal.data.predictions import SMALLEST_PROB, Predictions
from rhocal.data.spec import InputSpec
from rhocal.errors import InputError, RhocalError, SuspiciousInputWarning

Z = np.array([[1.0, -2.0, 0.5], [0.25, 3.0, -1.0]])


@pytest.mark.parametrize(
    "came",
    [
        Z.tolist(),
        pd.DataFrame(Z),
        torch.tensor(Z),
        torch.tensor(Z, requires_grad=True),
        torch.tensor(Z).to(torch.bfloat16),
        Z.astype(np.float16),
        Z.astype(ml_dtypes.bfloat16),
        np.asfortranarray(Z),
        Z.astype(object),
    ],
)
def test_takes_what_people_have(came):
    data = Predictions.from_arrays(came, [0, 1])
    np.testing.assert_array_equal(data.logits, Z)  # these numbers are exact even in bfloat16
    assert data.logits.dtype in (np.float32, np.float64)


def test_integer_logits_are_converted():
    assert Predictions.from_arrays([[1, 2], [3, 1]], [0, 1]).logits.dtype == np.float64


def test_keeps_float32():
    assert Predictions.from_arrays(Z.astype(np.float32)).logits.dtype == np.float32


@pytest.mark.parametrize(
    "labels", [[1, 0], ["b", "a"], pd.Series(["b", "a"]), torch.tensor([1, 0]), [1.0, 0.0], [True, False]]
)
def test_labels_of_any_sortable_kind(labels):
    assert Predictions.from_arrays(Z[:, :2], labels).labels.tolist() == [1, 0]


def test_classes_give_the_order_of_columns():
    data = Predictions.from_arrays(Z, ["dog", "cat"], spec=InputSpec(classes=["dog", "emu", "cat"]))
    assert data.labels.tolist() == [0, 2]
    assert data.classes.tolist() == ["dog", "emu", "cat"]


def test_numbers_with_named_classes_are_columns():
    data = Predictions.from_arrays(Z, [2, 0], spec=InputSpec(classes=["dog", "emu", "cat"]))
    assert data.labels.tolist() == [2, 0]
    assert data.classes.tolist() == ["dog", "emu", "cat"]


def test_integer_class_names_are_looked_up():
    assert Predictions.from_arrays(Z, [30, 10], spec=InputSpec(classes=[10, 20, 30])).labels.tolist() == [2, 0]


def test_a_class_absent_from_the_labels_is_fine():
    assert Predictions.from_arrays(Z, [0, 0]).n_classes == 3


def test_ignore_index_drops_samples_before_anything_is_checked():
    z = Z.copy()
    z[1] = np.nan
    data = Predictions.from_arrays(z, [2, -100], weights=[1, 2], spec=InputSpec(ignore_index=-100))
    assert (data.n_samples, data.n_ignored, data.labels.tolist(), data.weights.tolist()) == (1, 1, [2], [1.0])


def test_class_axis_of_images():
    z = np.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5)
    data = Predictions.from_arrays(z, np.zeros((2, 4, 5), int), spec=InputSpec(class_axis=1))
    assert data.logits.shape == (40, 3)
    np.testing.assert_array_equal(data.logits[7], z[0, :, 1, 2])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "row", [(0.101, 0.4, 0.5), (0.334, 0.334, 0.333), (0.3, 0.3, 0.399), (0.6, 0.2, 0.199), (0.001, 0.5, 0.5)]
)
def test_three_probabilities_with_three_digits(row, dtype):
    probs = np.array([row], dtype)
    Predictions.from_arrays(probs, spec=InputSpec("probs"))
    Predictions.from_arrays(np.log(probs), spec=InputSpec("log_probs"))
    beyond = np.array([[row[0], row[1], row[2] + np.copysign(5e-6, sum(row) - 1)]], dtype)
    with pytest.raises(InputError, match=r"sum to 1 \(within 0.001\); row 0 sums to (1\.001005|0\.998995)"):
        Predictions.from_arrays(beyond, spec=InputSpec("probs"))


@pytest.mark.parametrize("argument", ["labels", "weights", "groups", "clusters"])
@pytest.mark.parametrize(
    ("scores", "given", "class_axis"),
    [
        ((2, 5, 3), (5, 2), -1),
        ((4, 3, 5), (5, 4), 1),
        ((10, 3), (5, 2), -1),
        ((10,), (5, 2), -1),
        ((2, 5, 3), (10, 1, 1), -1),
    ],
)
def test_values_of_another_layout_than_the_samples(argument, scores, given, class_axis):
    z = np.random.default_rng(0).normal(size=scores)
    values = (np.arange(np.prod(given)) % 2).reshape(given)
    spec = InputSpec(class_axis=class_axis)
    if max(given) == np.prod(given):  # a single axis: the samples one after the other
        Predictions.from_arrays(z, **{argument: values}, spec=spec)
        return
    shapes = rf"has shape {re.escape(str(given))}, but the samples of logits have shape "
    with pytest.raises(InputError, match=shapes):
        Predictions.from_arrays(z, **{argument: values}, spec=spec)
    with pytest.raises(InputError, match=shapes):
        Predictions.from_arrays(torch.tensor(z), **{argument: torch.tensor(values)}, spec=spec)


def test_outputs_of_a_forest_need_transposed_labels():
    probs = np.random.default_rng(0).dirichlet([1.0, 1.0], size=(2, 30))
    y = probs.argmax(-1).T
    with pytest.raises(InputError, match=r"labels has shape \(30, 2\).*\(2, 30\).*transpose labels"):
        rhocal.evaluate(list(probs), y, kind="probs")
    with pytest.raises(InputError, match="transpose labels"):
        rhocal.metrics.accuracy(probs, y)
    with pytest.raises(InputError, match="transpose labels"):
        rhocal.TemperatureScaling().fit(probs, y, kind="probs")
    assert rhocal.metrics.accuracy(list(probs), y.T) == 1


@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_binary_scores(shape):
    score = np.array([-2.0, 0.0, 3.0])
    data = Predictions.from_arrays(score.reshape(shape), [0, 1, 1])
    np.testing.assert_allclose(np.diff(data.logits, axis=1)[:, 0], score)
    probs = Predictions.from_arrays((1 / (1 + np.exp(-score))).reshape(shape), spec=InputSpec("probs"))
    np.testing.assert_allclose(np.diff(probs.logits, axis=1)[:, 0], score, atol=1e-12)
    logp = Predictions.from_arrays(-np.log1p(np.exp(-score)).reshape(shape), spec=InputSpec("log_probs"))
    np.testing.assert_allclose(np.diff(logp.logits, axis=1)[:, 0], score, atol=1e-12)


def test_zero_probabilities_are_raised_and_counted():
    data = Predictions.from_arrays([[0.0, 1.0, 0.0], [0.5, 0.5, 0.0]], spec=InputSpec("probs"))
    assert data.n_clipped == 3
    assert np.isclose(data.logits.min(), np.log(SMALLEST_PROB))
    assert Predictions.from_arrays([[-np.inf, 0.0]], spec=InputSpec("log_probs")).n_clipped == 1


def test_probabilities_stored_in_float16_are_accepted():
    p = np.random.default_rng(0).dirichlet(np.ones(200), 50).astype(np.float16)
    assert np.isfinite(Predictions.from_arrays(p, spec=InputSpec("probs")).logits).all()


def test_probabilities_taken_as_logits_are_used_but_suspected():
    p = np.full((4, 4), 0.25)
    with pytest.warns(SuspiciousInputWarning, match="kind='probs'"):
        data = Predictions.from_arrays(p)
    np.testing.assert_array_equal(data.logits, p)


BAD = {
    "NaN": ({"scores": [[np.nan, 1.0], [0.0, 1.0]], "labels": [0, 1]}, r"finite.*1 entry in 1 row is.*row 0"),
    "inf": ({"scores": [[0.0, 1.0], [np.inf, 1.0]], "labels": [0, 1]}, r"inf in row 1"),
    "lengths": ({"scores": Z, "labels": [0]}, "labels and logits differ in length: 1 label, 2 samples"),
    "label range": ({"scores": Z, "labels": [0, 3]}, "from 0 to 2.*the first is 3 at row 1"),
    "label -100": ({"scores": Z, "labels": [0, -100]}, "ignore_index=-100"),
    "label unseen": ({"scores": Z, "labels": ["a", "x"], "classes": ["a", "b", "c"]}, "not in classes, such as 'x'"),
    "too few names": ({"scores": Z, "labels": ["a", "b"]}, "2 different values, but there are 3 columns"),
    "label half": ({"scores": Z, "labels": [0.5, 1.0]}, "0.5"),
    "label missing": ({"scores": Z, "labels": [None, "a"], "classes": ["a", "b", "c"]}, "missing values"),
    "mixed labels": ({"scores": Z, "labels": np.array([1, "a"], object), "classes": ["a", "b", "c"]}, "sortable"),
    "one class": ({"scores": np.zeros((3, 4, 1)), "labels": np.zeros((3, 4))}, "has 1 classes"),
    "empty": ({"scores": np.zeros((0, 3)), "labels": []}, "no samples"),
    "all ignored": ({"scores": Z, "labels": [-1, -1], "ignore_index": -1}, "every one of the 2 labels"),
    "a number": ({"scores": 3.0, "labels": [0]}, "single number"),
    "class axis": ({"scores": Z, "labels": [0, 1], "class_axis": 2}, "class_axis=2 does not exist"),
    "ragged": ({"scores": [[1.0, 2.0], [1.0]], "labels": [0, 1]}, "rectangular|not numbers"),
    "texts": ({"scores": [["a", "b"]], "labels": [0]}, "real numbers"),
    "complex": ({"scores": Z.astype(complex), "labels": [0, 1]}, "real numbers"),
    "negative weight": ({"scores": Z, "labels": [0, 1], "weights": [1, -1]}, "the first is -1 at row 1"),
    "zero weights": ({"scores": Z, "labels": [0, 1], "weights": [0, 0]}, "zero for every sample"),
    "text weights": (
        {"scores": Z, "labels": [0, 1], "weights": ["1", "b"]},
        "must hold numbers.*the first is in row 1: 'b'",
    ),
    "empty weight": (
        {"scores": Z, "labels": [0, 1], "weights": ["", "1"]},
        "must hold numbers.*the first is in row 0: ''",
    ),
    "weight length": ({"scores": Z, "labels": [0, 1], "weights": [1]}, "sample_weight and logits differ"),
    "kind": ({"scores": Z, "labels": [0, 1], "kind": "logit"}, "kind is one of logits, probs, log_probs"),
    "logits as probs": ({"scores": Z, "labels": [0, 1], "kind": "probs"}, "Pass kind='logits' to"),
    "sums": ({"scores": [[0.5, 0.6]], "labels": [0], "kind": "probs"}, "sums to 1.1"),
    "classes twice": ({"scores": Z, "labels": [0, 1], "classes": ["a", "a", "b"]}, "'a' stands there 2 times"),
    "classes length": ({"scores": Z, "labels": [0, 1], "classes": ["a", "b"]}, "name the 3 columns"),
}


@pytest.mark.parametrize("case", BAD)
def test_says_which_argument_what_came_and_what_to_do(case):
    arguments, message = BAD[case]
    arrays = {name: value for name, value in arguments.items() if name in {"scores", "labels", "weights"}}
    stated = {name: value for name, value in arguments.items() if name not in arrays}
    with pytest.raises(InputError, match=message):
        Predictions.from_arrays(**arrays, spec=InputSpec(**stated))


anything = st.one_of(
    st.none(),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.one_of(st.floats(), st.integers(-200, 200), st.text(max_size=2), st.none()), max_size=4),
    hnp.arrays(
        st.sampled_from([np.float16, np.float32, np.float64, np.int64, np.bool_, "U2", object]),
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
    ),
)


@given(
    anything,
    anything,
    anything,
    st.sampled_from(["logits", "probs", "log_probs", "?"]),
    st.integers(-3, 3),
    st.sampled_from([None, -100, 0]),
)
@examples(400)
def test_anything_at_all_is_either_taken_or_a_named_error(values, labels, weight, kind, axis, ignore):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            data = Predictions.from_arrays(
                values, labels, weights=weight, spec=InputSpec(kind, class_axis=axis, ignore_index=ignore)
            )
        except RhocalError as error:
            assert str(error)  # noqa: PT017
        else:
            assert np.isfinite(data.logits).all()
            assert data.n_samples >= 1
            assert data.n_classes >= 2


def test_what_the_border_saw_belongs_to_the_scores():
    data = Predictions.from_arrays(np.array([[1.0, 3.0, 2.0], [5.0, 4.0, 0.0]]), [1, 0])
    assert data.seen.column.tolist() == [1, 0]
    assert data.take(np.array([1])).seen.top.tolist() == [5.0]
    assert replace(data, scores=-data.scores).seen.column.tolist() == [0, 2]


def test_small_scores_are_put_in_rows_and_large_ones_left(monkeypatch):
    by_columns = np.asfortranarray(np.arange(12.0).reshape(4, 3) - 5)
    assert Predictions.from_arrays(by_columns).scores.flags.c_contiguous
    monkeypatch.setattr("rhocal.data.scores.MAX_REORDERED_ENTRIES", 11)
    assert np.shares_memory(Predictions.from_arrays(by_columns).scores, by_columns)


@pytest.mark.filterwarnings("ignore::rhocal.errors.FewSamplesWarning")
def test_half_precision_stays_as_stored_and_gives_the_same_fit():
    from rhocal.data.predictions import Predictions
    from rhocal.numerics import special
    from rhocal.profile.passes import ArrayPasses, HalfPasses
    from rhocal.profile.profile import array_passes

    rng = np.random.default_rng(0)
    half = (3 * rng.normal(size=(500, 90))).astype(np.float16)
    labels = rng.integers(0, 90, 500)
    data = Predictions.from_arrays(half, labels)
    assert data.scores.dtype == np.float16
    assert np.shares_memory(data.scores, half)
    wide = half.astype(np.float32)
    for mine, theirs in zip(special.scan(half), special.scan(wide), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    short, single = array_passes(half), array_passes(wide)
    assert isinstance(short, HalfPasses)
    assert isinstance(single, ArrayPasses)
    top, scale = wide.max(axis=1).astype(float), rng.uniform(0.5, 2, 500)
    rows = rng.permutation(500)[:77]
    for name, arguments in {
        "means": (), "largest": (5,), "curve": (top, scale, 3), "moments_at": (top, scale),
        "moments": (top, np.array([3, 4, 6, 9, 12.0]) / 6),
    }.items():  # fmt: skip
        np.testing.assert_array_equal(getattr(short, name)(*arguments), getattr(single, name)(*arguments), err_msg=name)
    for center in (False, True):
        np.testing.assert_array_equal(short.norms([1.0, 2.0], center=center), single.norms([1.0, 2.0], center=center))
        np.testing.assert_array_equal(short.norm_slope(1.7, center=center), single.norm_slope(1.7, center=center))
        kept = short.take(rows).norms([1.5], center=center)
        np.testing.assert_array_equal(kept, single.take(rows).norms([1.5], center=center))
    for method in ("rho-norm", "field", "vector"):
        cal, same = (rhocal.calibrator(method).fit(logits, labels) for logits in (half, wide))
        np.testing.assert_array_equal(cal.predict_proba(half), same.predict_proba(wide))
