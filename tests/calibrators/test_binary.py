"""Binary maps one-vs-rest and for the top label: values by hand, formulas evaluated another way, edges."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import CubicSpline
from scipy.special import gammaln
from sklearn.isotonic import IsotonicRegression as SklearnIsotonic

import rhocal
from helpers import examples, fit_map, synthetic
from rhocal.calibrators.binary.binary_map import Lines, Outcomes, one_sided_factor, smoothed
from rhocal.calibrators.binary.class_scores import ClassScores
from rhocal.calibrators.binary.formulas import one_sided
from rhocal.calibrators.binary.one_vs_rest import SCOPES
from rhocal.calibrators.binary.spline import natural_spline
from rhocal.calibrators.binary.venn_abers import with_a_hit
from rhocal.errors import FewSamplesWarning, InputError
from rhocal.numerics.numpy_ops import NUMPY
from rhocal.numerics.special import expit, log_gamma, softmax

BINARY = ["platt", "beta", "isotonic", "centered-isotonic", "histogram-binning", "bbq", "spline", "venn-abers"]
each = pytest.mark.parametrize("name", BINARY)
each_scope = pytest.mark.parametrize("scope", SCOPES)


def of(score, hit, weight=None, n_classes=2):
    score = np.asarray(score, float)
    return Outcomes.from_samples(
        score, np.asarray(hit, bool), np.ones(len(score)) if weight is None else weight, n_classes
    )


def binary(name, probs, hits, **options):
    """The fitted map of p(class 1), as a function."""
    probs = np.asarray(probs, float)
    cal = rhocal.calibrator(name, **({"scope": "one-vs-rest"} | options))
    cal.fit(np.stack([1 - probs, probs], axis=1), np.asarray(hits, int), kind="probs")
    return lambda p: cal.predict_proba(np.stack([1 - np.asarray(p), np.asarray(p)], axis=1))[:, 1]


# Scores -----------------------------------------------------------------------------------------------------------------


def test_log_odds_do_not_round_away():
    z = np.array([[60.0, 0.0, 0.0], [1.0, 2.0, 3.0], [-800.0, 0.0, 800.0]])
    scores = ClassScores.from_logits(z, "log-odds")
    np.testing.assert_allclose(scores.of_class(0)[0], 60 - np.log(2), rtol=1e-12)  # p itself rounds to 1
    np.testing.assert_allclose(scores.of_class(2)[2], 800, rtol=1e-12)
    np.testing.assert_allclose(scores.of_class(0)[2], -1600, rtol=1e-12)
    p = softmax(z[1:2])
    np.testing.assert_allclose([scores.of_class(c)[1] for c in range(3)], np.log(p / (1 - p))[0], rtol=1e-12)


def test_equal_probabilities_are_equal_scores():
    rng = np.random.default_rng(0)
    p = np.round(softmax(rng.normal(size=(2000, 4))), 2) + 0.0025
    p /= p.sum(axis=1, keepdims=True)
    moved = np.log(p) + rng.normal(size=(2000, 1)) * 30
    for column in range(4):
        different = len(np.unique(np.round(p[:, column], 10)))
        assert len(np.unique(ClassScores.from_logits(moved, "probs").of_class(column))) <= different + 2


def test_log_gamma():
    x = np.r_[1e-12, 1e-3, np.linspace(0.1, 30, 300), 1e4]
    np.testing.assert_allclose(log_gamma(x), gammaln(x), rtol=1e-12, atol=1e-12)


# Maps by hand -----------------------------------------------------------------------------------------------------------


def test_platt_by_hand():
    """Two scores ±s, 3 of 4 right on each side: N₊ = N₋ = 4, targets 5/6 and 1/6, mean target ¾·5/6 + ¼·1/6 = 2/3."""
    cal = rhocal.PlattScaling().fit(np.array([2.0] * 4 + [-2.0] * 4), [1, 1, 1, 0, 0, 0, 0, 1])
    np.testing.assert_allclose([cal.slope_[0], cal.intercept_[0]], [np.log(2) / 2, 0], atol=1e-9)


def test_platt_stays_finite_where_classes_are_separated():
    """Targets 4/5 and 1/5 for three of each: sigmoid(a) = 4/5 at s = 1."""
    cal = rhocal.PlattScaling().fit(np.array([1.0] * 3 + [-1.0] * 3), [1, 1, 1, 0, 0, 0])
    np.testing.assert_allclose(cal.slope_[0], np.log(4), rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
def test_platt_at_any_scale_of_the_logits(scale):
    logits, labels = synthetic(300, 3)
    z = np.stack([-logits[:, 0], logits[:, 0]], axis=1)
    a = rhocal.PlattScaling().fit(z, labels > 0).predict_proba(z)
    b = rhocal.PlattScaling().fit(z * scale, labels > 0).predict_proba(z * scale)
    np.testing.assert_allclose(a, b, atol=1e-6)


def test_beta_finds_its_own_parameters():
    rng = np.random.default_rng(0)
    p = rng.uniform(0.02, 0.98, 200_000)
    true = expit(0.5 * np.log(p) - 2 * np.log1p(-p) - 0.7)
    cal = rhocal.BetaCalibration().fit(np.stack([1 - p, p], axis=1), rng.random(len(p)) < true, kind="probs")
    np.testing.assert_allclose(cal.predict_proba(np.stack([1 - p, p], axis=1))[:, 1], true, atol=0.01)
    np.testing.assert_allclose([cal.a_[0], cal.b_[0], cal.c_[0]], [0.5, 2, -0.7], atol=0.1)
    np.testing.assert_allclose(cal.predict_proba([[1 - cal.m_[0], cal.m_[0]]]), 0.5, atol=1e-9)


def test_beta_keeps_a_and_b_from_being_negative():
    """A truth with b < 0: the optimum has b = 0, and both a and c are those of the fit without b."""
    rng = np.random.default_rng(1)
    p = rng.uniform(0.01, 0.99, 20_000)
    hits = rng.random(len(p)) < expit(1.5 * np.log(p) + 0.4 * np.log1p(-p) + 1)
    cal = rhocal.BetaCalibration(ridge=0).fit(np.stack([1 - p, p], axis=1), hits, kind="probs")
    assert cal.b_[0] == 0
    f = cal.a_[0] * np.log(p) + cal.c_[0]
    residual = expit(f) - hits
    assert abs(residual.mean()) < 1e-7
    assert abs((residual * np.log(p)).mean()) < 1e-7
    assert (residual * -np.log1p(-p)).mean() > 0  # more b would make it worse


@pytest.mark.filterwarnings("ignore::rhocal.errors.BoundaryWarning")
def test_beta_of_separated_classes_is_held_by_the_ridge():
    p = binary("beta", [0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1])([0.1, 0.9])
    assert 0.001 < p[0] < 0.2
    assert 0.8 < p[1] < 0.999


def test_isotonic_by_hand():
    """Scores .1 .2 .3 .4 .5 with hits 0 1 0 1 1: blocks 0 | ½ ½ | 1 1; the ends become 1/3 (n = 1) and 3/4 (n = 2)."""
    score, hits = [0.1, 0.2, 0.3, 0.4, 0.5], [0, 1, 0, 1, 1]
    plain = binary("isotonic", score, hits, smoothing=0)
    np.testing.assert_allclose(plain([0.2, 0.25, 0.3, 0.45]), [0.5, 0.5, 0.5, 1], atol=1e-9)
    np.testing.assert_allclose(plain([0.05, 0.15, 0.35, 0.9]), [0, 0.25, 0.75, 1], atol=1e-9)
    np.testing.assert_allclose(binary("isotonic", score, hits)([0.05, 0.25, 0.9]), [1 / 3, 0.5, 3 / 4], atol=1e-9)
    centred = binary("centered-isotonic", score, hits, smoothing=0)  # knots (.1, 0), (.25, ½), (.45, 1)
    np.testing.assert_allclose(centred([0.1, 0.175, 0.25, 0.35, 0.45]), [0, 0.25, 0.5, 0.75, 1], atol=1e-9)


@pytest.mark.parametrize("name", ["isotonic", "centered-isotonic"])
@pytest.mark.parametrize("gap", [1e-6, 1e-9, 1e-11, 2.0**-42])
def test_saturated_scores_keep_their_shares(name, gap):
    """Naive Bayes gives most samples exactly 1 and others nearly 1; a line that must not be steep would mix both."""
    score = np.repeat([0.2, 1 - gap, 1.0], 10)
    hits = np.r_[np.ones(2), np.zeros(8), np.ones(5), np.zeros(5), np.ones(9), np.zeros(1)]
    fitted = binary(name, score, hits, smoothing=0)
    for step in (-1e-15, 0, 1e-15):  # rounding of the score decides nothing
        np.testing.assert_allclose(fitted(np.minimum(score[::10] + step, 1)), [0.2, 0.5, 0.9], atol=1e-9)
    of_artifact = Lines(score[::10], np.array([0.2, 0.5, 0.9]))  # as earlier versions wrote it
    np.testing.assert_allclose(of_artifact(score[::10]), [0.2, 0.5, 0.9], atol=1e-9)


def test_a_smoothed_block_does_not_overtake_its_neighbour():
    """0 of 1, then 1 of 10: the first becomes 1/10, not 1/3."""
    score = np.r_[0.1, np.full(10, 0.2), 0.3]
    np.testing.assert_allclose(binary("isotonic", score, np.r_[0, 1, np.zeros(9), 1])([0.1, 0.2]), 0.1, atol=1e-9)


def test_equal_mass_bins_by_hand():
    f = binary("histogram-binning", [0.1, 0.2, 0.3, 0.6, 0.7, 0.9], [0, 0, 1, 1, 1, 0], n_bins=2, binning="mass")
    np.testing.assert_allclose(f([0.01, 0.44, 0.46, 0.99]), [1 / 3, 1 / 3, 2 / 3, 2 / 3])  # the edge is .45


def test_smoothing_of_many_classes_stays_small_together():
    """1,000 classes without a hit in 98 samples get 2/100 of a row together, as much as one of two classes alone."""
    np.testing.assert_allclose(1000 * smoothed(np.zeros(1), 98, 1000, 2.0), 2 / 100)
    np.testing.assert_allclose(smoothed(np.ones(1), 98, 1000, 2.0), (98 + 2 / 1000) / 100)


def test_bbq_is_the_formula_of_the_paper():
    """Every binning's evidence and bins again, sample by sample, with SciPy's log-gamma; N′ = 2."""
    rng = np.random.default_rng(0)
    p = np.sort(rng.random(400))
    hits = rng.random(400) < p**2
    scores, tables = [], []
    for b in range(1, 75):  # ∛400 / 10 = .7 and min(80, ⌈10·∛400⌉ = 74)
        bins = np.floor(b * (np.arange(400) + 0.5) / 400).astype(int)
        edges = np.r_[0, [(p[bins < k].max() + p[bins >= k].min()) / 2 for k in range(1, b)], 1]
        middle, nu = (edges[1:] + edges[:-1]) / 2, 2 / b
        n, h = np.bincount(bins), np.bincount(bins, hits)
        alpha, beta = nu * middle, nu * (1 - middle)
        scores.append(
            (
                gammaln(nu)
                - gammaln(n + nu)
                + gammaln(h + alpha)
                - gammaln(alpha)
                + gammaln(n - h + beta)
                - gammaln(beta)
            ).sum()
        )
        tables.append(((h + alpha) / (n + nu))[bins])
    share = np.exp(scores - np.max(scores))
    np.testing.assert_allclose(binary("bbq", p, hits, smoothing=0)(p), share @ tables / share.sum(), atol=1e-5)


def test_natural_spline_is_scipys():
    knots, t = np.linspace(0, 1, 7), np.linspace(0, 1, 50)
    y = np.random.default_rng(0).normal(size=7)
    peer = CubicSpline(knots, y, bc_type="natural")
    values, slopes = natural_spline(7, t)
    np.testing.assert_allclose(values @ y, peer(t), atol=1e-12)
    np.testing.assert_allclose(slopes @ y, peer(t, 1), atol=1e-11)


def test_spline_finds_the_truth():
    rng = np.random.default_rng(0)
    p = rng.random(50_000)
    cal = rhocal.SplineCalibration(scope="one-vs-rest")
    cal.fit(np.stack([1 - p, p], axis=1), rng.random(len(p)) < p**2, kind="probs")
    assert len(cal.solution_.trials) == 6
    at = np.linspace(0.05, 0.95, 30)
    np.testing.assert_allclose(cal.predict_proba(np.stack([1 - at, at], axis=1))[:, 1], at**2, atol=0.02)


@given(st.integers(0, 10**6))
@examples(60)
def test_venn_abers_is_isotonic_regression_with_one_more_sample(seed):
    rng = np.random.default_rng(seed)
    n = rng.integers(2, 40)
    score = np.round(rng.normal(size=n), rng.integers(0, 3))
    hits, weight = rng.random(n) < expit(rng.normal() * score), rng.integers(1, 4, n).astype(float)
    data = of(score, hits, weight)
    got = with_a_hit(data.weight, data.hits)
    for x, p1 in zip(data.score, got, strict=True):
        again = SklearnIsotonic().fit(np.r_[score, x], np.r_[hits, True].astype(float), np.r_[weight, 1])
        np.testing.assert_allclose(p1, again.predict([x])[0], atol=1e-12)


def test_venn_abers_interval():
    logits, labels = synthetic(400, 3)
    cal = rhocal.VennAbers().fit(logits, labels)
    low, high = cal.interval(logits)
    assert low.shape == high.shape == (400, 3)
    assert (low <= high).all()
    p = high / (1 - low + high)
    np.testing.assert_allclose(cal.predict_proba(logits), p / p.sum(axis=1, keepdims=True), atol=1e-9)
    low, high = rhocal.VennAbers(scope="top").fit(logits, labels).interval(logits)
    assert low.shape == high.shape == (400,)
    score = logits[:, 1] - logits[:, 0]
    low, high = rhocal.VennAbers().fit(score, labels > 0).interval(score)
    np.testing.assert_allclose(low[:, 0], 1 - high[:, 1])


def test_venn_abers_interval_of_an_absent_class():
    logits, labels = synthetic(400, 3)
    cal = rhocal.VennAbers().fit(logits[labels != 2], labels[labels != 2])
    low, high = cal.interval(logits)
    np.testing.assert_array_equal(low[:, 2], high[:, 2])


# Many classes -----------------------------------------------------------------------------------------------------------


def test_a_class_that_never_came_by_hand():
    """The network expected 3 of it: its probabilities are divided by 4. Always: 1 − p is divided by 1 + (expected misses)."""
    p = np.array([0.5, 0.5, 0.25, 0.75, 1.0])
    never = one_sided_factor(np.unique(p), of(p, [0] * 5))
    np.testing.assert_allclose(one_sided(NUMPY, never, p), p / 4)
    always = one_sided_factor(np.unique(p), of(p, [1] * 5))
    np.testing.assert_allclose(one_sided(NUMPY, always, p), 1 - (1 - p) / 3)


@each
def test_a_class_that_never_came_keeps_its_place(name):
    logits, labels = synthetic(600, 4)
    cal = rhocal.calibrator(name, scope="one-vs-rest").fit(logits[labels != 2], labels[labels != 2])
    given = softmax(logits[labels != 2])[:, 2]
    assert given.sum() > 50
    np.testing.assert_allclose(cal.one_sided_[2], 1 / (1 + given.sum()))
    assert (cal.predict_proba(logits) > 0).all()


@each
@each_scope
def test_exchanging_two_classes(name, scope):
    logits, labels = synthetic(300, 2, seed=4)
    cal = rhocal.calibrator(name, scope=scope)
    a = cal.fit(logits, labels).predict_proba(logits)
    b = cal.fit(logits[:, ::-1], 1 - labels).predict_proba(logits[:, ::-1])
    np.testing.assert_allclose(a, b[:, ::-1], atol=2e-6)


@each
@each_scope
def test_weights_order_and_artifact_in_every_scope(name, scope, tmp_path):
    logits, labels = synthetic(200, 3, seed=5)
    times = np.random.default_rng(0).integers(0, 3, 200)
    cal = rhocal.calibrator(name, scope=scope).fit(logits, labels, times)
    probs = cal.predict_proba(logits)
    order = np.random.default_rng(1).permutation(times.sum())
    again = rhocal.calibrator(name, scope=scope)
    again.fit(np.repeat(logits, times, axis=0)[order], np.repeat(labels, times)[order])
    np.testing.assert_allclose(probs, again.predict_proba(logits), atol=2e-6)
    cal.save(tmp_path / "cal.safetensors")
    np.testing.assert_array_equal(rhocal.load(tmp_path / "cal.safetensors").predict_proba(logits), probs)


@each
@each_scope
@pytest.mark.parametrize("label", [0, 1])
def test_one_class_only(name, scope, label):
    logits, _ = synthetic(50, 2)
    probs = rhocal.calibrator(name, scope=scope).fit(logits, np.full(50, label)).predict_proba(logits)
    assert np.isfinite(np.log(probs)).all()


@each
def test_capped_keeps_the_decision_where_it_can(name):
    """A network far too sure of itself: the map pulls confidences below what is left for the second class."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(2000, 10)).astype(np.float32)
    logits[:, :2] += 6
    labels = np.where(rng.random(2000) < 0.4, logits.argmax(axis=1), rng.integers(0, 10, 2000))
    top = logits.argmax(axis=1)
    capped = rhocal.calibrator(name, scope="top-capped").fit(logits, labels)
    free = rhocal.calibrator(name, scope="top").fit(logits, labels)
    p, q = capped.predict_proba(logits), free.predict_proba(logits)
    assert (free.predict(logits) != top).sum() > 100
    confidence = q[np.arange(2000), top]
    np.testing.assert_allclose(p[np.arange(2000), top], confidence, rtol=1e-5)
    np.testing.assert_array_equal(capped.predict(logits)[confidence > 0.11], top[confidence > 0.11])
    order = np.argsort(logits, axis=1, kind="stable")
    assert (np.diff(np.take_along_axis(p, order, axis=1), axis=1)[confidence > 0.11] > -1e-6).all()


def test_few_samples_a_class_are_said():
    logits, labels = synthetic(60, 20)
    with pytest.warns(FewSamplesWarning, match="3 samples per class.*top-capped") as caught:
        rhocal.IsotonicRegression().fit(logits, labels)
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {"scope": "all"}) for name in BINARY),
        *((name, {"smoothing": -1.0}) for name in ("isotonic", "histogram-binning", "bbq", "spline")),
        ("histogram-binning", {"binning": "depth"}),
        ("beta", {"ridge": -1.0}),
        ("bbq", {"prior": 0.0}),
        ("spline", {"n_knots": 1}),
        ("spline", {"n_knots": (4, 2.5)}),
        ("spline", {"n_folds": 1}),
    ],
)
def test_bad_options(name, options):
    with pytest.raises(InputError, match=next(iter(options))):
        rhocal.calibrator(name, **options).fit(*synthetic(60, 3))


@pytest.mark.filterwarnings("ignore::rhocal.errors.BoundaryWarning")
def test_without_smoothing_a_surprise_is_as_bad_as_it_can_be():
    """The user may ask for zeros: they are written as 1e-30, so that logits stay finite."""
    p = binary("isotonic", [0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1], smoothing=0)([0.1])[0]
    assert math.isclose(p, 1e-30, rel_tol=1e-6)


@pytest.mark.parametrize("kind", ["probs", "logits"])
@pytest.mark.parametrize("method", ["isotonic", "centered-isotonic", "venn-abers", "bbq", "histogram-binning"])
def test_tied_scores_have_one_probability_in_both_precisions(method, kind):
    """Shares of votes are other numbers in float32 than in float64: venn-abers differed by up to .1."""
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 101, 2000) / 100 if kind == "probs" else rng.integers(-30, 31, 2000) / 10
    labels = (rng.random(2000) < (scores**2 if kind == "probs" else 1 / (1 + np.exp(-2 * scores)))).astype(int)
    for used in (scores, scores.astype(np.float32)):
        cal = fit_map(rhocal.calibrator(method), used, labels, kind=kind)
        double, single = (cal.predict_proba(scores.astype(dtype)) for dtype in (np.float64, np.float32))
        np.testing.assert_allclose(single, double, rtol=0, atol=1e-6)


@pytest.mark.parametrize("n_classes", [3, 4])
def test_votes_for_many_classes_have_one_venn_abers_probability_in_both_precisions(n_classes):
    """Log-odds of .5 are 0 or 1e-16, which are one score and no gap."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, n_classes, 300)
    votes = np.array([rng.multinomial(10, p) for p in (np.eye(n_classes)[labels] + 0.3) / (1 + 0.3 * n_classes)]) / 10
    cal = rhocal.VennAbers().fit(votes, labels, kind="probs")
    double, single = (cal.predict_proba(votes.astype(dtype)) for dtype in (np.float64, np.float32))
    np.testing.assert_allclose(single, double, rtol=0, atol=1e-6)
