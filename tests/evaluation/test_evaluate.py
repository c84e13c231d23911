"""Evaluations: what they hold, how they read, slices."""

import json

import numpy as np
import pytest

import rhocal
from helpers import real, synthetic
from rhocal.errors import InputError
from rhocal.metrics import METRICS, inference
from rhocal.numerics.special import softmax


@pytest.fixture(scope="module")
def perfect():
    z, y = synthetic(2000, 5, scale=1.0, seed=1)
    return softmax(z), y


@pytest.fixture(scope="module")
def over():
    z, y = synthetic(2000, 5, scale=2.5, seed=1)
    return softmax(z), y


def test_an_evaluation_holds_what_its_parts_say(over):
    p, y = over
    found = rhocal.evaluate(p, y, metrics=["accuracy", "ece", "nll", "mce"])
    assert [figure.metric for figure in found.values] == ["accuracy", "ece", "nll", "mce"]
    for name in ("accuracy", "ece", "nll"):
        figure, floor = found[name], inference.floor(name, p, y)
        assert np.isclose(figure.value, getattr(rhocal.metrics, name)(p, y))
        assert np.isclose(figure.floor, floor.mean)
        assert np.isclose(figure.excess, figure.value - figure.floor)
        assert figure.p_value == floor.p_value
        interval = inference.interval(name, p, y)
        assert np.allclose([figure.low, figure.high], [interval.low, interval.high], rtol=0.02)
    assert found.distinguishable
    assert np.isclose(found.confidence, p.max(1).mean())
    with pytest.raises(KeyError, match="this evaluation has accuracy, ece"):
        found["brier"]


def test_every_metric_can_be_evaluated(perfect):
    p, y = perfect
    found = rhocal.evaluate(p[:100], y[:100], metrics=list(METRICS), n_replicates=20)
    for figure in found.values:
        assert figure.no_interval_reason or figure.low <= figure.high
        rounding = 1e-9 * abs(figure.floor)  # the entropy, say, is the same in every draw
        assert figure.floor_low - rounding <= figure.floor <= figure.floor_high + rounding
        assert 0 <= figure.p_value <= 1


def test_an_undecided_verdict_names_what_is_undecided():
    """The true ECE is known to be within the tolerance here; the mean probability of a class is not."""
    rng = np.random.default_rng(1)
    p = softmax(rng.normal(0, 0.5, (4500, 3)))
    y = (np.cumsum(p, axis=1) < rng.random((4500, 1))).sum(axis=1).clip(0, 2)
    found = rhocal.evaluate(p, y)
    assert (found.state, found.error.high <= found.tolerance) == ("undecided", True)
    assert "but the mean probability of class 0 may be off by up to 3.0 points (95 % confidence)" in found.verdict
    assert "true ECE may be up to" not in found.verdict


THREE_ROWS = np.array([[0.9, 0.1, 0.0], [0.5, 0.4, 0.1], [0.2, 0.2, 0.6]])


@pytest.mark.parametrize("n", [10, 20])
@pytest.mark.parametrize("model", ["two", "three", "tied", "saturated"])
def test_what_is_said_of_few_samples_follows_the_combined_test(model, n):
    """The intervals of few samples begin above the tolerance more often than the combined test rejects a perfect model."""
    rng = np.random.default_rng(n)
    for seed in range(30):
        u = rng.random(n)
        p = {
            "two": np.stack([1 - u, u], axis=1),
            "three": rng.dirichlet([1, 1, 1], n),
            "tied": THREE_ROWS[rng.integers(0, 3, n)],
            "saturated": softmax(rng.normal(0, 12, (n, 2))),
        }[model]
        y = (np.cumsum(p, axis=1) < rng.random((n, 1))).sum(axis=1).clip(0, p.shape[1] - 1)
        found = rhocal.evaluate(p, y, metrics=["ece"], seed=seed)
        assert found.distinguishable == (found.p_value <= 0.05)
        accuses = found.state == "beyond" or "beyond" in found.verdict or "indistinguishable" not in found.verdict
        assert accuses == found.distinguishable


def test_twenty_samples_show_a_large_error():
    """Confidence .95 and .85, right half of the time."""
    c = np.repeat([0.95, 0.85], 10)
    found = rhocal.evaluate(np.stack([1 - c, c], axis=1), np.arange(20) % 2, metrics=["ece"])
    assert (found.state, found.distinguishable) == ("beyond", True)
    assert found.verdict.endswith("; beyond the tolerance of 2.0 points")


def test_verdicts(perfect, over):
    p, y = perfect
    few = rhocal.evaluate(p, y)
    assert few.verdict.startswith(
        "too few samples to tell: indistinguishable from perfect calibration at 2,000 samples (ECE 0.0"
    )
    assert (few.state, few.distinguishable) == ("undecided", False)
    assert few.n_needed > 2000
    enough = rhocal.evaluate(p, y, tolerance=0.05)
    assert enough.verdict.startswith(
        "indistinguishable from perfect calibration at 2,000 samples, and within 5.0 points (ECE 0.0"
    )
    assert (enough.state, enough.tolerance, enough.n_needed) == ("within", 0.05, None)
    p, y = over
    said, right = 100 * p.max(1).mean(), 100 * rhocal.metrics.accuracy(p, y)
    expected = f"over-confident by {said - right:.1f} points: mean confidence {said:.1f} %, accuracy {right:.1f} %"
    assert rhocal.evaluate(p, y).verdict.startswith(expected)
    z, y = synthetic(2000, 5, scale=0.4, seed=1)
    assert rhocal.evaluate(z, y, kind="logits").verdict.startswith("under-confident by ")


def test_wrong_in_both_directions():
    """Right half of the time at .6 and at .95 alike: over-confident at high confidence; the other way round at .6 with 85 %."""
    c = np.repeat([0.6, 0.95], 1000)
    p = np.stack([c, 1 - c], axis=1)
    y = np.r_[np.arange(1000) >= 700, np.arange(1000) >= 850].astype(int)  # 70 % and 85 % right
    verdict = rhocal.evaluate(p, y).verdict
    assert verdict.startswith(
        "miscalibrated: under-confident at confidence 0.6 to 0.7, over-confident at confidence 0.9 to 1.0; by about "
    )


def test_what_only_another_test_sees():
    """Gaps that cancel inside every bin are invisible to ECE."""
    rng = np.random.default_rng(0)
    c = rng.uniform(0.9, 1.0, 20_000)
    c = np.where(rng.random(20_000) < 0.5, c, c - 0.4)
    bump = 0.04 * np.sign(np.mod(c, 0.1) - 0.05)  # up in the upper half of each bin, down in the lower
    y = (rng.random(20_000) > np.clip(c - bump, 0, 1)).astype(int)
    verdict = rhocal.evaluate(np.stack([c, 1 - c], axis=1), y).verdict
    assert "miscalibrated" in verdict or "not perfectly" in verdict
    assert "indistinguishable" not in verdict


def test_conversions(over):
    found = rhocal.evaluate(*over, groups="predicted")
    document = json.loads(found.to_json())
    assert document["values"]["ece"]["value"] == found["ece"].value
    assert document["tests"]["smooth"]["p_value"] == found.tests["smooth"].p_value
    assert [group["group"] for group in document["groups"]] == [group.group for group in found.groups]
    assert document["verdict"] == found.verdict
    frame = found.to_pandas()
    assert list(frame.index) == [figure.metric for figure in found.values]
    assert frame.loc["ece", "excess"] == found["ece"].excess
    sure = rhocal.evaluate([[1.0, 0.0]] * 3, [0, 1, 1])  # infinite statistics are not JSON
    assert "Infinity" not in sure.to_json()


def test_printed(over):
    text = str(rhocal.evaluate(*over, groups="predicted"))
    lines = text.splitlines()
    assert lines[0] == "2,000 samples, 5 classes"
    assert lines[1].split() == ["metric", "value", "true", "value", "(95", "%)", "if", "calibrated", "excess", "p"]
    assert len({len(line) for line in lines[1:7]}) == 1
    assert "verdict: over-confident" in text
    assert "p (Holm)" in text


def test_neither_order_nor_weights_as_copies_matter(over):
    p, y = over
    times = np.random.default_rng(0).integers(0, 3, len(y))
    order = np.random.default_rng(1).permutation(np.repeat(np.arange(len(y)), times))
    a = rhocal.evaluate(p, y, sample_weight=times, n_replicates=50)
    b = rhocal.evaluate(p[order], y[order], n_replicates=50)
    for one, two in zip(a.values, b.values, strict=True):
        assert np.allclose([one.value, one.low, one.high, one.floor], [two.value, two.low, two.high, two.floor])
        assert np.isclose(one.p_value, two.p_value)
    assert a.verdict == b.verdict
    assert a.p_value == b.p_value
    for name, test in a.tests.items():
        assert test.p_value == pytest.approx(b.tests[name].p_value), name


# Slices -----------------------------------------------------------------------------------------------------------------


def test_the_worst_group_comes_first():
    good, y_good = synthetic(1500, 4, scale=1.0, seed=3)
    bad, y_bad = synthetic(500, 4, scale=3.0, seed=4)
    names = np.array(["north"] * 700 + ["south"] * 800 + ["west"] * 500)
    found = rhocal.evaluate(np.r_[good, bad], np.r_[y_good, y_bad], groups=names, kind="logits")
    west, *others = found.groups
    assert (west.group, west.n_samples) == ("west", 500)
    assert west.ece.p_value < 0.05
    assert all(group.ece.p_value > 0.05 for group in others)
    assert west.verdict.startswith("over-confident")
    alone = rhocal.evaluate(bad, y_bad, kind="logits")
    assert np.isclose(west.ece.value, alone["ece"].value)
    assert np.isclose(west.accuracy, alone.accuracy)


def test_groups_are_corrected_for_having_looked_at_many():
    """Of 40 groups of a perfect model none is called out, though two of the plain p-values would be below .05."""
    z, y = synthetic(8000, 4, scale=1.0, seed=5)
    names = np.arange(8000) % 40
    found = rhocal.evaluate(z, y, groups=names, kind="logits")
    assert len(found.groups) == 40
    assert min(group.ece.p_value for group in found.groups) > 0.05
    plain = [inference.floor("ece", softmax(z[names == k]), y[names == k]).p_value for k in range(40)]
    assert 0 < np.mean(np.array(plain) <= 0.05) < 0.2


def test_a_bad_group_among_many_is_found():
    """Holm needs p below .05/60 there, which 1,000 draws cannot give: the floor is drawn more often where it matters."""
    z, y = synthetic(2400, 4, scale=1.0, seed=6)
    names = np.arange(2400) % 60
    z[names == 17] *= 6
    found = rhocal.evaluate(z, y, groups=names, kind="logits")
    assert found.groups[0].group == "17"
    assert found.groups[0].ece.p_value < 0.05


def test_groups_by_predicted_class_use_the_names_of_classes():
    z, y = synthetic(300, 3)
    found = rhocal.evaluate(z, np.array(["ant", "bee", "cow"])[y], groups="predicted", kind="logits")
    assert {group.group for group in found.groups} == {"ant", "bee", "cow"}
    assert sum(group.n_samples for group in found.groups) == 300


def test_what_cannot_be_is_said(over):
    p, y = over
    with pytest.raises(InputError, match="one name for each sample, or be 'predicted'"):
        rhocal.evaluate(p, y, groups="label")
    with pytest.raises(InputError, match="each of the 2,000 samples; got shape"):
        rhocal.evaluate(p, y, groups=[1, 2, 3])
    with pytest.raises(InputError, match="labels are missing"):
        rhocal.evaluate(p, None)
    with pytest.raises(InputError, match="no metric 'eec'"):
        rhocal.evaluate(p, y, metrics=["eec"])


def test_a_real_network_before_and_after():
    """cifar100_resnet56: 14 points over-confident; after a field ECE is that of a perfect model, though classes are not."""
    z, y, test_z, test_y = real("cifar100_resnet56")
    before = rhocal.evaluate(test_z, test_y, kind="logits")
    assert before.verdict.startswith("over-confident by 14.")
    after = rhocal.evaluate(rhocal.FieldScaling().fit(z, y).predict_proba(test_z), test_y)
    assert after.state == "within"
    assert after["ece"].p_value > 0.05
    assert after.verdict.startswith("calibrated within 2.0 points, but not perfectly: detected by the test classwise")
    assert after["ece"].low == 0


def test_a_comparison_shows_the_floor(tmp_path):
    """The mean ECE of a perfect model with the same confidences; rows of older files, without it, can stand beside."""
    from rhocal.evaluation.compare import compare, random_split
    from rhocal.evaluation.rows import read_rows, summary, write_rows

    split = random_split(rhocal.data.predictions.Predictions.from_arrays(*synthetic(1000, 4)), 0)
    calibration, test = split.calibration.predictions, split.test.predictions
    rows = list(compare("net", [(split, {"temperature": rhocal.TemperatureScaling()})]))
    probs = rhocal.TemperatureScaling().fit(calibration.logits, calibration.labels).predict_proba(test.logits)
    drawn = inference.floor("ece", probs, test.labels).mean
    assert np.isclose(rows[0].ece_floor, drawn, rtol=0.05)
    assert summary(rows)[0]["ece_floor"] == rows[0].ece_floor
    old = {name: value for name, value in rows[0].flat().items() if name != "ece_floor"}
    write_rows(tmp_path / "rows.csv", [old, rows[0].flat()])
    first, second = read_rows(tmp_path / "rows.csv")
    assert "ece_floor" not in first
    assert np.isclose(second["ece_floor"], rows[0].ece_floor, rtol=1e-5)
    assert first["note"] == second["note"] == ""


def test_the_number_that_decides_is_not_that_of_a_gap_of_chance():
    """Ten classes have a gap near the tolerance by chance: from 6,200 samples to hopelessly many were named, for one model."""
    needed = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        probs = rng.dirichlet(np.ones(10), 1000)
        labels = np.minimum((rng.random((1000, 1)) > probs.cumsum(axis=1)).sum(axis=1), 9)
        found = rhocal.evaluate(probs, labels, metrics=["ece"], classes=list(range(10)))
        assert found.state == "undecided"
        if not found.distinguishable:
            needed.append(found.n_needed)
    assert len(needed) > 15
    assert min(needed) > 5000
    assert max(needed) < 16_000  # experiments/coverage/needed.md: as many samples decide all verdicts of this model


def test_one_interval_beyond_the_tolerance_decides():
    """Logits × 2: 170 samples decide nine in ten verdicts (experiments/coverage/needed.md); thousands were named."""
    needed = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        logits = rng.normal(0, 2, (50, 5))
        labels = np.minimum((rng.random((50, 1)) > softmax(logits).cumsum(axis=1)).sum(axis=1), 4)
        found = rhocal.evaluate(softmax(2 * logits), labels, metrics=["ece"], classes=list(range(5)))
        if found.state == "undecided" and found.distinguishable:
            needed.append(found.n_needed or np.inf)
    assert len(needed) > 5
    assert 60 <= np.median(needed) <= 400


@pytest.mark.parametrize("n_replicates", [10, 18, 39])
def test_too_few_draws_are_not_called_too_few_samples(n_replicates):
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (3000, 4))
    labels = np.minimum((rng.random((3000, 1)) > softmax(logits).cumsum(axis=1)).sum(axis=1), 3)
    options = {"tolerance": 0.05, "metrics": ["ece"], "n_replicates": n_replicates, "classes": [0, 1, 2, 3]}
    found = rhocal.evaluate(softmax(3 * logits), labels, **options)
    if n_replicates == 39:
        assert found.state == "beyond"
        return
    assert (found.state, found.n_needed) == ("undecided", None)
    assert found.verdict == (
        f"too few draws to tell: an interval lies beyond the tolerance of 5.0 points, but {n_replicates} draws are too few "
        "to reject perfect calibration at 5 %; n_replicates must be at least 39"
    )


def test_two_samples_decide_nothing_and_no_number_is_made_up():
    """The estimate of two samples is noise: it tells nothing about how many would decide."""
    probs = np.array([[0.6, 0.2, 0.1, 0.1], [0.1, 0.5, 0.2, 0.2]])
    for labels in ([1, 0], [0, 1]):
        found = rhocal.evaluate(probs, labels, classes=[0, 1, 2, 3], metrics=["ece"])
        assert found.state == "undecided"
        assert found.n_needed is None or found.n_needed >= 1000


def test_no_ratio_to_a_class_that_is_not_expected():
    found = rhocal.evaluate(np.tile([1.0, 0.0], (40, 1)), [1] + [0] * 39, metrics=["ece"])
    assert np.isnan(found.positive.prevalence.observed_expected.value)
    assert "O/E –" in str(found)


def test_metrics_are_flat_finite_numbers():
    logits, labels = synthetic(400, 3)
    evaluation = rhocal.evaluate(softmax(logits), labels)
    flat = evaluation.metrics("test_")
    assert all(type(value) is float and np.isfinite(value) for value in flat.values())
    assert flat["test_ece"] == evaluation["ece"].value
    assert flat["test_ece_low"] == evaluation["ece"].low
    assert flat["test_accuracy"] == evaluation.accuracy
    assert "test_mce_low" not in flat, "there is no such interval"
