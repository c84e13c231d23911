"""Folds that do not hold every class, and what a classifier's scores are taken for."""

import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import make_classification
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import KFold, LeaveOneOut, StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from rhocal.errors import FewSamplesWarning, InputError, SuspiciousInputWarning
from rhocal.metrics import brier
from rhocal.sklearn import CalibratedClassifier
from rhocal.sklearn.scores import logits_of

X, Y = make_classification(900, 12, n_informative=6, n_classes=3, flip_y=0.1, random_state=0)


# Classes and folds ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [GaussianNB(), RidgeClassifier()])
@pytest.mark.parametrize("ensemble", [True, False])
def test_a_class_that_a_fold_was_not_trained_on(estimator, ensemble):
    y = Y.copy()
    y[:3] = 7  # a fourth class, in the first fold only
    folds = [(np.arange(450, 900), np.arange(450)), (np.arange(450), np.arange(450, 900))]
    with pytest.warns(FewSamplesWarning, match=r"without the classes \[7\].* without their 3 samples"):
        model = CalibratedClassifier(estimator, "temperature", cv=folds, ensemble=ensemble).fit(X, y)
    probs = model.predict_proba(X)
    assert probs.shape == (900, 4)
    np.testing.assert_allclose(probs.sum(axis=1), 1)
    if ensemble:
        first, second = (member.predict_proba(X) for member in model.calibrated_classifiers_)
        assert (first[:, 3] == 0).all()
        assert (second[:, 3] > 0).all()
        # the samples that the first classifier cannot know do not decide its temperature
        alone = CalibratedClassifier(estimator, "temperature", cv=[(folds[0][0], np.arange(3, 450))]).fit(X, y)
        np.testing.assert_array_equal(first, alone.predict_proba(X))


def test_folds_without_a_second_class_are_refused():
    y = np.repeat([0, 1], 450)
    with pytest.raises(InputError, match=r"trained on one class only, \[1\]; use a cv .* StratifiedKFold"):
        CalibratedClassifier(DecisionTreeClassifier(), "temperature", cv=KFold(2)).fit(X, y)
    y = np.repeat([0, 1, 2], 300)
    with pytest.raises(InputError, match=r"holds out only classes that were not trained on, \[0\]"):
        CalibratedClassifier(GaussianNB(), "temperature", cv=KFold(3)).fit(X, y)


@pytest.mark.parametrize("cv", [4, KFold(4), StratifiedKFold(4)])
def test_more_folds_than_samples_of_a_class_are_refused(cv):
    y = np.array(["ant", "fox"])[(np.arange(900) < 3).astype(int)]
    with pytest.raises(InputError, match=r"Requesting 4-fold .*'fox' \(3\); use fewer folds"):
        CalibratedClassifier(GaussianNB(), "temperature", cv=cv).fit(X, y)


def test_one_sample_is_no_calibration_set():
    with pytest.raises(InputError, match="LeaveOneOut cross-validation does"):
        CalibratedClassifier(GaussianNB(), "temperature", cv=LeaveOneOut()).fit(X, Y)


def test_weights_that_a_classifier_does_not_take_are_reported():
    weight = np.random.default_rng(0).random(900)
    pipeline = make_pipeline(StandardScaler(), GaussianNB())
    with pytest.warns(SuspiciousInputWarning, match="Pipeline takes no sample_weight.*<step>__sample_weight"):
        CalibratedClassifier(pipeline, "temperature", cv=2).fit(X, Y, sample_weight=weight)
    scaled = StandardScaler().fit(X[:450])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fold = [(np.arange(450), np.arange(450, 900))]
        model = CalibratedClassifier(pipeline, "temperature", cv=fold).fit(
            X, Y, sample_weight=weight, gaussiannb__sample_weight=weight
        )
    by_hand = GaussianNB().fit(scaled.transform(X[:450]), Y[:450], weight[:450])
    np.testing.assert_allclose(model.calibrated_classifiers_[0].estimator[-1].theta_, by_hand.theta_)


def test_labels_that_a_fitted_classifier_does_not_know():
    fitted = GaussianNB().fit(X, Y)
    with pytest.raises(InputError, match=r"does not know: \[5\]"):
        CalibratedClassifier(fitted, "temperature", cv="prefit").fit(X, np.where(Y == 2, 5, Y))


# Scores -----------------------------------------------------------------------------------------------------------------


class Scoring(ClassifierMixin, BaseEstimator):
    """An SVC or logistic regression whose scores are shown in another form."""

    def __init__(self, inner=None, form="margin"):
        self.inner, self.form = inner, form

    def fit(self, features, labels):
        self.fitted_ = self.inner.fit(features, labels)
        self.classes_ = self.fitted_.classes_
        return self

    def __getattr__(self, name):
        forms = {"decision_function": ("margin", "column", "two", "zero"), "predict_proba": ("probs", "positive")}
        if name in forms and self.form in forms[name]:
            return self._scores
        raise AttributeError(name)

    def _scores(self, features):
        margin = self.fitted_.decision_function(features)
        positive = 1 / (1 + np.exp(-margin))
        return {
            "margin": lambda: margin,
            "column": lambda: margin[:, None],
            "two": lambda: np.stack([-margin / 2, margin / 2], axis=1),
            "zero": lambda: np.stack([0 * margin, margin], axis=1),
            "probs": lambda: np.stack([1 / (1 + np.exp(margin)), positive], axis=1),
            "positive": lambda: positive,
        }[self.form]()


@pytest.mark.parametrize("inner", [SVC(), LogisticRegression()], ids=["svc", "lr"])
@pytest.mark.parametrize(
    "method", ["temperature", "platt", "rho-norm", "field", "svs", "isotonic", "venn-abers", "auto"]
)
@pytest.mark.filterwarnings("ignore::rhocal.errors.RhocalWarning")  # how good a method is does not matter here
def test_forms_of_binary_scores_give_the_same_fit(inner, method):
    y = (Y == 1).astype(int)
    want = CalibratedClassifier(inner, method, cv=3).fit(X, y).predict_proba(X)
    # One column is made two before any method sees it (tests/cli/test_positive.py): a single method shows that it arrives.
    single = ("margin", "column", "positive") if method == "temperature" else ()
    for form in ("two", "zero", "probs", *single):
        model = CalibratedClassifier(Scoring(inner, form), method, cv=3).fit(X, y)
        np.testing.assert_allclose(model.predict_proba(X), want, atol=1e-9, err_msg=form)


def test_pairs_of_classes_are_not_taken_for_classes():
    pairs = make_pipeline(StandardScaler(), SVC(decision_function_shape="ovo"))  # three columns for three classes
    with pytest.raises(InputError, match="neither a decision_function with a column for each class nor predict_proba"):
        CalibratedClassifier(pairs, "temperature", cv=2).fit(X, Y)
    binary = CalibratedClassifier(pairs, "temperature", cv=2).fit(X, Y == 1)
    want = CalibratedClassifier(make_pipeline(StandardScaler(), SVC()), "temperature", cv=2).fit(X, Y == 1)
    np.testing.assert_array_equal(binary.predict_proba(X), want.predict_proba(X))


@pytest.mark.parametrize("method", ["temperature", "platt", "svs"])
def test_a_probability_of_zero_does_not_decide_the_fit(method):
    forest = RandomForestClassifier(30, random_state=0)
    model = CalibratedClassifier(forest, method, cv=3).fit(X[:600], Y[:600])
    member = model.calibrated_classifiers_[0]
    held_out = member.estimator.predict_proba(X[:200])
    assert (held_out == 0).any()
    assert member.smallest == pytest.approx(1 / 60)  # half of a tree
    assert logits_of(member.estimator, X[:200], member.smallest)[0].min() == pytest.approx(np.log(1 / 60))
    uncalibrated = brier(forest.fit(X[:600], Y[:600]).predict_proba(X[600:]), Y[600:])
    assert brier(model.predict_proba(X[600:]), Y[600:]) < 1.02 * uncalibrated


def test_scores_of_another_shape_are_refused():
    class Wide(DummyClassifier):
        def predict_proba(self, features):
            return np.full((len(features), 4), 0.25)

    with pytest.raises(InputError, match=r"predict_proba of Wide has shape \(300, 4\); its classes_ are 3"):
        CalibratedClassifier(Wide(), "temperature", cv=3).fit(X, Y)
