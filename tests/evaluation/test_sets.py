"""Prediction sets: coverage of exchangeable samples to the last count, ties, few samples, and the shapes that data has."""

import numpy as np
import pytest
from scipy.stats import beta

import rhocal
from helpers import synthetic
from rhocal.calibrators.policies.prediction_sets import ALWAYS, SET_SCORES, SetRule
from rhocal.errors import FewSamplesWarning, FileError, InputError
from rhocal.metrics.inference.conformal import conformal_limit, conformal_rank, coverage_range, samples_for
from rhocal.numerics.numpy_ops import NUMPY

pytestmark = pytest.mark.filterwarnings("ignore::rhocal.errors.BoundaryWarning")
Z, Y = synthetic(600, 4, seed=1)
RAPS = {"penalty": 0.1, "n_free": 1}


def sets_of(logits, labels, **options):
    found = rhocal.decide_sets(None, logits, labels, **{"coverage": 0.9, **RAPS, **options})
    probs = np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
    return found, found.policy.decide(probs, np.arange(logits.shape[1])).sets


@pytest.mark.parametrize("m", [1, 2, 3, 7, 64, 130])
def test_sums_above_an_entry_with_ties(m):
    rng = np.random.default_rng(m)
    p = np.concatenate([rng.integers(0, 4, (20, m)) / 8, rng.random((20, m)), np.zeros((1, m))])
    total, count = NUMPY.sum_above(p, m)
    is_larger = p[:, None, :] > p[:, :, None]
    np.testing.assert_array_equal(count, is_larger.sum(axis=2))
    np.testing.assert_allclose(total, np.where(is_larger, p[:, None, :], 0.0).sum(axis=2), atol=1e-13)


def test_the_rank_is_that_of_the_coverage_as_written():
    assert [conformal_rank(99, level) for level in (0.07, 0.29, 0.57, 0.9)] == [7, 29, 57, 90]
    assert [samples_for(level) for level in (0.5, 0.9, 0.95, 0.99)] == [1, 9, 19, 99]
    scores, weights = np.array([3.0, 1.0, 2.0]), np.array([2.0, 5.0, 2.0])
    for level in (0.2, 0.5, 0.6, 0.8, 0.9):
        repeated = conformal_limit(np.repeat(scores, [2, 5, 2]), np.ones(9), level)
        assert conformal_limit(scores, weights, level) == repeated
    assert conformal_limit(scores, weights, 0.91) is None
    assert coverage_range(99, 0.9) == pytest.approx(beta(90, 10).interval(0.95))


@pytest.mark.parametrize("score", SET_SCORES)
@pytest.mark.parametrize("per_class", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_coverage_of_the_sample_left_out(score, per_class, tied):
    """Of n + 1 samples each is left out once: exchangeability itself, so that the mean coverage is exact."""
    z, y = (np.round(Z[:60, :3]) if tied else Z[:60, :3]), np.repeat([0, 1, 2], 20)
    covered = np.zeros(60, bool)
    for k in range(60):
        rest = np.arange(60) != k
        found, _ = sets_of(z[rest], y[rest], score=score, per_class=per_class)
        probs = np.exp(z[k : k + 1] - np.logaddexp.reduce(z[k]))
        covered[k] = found.policy.decide(probs, np.arange(3)).sets[0, y[k]]
    n = 19 if per_class else 59
    assert covered.mean() >= 0.9
    if not tied and (score == "lac" or not per_class):  # without classes whose samples are all on top
        assert covered.mean() == conformal_rank(n, 0.9) / (n + 1)


@pytest.mark.parametrize("score", SET_SCORES)
def test_order_names_and_ties(score):
    z = np.round(Z, 1)
    found, sets = sets_of(z, Y, score=score, per_class=True)
    order = np.random.default_rng(0).permutation(len(z))
    again, shuffled = sets_of(z[order], Y[order], score=score, per_class=True)
    np.testing.assert_array_equal(shuffled, sets[order])
    assert again.evidence == found.evidence
    columns = np.array([2, 0, 3, 1])
    _, renamed = sets_of(z[:, columns], np.argsort(columns)[Y], score=score, per_class=True)
    np.testing.assert_array_equal(renamed, sets[:, columns])
    _, together = sets_of(z, Y, score=score)
    is_tied = z[:, :, None] == z[:, None, :]
    assert (together[:, :, None] == together[:, None, :])[is_tied].all()
    counts = np.random.default_rng(1).integers(0, 3, len(z))
    weighted, _ = sets_of(z, Y, score=score, sample_weight=counts)
    repeated, _ = sets_of(np.repeat(z, counts, axis=0), np.repeat(Y, counts), score=score)
    assert weighted.evidence == repeated.evidence
    assert [row.coverage for row in weighted.classes] == [row.coverage for row in repeated.classes]


def test_sizes_labels_and_actions():
    found, sets = sets_of(Z, Y, score="aps")
    sizes = sets.sum(axis=1)
    assert found.evidence.mean_size == sizes.mean()
    assert found.evidence.median_size == np.median(sizes)
    assert found.evidence.share_empty == 0
    cal = rhocal.TemperatureScaling().fit(Z, Y)
    cal.policy_ = rhocal.decide_sets(cal, Z, Y, coverage=0.5).policy
    decisions = cal.decide(Z)
    assert (decisions.automated == (decisions.sets.sum(axis=1) == 1)).all()
    assert (~decisions.sets.any(axis=1)).any()
    assert (decisions.label == cal.predict(Z)).all()
    rounded = np.round(Z)  # many samples are tied at the limit; single precision must not leave them out
    cal.policy_ = rhocal.decide_sets(cal, rounded, Y, coverage=0.9, score="aps", per_class=True).policy
    np.testing.assert_array_equal(cal.decide(rounded.astype(np.float32)).sets, cal.decide(rounded).sets)
    # With a limit for each class the single class of a set need not be the most probable one.
    rule = SetRule("lac", 0.9, np.array([-0.9, -0.2]), per_class=True)
    chosen = rhocal.Policy("sets", sets=rule).decide(
        np.array([[0.7, 0.3], [0.95, 0.05], [0.89, 0.11]]), np.array([0, 1])
    )
    assert chosen.label.tolist() == [1, 0, 0]
    assert chosen.action.tolist() == ["automate", "automate", "review"]


def test_classes_with_too_few_samples():
    rows = np.flatnonzero((Y != 3) | (np.cumsum(Y == 3) <= 5))
    with pytest.warns(
        FewSamplesWarning, match=r"at least 9 samples of a class. 1 of 5 classes have fewer .*: 4 \(0 samples\)"
    ):
        found = rhocal.decide_sets(None, np.pad(Z, [(0, 0), (0, 1)]), Y, coverage=0.9, per_class=True)
    assert found.classes[4].coverage is None
    with pytest.warns(FewSamplesWarning, match=r"in every set: 3 \(5 samples\)"):
        found, sets = sets_of(Z[rows], Y[rows], score="aps", per_class=True)
    assert sets[:, 3].all()
    assert found.policy.sets.limits[3] == ALWAYS
    assert found.to_dict()["classes"][3]["limit"] is None
    with pytest.raises(InputError, match=r"coverage 0\.999 needs at least 999 samples, and there are 600"):
        sets_of(Z, Y, coverage=0.999)
    with pytest.raises(InputError, match="no class has as many"):
        sets_of(Z, Y, coverage=0.999, per_class=True)


@pytest.mark.parametrize("score", SET_SCORES)
def test_masks_saturation_and_half_precision(score):
    z = Z.copy()
    z[np.arange(600) % 2 == 0, (Y[0] + 1) % 4] = -np.inf
    keep = np.isfinite(z[np.arange(600), Y])
    cal = rhocal.TemperatureScaling().fit(z[keep], Y[keep])
    found = rhocal.decide_sets(cal, z[keep], Y[keep], coverage=0.9, score=score)
    cal.policy_ = found.policy
    assert not cal.decide(z[keep]).sets[np.isneginf(z[keep])].any()
    saturated = (
        1e4 * np.eye(4)[(Y + (np.arange(600) % 5 == 0)) % 4]
    )  # sure, and wrong in a fifth: no limit below all classes
    found, sets = sets_of(saturated, Y, score=score)
    assert sets.all()
    assert found.evidence.observed == 1
    half = Z.astype(np.float16)
    cal = rhocal.TemperatureScaling().fit(half, Y)
    cal.policy_ = rhocal.decide_sets(cal, half, Y, coverage=0.9, score=score).policy
    sets = cal.decide(half).sets
    assert sets[np.arange(600), Y].mean() == cal.policy_.sets.evidence.observed


def test_streams_and_other_weights(tmp_path):
    np.savez(tmp_path / "all.npz", logits=Z, labels=Y)
    cal = rhocal.TemperatureScaling().fit(Z, Y)
    one = rhocal.decide_sets(cal, Z, Y, coverage=0.9, score="aps")
    other = rhocal.decide_sets(cal, rhocal.stream(tmp_path / "all.npz"), coverage=0.9, score="aps")
    assert other.evidence == one.evidence
    with pytest.raises(InputError, match="read the samples twice"):
        rhocal.decide_sets(cal, rhocal.stream(iter([(Z, Y)])), coverage=0.9)
    twice = rhocal.decide_sets(cal, rhocal.stream([(Z[:99], Y[:99]), (Z[99:], Y[99:])]), coverage=0.9)
    assert twice.evidence == rhocal.decide_sets(cal, Z, Y, coverage=0.9).evidence
    with pytest.raises(InputError, match="weights must be whole numbers"):
        rhocal.decide_sets(cal, Z, Y, coverage=0.9, sample_weight=np.full(600, 0.5))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coverage": 90}, "coverage must lie between 0 and 1"),
        ({"coverage": 0.9, "score": "sum"}, "one of lac, aps, raps; got 'sum'"),
        ({"coverage": 0.9, "penalty": -1}, "penalty must be a number from 0"),
        ({"coverage": 0.9, "n_free": 0.5}, "n_free must be a whole number"),
        ({"coverage": "0.9"}, "coverage must be a number between 0 and 1 .* got '0.9'"),
        ({"coverage": 0.9, "penalty": "a"}, "penalty must be a number; got 'a'"),
        ({"coverage": 0.9, "per_class": "x"}, "per_class must be True or False; got 'x'"),
        ({"coverage": 0.9, "per_class": 1}, "per_class must be True or False; got 1"),
        ({"coverage": 0.9, "n_free": "x"}, "n_free must be a whole number of at least 0; got 'x'"),
    ],
)
def test_bad_requests(options, message):
    with pytest.raises(InputError, match=message):
        rhocal.decide_sets(None, Z, Y, **options)


def test_a_class_that_is_covered_less_is_named():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], [1800, 200])
    z = rng.normal(size=(2000, 2)) + 2.0 * np.eye(2)[0]
    found = rhocal.decide_sets(None, z, y, coverage=0.9)
    assert [row.name for row in found.below] == [1]
    assert "clearly below 90 % (beyond chance): 1 has " in found.note
    assert not rhocal.decide_sets(None, z, y, coverage=0.9, per_class=True).note
    assert "exchangeable" in found.guarantee


def test_ties_at_the_limit_are_mentioned():
    z = 3 * np.eye(2)[np.zeros(1000, int)]  # the first class is right in 97 % of cases, above the level
    y = (np.arange(1000) % 100 >= 97).astype(int)
    found = rhocal.decide_sets(None, z, y, coverage=0.9, score="aps")
    assert found.is_tied
    assert found.evidence.observed == 0.97
    assert found.evidence.low < 0.9
    assert found.evidence.high > 0.97
    assert found.summary()["expected coverage"] == "at least 90 % (scores are tied)"
    assert "(more where scores are tied, as here)" in found.guarantee
    assert not rhocal.decide_sets(None, Z, Y, coverage=0.9).is_tied


def test_sets_in_artifacts(tmp_path):
    from rhocal.data.storage.container import read_tensors, write_tensors

    cal, path = rhocal.TemperatureScaling().fit(Z, Y), tmp_path / "cal.safetensors"
    cal.policy_ = rhocal.decide_sets(cal, Z, Y, coverage=0.9, score="raps", per_class=True).policy
    cal.save(path)
    loaded = rhocal.load(path)
    np.testing.assert_array_equal(loaded.decide(Z).sets, cal.decide(Z).sets)
    assert loaded.policy_.sets.evidence == cal.policy_.sets.evidence
    sets = cal.policy_.sets
    card, tensors = read_tensors(path, "rhocal-calibrator", 2, what="calibrator")
    damage = [
        {"score": "sum"}, {"coverage": 2.0}, {"coverage": "0.9"}, {"n_free": -1}, {"per_class": 1}, {"evidence": 3},
        {"penalty": float("nan")}, {"more": 1},
    ]  # fmt: skip
    for change in damage:
        policy = {**card["policy"], "sets": {**card["policy"]["sets"], **change}}
        write_tensors(path, "rhocal-calibrator", 2, {**card, "policy": policy}, tensors)
        with pytest.raises(FileError, match="damaged"):
            rhocal.load(path)
    for limits in (sets.limits[:2], sets.limits * np.nan, sets.limits - 3):
        write_tensors(path, "rhocal-calibrator", 2, card, {**tensors, "policy.set_limits": limits})
        with pytest.raises(FileError, match="limits of prediction sets"):
            rhocal.load(path)
