"""Calibrators for another mix of the classes."""

import numpy as np
import pytest

import rhocal
from rhocal.errors import FewSamplesWarning, FileError, InputError

pytestmark = pytest.mark.filterwarnings("ignore::rhocal.errors.RhocalWarning")


def draw(n, share, seed):
    """A model that is right for balanced classes."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < share).astype(int)
    return 1.5 * rng.normal(1.5 * y, 1) - 1.125, np.array(["no", "yes"])[y]


Z, Y = draw(20_000, 0.5, 0)
NEW, TRUTH = draw(50_000, 0.02, 1)


@pytest.fixture(scope="module")
def cal():
    return rhocal.calibrator("temperature").fit(Z, Y, positive="yes")


def nll(p):
    return -np.log(p[np.arange(len(p)), (TRUTH == "yes").astype(int)]).mean()


@pytest.mark.parametrize(
    "known",
    [
        {"prevalence": 0.02},
        {"priors": {"yes": 0.02, "no": 0.98}},
        {"priors": [0.98, 0.02]},
        {"sampling_rates": {"no": 0.02 / 0.98}},
        {"logits": NEW},
        {"logits": NEW, "labeled": (Z, Y)},
    ],
    ids=" ".join,
)
def test_a_rare_class(cal, known):
    p = rhocal.adapt(cal, **known).calibrator.predict_proba(NEW)
    oracle = 1 / (1 + np.exp(-NEW - np.log(0.02 / 0.98)))
    limit = 1.3 if "logits" in known else 1.1  # the error of an estimate from this many samples is about 15 %
    assert 1 / limit < (TRUTH == "yes").mean() / p[:, 1].mean() < limit
    assert nll(p) < 1.01 * nll(np.stack([1 - oracle, oracle], axis=1))
    assert 0.05 < (TRUTH == "yes").mean() / cal.predict_proba(NEW)[:, 1].mean() < 0.1  # what it repairs


def test_what_is_told_of_an_estimate(cal):
    found = rhocal.adapt(cal, NEW, labeled=(Z, Y))
    assert found.low[1] < found.priors[1] < found.high[1] < 0.05
    assert found.is_explained
    assert "a change of class shares alone explains them (no sign of another change, p = " in found.verdict
    alone = rhocal.adapt(cal, NEW)
    assert alone.low is None
    assert "labeled samples of the calibration mix" in alone.verdict
    other = rhocal.adapt(cal, 1.6 * NEW + 1, labeled=(Z, Y))
    assert not other.is_explained
    assert "does not explain them" in other.verdict


@pytest.mark.parametrize("kind", ["logits", "probs"])
@pytest.mark.parametrize("method", ["temperature", "isotonic", "cascade", "beta", "svs:field"])
def test_artifact_and_second_adaptation(tmp_path, method, kind):
    scores = (lambda z: z) if kind == "logits" else (lambda z: 1 / (1 + np.exp(-z)))
    cal = rhocal.calibrator(method).fit(scores(Z[:800]), Y[:800], kind=kind, positive="yes")
    one = rhocal.adapt(cal, prevalence=0.02).calibrator
    assert one.label == f"{method}:prior-shift"
    assert one.positive_ == "yes"
    p, q = cal.predict_proba(scores(NEW[:500])), one.predict_proba(scores(NEW[:500]))
    odds = np.log(q[:, 1] / q[:, 0]) - np.log(p[:, 1] / p[:, 0])
    share = (Y[:800] == "yes").mean()
    assert odds == pytest.approx(np.log(0.02 / 0.98) - np.log(share / (1 - share)), abs=1e-6)
    one.save(tmp_path / "one.safetensors")
    loaded = rhocal.load(tmp_path / "one.safetensors")
    assert np.array_equal(loaded.predict_proba(scores(NEW[:500])), q)
    assert loaded.label_shares_ == pytest.approx([0.98, 0.02])
    two = rhocal.adapt(loaded, prevalence=0.3).calibrator
    assert two.label == one.label  # one shift, not two
    direct = rhocal.adapt(cal, prevalence=0.3).calibrator.predict_proba(scores(NEW[:500]))
    assert two.predict_proba(scores(NEW[:500])) == pytest.approx(direct, abs=1e-12)


def test_a_prevalence_is_that_of_a_stated_class():
    table = np.stack([Z, -Z], axis=1)[:800]  # the first column is the rare class
    labels = np.where(Y[:800] == "yes", "fraud", "legit")
    cal = rhocal.TemperatureScaling().fit(table, labels)
    with pytest.raises(InputError, match=r"not stated which of fraud and legit that is\. Pass positive= to name"):
        rhocal.adapt(cal, prevalence=0.02)
    adapted = rhocal.adapt(cal, prevalence=0.02, positive="fraud")
    assert adapted.priors == pytest.approx([0.02, 0.98])
    assert (adapted.positive, adapted.to_dict()["positive"]) == ("fraud", "fraud")
    assert str(adapted) == "the shares were stated (positive class: fraud); nothing about them was tested"
    assert rhocal.adapt(cal, priors={"fraud": 0.02, "legit": 0.98}).positive is None
    named = rhocal.TemperatureScaling().fit(table, labels, positive="fraud")
    assert rhocal.adapt(named, prevalence=0.02).positive == "fraud"


@pytest.mark.parametrize("classes", [[0, 1], [1, 2], [-1, 1], [False, True], ["0", "1"], ["false", "true"]])
def test_of_classes_that_are_numbers_or_truth_values_the_second_is_positive(classes):
    table = np.stack([-Z, Z], axis=1)[:800]
    labels = np.array(classes)[(Y[:800] == "yes").astype(int)]
    cal = rhocal.TemperatureScaling().fit(table, labels, classes=classes)
    adapted = rhocal.adapt(cal, prevalence=0.02)
    assert adapted.priors == pytest.approx([0.98, 0.02])
    assert adapted.positive == classes[1]


def test_large_logits_keep_the_new_mix(cal):
    rare = rhocal.adapt(cal, prevalence=0.02).calibrator
    want = rare.predict_proba([[0.0, 0.0]])
    for size in (1e9, -1e9, 1e30, -1e30):
        np.testing.assert_allclose(rare.predict_proba([[size, size]]), want, rtol=0, atol=1e-12)


def test_exports(cal, tmp_path):
    torch, runtime = pytest.importorskip("torch"), pytest.importorskip("onnxruntime")
    adapted = rhocal.adapt(cal, prevalence=0.02).calibrator
    two = np.stack([-Z / 2, Z / 2], axis=1)[:100]
    p = adapted.predict_proba(two)
    assert adapted.to_torch(output="probs")(torch.as_tensor(two)).numpy() == pytest.approx(p, abs=1e-6)
    adapted.to_onnx(tmp_path / "x.onnx")
    session = runtime.InferenceSession(tmp_path / "x.onnx")
    assert session.run(None, {"logits": two.astype(np.float32)})[0] == pytest.approx(p, abs=1e-6)


def test_many_samples_are_sampled_by_content(cal, monkeypatch):
    monkeypatch.setattr("rhocal.evaluation.adapt.MAX_SAMPLES", 15_000)
    one = rhocal.adapt(cal, NEW, labeled=(Z, Y))
    two = rhocal.adapt(cal, NEW[::-1], labeled=(Z[::-1], Y[::-1]))
    assert one.n_samples == 15_000
    assert two.priors == pytest.approx(one.priors, abs=1e-9)
    assert one.priors[1] == pytest.approx(0.02, abs=0.012)


def test_sampling_rates_are_those_of_the_calibration_set(cal, tmp_path):
    path = tmp_path / "c.safetensors"
    rhocal.adapt(cal, prevalence=0.2).calibrator.save(path)
    once = rhocal.adapt(cal, sampling_rates={"no": 0.1})
    for adapted in (once.calibrator, rhocal.load(path)):
        again = rhocal.adapt(adapted, sampling_rates={"no": 0.1})
        assert again.priors == pytest.approx(once.priors)
        assert again.source == pytest.approx(cal.label_shares_)
        assert again.calibrator.predict_proba(NEW[:50]) == pytest.approx(once.calibrator.predict_proba(NEW[:50]))
        assert again.calibrator.label == "temperature:prior-shift"


def test_samples_of_tied_scores_have_the_mix_of_all(cal, monkeypatch):
    """Equal samples had one key: of eight scores those of the smallest keys were used, and all of their samples."""
    rng = np.random.default_rng(0)
    levels = np.linspace(-3, 3, 8)
    k, labeled = rng.integers(8, size=40_000), rng.integers(8, size=40_000)
    y = np.array(["no", "yes"])[(rng.random(40_000) < 1 / (1 + np.exp(-levels[labeled]))).astype(int)]
    whole = rhocal.adapt(cal, levels[k], labeled=(levels[labeled], y))
    monkeypatch.setattr("rhocal.evaluation.adapt.MAX_SAMPLES", 15_000)
    one = rhocal.adapt(cal, levels[k], labeled=(levels[labeled], y))
    two = rhocal.adapt(cal, levels[k][::-1], labeled=(levels[labeled][::-1], y[::-1]))
    assert one.n_samples == one.n_labeled == 15_000
    assert two.priors == pytest.approx(one.priors, abs=1e-9)
    assert one.priors == pytest.approx(whole.priors, abs=0.03)
    alone = rhocal.adapt(cal, levels[k])
    monkeypatch.undo()
    assert alone.priors == pytest.approx(rhocal.adapt(cal, levels[k]).priors, abs=0.03)


def test_errors(cal, tmp_path):
    with pytest.raises(InputError, match="exactly one of logits, priors, prevalence, sampling_rates; got none"):
        rhocal.adapt(cal)
    with pytest.raises(InputError, match="between 0 and 1"):
        rhocal.adapt(cal, prevalence=2)
    with pytest.raises(InputError, match="maybe is no class; the classes are no, yes"):
        rhocal.adapt(cal, priors={"maybe": 1})
    with pytest.raises(InputError, match="yes is missing"):
        rhocal.adapt(cal, priors={"no": 1})
    with pytest.raises(InputError, match="sum to 1"):
        rhocal.adapt(cal, priors=[0.2, 0.2])
    with pytest.raises(InputError, match="above 0 and at most 1"):
        rhocal.adapt(cal, sampling_rates={"no": 2})
    with pytest.raises(InputError, match="labeled belongs to logits"):
        rhocal.adapt(cal, prevalence=0.1, labeled=(Z, Y))
    for options, message in (
        ({"priors": "abc"}, "priors must be a finite number for each of the 2 classes; got 'abc'"),
        ({"priors": {"no": "x", "yes": 0.5}}, "priors: that of no must be a finite number; got 'x'"),
        ({"prevalence": "0.1"}, "prevalence must be a number between 0 and 1 .* got '0.1'"),
        ({"prevalence": [0.1]}, "prevalence must be a number between 0 and 1"),
        ({"logits": Z, "labeled": Z}, r"labeled must be a pair, \(logits, labels\); got ndarray"),
    ):
        with pytest.raises(InputError, match=message):
            rhocal.adapt(cal, **options)
    logits = np.random.default_rng(0).normal(size=(300, 3))
    absent = rhocal.calibrator("temperature").fit(logits, np.arange(300) % 2, classes=[0, 1, 2])
    with pytest.raises(InputError, match="no samples of 2"):
        rhocal.adapt(absent, priors=[0.2, 0.3, 0.5])
    with pytest.raises(InputError, match="Pass priors= to state the share of each class"):
        rhocal.adapt(absent, prevalence=0.2)
    cal.save(tmp_path / "cal.safetensors")
    whole = (tmp_path / "cal.safetensors").read_bytes()
    damaged = whole.replace(b'label_shares\\": [0.', b'label_shares\\": [9.')
    assert damaged != whole
    (tmp_path / "cal.safetensors").write_bytes(damaged)
    with pytest.raises(FileError, match="shares of labels"):
        rhocal.load(tmp_path / "cal.safetensors")


def test_few_samples_for_many_classes_are_a_warning():
    rng = np.random.default_rng(0)
    labels = np.arange(1000) % 50
    logits = 4 * np.eye(50)[labels] + rng.normal(size=(1000, 50))
    many = rhocal.calibrator("temperature").fit(logits, labels)
    with pytest.warns(FewSamplesWarning, match="shares of 50 classes are estimated from 900 samples; below 20 a class"):
        rhocal.adapt(many, logits[:900])


@pytest.mark.parametrize("method", ["matrix", "rho-norm", "temperature:svs"])
def test_masked_classes_stay_masked(method):
    """Rounding made masks classes again for the first map of a chain: a probability of .54 became 1e-45."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(200, 4)) * 2
    cal = rhocal.calibrator(method).fit(z, (z + rng.gumbel(size=z.shape)).argmax(axis=1))
    new = np.array([0.3, 0.25, 0.3, 0.15])
    z[:, [0, 2]] = -1e4
    before = cal.predict_proba(z)
    want = before * (new / cal.label_shares_)
    np.testing.assert_allclose(
        rhocal.adapt(cal, priors=new).calibrator.predict_proba(z),
        want / want.sum(axis=1, keepdims=True),
        rtol=0,
        atol=1e-9,
    )
