"""Importance weights from features, and calibrators fitted with them."""

import warnings

import numpy as np
import pandas as pd
import pytest

import rhocal
from rhocal.data.features import feature_matrices
from rhocal.errors import FewSamplesWarning, FileError, InputError, ShiftWarning
from rhocal.evaluation.covariate_shift import effective_size
from rhocal.metrics.inference.density_ratio import density_ratio
from rhocal.reporting.model_card import model_card

pytestmark = pytest.mark.filterwarnings("ignore::rhocal.errors.GuardWarning")


def draw(n, shift, seed, classes=2):
    """The true scale of the logits falls with the first feature, so that no single temperature fits both populations."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2)) + np.array([shift, 0])
    z = 2 * rng.normal(size=(n, classes))
    q = np.exp(z * np.exp(-x[:, :1] / 2))
    return x, z, (q.cumsum(1) / q.sum(1, keepdims=True) > rng.random((n, 1))).argmax(1)


X, Z, Y = draw(2000, 0, 10)
X_NEW, Z_NEW, Y_NEW = draw(4000, 1, 11)
NAMED = np.array(["no", "yes"])


def nll(cal):
    return -np.log(cal.predict_proba(Z_NEW)[np.arange(len(Y_NEW)), Y_NEW]).mean()


@pytest.fixture(scope="module")
def cal():
    return rhocal.calibrator("temperature").fit(Z, Y)


@pytest.fixture(scope="module")
def weights():
    return rhocal.estimate_weights(X, X_NEW)


def test_weights_are_the_density_ratio(weights):
    truth = np.exp(X[:, 0] - 0.5)
    assert np.corrcoef(np.log(truth), np.log(weights.weights))[0, 1] > 0.97
    assert weights.weights.mean() == pytest.approx(1)
    assert weights.effective_size == pytest.approx(effective_size(truth), rel=0.2)
    assert weights.is_shifted
    assert weights.auc == pytest.approx(0.76, abs=0.02)  # Φ(1/√2)
    assert weights.before[0] > 0.9
    assert weights.after.max() < 0.1
    assert "the features differ (p < 1e-9" in weights.verdict


@pytest.mark.parametrize("method", ["temperature", "beta", "svs"])
def test_the_target_is_nearer_to_a_fit_on_its_own_labels(weights, method):
    plain = rhocal.calibrator(method).fit(Z, Y)
    _, z, y = draw(2000, 1, 12)
    oracle = rhocal.calibrator(method).fit(z, y)
    found = rhocal.reweight(plain, Z, Y, weights)
    assert found.calibrator.label == method
    assert nll(found.calibrator) - nll(oracle) < 0.3 * (nll(plain) - nll(oracle))
    assert found.difference[2] < 0
    assert "lower" in found.verdict


def test_without_a_shift_weights_are_one():
    x = draw(1000, 0, 13)[0]
    found = rhocal.estimate_weights(X, x)
    assert not found.is_shifted
    assert found.effective_size > 1900
    assert "no sign of a shift" in found.verdict


def test_level_of_the_test():
    rng = np.random.default_rng(4)
    p = [density_ratio(rng.normal(size=(150, 2)), rng.normal(size=(150, 2))).p_value for _ in range(40)]
    assert np.mean(np.array(p) < 0.05) <= 0.2  # 2 of 40 expected; 9 or more have a chance below 0.1 %
    assert np.mean(np.array(p) < 0.5) > 0.3


def test_order_of_samples_and_columns_and_copies_do_not_matter(weights):
    rng = np.random.default_rng(5)
    order, other = rng.permutation(len(X)), rng.permutation(len(X_NEW))
    moved = rhocal.estimate_weights(X[order], X_NEW[other])
    assert moved.weights == pytest.approx(weights.weights[order], rel=1e-6)
    assert moved.p_value == pytest.approx(weights.p_value)
    swapped = rhocal.estimate_weights(X[:, ::-1], X_NEW[:, ::-1])
    assert swapped.weights == pytest.approx(weights.weights, rel=1e-6)
    doubled = rhocal.estimate_weights(np.repeat(X, 2, axis=0), np.repeat(X_NEW, 2, axis=0))
    assert np.corrcoef(doubled.weights[::2], weights.weights)[0, 1] > 0.99
    assert (doubled.weights[::2] == doubled.weights[1::2]).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_single_and_half_precision(weights, dtype):
    rounded = rhocal.estimate_weights(X.astype(dtype), X_NEW.astype(dtype)).weights  # other folds
    assert np.corrcoef(np.log(rounded), np.log(weights.weights))[0, 1] > 0.98


def test_fit_is_that_of_weights_that_sum_to_the_effective_size(cal, weights):
    w = weights.weights
    direct = rhocal.TemperatureScaling().fit(Z, Y, w * effective_size(w) / w.sum())
    found = rhocal.reweight(cal, Z, Y, weights).calibrator
    assert found.temperature_ == direct.temperature_
    assert found.n_samples_ == round(weights.effective_size)
    given = rhocal.reweight(cal, Z, Y, 1e6 * w)  # weights are relative
    assert given.calibrator.temperature_ == pytest.approx(direct.temperature_, rel=1e-9)
    assert given.effective_size == pytest.approx(weights.effective_size)
    order = np.random.default_rng(6).permutation(len(Y))
    moved = rhocal.reweight(cal, Z[order], Y[order], w[order])
    assert moved.calibrator.temperature_ == pytest.approx(direct.temperature_, rel=1e-9)
    assert moved.difference == pytest.approx(given.difference, rel=1e-6)


def test_classes_by_name_artifact_exports_and_card(weights, tmp_path):
    frame = pd.DataFrame(Z, columns=["no", "yes"])
    cal = rhocal.calibrator("beta").fit(frame, NAMED[Y])
    found = rhocal.reweight(cal, frame[["yes", "no"]], NAMED[Y], weights).calibrator
    assert found.columns_ == ("no", "yes")
    found.save(tmp_path / "new.safetensors")
    loaded = rhocal.load(tmp_path / "new.safetensors")
    assert loaded.weighting_ == found.weighting_
    assert loaded.weighting_.n_samples == 2000
    assert loaded.predict_proba(frame[["yes", "no"]]) == pytest.approx(found.predict_proba(Z), abs=1e-12)
    card = model_card(loaded, {})
    assert f"estimated importance weights, {weights.effective_size:,.0f} effective samples of 2,000" in card
    moved = rhocal.adapt(loaded, priors=[0.9, 0.1]).calibrator  # both corrections
    assert moved.weighting_ == found.weighting_
    again = rhocal.reweight(moved, frame, NAMED[Y], weights).calibrator
    assert again.predict_proba(Z) == pytest.approx(found.predict_proba(Z), abs=1e-9)
    assert rhocal.calibrator("beta").fit(frame, NAMED[Y]).weighting_ is None
    assert loaded.fit(frame, NAMED[Y]).weighting_ is None


def test_damaged_artifact(weights, cal, tmp_path):
    found = rhocal.reweight(cal, Z, Y, weights).calibrator
    object.__setattr__(found.weighting_, "effective_size", -1.0)
    found.save(tmp_path / "x.safetensors")
    with pytest.raises(FileError, match="its weights are"):
        rhocal.load(tmp_path / "x.safetensors")


def test_weighted_evaluation_of_the_adapted_calibrator(cal, weights):
    found = rhocal.reweight(cal, Z, Y, weights).calibrator
    how = {"sample_weight": weights.weights, "weight_kind": "importance", "seed": 0}
    before, after = (rhocal.evaluate(one.predict_proba(Z), Y, **how) for one in (cal, found))
    assert after["nll"].value < before["nll"].value
    target = rhocal.evaluate(found.predict_proba(Z_NEW), Y_NEW, seed=0)
    assert after["nll"].low < target["nll"].value < after["nll"].high


def test_frames_categories_and_gaps():
    rng = np.random.default_rng(7)
    ours = pd.DataFrame({"site": rng.choice(["a", "b"], 800), "age": rng.normal(size=800)})
    new = pd.DataFrame({"age": rng.normal(size=800), "site": rng.choice(["a", "b"], 800, p=[0.2, 0.8])})
    found = rhocal.estimate_weights(ours, new)
    by_site = pd.Series(found.weights).groupby(ours["site"]).mean()
    assert by_site["a"] == pytest.approx(0.4, abs=0.1)
    assert by_site["b"] == pytest.approx(1.6, abs=0.2)
    ours.loc[rng.random(800) < 0.1, "age"] = np.nan
    new.loc[rng.random(800) < 0.5, "age"] = np.nan
    missing = rhocal.estimate_weights(ours, new)
    assert missing.weights[ours["age"].isna()].mean() > 3 * missing.weights[ours["age"].notna()].mean()
    with pytest.raises(InputError, match="site, clinic is in one of them only"):
        rhocal.estimate_weights(ours, new.rename(columns={"site": "clinic"}))
    left, right, names = feature_matrices([["1", 2], ["2", 3]], [["1", 2], ["1", 9]])  # an array of texts: categories
    assert names == ["feature 0 = 1", "feature 0 = 2", "feature 1 = 2", "feature 1 = 3", "feature 1 = 9"]
    assert left.shape == right.shape == (2, 5)


def test_missing_values_of_pandas_leave_numbers_and_texts_as_they_are():
    age = pd.Series([50, pd.NA, 52, 53], dtype="Int64")
    site = pd.Series(["a", pd.NA, "b", "b"], dtype="string")
    frame = pd.DataFrame({"age": age, "site": site})
    assert feature_matrices(frame, frame)[2] == ["age", "age is missing", "site = b", "site is missing", "site = a"]


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_a_feature_of_two_values(share):
    rng = np.random.default_rng(11)
    x, new = rng.random(1500) < 0.3, rng.random(1500) < share
    found = rhocal.estimate_weights(x, new)
    assert found.is_shifted is (share != 0.3)
    assert len(np.unique(found.weights)) == (1 if share == 0.3 else 2)
    if share != 0.3:
        assert found.auc == pytest.approx(0.65, abs=0.03)  # (1 + 0.6 − 0.3)/2
        assert found.weights[x].mean() == pytest.approx(2, rel=0.1)
        assert np.average(x, weights=found.weights) == pytest.approx(new.mean(), abs=0.01)


def test_categories_that_are_as_frequent_in_both_samples_together():
    """Their standardized indicators hold the same numbers in other columns, and are different rows."""
    site, new = np.repeat(["a", "b"], [300, 700]), np.repeat(["a", "b"], [700, 300])
    found = rhocal.estimate_weights(site, new)
    assert found.is_shifted
    assert found.weights[site == "a"] == pytest.approx(7 / 3, rel=0.05)
    assert found.weights[site == "b"] == pytest.approx(3 / 7, rel=0.05)
    flags, new_flags = (np.column_stack([part == "a", part == "b"]).astype(float) for part in (site, new))
    both = rhocal.estimate_weights(flags, new_flags)
    swapped = rhocal.estimate_weights(flags[::-1, ::-1], new_flags[:, ::-1])
    assert both.weights == pytest.approx(found.weights, rel=1e-6)
    assert swapped.weights[::-1] == pytest.approx(both.weights, rel=1e-6)


def test_features_that_only_name_the_population(cal):
    with pytest.warns(ShiftWarning, match="100 % of the target samples"):
        found = rhocal.estimate_weights(np.array(["a"] * 2000), np.array(["b"] * 300))
    assert found.before.max() < 1000
    with pytest.raises(InputError, match="100 % of the new samples lie where there are hardly any labeled ones"):
        rhocal.reweight(cal, Z, Y, found)
    with pytest.raises(InputError, match="age, size is in one of them only"):
        rhocal.estimate_weights(pd.DataFrame({"age": X[:, 0]}), pd.DataFrame({"size": X[:, 0]}))


def test_another_classifier():
    ensemble = pytest.importorskip("sklearn.ensemble")
    rng = np.random.default_rng(8)
    ring = rng.normal(size=(1500, 2))
    new = rng.normal(size=(3000, 2))
    new = new[np.sin(4 * new[:, 0]) > 0]  # no quadratic form tells these apart
    stripes = rhocal.estimate_weights(
        ring, new, classifier=ensemble.RandomForestClassifier(10, max_depth=6, random_state=0)
    )
    inside = np.sin(4 * ring[:, 0]) > 0
    assert stripes.weights[inside].mean() > 4 * stripes.weights[~inside].mean()
    with pytest.raises(InputError, match="classifier has fit and predict_proba; got str"):
        rhocal.estimate_weights(ring, new, classifier="forest")


def test_populations_that_hardly_overlap(cal):
    with pytest.warns(ShiftWarning, match="lie where there are hardly any source samples"):
        apart = rhocal.estimate_weights(X, X_NEW + 5)
    assert apart.outside > 0.5
    with pytest.raises(
        InputError, match=r"effective samples of 2,000, too few to fit on .*Label samples of the new population"
    ):
        rhocal.reweight(cal, Z, Y, np.r_[np.ones(10), np.full(1990, 1e-9)])
    with pytest.warns(FewSamplesWarning, match="100 effective samples of 2,000"):
        rhocal.reweight(cal, Z, Y, np.r_[np.ones(100), np.full(1900, 1e-9)])


def test_errors(cal, weights):
    with pytest.raises(InputError, match="weights: give"):
        rhocal.reweight(cal, Z, Y)
    with pytest.raises(InputError, match="sample_weight"):
        rhocal.reweight(cal, Z, Y, weights.weights[:-1])
    with pytest.raises(InputError, match="do not vary"):
        rhocal.estimate_weights(np.ones(5), np.ones(5))
    with pytest.raises(InputError, match="infinite"):
        rhocal.estimate_weights(np.array([1, np.inf]), np.ones(2))
    with pytest.raises(InputError, match="at least two samples"):
        rhocal.estimate_weights(np.ones(1), np.ones(5))
    with pytest.raises(InputError, match="one of them only"):
        rhocal.estimate_weights(np.ones((4, 2)), np.ones((4, 3)))
    with pytest.raises(InputError, match="dates"):
        rhocal.estimate_weights(np.array(["2020-01-01", "2021-01-01"], "M8[D]"), np.array(["2020-01-01"] * 2, "M8[D]"))
    with pytest.raises(InputError, match="complex"):
        rhocal.estimate_weights(np.arange(4) * 1j, np.arange(4.0))


def test_small_and_many_features():
    rng = np.random.default_rng(9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n, d in ((2, 1), (7, 3), (300, 120)):
            found = rhocal.estimate_weights(rng.normal(size=(n, d)), rng.normal(size=(n, d)))
            assert np.isfinite(found.weights).all()
            assert found.weights.min() >= 0
