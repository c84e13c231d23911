"""Laws that every calibrator of the table must keep."""

import copy
import gc
import pickle
import warnings
import weakref
from functools import cache

import numpy as np
import pytest
import sklearn.base
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import rhocal
from helpers import QUICK, examples, fit_map, quick, synthetic
from rhocal.calibrators import CALIBRATORS
from rhocal.errors import BoundaryWarning, InputError, NotFittedError, RhocalError, RhocalWarning

DRAWS = {"rho-norm-paper"}
PUBLIC = {name: getattr(rhocal, name) for name in rhocal.__all__}
FREE_BELOW_THE_TOP = {"cascade-top"}
KEEPS_DECISION = [name for name in CALIBRATORS if rhocal.calibrator(name).keeps_decision]


def fitted(name, logits, labels, weight=None, **said):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhocalWarning)
        return quick(name).fit(logits, labels, weight, **said)


def fitted_map(name, *data, **said):
    """The same map: laws of maps need no comparison with temperature scaling."""
    return fit_map(quick(name), *data, **said)


DATA = synthetic(300, 4, seed=3)


@pytest.fixture
def data():
    return DATA


@cache
def reference(name):
    """A method fitted on ``DATA``, which many laws only read."""
    return fitted(name, *DATA)


every = pytest.mark.parametrize("name", CALIBRATORS)


@every
def test_a_fit_lets_go_of_the_logits(name):
    """At once, not when the garbage is collected: they may be most of the memory there is."""
    logits, labels = synthetic(300, 20, seed=3)
    gc.collect()
    gc.disable()
    try:
        cal = fitted(name, logits, labels)
        there = weakref.ref(logits)
        del logits
        assert there() is None
    finally:
        gc.enable()
    assert cal.solution_ is not None


@every
def test_order_of_samples(name, data):
    if name in DRAWS:
        pytest.skip("draws samples by their position: the order changes the draws, as a seed does")
    logits, labels = data
    order = np.random.default_rng(0).permutation(len(labels))
    a, b = reference(name), fitted_map(name, logits[order], labels[order])
    np.testing.assert_allclose(a.predict_proba(logits), b.predict_proba(logits), atol=2e-6)


@every
def test_renaming_of_classes(name, data):
    logits, labels = data
    order = np.array([2, 0, 3, 1])
    a, b = reference(name), fitted_map(name, logits[:, order], np.argsort(order)[labels])
    np.testing.assert_allclose(a.predict_proba(logits)[:, order], b.predict_proba(logits[:, order]), atol=2e-6)


@every
def test_weights_are_repetition(name, data):
    logits, labels = data
    times = np.random.default_rng(1).integers(0, 4, len(labels))
    a = fitted_map(name, logits, labels, times)
    b = fitted_map(name, np.repeat(logits, times, axis=0), np.repeat(labels, times))
    np.testing.assert_allclose(a.predict_proba(logits), b.predict_proba(logits), atol=2e-6)


@every
def test_batch_cuts(name, data):
    logits, _ = data
    cal = reference(name)
    for whole in (cal.predict_proba, cal.transform, cal.predict):
        cut = np.concatenate([whole(part) for part in np.array_split(logits, 7)])
        np.testing.assert_array_equal(cut, whole(logits))


@every
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_probabilities(name, dtype, data):
    logits, _ = data
    probs = reference(name).predict_proba(logits.astype(dtype))
    assert probs.dtype == dtype
    assert (probs >= 0).all()
    np.testing.assert_allclose(probs.sum(1), 1, atol=1e-6)


@every
def test_transform_and_predict_proba_agree(name, data):
    logits, _ = data
    cal = reference(name)
    z = cal.transform(logits)
    p = np.exp(z - z.max(1, keepdims=True))
    np.testing.assert_allclose(cal.predict_proba(logits), p / p.sum(1, keepdims=True), atol=1e-12)


@every
def test_a_shift_of_all_logits_of_a_sample_is_invisible(name, data):
    if name in {"rho-norm-paper", "vector", "matrix"}:
        pytest.skip("the paper's norm and a scale for each class see the mean of a row")
    if name == "auto":
        pytest.skip("may choose vector, which sees it")
    logits, labels = data
    shift = np.random.default_rng(0).normal(size=(len(logits), 1)) * 30
    a, b = reference(name), fitted_map(name, logits + shift, labels)
    np.testing.assert_allclose(a.predict_proba(logits), b.predict_proba(logits + shift), atol=2e-6)


def skewed(logits, labels):
    """The same samples with biases of classes, so that a map of classes may change the decision."""
    return logits + np.array([0.0, 2.0, -2.0, 4.0]), labels


@every
def test_a_second_fit_replaces_the_first(name, data):
    """It is the fit of a calibrator that is new: nothing of the first remains, whichever of them keeps the decision."""
    first, other = reference(name), skewed(*data)
    fresh = fitted_map(name, *other)
    again = fit_map(copy.copy(first), *other)
    back = fit_map(copy.copy(fresh), *data)
    for cal, expected in ((again, fresh), (back, first)):
        np.testing.assert_array_equal(cal.predict_proba(data[0]), expected.predict_proba(data[0]))
        assert cal.map_.keeps_decision == expected.map_.keeps_decision
        assert vars(cal).keys() == vars(expected).keys()


def test_a_fit_keeps_attributes_of_the_caller(data):
    class Counting(rhocal.TemperatureScaling):
        def fit(self, logits, labels, **spec):
            self.n_seen_ = len(logits)
            return super().fit(logits, labels, **spec)

    cal = Counting().fit(*data)
    cal.tag_ = "first"
    cal.fit(*skewed(*data))
    assert (cal.n_seen_, cal.tag_) == (len(data[0]), "first")


@every
def test_a_failed_fit_leaves_the_earlier_one(name, data, monkeypatch):
    cal = copy.copy(reference(name))
    before = vars(cal).copy()

    def fail(*_):
        raise InputError("too late")

    for method in ("_fit", "_fit_map_alone"):
        monkeypatch.setattr(type(cal), method, fail)
    with pytest.raises(InputError, match="too late"):
        cal.fit(*skewed(*data))
    assert vars(cal).keys() == before.keys()
    assert all(vars(cal)[key] is value for key, value in before.items())


@every
def test_the_tune_set_is_not_changed(name, data):
    logits, labels = (array.copy() for array in data)
    cal = fitted(name, logits, labels)
    cal.predict_proba(logits)
    cal.transform(logits)
    np.testing.assert_array_equal(logits, data[0])
    np.testing.assert_array_equal(labels, data[1])


@every
def test_a_class_absent_from_tuning(name, data):
    logits, labels = data
    kept = labels != 2
    cal = fitted(name, logits[kept], labels[kept])
    assert np.isfinite(np.log(cal.predict_proba(logits))).all()


@every
@pytest.mark.parametrize("m", [2, 70])  # 64 classes are the limit of several algorithms
def test_two_classes_and_many(name, m):
    logits, labels = synthetic(200, m, seed=1)
    probs = fitted(name, logits.astype(np.float32), labels).predict_proba(logits)
    assert probs.shape == (200, m)
    assert np.isfinite(probs).all()


@every
def test_binary_scores_need_no_second_column(name):
    logits, labels = synthetic(200, 2)
    score = logits[:, 1] - logits[:, 0]
    cal = fitted(name, score, labels)
    assert cal.predict_proba(score).shape == (200, 2)
    np.testing.assert_array_equal(cal.predict_proba(score[:, None]), cal.predict_proba(score))


@every
def test_names_of_classes_come_back(name, data):
    logits, labels = data
    names = np.array(["fox", "ant", "cow", "bee"])
    cal = fitted_map(name, logits, names[labels], classes=names)
    numbers = reference(name)
    np.testing.assert_array_equal(cal.predict(logits), names[numbers.predict(logits)])
    np.testing.assert_array_equal(cal.predict_proba(logits), numbers.predict_proba(logits))


@every
def test_images_keep_their_shape(name):
    logits, labels = synthetic(240, 3)
    images, marks = logits.reshape(2, 10, 12, 3).transpose(0, 3, 1, 2), labels.reshape(2, 10, 12).copy()
    marks[0, 0, :5] = -100
    cal = fitted(name, images, marks, class_axis=1, ignore_index=-100)
    probs = cal.predict_proba(images, class_axis=1)
    assert probs.shape == images.shape
    np.testing.assert_allclose(probs.sum(1), 1)
    assert cal.predict(images, class_axis=1).shape == marks.shape
    flat = fitted_map(name, logits[5:], labels[5:])
    np.testing.assert_allclose(probs.transpose(0, 2, 3, 1).reshape(-1, 3), flat.predict_proba(logits), atol=1e-9)


@every
def test_kind_said_in_the_fit_is_remembered(name, data):
    logits, labels = data
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    a = fitted_map(name, p, labels, kind="probs")
    b = fitted_map(name, np.log(p), labels, kind="log_probs")
    np.testing.assert_allclose(a.predict_proba(p), b.predict_proba(np.log(p)), atol=1e-9)


@every
def test_torch_tensors(name, data):
    logits, labels = data
    cal = fitted_map(name, torch.tensor(logits), torch.tensor(labels))
    np.testing.assert_array_equal(cal.predict_proba(torch.tensor(logits)), reference(name).predict_proba(logits))


@every
def test_speaks_scikit_learn(name, data):
    logits, _ = data
    cal = quick(name)
    copy = sklearn.base.clone(cal)
    assert type(copy) is type(cal)
    assert {k: str(v) for k, v in copy.get_params().items()} == {k: str(v) for k, v in cal.get_params().items()}
    assert copy.set_params(**cal.get_params()) is copy
    assert sklearn.base.is_classifier(cal)
    with pytest.raises(NotFittedError, match="call fit"):
        cal.predict_proba(logits)
    with pytest.raises(InputError, match="no option 'nope'"):
        cal.set_params(nope=1)
    again = pickle.loads(pickle.dumps(reference(name)))  # noqa: S301
    np.testing.assert_array_equal(again.predict(logits), reference(name).predict(logits))


@every
def test_repr_can_be_read(name):
    assert type(eval(repr(rhocal.calibrator(name)), PUBLIC)) is CALIBRATORS[name].family  # noqa: S307


@every
def test_evidence(name):
    solution = reference(name).solution_
    assert solution.converged
    assert isinstance(solution.trials, tuple)


@every
def test_wrong_number_of_classes_is_said(name):
    cal = reference(name)
    with pytest.raises(InputError, match=r"3 classes .* fitted with 4"):
        cal.predict_proba(np.zeros((2, 3)))
    with pytest.raises(InputError, match=r"shape \(1, 4\)"):
        cal.predict_proba(np.zeros(4))


@pytest.mark.parametrize(
    "name",
    ["temperature", "rho-norm", "field", "pts", "ets", "iop", "polynomial", "multi-domain", "svs:field", "average"],
)
def test_warnings_point_at_the_line_that_called_fit(name, data):
    logits, _ = data
    with pytest.warns(BoundaryWarning) as caught:
        quick(name).fit(logits, logits.argmax(axis=1))
    assert {w.filename for w in caught} == {__file__}


@every
def test_missing_labels_are_said(name):
    with pytest.raises(InputError, match="labels are missing"):
        quick(name).fit(np.zeros((3, 2)), None)


near_ties = hnp.arrays(
    np.float32,
    st.tuples(st.integers(1, 40), st.integers(2, 6)),
    elements=st.one_of(
        st.floats(-50, 50, width=32),
        st.sampled_from([np.float32(1), np.nextafter(np.float32(1), np.float32(2)), np.float32(0), np.float32(-1)]),
    ),
)


@pytest.mark.parametrize("name", KEEPS_DECISION)
@given(z=near_ties, dtype=st.sampled_from([np.float32, np.float64]))
@examples(60)
def test_decision_and_order_are_kept_bit_for_bit(name, z, dtype):
    cal = DECIDING.setdefault((name, z.shape[1]), None) or fitted_map(name, *synthetic(200, z.shape[1], seed=1))
    DECIDING[name, z.shape[1]] = cal
    z = z.astype(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhocalWarning)
        top = z.argmax(axis=1)
        probs, scaled = cal.predict_proba(z), cal.transform(z)
        np.testing.assert_array_equal(cal.predict(z), top)
    np.testing.assert_array_equal(probs.argmax(axis=1), top)
    np.testing.assert_array_equal(scaled.argmax(axis=1), top)
    if name in FREE_BELOW_THE_TOP:
        return
    order = np.argsort(z, axis=1, kind="stable")
    for out in (probs, scaled):
        assert (np.diff(np.take_along_axis(out, order, axis=1), axis=1) >= 0).all()


DECIDING: dict = {}

numbers = st.one_of(st.floats(-1e6, 1e6), st.sampled_from([0.0, 1.0, -1.0, 1e-30, 1e30, np.nan, np.inf]))


@given(
    name=st.sampled_from(list(CALIBRATORS)),
    z=hnp.arrays(np.float64, st.tuples(st.integers(0, 12), st.integers(1, 4)), elements=numbers),
    labels=st.lists(st.integers(-1, 4), max_size=12),
    weight=st.one_of(st.none(), st.lists(st.floats(-1, 5), max_size=12)),
)
@examples(300)
def test_bad_input_is_only_ever_a_named_error(name, z, labels, weight):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", RhocalWarning)
        try:
            cal = rhocal.calibrator(name, **dict.fromkeys(QUICK.get(name, {}), 20)).fit(z, labels, weight)
            probs = cal.predict_proba(z)
        except RhocalError as error:
            assert str(error)  # noqa: PT017
        else:
            assert np.isfinite(probs).all()
            np.testing.assert_allclose(probs.sum(axis=1), 1, atol=1e-6)


@pytest.mark.parametrize(("n", "is_rounded"), [(90_000, True), (110_000, False), (110_000, True)])
@pytest.mark.parametrize("name", ["temperature", "rho-norm", "field", "svs"])
def test_order_of_many_samples(name, is_rounded, n):
    """Below and above the size from which a search begins with a subsample; rounded logits are full of ties."""
    logits, labels = synthetic(n, 5, dtype=np.float32)
    logits = np.round(logits) if is_rounded else logits
    order = np.random.default_rng(0).permutation(n)
    a, b = fitted_map(name, logits, labels), fitted_map(name, logits[order], labels[order])
    np.testing.assert_allclose(a.predict_proba(logits[:2000]), b.predict_proba(logits[:2000]), atol=2e-6)
