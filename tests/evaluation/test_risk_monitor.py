"""The monitor of a certified risk: few false alarms however long one looks, and quick true ones."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import rhocal
from helpers import as_parquet, synthetic
from rhocal.calibrators.policies.policy import Certificate, Policy
from rhocal.cli import app
from rhocal.errors import FileError
from rhocal.evaluation.monitor import Monitor
from rhocal.evaluation.risk_monitor import RiskMonitor, policy_losses

EVIDENCE = (0.95, 1000, 600, 0.03, 0.05, 0.6, 0.5, 0.7)


def watched(rate, n, seed, target=0.05, cut=700):
    rng, found = np.random.default_rng(seed), RiskMonitor("error", target)
    automated, wrong = rng.random(n) < 0.6, rng.random(n) < rate
    for start in range(0, n, cut):
        found.add(automated[start : start + cut], wrong[start : start + cut])
    return found


def test_false_alarms_are_rare_and_true_ones_quick():
    """Of 200 streams at the promise at most 5 % in truth; 20 or more would refute that (p < .002)."""
    assert sum(watched(0.05, 5000, seed).alarm for seed in range(200)) < 20
    late = [watched(0.1, 5000, seed).alarm_at for seed in range(20)]
    assert all(at is not None for at in late)
    assert np.median(late) < 1500
    assert not any(watched(0.04, 5000, seed).alarm for seed in range(20))


def test_cuts_do_not_matter_and_counts_are_right():
    one, two = watched(0.06, 3000, 1, cut=3000), watched(0.06, 3000, 1, cut=17)
    np.testing.assert_allclose(one.log_wealth, two.log_wealth)
    assert (one.n, one.n_losses, one.n_seen, one.alarm_at) == (two.n, two.n_losses, two.n_seen, two.alarm_at)
    assert one.values()["rate"] == one.n_losses / one.n


def test_a_cluster_is_one_bet():
    found = RiskMonitor("error", 0.05)
    found.add(np.ones(4, bool), np.ones(4, bool), ["a", "a", "b", "b"])
    found.add(np.ones(3, bool), np.ones(3, bool), ["b", "c", "c"])
    assert (found.n, found.n_units) == (7, 3)


@pytest.mark.parametrize(
    ("risk", "subjects", "losses"),
    [("fpr", [2, 3], [2]), ("precision", [0, 2], [2]), ("recall", [0, 1], [1]), ("fnr", [0, 1], [1])],
)
def test_losses_of_a_positive_class(risk, subjects, losses):
    policy = Policy("positive", np.array([0.5]), positive=1, certificate=Certificate(risk, 0.5, *EVIDENCE))
    probs = np.array([0.9, 0.2, 0.8, 0.1])
    decisions = policy.decide(np.stack([1 - probs, probs], axis=1), np.array([0, 1]))
    about, lost = policy_losses(policy, decisions, np.array([1, 1, 0, 0]))
    assert np.flatnonzero(about).tolist() == subjects
    assert np.flatnonzero(about & lost).tolist() == losses
    assert RiskMonitor.from_policy(policy).target == 0.5


def test_a_stream_that_breaks_the_promise(tmp_path):
    z, y = synthetic(4000, 3, scale=1.0)
    cal = rhocal.TemperatureScaling().fit(z[:1000], y[:1000])
    cal.policy_ = rhocal.decide(cal, z[1000:], y[1000:], target=0.2).policy
    cal.save(tmp_path / "cal.safetensors")
    (tmp_path / "in").mkdir()
    state = tmp_path / "state.json"
    arguments = ["monitor", str(tmp_path / "in"), "-s", str(state), "-c", str(tmp_path / "cal.safetensors")]
    as_parquet(tmp_path / "in" / "a.parquet", z[1000:2000], y[1000:2000])
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["promise"]
    decisions = cal.decide(z[1000:2000])
    assert found["n"] == decisions.automated.sum()
    assert found["rate"] == pytest.approx((decisions.label != y[1000:2000])[decisions.automated].mean())
    as_parquet(tmp_path / "in" / "b.parquet", z[:1000], np.where(np.arange(1000) % 2, y[:1000], (y[:1000] + 1) % 3))
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 1
    assert "the error rate of automated samples exceeds 20 %, which was promised, seen at sample 1," in done.output
    assert Monitor.load(state).promise.alarm
    cal.policy_ = Policy("confidence", np.array([0.5]), certificate=Certificate("error", 0.05, *EVIDENCE))
    cal.save(tmp_path / "cal.safetensors")
    refused = CliRunner().invoke(app, arguments).exception
    assert "watches a promise of error at 0.2, which the policy of -c does not make" in str(refused)


@pytest.mark.parametrize(
    "change",
    [{"n": -1}, {"log_wealth": [0.0]}, {"target": 2.0}, {"max_log_wealth": "x"}, {"last_cluster": 1}, {"x": 1}],
)
def test_damaged_states_are_refused(tmp_path, change):
    monitor = Monitor(promise=RiskMonitor("error", 0.05))
    monitor.save(tmp_path / "state.json")
    assert Monitor.load(tmp_path / "state.json").promise == monitor.promise
    state = json.loads((tmp_path / "state.json").read_text())
    state["promise"] |= change
    (tmp_path / "state.json").write_text(json.dumps(state))
    with pytest.raises(FileError, match="not the state of a monitor"):
        Monitor.load(tmp_path / "state.json")


def test_the_coverage_of_prediction_sets_is_watched():
    z, y = synthetic(6000, 3, seed=5)
    cal = rhocal.TemperatureScaling().fit(z[:1000], y[:1000])
    policy = rhocal.decide_sets(cal, z[1000:3000], y[1000:3000], coverage=0.9, score="aps").policy
    kept, broken = RiskMonitor.from_policy(policy), RiskMonitor.from_policy(policy)
    assert kept.target == 1 - policy.sets.evidence.low
    new, labels = z[3000:], y[3000:]
    decisions = policy.decide(cal.predict_proba(new), cal.classes_)
    kept.add(*policy_losses(policy, decisions, labels))
    missed = ~decisions.sets[np.arange(3000), labels]
    assert (kept.n, kept.n_losses) == (3000, missed.sum())
    assert not kept.alarm
    shifted = np.where(np.arange(3000) % 4 == 0, (labels + 1) % 3, labels)
    broken.add(*policy_losses(policy, decisions, shifted))
    assert broken.alarm
    assert "the share of prediction sets without the class exceeds" in broken.sentence


def test_a_promise_that_is_not_watched_is_named(tmp_path):
    z, y = synthetic(300, 3, scale=1.0)
    cal = rhocal.TemperatureScaling().fit(z, y)
    costs = 1.0 - np.eye(3)
    cal.policy_ = Policy("cost", costs=costs, certificate=Certificate("cost", 0.3, *EVIDENCE))
    cal.save(tmp_path / "cal.safetensors")
    (tmp_path / "in").mkdir()
    as_parquet(tmp_path / "in" / "a.parquet", z, y)
    arguments = [
        "monitor",
        str(tmp_path / "in"),
        "-s",
        str(tmp_path / "s.json"),
        "-c",
        str(tmp_path / "cal.safetensors"),
    ]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, repr(done.exception)
    assert "a mean cost is not watched" in done.stderr
