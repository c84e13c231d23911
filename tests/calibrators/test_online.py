"""Calibrators that learn from labeled batches, and go back where that was a mistake."""

import math

import numpy as np
import pandas as pd
import pytest

import rhocal
from rhocal.calibrators.online.evidence import Evidence
from rhocal.calibrators.online.memory import MAX_SAMPLES, Memory
from rhocal.errors import FileError, InputError, SuspiciousInputWarning

pytestmark = pytest.mark.filterwarnings("ignore::rhocal.errors.RhocalWarning")


def draw(n, seed, scale=1.5, bias=0.0, classes=3):
    rng = np.random.default_rng(seed)
    truth = 1.5 * rng.normal(size=(n, classes))
    p = np.exp(truth + bias * (np.arange(classes) == 0))
    return scale * truth, (p.cumsum(1) / p.sum(1, keepdims=True) > rng.random((n, 1))).argmax(1)


def follow(cal, batches, **options):
    steps = []
    for batch in batches:
        steps.append(cal.update(*batch, **options))
        cal = steps[-1].calibrator
    return steps


def drifted(k, n=500):
    return draw(n, 100 + k, *((1.5, 0.0) if k < 3 else (3.0, 0.8)))


@pytest.fixture(scope="module")
def cal():
    return rhocal.calibrator("temperature").fit(*draw(5000, 0))


@pytest.mark.parametrize("method", ["temperature", "platt", "beta", "svs", "isotonic", "rho-norm"])
def test_every_method_recovers_from_a_drift(method):
    classes = 2 if method == "platt" else 3
    cal = rhocal.calibrator(method).fit(*draw(1500, 0, classes=classes))
    steps = follow(cal, [draw(500, k, *((1.5, 0) if k < 4 else (3, 0.8)), classes=classes) for k in range(1, 8)])
    assert steps[0].action == "began"
    assert "updated" in [step.action for step in steps[3:]]
    new = draw(5000, 99, 3, 0.8, classes)
    last = steps[-1].calibrator
    nll = [rhocal.metrics.nll(one.predict_proba(new[0]), new[1]) for one in (cal, last)]
    assert nll[1] < nll[0] - 0.02
    if cal.map_.keeps_decision:
        assert (last.predict(new[0]) == cal.predict(new[0])).all()


def test_what_is_told(cal):
    steps = follow(cal, [drifted(k) for k in range(6)])
    assert [step.action for step in steps[:4]] == ["began", "kept", "kept", "kept"]
    (adopted, *_) = [step for step in steps if step.action == "updated"]
    assert adopted.difference[2] < 0
    assert adopted.nll_candidate < adopted.nll == adopted.nll_first
    assert "updated: the correction is used from now on; NLL on 500 samples" in adopted.verdict
    assert adopted.calibrator.label == "temperature:temperature"
    assert adopted.to_dict()["action"] == "updated"
    assert cal.online_ is None
    assert cal.label == "temperature"


def test_nothing_changes_on_the_same_population(cal):
    steps = follow(cal, [draw(300, 200 + k) for k in range(12)])
    assert {step.action for step in steps} == {"began", "kept"}
    assert steps[-1].calibrator.predict_proba(draw(50, 1)[0]) == pytest.approx(cal.predict_proba(draw(50, 1)[0]), abs=0)


def test_noise_is_rolled_back_and_costs_little(cal):
    rng = np.random.default_rng(3)
    noise = [(draw(400, 300 + k)[0], rng.integers(3, size=400)) for k in range(3)]
    steps = follow(cal, [draw(400, 400), *noise, *(draw(400, 500 + k) for k in range(5))])
    actions = [step.action for step in steps]
    assert "updated" in actions  # three batches of noise look like a drift
    assert "rolled back" in actions[4:]
    end = actions.index("rolled back")
    start = max(k for k in range(end) if actions[k] == "updated")
    excess = [400 * (step.nll - step.nll_first) for step in steps[start + 1 : end + 1]]
    worst = max(sum(excess[k:-1]) for k in range(len(excess)))  # without the batch that ends it
    assert worst <= math.log(20) + 1e-9
    assert steps[-1].calibrator.label == "temperature"


def test_evidence_has_mean_at_most_one():
    """Of ratios of likelihoods under the map in use, at every batch."""
    rng = np.random.default_rng(4)
    totals = np.zeros((4000, 4))
    for row in totals:
        evidence = Evidence()
        for k in range(4):
            gains = 0.5 * rng.normal(size=2) - 0.125  # log-normal with mean 1
            evidence = evidence.advance(gains.tolist(), 0.0)
            row[k] = evidence.total
    assert totals.mean(axis=0) == pytest.approx(1, abs=0.03)
    assert Evidence().total == 1


def test_order_in_a_batch_and_weights_as_copies(cal):
    rng = np.random.default_rng(5)
    batches = [drifted(k, 300) for k in range(2, 6)]
    one = follow(cal, batches)
    mixed = []
    for z, y in batches:
        order = rng.permutation(len(y))
        mixed.append((z[order], y[order]))
    two = follow(cal, mixed)
    assert [step.action for step in one] == [step.action for step in two]
    assert one[-1].nll == pytest.approx(two[-1].nll, rel=1e-9)
    assert one[-1].evidence == pytest.approx(two[-1].evidence, rel=1e-5)
    w = [rng.integers(0, 3, size=len(y)) for _, y in batches]
    three = follow(cal, [(z, y, k) for (z, y), k in zip(batches, w, strict=True)])
    four = follow(cal, [(np.repeat(z, k, axis=0), np.repeat(y, k)) for (z, y), k in zip(batches, w, strict=True)])
    for a, b in zip(three, four, strict=True):
        assert a.action == b.action
        assert a.nll == pytest.approx(b.nll, rel=1e-9)
        assert a.evidence == pytest.approx(b.evidence, rel=1e-3)


def test_classes_by_name_kind_and_precision():
    z, y = draw(1000, 0)
    names = np.array(["a", "b", "c"])
    frame = pd.DataFrame(z, columns=names)
    cal = rhocal.calibrator("svs").fit(frame, names[y])
    batches = [drifted(k, 400) for k in range(2, 5)]
    one = follow(cal, [(pd.DataFrame(z, columns=names)[["c", "a", "b"]], names[y]) for z, y in batches])
    two = follow(cal, [(z, names[y]) for z, y in batches])
    three = follow(cal, [(z.astype(np.float32), names[y]) for z, y in batches])
    for other in (two, three):
        assert [step.action for step in one] == [step.action for step in other]
        assert one[-1].nll == pytest.approx(other[-1].nll, rel=1e-4)
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    of_probs = rhocal.calibrator("temperature").fit(p, y, kind="probs")
    steps = follow(of_probs, [(np.exp(z) / np.exp(z).sum(1, keepdims=True), y) for z, y in batches])
    assert steps[-1].calibrator.kind_ == "probs"


def test_a_process_that_was_stopped_goes_on(cal, tmp_path):
    batches = [drifted(k, 300) for k in range(2, 7)]
    straight = follow(cal, batches)
    online = rhocal.OnlineCalibration.begin(cal)
    for batch in batches:
        online = online.update(*batch).online
        online.save(tmp_path / "online.safetensors")
        online = rhocal.OnlineCalibration.load(tmp_path / "online.safetensors")
    assert online.calibrator.predict_proba(batches[0][0]) == pytest.approx(
        straight[-1].calibrator.predict_proba(batches[0][0]), abs=1e-12
    )
    assert online.evidence == straight[-1].online.evidence
    z, y = batches[-1]
    for rows in (slice(None), np.random.default_rng(0).permutation(len(y))):
        again = online.update(z[rows], y[rows])
        assert again.action == "skipped"
        assert again.online is online
    online.calibrator.save(tmp_path / "cal.safetensors")
    assert rhocal.load(tmp_path / "cal.safetensors").online_ is None
    content = (tmp_path / "online.safetensors").read_bytes()
    (tmp_path / "online.safetensors").write_bytes(content[:-8] + b"12345678")
    with pytest.raises(FileError):
        rhocal.OnlineCalibration.load(tmp_path / "online.safetensors")
    with pytest.raises(FileError, match="not a state of updates"):
        rhocal.OnlineCalibration.load(tmp_path / "cal.safetensors")


def test_memory_is_bounded_and_forgets():
    rng = np.random.default_rng(6)
    memory = Memory.empty(2)
    for _ in range(5):
        memory = memory.add(rng.normal(size=(9000, 2)), rng.integers(2, size=9000), np.ones(9000), 1e6)
    assert memory.n_samples == MAX_SAMPLES
    assert sorted(set(memory.age)) == [0, 9000, 18000]
    z, y = rng.normal(size=(30_000, 2)), rng.integers(2, size=30_000)
    order = rng.permutation(30_000)
    one, two = (Memory.empty(2).add(z[k], y[k], np.ones(30_000), 1e6) for k in (slice(None), order))
    assert np.array_equal(np.sort(one.outputs[:, 0]), np.sort(two.outputs[:, 0]))
    late = Memory.empty(2).add(z[:10], y[:10], np.ones(10), 5.0).add(z[10:100], y[10:100], np.ones(90), 5.0)
    assert late.n_samples == 90
    assert memory.weights(9000.0)[memory.age == 9000] == pytest.approx(0.5)


def test_exports(cal):
    torch = pytest.importorskip("torch")
    last = follow(cal, [drifted(k) for k in range(2, 6)])[-1].calibrator
    assert last.label == "temperature:temperature"
    z = draw(50, 7)[0]
    assert last.to_torch(output="probs")(torch.as_tensor(z)).numpy() == pytest.approx(last.predict_proba(z), abs=1e-6)


def test_errors_and_odd_batches(cal):
    with pytest.raises(InputError, match="half_life must be"):
        cal.update(*draw(10, 0), half_life=0)
    step = cal.update(*draw(10, 0), half_life=500)
    with pytest.raises(InputError, match="updates began with 500"):
        step.calibrator.update(*draw(10, 1), half_life=600)
    with pytest.raises(rhocal.errors.NotFittedError):
        rhocal.TemperatureScaling().update(*draw(10, 0))
    with pytest.raises(InputError, match="labels"):
        cal.update(draw(10, 0)[0])
    equal = np.zeros((200, 3)), np.zeros(200, int)  # one class, and scores that say nothing
    steps = follow(cal, [equal, draw(1, 3), draw(200, 4)])
    assert np.isfinite(steps[-1].calibrator.predict_proba(draw(5, 1)[0])).all()
    masked = draw(200, 5)
    masked[0][:, 2] = -1e9
    masked = masked[0][masked[1] < 2], masked[1][masked[1] < 2]
    assert follow(cal, [draw(300, 6), masked, draw(300, 8)])[-1].action in {"kept", "updated"}
    assert rhocal.TemperatureScaling().fit(*draw(100, 0)).online_ is None


@pytest.mark.parametrize("n_copies", [1, 3])
def test_one_sample_has_no_interval(cal, n_copies):
    """It was printed with an interval of no width; copies of it are no more."""
    began = cal.update(*draw(300, 6)).calibrator
    logits, labels = draw(1, 3)
    steps = [
        began.update(np.repeat(logits, n_copies, axis=0), np.repeat(labels, n_copies)),
        began.update(logits, labels, [n_copies]),
    ]
    for step in steps:
        assert step.difference[0] != 0
        assert "no interval: the samples show no spread" in step.verdict
        assert step.to_dict()["difference"] == {"value": step.difference[0], "low": None, "high": None}
    low, high = began.update(*draw(2, 3)).difference[1:]
    assert low < high


def test_the_policy_of_the_calibrator_that_is_given_counts(cal, tmp_path):
    step = cal.update(*draw(300, 20), alpha=0.1)
    assert step.online.alpha == 0.1
    with pytest.raises(InputError, match=r"alpha: updates began with 0\.1"):
        step.calibrator.update(*draw(300, 21), alpha=0.2)
    with pytest.raises(InputError, match="update has no argument halflife"):
        cal.update(*draw(300, 21), halflife=3)
    for target in (0.5, 0.4):  # certified later, and certified again
        current = step.calibrator
        current.policy_ = policy = rhocal.decide(current, *draw(3000, 22), target=target).policy
        step = current.update(*draw(300, int(100 * target)))
        assert step.action == "kept"
        assert step.calibrator.policy_ is policy
    step.online.save(tmp_path / "state.safetensors")
    assert rhocal.OnlineCalibration.load(tmp_path / "state.safetensors").calibrator.policy_ is None
    steps = follow(step.calibrator, [drifted(k) for k in range(3, 8)])
    (adopted, *_) = [one for one in steps if one.action == "updated"]
    assert adopted.calibrator.policy_ is None
    assert "the policy was removed" in adopted.verdict


def play_against(cal, n_batches, size, seed, **options):
    """A stream that turns against the map in use: populations that a correction fits, until one is used.

    The loss is computed here, from probabilities, after each batch.
    """
    rng = np.random.default_rng(seed)
    loss, largest, steps, first = 0.0, 0.0, [], cal
    for k in range(n_batches):
        z, y = draw(size, [seed, k], *((3.0, 0.8) if rng.random() < 0.5 else (0.6, -0.8)))
        nll = [np.minimum(-np.log(one.predict_proba(z)), 30.0) for one in (cal, first)]
        if steps and steps[-1].online.correction is not None:
            y = np.where(rng.random(size) < 0.5, (nll[0] - nll[1]).argmax(axis=1), y)
        added = float((nll[0] - nll[1])[np.arange(size), y].sum())
        loss, largest = loss + added, max(largest, added)
        steps.append(cal.update(z, y, **options))
        cal = steps[-1].calibrator
        assert steps[-1].online.loss == pytest.approx(loss, abs=1e-6)
        assert loss <= math.log(20) * (1 + math.log2(k + 1)) + largest + 1e-9
    return steps


@pytest.mark.parametrize("seed", range(3))
def test_the_whole_stream_loses_no_more_than_is_promised(cal, seed):
    """The bound held for each adoption: such streams adopted again and again, and each time lost a batch."""
    steps = play_against(cal, 60, 100, seed)
    actions = [step.action for step in steps]
    assert actions.count("rolled back") >= 1
    blocked = [step for step in steps if step.has_lost_too_much]
    assert blocked
    assert "Fit a calibrator on recent samples, and begin anew" in blocked[0].verdict
    assert blocked[0].action == "kept"
    assert blocked[0].to_dict()["loss"] > blocked[0].to_dict()["max_loss"] - math.log(20)


def test_losses_count_while_the_memory_is_small(cal):
    """With a half-life of 5 samples the memory is below 100, so that corrections are not fitted, and one is in use."""
    steps = follow(cal, [drifted(k, 500) for k in range(3, 8)], half_life=5)
    assert steps[-1].online.correction is not None
    z = draw(20, 3)[0]
    wrong = steps[-1].calibrator.predict_proba(z).argmin(axis=1)
    after = follow(steps[-1].calibrator, [(z, wrong), draw(20, 4), draw(20, 5)])
    assert steps[-1].online.memory.n_samples >= 100 > after[-1].online.memory.n_samples
    for before, step in zip([steps[-1], *after], after, strict=False):
        assert step.online.loss - before.online.loss == pytest.approx(20 * (step.nll - step.nll_first))


def test_a_state_keeps_the_loss(cal, tmp_path):
    online = play_against(cal, 12, 100, 0)[-1].online
    assert online.loss != 0
    online.save(tmp_path / "online.safetensors")
    assert rhocal.OnlineCalibration.load(tmp_path / "online.safetensors").loss == online.loss


def test_clusters_are_not_ignored_silently():
    z, y = draw(600, 0)
    clustered = rhocal.TemperatureScaling().fit(z, y, clusters=np.arange(600) // 3)
    with pytest.warns(SuspiciousInputWarning, match="without them updates take samples as independent"):
        clustered.update(*draw(200, 1))


def test_a_cluster_counts_as_one_sample(cal):
    """Copies that are clusters are worth what single samples are; copies without clusters are worth more."""
    batches = [drifted(k, 200) for k in range(2, 8)]
    copies = [(np.repeat(z, 4, axis=0), np.repeat(y, 4)) for z, y in batches]
    single, many = follow(cal, batches), follow(cal, copies)
    used, steps = cal, []
    for z, y in copies:
        steps.append(used.update(z, y, clusters=np.arange(len(y)) // 4))
        used = steps[-1].calibrator
    assert [step.action for step in steps] == [step.action for step in single]
    for step, one in zip(steps, single, strict=True):
        assert step.evidence == pytest.approx(one.evidence, rel=1e-6)
        assert step.online.loss == pytest.approx(one.online.loss, abs=1e-8)
        assert step.difference == (one.difference and pytest.approx(one.difference, abs=1e-8))
    assert many[2].evidence > 100 * single[2].evidence
    z = batches[-1][0]
    assert used.predict_proba(z) == pytest.approx(single[-1].calibrator.predict_proba(z), abs=1e-8)


def test_weights_are_shares_of_a_cluster(cal):
    (z, y), clusters = drifted(5, 300), np.arange(300) // 3
    weights = np.where(np.arange(300) % 3 == 0, 2.0, 0.5)
    weights[:3] = 0  # a cluster that counts nothing
    begun = cal.update(*drifted(4, 300)).calibrator
    first, other = (begun.update(z, y, factor * weights, clusters=clusters) for factor in (1, 7))
    assert first.evidence == pytest.approx(other.evidence, rel=1e-9)
    assert first.online.memory.base.sum() - begun.online_.memory.base.sum() == pytest.approx(99)


def test_a_batch_of_clusters_in_another_order_is_skipped(cal):
    (z, y), clusters = drifted(5, 300), np.arange(300) // 5
    rng = np.random.default_rng(0)
    weights, order = rng.random(300), rng.permutation(300)
    begun = cal.update(z, y, weights, clusters=clusters).calibrator
    assert begun.update(z[order], y[order], weights[order], clusters=clusters[order]).action == "skipped"
    assert begun.update(z, y, weights).action == "skipped"
