"""Decisions with a guarantee: from Python, in artifacts and after loading."""

import numpy as np
import pytest
import torch

import rhocal
from helpers import fit_map, synthetic
from rhocal.calibrators.policies.policy import NEVER, Policy
from rhocal.errors import InputError
from rhocal.evaluation.decide import decide
from rhocal.reporting.model_card import model_card

Z, Y = synthetic(6000, 3, seed=1)
pytestmark = pytest.mark.filterwarnings("ignore::rhocal.errors.RhocalWarning")


@pytest.fixture(scope="module")
def cal():
    return rhocal.TemperatureScaling().fit(Z[:2000], Y[:2000])


@pytest.fixture
def fresh():
    return rhocal.TemperatureScaling().fit(Z[:2000], Y[:2000])


def test_what_is_certified_is_what_is_decided(fresh, tmp_path):
    found = decide(fresh, Z[2000:], Y[2000:], target=0.1, reference=Z[:2000])
    fresh.policy_ = found.policy
    fresh.save(tmp_path / "cal.safetensors")
    loaded = rhocal.load(tmp_path / "cal.safetensors")
    assert loaded.policy_.certificate == found.policy.certificate
    decisions = loaded.decide(Z[2000:])
    certificate = found.policy.certificate
    assert decisions.automated.sum() == certificate.n_automated
    wrong = decisions.label != Y[2000:]
    assert wrong[decisions.automated].mean() == pytest.approx(certificate.observed)
    assert certificate.observed < certificate.bound <= 0.1
    assert certificate.coverage_low < certificate.coverage < certificate.coverage_high
    assert set(decisions.action) == {"automate", "review"}
    assert found.coverage_if_known >= certificate.coverage
    assert found.verdict.endswith("at most 10 % with 95 % confidence")
    assert found.price.startswith("price of certainty: ")


def test_a_decision_prints_its_verdict(fresh):
    decision = decide(fresh, Z[2000:], Y[2000:], target=0.2)
    assert str(decision) == decision.verdict
    assert len(repr(decision)) < 1000


def test_a_fit_removes_the_policy(fresh):
    fresh.policy_ = Policy("confidence", np.array([0.5]))
    fresh.fit(Z[:500], Y[:500])
    with pytest.raises(InputError, match="has no policy"):
        fresh.decide(Z)


def test_thresholds_of_classes(fresh):
    labels = np.where(Y[2000:] == 2, 1, Y[2000:])  # class 2 never occurs: all its predictions are wrong
    found = decide(fresh, Z[2000:], labels, target=0.25, score="per-class")
    assert found.policy.thresholds[2] == NEVER
    assert [row.n_automated > 0 for row in found.classes] == [True, True, False]
    fresh.policy_ = found.policy
    decisions = fresh.decide(Z[2000:])
    for row, name in zip(found.classes, range(3), strict=True):
        mine = decisions.automated & (decisions.column == name)
        assert mine.sum() == row.n_automated
        assert not row.n_automated or row.bound <= 0.25
    assert found.to_dict()["classes"][2]["n_automated"] == 0


@pytest.mark.parametrize(("risk", "target"), [("fpr", 0.1), ("fnr", 0.1), ("precision", 0.9), ("recall", 0.9)])
@pytest.mark.parametrize("positive", ["no", "yes"])
def test_risks_of_a_positive_class(risk, target, positive):
    rng = np.random.default_rng(2)
    p = rng.beta(0.4, 0.4, 4000)
    truth = np.where(rng.random(4000) < p, "yes", "no")
    both = np.stack([1 - p, p], axis=1)
    cal = rhocal.Identity().fit(both[:2000], truth[:2000], kind="probs", positive=positive)
    found = decide(cal, both[2000:], truth[2000:], risk=risk, target=target, positive=positive)
    cal.policy_ = found.policy
    label, truth = cal.decide(both[2000:]).label == positive, truth[2000:] == positive
    rates = {
        "fpr": label[~truth].mean(),
        "fnr": 1 - label[truth].mean(),
        "precision": truth[label].mean(),
        "recall": label[truth].mean(),
    }
    assert found.policy.certificate.observed == pytest.approx(rates[risk])
    assert (rates[risk] > target) == (risk in {"precision", "recall"})
    assert abs(rates[risk] - target) < 0.04
    assert f"decide {positive} for" in found.verdict


def test_costs_and_streams(cal, tmp_path):
    costs = np.array([[0, 1, 4], [1, 0, 1], [4, 1, 0.0]])
    found = decide(cal, Z[2000:], Y[2000:], risk="cost", target=0.3, costs=costs)
    decisions = found.policy.decide(cal.predict_proba(Z[2000:]), cal.classes_)
    paid = costs[Y[2000:], decisions.column][decisions.automated]
    assert found.policy.certificate.observed == pytest.approx(paid.mean())
    assert paid.mean() < found.policy.certificate.bound <= 0.3
    np.save(tmp_path / "logits.npy", Z[2000:])
    np.save(tmp_path / "labels.npy", Y[2000:])
    stream = rhocal.stream(tmp_path / "logits.npy", labels=tmp_path / "labels.npy")
    whole = decide(cal, Z[2000:], Y[2000:], target=0.1)
    assert decide(cal, stream, target=0.1).policy.thresholds == pytest.approx(whole.policy.thresholds)


def test_one_more_label_is_not_what_would_do():
    """A threshold that alone would pass its test is not certified where a stricter one, tested first, fails."""
    rng = np.random.default_rng(44)
    n = int(rng.integers(40, 400))
    p = rng.uniform(0.4, 1, n)
    labels, logits = (rng.random(n) < p).astype(int), np.stack([np.zeros(n), np.log(p / (1 - p))], axis=1)
    found = decide(rhocal.TemperatureScaling().fit(logits, labels), logits, labels, target=0.2)
    assert found.n_more <= 0.02 * n
    assert found.verdict.endswith("too few to prove at most 20 %; a few more labels may be enough")


def test_infeasible_targets_say_what_would_do(cal):
    few = decide(cal, Z[2000:2300], Y[2000:2300], target=0.07)
    assert not few.is_feasible
    assert few.n_more > 100
    assert few.verdict.startswith("not provable: ")
    assert f"{100 * few.best[1]:.3g} % most confident samples, but 300 samples are too few to prove" in few.verdict
    assert few.best[0] < 0.07
    assert few.verdict.endswith(f"at most 7 %; about {few.n_more:,} more labels needed")
    fewer = decide(cal, Z[2000:2100], Y[2000:2100], target=0.01)
    assert fewer.verdict.startswith("infeasible: at best ")
    assert fewer.verdict.endswith("100 samples are too few to tell how many more labels would do")
    p = np.linspace(0.01, 0.99, 60)
    right = decide(None, p, (p > 0.5).astype(int), kind="probs", risk="precision", target=0.99)
    assert right.verdict.startswith("not provable: precision 100 % if ")
    assert " % of samples are decided 1, but 60 samples are too few to prove at least 99 %; " in right.verdict
    hopeless = decide(cal, Z[2000:], (Y[2000:] + 1) % 3, target=0.01)
    assert hopeless.verdict.endswith("at every threshold; if it is true, no number of labels would do")
    assert hopeless.to_dict()["feasible"] is False


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": 2}, r"target must lie between 0 and 1 \(0.02 for 2 % errors\); got 2"),
        ({"target": 0.1, "confidence": 95}, "confidence must lie between 0 and 1"),
        ({"target": 0.1, "risk": "f1"}, "risk is one of error, fpr"),
        ({"target": 0.1, "risk": "fpr"}, "the positive class of two; there are 3 classes. Use risk error"),
        ({"target": 0.1, "risk": "fpr", "score": "confidence"}, "threshold on score positive"),
        ({"target": 0.1, "risk": "cost"}, "a table of costs belongs to risk cost"),
        ({"target": 9, "risk": "cost", "costs": 1 - np.eye(3)}, "between the smallest and the largest cost, 0 and 1"),
        ({"target": 0.1, "risk": "cost", "costs": np.eye(2)}, "a row for each of the 3 classes"),
        ({"target": 0.1, "sample_weight": np.full(4000, 0.5)}, "weights must be whole numbers"),
        ({"target": 0.1, "sample_weight": np.full(4000, 2**20)}, "sum to 4.1943e\\+09, .* at most 5,000,000 can be"),
        ({"target": 0.1, "otherwise": "guess"}, "otherwise is review or abstain"),
        ({"target": "0.05"}, "target must be a number between 0 and 1 .*; got '0.05'"),
        ({"target": None}, "target must be a number"),
        ({"target": np.array([0.05])}, r"target must be a number .*; got ndarray of shape \(1,\)"),
        ({"target": "x", "risk": "cost", "costs": 1 - np.eye(3)}, "target must be a number, the largest mean cost"),
        ({"target": 0.1, "confidence": "a"}, "confidence must be a number"),
    ],
)
def test_bad_questions(cal, options, message):
    with pytest.raises(InputError, match=message):
        decide(cal, Z[2000:], Y[2000:], **options)


def test_an_absent_class_is_named():
    p = np.linspace(0.1, 0.9, 50)
    with pytest.raises(InputError, match=r"no sample of the positive class \(no label is 1\)"):
        decide(None, p, np.zeros(50, int), kind="probs", risk="recall", target=0.9)
    with pytest.raises(InputError, match=r"no negative sample \(every label is 1\)"):
        decide(None, p, np.ones(50, int), kind="probs", risk="fpr", target=0.1)


def test_of_tied_classes_the_first_is_decided_by_its_threshold():
    policy = Policy("per-class", np.array([0.3, 0.45, NEVER]))
    probs = np.array([[0.4, 0.4, 0.2], [0.5, 0.5, 0.0], [0.4, 0.35, 0.25], [0.2, 0.2, 0.6]])
    found = policy.decide(probs, np.array(["a", "b", "c"]))
    assert found.label.tolist() == ["a", "a", "a", "c"]
    assert found.automated.tolist() == [True, True, True, False]


def test_classes_in_another_order():
    names = np.array(["a", "b", "c"])
    cal = rhocal.VectorScaling().fit(Z[:2000], names[Y[:2000]], classes=names)
    other = [2, 0, 1]
    same = decide(cal, Z[2000:], names[Y[2000:]], target=0.1)
    turned = decide(cal, Z[2000:, other], names[Y[2000:]], target=0.1, classes=names[other])
    assert turned.policy.thresholds == pytest.approx(same.policy.thresholds)
    assert turned.policy.certificate == same.policy.certificate
    with pytest.raises(InputError, match="the classes are x, y, z, but the calibrator was fitted with a, b, c"):
        decide(cal, Z[2000:], Y[2000:], target=0.1, classes=["x", "y", "z"])


def test_what_would_do_for_a_class(cal):
    """Each class is tested by itself at a third of the error probability, so that more labels are needed than for all."""
    rows = slice(2000, 2300)
    found = decide(cal, Z[rows], Y[rows], target=0.15, score="per-class")
    assert not found.is_feasible
    assert found.n_more > decide(cal, Z[rows], Y[rows], target=0.1).n_more / 3
    assert found.best[1] < 0.4
    sure = decide(cal, Z[2000:], Y[2000:], target=0.3, confidence=0.999999)
    assert sure.verdict.endswith("with 99.9999 % confidence")


def test_domains_are_certified_as_they_are_decided():
    domains = np.array(["x", "y"])[np.arange(len(Y)) % 2]
    logits = Z * np.where(domains == "x", 1, 3)[:, None]
    cal = rhocal.calibrator("multi-domain").fit(logits[:2000], Y[:2000], groups=domains[:2000])
    found = decide(cal, logits[2000:], Y[2000:], target=0.1, groups=domains[2000:])
    cal.policy_ = found.policy
    decisions = cal.decide(logits[2000:], groups=domains[2000:])
    assert decisions.automated.sum() == found.policy.certificate.n_automated
    with pytest.raises(InputError, match="does not use groups"):
        decide(rhocal.TemperatureScaling().fit(Z[:100], Y[:100]), Z, Y, target=0.1, groups=domains)


def test_the_model_card_states_the_promise(fresh):
    fresh.policy_ = decide(fresh, Z[2000:], Y[2000:], target=0.1).policy
    text = model_card(fresh, {})
    assert "- policy: automates where the predicted class has a probability of at least 0." in text
    assert "error at most 0.1 with 95 % confidence, certified on 4,000 samples" in text
    assert "policy" not in model_card(rhocal.TemperatureScaling().fit(Z[:500], Y[:500]), {})


def test_the_risk_is_certified_in_every_segment():
    z, y = synthetic(6000, 3, seed=9)
    segment = np.where(np.arange(6000) % 3 == 0, "north", "south")
    hard = segment == "north"
    y = np.where(hard & (np.random.default_rng(1).random(6000) < 0.08), (y + 1) % 3, y)  # more errors there
    cal = rhocal.TemperatureScaling().fit(z[:2000], y[:2000])
    held = (cal, z[2000:], y[2000:])
    whole = rhocal.decide(*held, target=0.15)
    found = rhocal.decide(*held, target=0.15, segments=segment[2000:])
    assert found.policy.thresholds[0] > whole.policy.thresholds[0]
    assert "with 95 % confidence in each of 2 segments" in found.verdict
    decided = found.policy.decide(cal.predict_proba(z[2000:]), cal.classes_)
    for row in found.segments:
        mine = decided.automated & (segment[2000:] == row.name)
        assert row.n_automated == mine.sum()
        assert row.observed == (decided.label != y[2000:])[mine].mean()
        assert row.bound <= 0.15
    one = rhocal.decide(*held, target=0.15, segments=np.zeros(4000, int))
    assert one.policy.thresholds == whole.policy.thresholds
    order = np.random.default_rng(0).permutation(4000)
    again = rhocal.decide(cal, z[2000:][order], y[2000:][order], target=0.15, segments=segment[2000:][order])
    assert again.policy.thresholds == found.policy.thresholds
    assert [row["name"] for row in found.to_dict()["segments"]] == ["north", "south"]


@pytest.mark.parametrize("segments", [np.full(2000, np.nan), ["north"] * 10])
def test_messages_name_segments(cal, segments):
    with pytest.raises(InputError, match=r"^segments "):
        decide(cal, Z[2000:], Y[2000:], target=0.1, segments=segments)


@pytest.mark.parametrize("as_labels", [np.asarray, np.ndarray.tolist, torch.tensor])
def test_segments_of_images(cal, as_labels):
    """One for each pixel, as labels are."""
    segments = np.where(np.arange(2000) % 2, "north", "south")
    flat = decide(cal, Z[2000:4000], Y[2000:4000], target=0.3, segments=segments)
    images, marks = Z[2000:4000].reshape(20, 100, 3), as_labels(Y[2000:4000].reshape(20, 100))
    for labels in (marks, as_labels(Y[2000:4000])):
        assert decide(cal, images, labels, target=0.3, segments=segments.reshape(20, 100)).to_dict() == flat.to_dict()
    with pytest.raises(InputError, match="transpose"):
        decide(cal, images, as_labels(Y[2000:4000]), target=0.3, segments=segments.reshape(100, 20))


def test_segments_that_are_small_empty_or_without_positives():
    z, y = synthetic(3000, 2, seed=3)
    few = np.where(np.arange(3000) < 40, "few", "many")
    found = rhocal.decide(None, z, y, target=0.02, segments=few)
    assert not found.is_feasible
    assert "cannot be certified in segment few (40 samples)" in found.verdict
    with pytest.raises(InputError, match="segment few has no samples"):
        rhocal.decide(None, z, y, target=0.2, segments=few, sample_weight=np.where(few == "few", 0, 1))
    with pytest.raises(InputError, match="segment few: there is no sample of the positive class"):
        rhocal.decide(None, z, np.where(few == "few", 0, y), risk="recall", target=0.5, segments=few)
    with pytest.raises(InputError, match="segments one for all"):
        rhocal.decide(None, z, y, target=0.2, segments=few, score="per-class")


def test_certificates_of_tied_classes_are_what_is_decided():
    probs = np.repeat([[0.5, 0.5, 0], [0.6, 0.2, 0.2], [0.05, 0.9, 0.05]], [4000, 1000, 1000], 0)
    rng = np.random.default_rng(0)
    few, many = (np.where(rng.random(1000) < share, 2, c) for share, c in ((0.12, 0), (0.5, 1)))
    labels = np.r_[np.zeros(4000, int), few, many]
    found = decide(None, probs, labels, target=0.05, score="per-class", kind="probs", classes=[0, 1, 2])
    decided = found.policy.decide(probs, np.arange(3))
    certificate = found.policy.certificate
    assert decided.automated.sum() == certificate.n_automated
    assert (decided.label != labels)[decided.automated].mean() == pytest.approx(certificate.observed)
    assert certificate.coverage > 0.8


def test_a_calibrator_takes_the_policy_of_a_decision(fresh, tmp_path):
    held = (fresh, Z[2000:], Y[2000:])
    for answer in (
        decide(*held, target=0.1),
        rhocal.decide_sets(*held, coverage=0.9),
        rhocal.minimize_cost(*held, costs=1 - np.eye(3)),
    ):
        fresh.policy_ = answer
        assert fresh.policy_ is answer.policy
        fresh.save(tmp_path / "cal.safetensors")
    with pytest.raises(InputError, match=r"nothing is certified \(not provable: "):
        fresh.policy_ = decide(*held, target=0.0001)
    with pytest.raises(InputError, match=r"policy_ must be a policy, .* got str"):
        fresh.policy_ = "automate"
    fresh.policy_ = None
    with pytest.raises(InputError, match="has no policy"):
        fresh.decide(Z)


def test_other_arguments_are_told_apart(fresh):
    probs = fresh.predict_proba(Z)
    for call in (
        lambda: decide(probs, Y, target=0.1),
        lambda: rhocal.decide_sets(probs, Y, coverage=0.9),
        lambda: rhocal.minimize_cost(probs, Y, costs=1 - np.eye(3)),
        lambda: rhocal.adapt(probs, Z),
        lambda: rhocal.bootstrap(probs, Z, Y),
    ):
        with pytest.raises(InputError, match=r"calibrator: a fitted calibrator.* comes first; got ndarray"):
            call()
    best = rhocal.TopK(np.log(np.sort(probs)[:, :0:-1]), np.argsort(-probs)[:, :2], None, 3)
    fresh.policy_ = Policy("confidence", np.array([0.5]))
    for call in (
        lambda: decide(fresh, best, Y, target=0.1),
        lambda: decide(fresh, Z, Y, target=0.1, reference=best),
        lambda: rhocal.decide_sets(fresh, best, Y, coverage=0.9),
        lambda: rhocal.minimize_cost(fresh, best, Y, costs=1 - np.eye(3)),
        lambda: rhocal.adapt(fresh, best),
        lambda: rhocal.adapt(fresh, Z, labeled=(best, Y)),
        lambda: rhocal.bootstrap(fresh, best, Y),
        lambda: fresh.decide(best),
    ):
        with pytest.raises(InputError, match=r"needs the scores of every class; rhocal.TopK holds those of the k best"):
            call()


def test_one_class_always_would_do():
    rng = np.random.default_rng(0)
    p = rng.beta(0.1, 3, 4000)
    y = np.where(rng.random(4000) < p, "yes", "no")
    scores, counts = np.stack([1 - p, p], axis=1), (y == "yes").mean()
    found = decide(None, scores, y, target=0.05, kind="probs", classes=["no", "yes"])
    assert found.note == (
        f"always `no` would have {100 * counts:.4g} % errors; for the rare class use "
        'risk="recall" or "fnr", or score="per-class"'
    )
    assert found.to_dict()["note"] == found.note
    assert not decide(None, scores, y, target=0.9 * counts, kind="probs", classes=["no", "yes"]).note
    assert not decide(None, scores, y, target=0.05, score="per-class", kind="probs", classes=["no", "yes"]).note


def test_levels_are_not_rounded_up(cal):
    assert "with 99.9999999999 % confidence" in decide(cal, Z, Y, target=0.6, confidence=1 - 1e-12).verdict


def test_policies_do_not_split_rows_with_permuted_logits():
    """Rows whose logits are those of another in another order have one probability, which every precision rounds otherwise."""
    rng = np.random.default_rng(0)
    error_rates = np.array([0.04, 0.2])

    def draw(n):
        group = rng.integers(0, 2, n)
        logits = rng.permuted(np.array([[4.0, 2, 0], [2.0, 1, 0]])[group], axis=1).astype(np.float32)
        labels = (logits.argmax(axis=1) + (rng.random(n) < error_rates[group]) * rng.integers(1, 3, n)) % 3
        return logits, labels, group

    cal = fit_map(rhocal.TemperatureScaling(), *draw(3000)[:2])
    new, _, group = draw(5000)
    for _ in range(10):
        decision = rhocal.decide(cal, *draw(1500)[:2], target=0.1)
        cal.policy_ = decision
        automated = cal.decide(new.astype(np.float64)).automated
        assert np.array_equal(automated, cal.decide(new).automated)
        assert np.array_equal(automated, group == 0)
