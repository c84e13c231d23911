"""Objectives: text and Python agree, and every slope is right with every family."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import slope_error, synthetic
from rhocal import (
    KL,
    MMCE,
    NLL,
    SCE,
    AvUC,
    Brier,
    Focal,
    LabelSmoothing,
    SoftBinnedECE,
    SoftECE,
    TemperatureScaling,
    TopBrier,
    calibrator,
    objective,
)
from rhocal.calibrators.linear.linear_problem import LinearProblem, Ridge
from rhocal.calibrators.scale.rho_search import LearnedNorm, fixed_norms
from rhocal.calibrators.scale.scale_search import ScaleSearch
from rhocal.data.predictions import Predictions
from rhocal.errors import InputError
from rhocal.numerics.special import log_softmax
from rhocal.objectives import OBJECTIVES, with_batch_size
from rhocal.profile.profile import Profile
from rhocal.profile.statistics import Facts, of_logits, of_scale

TEXTS = [
    *OBJECTIVES,
    "kl(direction=from-base)",
    "kl(reduction=samples)",
    "kl(reduction=sum)",
    "sce + 0.01*kl",
    "nll + avuc",
    "focal(gamma=0.5)",
    "label-smoothing(epsilon=0.3) + mmce(width=0.05)",
    "soft-ece(width=0.03)",
    "sce(batch_size=8) + 0.1*nll + 2.0*sb-ece(n_bins=5)",
]


def test_python_and_text_print_the_same():
    assert str(SCE(batch_size=128) + 0.01 * KL()) == str(objective("sce + 0.01*kl")) == "sce + 0.01*kl"
    assert repr(NLL() + AvUC()) == "objective('nll + avuc')"
    assert str(Brier() * 2 + TopBrier() + SoftBinnedECE(n_bins=3)) == "2.0*brier + top-brier + sb-ece(n_bins=3)"


@pytest.mark.parametrize("text", TEXTS)
def test_text_is_read_back(text):
    assert str(objective(str(objective(text)))) == str(objective(text))
    assert objective(str(objective(text))) == objective(text)


@pytest.mark.parametrize("text", ["nll+0.5*kl", " nll  +  .5*kl ", "nll + 5e-1*kl", "nll + 0.05e+1*kl"])
def test_spelling_is_free(text):
    assert objective(text) == objective("nll + 0.5*kl")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot read ''"),
        ("nll +", "cannot read ''"),
        ("nll - kl", "cannot read 'nll - kl'"),
        ("ece", "unknown term 'ece'; the terms are nll"),
        ("sce(size=3)", "sce has no option 'size'; it has batch_size"),
        ("nll(x=1)", "it has none"),
        ("sce(batch_size=0)", "at least 1"),
        ("kl(direction=up)", "to-base or from-base"),
        ("kl(reduction=max)", "mean, samples or sum"),
        ("1.2.3*nll", "not a number"),
        ("avuc(width=0)", "width must be positive"),
        ("sb-ece(n_bins=0)", "n_bins"),
        ("soft-ece(width=0)", "width > 0"),
        ("mmce(width=0.001)", "at least 0.002"),
        ("mmce(width=wide)", "cannot take"),
        ("focal(gamma=-1)", "gamma must be"),
        ("label-smoothing(epsilon=1)", "below 1"),
    ],
)
def test_bad_text_is_explained(text, message):
    with pytest.raises(InputError, match=message):
        objective(text)


@given(st.text(max_size=30))
def test_any_text_is_an_objective_or_a_named_error(text):
    try:
        read = objective(text)
    except InputError as error:
        # names the text, or the objective whose option is wrong
        assert repr(text) in str(error) or ":" in str(error)  # noqa: PT017
    else:
        assert objective(str(read)) == read


def test_negative_weights_are_refused():
    with pytest.raises(InputError, match="not negative"):
        -1 * NLL()


def test_batch_size_reaches_every_term():
    assert (
        str(with_batch_size(objective("sce + 0.5*kl + nll"), 32)) == "sce(batch_size=32) + 0.5*kl(batch_size=32) + nll"
    )


# Slopes --------------------------------------------------------------------------------------------------------------


def scale_search(m=4, **options):
    logits, labels = synthetic(60, m)
    weight = np.random.default_rng(0).random(60)
    data = Predictions.from_arrays(logits, labels, weights=weight)
    return data, ScaleSearch.from_profile(Profile.from_predictions(data), **options)


@pytest.mark.parametrize("kappa", [0.0, 0.05])
@pytest.mark.parametrize("text", TEXTS)
def test_slope_through_the_scales_of_temperature_and_rho_norm(text, kappa):
    _, fit = scale_search(kappa=kappa)
    target = fit.prepared(objective(text))
    (norm,) = fixed_norms(fit, [1.5], center=True)
    for family, x in (
        (norm, [fit.log_scale + 0.2, 0.4]),
        (norm, [fit.log_scale, 1.0 - 1e-4]),
        (LearnedNorm(fit, [1.0, 3.0], center=False), [fit.log_scale - 0.1, 0.3, 1.7]),
    ):

        def fun(x, family=family):
            scale, slopes = family.scales(x)
            value, slope = fit.evaluate(target, scale)
            return value, slopes @ slope

        assert slope_error(fun, np.array(x)) < 1e-5


@pytest.mark.parametrize("off_diagonal", [None, 0.02])
@pytest.mark.parametrize("text", TEXTS)
def test_slope_through_the_logits_of_linear_maps(text, off_diagonal):
    data, fit = scale_search()
    x = np.exp(fit.log_scale) * data.logits
    problem = LinearProblem(x, data, fit.profile, objective(text), Ridge(0.01, 0.03, off_diagonal), 0.01)

    def fun(flat):
        value, slope = problem(flat.reshape(problem.strengths.shape))
        return value, slope.ravel()

    at = np.random.default_rng(1).normal(size=problem.strengths.size) * 0.05
    assert slope_error(fun, at) < 1e-5


@pytest.mark.parametrize("text", TEXTS)
def test_both_ways_to_the_statistics_agree(text):
    """A scale map seen as a scale and seen as logits has the same value (up to the smoothing of the maximum)."""
    data, fit = scale_search()
    target = fit.prepared(objective(text))
    scale = np.random.default_rng(0).uniform(0.2, 2, data.n_samples)
    by_scale, _ = fit.evaluate(target, scale)
    stats = of_logits(data.logits * scale[:, None], data.labels, log_softmax(data.logits), target.needs, 1e-7)
    facts = Facts(stats.correct, fit.profile.weights, data.n_classes)
    assert np.isclose(by_scale, target.evaluate(stats.values, facts)[0], rtol=1e-6)


# Values by hand -------------------------------------------------------------------------------------------------------

HAND = Predictions.from_arrays(np.log([[0.6, 0.4], [0.9, 0.1]]), [1, 0])  # wrong with .6, right with .9


def value(text, base=1.0):
    profile = Profile.from_predictions(HAND)
    facts = Facts(profile.correct, profile.weights, 2)
    target = objective(text)
    stats = of_scale(profile, profile, np.full(2, base), target.needs)
    return target.evaluate(stats.values, facts)[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nll", -(np.log(0.4) + np.log(0.9)) / 2),
        ("brier", ((0.6**2 + 0.6**2) + (0.1**2 + 0.1**2)) / 2),
        ("top-brier", (0.6**2 + 0.1**2) / 2),
        # d = −.6, .1: mean −.25, variance .1225
        ("sce", 0.25**2 + 0.1225 / 128),
        ("sce(batch_size=inf)", 0.25**2),
        ("kl", 0.0),
        ("focal", -(0.6**2 * np.log(0.4) + 0.1**2 * np.log(0.9)) / 2),
        ("focal(gamma=0)", -(np.log(0.4) + np.log(0.9)) / 2),
        (
            "label-smoothing(epsilon=0.2)",
            -0.8 * (np.log(0.4) + np.log(0.9)) / 2 - 0.2 * (np.log(0.6 * 0.4) + np.log(0.9 * 0.1)) / 4,
        ),
        # two samples: d = −.6 and .1 at confidences .6 and .9, so k = exp(−.3/.4)
        ("mmce", np.sqrt(0.6**2 + 0.1**2 - 2 * 0.6 * 0.1 * np.exp(-0.3 / 0.4)) / 2),
        # degrees of membership are those of sb-ece with temperature 2·width²
        ("soft-ece(width=0.1) + 0.0*nll", lambda: value("sb-ece(temperature=0.02)")),
    ],
)
def test_by_hand(text, expected):
    expected = expected() if callable(expected) else expected
    assert np.isclose(value(text), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("text", ["mmce", "sb-ece"])
def test_they_are_zero_where_one_confidence_is_the_accuracy(text):
    """With two classes that is ρ-norm scaling with β = 0: the norm of centered logits is their difference times a constant."""
    logits, labels = synthetic(700, 2)
    profile = Profile.from_predictions(Predictions.from_arrays(logits, labels))
    gap = np.abs(logits[:, 1] - logits[:, 0])
    accuracy = profile.correct.mean()
    target = objective(text)
    stats = of_scale(profile, profile, np.log(accuracy / (1 - accuracy)) / gap, target.needs)
    assert target.evaluate(stats.values, Facts(profile.correct, profile.weights, 2))[0] < 1e-6
    plain = of_scale(profile, profile, np.ones(700), target.needs)
    assert target.evaluate(plain.values, Facts(profile.correct, profile.weights, 2))[0] > 0.01


def test_kl_by_hand_in_both_directions():
    s = np.array([[0.6, 0.4], [0.9, 0.1]])
    g = np.sqrt(s) / np.sqrt(s).sum(1, keepdims=True)
    to, back = (g * np.log(g / s)).sum(1).mean(), (s * np.log(s / g)).sum(1).mean()
    assert np.isclose(value("kl(reduction=samples)", 0.5), to)
    assert np.isclose(value("kl", 0.5), to / 2)
    assert np.isclose(value("kl(reduction=sum, batch_size=10)", 0.5), 10 * to)
    assert np.isclose(value("kl(direction=from-base, reduction=samples)", 0.5), back)


def test_soft_binned_ece_becomes_the_binned_one():
    """With sharp bins a confidence lies in one bin: sqrt(½·.6² + ½·.1²)."""
    assert np.isclose(value("sb-ece(n_bins=5, temperature=1e-5)"), np.sqrt(0.5 * 0.6**2 + 0.5 * 0.1**2), rtol=1e-3)


def test_avuc_by_hand_with_sharp_counts():
    """Wrong and uncertain (H = .673), right and certain (H = .325), cut at .5: nothing is in the bad cells."""
    assert value("avuc(threshold=0.5, width=0.001)") < 1e-6
    h = np.array([-(0.6 * np.log(0.6) + 0.4 * np.log(0.4)), -(0.9 * np.log(0.9) + 0.1 * np.log(0.1))])
    good, bad = 0.9 * (1 - np.tanh(h[1])), 0.4 * (1 - np.tanh(h[0]))  # cut at 1: both certain
    assert np.isclose(value("avuc(threshold=1.0, width=0.001)"), np.log1p(bad / good))


def test_expected_sce_is_the_mean_over_drawn_batches():
    data, fit = scale_search()
    scale = np.full(data.n_samples, 0.6)
    exact, _ = fit.evaluate(SCE(16), scale)
    rng = np.random.default_rng(0)
    d = fit.profile.correct - fit.confidence(scale)
    drawn = rng.choice(d, (200_000, 16), p=fit.profile.weights).mean(1) ** 2
    assert abs(drawn.mean() - exact) < 4 * drawn.std() / np.sqrt(len(drawn))


# The new ones, seen from outside ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [0.4, 0.01])
def test_mmce_is_the_double_sum(width):
    """The running sums against the n × n matrix, weights and ties included."""
    rng = np.random.default_rng(0)
    c, correct, w = np.round(rng.random(300), 2), rng.integers(0, 2, 300).astype(float), rng.random(300)
    w /= w.sum()
    a = w * (correct - c)
    direct = np.sqrt(a @ np.exp(-np.abs(c[:, None] - c) / width) @ a)
    assert np.isclose(MMCE(width).evaluate({"confidence": c}, Facts(correct, w, 3))[0], direct, rtol=1e-12)


def test_mmce_agrees_with_netcal():
    """netcal 1.4.0: exp(−2.5 |a − b|) and 1/n², the same number."""
    from netcal.metrics import MMCE as Peer  # noqa: N811

    logits, labels = synthetic(500, 5)
    p = np.exp(log_softmax(logits))
    facts = Facts((p.argmax(1) == labels).astype(float), np.full(500, 1 / 500), 5)
    assert np.isclose(MMCE().evaluate({"confidence": p.max(1)}, facts)[0], Peer().measure(p, labels), rtol=1e-10)


def test_mmce_of_a_large_set_needs_no_matrix():
    """200,000 samples: a matrix would take 320 GB."""
    rng = np.random.default_rng(0)
    c = rng.random(200_000)
    correct = (rng.random(len(c)) < c).astype(float)
    found, slopes = MMCE().evaluate({"confidence": c}, Facts(correct, np.full(len(c), 1 / len(c)), 2))
    assert found < 0.003  # perfectly calibrated: of the order of 1/sqrt(n)
    assert np.isfinite(slopes["confidence"]).all()


def test_label_smoothing_agrees_with_torch():
    """torch 2's cross_entropy has the same definition, ε spread over all classes."""
    import torch

    data, fit = scale_search()
    scale = np.full(data.n_samples, 0.7)
    peer = torch.nn.functional.cross_entropy(
        torch.tensor(0.7 * data.logits), torch.tensor(data.labels), label_smoothing=0.15, reduction="none"
    )
    assert np.isclose(fit.evaluate(LabelSmoothing(0.15), scale)[0], fit.profile.weights @ peer.numpy(), rtol=1e-12)


@given(st.floats(0, 5), st.lists(st.floats(-40, 0), min_size=1, max_size=5))
def test_focal_is_finite_everywhere(gamma, log_p):
    n = len(log_p)
    found, slopes = Focal(gamma).evaluate({"log_label": np.array(log_p)}, Facts(np.ones(n), np.full(n, 1 / n), 2))
    assert found >= 0
    assert (slopes["log_label"] <= 0).all()  # more for the label is never worse


def test_soft_ece_learns_wide_bins_from_noise_and_narrow_ones_from_structure():
    rng = np.random.default_rng(0)
    c = rng.uniform(0.3, 1, 20_000)
    weights = np.full(len(c), 1 / len(c))

    def width(truth):
        correct = (rng.random(len(c)) < truth).astype(float)
        return SoftECE().prepare({"confidence": c}, Facts(correct, weights, 3)).width

    assert width(c - 0.1) >= 0.15  # the same gap everywhere: the more samples share a bin the better
    assert width(np.clip(c + 0.15 * np.sin(c * 30), 0, 1)) <= 0.05
    assert SoftECE(width=0.07).prepare({}, None).width == 0.07


def test_what_soft_ece_learns_is_written_down():
    data, fit = scale_search()
    text = str(fit.prepared(objective("soft-ece")))
    assert text.startswith("soft-ece(width=")
    cal = TemperatureScaling(objective="soft-ece").fit(data.logits, data.labels)
    assert cal.solution_.objective == "soft-ece"


@pytest.mark.parametrize("text", ["focal", "label-smoothing", "mmce", "soft-ece"])
@pytest.mark.parametrize("name", ["temperature", "ets", "iop", "rho-norm"])
def test_a_fit_is_lower_on_its_own_objective_than_one_on_nll(name, text):
    """The new objectives with families that nothing holds back from them."""
    logits, labels = synthetic(500, 4)
    options = {"ridge": 1e-3} if name == "iop" else {}
    data = Predictions.from_arrays(logits, labels)
    fit = ScaleSearch.from_profile(Profile.from_predictions(data))
    target = fit.prepared(objective(text))

    def value(cal):
        stats = of_logits(cal.transform(logits), labels, log_softmax(logits), target.needs, 1e-7)
        return target.evaluate(stats.values, Facts(stats.correct, fit.profile.weights, 4))[0]

    own, other = (calibrator(name, objective=o, **options).fit(logits, labels) for o in (target, "nll"))
    assert own.solution_.converged
    assert value(own) < value(other)
