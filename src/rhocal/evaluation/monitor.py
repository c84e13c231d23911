"""Watching calibration as labels come in: sums that decay, and a test that may be looked at after every sample.

The test is a bet: on gaps between accuracy and confidence (``bets.py``) and, where the probabilities of all classes are known,
on the prevalence of classes (``class_bets.py``), each with half of the wealth. If no gap exceeds what is tolerated, all wealth
together has mean at most 1 at every moment, and by Ville's inequality it ever exceeds 1/α with a chance of at most α. So an
alarm at wealth ≥ 20 is false in at most 5 % of all streams, however long and however often one looks. Samples, or clusters of
them, are assumed to be independent.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.atomic import writing
from rhocal.errors import FileError, InputError, one_line
from rhocal.evaluation.bets import (
    FIRST_CENTER,
    N_BETS,
    STAKES,
    UNITS_AT_ONCE,
    Margin,
    advance,
    gap_gains,
    log_factors,
    total_log_wealth,
    unit_gains,
)
from rhocal.evaluation.class_bets import ClassBets, ClassProbs, n_bets
from rhocal.evaluation.risk_monitor import RiskMonitor
from rhocal.metrics import Scored
from rhocal.numerics.bins import N_BINS, BinSums

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from numpy.typing import NDArray

    from rhocal.data.predictions import Kind
    from rhocal.numerics.special import Vector

SCHEMA = 3
RENAMED_FIELDS = {"log_money": "log_wealth", "highest": "max_log_wealth", "seen": "positions"}
"""Fields of states that earlier versions wrote."""
N_BETS_WITHOUT_GAPS = 96
"""Bets of states that earlier versions wrote."""
CONFIDENCE_IS_OFF = "the confidence in the predicted class is off"
LOG_HALF = math.log(0.5)
"""Of the share of wealth of the top label where there are bets on classes."""
N_WINDOW_PARTS = 10
"""A rolling window is forgotten in so many steps."""


@dataclass
class Monitor:
    """What is remembered of a stream of predictions with labels: a few hundred numbers, and eight a class.

    Parameters
    ----------
    alpha
        Chance of a false alarm over the whole stream, if the confidences are right.
    half_life
        Samples after which a sample counts half in the decayed values.
    window
        Samples that the rolling values look back on, rounded up to a tenth of it.
    tolerance
        The gap between accuracy and confidence that is no alarm, at any confidence: 0.02 for two points.
    n_calibration
        Samples that the calibrator was fitted on. A map fitted on few samples is not exact; two standard errors of as many
        are tolerated besides. Without it a correct method fitted on 1,000 samples raises an alarm sooner or later.

    Examples
    --------
    >>> monitor = Monitor()
    >>> monitor.add(np.full(400, 0.9), np.r_[np.ones(200), np.zeros(200)])
    >>> monitor.alarm
    True
    """

    alpha: float = 0.05
    half_life: float = 10_000.0
    window: int = 10_000
    tolerance: float = 0.0
    n_calibration: int | None = None
    n: int = 0
    n_units: int = 0
    """Samples, or clusters, that were bet on."""
    log_wealth: list[float] = field(default_factory=lambda: [-math.inf] * N_BETS)
    """Log of the wealth of every bet."""
    center: float = FIRST_CENTER
    """Mean confidence of the bets so far, as of the last change of the center of the tilt."""
    confidence_sum: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """Sum and number of confidences, for the next center."""
    last_cluster: str | None = None
    max_log_wealth: float = 0.0
    """The largest log of all wealth together so far."""
    alarm_at: int | None = None
    """The sample at which the alarm was raised; it stays."""
    alarm_reason: str | None = None
    """What was wrong when the alarm was raised."""
    class_bets: ClassBets | None = None
    """Bets on the prevalence of classes, since probabilities of all classes are given (``add_probs``)."""
    total: dict[str, list[float]] = field(default_factory=lambda: _empty(N_BINS))
    decayed: dict[str, list[float]] = field(default_factory=lambda: _empty(N_BINS))
    rolling: list[dict[str, list[float]]] = field(default_factory=list)
    """Sums of the latest tenths of a window, the last one being filled."""
    promise: RiskMonitor | None = None
    """What is remembered of the risk that a policy promises."""
    positions: dict[str, Any] = field(default_factory=dict)
    """Source → how much of it has been read, for whoever feeds the monitor."""

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise InputError(f"alpha must lie between 0 and 1; got {self.alpha!r}")
        if not self.half_life > 0:
            raise InputError(f"half_life must be positive; got {self.half_life!r}")
        if not 0 <= self.tolerance < 1:
            raise InputError(f"tolerance must lie between 0 and 1 (0.02 for two points); got {self.tolerance!r}")
        if self.n_calibration is not None and self.n_calibration < 1:
            raise InputError(f"n_calibration must be a number of samples; got {self.n_calibration!r}")
        if self.window < N_WINDOW_PARTS or self.window % 1:
            raise InputError(f"window must be a whole number of at least {N_WINDOW_PARTS}; got {self.window!r}")

    def add_probs(
        self,
        probs: Any,
        labels: Any,
        clusters: Any = None,
        *,
        kind: Kind = "probs",
        classes: Any = None,
        positive: Any = None,
    ) -> None:
        """Take in samples with the probabilities of all classes: the prevalence of classes is tested as well.

        >>> rare = np.tile([0.75, 0.25], (400, 1))
        >>> monitor = Monitor()
        >>> monitor.add_probs(rare, np.r_[np.zeros(390, int), np.ones(10, int)], classes=["honest", "fraud"])
        >>> monitor.alarm_reason
        'class fraud is predicted too often: mean probability 25 %, observed 0 %'
        """
        self.add_scored(Scored.from_arrays(probs, labels, None, kind, classes=classes, positive=positive), clusters)

    def add_scored(self, samples: Scored, clusters: Any = None) -> None:
        """Take in validated samples with the probabilities of all classes."""
        self.add(samples.confidence, samples.correct, clusters, classes=ClassProbs.from_scored(samples))

    def add(
        self, confidence: Vector, correct: Vector, clusters: Any = None, *, classes: ClassProbs | None = None
    ) -> None:
        """Take in samples, in the order in which they came. Their confidence alone does not show the prevalence of classes.

        ``clusters`` names the cluster of each sample (patient, session, document). Samples of a cluster that follow each other
        are one bet. Those that continue the last cluster of the previous call are summed up, but not bet on.
        """
        confidence, correct = np.asarray(confidence, np.float64), np.asarray(correct, np.float64)
        if confidence.shape != correct.shape or confidence.ndim != 1:
            raise InputError(f"one confidence and one correct a sample; got {confidence.shape} and {correct.shape}")
        if not (np.isfinite(confidence).all() and (confidence >= 0).all() and (confidence <= 1 + 1e-6).all()):
            raise InputError("confidence must lie between 0 and 1")
        if not ((correct == 0) | (correct == 1)).all():
            raise InputError(f"correct must be 0 or 1; got {correct[(correct != 0) & (correct != 1)][0]:g}")
        if classes is not None:
            if self.class_bets is None:  # half of all wealth, whatever it is by now
                log_capital = LOG_HALF + total_log_wealth(np.array(self.log_wealth), self.n_units)
                self.class_bets = ClassBets.start(classes.names, log_capital)
            classes = classes.in_order_of(self.class_bets.names)
        starts = self._unit_starts(len(confidence), clusters)
        done = 0
        while done < len(starts):  # up to the next change of the center
            units = starts[done : done + UNITS_AT_ONCE - self.n_units % UNITS_AT_ONCE]
            end = starts[done + len(units)] if done + len(units) < len(starts) else len(confidence)
            part = slice(units[0], end)
            known = None if classes is None else classes.rows(part)
            self._bet(confidence[part], correct[part], units - units[0], int(units[0]), known)
            done += len(units)
        self.n += len(confidence)
        self._sum(confidence, correct)

    def _unit_starts(self, n: int, clusters: Any) -> NDArray[np.intp]:
        """The first sample of every unit that is bet on."""
        if clusters is None:
            self.last_cluster = None
            return np.arange(n)
        names = np.asarray(clusters)
        if names.shape != (n,):
            raise InputError(f"clusters must hold one name for each of the {n} samples; got shape {names.shape}")
        if not n:
            return np.arange(0)
        names = names.astype(str)
        starts = np.append(0, np.flatnonzero(names[1:] != names[:-1]) + 1)
        continued = names[0] == self.last_cluster
        self.last_cluster = str(names[-1])
        return starts[1:] if continued else starts

    def _bet(
        self, confidence: Vector, correct: Vector, starts: NDArray[np.intp], first: int,
        known: tuple[Vector, NDArray[np.intp]] | None,
    ) -> None:  # fmt: skip
        allowed = Margin(self.tolerance, self.n_calibration)
        margin = allowed(confidence)
        factors = log_factors(
            *unit_gains(confidence, correct, margin, self.center, starts),
            gap_gains(confidence, correct, margin, starts),
        )
        wealth, top = advance(np.array(self.log_wealth), factors, self.n_units)
        total, before = top, self.class_bets
        if before is not None:
            of_classes = np.full(len(starts), before.total)
            if known is not None:
                self.class_bets, of_classes = before.advance(*known, allowed, starts)
            total = np.logaddexp(top + LOG_HALF, of_classes)
        self.max_log_wealth = max(self.max_log_wealth, float(total.max()))
        over = np.flatnonzero(total >= -math.log(self.alpha))
        if len(over) and self.alarm_at is None:
            ends = np.append(starts[1:], len(confidence))
            end, unit = int(ends[over[0]]), int(over[0])
            self.alarm_at = self.n + first + end
            self.alarm_reason = CONFIDENCE_IS_OFF
            if before is not None and known is not None and of_classes[unit] > top[unit] + LOG_HALF:
                at_alarm, _ = before.advance(known[0][:end], known[1][:end], allowed, starts[: unit + 1])
                self.alarm_reason = at_alarm.sentence()
        self.log_wealth = wealth.tolist()
        self.n_units += len(starts)
        self.confidence_sum = [
            self.confidence_sum[0] + float(confidence.sum()), self.confidence_sum[1] + len(confidence)
        ]  # fmt: skip
        if self.n_units % UNITS_AT_ONCE == 0:
            self.center = self.confidence_sum[0] / self.confidence_sum[1]
            self.class_bets = self.class_bets and self.class_bets.with_center()

    def _sum(self, confidence: Vector, correct: Vector) -> None:
        n = len(confidence)
        age = 0.5 ** (np.arange(n - 1, -1, -1) / self.half_life)
        _add_up(self.total, confidence, correct, np.ones(n))
        _add_up(self.decayed, confidence, correct, age, old=0.5 ** (n / self.half_life))
        size, before, done = -(-self.window // N_WINDOW_PARTS), self.n - n, 0
        while done < n:  # up to the next tenth
            if (before + done) % size == 0:
                self.rolling = [*self.rolling[-N_WINDOW_PARTS:], _empty(N_BINS)]
            part = slice(done, min(done + size - (before + done) % size, n))
            _add_up(self.rolling[-1], confidence[part], correct[part], np.ones(part.stop - part.start))
            done = part.stop

    @property
    def alarm(self) -> bool:
        """Whether calibration is known to be off."""
        return self.alarm_at is not None

    @property
    def p_value(self) -> float:
        """Valid at every moment: the chance that a calibrated stream ever looks as bad as this one did."""
        return min(1.0, math.exp(-self.max_log_wealth))

    def values(self) -> dict[str, Any]:
        """The counts, the alarm, and metrics over all, recent and windowed samples."""
        return {
            "n_samples": self.n,
            "alarm": self.alarm,
            "alarm_at": self.alarm_at,
            "alarm_reason": self.alarm_reason,
            "p_value": self.p_value,
            "tolerance": self.tolerance,
            "n_calibration": self.n_calibration,
            "worst_class": self.class_bets.worst() if self.class_bets is not None and self.class_bets.n else None,
            "all": _values(self.total),
            "recent": _values(self.decayed),
            "rolling": _values(_total(self.rolling)),
            **({} if self.promise is None else {"promise": self.promise.values()}),
        }

    def save(self, path: str | PathLike[str]) -> None:
        """Write the state, whole or not at all."""
        state = asdict(self)
        for part in (state, state["promise"] or {}, state["class_bets"] or {}):
            if "log_wealth" in part:
                part["log_wealth"] = [None if math.isinf(wealth) else wealth for wealth in part["log_wealth"]]
        text = json.dumps({"format": "rhocal-monitor", "schema": SCHEMA, **state})
        with writing(path) as unfinished:
            unfinished.write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Monitor:
        """Read a state that ``save`` wrote."""
        try:
            state = json.loads(Path(path).read_text(encoding="utf-8"))
            schema = state.pop("schema")
            if state.pop("format") != "rhocal-monitor" or type(schema) is not int or schema > SCHEMA:
                raise FileError(f"{path}: not the state of a monitor, or of a newer version")
            state = {RENAMED_FIELDS.get(name, name): value for name, value in state.items()}
            if schema < 2:  # other bets: sums and an alarm stay, the test begins anew
                state = {name: value for name, value in state.items() if name not in {"log_wealth", "max_log_wealth"}}
            else:
                state["log_wealth"] = [-math.inf if wealth is None else wealth for wealth in state["log_wealth"]]
                # The bets on gaps begin now, with the shares that wait.
                if len(state["log_wealth"]) == N_BETS_WITHOUT_GAPS:
                    state["log_wealth"] += [-math.inf] * (N_BETS - N_BETS_WITHOUT_GAPS)
            if state.get("promise") is not None:
                promise = dict(state["promise"])
                promise["log_wealth"] = [-math.inf if wealth is None else wealth for wealth in promise["log_wealth"]]
                state["promise"] = RiskMonitor(**promise)
            if state.get("class_bets") is not None:  # until schema 3 there were none
                bets = state["class_bets"]
                bets["log_wealth"] = [-math.inf if wealth is None else wealth for wealth in bets["log_wealth"]]
                state["class_bets"] = ClassBets(**bets)
            monitor = cls(**state)
            _check_state(monitor)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if isinstance(error, FileError):
                raise
            raise FileError(f"{path}: not the state of a monitor: {one_line(error)}") from error
        return monitor


def _check_state(monitor: Monitor) -> None:
    """Raise an error for a state that no monitor writes: a number that is none would silence every alarm."""
    optional = (count for count in (monitor.alarm_at, monitor.n_calibration) if count is not None)
    counts = (monitor.n, monitor.n_units, *optional)
    if not all(type(count) is int and count >= 0 for count in counts):
        raise ValueError("counts are not whole numbers")
    sums = [monitor.total, monitor.decayed, *monitor.rolling]
    if any(set(part) != set(_empty(1)) or any(len(values) != N_BINS for values in part.values()) for part in sums):
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
    others: tuple[Any, ...] = (monitor.positions, monitor.rolling)
    texts: tuple[Any, ...] = (monitor.last_cluster, monitor.alarm_reason)
    if (
        type(others[0]) is not dict
        or type(others[1]) is not list
        or not {type(text) for text in texts} <= {str, NoneType}
    ):
        raise TypeError("positions, rolling, last_cluster or alarm_reason are of another type")
    if monitor.class_bets is not None:
        _check_class_bets(monitor.class_bets)


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


def _add_up(kept: dict[str, list[float]], confidence: Vector, correct: Vector, weights: Vector, old: float = 1) -> None:
    """Add samples to sums, which fade first by a factor."""
    sums = BinSums.of(confidence, correct, n_bins=N_BINS, weights=weights)
    for name, values in asdict(sums).items():
        kept[name] = (old * np.array(kept[name]) + values).tolist()


def _total(parts: Sequence[dict[str, list[float]]]) -> dict[str, list[float]]:
    whole = _empty(N_BINS)
    return {name: np.sum([whole[name], *(part[name] for part in parts)], axis=0).tolist() for name in whole}


def _empty(n_bins: int) -> dict[str, list[float]]:
    return {name: [0.0] * n_bins for name in ("weight", "confidence", "correct")}


def _values(kept: dict[str, list[float]]) -> dict[str, float | None]:
    sums = BinSums(**{name: np.array(values) for name, values in kept.items()})
    weight = float(sums.weight.sum())
    if not weight:
        return {"weight": 0.0, "accuracy": None, "confidence": None, "ece": None}
    return {
        "weight": weight,
        "accuracy": float(sums.correct.sum()) / weight,
        "confidence": float(sums.confidence.sum()) / weight,
        "ece": sums.error(1),
    }
