"""The state of a monitor as a file: how it is written, read and checked."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from rhocal.errors import FileError, one_line
from rhocal.evaluation.bets import N_BETS, STAKES
from rhocal.evaluation.class_bets import ClassBets, n_bets
from rhocal.evaluation.risk_monitor import RiskMonitor
from rhocal.numerics.bins import N_BINS

if TYPE_CHECKING:
    from os import PathLike

    from rhocal.evaluation.monitor import Monitor

SCHEMA = 5
RENAMED_FIELDS = {"log_money": "log_wealth", "highest": "max_log_wealth", "seen": "positions"}
"""Fields of states that earlier versions wrote."""
N_BETS_WITHOUT_GAPS = 96
"""Bets of states that earlier versions wrote."""
SUM_NAMES = ("weight", "confidence", "correct")


def state_text(state: dict[str, Any]) -> str:
    """The fields of a monitor as JSON, which has no infinity."""
    for part in (state, state["promise"] or {}, state["class_bets"] or {}):
        if "log_wealth" in part:
            part["log_wealth"] = [None if math.isinf(wealth) else wealth for wealth in part["log_wealth"]]
    return json.dumps({"format": "rhocal-monitor", "schema": SCHEMA, **state})


def read_state(path: str | PathLike[str], monitor_class: type[Monitor]) -> Monitor:
    """The monitor of a file, of this version or an earlier one."""
    try:
        state = json.loads(Path(path).read_text(encoding="utf-8"))
        schema = state.pop("schema")
        if state.pop("format") != "rhocal-monitor" or type(schema) is not int or schema > SCHEMA:
            raise FileError(f"{path}: not the state of a monitor, or of a newer version")
        monitor = monitor_class(**_fields(state, schema))
        _check_state(monitor)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{path}: not the state of a monitor: {one_line(error)}") from error
    return monitor


def _fields(state: dict[str, Any], schema: int) -> dict[str, Any]:
    """The fields of a monitor from JSON."""
    state = {RENAMED_FIELDS.get(name, name): value for name, value in state.items()}
    if schema < 2:  # other bets: sums and an alarm stay, the test begins anew
        state = {name: value for name, value in state.items() if name not in {"log_wealth", "max_log_wealth"}}
    else:
        state["log_wealth"] = _wealth(state["log_wealth"])
        # The bets on gaps begin now, with the shares that wait.
        if len(state["log_wealth"]) == N_BETS_WITHOUT_GAPS:
            state["log_wealth"] += [-math.inf] * (N_BETS - N_BETS_WITHOUT_GAPS)
    if state.get("promise") is not None:
        promise = dict(state["promise"])
        if "acknowledged" not in promise and state.get("alarm_at") is None:  # there was one note for both alarms
            for name, nothing in (("acknowledged", None), ("is_notified", False)):
                promise[name] = state.pop(name, nothing)
        state["promise"] = RiskMonitor(**promise | {"log_wealth": _wealth(promise["log_wealth"])})
    if state.get("class_bets") is not None:  # until schema 3 there were none
        bets = state["class_bets"]
        state["class_bets"] = ClassBets(**bets | {"log_wealth": _wealth(bets["log_wealth"])})
    return state


def _wealth(stored: list[float | None]) -> list[float]:
    return [-math.inf if wealth is None else wealth for wealth in stored]


def _check_state(monitor: Monitor) -> None:
    """Raise an error for a state that no monitor writes: a number that is none would silence every alarm."""
    optional = (count for count in (monitor.alarm_at, monitor.n_calibration) if count is not None)
    counts = (monitor.n, monitor.n_units, *optional)
    if not all(type(count) is int and count >= 0 for count in counts):
        raise ValueError("counts are not whole numbers")
    sums = [monitor.total, monitor.decayed, *monitor.rolling]
    if any(set(part) != set(SUM_NAMES) or any(len(values) != N_BINS for values in part.values()) for part in sums):
        raise ValueError("sums have other bins")
    numbers = [value for part in sums for values in part.values() for value in values]
    numbers += [monitor.center, *monitor.confidence_sum]
    if len(monitor.confidence_sum) != 2 or not all(_is_finite(value) and value >= 0 for value in numbers):
        raise ValueError("sums are not finite")
    is_wealth = [value == -math.inf or _is_finite(value) for value in (*monitor.log_wealth, monitor.max_log_wealth)]
    if len(monitor.log_wealth) != N_BETS or not all(is_wealth):
        raise ValueError("the wealth of a bet is not a number")
    if monitor.promise is not None:
        _check_promise(monitor.promise)
    text_types = {type(monitor.last_cluster), type(monitor.alarm_reason)}
    if (type(monitor.positions), type(monitor.rolling)) != (dict, list) or not text_types <= {str, NoneType}:
        raise TypeError("positions, rolling, last_cluster or alarm_reason are of another type")
    counted = {} if monitor.counted is None else monitor.counted
    if type(counted) is not dict or not all(type(text) is str for text in counted.values()):
        raise TypeError("counted is not an object of texts")
    _check_requests(monitor)
    if monitor.class_bets is not None:
        _check_class_bets(monitor.class_bets)


def _check_requests(monitor: Any) -> None:
    """The same for what others asked for."""
    if type(monitor.history) is not list or not all(type(event) is dict for event in monitor.history):
        raise TypeError("history is not a list of events")
    for part in (monitor, monitor.promise or monitor):
        if type(part.acknowledged) not in {str, NoneType} or type(part.is_notified) is not bool:
            raise TypeError("acknowledged or is_notified are of another type")
    if type(monitor.n_requests) is not int or monitor.n_requests < 0:
        raise ValueError("n_requests is not a whole number")
    ids = monitor.request_ids
    if ids is not None and (type(ids) is not list or not all(type(one) is str for one in ids)):
        raise TypeError("request_ids is not a list of texts")


def _check_class_bets(bets: ClassBets) -> None:
    m, counts = len(bets.names), (bets.n, bets.n_units)
    if m < 2 or not all(type(name) is str for name in bets.names) or len(set(bets.names)) < m:
        raise ValueError("the names of the classes are not texts that differ")
    if not all(type(count) is int and count >= 0 for count in counts):
        raise ValueError("counts are not whole numbers")
    sums = [*bets.all_sums, *bets.recent_sums]
    numbers = [bets.log_capital, bets.center, *(value for part in sums for value in part)]
    if [len(part) for part in sums] != [m] * 4 or not all(map(_is_finite, numbers)):
        raise ValueError("sums of classes are not finite, or of other classes")
    is_wealth = [value == -math.inf or _is_finite(value) for value in bets.log_wealth]
    if len(is_wealth) != n_bets(m) or not all(is_wealth):
        raise ValueError("the wealth of a bet on a class is not a number")


def _check_promise(promise: RiskMonitor) -> None:
    """The same for the state of a promise."""
    optional = () if promise.alarm_at is None else (promise.alarm_at,)
    counts = (promise.n, promise.n_losses, promise.n_units, promise.n_seen, *optional)
    if not all(type(count) is int and count >= 0 for count in counts):
        raise ValueError("counts of the promise are not whole numbers")
    wealth = (*promise.log_wealth, promise.max_log_wealth)
    if len(promise.log_wealth) != len(STAKES) or not all(one == -math.inf or _is_finite(one) for one in wealth):
        raise ValueError("the wealth of a bet on the promise is not a number")
    if type(promise.last_cluster) not in {str, NoneType}:
        raise TypeError("last_cluster of the promise is of another type")


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
