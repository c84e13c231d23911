"""Metrics beside other libraries, at the versions named, wherever they implement the same definition.

Where they disagree, and why:

===================  ====================================================================================================
torchmetrics 1.9.0   a confidence of exactly 1.0 has a bin of its own (.525 where ten bins (lo, hi] give .475)
uncertainty-         a probability up to 1e−7 above an edge is above it; we take it for single-precision noise. Its area
calibration 0.1.4    over coverage is a mean over the n coverages k/n; ours is the integral over all coverages
relplot 1.0.3        finds the bandwidth to 2^−10 on a mesh of 200 points; we solve the fixed point (they agree to 1 %).
                     Confidences within 1e−3 of 1 count half: its reflection drops the copy of the last grid point
mapie 1.6.0          ``num_bins`` counts the edges of uniform bins: 11 of theirs are 10 bins. KS and Kuiper are in units of
                     their standard deviation, on confidences with noise of 1e−8; Kuiper's path does not start at 0
===================  ====================================================================================================
"""

import warnings
from dataclasses import replace

import calibration.utils as uc
import mapie.metrics.calibration as mapie
import netcal.metrics as netcal
import numpy as np
import pytest
import sklearn.calibration
import sklearn.isotonic
import sklearn.metrics
import torch
import torchmetrics.functional.classification as tm

from helpers import real, synthetic
from rhocal import metrics
from rhocal.data.predictions import Predictions
from rhocal.metrics import METRICS, Scored
from rhocal.numerics.special import softmax

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import relplot


def probabilities(seed, n=3000, m=6, scale=1.6):
    logits, y = synthetic(n, m, scale=scale, seed=seed)
    p = softmax(logits)
    return p, y, p.max(axis=1), (p.argmax(axis=1) == y).astype(float)


@pytest.fixture(params=[1, 4])
def sample(request):
    return probabilities(request.param)


@pytest.mark.parametrize(("name", "norm"), [("ece", "l1"), ("rmsce", "l2"), ("mce", "max")])
def test_torchmetrics(sample, name, norm):
    p, y, *_ = sample
    for n_bins in (10, 15):
        peer = tm.multiclass_calibration_error(torch.tensor(p), torch.tensor(y), 6, n_bins=n_bins, norm=norm)
        assert np.isclose(getattr(metrics, name)(p, y, n_bins=n_bins), float(peer), rtol=1e-5)


def test_netcal(sample):
    p, y, *_ = sample
    for n_bins in (10, 15):
        assert np.isclose(metrics.ece(p, y, n_bins=n_bins), netcal.ECE(n_bins).measure(p, y), rtol=1e-9)
        assert np.isclose(metrics.mce(p, y, n_bins=n_bins), netcal.MCE(n_bins).measure(p, y), rtol=1e-9)
        equal_mass = netcal.ECE(n_bins, equal_intervals=False).measure(p, y)
        assert np.isclose(metrics.adaptive_ece(p, y, n_bins=n_bins), equal_mass, rtol=1e-9)
    assert np.isclose(metrics.mmce(p, y), netcal.MMCE().measure(p, y), rtol=1e-9)


@pytest.mark.parametrize("seed", [1, 4])
def test_uncertainty_calibration(seed):
    p, y, c, right = probabilities(seed)
    width, mass = uc.get_equal_prob_bins, uc.get_equal_bins
    for n_bins in (10, 15):
        assert np.isclose(metrics.ece(p, y, n_bins=n_bins), uc.get_ece(p, y, num_bins=n_bins))
        assert np.isclose(metrics.adaptive_ece(p, y, n_bins=n_bins), uc.get_ece_em(p, y, num_bins=n_bins))
        debiased = uc.lower_bound_scaling_ce(p, y, num_bins=n_bins, binning_scheme=width, mode="top-label")
        assert np.isclose(metrics.debiased_rmsce(p, y, n_bins=n_bins), debiased)
        plain = uc.lower_bound_scaling_ce(p, y, debias=False, num_bins=n_bins, binning_scheme=mass, mode="top-label")
        assert np.isclose(metrics.adaptive_rmsce(p, y, n_bins=n_bins), plain)
        for power in (1, 2):
            marginal = uc.lower_bound_scaling_ce(
                p, y, p=power, debias=False, num_bins=n_bins, binning_scheme=width, mode="marginal"
            )
            assert np.isclose(metrics.classwise_ece(p, y, n_bins=n_bins, power=power), marginal)
    area, _ = uc.get_selective_stats(c, right)
    assert np.isclose(metrics.aurc(p, y), 1 - area, atol=2 / len(y))  # a sum of n terms against an integral
    assert metrics.aurc(p, y) != 1 - area


def test_uncertainty_calibration_beside_an_edge():
    """.8 + 5e−8 is .8 in single precision."""
    c = np.array([0.8 + 5e-8, 0.75])
    p, y = np.c_[c, 1 - c], np.array([0, 1])
    assert np.isclose(metrics.ece(p, y), abs(1 - c.sum()) / 2)  # one bin
    assert np.isclose(uc.get_ece(p, y, num_bins=10), (0.2 + 0.75) / 2, atol=1e-6)  # two


@pytest.mark.parametrize("scale", [1.0, 1.2, 1.6, 2.5])
def test_relplot(scale):
    p, y, c, right = probabilities(2, scale=scale)
    assert np.isclose(metrics.smooth_ece(p, y), relplot.smECE(c, right), rtol=0.01, atol=2e-4)


def test_relplot_loses_half_of_what_is_at_one():
    """Half the samples wrong at .8, half right at 1: residuals of one sign, so |mean| = .4; relplot: .4 / (.5 + .25)."""
    c, right = np.repeat([0.8, 1.0], 50), np.repeat([0.0, 1.0], 50)
    assert np.isclose(metrics.smooth_ece(np.c_[c, 1 - c], 1 - right.astype(int)), 0.4)
    assert np.isclose(relplot.smECE(c, right), 0.4 / 0.75, rtol=0.01)


def test_relplot_on_a_real_network():
    """cifar100_resnet56: 31 % of the confidences are above .999. Held below it, both agree; as they are, they do not."""
    logits, labels, *_ = real("cifar100_resnet56")
    data = Scored.from_predictions(Predictions.from_arrays(logits, labels))
    held = replace(data, confidence=np.minimum(data.confidence, 0.999))
    smooth = METRICS["smooth_ece"].value
    assert np.isclose(smooth(held), relplot.smECE(held.confidence, held.correct), rtol=0.01)
    assert np.isclose(smooth(data), smooth(held), rtol=0.01)
    assert relplot.smECE(data.confidence, data.correct) > 1.1 * smooth(data)


def test_scikit_learn(sample):
    """scikit-learn 1.9.1: AUROC, isotonic regression, calibration curve (log loss and Brier: test_metrics.py)."""
    p, y, c, right = sample
    w = np.random.default_rng(0).random(len(y))
    ours = metrics.auroc(p, y, sample_weight=w)
    assert np.isclose(ours, sklearn.metrics.roc_auc_score(right, c, sample_weight=w))
    fitted = sklearn.isotonic.IsotonicRegression().fit(c, right, w).predict(c)
    assert np.isclose(metrics.refinement_loss(p, y, sample_weight=w), np.average((fitted - right) ** 2, weights=w))
    accuracy, mean = sklearn.calibration.calibration_curve(right, c, n_bins=10)
    share = np.histogram(c, np.linspace(0, 1, 11))[0] / len(c)
    assert np.isclose(metrics.ece(p, y), share[share > 0] @ np.abs(accuracy - mean))


def test_mapie(sample):
    p, y, c, right = sample
    assert np.isclose(
        metrics.ece(p, y), mapie.expected_calibration_error(right, p, num_bins=11, split_strategy="uniform")
    )
    classwise = mapie.expected_calibration_error(
        None, p, num_bins=11, split_strategy="uniform", classwise=True, class_labels=y
    )
    assert np.isclose(metrics.classwise_ece(p, y), classwise)
    unit = mapie.length_scale(c)
    assert np.isclose(metrics.ks(p, y), mapie.kolmogorov_smirnov_statistic(right, c) * unit, rtol=1e-6)
    assert np.isclose(metrics.spiegelhalter_z(p, y), mapie.spiegelhalter_statistic(right, c))
    path = np.cumsum((right - c)[np.argsort(c)]) / len(c)
    expected = mapie.kuiper_statistic(right, c) * unit
    if path.max() > 0 > path.min():  # else their path, which does not start at 0, is shorter
        assert np.isclose(metrics.kuiper(p, y), expected, rtol=1e-6)
    else:
        assert metrics.kuiper(p, y) > expected


def test_mapie_kuiper_without_a_start():
    """Two wrong samples at .6 and .7: the path goes 0, −.3, −.65, a range of .65; without its start .35."""
    p, y, c = np.array([[0.6, 0.4], [0.7, 0.3]]), [1, 1], np.array([0.6, 0.7])
    assert np.isclose(metrics.kuiper(p, y), 0.65)
    assert np.isclose(mapie.kuiper_statistic(np.zeros(2), c) * mapie.length_scale(c), 0.35)
