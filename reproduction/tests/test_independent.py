"""The paper's formulas in plain NumPy, written from its text alone, beside the package on three networks.

Nothing here imports a formula of the package: `reference` functions are equations of the paper with loops where it has sums.
"""

import numpy as np
import pytest

import rhocal
from helpers import ROOT
from rhocal import SCE, HistogramBinning, RhoNormScaling
from rhocal.objectives import objective
from rhocal.profile.statistics import Facts

SHIPPED, RUNS = ROOT / "src" / "rhocal" / "data" / "shipped", ROOT / "reproduction" / "pages" / "runs"
NETWORKS = {
    "cifar10, ResNet18": SHIPPED / "cifar10-resnet18-w16-wd1e-4",
    "102 Flowers, ResNet18": RUNS / "flowers102_64px-resnet18-w16-wd1e-4",
    "cifar10, VGG16": RUNS / "cifar10-vgg16-w8-wd0",
}
BETA, GAMMA, RHO, BINS, BATCH = 0.8, 0.05, 1.75, 10, 128


@pytest.fixture(scope="module", params=NETWORKS, ids=list(NETWORKS))
def data(request):
    with np.load(NETWORKS[request.param] / "logits.npz") as file:
        logits, labels = (file[f"{name}_test"] for name in ("logits", "labels"))
    return logits[:2000].astype(np.float64), labels[:2000].astype(int)


def softmax(z):
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def calibrated(z, rho=RHO, gamma=GAMMA, beta=BETA):
    """softmax(z / (γ‖z‖_ρ + β))."""
    return softmax(z / (gamma * (np.abs(z) ** rho).sum(axis=1) ** (1 / rho) + beta)[:, None])


def fitted(z, y, **numbers):
    """The package's map with the numbers given: a fit whose result is replaced."""
    cal = RhoNormScaling.paper(solver="expected").fit(z, y)
    vars(cal)["map_"] = cal._new_map(rho=RHO, gamma=GAMMA, beta=BETA, alpha=1.0, center=False, **numbers)
    return cal


def test_the_map(data):
    z, y = data
    np.testing.assert_allclose(fitted(z, y).predict_proba(z), calibrated(z), atol=1e-12)


def test_the_square_calibration_error_is_its_mean_over_mini_batches(data):
    """Eq. 4 on 20,000 mini-batches drawn with replacement, beside the package's closed form."""
    z, y = data
    p = calibrated(z)
    correct, confidence = (p.argmax(axis=1) == y).astype(float), p.max(axis=1)
    facts = Facts(correct, np.full(len(y), 1 / len(y)), z.shape[1])
    ours = SCE(batch_size=BATCH).evaluate({"confidence": confidence}, facts)[0]
    rows = np.random.default_rng(0).integers(len(y), size=(20_000, BATCH))
    draws = (correct[rows].mean(axis=1) - confidence[rows].mean(axis=1)) ** 2
    assert abs(draws.mean() - ours) < 4 * draws.std() / np.sqrt(len(draws))


@pytest.mark.parametrize("direction", ["to-base", "from-base"])
def test_the_divergence_from_the_network(data, direction):
    """Eq. 5: Σ_j g_j (log g_j − log s_j), as a mean over samples and classes; and the other direction."""
    z, y = data
    g, s = calibrated(z), softmax(z)
    one, other = (g, s) if direction == "to-base" else (s, g)
    reference = sum(np.sum(a * (np.log(a) - np.log(b))) for a, b in zip(one, other, strict=True)) / g.size
    cal = fitted(z, y)
    name = f"kl(direction={direction}, reduction=mean)"
    assert value_of(name, cal, z, y) == pytest.approx(reference, rel=1e-9)


def value_of(name, cal, z, y):
    """The value of an objective at the map of a calibrator."""
    from rhocal.profile.statistics import of_scale

    profile, target = rhocal.profile_logits(z, y), objective(name)
    values = of_scale(profile, profile, cal.map_.scales(profile), target.needs).values
    return target.evaluate(values, Facts(profile.correct, profile.weights, z.shape[1]))[0]


def test_the_bounds_of_proposition_1(data):
    z, _ = data
    p = calibrated(z, beta=0.0, gamma=0.3)
    low, high = rhocal.confidence_bounds(z.shape[1], rho=RHO, gamma=0.3)
    assert low <= p.min()
    assert p.max() <= high
    m = z.shape[1]
    k = (1 + (m - 1) ** (-1 / (RHO - 1))) ** ((RHO - 1) / RHO)
    assert high == pytest.approx(1 / ((m - 1) * np.exp(-k / 0.3) + 1), rel=1e-12)


def binned(confidence, correct, groups):
    """(share, |accuracy − confidence|) of every group of samples that is not empty."""
    found = [(rows.mean(), abs(correct[rows].mean() - confidence[rows].mean())) for rows in groups if rows.any()]
    return np.array(found)


def test_ece_mce_and_adaece(data):
    z, y = data
    p = calibrated(z)
    correct, confidence = (p.argmax(axis=1) == y).astype(float), p.max(axis=1)
    width = [(confidence > k / BINS) & (confidence <= (k + 1) / BINS) for k in range(BINS)]
    by_width = binned(confidence, correct, width)
    assert rhocal.metrics.ece(p, y) == pytest.approx((by_width[:, 0] * by_width[:, 1]).sum(), rel=1e-9)
    assert rhocal.metrics.mce(p, y) == pytest.approx(by_width[:, 1].max(), rel=1e-9)
    place = np.empty(len(y), int)
    place[np.argsort(confidence, kind="stable")] = np.arange(len(y)) * BINS // len(y)
    by_mass = binned(confidence, correct, [place == k for k in range(BINS)])
    assert rhocal.metrics.adaptive_ece(p, y) == pytest.approx((by_mass[:, 0] * by_mass[:, 1]).sum(), rel=1e-9)


def test_histogram_binning_of_the_confidence(data):
    """The confidence of a sample becomes the accuracy of its bin on the calibration set."""
    z, y = data
    p = softmax(z)
    correct, confidence = (p.argmax(axis=1) == y).astype(float), p.max(axis=1)
    bins = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
    cal = HistogramBinning(scope="top-capped", smoothing=0).fit(z, y)
    out = cal.predict_proba(z)
    kept = out[np.arange(len(y)), p.argmax(axis=1)]
    for k in range(BINS):
        rows = bins == k
        accuracy = correct[rows].mean() if rows.any() else np.nan
        if accuracy * z.shape[1] > 1.001:  # below 1/m another class would be ahead
            np.testing.assert_allclose(kept[rows], accuracy, atol=1e-9)
            assert (kept[rows] >= out[rows].max(axis=1) - 1e-12).all()  # no class is ahead of the predicted one
