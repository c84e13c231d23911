"""Watching calibration as labels come in: sums that decay, and a test that may be looked at after every sample.

The test is a bet: on gaps between accuracy and confidence (``bets.py``) and, where the probabilities of all classes are known,
on the prevalence of classes (``class_bets.py``), each with half of the wealth. If no gap exceeds what is tolerated, all wealth
together has mean at most 1 at every moment, and by Ville's inequality it ever exceeds 1/α with a chance of at most α. So an
alarm at wealth ≥ 20 is false in at most 5 % of all streams, however long and however often one looks. Samples, or clusters of
them, are assumed to be independent.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.storage.atomic import writing
from rhocal.errors import InputError, counted
from rhocal.evaluation.bets import (
    FIRST_CENTER,
    N_BETS,
    UNITS_AT_ONCE,
    Margin,
    advance,
    gap_gains,
    log_factors,
    total_log_wealth,
    unit_gains,
)
from rhocal.evaluation.class_bets import ClassBets, ClassProbs
from rhocal.evaluation.monitor_state import read_state, state_text
from rhocal.evaluation.monitor_sums import N_WINDOW_PARTS, add_up, confidence_sentence, empty, total_of, values_of
from rhocal.evaluation.risk_monitor import RiskMonitor
from rhocal.metrics import Scored
from rhocal.numerics.bins import N_BINS

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

    from rhocal.data.predictions import Kind
    from rhocal.numerics.special import Vector

LOG_HALF = math.log(0.5)
"""Of the share of wealth of the top label where there are bets on classes."""
TEST_FIELDS = (
    "n_units", "log_wealth", "center", "confidence_sum", "last_cluster", "max_log_wealth", "alarm_at", "alarm_reason",
    "class_bets", "total", "decayed", "rolling", "acknowledged", "is_notified",
    "counted",
)  # fmt: skip
"""What a reset begins anew."""


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
    total: dict[str, list[float]] = field(default_factory=lambda: empty(N_BINS))
    decayed: dict[str, list[float]] = field(default_factory=lambda: empty(N_BINS))
    rolling: list[dict[str, list[float]]] = field(default_factory=list)
    """Sums of the latest tenths of a window, the last one being filled."""
    promise: RiskMonitor | None = None
    """What is remembered of the risk that a policy promises."""
    positions: dict[str, Any] = field(default_factory=dict)
    """Source → how much of it has been read, for whoever feeds the monitor."""
    acknowledged: str | None = None
    """The note of whoever acknowledged the alarm."""
    is_notified: bool = False
    """Whether the alarm was reported."""
    n_requests: int = 0
    """Requests of others (``acknowledge``, ``reset``) that are carried out."""
    request_ids: list[str] | None = None
    """The latest of them, so that none is carried out twice; None in states of earlier versions."""
    counted: dict[str, str] | None = None
    """What is counted, for whoever feeds the monitor: the calibrator and the options that change it; None before that."""
    history: list[dict[str, Any]] = field(default_factory=list)
    """What was acknowledged and reset, and the alarms of then."""

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
        'class fraud gets too much probability: mean probability 25 %, observed 0 %'
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
        n = (self.alarm_at or 0) - self.n
        if n > 0 and self.alarm_reason is None:  # raised by these samples
            self.alarm_reason = confidence_sentence(self.total, self.rolling, confidence[:n], correct[:n])
        self.n += len(confidence)
        self._sum(confidence, correct)

    def _unit_starts(self, n: int, clusters: Any) -> NDArray[np.intp]:
        """The first sample of every unit that is bet on."""
        if clusters is None:
            self.last_cluster = None
            return np.arange(n)
        names = np.asarray(clusters)
        if names.shape != (n,):
            raise InputError(
                f"clusters must hold one name for each of the {counted(n, 'sample')}; got shape {names.shape}"
            )
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
            self.alarm_reason = None
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
        add_up(self.total, confidence, correct, np.ones(n))
        add_up(self.decayed, confidence, correct, age, old=0.5 ** (n / self.half_life))
        size, before, done = -(-self.window // N_WINDOW_PARTS), self.n - n, 0
        while done < n:  # up to the next tenth
            if (before + done) % size == 0 or not self.rolling:
                self.rolling = [*self.rolling[-N_WINDOW_PARTS:], empty(N_BINS)]
            part = slice(done, min(done + size - (before + done) % size, n))
            add_up(self.rolling[-1], confidence[part], correct[part], np.ones(part.stop - part.start))
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
            "acknowledged": self.acknowledged,
            "p_value": self.p_value,
            "tolerance": self.tolerance,
            "n_calibration": self.n_calibration,
            "worst_class": self.class_bets.worst() if self.class_bets is not None and self.class_bets.n else None,
            "all": values_of(self.total),
            "recent": values_of(self.decayed),
            "rolling": values_of(total_of(self.rolling)),
            **({} if self.promise is None else {"promise": self.promise.values()}),
        }

    def __repr__(self) -> str:
        """What is known so far, in a sentence; ``values()`` has the numbers."""
        alarm = f"alarm at sample {self.alarm_at:,}: {self.alarm_reason}" if self.alarm_at is not None else "no alarm"
        promise = "" if self.promise is None or not self.promise.alarm else f"; {self.promise.alarm_reason}"
        return f"{type(self).__name__}: {self.n:,} samples, {alarm}{promise}; p at most {self.p_value:.3g}"

    @property
    def alarms(self) -> dict[str, Monitor | RiskMonitor]:
        """The alarms that are raised, by what they are about: ``calibration``, or the ``promise`` of a policy."""
        parts = {"calibration": self, "promise": self.promise}
        return {name: part for name, part in parts.items() if part is not None and part.alarm}

    @property
    def has_alarm(self) -> bool:
        """Whether calibration is known to be off, or the promise of a policy is known to be broken."""
        return bool(self.alarms)

    @property
    def open_alarms(self) -> dict[str, Monitor | RiskMonitor]:
        """The alarms that nobody acknowledged."""
        return {name: part for name, part in self.alarms.items() if part.acknowledged is None}

    def acknowledge(self, note: str = "") -> None:
        """Note that the alarms that are raised are known. They stay, and are not reported again; one that comes later is."""
        if not self.has_alarm:
            raise InputError("there is no alarm to acknowledge")
        for part in (self.open_alarms or self.alarms).values():
            part.acknowledged = note
        self._record("acknowledge", note)

    def reset(self, note: str = "") -> None:
        """Begin the test and all sums anew, after a repair. Rows are not counted again, and the alarm is in the history.

        Each test has a chance of ``alpha`` of a false alarm.
        """
        self._record("reset", note)
        fresh = type(self)(self.alpha, self.half_life, self.window, self.tolerance, self.n_calibration)
        for name in TEST_FIELDS:
            setattr(self, name, getattr(fresh, name))
        if self.promise is not None:
            self.promise = RiskMonitor(self.promise.risk, self.promise.target, self.promise.alpha)

    def _record(self, event: str, note: str) -> None:
        promise = None if self.promise is None else self.promise.alarm_reason
        alarm = {"alarm_at": self.alarm_at, "alarm_reason": self.alarm_reason, "promise": promise}
        self.history.append({"event": event, "n_samples": self.n, "note": note, **alarm})

    def save(self, path: str | PathLike[str]) -> None:
        """Write the state, whole or not at all."""
        text = state_text(asdict(self))
        with writing(path) as unfinished:
            unfinished.write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Monitor:
        """Read a state that ``save`` wrote."""
        return read_state(path, cls)
