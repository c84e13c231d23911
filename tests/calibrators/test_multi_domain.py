"""Multi-domain temperature scaling: known domains, small ones, unknown ones, and the face of ``groups``."""

import warnings

import numpy as np
import pytest

import rhocal
from helpers import real, synthetic
from rhocal import MultiDomainTemperatureScaling, TemperatureScaling, metrics
from rhocal.calibrators import CALIBRATORS
from rhocal.calibrators.scale.multi_domain import DomainScales
from rhocal.errors import BoundaryWarning, InputError

SCALES = {"attic": 1.0, "cellar": 2.0, "garden": 4.0}


def houses(n=1500, seed=0, scales=SCALES):
    """DomainScales whose logits are too large by a known factor; the truth has temperature = factor."""
    parts = [synthetic(n, 4, scale=s, seed=seed + k) for k, s in enumerate(scales.values())]
    logits, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return logits, labels, np.repeat(list(scales), n)


def fitted(*data, **options):
    logits, labels, groups = data
    return MultiDomainTemperatureScaling(**options).fit(logits, labels, groups=groups)


def test_every_domain_gets_its_temperature():
    cal = fitted(*houses())
    assert cal.domains_.tolist() == list(SCALES)
    np.testing.assert_allclose(cal.temperatures_, list(SCALES.values()), rtol=0.1)
    for k, name in enumerate(SCALES):  # with enough samples, nearly the domain's own fit
        logits, labels, groups = houses()
        own = TemperatureScaling().fit(logits[groups == name], labels[groups == name])
        assert np.isclose(cal.temperatures_[k], own.temperature_, rtol=0.02)


def test_known_domains_are_far_better_than_one_temperature():
    logits, labels, groups = houses()
    z, y, g = houses(seed=10)
    cal, one = fitted(logits, labels, groups), TemperatureScaling().fit(logits, labels)
    ours, theirs = cal.predict_proba(z, groups=g), one.predict_proba(z)
    assert metrics.nll(ours, y) < metrics.nll(theirs, y) - 0.03
    for name in SCALES:
        assert metrics.ece(ours[g == name], y[g == name]) < 0.04


def test_an_unknown_domain_is_predicted_from_its_features():
    """Factors from 1 to 5 are known, 1.2 is not: the size of its logits tells that it is one of the cool ones."""
    scales = {f"room {k}": s for k, s in enumerate([1.0, 1.5, 2.0, 4.0, 5.0])}
    cal = fitted(*houses(1000, scales=scales))
    z, y = synthetic(4000, 4, scale=1.2, seed=50)
    assert cal.weights_[1:].any()
    p = cal.predict_proba(z, groups=np.full(4000, "lawn"))
    np.testing.assert_array_equal(p, cal.predict_proba(z))
    plain = TemperatureScaling().fit(*houses(1000, scales=scales)[:2]).predict_proba(z)
    assert metrics.nll(p, y) < metrics.nll(plain, y)


def test_domains_that_do_not_differ_share_one_temperature():
    """Cross-validation finds that there is nothing to tell apart."""
    logits, labels = synthetic(1000, 4)
    groups = np.arange(1000) % 20
    cal = fitted(logits, labels, groups)
    one = TemperatureScaling().fit(logits, labels).temperature_
    assert np.abs(np.log(cal.temperatures_ / one)).max() < 0.1


def test_a_small_domain_is_pulled_to_the_common_temperature():
    logits, labels, groups = houses()
    few = np.r_[0:1500, 1500:3000, 3000:3008]  # eight samples of the garden
    cal = fitted(logits[few], labels[few], groups[few])
    own = np.log(TemperatureScaling().fit(logits[3000:3008], labels[3000:3008]).temperature_)
    common, shrunk = np.log(cal.temperature_), np.log(cal.temperatures_[2])
    assert abs(shrunk - common) < abs(own - common)
    weak, strong = (fitted(logits, labels, groups, ridge=r).temperatures_ for r in (1.0, 3000.0))
    assert np.ptp(np.log(strong)) < np.ptp(np.log(weak))
    np.testing.assert_allclose(
        fitted(logits, labels, groups, ridge=np.inf).temperatures_[0], cal_common(logits, labels)
    )


def cal_common(logits, labels):
    return TemperatureScaling().fit(logits, labels).temperature_


def test_real_networks_as_domains():
    """Known networks are calibrated as if alone; of one left out, nothing known but its logits, the NLL is far lower."""
    names = ["vgg16_bn", "resnet56", "repvgg_a2", "shufflenetv2_x2_0", "resnet50_brier"]
    networks = {name: real(f"cifar100_{name}") for name in names}

    def pooled(kept):
        parts = [(networks[name][0][:1500], networks[name][1][:1500], np.full(1500, name)) for name in kept]
        return (np.concatenate(arrays) for arrays in zip(*parts, strict=True))

    cal, common, predicted = fitted(*pooled(names)), [], []
    for name in names:
        tune, tune_labels, z, y = networks[name]
        own = TemperatureScaling().fit(tune[:1500], tune_labels[:1500]).predict_proba(z)
        assert metrics.nll(cal.predict_proba(z, groups=np.full(len(y), name)), y) < metrics.nll(own, y) * 1.002
        logits, labels, groups = pooled(other for other in names if other != name)
        common.append(metrics.nll(TemperatureScaling().fit(logits, labels).predict_proba(z), y))
        predicted.append(metrics.nll(fitted(logits, labels, groups).predict_proba(z), y))
    assert np.mean(predicted) < np.mean(common) - 0.05


@pytest.mark.parametrize("objective", ["nll", "sce + 0.03*nll"])
def test_without_groups_it_is_temperature_scaling(objective):
    logits, labels = synthetic(500, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cal = MultiDomainTemperatureScaling(objective).fit(logits, labels)
    one = TemperatureScaling(objective).fit(logits, labels)
    assert cal.temperature_ == one.temperature_
    np.testing.assert_array_equal(cal.predict_proba(logits), one.predict_proba(logits))
    np.testing.assert_array_equal(cal.predict_proba(logits, groups=np.full(500, "x")), one.predict_proba(logits))


def test_the_slope_of_the_domains():
    codes = np.array([0, 2, 1, 1, -1, 2])
    domains, x, h = DomainScales(codes, 3, 0.8), np.array([0.1, 0.3, -0.2, 0.05]), 1e-6
    numeric = [(domains.scales(x + h * e)[0] - domains.scales(x - h * e)[0]) / (2 * h) for e in np.eye(4)]
    pulled = [domains.scales(x)[1](row) for row in np.eye(6)]
    np.testing.assert_allclose(np.transpose(pulled), numeric, atol=1e-8)


# Laws, with groups ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data():
    return houses(120)


def test_order_of_samples(data):
    order = np.random.default_rng(0).permutation(len(data[1]))
    a, b = fitted(*data), fitted(*(array[order] for array in data))
    np.testing.assert_allclose(
        a.predict_proba(data[0], groups=data[2]), b.predict_proba(data[0], groups=data[2]), atol=2e-6
    )
    np.testing.assert_allclose(a.predict_proba(data[0]), b.predict_proba(data[0]), atol=2e-6)


def test_weights_are_repetition(data):
    logits, labels, groups = data
    times = np.random.default_rng(1).integers(0, 4, len(labels))
    a = MultiDomainTemperatureScaling().fit(logits, labels, times, groups=groups)
    b = fitted(*(np.repeat(array, times, axis=0) for array in data))
    np.testing.assert_allclose(
        a.predict_proba(logits, groups=groups), b.predict_proba(logits, groups=groups), atol=2e-6
    )
    np.testing.assert_allclose(a.predict_proba(logits), b.predict_proba(logits), atol=2e-6)


def test_names_of_domains_are_only_names(data):
    logits, labels, groups = data
    numbers = np.array([list(SCALES).index(name) for name in groups])
    a, b = fitted(*data), fitted(logits, labels, numbers + 7)
    np.testing.assert_array_equal(a.predict_proba(logits, groups=groups), b.predict_proba(logits, groups=numbers + 7))


def test_batch_cuts_decision_and_scale(data):
    logits, _, groups = data
    cal = fitted(*data)
    whole = cal.predict_proba(logits, groups=groups)
    cut = [
        cal.predict_proba(z, groups=g)
        for z, g in zip(np.array_split(logits, 7), np.array_split(groups, 7), strict=True)
    ]
    np.testing.assert_array_equal(np.concatenate(cut), whole)
    np.testing.assert_array_equal(whole.argmax(1), logits.argmax(1))
    np.testing.assert_array_equal(cal.predict(logits, groups=groups), logits.argmax(1))
    np.testing.assert_allclose(
        cal.transform(logits, groups=groups), logits * cal.scale(logits, groups=groups)[:, None], rtol=1e-15
    )


def test_saved_and_loaded(data, tmp_path):
    logits, _, groups = data
    cal = fitted(*data)
    cal.save(tmp_path / "cal.safetensors")
    again = rhocal.load(tmp_path / "cal.safetensors")
    assert again.domains_.tolist() == cal.domains_.tolist()
    for said in ({"groups": groups}, {}):
        np.testing.assert_array_equal(again.predict_proba(logits, **said), cal.predict_proba(logits, **said))


def test_images_and_ignored_samples():
    logits, labels, groups = houses(80)
    marks = labels.copy()
    marks[:20] = -100
    images, planes = logits.reshape(2, 12, 10, 4).transpose(0, 3, 1, 2), (2, 12, 10)
    cal = MultiDomainTemperatureScaling().fit(
        images, marks.reshape(planes), class_axis=1, ignore_index=-100, groups=groups.reshape(planes)
    )
    flat = fitted(logits[20:], labels[20:], groups[20:])
    np.testing.assert_allclose(
        cal.predict_proba(images, class_axis=1, groups=groups.reshape(planes)).transpose(0, 2, 3, 1).reshape(-1, 4),
        flat.predict_proba(logits, groups=groups),
        atol=1e-9,
    )


# The face ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, m in CALIBRATORS.items() if not m.family.takes_groups])
def test_other_families_refuse_groups(name):
    logits, labels = synthetic(60, 3)
    with pytest.raises(InputError, match=r"groups: \w+ does not use groups; .* use multi-domain"):
        rhocal.calibrator(name).fit(logits, labels, groups=np.zeros(60))
    cal = rhocal.Identity().fit(logits, labels)
    for call in (cal.predict_proba, cal.transform, cal.predict):
        with pytest.raises(InputError, match="does not use groups"):
            call(logits, groups=np.zeros(60))


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (["a"] * 59, "groups and logits differ in length: 59 groups, 60 samples"),
        (["a"] * 59 + [None], "texts or whole numbers"),
        ([0.5] * 60, "texts or whole numbers"),
        ([np.nan] * 60, "texts or whole numbers"),
    ],
)
def test_bad_groups_are_said(groups, message):
    with pytest.raises(InputError, match=message):
        fitted(*synthetic(60, 3), groups)


def test_numbers_are_not_texts(data):
    with pytest.raises(InputError, match="those of the fit were of dtype"):
        fitted(*data).predict_proba(data[0], groups=np.zeros(len(data[0])))


def test_warnings_point_at_the_line_that_called_fit(data):
    logits, _, groups = data
    for said in ({"groups": groups}, {}):
        with pytest.warns(BoundaryWarning) as caught:
            MultiDomainTemperatureScaling().fit(logits, logits.argmax(axis=1), **said)
        assert {w.filename for w in caught} == {__file__}


@pytest.mark.parametrize("options", [{"ridge": -1}, {"n_folds": 1}])
def test_bad_options(options, data):
    with pytest.raises(InputError, match=next(iter(options))):
        fitted(*data, **options)


def test_a_number_and_its_text_are_one_group(data):
    logits, labels, _ = data
    numbers = np.arange(len(logits)) % 12
    calibrator = rhocal.MultiDomainTemperatureScaling().fit(logits, labels, groups=numbers)
    np.testing.assert_array_equal(
        calibrator.predict_proba(logits, groups=numbers.astype(str)), calibrator.predict_proba(logits, groups=numbers)
    )
