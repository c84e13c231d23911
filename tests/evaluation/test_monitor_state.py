"""The state of a monitor: those of earlier versions are read, and what no monitor writes is refused."""

import json

import numpy as np
import pytest

from helpers import confidence_streams
from rhocal.errors import FileError, InputError
from rhocal.evaluation.bets import N_BETS
from rhocal.evaluation.monitor import Monitor


def test_states_of_the_first_schema_are_read(tmp_path):
    """Sums and an alarm stay; the bets were others, so the test begins anew."""
    monitor = Monitor()
    monitor.add(*(part[0] for part in confidence_streams(1, 500, seed=4)))
    monitor.save(tmp_path / "s.json")
    state = json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))
    fields = ("tolerance", "n_calibration", "n_units", "center", "confidence_sum", "last_cluster")
    old = {name: value for name, value in state.items() if name not in fields}
    old |= {"schema": 1, "log_wealth": [[0.1] * 10], "max_log_wealth": 2.0}
    (tmp_path / "s.json").write_text(json.dumps(old), encoding="utf-8")
    found = Monitor.load(tmp_path / "s.json")
    assert (found.n, found.p_value) == (500, 1.0)
    assert found.values()["all"] == monitor.values()["all"]


def test_states_without_bets_on_gaps_go_on(tmp_path):
    monitor = Monitor()
    monitor.add(*(part[0] for part in confidence_streams(1, 500, seed=4)))
    monitor.save(tmp_path / "s.json")
    state = json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))
    (tmp_path / "s.json").write_text(json.dumps(state | {"log_wealth": state["log_wealth"][:96]}), encoding="utf-8")
    found = Monitor.load(tmp_path / "s.json")
    assert found.log_wealth == [*monitor.log_wealth[:96], *[-np.inf] * (N_BETS - 96)]
    assert (found.n_units, found.p_value) == (500, monitor.p_value)


def test_states_of_earlier_versions_are_read(tmp_path):
    monitor = Monitor()
    monitor.add(np.full(30, 0.9), np.r_[np.ones(20), np.zeros(10)])
    monitor.save(tmp_path / "state.json")
    text = (tmp_path / "state.json").read_text(encoding="utf-8")
    for old, new in (("log_money", "log_wealth"), ("highest", "max_log_wealth"), ("seen", "positions")):
        assert f'"{new}"' in text
        text = text.replace(f'"{new}"', f'"{old}"')
    (tmp_path / "state.json").write_text(text, encoding="utf-8")
    assert Monitor.load(tmp_path / "state.json") == monitor


def test_a_state_that_no_monitor_writes_is_refused(tmp_path):
    """A NaN in the wealth of a bet would silence every alarm."""
    path = tmp_path / "state.json"
    monitor = Monitor()
    monitor.add(np.full(50, 0.9), np.ones(50))
    monitor.save(path)
    state = json.loads(path.read_text())
    assert Monitor.load(path).n == 50
    changes = [
        *({name: value} for name in state for value in ("x", [], {}, [1], float("nan"), -1.5) if name != "positions"),
        {"positions": 3},
        {"log_wealth": [float("nan")] * len(state["log_wealth"])},
        {"total": {**state["total"], "weight": ["a"] * len(state["total"]["weight"])}},
    ]
    for change in changes:
        path.write_text(json.dumps({**state, **change}))
        texts = ({"last_cluster": "x"}, {"alarm_reason": "x"}, {"acknowledged": "x"})
        if change in (
            *texts,
            {"rolling": []},
            {"history": []},
            {"request_ids": []},
            {"counted": {}},
            {"max_log_wealth": -1.5},
        ):
            continue
        with pytest.raises((FileError, InputError)):
            print(change, Monitor.load(path))
    path.write_text("[" * 100_000)
    with pytest.raises(FileError):
        Monitor.load(path)
