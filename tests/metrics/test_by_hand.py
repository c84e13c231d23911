"""A value by hand for every metric of the table. Arithmetic stands beside each."""

from math import exp, log, sqrt

import numpy as np
import pytest
import scipy.stats

from rhocal import metrics
from rhocal.errors import InputError
from rhocal.metrics import METRICS, OTHERS
from rhocal.numerics.special import binomial_upper

# Four samples: confidences .6 right, .8 wrong, .8 right, 1 right. The bins (.5, .6], (.7, .8] and (.9, 1] hold 1, 2 and 1.
P = np.array([[0.6, 0.3, 0.1], [0.2, 0.8, 0.0], [0.1, 0.1, 0.8], [1.0, 0.0, 0.0]])
Y = np.array([0, 0, 2, 0])

entropy_a = -(0.6 * log(0.6) + 0.3 * log(0.3) + 0.1 * log(0.1))
entropy_b = -(0.2 * log(0.2) + 0.8 * log(0.8))
entropy_c = -(0.2 * log(0.1) + 0.8 * log(0.8))

BY_HAND = {
    "accuracy": 3 / 4,
    "ece": (0.4 + 2 * 0.3 + 0) / 4,  # gaps .4, |.5 − .8| = .3, 0
    "mce": 0.4,
    "rmsce": sqrt((0.16 + 2 * 0.09) / 4),
    "adaptive_ece": (0.4 + 2 * 0.3 + 0) / 4,  # ten bins for four samples: the same groups
    "adaptive_mce": 0.4,
    "adaptive_rmsce": sqrt((0.16 + 2 * 0.09) / 4),
    "debiased_rmsce": 0.0,  # the one bin of two: .09 − .25 / 1 < 0
    "ece_sweep": abs(3 - 3.2) / 4,  # two bins, {.6} and the rest, have accuracy 1 and 2/3: descending; so one bin
    "top_k_ece": (0.1 + 0.1) / 4,  # the top two weigh .9, 1, .9, 1 and always hold the label
    "classwise_ece": ((0.4 + 0.8 + 0.1 + 0) + (0.3 + 0.8 + 0.1) + (0.1 + 0.2)) / 4 / 3,
    "tace": ((0.4 + 0.8 + 0.1 + 0) / 4 + (0.3 + 0.8 + 0.1) / 3 + (0.1 + 0.2) / 2) / 3,  # without the zeros
    "tce": 0.0,  # no confidence is outside the interval of one or two samples: a single right one allows .025 to 1
    "over_confidence": 2 * 0.3 / 4,
    "under_confidence": 0.4 / 4,
    "ks": 0.4 / 4,  # sums of correct − confidence up to .6, .8, 1: .4, −.2, −.2
    "kuiper": (0.4 + 0.2) / 4,
    "spiegelhalter_z": (0.4 * -0.2 + -0.8 * -0.6 + 0.2 * -0.6) / sqrt(0.04 * 0.24 + 2 * 0.36 * 0.16),
    "mmce": sqrt(0.16 + 0.36 - 2 * 0.4 * 0.6 * exp(-0.2 / 0.4)) / 4,  # at .6: .4, at .8: −.8 + .2
    "top_skce": (0.16 + 0.36 - 2 * 0.4 * 0.6 * exp(-0.2 / 0.4) - (0.16 + 0.64 + 0.04)) / (4 * 3),
    "nll": -(log(0.6) + log(0.2) + log(0.8)) / 4,
    "brier": ((0.16 + 0.09 + 0.01) + (0.64 + 0.64) + (0.01 + 0.01 + 0.04)) / 4,
    "binary_brier": ((0.16 + 0.09 + 0.01) + (0.64 + 0.64) + (0.01 + 0.01 + 0.04)) / 8,  # half the sum over classes
    "top_brier": (0.16 + 0.64 + 0.04) / 4,
    "spherical": (0.6 / sqrt(0.46) + 0.2 / sqrt(0.68) + 0.8 / sqrt(0.66) + 1) / 4,
    "reliability": (0.16 + 2 * 0.09) / 4,
    "resolution": 0.25**2,  # accuracies 1, .5, 1 are all .25 from .75
    "murphy_uncertainty": 0.75 * 0.25,
    "refinement_loss": (2 * (1 / 3) ** 2 + (2 / 3) ** 2) / 4,  # accuracies 1, 1/2, 1 pooled into 2/3, 2/3, 1
    "calibration_loss": (0.16 + 0.64 + 0.04) / 4 - (2 * (1 / 3) ** 2 + (2 / 3) ** 2) / 4,
    "discrimination": 0.75 * 0.25 - (2 * (1 / 3) ** 2 + (2 / 3) ** 2) / 4,
    # errors among the first t samples: 0 to t = 1, then (t − 1)/2 to t = 3, then 1 to t = 4; ∫ of errors/t
    "aurc": ((2 - log(3)) / 2 + log(4 / 3)) / 4,
    "e_aurc": ((2 - log(3)) / 2 + log(4 / 3)) / 4 - (0.25 + 0.75 * log(0.75)),
    "auroc": (0 + 0.5 + 1) / 3,  # the wrong one at .8 against .6, .8, 1
    "coverage_at_risk": 1 / 4,  # one sample without error; with three the risk is 1/3
    "avu": 1 / 4,  # the threshold is .506: only the last is right and certain, none is wrong and uncertain
    "confidence_gap": 0.8 - 0.75,
    "entropy": (entropy_a + entropy_b + entropy_c) / 4,
}
ELSEWHERE = {"smooth_calibration", "smooth_ece", "ici", "skce", "kde_ce", "nll_calibration_loss", "nll_refinement_loss"}


def test_every_metric_is_here():
    assert BY_HAND.keys() | ELSEWHERE == METRICS.keys()


@pytest.mark.parametrize("name", BY_HAND)
def test_by_hand(name):
    assert np.isclose(METRICS[name](P, Y), BY_HAND[name], rtol=1e-12, atol=1e-12)


def test_smooth_ece_by_hand():
    """A kernel moves residuals but loses none: where all have one sign the integral is |mean residual| at every σ."""
    assert np.isclose(metrics.smooth_ece([[0.5, 0.5]], [0]), 0.5)
    assert np.isclose(metrics.smooth_ece([[0.7, 0.3], [0.9, 0.1], [0.6, 0.4]], [1, 1, 1]), (0.7 + 0.9 + 0.6) / 3)
    assert metrics.smooth_ece([[1.0, 0.0], [1.0, 0.0]], [0, 0]) == 0


def test_smooth_ece_by_quadrature():
    """Residuals of both signs, with the reflected kernel summed over its images and integrated numerically."""
    c, d = np.array([0.6, 0.8, 0.8, 0.95]), np.array([0.4, -0.8, 0.2, 0.05])
    ours = metrics.smooth_ece(np.c_[c, 1 - c], [0, 1, 0, 0])
    t = np.linspace(0, 1, 20_001)
    images = np.array([sign * c + 2 * k for k in range(-3, 4) for sign in (1, -1)])
    density = sum(scipy.stats.norm.pdf(t[:, None], x, ours) for x in images) @ d / 4
    assert np.isclose(np.trapezoid(np.abs(density), t), ours, atol=1e-6)  # the fixed point: integral = σ


def test_ici_by_hand():
    """One confidence: the curve is the accuracy there. Accuracies on a straight line: a local line repeats them."""
    assert np.isclose(metrics.ici([[0.8, 0.2]] * 4, [0, 1, 0, 1]), 0.3)
    levels = np.arange(0.55, 0.96, 0.05)
    c = np.repeat(levels, 20)
    right = np.concatenate([np.arange(20) < round(20 * (level - 0.1)) for level in levels])
    assert np.isclose(metrics.ici(np.c_[c, 1 - c], np.where(right, 0, 1)), 0.1, atol=1e-9)


def test_skce_by_hand():
    """Two samples, one pair: (.4, −.4)·(.7, −.7) = .56, ‖p − p′‖² = .18, so .56·exp(−.18 / (2·.5²))."""
    assert np.isclose(metrics.skce([[0.6, 0.4], [0.3, 0.7]], [0, 0]), 0.56 * exp(-0.36))


def test_kde_by_hand():
    """Of two samples each is all the evidence about the other: |1 − .6| + |0 − .4| and |1 − .3| + |0 − .7|."""
    assert np.isclose(metrics.kde_ce([[0.6, 0.4], [0.3, 0.7]], [0, 0]), (0.8 + 1.4) / 2)


def test_kde_of_three_samples():
    """With the Dirichlet density of SciPy."""
    p, y, h = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.3, 0.3, 0.4]]), [0, 1, 2], 0.2
    errors = []
    for j in range(3):
        others = [i for i in range(3) if i != j]
        density = np.array([scipy.stats.dirichlet.pdf(p[j], p[i] / h + 1) for i in others])
        expected = np.zeros(3)
        for i, k in zip(others, density / density.sum(), strict=True):
            expected[y[i]] += k
        errors.append(np.abs(expected - p[j]) ** 2)
    ours = metrics.kde_ce(p, y, bandwidth=h, power=2)
    assert np.isclose(ours, sqrt(np.sum(errors) / 3), rtol=1e-10)


def test_nll_parts_by_hand():
    """Four samples at .9, three right: the best temperature says .75, and leaves the entropy of .75."""
    p, y = [[0.9, 0.1]] * 4, [0, 0, 0, 1]
    left = -(0.75 * log(0.75) + 0.25 * log(0.25))
    assert np.isclose(metrics.nll_refinement_loss(p, y), left)
    assert np.isclose(metrics.nll_calibration_loss(p, y), -(3 * log(0.9) + log(0.1)) / 4 - left)


def test_debiased_by_hand():
    """Four samples at .9, one right: .65² − (.25·.75)/3 = .36."""
    assert np.isclose(metrics.debiased_rmsce([[0.9, 0.1]] * 4, [0, 1, 1, 1]), 0.6)
    with pytest.raises(InputError, match="weights that are counts"):
        metrics.debiased_rmsce([[0.9, 0.1]] * 4, [0, 1, 1, 1], sample_weight=[0.25] * 4)


def test_options_by_hand():
    assert np.isclose(metrics.adaptive_ece(P, Y, n_bins=2), (0.4 + 3 * 0.2) / 4)  # {.6} and {.8, .8, 1}
    assert np.isclose(metrics.classwise_ece(P, Y, min_labels=2), 1.3 / 4)  # only the first class has two labels
    kept = [(0.4 + 0.8 + 0) / 3, (0.3 + 0.8) / 2, 0.2]  # probabilities of at least .15
    assert np.isclose(metrics.classwise_ece(P, Y, threshold=0.15), np.mean(kept))
    assert np.isclose(metrics.tace(P, Y, threshold=0.15), np.mean(kept))
    assert np.isclose(metrics.top_k_ece(P, Y, k=1), metrics.ece(P, Y))
    assert metrics.top_k_ece(P, Y, k=3) == 0
    assert metrics.coverage_at_risk(P, Y, risk=0.25) == 1
    assert np.isclose(metrics.avu(P, Y, threshold=0.6), 1 / 4)
    assert np.isclose(metrics.avu(P, Y, threshold=0.7), 2 / 4)  # .639 is certain now


def test_others_by_hand():
    np.testing.assert_allclose(metrics.class_errors(P, Y), [1.3 / 4, 1.2 / 4, 0.3 / 4])
    np.testing.assert_allclose(metrics.class_errors(P, Y, min_labels=1), [1.3 / 4, np.nan, 0.3 / 4])
    terms = metrics.murphy(P, Y)
    assert np.isclose(terms.reliability - terms.resolution + terms.uncertainty, 0.21)
    assert np.isclose(terms.within, 0)
    curve = metrics.accuracy_rejection_curve(P, Y)
    np.testing.assert_allclose(curve.rejected, [0, 0.25, 0.75])
    np.testing.assert_allclose(curve.accuracy, [3 / 4, 2 / 3, 1])
    np.testing.assert_allclose(curve.confidence, [0.6, 0.8, 1])
    assert np.isclose(metrics.amplitude([[3.0, 4.0], [0.0, 0.0]]), 5 / 2 / 2)
    assert np.isclose(metrics.amplitude([[3.0, 4.0], [0.0, 0.0]], center=True), sqrt(0.5) / 2 / 2)
    assert OTHERS.keys() <= set(metrics.__all__)


def test_murphy_with_wide_bins_adds_up():
    terms = metrics.murphy(P, Y, n_bins=2)
    assert terms.within != 0
    parts = terms.reliability - terms.resolution + terms.uncertainty + terms.within
    assert np.isclose(parts, metrics.top_brier(P, Y))


def test_nothing_to_rank():
    """All right: AUROC is not defined, and says so; the others are."""
    p, y = [[0.9, 0.1], [0.8, 0.2]], [0, 0]
    assert np.isnan(metrics.auroc(p, y))
    assert metrics.aurc(p, y) == metrics.e_aurc(p, y) == 0
    assert metrics.coverage_at_risk(p, y) == 1
    assert metrics.coverage_at_risk(p, [1, 1]) == 0
    assert np.isclose(metrics.aurc(p, [1, 1]), 1)
    assert metrics.spiegelhalter_z([[1.0, 0.0]], [0]) == 0
    assert metrics.spiegelhalter_z([[1.0, 0.0]], [1]) == np.inf  # what was sure did not happen


def test_a_perfect_ranking_has_no_excess_area():
    c = np.linspace(0.5, 1, 500)
    y = np.where(np.arange(500) < 120, 1, 0)  # the 120 least confident are wrong
    assert np.isclose(metrics.e_aurc(np.c_[c, 1 - c], y), 0, atol=1e-12)
    assert metrics.auroc(np.c_[c, 1 - c], y) == 1


def test_probabilities_of_logits_far_from_zero():
    """A sum with a logit of 1e8 has no digits left: Brier was 1.0 and more for rows like these."""
    logits = np.array([[0.0, 1.0, -1.0]] * 2)
    for shift in (1e8, -1e12):
        for name in ("brier", "binary_brier", "spherical", "classwise_ece"):
            want = METRICS[name](logits, [1, 0], kind="logits")
            assert METRICS[name](logits + shift, [1, 0], kind="logits") == pytest.approx(
                want, abs=1e-3 if shift < 0 else 1e-6
            )


@pytest.mark.parametrize("size", [1e300, 1e-300])
def test_weights_beyond_any_count_are_refused(size):
    with pytest.raises(InputError, match="multiply all by one number"):
        METRICS["ece"]([[0.5, 0.5]] * 3, [0, 1, 0], sample_weight=np.full(3, size))
    assert METRICS["auroc"]([[0.5, 0.5]] * 3, [0, 1, 0], sample_weight=np.full(3, size**0.3)) == 0.5


def test_tce_of_weights_that_are_no_numbers_of_samples():
    """An interval of 1e89 samples is narrower than rounding: the value depended on the order of the samples."""
    probs, labels = [[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]], [0, 1, 0]
    with pytest.raises(InputError, match=r"tce takes weights.*3e\+89"):
        METRICS["tce"](probs, labels, sample_weight=np.full(3, 1e89))
    assert METRICS["tce"](probs, labels, sample_weight=np.full(3, 3e7)) == pytest.approx(1)


def test_binomial_limits_of_few_failures_by_rounding():
    assert binomial_upper(np.array([1e7 - 1e-8]), np.array([1e7]), 0.975).tolist() == [1.0]
