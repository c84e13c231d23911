"""Weights that correct a selection and samples in clusters: the effective sample size, and what follows from it."""

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

import rhocal
from helpers import run, synthetic
from rhocal.cli import app
from rhocal.errors import InputError, SuspiciousInputWarning
from rhocal.metrics import inference
from rhocal.metrics.inference.design import SamplingDesign
from rhocal.metrics.inference.joint_null import joint_null
from rhocal.metrics.inference.power import _shift
from rhocal.metrics.scored import Scored


def perfect(rng, n):
    c = np.minimum(0.1 + 0.9 * rng.beta(2.2, 0.7, n), 1 - 1e-6)
    return c, rng.random(n)


def binary(confidence, uniform):
    """Two classes whose more probable one has these confidences."""
    probs = np.column_stack([1 - confidence, confidence])
    return probs, (uniform < confidence).astype(int)


def clustered(rng, n_clusters, size=10, correlation=0.2):
    """Perfectly calibrated, and correct together: with a chance of sqrt(ρ) a sample shares its cluster's draw."""
    c, own = perfect(rng, n_clusters * size)
    shared = rng.random(len(c)) < math.sqrt(correlation)
    return c, np.where(shared, np.repeat(rng.random(n_clusters), size), own), np.repeat(np.arange(n_clusters), size)


def test_the_effective_sample_size_by_hand():
    """Kish: weights 1, 1, 2 are (4)² / 6 samples, whatever they sum to; counts are what they are."""
    for scale in (1.0, 10.0):
        scored = Scored(np.full(3, 0.8), np.ones(3), np.zeros(3), np.ones(3), scale * np.array([1.0, 1.0, 2.0]))
        assert SamplingDesign("importance").apply(scored).weights.sum() == pytest.approx(16 / 6)
        assert SamplingDesign().apply(scored) is scored


def test_copies_are_one_sample_each():
    """Ten copies of 100 samples, as clusters, are about 100 samples (a little less: their variance is estimated)."""
    rng = np.random.default_rng(0)
    c, u = perfect(rng, 100)
    scored = Scored.from_arrays(*binary(np.repeat(c, 10), np.repeat(u, 10)), None, "probs")
    found = SamplingDesign(clusters=np.repeat(np.arange(100), 10)).apply(scored)
    assert 90 < found.weights.sum() <= 100
    alone = SamplingDesign(clusters=np.arange(1000)).apply(scored)
    assert alone.weights.sum() > 950


def test_importance_weights_raise_no_false_alarms():
    """With weights whose sum is n, tests rejected a perfect model in .5 of all samples."""
    rejected = {"frequency": 0, "importance": 0}
    for seed in range(40):
        rng = np.random.default_rng(seed)
        c, u = perfect(rng, 400)
        w = rng.lognormal(0, 1.3, 400)
        for kind in rejected:
            tests = inference.calibration_tests(
                *binary(c, u), sample_weight=w * 400 / w.sum(), weight_kind=kind, n_replicates=99, seed=seed
            )
            rejected[kind] += tests["gap"].p_value <= 0.05
    assert rejected["frequency"] >= 6
    assert rejected["importance"] <= 5


def test_clusters_raise_no_false_alarms():
    """Ten samples a cluster with ρ = .2: the test of the mean gap rejected .11 and more."""
    rejected = {"independent": 0, "clusters": 0}
    for seed in range(60):
        rng = np.random.default_rng(seed)
        c, u, clusters = clustered(rng, 60, correlation=0.4)
        for name, chosen in (("independent", None), ("clusters", clusters)):
            tests = inference.calibration_tests(*binary(c, u), clusters=chosen, n_replicates=99, seed=seed)
            rejected[name] += tests["gap"].p_value <= 0.05
    assert rejected["independent"] >= 9
    assert rejected["clusters"] <= 7


def test_intervals_and_differences_widen_with_clusters():
    rng = np.random.default_rng(1)
    c, u, clusters = clustered(rng, 100, correlation=0.8)
    probs, labels = binary(c, u)
    for name in ("ece", "nll", "accuracy"):
        plain = inference.interval(name, probs, labels)
        wide = inference.interval(name, probs, labels, clusters=clusters)
        factor = 1.0 if name == "ece" else 1.3  # at 0 the interval of ECE has one end only
        assert wide.high - wide.low > factor * (plain.high - plain.low)
    other = np.sqrt(probs) / np.sqrt(probs).sum(axis=1, keepdims=True)
    plain, wide = (inference.paired_differences(probs, other, labels, clusters=k)["ece"] for k in (None, clusters))
    assert wide.high - wide.low > 1.3 * (plain.high - plain.low)
    assert wide.observed == pytest.approx(plain.observed)
    assert (
        inference.floor("ece", probs, labels, clusters=clusters).mean > 1.2 * inference.floor("ece", probs, labels).mean
    )


def test_dependence_of_the_positive_class_counts():
    """A shift of whole clusters toward one class has opposite signs in the residuals of the top label, and cancels there."""
    rng = np.random.default_rng(2)
    clusters = np.repeat(np.arange(100), 10)
    p = np.clip(rng.beta(2, 2, 1000), 0.01, 0.99)
    shift = np.repeat(rng.choice([-0.3, 0.3], 100), 10)
    labels = (rng.random(1000) < np.clip(p + shift, 0, 1)).astype(int)
    scored = Scored.from_arrays(np.column_stack([1 - p, p]), labels, None, "probs")
    assert SamplingDesign(clusters=clusters).apply(scored).weights.sum() < 500


def test_evaluate_reports_the_effective_sample_size():
    rng = np.random.default_rng(3)
    c, u, clusters = clustered(rng, 50, correlation=0.9)
    probs, labels = binary(c, u)
    found = rhocal.evaluate(probs, labels, clusters=clusters, n_replicates=49)
    assert found.n_samples == 500
    assert found.n_effective < 200
    assert f"500 samples (effective sample size {found.n_effective:.0f})" in str(found)
    plain = rhocal.evaluate(probs, labels, n_replicates=49)
    assert plain.n_effective is None
    assert found["ece"].value == pytest.approx(plain["ece"].value)
    assert found["ece"].floor > plain["ece"].floor


def test_what_cannot_be_used_is_said():
    probs, labels = np.full((4, 2), 0.5), [0, 1, 0, 1]
    for options, message in (
        ({"weight_kind": "survey"}, "weight_kind is one of frequency, importance"),
        ({"clusters": [1, 2]}, "one name for each of the 4 samples"),
        ({"clusters": ["a"] * 4}, "at least two clusters"),
        ({"clusters": [1.0, 2.0, np.nan, 1.0]}, "missing values"),
        ({"clusters": np.array(["a", "b", None, "b"], object)}, "missing values"),
    ):
        with pytest.raises(InputError, match=message):
            rhocal.evaluate(probs, labels, **options)
    with pytest.raises(InputError, match="design_effect must be at least 1"):
        inference.samples_needed([0.8] * 10, design_effect=0.5)


def test_sample_sizes_grow_with_the_design_effect():
    confidence = inference.typical_confidences(0.8)
    plain, clustered_sizes = (inference.samples_needed(confidence, [0.05], design_effect=k)[0] for k in (1, 2.8))
    assert clustered_sizes.n_samples == math.ceil(2.8 * plain.n_samples)


def test_classes_and_positive_in_inference():
    """Names of columns in another order than the alphabet's, as in ``rhocal.evaluate``."""
    probs = np.array([[0.9, 0.1]] * 30 + [[0.2, 0.8]] * 30)
    labels = np.array(["pos"] * 27 + ["neg"] * 3 + ["neg"] * 24 + ["pos"] * 6)
    options = {"classes": ["pos", "neg"]}
    assert inference.interval("accuracy", probs, labels, **options).estimate == pytest.approx(51 / 60)
    assert inference.floor("accuracy", probs, labels, **options).value == pytest.approx(51 / 60)
    assert inference.calibration_tests(probs, labels, **options, n_replicates=49)["gap"].p_value > 0.1
    assert inference.paired_differences(probs, probs, labels, **options)["ece"].value == 0
    one_column = inference.interval("accuracy", probs[:, 0], labels, positive="pos")
    assert one_column.estimate == pytest.approx(51 / 60)


def test_the_command_line(tmp_path):
    rng = np.random.default_rng(5)
    logits, labels = synthetic(120, 3)
    arrays = {"logits": np.repeat(logits, 5, axis=0), "labels": np.repeat(labels, 5)}
    np.savez(tmp_path / "z.npz", **arrays, patient=np.repeat(np.arange(120), 5), w=rng.lognormal(0, 1, 600))
    found = json.loads(run("evaluate", tmp_path / "z.npz", "--clusters", "patient", "--json").stdout)
    assert 100 < found["evaluation"]["uncalibrated"]["n_effective"] <= 120
    text = run("evaluate", tmp_path / "z.npz", "--weights", "w", "--weight-kind", "importance").stdout
    assert "600 samples (effective sample size" in text
    text = run("evaluate", tmp_path / "z.npz", "--weights", "w", "--weight-kind", "survey", code=2).stderr
    assert "weight_kind is one of" in text.replace("-", "_")
    figure, page = ("-o", tmp_path / "z.svg"), ("-o", tmp_path / "z.html")
    for command in (("evaluate",), ("plot", "reliability", *figure), ("power",), ("report", *page)):
        text = run(*command, tmp_path / "z.npz", "--weight-kind", "importance", code=2).stderr
        assert "name the array or column of weights with --weights" in text
    plain = json.loads(run("power", "--accuracy", "0.8", "--excess", "0.05", "--json").stdout)["needed"][0]
    wide = run("power", "--accuracy", "0.8", "--excess", "0.05", "--design-effect", "2", "--json").stdout
    assert json.loads(wide)["needed"][0]["n_samples"] == 2 * plain["n_samples"]


def test_fractions_are_not_taken_as_counts_in_silence():
    rng = np.random.default_rng(0)
    probs, labels = binary(*perfect(rng, 200))
    w = rng.lognormal(0, 1, 200)
    with pytest.warns(SuspiciousInputWarning, match=r"some weights are not whole numbers.*weight_kind="):
        rhocal.evaluate(probs, labels, sample_weight=w, metrics=["ece"])
    rhocal.evaluate(probs, labels, sample_weight=w, weight_kind="frequency", metrics=["ece"])  # stated: no warning
    rhocal.evaluate(probs, labels, sample_weight=np.round(w), metrics=["ece"])
    with pytest.raises(InputError, match=r"the weights sum to 1e-06, which is less than one sample.*importance"):
        rhocal.evaluate(probs, labels, sample_weight=w * (1e-6 / w.sum()))
    scaled = rhocal.evaluate(probs, labels, sample_weight=w * 1e-6, weight_kind="importance", metrics=["ece"])
    assert scaled.n_effective <= w.sum() ** 2 / (w @ w) * (1 + 1e-9)


def test_the_effective_sample_size_counts_the_samples_that_vary():
    """Half of the samples are sure and weigh little: the others decide. By hand: Σw²v / Σwv with v = .25 and 0 is 4."""
    probs = np.repeat([[0.5, 0.5], [1.0, 0.0]], 50, axis=0)
    scored = Scored.from_arrays(probs, np.zeros(100, int), np.repeat([4.0, 1.0], 50), "probs")
    assert SamplingDesign("importance").apply(scored).weights.sum() == pytest.approx(250 / 4, rel=1e-6)


def test_the_null_of_importance_weights_is_that_of_weighted_labels():
    """Draws add the weight itself: their sums have the variance Σw²c(1 − c), not that of shares of samples."""
    rng = np.random.default_rng(0)
    p, w = rng.random(400), rng.lognormal(0, 1.2, 400)
    scored = Scored.from_arrays(np.column_stack([1 - p, p]), (rng.random(400) < p).astype(int), w, "probs")
    scored = SamplingDesign("importance").apply(scored)
    null = joint_null(scored, 2000, 0)
    own = scored.weights
    for paths, c in ((null.top_paths, scored.confidence), (null.positive_paths, p)):
        expected = np.sqrt(own**2 @ (c * (1 - c))) / own.sum()
        assert paths[1:, -1].std() == pytest.approx(expected, rel=0.05)


def test_weights_of_unknown_kind_are_counts_only_if_they_are_whole():
    assert SamplingDesign.from_weights(None).weight_kind == "frequency"
    assert SamplingDesign.from_weights(np.array([0.0, 1.0, 3.0])).weight_kind == "frequency"
    assert SamplingDesign.from_weights(np.array([0.5, 1.0])).weight_kind == "importance"


def test_few_clusters_do_not_rule_out_errors():
    """The noise of two clusters is hardly known; an ECE far below its floor is no proof of a small error."""
    rng = np.random.default_rng(3)
    probs, labels = binary(*perfect(rng, 1000))
    found = rhocal.evaluate(probs, labels, clusters=np.arange(1000) % 2, metrics=["ece"])
    assert found["ece"].floor > 5 * found["ece"].value
    assert found["ece"].high > found["ece"].floor / 4
    assert found.state == "undecided"


def test_the_report_counts_clusters(tmp_path):
    rng = np.random.default_rng(1)
    c, u, clusters = clustered(rng, 60, correlation=0.6)
    probs, labels = binary(c, u)
    np.savez(tmp_path / "z.npz", logits=probs, labels=labels, patient=clusters)
    page, written = tmp_path / "r.html", tmp_path / "r.json"
    options = ["--kind", "probs", "--clusters", "patient", "--tolerance", "0.05"]
    run("report", tmp_path / "z.npz", "-o", page, "--json-output", written, *options)
    document = json.loads(written.read_text(encoding="utf-8"))
    found = rhocal.evaluate(probs, labels, clusters=clusters, tolerance=0.05)
    assert document["data"]["n_effective"] == pytest.approx(found.n_effective)
    assert document["verdict"]["before"] == found.verdict
    assert document["methods"][0]["tolerance"] == 0.05
    assert f"(effective sample size {found.n_effective:,.0f})" in page.read_text(encoding="utf-8")
    refused = run("evaluate", tmp_path / "z.npz", *options, "--stream", code=2).stderr
    assert "--clusters needs the file in memory" in refused


def test_importance_weights_of_a_stream_are_those_in_memory(tmp_path):
    """Also where the effective sample size depends on the probabilities, in the evaluation and in differences."""
    rng = np.random.default_rng(5)
    logits, labels = synthetic(600, 3, scale=2)
    np.savez(tmp_path / "z.npz", logits=logits, labels=labels, w=rng.lognormal(0, 1, 600) * (1 + labels))
    run("fit", tmp_path / "z.npz", "-m", "temperature", "-o", tmp_path / "t.safetensors")
    options = ["-c", tmp_path / "t.safetensors", "--weights", "w", "--weight-kind", "importance", "--json"]
    memory, stream = (
        json.loads(run("evaluate", tmp_path / "z.npz", *options, *more).stdout) for more in ((), ("--stream",))
    )
    for name, found in memory["evaluation"].items():
        other = stream["evaluation"][name]
        assert found["n_effective"] == pytest.approx(other["n_effective"])
        assert (found["verdict"], found["p_value"]) == (other["verdict"], other["p_value"])
    assert memory["differences"]["temperature"]["ece"] == pytest.approx(stream["differences"]["temperature"]["ece"])


def test_the_canonical_test_is_that_of_the_weighted_population():
    """Weights by class make a model perfect that is not on the samples as they are: no test may reject it."""
    rng = np.random.default_rng(0)
    labels = rng.choice(3, 3000, p=[0.8, 0.1, 0.1])
    scores = rng.normal(0, 1, (3000, 3)) + 1.5 * np.eye(3)[labels]
    probs = np.exp(1.5 * scores)  # the posterior where all classes are as frequent
    probs /= probs.sum(axis=1, keepdims=True)
    weights = (1 / 3 / np.array([0.8, 0.1, 0.1]))[labels]
    plain = inference.calibration_tests(probs, labels)
    weighted = inference.calibration_tests(probs, labels, sample_weight=weights, weight_kind="importance")
    assert plain["skce"].p_value < 0.01
    assert weighted["skce"].p_value > 0.05
    assert weighted["class"].p_value > 0.05
    clusters = np.arange(3000) // 10
    assert "skce" not in inference.calibration_tests(probs, labels, clusters=clusters, n_replicates=49)


@pytest.fixture(scope="module")
def of_clusters():
    """Three classes, a perfect model, 60 clusters of ten samples that are right together."""
    rng = np.random.default_rng(1)
    c, u, clusters = clustered(rng, 60, correlation=0.8)
    probs = np.column_stack([c, (1 - c) * 0.6, (1 - c) * 0.4])
    labels = (u[:, None] > probs.cumsum(axis=1)[:, :2]).sum(axis=1)
    return probs, labels, clusters


def test_samples_and_labels_are_counted_as_they_come(of_clusters):
    """Not effective ones, which nobody can collect: 8 of 8 sets of as many samples as were named had left it undecided."""
    probs, labels, clusters = of_clusters
    counts = np.bincount(labels)
    alone = rhocal.evaluate(probs, labels, tolerance=0.05)
    found = rhocal.evaluate(probs, labels, clusters=clusters, groups=clusters % 2, tolerance=0.05)
    assert found.n_effective < 300
    assert found.state == alone.state == "undecided"
    assert found.n_needed > 1.5 * alone.n_needed
    assert f"about {found.n_needed:,} samples would decide" in found.verdict
    assert "at 600 samples" in found.verdict
    assert all("at 300 samples" in group.verdict for group in found.groups)
    assert {int(figures.name): figures.n_labels for figures in found.classes} == dict(enumerate(counts))
    weights = np.random.default_rng(0).exponential(size=600) * 100
    weighted = rhocal.evaluate(probs, labels, sample_weight=weights, weight_kind="importance", tolerance=0.05)
    assert {int(figures.name): figures.n_labels for figures in weighted.classes} == dict(enumerate(counts))
    copies = rhocal.evaluate(probs, labels, sample_weight=np.full(600, 2), clusters=clusters, tolerance=0.05)
    assert {int(figures.name): figures.n_labels for figures in copies.classes} == dict(enumerate(2 * counts))


@pytest.mark.parametrize("weight_kind", ["importance", None])
def test_the_report_counts_samples(of_clusters, weight_kind):
    probs, labels, clusters = of_clusters
    labels = (labels == 0).astype(int)
    weights = None if weight_kind is None else np.random.default_rng(0).exponential(size=600) * 100
    options = {"sample_weight": weights, "weight_kind": weight_kind, "clusters": clusters}
    document = rhocal.report(np.column_stack([1 - probs[:, 0], probs[:, 0]]), labels, **options).document
    (method,) = document["methods"]
    assert document["data"]["n_effective"] < 300
    assert sum(method["positive_curve"]["n_samples"]) == pytest.approx(600, abs=1e-3)
    for bins in method["bins"].values():
        assert sum(bins["weight"]) == pytest.approx(document["data"]["n_effective"], rel=1e-6)
        assert sum(bins["n_samples"]) == pytest.approx(600, abs=1e-3)
    expected = np.bincount(labels)
    assert {row["class"]: row["n_labels"] for row in document["classes"]["rows"]} == {
        "0": expected[0],
        "1": expected[1],
    }


def test_the_power_of_weighted_samples(tmp_path, of_clusters):
    """Rows of weight 0 do not count; weights that correct a selection, and clusters, need more samples."""
    probs, labels, clusters = of_clusters
    kept = np.arange(600) % 3 == 0
    logits = np.log(probs)
    importance = np.random.default_rng(0).exponential(size=600) ** 2
    zeros, part = tmp_path / "zeros.npz", tmp_path / "part.npz"
    np.savez(zeros, logits=np.where(kept[:, None], logits, 8 * logits), labels=labels, w=kept.astype(float),
             importance=importance, clusters=clusters)  # fmt: skip
    np.savez(part, logits=logits[kept], labels=labels[kept])

    def needed(*arguments):
        result = CliRunner().invoke(app, ["power", *map(str, arguments), "--excess", "0.05", "--json"])
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)
        return found["needed"][0]["n_samples"], found["verdict"]

    assert needed(zeros, "--weights", "w") == needed(part)
    n, verdict = needed(zeros, "--weights", "importance", "--weight-kind", "importance")
    with pytest.warns(SuspiciousInputWarning, match="not whole numbers"):
        shares, _ = needed(zeros, "--weights", "importance")
    assert n > 2 * shares
    assert verdict["n_samples"] == 600
    assert needed(zeros, "--clusters", "clusters")[0] > 1.5 * needed(zeros)[0]


def test_an_impossible_excess_is_refused():
    """An accuracy of 0.35 − 0.4 does not exist; where some confidences are below an excess, others make up for them."""
    with pytest.raises(InputError, match=r"over-confidence of 0\.4 is impossible where the mean confidence is 0\.35"):
        inference.samples_needed(np.full(100, 0.35), [0.02, 0.4])
    assert [size.excess for size in inference.samples_needed(np.full(100, 0.04))] == [0.005, 0.01, 0.02, 0.03]
    confidence = np.array([0.1, 0.5])
    assert _shift(confidence, np.full(2, 0.5), 0.2) == pytest.approx(0.3)  # min(0.1, x) + min(0.5, x) = 0.4
    assert _shift(confidence, np.full(2, 0.5), 0.1) == 0.1
    weighted = inference.samples_needed([0.6, 0.9], [0.05], sample_weight=[1, 3])
    assert weighted == inference.samples_needed([0.6, 0.9, 0.9, 0.9], [0.05])
