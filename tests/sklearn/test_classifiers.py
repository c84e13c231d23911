"""The classifiers that people have on tables, each calibrated as scikit-learn's own class would: one drop-in test a use."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, ShuffleSplit, StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from rhocal.errors import InputError
from rhocal.metrics import nll
from rhocal.sklearn import CalibratedClassifier

LABELS = {"numbers": np.array([0, 1, 2]), "texts": np.array(["fox", "ant", "cow"]), "booleans": np.array([False, True])}


def lightgbm():
    return pytest.importorskip("lightgbm").LGBMClassifier(n_estimators=10, verbose=-1, n_jobs=1, random_state=0)


def xgboost():
    return pytest.importorskip("xgboost").XGBClassifier(n_estimators=10, n_jobs=1, random_state=0)


def catboost():
    options = {"verbose": 0, "thread_count": 1, "allow_writing_files": False, "random_seed": 0}
    return pytest.importorskip("catboost").CatBoostClassifier(iterations=20, depth=3, **options)


CLASSIFIERS = {
    "lr": LogisticRegression,
    "rf": lambda: RandomForestClassifier(20, random_state=0),
    "hgb": lambda: HistGradientBoostingClassifier(max_iter=10, random_state=0),
    "nb": GaussianNB,
    "svc": lambda: SVC(random_state=0),
    "lightgbm": lightgbm,
    "xgboost": xgboost,
    "catboost": catboost,
}
NEEDS_NUMBERS = {"xgboost"}
"""They refuse labels other than 0 to n_classes − 1, calibrated or not."""
NEEDS_DENSE = {"hgb", "nb"}

pytestmark = pytest.mark.filterwarnings(
    "ignore:X does not have valid feature names:UserWarning"
)  # LightGBM's, with arrays


@pytest.fixture(params=CLASSIFIERS)
def name(request):
    return request.param


@pytest.fixture
def estimator(name):
    return CLASSIFIERS[name]()


def data(n_classes=3):
    features, codes = make_classification(
        900, 10, n_informative=6, n_classes=n_classes, flip_y=0.15, random_state=n_classes
    )
    return features[:600], codes[:600], features[600:], codes[600:]


def calibrated(estimator, **options):
    return CalibratedClassifier(estimator, "temperature", **({"cv": 3} | options))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_it_is_close_to_scikit_learns_temperature_scaling(estimator, n_classes):
    x, y, x_test, y_test = data(n_classes)
    ours = calibrated(estimator).fit(x, y).predict_proba(x_test)
    theirs = CalibratedClassifierCV(estimator, method="temperature", cv=3).fit(x, y).predict_proba(x_test)
    assert nll(ours, y_test) < 1.02 * nll(theirs, y_test)


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_any_kind(name, estimator, kind):
    names = LABELS[kind]
    x, y, x_test, _ = data(len(names))
    if name in NEEDS_NUMBERS and kind == "texts":
        with pytest.raises(ValueError, match="Invalid classes"):
            calibrated(estimator).fit(x, names[y])
        return
    model = calibrated(estimator).fit(x, names[y])
    assert model.classes_.tolist() == sorted(names.tolist())
    assert set(model.predict(x_test)) <= set(names.tolist())
    assert (model.predict(x) == names[y]).mean() > 0.6
    numbered = calibrated(clone(estimator)).fit(x, np.argsort(np.argsort(names))[y])
    np.testing.assert_allclose(model.predict_proba(x_test), numbered.predict_proba(x_test), atol=1e-9)


def test_frames_with_named_columns(estimator):
    x, y, x_test, _ = data()
    columns = [f"f{k}" for k in range(x.shape[1])]
    frame, test = pd.DataFrame(x, columns=columns), pd.DataFrame(x_test, columns=columns)
    labels = pd.Series(LABELS["numbers"][y], index=np.arange(600) + 50)
    model = calibrated(estimator).fit(frame, labels)
    assert model.feature_names_in_.tolist() == columns
    assert not hasattr(calibrated(clone(estimator)).fit(x, y), "feature_names_in_")
    arrays = calibrated(clone(estimator)).fit(x, y)
    np.testing.assert_allclose(model.predict_proba(test), arrays.predict_proba(x_test), atol=1e-9)
    with pytest.raises(ValueError, match="same order as they were in fit"):
        model.predict_proba(test[columns[::-1]])
    pd.testing.assert_frame_equal(test, pd.DataFrame(x_test, columns=columns))


def test_sparse_features(name, estimator):
    if name in NEEDS_DENSE:
        pytest.skip("it takes dense features only")
    x, y, x_test, _ = data()
    x, x_test = np.where(abs(x) > 1, x, 0), np.where(abs(x_test) > 1, x_test, 0)
    model = calibrated(estimator).fit(csr_matrix(x), y)
    assert model.predict_proba(csr_matrix(x_test)).shape == (300, 3)


def test_pipelines_and_searches(estimator):
    x, y, x_test, _ = data()
    inside = calibrated(make_pipeline(StandardScaler(), estimator))
    outside = make_pipeline(StandardScaler(), calibrated(estimator))
    for model in (inside, outside):
        assert model.fit(x, y).predict_proba(x_test).shape == (300, 3)
    search = GridSearchCV(
        calibrated(estimator, cv=2), {"method": ["identity", "temperature"]}, cv=2, scoring="neg_log_loss"
    )
    assert search.fit(x, y).best_params_["method"] in {"identity", "temperature"}


def test_clones_and_pickles(estimator):
    x, y, x_test, _ = data()
    model = calibrated(estimator).fit(x, y)
    probs = model.predict_proba(x_test)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(x_test), probs)  # noqa: S301
    again = clone(model)
    assert not hasattr(again, "classes_")
    np.testing.assert_allclose(again.fit(x, y).predict_proba(x_test), probs, atol=1e-9)


def test_sample_weight_reaches_classifier_and_calibrator(estimator):
    x, y, x_test, _ = data(2)
    weight = np.where(y == 1, 5.0, 1.0)
    plain, weighted = calibrated(estimator).fit(x, y), calibrated(clone(estimator)).fit(x, y, sample_weight=weight)
    assert weighted.predict_proba(x_test)[:, 1].mean() > plain.predict_proba(x_test)[:, 1].mean() + 0.05


@pytest.mark.parametrize("cv", [4, StratifiedKFold(4, shuffle=True, random_state=0), ShuffleSplit(4, random_state=0)])
@pytest.mark.parametrize("ensemble", [True, False])
def test_splitters(estimator, cv, ensemble):
    x, y, x_test, _ = data()
    model = calibrated(estimator, cv=cv, ensemble=ensemble, n_jobs=1).fit(x, y)
    assert len(model.calibrated_classifiers_) == (4 if ensemble else 1)
    np.testing.assert_allclose(model.predict_proba(x_test).sum(axis=1), 1)


def test_fitted_classifiers(estimator):
    x, y, x_test, _ = data()
    fitted = estimator.fit(x[:300], y[:300])
    prefit = calibrated(fitted, cv="prefit").fit(x[300:], y[300:])
    frozen = CalibratedClassifier(FrozenEstimator(fitted), "temperature").fit(x[300:], y[300:])
    np.testing.assert_array_equal(prefit.predict_proba(x_test), frozen.predict_proba(x_test))
    assert prefit.calibrated_classifiers_[0].estimator is fitted


def test_the_default_method(estimator):
    x, y, x_test, y_test = data(2)
    probs = CalibratedClassifier(estimator, cv=3).fit(x, y).predict_proba(x_test)
    raw = CalibratedClassifier(estimator, "identity", cv=3).fit(x, y).predict_proba(x_test)
    assert nll(probs, y_test) < 1.05 * nll(raw, y_test)


def test_columns_in_another_order_than_a_fitted_classifier_had():
    x, y, _, _ = data()
    frame = pd.DataFrame(x, columns=list("abcdefghij"))
    fitted = lightgbm().fit(frame[:300], y[:300])
    with pytest.raises(InputError, match=r"column 0 of X is 'j' where fit had 'a'"):
        calibrated(fitted, cv="prefit").fit(frame.iloc[300:, ::-1], y[300:])
