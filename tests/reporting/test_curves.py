"""Curves are values: each is checked by hand or against the metric it pictures."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import rhocal
from helpers import examples, synthetic
from rhocal import metrics
from rhocal.data.predictions import Predictions
from rhocal.data.spec import InputSpec
from rhocal.errors import InputError
from rhocal.metrics.scored import Scored
from rhocal.numerics.bins import perfect_error
from rhocal.reporting import curves

LOGITS = {"kind": "logits"}


@examples(15)
@given(st.integers(1, 300), st.integers(2, 6), st.integers(0, 10**6), st.booleans())
def test_fine_bins_join_to_every_number_of_bins(n, m, seed, coarse):
    """For 5 to 50 bins of equal width and of equal mass: ECE and floor as computed from the samples."""
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.ones(m), n)
    if coarse:  # ties, and values on edges
        probs = np.round(probs * 20) + 1e-3
        probs /= probs.sum(axis=1, keepdims=True)
    labels, weights = rng.integers(0, m, n), rng.integers(1, 4, n)
    spec = {"sample_weight": weights}
    scored = Scored.from_predictions(Predictions.from_arrays(probs, labels, weights=weights, spec=InputSpec("probs")))
    fine = curves.fine_bins(scored)
    for n_bins in range(5, 51):
        assert fine.width.rebin(n_bins).error(1) == pytest.approx(metrics.ece(probs, labels, n_bins=n_bins, **spec))
        expected = metrics.adaptive_ece(probs, labels, n_bins=n_bins, **spec)
        assert fine.mass.rebin(n_bins).error(1) == pytest.approx(expected)
        floor = perfect_error(scored.confidence, scored.weights, n_bins)
        assert fine.width.floor(n_bins) == pytest.approx(floor)


def test_reliability_by_hand():
    """Confidences .95 (right) and 1.0 (wrong) share the last of ten bins; .55 (right) is alone."""
    probs = [[0.05, 0.95], [0.0, 1.0], [0.45, 0.55]]
    found = curves.reliability(probs, [1, 0, 1])
    assert found.low.tolist() == [0.5, 0.9]
    assert found.high.tolist() == [0.6, 1.0]
    assert found.weight.tolist() == [1, 2]
    assert found.confidence == pytest.approx([0.55, 0.975])
    assert found.accuracy.tolist() == [1, 0.5]
    assert found.ece == pytest.approx((0.45 + 2 * 0.475) / 3)
    assert found.mean_accuracy == pytest.approx(2 / 3)
    assert (found.band_low[0], found.band_high[0]) == (0, 1)  # one sample is either right or wrong
    assert (found.band_low[1], found.band_high[1]) == (0.5, 1)  # 1.0 is always right
    assert found.interval_low[0] == found.interval_high[0] == 1


def test_equal_mass_reliability():
    probs = np.stack([[0.4, 0.3, 0.2, 0.1], [0.6, 0.7, 0.8, 0.9]], axis=1)
    found = curves.reliability(probs, [1, 1, 0, 1], n_bins=2, scheme="mass")
    assert found.low == pytest.approx([0.6, 0.8])
    assert found.high == pytest.approx([0.7, 0.9])
    assert found.accuracy.tolist() == [1, 0.5]
    assert found.ece == pytest.approx(metrics.adaptive_ece(probs, [1, 1, 0, 1], n_bins=2))


@pytest.mark.parametrize("scheme", ["width", "mass"])
def test_band_holds_a_perfect_model(scheme):
    inside = []
    for seed in range(20):
        logits, labels = synthetic(2000, 4, scale=1, seed=seed)  # labels are drawn from these very probabilities
        found = curves.reliability(logits, labels, scheme=scheme, seed=seed, n_replicates=400, **LOGITS)
        inside.append(np.mean((found.band_low <= found.accuracy) & (found.accuracy <= found.band_high)))
        assert found.ece == pytest.approx(
            metrics.METRICS["ece" if scheme == "width" else "adaptive_ece"](logits, labels, **LOGITS)
        )
    assert 0.91 <= np.mean(inside) <= 0.99  # 95 % of about 170 bins


def test_weights_are_repetitions():
    logits, labels = synthetic(200, 3)
    times = np.random.default_rng(0).integers(1, 4, 200)
    rows = np.repeat(np.arange(200), times)
    a = curves.reliability(logits, labels, sample_weight=times, **LOGITS)
    b = curves.reliability(logits[rows], labels[rows], **LOGITS)
    for name in vars(a):
        assert vars(a)[name] == pytest.approx(vars(b)[name]) if name != "scheme" else a.scheme == b.scheme


def test_bootstrap_interval_is_that_of_resampled_samples():
    logits, labels = synthetic(800, 3, seed=5)
    found = curves.reliability(logits, labels, n_bins=5, **LOGITS)
    scored = Scored.from_predictions(Predictions.from_arrays(logits, labels))
    rng = np.random.default_rng(1)
    inside = (scored.confidence > 0.8) & (scored.confidence <= 1)
    drawn = [scored.correct[rows][inside[rows]].mean() for rows in rng.integers(0, 800, (1000, 800))]
    low, high = np.quantile(drawn, [0.025, 0.975])
    assert found.interval_low[-1] == pytest.approx(low, abs=0.008)
    assert found.interval_high[-1] == pytest.approx(high, abs=0.008)


@pytest.mark.parametrize("smoother", ["kernel", "isotonic"])
def test_smooth_reliability(smoother):
    logits, labels = synthetic(20_000, 4, scale=1)
    found = curves.smooth_reliability(logits, labels, smoother=smoother, n_replicates=50, **LOGITS)
    assert np.abs(found.accuracy - found.confidence).mean() < 0.02  # a calibrated model
    assert ((found.low <= found.accuracy + 1e-9) & (found.accuracy <= found.high + 1e-9)).mean() > 0.95
    sure = curves.smooth_reliability(3 * logits, labels, smoother=smoother, n_replicates=50, **LOGITS)
    assert sure.error == pytest.approx(metrics.smooth_ece(3 * logits, labels, **LOGITS), abs=0.01)
    assert sure.error > 0.1
    if smoother == "isotonic":
        assert (np.diff(sure.accuracy) >= -1e-12).all()
    spread = np.diff(found.confidence).mean() * found.density.sum()
    assert spread == pytest.approx(1, abs=0.05)


def test_kernel_by_hand():
    """Two samples at .4 (wrong) and .6 (right), bandwidth .1: half way the weights are equal."""
    found = curves.smooth_reliability(
        [[0.4, 0.6]] * 2 + [[0.45, 0.55]] * 2, [1, 1, 0, 0], bandwidth=0.1, n_replicates=5
    )
    w = np.exp(-0.5 * (0.05 / 0.1) ** 2)
    assert found.accuracy[0] == pytest.approx(w / (1 + w), abs=1e-6)
    assert found.accuracy[-1] == pytest.approx(1 / (1 + w), abs=1e-6)


def test_histogram_by_hand():
    found = curves.histogram([[0.05, 0.95], [0.0, 1.0], [0.45, 0.55]], [1, 0, 1])
    assert found.weight.tolist() == [0] * 5 + [1, 0, 0, 0, 2]
    assert found.share[-1] == pytest.approx(2 / 3)
    assert found.mean_confidence == pytest.approx(2.5 / 3)


def test_risk_coverage_by_hand():
    probs = [[0.1, 0.9], [0.2, 0.8], [0.3, 0.7], [0.4, 0.6]]
    found = curves.risk_coverage(probs, [1, 0, 1, 1])
    assert found.coverage == pytest.approx([0.25, 0.5, 0.75, 1])
    assert found.risk == pytest.approx([0, 1 / 2, 1 / 3, 1 / 4])
    assert found.confidence == pytest.approx([0.9, 0.8, 0.7, 0.6])
    assert found.area == metrics.aurc(probs, [1, 0, 1, 1])
    logits, labels = synthetic(5000, 3)
    many = curves.risk_coverage(logits, labels, **LOGITS)
    assert len(many.risk) <= 200
    assert many.risk[-1] == pytest.approx(1 - metrics.accuracy(logits, labels, **LOGITS))


def test_class_heat():
    logits, labels = synthetic(500, 6)
    names = np.array(["a", "b", "c", "d", "e", "f"])
    found = curves.class_heat(logits, labels, classes=names, most=4, **LOGITS)
    errors = metrics.class_errors(logits, labels, **LOGITS)
    assert found.classes.tolist() == names[np.argsort(-errors)][:4].tolist()
    assert found.error == pytest.approx(np.sort(errors)[::-1][:4])
    share = found.weight / found.weight.sum(axis=1, keepdims=True)
    assert np.nansum(share * np.abs(found.gap), axis=1) == pytest.approx(found.error)  # the gaps make the error
    assert found.n_classes == 6


def test_temperature_map_is_the_formula():
    logits, labels = synthetic(1000, 4)
    cal = rhocal.RhoNormScaling(2.0).fit(logits, labels)
    found = curves.temperature_map(cal, logits)
    assert len(found.temperature) == 400
    assert found.temperature == pytest.approx(cal.gamma_ * found.amplitude + cal.beta_)
    assert (np.diff(found.amplitude) >= 0).all()
    with pytest.raises(InputError, match="no temperature per sample"):
        curves.temperature_map(rhocal.VectorScaling().fit(logits, labels), logits)


def test_confidence_map():
    logits, labels = synthetic(300, 4)
    cal = rhocal.TemperatureScaling().fit(logits, labels)
    found = curves.confidence_map(cal, logits)
    probs = cal.predict_proba(logits)
    assert found.share_kept == 1
    assert np.sort(found.calibrated) == pytest.approx(np.sort(probs.max(axis=1)))
    again = curves.confidence_map(cal, logits[::-1])
    assert (again.raw == found.raw).all()  # whatever the order of samples
    vector = rhocal.VectorScaling().fit(logits, labels)
    same = vector.predict(logits) == logits.argmax(axis=1)
    assert curves.confidence_map(vector, logits).share_kept == pytest.approx(same.mean())


def test_rho_grid_and_alpha_curve():
    logits, labels = synthetic(500, 4)
    cal = rhocal.RhoNormScaling(alpha="auto").fit(logits, labels)
    grid, alpha = curves.rho_grid(cal), curves.alpha_curve(cal)
    assert grid.chosen == cal.rho_
    assert grid.ece[grid.rho == cal.rho_][0] == grid.ece.min()
    assert grid.rho.tolist() == [1, 1.25, 1.5, 1.75, 2, 2.25, 2.5, 2.75, 3]
    assert alpha.alpha.tolist() == [0, 1e-4, 1e-3, 1e-2, 1e-1, 1]
    assert alpha.ece.min() == grid.ece.min()
    with pytest.raises(InputError, match="tried no rho"):
        curves.rho_grid(rhocal.TemperatureScaling().fit(logits, labels))


def test_migration_by_hand():
    raw = [[0.05, 0.95], [0.05, 0.95], [0.45, 0.55]]
    after = [[0.15, 0.85], [0.35, 0.65], [0.45, 0.55]]
    found = curves.migration(raw, after)
    assert found.low.tolist() == [0.5, 0.9]
    assert found.n_samples.tolist() == [1, 2]
    assert found.raw == pytest.approx([0.55, 0.95])
    assert found.quantiles[1, 2] == pytest.approx(0.75)
    assert found.shares[1].tolist() == [0, 0, 0, 0, 0, 0, 0.5, 0, 0.5, 0]
    with pytest.raises(InputError, match="the same samples"):
        curves.migration(raw, after[:2])


ROWS = [
    {"method": m, "network": n, "n_calibration": t, "ece": e, "nll": s}
    for m, n, t, e, s in [
        ("a", "x", "10", 0.1, 1.0), ("a", "y", "10", 0.3, 1.0), ("b", "x", "10", 0.1, 2.0), ("b", "y", "10", 0.1, 2.0),
        ("c", "x", "10", 0.4, 3.0), ("c", "y", "10", 0.2, 3.0), ("a", "x", "20", 0.0, 0.5),
    ]
]  # fmt: skip


def test_pareto_by_hand():
    found = curves.pareto(ROWS[:6])
    assert found.methods == ("a", "b", "c")
    assert found.y == pytest.approx([0.2, 0.1, 0.3])
    assert found.best == (True, True, False)


def test_learning_curve_by_hand():
    found = curves.learning_curve(ROWS)
    assert found.size.tolist() == [10]  # at 20 network y is missing
    assert found.mean[:, 0] == pytest.approx([0.2, 0.1, 0.3])
    assert found.error[0, 0] == pytest.approx(0.1)  # sd of .1 and .3 over sqrt(2)
    with pytest.raises(InputError, match="no column 'brier'"):
        curves.learning_curve(ROWS, metric="brier")
    with pytest.raises(InputError, match="rows is empty"):
        curves.pareto([])


def test_amplitudes_by_hand():
    found = curves.amplitudes("run", [[[3.0, 4.0], [0.0, 0.0]], [[6.0, 8.0], [0.0, 0.0]]])
    assert found.mean == pytest.approx([1.25, 2.5])  # ‖z‖₂ / m, mean over two samples
    assert found.confidence[0] == pytest.approx((1 / (1 + np.exp(-1)) + 0.5) / 2)
    assert found.amplitude_share.sum() == pytest.approx(1)
    assert found.epoch.tolist() == [1, 2]
    assert found.confidence_share.tolist()[4:6] == [0, 0.5]
    with pytest.raises(InputError, match="one for each"):
        curves.amplitudes("run", [[[1.0, 2.0]]], epochs=[1, 2])


def test_bad_options():
    logits, labels = synthetic(20, 3)
    with pytest.raises(InputError, match="scheme is one of"):
        curves.reliability(logits, labels, scheme="depth", **LOGITS)
    with pytest.raises(InputError, match="n_bins must be"):
        curves.histogram(logits, labels, n_bins=0, **LOGITS)
    with pytest.raises(InputError, match="smoother is one of"):
        curves.smooth_reliability(logits, labels, smoother="lowess", **LOGITS)
    with pytest.raises(InputError, match="labels are missing"):
        curves.class_heat(logits, None, **LOGITS)


def test_net_benefit_by_hand():
    """At .5 a false positive counts as much as a true one: 2 true, 1 false of 5; at .75 three times as much."""
    probs, labels = [0.9, 0.8, 0.6, 0.3, 0.1], [1, 1, 0, 1, 0]
    found = curves.net_benefit(probs, labels, n_thresholds=3)
    assert found.threshold.tolist() == [0.25, 0.5, 0.75]
    assert found.benefit.tolist() == pytest.approx([3 / 5 - 1 / 5 / 3, 2 / 5 - 1 / 5, 2 / 5])
    assert found.all_positive.tolist() == pytest.approx([3 / 5 - 2 / 5 / 3, 1 / 5, 3 / 5 - 3 * 2 / 5])
    contributions = np.array([1, 1, -1, 0, 0])  # at .5
    assert found.high[1] - found.benefit[1] == pytest.approx(1.959964 * contributions.std() / np.sqrt(5), rel=1e-6)
    flipped = curves.net_benefit(probs, 1 - np.array(labels), n_thresholds=3, positive=0)
    assert flipped.benefit.tolist() == pytest.approx(found.benefit.tolist())
    with pytest.raises(InputError, match="the positive class of two; there are 10"):
        curves.net_benefit(*rhocal.demo_logits("test"), kind="logits")


def test_cumulative_differences_by_hand():
    """Confidences .6, .7, .9 with a wrong one in the middle: +.4, −.7, +.1 in thirds."""
    probs = [[0.4, 0.6], [0.3, 0.7], [0.1, 0.9]]
    found = curves.cumulative_gap(probs, [1, 0, 1], n_replicates=99)
    assert found.share.tolist() == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert found.gap.tolist() == pytest.approx([0, 0.4 / 3, -0.3 / 3, -0.2 / 3])
    assert found.confidence.tolist() == pytest.approx([0.6, 0.6, 0.7, 0.9])
    assert (found.ks, found.kuiper) == pytest.approx((0.4 / 3, 0.7 / 3))
    of_first = curves.cumulative_gap(probs, [1, 0, 1], of_positive=True, positive=0, n_replicates=99)
    assert of_first.of_class == "0"
    assert of_first.gap[-1] == pytest.approx(1 / 3 - 0.8 / 3)  # prevalence − mean probability


def test_cumulative_differences_reject_what_is_wrong():
    rng = np.random.default_rng(0)
    p = rng.random(2000)
    labels = (rng.random(2000) < p).astype(int)
    perfect = curves.cumulative_gap(p, labels, of_positive=True)
    assert perfect.kuiper_p_value > 0.05
    assert perfect.ks < perfect.band
    shifted = curves.cumulative_gap(np.clip(p + 0.06, 0, 1), labels, of_positive=True)
    assert shifted.kuiper_p_value < 0.01
    assert shifted.gap.min() < -shifted.band
    copies = np.repeat(p[:200], 10), np.repeat(labels[:200], 10)
    clustered = curves.cumulative_gap(*copies, of_positive=True, clusters=np.repeat(np.arange(200), 10))
    assert clustered.band > 2.5 * curves.cumulative_gap(*copies, of_positive=True).band


@pytest.mark.parametrize("curve", [curves.reliability, curves.smooth_reliability, curves.net_benefit])
def test_intervals_know_weights_and_clusters(curve):
    """Copies in a cluster are one sample, and weights that correct a selection mean the same at any scale."""
    probs, labels = synthetic(300, 2, seed=3)
    one = _widths(curve(probs, labels, **LOGITS))
    copies = (np.repeat(probs, 10, axis=0), np.repeat(labels, 10))
    clustered = _widths(curve(*copies, clusters=np.repeat(np.arange(300), 10), **LOGITS))
    assert clustered == pytest.approx(one, rel=0.15)
    assert _widths(curve(*copies, **LOGITS)) < 0.5 * one
    weights = np.random.default_rng(1).gamma(0.5, 1, 300)
    small, large = (
        _widths(curve(probs, labels, sample_weight=scale * weights, weight_kind="importance", **LOGITS))
        for scale in (1, 1000)
    )
    assert small == pytest.approx(large)
    assert small > 1.2 * one  # an effective size of about 100


def _widths(found):
    low, high = (
        (found.interval_low, found.interval_high) if isinstance(found, curves.Reliability) else (found.low, found.high)
    )
    return float(np.mean(high - low))
