"""Bets on the prevalence of classes: what the top label does not show, with the promise kept for all classes together."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import rhocal
from rhocal.cli import app
from rhocal.errors import FileError, InputError
from rhocal.evaluation.bets import Margin
from rhocal.evaluation.class_bets import ClassBets, _class_factors, _positive_factors
from rhocal.evaluation.monitor import Monitor


def rare_event(n=3000, prevalence=0.03, seed=0):
    """Probabilities of a model that was calibrated at a prevalence of 50 %, and labels at another one."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(n) < prevalence).astype(int)
    positive = 1 / (1 + np.exp(1.125 - 1.5 * (rng.normal(size=n) + 1.5 * labels)))
    return np.stack([1 - positive, positive], axis=1), labels


def calibrated(n, n_classes, seed=0, spread=1.5):
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, spread, (n, n_classes))
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return probs, (np.cumsum(probs, axis=1) < rng.random((n, 1))).sum(axis=1).clip(0, n_classes - 1)


def watched(probs, labels, cuts=1, options=None, **spec):
    monitor = Monitor(**(options or {}))
    for rows in np.array_split(np.arange(len(labels)), cuts):
        monitor.add_probs(probs[rows], labels[rows], **spec)
    return monitor


def test_a_class_with_too_much_probability_is_named(tmp_path):
    """The top label alone shows nothing here: its probabilities are symmetric."""
    probs, labels = rare_event()
    top = Monitor()
    top.add(probs.max(axis=1), (probs.argmax(axis=1) == labels).astype(float))
    assert not top.alarm
    (tmp_path / "in").mkdir()
    names = np.array(["honest", "fraud"])
    table = pd.DataFrame({"fraud": probs[:, 1], "id": 1, "honest": probs[:, 0], "label": names[labels]})
    table.to_parquet(tmp_path / "in" / "a.parquet")
    command = [
        "monitor",
        str(tmp_path / "in"),
        "-s",
        str(tmp_path / "s.json"),
        "--kind",
        "probs",
        "--labels-name",
        "label",
    ]
    done = CliRunner().invoke(app, [*command, "--columns", "honest,fraud"])
    assert done.exit_code == 1
    assert "class fraud gets too much probability: mean probability" in done.stderr
    known = json.loads(CliRunner().invoke(app, [*command, "--columns", "honest,fraud", "--json"]).stdout)
    assert known["alarm_at"] < 200
    assert known["worst_class"] == {
        "class": "fraud", "gap": "too much probability", "mean_probability": pytest.approx(probs[:, 1].mean()),
        "observed": pytest.approx(labels.mean()),
    }  # fmt: skip


def test_a_fair_bet_has_mean_one_and_a_margin_lowers_it():
    """Exactly: the sum over the labels that can occur."""
    probs, _ = calibrated(300, 4)
    probs[:3] = [[1, 0, 0, 0], [0, 0.5, 0.5, 0], [0.25, 0.25, 0.25, 0.25]]
    fair, within = Margin(), Margin(0.02, 1000)

    def expected(factors, chances):
        return sum(chances[:, [k]] * factors(np.full(300, k)) for k in range(4))

    np.testing.assert_allclose(expected(lambda y: _class_factors(probs, y, fair), probs), 1, rtol=1e-12)
    other = np.roll(np.eye(4), 1, axis=0) - np.eye(4)
    for shift in other * 0.02:  # every gap within the margin
        truth = probs + shift
        possible = (truth >= 0).all(axis=1)
        mean = expected(lambda y: _class_factors(probs, y, within), np.where(truth < 0, 0, truth))
        assert (mean[possible] <= 1 + 1e-12).all()
    p = np.r_[0.0, 1.0, np.linspace(1e-9, 1 - 1e-9, 298)]
    yes, no = (_positive_factors(p, np.full(300, one), fair, -1.0) for one in (True, False))
    np.testing.assert_allclose(p[:, None] * yes + (1 - p)[:, None] * no, 1, rtol=1e-12)
    yes, no = (_positive_factors(p, np.full(300, one), within, -1.0) for one in (True, False))
    for gap in (-0.02, 0.02):
        truth = np.clip(p + gap, 0, 1)[:, None]
        assert (truth * yes + (1 - truth) * no <= 1 + 1e-12).all()


def test_by_hand():
    """Two samples of three classes by the recursion: shares of a half and, later, of the next start."""
    monitor = watched(np.array([[0.5, 0.3, 0.2]] * 2), np.array([2, 2]))
    bets = monitor.class_bets
    k = 3 * 3 + 2  # odds four times as high, the third class
    factor, entering = 4 / (1 + 3 * 0.2), 0.5 - 0.5 / (1 + np.log1p(1 / 100_000))
    assert bets.log_wealth[k] == pytest.approx(np.log((0.5 * factor + entering) * factor))
    assert (bets.n_units, bets.names) == (2, ["0", "1", "2"])


def test_false_alarms_are_rare_over_the_whole_stream():
    for n_classes, n_streams in ((2, 50), (10, 40)):
        streams = [watched(*calibrated(1000, n_classes, seed)) for seed in range(n_streams)]
        assert np.mean([monitor.alarm for monitor in streams]) <= 0.05
        assert np.mean([monitor.p_value <= 0.5 for monitor in streams]) <= 0.55


def test_cuts_columns_and_the_name_of_the_positive_class_do_not_matter(tmp_path):
    for probs, labels in (rare_event(700, 0.3), calibrated(700, 5)):
        n_classes = probs.shape[1]
        names, order = np.array(list("abcde"[:n_classes])), np.arange(n_classes)[::-1]
        whole, cut = watched(probs, labels, classes=names), Monitor()
        for k, rows in enumerate(np.array_split(np.arange(700), 13)):
            columns = order if k % 2 else np.arange(n_classes)
            cut.add_probs(
                probs[rows][:, columns],
                names[labels[rows]],
                classes=names[columns],
                positive=names[1] if n_classes == 2 else None,
            )
            cut.save(tmp_path / "s.json")
            cut = Monitor.load(tmp_path / "s.json")
        assert (cut.alarm_at, cut.alarm_reason) == (whole.alarm_at, whole.alarm_reason)
        assert cut.p_value == pytest.approx(whole.p_value)
        np.testing.assert_allclose(cut.class_bets.log_wealth, whole.class_bets.log_wealth)
        with pytest.raises(InputError, match="began with"):
            cut.add_probs(np.full((1, 3), 1 / 3), [0], classes=["x", "y", "z"])
    swapped = watched(*rare_event(700, 0.3), positive=0)  # odds: the other class has the same bets
    plain = watched(*rare_event(700, 0.3))
    assert swapped.p_value == pytest.approx(plain.p_value)
    assert (plain.alarm_reason[:7], swapped.alarm_reason[:7]) == ("class 1", "class 0")


def test_copies_in_clusters_are_one_bet():
    for probs, labels in (rare_event(300, 0.5), calibrated(300, 4)):
        copies = watched(np.repeat(probs, 3, axis=0), np.repeat(labels, 3), clusters=np.repeat(np.arange(300), 3))
        assert copies.p_value == pytest.approx(watched(probs, labels).p_value)


def test_saturated_and_half_precision_probabilities():
    probs, labels = rare_event(500, 0.5)
    rounded = probs.round()
    sure = watched(rounded, labels)
    assert sure.alarm
    assert np.isfinite(sure.class_bets.log_wealth).all()
    right = watched(np.eye(6)[labels], labels)
    assert right.p_value == pytest.approx(1.0)
    half = watched(probs.astype(np.float16), labels)
    assert half.p_value == pytest.approx(watched(probs, labels).p_value, rel=0.05)


def test_tolerance_and_calibration_set():
    probs, labels = calibrated(8000, 2, seed=3)
    shifted = probs * [1, 1.3]  # at most 6.6 points
    shifted /= shifted.sum(axis=1, keepdims=True)
    assert watched(shifted, labels).alarm_reason.startswith("class 1 gets too much probability")
    assert not watched(shifted, labels, options={"tolerance": 0.066}).alarm
    assert not watched(shifted, labels, options={"n_calibration": 200}).alarm


def test_one_of_a_thousand_classes_is_named():
    probs, labels = calibrated(2000, 1000, spread=1.0)
    true = labels.copy()
    odds = probs.copy()
    odds[:, 417] /= 30  # predicted at 1/30 of its odds
    odds /= odds.sum(axis=1, keepdims=True)
    rng = np.random.default_rng(1)
    labels[rng.random(2000) < 0.02] = 417
    monitor = watched(odds, labels)
    assert monitor.alarm_reason.startswith("class 417 gets too little probability")
    assert not watched(probs, true).alarm


def test_states_without_bets_on_classes_go_on(tmp_path):
    """Half of all wealth by now is bet on classes; nothing is lost or gained at the change."""
    probs, labels = calibrated(600, 3)
    before = Monitor()
    before.add(probs.max(axis=1), (probs.argmax(axis=1) == labels).astype(float))
    before.save(tmp_path / "s.json")
    state = json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))
    old = {name: value for name, value in state.items() if name not in {"class_bets", "alarm_reason"}} | {"schema": 2}
    (tmp_path / "s.json").write_text(json.dumps(old), encoding="utf-8")
    monitor = Monitor.load(tmp_path / "s.json")
    assert monitor == before
    monitor.add_probs(probs[:1], labels[:1])
    assert monitor.class_bets.total == pytest.approx(monitor.class_bets.log_capital, abs=0.5)
    monitor.add_probs(*(part[:400] for part in rare_three()))
    assert monitor.alarm
    for name, bad in (
        ("names", ["0", "0", "1"]),
        ("log_wealth", [0.0]),
        ("center", float("nan")),
        ("n", -1),
        ("all_sums", []),
    ):
        monitor.save(tmp_path / "s.json")
        state = json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))
        state["class_bets"][name] = bad
        (tmp_path / "s.json").write_text(json.dumps(state), encoding="utf-8")
        with pytest.raises(FileError, match="not the state of a monitor"):
            Monitor.load(tmp_path / "s.json")


def rare_three():
    probs, labels = rare_event(400, 0.02)
    return np.insert(probs, 1, 0.0, axis=1), 2 * labels


def test_a_late_shift_is_quoted_from_recent_samples():
    clean = calibrated(20_000, 3, seed=5)
    late = calibrated(1500, 3, seed=6)
    moved = np.where((late[1] == 2) & (np.arange(1500) % 2 == 0), 0, late[1])  # half of a class is gone
    monitor = watched(*clean)
    assert not monitor.alarm
    monitor.add_probs(late[0], moved)
    assert 20_000 < monitor.alarm_at < 20_600
    assert monitor.alarm_reason.startswith(("class 2 gets too much probability", "class 0 gets too little probability"))


def test_a_tilt_of_the_positive_class():
    probs, labels = calibrated(6000, 2, seed=7)
    extreme = rhocal.Identity().fit(np.log(probs) * 1.6, labels).predict_proba(np.log(probs) * 1.6)
    monitor = watched(extreme, labels)
    assert monitor.alarm
    assert monitor.class_bets.worst()["gap"] == "too extreme"


def test_an_empty_state_has_no_worst_class():
    assert Monitor().values()["worst_class"] is None
    assert ClassBets.start(["a", "b"], 0.0).total == pytest.approx(0.0)
