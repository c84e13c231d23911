"""Whether predictions change is visible: counted, said in one line, kept in artifacts, and a matter of one option."""

import json

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB
from typer.testing import CliRunner

import rhocal
from helpers import synthetic
from rhocal.calibrators.compose.auto import AutoCalibrator
from rhocal.calibrators.decisions import accuracies, paired_interval, with_decision_kept
from rhocal.cli import app
from rhocal.errors import DecisionWarning, InputError
from rhocal.reporting.model_card import model_card
from rhocal.sklearn import CalibratedClassifier


@pytest.fixture(scope="module")
def biased():
    logits, labels = synthetic(600, 4, seed=5)
    logits[:, 0] += 3  # a bias that a linear map takes away, and decisions with it
    return logits, labels


def test_a_fit_that_changes_predictions_says_so(biased, tmp_path):
    logits, labels = biased
    with pytest.warns(DecisionWarning, match=r"^svs changes \d+ of 600 predictions .* interval [+-]0\.\d+ to [+-]0"):
        cal = rhocal.calibrator("svs").fit(logits, labels)
    change = cal.solution_.decisions
    before, after = logits.argmax(axis=1), cal.predict(logits)
    assert change.n_changed == (before != after).sum() > 0
    assert change.accuracy_before == pytest.approx((before == labels).mean())
    assert change.accuracy_after == pytest.approx((after == labels).mean())
    assert change.low < change.accuracy_after - change.accuracy_before < change.high
    cal.save(tmp_path / "svs.safetensors")
    assert rhocal.load(tmp_path / "svs.safetensors").solution_.decisions == change
    assert f"changes {change.n_changed} of 600 predictions" in model_card(cal, {})


def test_the_warning_names_what_keeps_predictions(biased):
    """An option only where the method has it, nothing where accuracy gains; one warning a fit, not one a fold."""
    with pytest.warns(DecisionWarning) as given:
        rhocal.calibrator("svs").fit(*biased)
    assert str(given[0].message).endswith(")")
    unbiased = synthetic(600, 4)
    with pytest.warns(DecisionWarning) as given:
        rhocal.calibrator("svs").fit(*unbiased)
    assert "keep_decision=" not in str(given[0].message)
    assert "svs cannot keep all of them; cascade-order and auto" in str(given[0].message)
    assert rhocal.calibrator("cascade-order").keeps_decision
    with pytest.warns(DecisionWarning, match=r"Pass keep_decision=True to keep all of them"):
        AutoCalibrator(("svs",), n_folds=2).fit(*unbiased)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 2)) + np.repeat([[0, 0], [1, 0], [0, 1]], 100, axis=0), np.repeat(np.arange(3), 100)
    with pytest.warns(DecisionWarning) as given:
        CalibratedClassifier(GaussianNB(), "vector", cv=5).fit(x, y)
    assert len([one for one in given if one.category is DecisionWarning]) == 1
    assert "of 300 predictions on 5 held-out folds" in str(given[0].message)


@pytest.mark.parametrize("name", ["temperature", "field", "ets", "cascade-top"])
def test_methods_that_keep_say_nothing(name, biased, recwarn):
    cal = rhocal.calibrator(name).fit(*biased)
    assert not [one for one in recwarn if "predictions on the calibration set" in str(one.message)]
    assert cal.solution_.decisions is None or cal.solution_.decisions.n_changed == 0


def test_the_interval_of_a_difference_is_that_of_tango():
    """Tango (1998), Statistics in Medicine 17: his formula, solved by bisection in a program of its own."""
    for gained, lost, n, low, high in (
        (76, 0, 644, 0.095331, 0.145224),
        (4, 0, 900, 0.000175, 0.011372),
        (0, 0, 100, -0.036993, 0.036993),
        (2, 1, 5, -0.444622, 0.697053),
        (3, 0, 3, -0.122994, 1.0),
    ):
        before, after = np.zeros((2, n), bool)
        before[:lost], after[lost : lost + gained] = True, True
        found = accuracies(before, after, np.ones(n))
        np.testing.assert_allclose(found, (lost / n, gained / n, low, high), atol=2e-6)
        back = accuracies(after, before, np.ones(n))
        np.testing.assert_allclose(back[2:], (-high, -low), atol=2e-6)


def test_the_interval_of_a_difference_covers_it():
    """Also where nearly all changes are gains: with their number taken as known it covered 33 %."""
    rng = np.random.default_rng(0)
    for n, gained, lost in ((650, 0.12, 0.0), (1000, 0.05, 0.03), (1000, 0.005, 0.0)):
        hits = []
        for a, b, _ in rng.multinomial(n, [gained, lost, 1 - gained - lost], size=400):
            low, high = paired_interval(a, b, n)
            hits.append(low <= gained - lost <= high)
        assert 0.92 <= np.mean(hits) <= 0.985


def test_weights_and_clusters_count_as_what_they_tell():
    rng = np.random.default_rng(1)
    before, after = rng.random((2, 60)) < [[0.5], [0.7]]
    once = accuracies(before, after, np.ones(60))
    twice = np.repeat(before, 2), np.repeat(after, 2)
    np.testing.assert_allclose(accuracies(before, after, np.full(60, 2.0)), accuracies(*twice, np.ones(120)))
    np.testing.assert_allclose(
        accuracies(before, after, np.full(60, 0.5)), once
    )  # not counts: their scale is arbitrary
    copies = accuracies(*twice, np.ones(120), np.repeat(np.arange(60), 2))
    assert copies[3] - copies[2] == pytest.approx(once[3] - once[2], rel=0.02)
    unchanged = accuracies(np.repeat(before, 2), np.repeat(before, 2), np.ones(120), np.repeat(np.arange(60), 2))
    np.testing.assert_allclose(unchanged[2:], paired_interval(0, 0, 60), rtol=0.02)


def test_auto_that_keeps_the_decision(biased):
    logits, labels = biased
    options = {"methods": ("temperature", "svs", "cascade-top"), "n_folds": 2}
    cal = AutoCalibrator(keep_decision=True, **options)
    assert cal.keeps_decision
    cal.fit(logits, labels)
    assert cal.keeps_decision
    assert cal.map_.keeps_decision
    assert {"method": "svs", "skipped": "it may change the decision"} in cal.solution_.trials
    np.testing.assert_array_equal(cal.predict(logits), logits.argmax(axis=1))
    free = AutoCalibrator(**options)
    assert not free.keeps_decision
    free.fit(logits, labels)
    assert free.keeps_decision is free.chosen_.keeps_decision is False
    with pytest.raises(InputError, match="none of the methods svs, sms keeps the decision"):
        AutoCalibrator(("svs", "sms"), keep_decision=True).fit(logits, labels)
    assert "cascade-top" in AutoCalibrator(keep_decision=True)._candidates(4)


def test_one_option_for_every_method():
    assert with_decision_kept(rhocal.calibrator("auto")).keep_decision
    assert with_decision_kept(rhocal.calibrator("field")).label == "field"
    with pytest.raises(InputError, match=r"svs may change the predicted class.*use auto, .*field.*cascade-top"):
        with_decision_kept(rhocal.calibrator("svs"))


def test_classifiers_keep_the_decision(biased):
    logits, labels = biased
    fitted = GaussianNB().fit(logits, labels)
    model = CalibratedClassifier(fitted, "cascade-top", cv="prefit", keep_decision=True).fit(logits, labels)
    np.testing.assert_array_equal(model.predict(logits), fitted.predict(logits))
    with pytest.raises(InputError, match="may change the predicted class"):
        CalibratedClassifier(fitted, "svs", cv="prefit", keep_decision=True).fit(logits, labels)


def test_models_of_torch_keep_the_decision(biased):
    torch = pytest.importorskip("torch")
    from rhocal.torch import calibrate

    logits, labels = (torch.tensor(array) for array in biased)
    loader = [(logits, labels)]
    with pytest.raises(InputError, match="may change the predicted class"):
        calibrate(torch.nn.Identity(), loader, "svs", keep_decision=True, progress=False)
    model = calibrate(torch.nn.Identity(), loader, "cascade-top", keep_decision=True, progress=False)
    assert (model(logits).argmax(1) == logits.argmax(1)).all()


def test_the_command_line(biased, tmp_path):
    logits, labels = biased
    source, output = tmp_path / "z.npz", tmp_path / "c.safetensors"
    np.savez(source, logits=logits, labels=labels)
    run = CliRunner().invoke
    free = json.loads(run(app, ["fit", str(source), "-o", str(output), "-m", "svs", "--json"]).stdout)
    assert free["keeps_decision"] is False
    assert free["decisions"]["n_changed"] > 0
    options = ["-O", 'methods=["temperature", "svs"]', "-O", "n_folds=2"]
    kept = run(app, ["fit", str(source), "-o", str(output), "--keep-decision", "--json", *options])
    assert json.loads(kept.stdout)["keeps_decision"] is True
    refused = run(app, ["fit", str(source), "-o", str(output), "-m", "svs", "--keep-decision"])
    assert isinstance(refused.exception, InputError)
    named = run(app, ["compare", str(source), "--methods", "field,svs", "--keep-decision", "--seeds", "1"])
    assert "svs may change the predicted class" in str(named.exception)
    chosen = run(app, ["compare", str(source), "--methods", "temperature", "--keep-decision", "--seeds", "1", "--json"])
    assert chosen.exit_code == 0
