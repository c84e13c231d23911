"""scikit-learn: the meta-estimator and the calibrators under its own checks, and as people use them."""

import pickle
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV, GroupKFold, StratifiedKFold, cross_val_predict, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils import estimator_html_repr
from sklearn.utils.estimator_checks import parametrize_with_checks

import rhocal
from helpers import quick
from rhocal.calibrators import CALIBRATORS
from rhocal.errors import InputError
from rhocal.sklearn import CalibratedClassifier, ReliabilityDisplay, scorer

COLUMNS = "its X has another number of columns than y has classes; the columns of logits are the classes"
NUMBERS = "its labels are 1, 2, 3 for columns 0, 1: whole numbers are column numbers unless classes= names them"
WORDS = "our message says the same in our own words"

EXPECTED = {
    "check_fit_score_takes_y": "the second argument is called labels, and may be given by position",
    "check_sample_weight_equivalence_on_dense_data": "it gives y by name; our own laws hold weights to be repetition",
    "check_estimators_overwrite_params": NUMBERS,
    "check_estimators_fit_returns_self": NUMBERS,
    "check_readonly_memmap_input": NUMBERS,
    "check_sample_weights_pandas_series": NUMBERS,
    "check_sample_weights_not_an_array": NUMBERS,
    "check_sample_weights_shape": NUMBERS,
    "check_sample_weights_not_overwritten": NUMBERS,
    "check_classifier_data_not_an_array": NUMBERS,
    "check_classifiers_classes": COLUMNS,
    "check_classifiers_train": COLUMNS,
    "check_classifiers_one_label": "classes that never occur keep a probability, so they may still be predicted",
    "check_transformer_general": "it fits without labels",
    "check_transformer_data_not_an_array": "it fits without labels",
    "check_supervised_y_2d": "labels of shape (n, 1) are taken without a warning, as pixels and tokens of any shape are",
    "check_n_features_in_after_fitting": WORDS,
    "check_dtype_object": WORDS,
    "check_estimators_empty_data_messages": WORDS,
    "check_fit2d_1feature": WORDS,
    "check_fit2d_predict1d": WORDS,
    "check_requires_y_none": WORDS,
}
"""Checks of scikit-learn that calibrators fail, and why. A check that passes after all is an error."""

PASSES_AFTER_ALL = {"vector": {"check_classifiers_one_label"}, "isotonic": {"check_classifiers_one_label"}}


def expected(estimator):
    if isinstance(estimator, CalibratedClassifier):
        return {}
    return {check: why for check, why in EXPECTED.items() if check not in PASSES_AFTER_ALL.get(estimator.name, set())}


with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "Estimator .* does not inherit from", UserWarning)  # on purpose, see base.py
    with_checks = parametrize_with_checks(
        [
            CalibratedClassifier(LogisticRegression(), cv=2),
            CalibratedClassifier(LogisticRegression(), "temperature", cv=2, ensemble=False),
            rhocal.TemperatureScaling(),
            rhocal.VectorScaling(),
            rhocal.IsotonicRegression(),
        ],
        expected_failed_checks=expected,
        xfail_strict=True,
    )


@with_checks
@pytest.mark.filterwarnings("ignore::rhocal.errors.RhocalWarning")
def test_scikit_learns_checks(estimator, check):
    try:
        check(estimator)
    except Exception as error:
        if check.func.__name__ not in expected(estimator):
            raise
        # Without the traceback: for each, pytest would parse the 5,000 lines of scikit-learn's checks.
        raise AssertionError(str(error)) from None


SHORT = [
    "check_get_params_invariance", "check_set_params", "check_parameters_default_constructible",
    "check_no_attributes_set_in_init",
    "check_estimator_cloneable", "check_estimator_repr",
    "check_estimators_unfitted", "check_valid_tag_types", "check_estimator_tags_renamed",
]  # fmt: skip


@pytest.mark.parametrize("check", SHORT)
@pytest.mark.parametrize("name", CALIBRATORS)
def test_every_calibrator_keeps_the_protocol(name, check):
    getattr(sklearn.utils.estimator_checks, check)(CALIBRATORS[name].family.__name__, quick(name))


# As people use it -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data():
    X, y = make_classification(1500, 20, n_informative=6, n_redundant=8, n_classes=3, flip_y=0.2, random_state=0)  # noqa: N806
    return X[:900], y[:900], X[900:], y[900:]


@pytest.mark.parametrize(
    "estimator", [GaussianNB(), RidgeClassifier(), SVC(), RandomForestClassifier(20, random_state=0)]
)
@pytest.mark.parametrize("ensemble", [True, False])
def test_any_classifier_is_calibrated(data, estimator, ensemble):
    X, y, X_test, y_test = data  # noqa: N806
    model = CalibratedClassifier(estimator, "temperature", cv=3, ensemble=ensemble).fit(X, y)
    probs = model.predict_proba(X_test)
    np.testing.assert_allclose(probs.sum(axis=1), 1)
    assert rhocal.metrics.ece(probs, y_test) < 0.1
    assert len(model.calibrated_classifiers_) == (3 if ensemble else 1)
    if isinstance(estimator, GaussianNB):  # over-confident by nature
        assert rhocal.metrics.ece(probs, y_test) < 0.5 * rhocal.metrics.ece(
            clone(estimator).fit(X, y).predict_proba(X_test), y_test
        )


def test_one_calibrator_is_fitted_on_the_scores_of_all_folds(data):
    X, y, X_test, _ = data  # noqa: N806
    cv = StratifiedKFold(4)
    model = CalibratedClassifier(GaussianNB(), "rho-norm", cv=cv, ensemble=False).fit(X, y)
    by_hand = rhocal.RhoNormScaling().fit(
        cross_val_predict(GaussianNB(), X, y, cv=cv, method="predict_proba"), y, kind="probs"
    )
    want = by_hand.predict_proba(GaussianNB().fit(X, y).predict_proba(X_test))
    np.testing.assert_allclose(model.predict_proba(X_test), want, atol=1e-9)


def test_prefit_and_frozen(data):
    X, y, X_test, _ = data  # noqa: N806
    fitted = LogisticRegression(max_iter=500).fit(X[:400], y[:400])
    one = CalibratedClassifier(fitted, "temperature", cv="prefit").fit(X[400:], y[400:])
    other = CalibratedClassifier(FrozenEstimator(fitted), "temperature").fit(X[400:], y[400:])
    want = rhocal.TemperatureScaling().fit(fitted.decision_function(X[400:]), y[400:])
    for model in (one, other):
        assert len(model.calibrated_classifiers_) == 1
        np.testing.assert_allclose(
            model.predict_proba(X_test), want.predict_proba(fitted.decision_function(X_test)), atol=1e-9
        )
    with pytest.raises(NotFittedError):
        CalibratedClassifier(LogisticRegression(), cv="prefit").fit(X, y)


def test_texts_pipelines_frames_and_pickles(data):
    X, y, X_test, _ = data  # noqa: N806
    names = np.array(["fox", "ant", "cow"])[y]
    frame = pd.DataFrame(X, columns=[f"f{k}" for k in range(X.shape[1])])
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    model = CalibratedClassifier(pipeline, "field", cv=3).fit(frame, names)
    assert model.classes_.tolist() == ["ant", "cow", "fox"]
    assert model.feature_names_in_.tolist() == list(frame.columns)
    test = pd.DataFrame(X_test, columns=frame.columns)
    assert set(model.predict(test)) <= set(names)
    again = pickle.loads(pickle.dumps(model))  # noqa: S301
    np.testing.assert_array_equal(again.predict_proba(test), model.predict_proba(test))
    outer = make_pipeline(StandardScaler(), CalibratedClassifier(LogisticRegression(), "temperature", cv=2))
    assert outer.set_output(transform="pandas").fit(frame, names).predict_proba(test).shape == (600, 3)
    assert "CalibratedClassifier" in estimator_html_repr(model)


def test_two_classes(data):
    X, y, X_test, y_test = data  # noqa: N806
    model = CalibratedClassifier(SVC(), "platt", cv=3).fit(X, y == 1)
    probs = model.predict_proba(X_test)
    assert probs.shape == (600, 2)
    assert ((probs[:, 1] > 0.5) == model.predict(X_test)).all()
    assert (model.predict(X_test) == (y_test == 1)).mean() > 0.8


def test_weights_are_repetition(data):
    X, y, X_test, _ = data  # noqa: N806
    fitted = FrozenEstimator(LogisticRegression(max_iter=500).fit(X[:400], y[:400]))
    times = np.random.default_rng(0).integers(1, 4, 500)
    a = CalibratedClassifier(fitted, "temperature", cv=2).fit(X[400:], y[400:], sample_weight=times)
    b = CalibratedClassifier(fitted, "temperature", cv=2).fit(
        np.repeat(X[400:], times, axis=0), np.repeat(y[400:], times)
    )
    np.testing.assert_allclose(a.predict_proba(X_test), b.predict_proba(X_test), atol=1e-6)


@pytest.mark.parametrize("ensemble", [True, False])
def test_groups_are_the_clusters_of_the_calibrator(data, ensemble):
    """Copies of a sample are not taken for more samples, and the calibrator's folds keep them together."""
    X, y, *_ = data  # noqa: N806
    X, y, groups = np.repeat(X, 3, axis=0), np.repeat(y, 3), np.repeat(np.arange(len(y)), 3)  # noqa: N806
    seen = []

    class Watching(rhocal.TemperatureScaling):
        def fit(self, logits, labels=None, sample_weight=None, **spec):
            seen.append(spec["clusters"])
            return super().fit(logits, labels, sample_weight, **spec)

    model = CalibratedClassifier(GaussianNB(), Watching(), cv=GroupKFold(3), ensemble=ensemble)
    model.fit(X, y, groups=[f"g{group}" for group in groups])
    assert len(seen) == (3 if ensemble else 1)
    for clusters in seen:
        assert (np.unique(clusters, return_counts=True)[1] == 3).all()
    seen.clear()
    model.fit(X, y, groups=np.arange(len(y)) % 3)  # a fold has a single group
    assert [clusters is None for clusters in seen] == ([True] * 3 if ensemble else [False])
    with pytest.raises(InputError, match="groups has one value for each"):
        model.fit(X, y, groups=[1, 2])


def test_groups_stay_together(data):
    X, y, _, _ = data  # noqa: N806
    groups = np.arange(900) // 10
    seen = []

    class Watching(GaussianNB):
        def fit(self, X, y, sample_weight=None):  # noqa: N803
            seen.append(len(X))
            return super().fit(X, y, sample_weight)

    CalibratedClassifier(Watching(), "temperature", cv=GroupKFold(3)).fit(X, y, groups=groups)
    assert seen == [600, 600, 600]
    with pytest.raises(ValueError, match="groups"):
        CalibratedClassifier(GaussianNB(), "temperature", cv=GroupKFold(3)).fit(X, y)


def test_metadata_routing(data):
    X, y, X_test, _ = data  # noqa: N806
    weight = np.random.default_rng(0).random(900)
    plain = CalibratedClassifier(GaussianNB(), "temperature", cv=GroupKFold(3)).fit(
        X, y, weight, groups=np.arange(900) % 9
    )
    with sklearn.config_context(enable_metadata_routing=True):
        asks = CalibratedClassifier(
            GaussianNB().set_fit_request(sample_weight=True), "temperature", cv=GroupKFold(3)
        ).set_fit_request(sample_weight=True, groups=True)
        asks.fit(X, y, sample_weight=weight, groups=np.arange(900) % 9)
        silent = CalibratedClassifier(GaussianNB(), "temperature", cv=3)
        with pytest.raises(ValueError, match="sample_weight"):
            silent.fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(asks.predict_proba(X_test), plain.predict_proba(X_test), atol=1e-9)


def test_searches_over_method_and_objective(data):
    X, y, X_test, y_test = data  # noqa: N806
    search = GridSearchCV(
        CalibratedClassifier(GaussianNB(), cv=2),
        {"method": ["identity", "temperature", rhocal.FieldScaling(ridge=10.0)], "ensemble": [False]},
        scoring=scorer("nll"), cv=2,
    ).fit(X, y)  # fmt: skip
    assert search.best_params_["method"] != "identity"
    inner = GridSearchCV(
        CalibratedClassifier(GaussianNB(), rhocal.TemperatureScaling(), cv=2),
        {"method__objective": ["nll", "brier"]}, scoring=scorer("ece", n_bins=5), cv=2,
    ).fit(X, y)  # fmt: skip
    assert inner.best_score_ < 0
    assert search.score(X_test, y_test) == pytest.approx(-rhocal.metrics.nll(search.predict_proba(X_test), y_test))


def test_n_jobs_gives_the_same_bits(data):
    X, y, X_test, _ = data  # noqa: N806
    with joblib.parallel_backend("threading"):
        a, b = (CalibratedClassifier(GaussianNB(), "rho-norm", cv=2, n_jobs=n).fit(X, y) for n in (None, 2))
    np.testing.assert_array_equal(a.predict_proba(X_test), b.predict_proba(X_test))


def test_scorers_know_their_direction(data):
    X, y, _, _ = data  # noqa: N806
    assert (cross_val_score(GaussianNB(), X, y, scoring=scorer("accuracy"), cv=2) > 0).all()
    assert (cross_val_score(GaussianNB(), X, y, scoring=scorer("ece", n_bins=15), cv=2) < 0).all()
    assert repr(scorer("ece", n_bins=15)) == "scorer('ece', n_bins=15)"
    with pytest.raises(InputError, match="no metric 'eec' to score with"):
        scorer("eec")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"method": "temprature"}, "did you mean 'temperature'"),
        ({"method": 3}, "method is the name of a method"),
        ({"cv": "all"}, "cv is a number of folds"),
        ({"ensemble": "some"}, "ensemble is True, False"),
        ({"cv": 400}, "less than 400 examples"),
    ],
)
def test_bad_options(data, options, said):
    X, y, _, _ = data  # noqa: N806
    with pytest.raises(ValueError, match=said):
        CalibratedClassifier(GaussianNB(), **options).fit(X, y)


def test_one_class_is_refused(data):
    with pytest.raises(InputError, match="at least 2 classes"):
        CalibratedClassifier(GaussianNB()).fit(data[0], np.ones(900))


def test_calibrators_speak_of_frames_and_notebooks(data):
    X, y, _, _ = data  # noqa: N806
    logits = LogisticRegression(max_iter=500).fit(X, y).decision_function(X)
    frame = pd.DataFrame(logits, index=np.arange(900) + 5)
    cal = rhocal.TemperatureScaling().set_output(transform="pandas").fit(frame, y)
    out = cal.transform(frame)
    assert list(out.columns) == ["logit_0", "logit_1", "logit_2"]
    assert out.index[0] == 5
    assert isinstance(cal.set_output(transform="default").transform(frame), np.ndarray)
    assert "temperature_ = " in cal._repr_html_()
    assert "TemperatureScaling" in estimator_html_repr(cal)
    np.testing.assert_array_equal(rhocal.TemperatureScaling().fit_transform(logits, y), cal.transform(logits))
    with pytest.raises(InputError, match="default, pandas or polars"):
        cal.set_output(transform="table")


def test_the_display_is_scikit_learns_own_of_the_confidence(data):
    pytest.importorskip("matplotlib").use("Agg")
    X, y, X_test, y_test = data  # noqa: N806
    model = CalibratedClassifier(GaussianNB(), "temperature", cv=2).fit(X, y)
    display = ReliabilityDisplay.from_estimator(model, X_test, y_test, n_bins=5)
    confidence = model.predict_proba(X_test).max(axis=1)
    assert display.y_prob == pytest.approx(confidence)
    assert len(display.prob_true) <= 5
