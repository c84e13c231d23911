"""The document of a report: what is computed for it, as one JSON value."""

import json
import re

import numpy as np
import pytest

import reports
import rhocal
from helpers import quick, synthetic
from rhocal import metrics
from rhocal.calibrators.registry import CALIBRATORS
from rhocal.data.predictions import Predictions
from rhocal.data.spec import InputSpec
from rhocal.errors import FileError, InputError
from rhocal.metrics.inference import paired
from rhocal.metrics.inference.design import SamplingDesign
from rhocal.reporting.document import UNCALIBRATED, build_document
from rhocal.reporting.page import render_page
from rhocal.reporting.sections.decisions import decisions
from rhocal.reporting.sections.methods import describe_fit
from rhocal.reporting.sections.provenance import Provenance


@pytest.fixture(scope="module")
def quiet():
    return reports.quiet()


def test_the_document_says_what_the_library_computes(quiet):
    found, data, cals = quiet
    assert found["format"] == "rhocal-report"
    assert found["schema"] == 2
    assert found["headline"] == "rho-norm"
    assert [m["name"] for m in found["methods"]] == [UNCALIBRATED, *cals]
    for method in found["methods"]:
        cal = cals.get(method["name"], rhocal.Identity().fit(data.logits, data.labels))
        logits = cal.transform(data.logits)
        for name, figure in method["values"].items():
            assert figure["value"] == pytest.approx(metrics.METRICS[name](logits, data.labels, kind="logits"), abs=1e-9)
    evaluation = rhocal.evaluate(data.logits, data.labels, kind="logits")
    assert found["verdict"]["before"] == evaluation.verdict
    assert found["verdict"]["level_before"] == "bad"
    assert found["verdict"]["level"] == "unsure"  # nothing is detected, but the interval reaches beyond the tolerance
    assert found["warnings"] == []


def test_fitted_numbers_and_evidence(quiet):
    found, _, cals = quiet
    fit = next(m for m in found["methods"] if m["name"] == "rho-norm")["fit"]
    assert fit["parameters"]["gamma"] == pytest.approx(cals["rho-norm"].gamma_, rel=1e-9)
    assert len(fit["trials"]) == 9
    assert fit["converged"] is True


def test_differences_are_paired_and_corrected(quiet):
    found = quiet[0]
    entry = next(m for m in found["methods"] if m["name"] == "temperature")
    difference = entry["differences"]["ece"]
    assert difference["observed"] == pytest.approx(
        entry["values"]["ece"]["value"] - found["methods"][0]["values"]["ece"]["value"], abs=1e-9
    )
    assert difference["low"] < difference["value"] < difference["high"] < 0
    nll = entry["differences"]["nll"]
    assert nll["p_value"] == pytest.approx(3 * 2 / 4001)  # the smallest possible, times three methods (Holm)
    assert difference["verdict"] == "better"
    assert entry["differences"]["accuracy"]["value"] == 0
    assert entry["differences"]["accuracy"]["verdict"] == "no difference detected"


def test_many_methods_can_still_be_significant():
    logits, labels = synthetic(300, 3, scale=6)
    cal = rhocal.TemperatureScaling().fit(logits, labels)
    found = build_document(
        Predictions.from_arrays(logits, labels), {f"t{k}": cal for k in range(26)}, Provenance.now("many")
    )
    assert found["methods"][-1]["differences"]["ece"]["verdict"] == "better"


def test_slices_and_classes(quiet):
    found, data, cals = quiet
    after = metrics.class_errors(cals["rho-norm"].predict_proba(data.logits), data.labels)
    worst = found["classes"]["rows"][0]
    assert worst["class"] == str(int(np.argmax(after)))
    assert worst["ece"]["rho-norm"] == pytest.approx(after.max(), abs=1e-6)
    assert sum(row["n_samples"] for row in found["slices"]["rows"]) == data.n_samples
    part = found["slices"]["rows"][0]
    picked = data.logits.argmax(axis=1) == int(part["slice"])
    assert part["n_samples"] == picked.sum()
    value = metrics.ece(data.logits[picked], data.labels[picked], kind="logits")
    assert part["methods"][UNCALIBRATED]["ece"]["value"] == pytest.approx(value, abs=1e-9)


def test_most_confident_mistakes_by_hand():
    """Row 1 is ignored: the other rows keep their numbers. The sample of weight 0 does not count."""
    probs = [[0.9, 0.1], [0.5, 0.5], [0.99, 0.01], [0.8, 0.2], [0.3, 0.7], [0.95, 0.05]]
    data = Predictions.from_arrays(
        probs, [1, -1, 1, 0, 0, 1], weights=[1, 1, 1, 1, 1, 0], spec=InputSpec("probs", ["a", "b"], ignore_index=-1)
    )  # fmt: skip
    found = build_document(data, {}, Provenance.now("x"))["mistakes"]
    assert [(row["row"], row["label"], row["predicted"]) for row in found["rows"]] == [
        (2, "b", "a"),
        (0, "b", "a"),
        (4, "a", "b"),
    ]
    assert (found["n_wrong"], found["n_as_confident"]) == (3, 4)
    assert found["share_wrong"] == 3 / 4
    assert found["share_expected"] == pytest.approx((0.01 + 0.1 + 0.2 + 0.3) / 4)
    assert not found["is_weighted"]


def test_weights_count_among_confident_mistakes():
    """The right sample counts nine times: a tenth is wrong, where 0.9·0.1 + 0.1·0.2 is expected."""
    data = Predictions.from_arrays(
        [[0.9, 0.1], [0.8, 0.2]] * 10, [0, 1] * 10, weights=[9, 1] * 10, spec=InputSpec("probs")
    )
    document = build_document(data, {}, Provenance.now("x"))
    found = document["mistakes"]
    assert found["share_wrong"] == pytest.approx(0.1)
    assert found["share_expected"] == pytest.approx(0.11)
    page = render_page(document)
    assert "10 of the 20 rows with a confidence" in page
    assert re.search(r"are wrong, by weight 10\.00&nbsp;%\. If these\s+confidences are right, 11\.00&nbsp;%", page)


def test_nothing_is_wrong():
    data = Predictions.from_arrays([[0.9, 0.1], [0.2, 0.8]] * 20, [0, 1] * 20, spec=InputSpec("probs"))
    assert build_document(data, {}, Provenance.now("x"))["mistakes"] is None


def test_many_slices_are_put_together():
    logits, labels = synthetic(900, 60, scale=1.0)
    found = build_document(Predictions.from_arrays(logits, labels), {}, Provenance.now("x"))["slices"]
    assert len(found["rows"]) == 40
    assert found["n_slices"] > 40
    assert sum(row["n_samples"] for row in found["rows"]) == 900


@pytest.mark.parametrize("method", [name for name in CALIBRATORS if name != "multi-domain"])
def test_the_fit_of_every_method_is_described(method):
    logits, labels = synthetic(200, 3)
    found = describe_fit(quick(method).fit(logits, labels))
    assert found["method"] == method
    assert json.dumps(found["children"], default=str)


def test_seeing_nothing_with_few_samples_is_not_trust():
    logits, labels = synthetic(150, 3, scale=1)
    few = build_document(Predictions.from_arrays(logits, labels), {}, Provenance.now("x"))
    assert few["verdict"]["level"] == "unsure"
    assert "Well calibrated" not in render_page(few)
    logits, labels = synthetic(5000, 3, scale=1)
    cal = rhocal.TemperatureScaling().fit(logits, labels)
    many = Predictions.from_arrays(logits, labels)
    assert build_document(many, {"t": cal}, Provenance.now("x"))["verdict"]["level"] == "good"
    assert build_document(many, {"t": cal}, Provenance.now("x"), same_samples=True)["verdict"]["level"] == "unsure"


def kinds(found):
    return {w["kind"] for w in found["warnings"]}


def test_warnings():
    logits, labels = synthetic(400, 4)
    logits -= logits.mean(axis=1, keepdims=True)
    data = Predictions.from_arrays(logits, labels)

    def warned(data, calibrators, **options):
        """Of a document with a single slice: slices take most of the time, and no warning is about them."""
        return kinds(
            build_document(data, calibrators, Provenance.now("x"), groups=np.zeros(data.n_samples, int), **options)
        )

    assert kinds(build_document(data, {}, Provenance.now("x"))) == {"few samples"}
    shifted = Predictions.from_arrays(logits + 30, labels)
    assert "not zero-mean" not in warned(shifted, {})  # it matters to rho-norm alone
    for chosen in ("rho-norm", "rho-norm:isotonic"):
        cal = rhocal.calibrator(chosen).fit(logits, labels)
        assert "not zero-mean" in warned(shifted, {chosen: cal})
    tune = Predictions.from_arrays(*synthetic(1200, 4, seed=1))
    only_three = tune.take(np.flatnonzero(tune.labels < 3))
    assert "unseen classes" in warned(data, {}, calibration=only_three)
    assert "shift" in warned(Predictions.from_arrays(3 * logits, labels), {}, calibration=tune)
    assert "shift" not in warned(data, {}, calibration=tune)
    cal = rhocal.TemperatureScaling().fit(logits, labels)
    assert {"same samples", "fit"} <= warned(data, {"t": cal}, same_samples=True, notes={"t": "a note"})
    right = logits.argmax(axis=1)
    with pytest.warns(rhocal.errors.BoundaryWarning):
        bound = rhocal.TemperatureScaling().fit(logits, right)
    assert "fit" in warned(data, {"t": bound})


def test_without_calibrators_and_with_two_classes():
    logits, labels = synthetic(300, 2)
    found = build_document(
        Predictions.from_arrays(logits, labels),
        {"identity": rhocal.Identity().fit(logits, labels)},
        Provenance.now("x"),
    )
    assert [m["name"] for m in found["methods"]] == [UNCALIBRATED]  # identity is the same as uncalibrated
    assert found["headline"] is None
    assert "Before and after" not in render_page(found)


def test_bad_requests():
    logits, labels = synthetic(100, 3)
    with pytest.raises(InputError, match="labels are missing"):
        build_document(Predictions.from_arrays(logits), {}, Provenance.now("x"))
    with pytest.raises(InputError, match="headline is one of"):
        build_document(Predictions.from_arrays(logits, labels), {}, Provenance.now("x"), headline="nothing")
    with pytest.raises(FileError, match="not a report of schema 2"):
        render_page({"format": "rhocal-report", "schema": 99})


def test_weights_are_repetitions():
    logits, labels = synthetic(300, 3)
    times = np.random.default_rng(0).integers(1, 4, 300)
    rows = np.repeat(np.arange(300), times)
    a = build_document(Predictions.from_arrays(logits, labels, weights=times), {}, Provenance.now("x"))["methods"][0]
    b = build_document(Predictions.from_arrays(logits[rows], labels[rows]), {}, Provenance.now("x"))["methods"][0]
    assert a["bins"] == b["bins"]
    assert a["values"]["ece"] == pytest.approx(b["values"]["ece"])


def test_normal_draws_agree_with_resampling(monkeypatch):
    logits, labels = synthetic(8000, 5, seed=2)
    shifted = logits + np.array([0, 0, 0, 0, 1.5])
    a, b = (metrics.Scored.from_predictions(Predictions.from_arrays(z, labels)) for z in (logits, shifted))
    names = ["accuracy"]
    drawn = paired.differences(a, b, names, seed=1)
    monkeypatch.setattr(paired, "MAX_RESAMPLED", 100)
    normal = paired.differences(a, b, names, seed=1)
    for name in names:
        spread = drawn[name].high - drawn[name].low
        assert normal[name].value == drawn[name].value
        assert normal[name].low == pytest.approx(drawn[name].low, abs=0.12 * spread + 1e-12)
        assert normal[name].high == pytest.approx(drawn[name].high, abs=0.12 * spread + 1e-12)
    same = metrics.Scored.from_predictions(Predictions.from_arrays(logits / 2, labels))
    assert paired.differences(a, same, names, seed=1)["accuracy"].p_value == 1


def test_what_can_be_automated(quiet):
    found, data, cals = quiet
    section = found["decisions"]
    assert section["method"] == "rho-norm"
    for entry in section["targets"]:
        decision = rhocal.decide(cals["rho-norm"], data.logits, data.labels, target=entry["target"])
        assert decision.is_feasible == (entry["threshold"] is not None)
        if decision.is_feasible:
            assert entry["threshold"] == pytest.approx(decision.policy.thresholds[0])
            assert entry["coverage"] == pytest.approx(decision.policy.certificate.coverage)
            assert entry["risk"] <= entry["bound"] <= entry["target"]
    assert any(entry["threshold"] for entry in section["targets"])
    page = render_page(found)
    assert "What can be automated" in page
    assert 'id="target"' in page
    assert render_page({key: value for key, value in found.items() if key != "decisions"})


def test_the_policy_in_the_report_and_none_on_the_samples_of_the_fit(quiet):
    document, data, cals = quiet
    cal, design = cals["rho-norm"], SamplingDesign()
    cal.policy_ = rhocal.decide(cal, data.logits, data.labels, target=0.3).policy
    try:
        section = decisions("rho-norm", cal, data, design, same_samples=False)
        assert section["policy"]["rate_here"] == pytest.approx(cal.policy_.certificate.observed)
        assert section["policy"]["n_here"] == cal.policy_.certificate.n_automated
        page = render_page({**document, "decisions": section})
        assert "the error rate of automated samples is at most 30 %" in " ".join(page.split())
        assert decisions("rho-norm", cal, data, design, same_samples=True) is None
        assert decisions("rho-norm", cal, data, SamplingDesign("importance"), same_samples=False) is None
        assert "What can be automated" not in render_page({**document, "decisions": None})
    finally:
        del cal.policy_


def test_a_bin_without_a_positive_sample_has_an_interval():
    probs = np.linspace(0.01, 0.2, 200)
    labels = (np.arange(200) >= 190).astype(int)
    curve = rhocal.report(np.stack([1 - probs, probs], 1), labels).document["methods"][0]["positive_curve"]
    assert curve["prevalence"][0] == curve["low"][0] == 0
    assert curve["high"][0] == pytest.approx(0.161, abs=0.001)  # Wilson's, for 0 of 20
