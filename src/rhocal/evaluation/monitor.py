"""Watching calibration as labels come in: sums that decay, and a test that may be looked at after every sample.

The test is a bet. If the confidences are right, the wealth of a bettor who bets on (correct − confidence) has mean 1 at
every moment (it is a martingale), and by Ville's inequality it ever exceeds 1/α with a chance of at most α. So an alarm at
wealth ≥ 20 is false in at most 5 % of all streams, however long and however often one looks.

The bettor divides the wealth over several stakes λ: a stake multiplies its wealth by 1 + λ(correct − confidence) at every
sample, so those that bet with the drift grow exponentially. To notice a drift that begins late, a share of the wealth waits
and starts anew at times 1, 2, 4, 8, …: the sum of martingales is one.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.atomic import writing
from rhocal.errors import FileError, InputError
from rhocal.numerics.bins import N_BINS, BinSums

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from rhocal.numerics.special import Vector

STAKES = (-0.9, -0.5, -0.25, -0.1, -0.04, 0.04, 0.1, 0.25, 0.5, 0.9)
"""Negative stakes win when the model is over-confident. All smaller than 1: no single sample can ruin the bettor."""

SCHEMA = 1
RENAMED_FIELDS = {"log_money": "log_wealth", "highest": "max_log_wealth", "seen": "positions"}
"""Fields of states that earlier versions wrote."""
N_WINDOW_PARTS = 10
"""A rolling window is forgotten in so many steps."""
MAX_SAMPLES_AT_ONCE = 4096
"""Samples whose bets are worked out together: their paths are 80 bytes times the starts for each."""
MAX_STARTS = 40
"""Starts at 2⁰, 2¹, … up to 2 to this: 10¹² samples."""


@dataclass
class Monitor:
    """What is remembered of a stream of predictions with labels: a few hundred numbers.

    Parameters
    ----------
    alpha
        Chance of a false alarm over the whole stream, if the confidences are right.
    half_life
        Samples after which a sample counts half in the decayed values.
    window
        Samples that the rolling values look back on, rounded up to a tenth of it.

    >>> monitor = Monitor()
    >>> monitor.add(np.full(400, 0.9), np.r_[np.ones(200), np.zeros(200)])
    >>> monitor.alarm
    True
    """

    alpha: float = 0.05
    half_life: float = 10_000.0
    window: int = 10_000
    n: int = 0
    log_wealth: list[list[float]] = field(default_factory=list)
    """Log of the wealth of every stake, one list for each start 1, 2, 4, … that has come."""
    max_log_wealth: float = 0.0
    """The largest log of all wealth together so far."""
    alarm_at: int | None = None
    """The sample at which the alarm was raised; it stays."""
    total: dict[str, list[float]] = field(default_factory=lambda: _empty(N_BINS))
    decayed: dict[str, list[float]] = field(default_factory=lambda: _empty(N_BINS))
    rolling: list[dict[str, list[float]]] = field(default_factory=list)
    """Sums of the latest tenths of a window, the last one being filled."""
    positions: dict[str, Any] = field(default_factory=dict)
    """Source → how much of it has been read, for whoever feeds the monitor."""

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise InputError(f"alpha must lie between 0 and 1; got {self.alpha!r}")
        if not self.half_life > 0:
            raise InputError(f"half_life must be positive; got {self.half_life!r}")
        if self.window < N_WINDOW_PARTS or self.window % 1:
            raise InputError(f"window must be a whole number of at least {N_WINDOW_PARTS}; got {self.window!r}")

    def add(self, confidence: Vector, correct: Vector) -> None:
        """Take in samples, in the order in which they came."""
        confidence, correct = np.asarray(confidence, np.float64), np.asarray(correct, np.float64)
        if confidence.shape != correct.shape or confidence.ndim != 1:
            raise InputError(f"one confidence and one correct a sample; got {confidence.shape} and {correct.shape}")
        if not (np.isfinite(confidence).all() and (confidence >= 0).all() and (confidence <= 1 + 1e-6).all()):
            raise InputError("confidence must lie between 0 and 1")
        if not ((correct == 0) | (correct == 1)).all():
            raise InputError(f"correct must be 0 or 1; got {correct[(correct != 0) & (correct != 1)][0]:g}")
        done = 0
        while done < len(confidence):  # up to the next start
            n_started = self.n.bit_length()  # starts 1, 2, 4, … that are not after the next sample
            if n_started > len(self.log_wealth) - 1 and len(self.log_wealth) <= MAX_STARTS:
                self.log_wealth.append([0.0] * len(STAKES))
            until = (1 << self.n.bit_length()) - self.n if self.n else 1
            part = slice(done, min(done + until, done + MAX_SAMPLES_AT_ONCE, len(confidence)))
            self._bet(confidence[part], correct[part])
            done = part.stop
        self._sum(confidence, correct)

    def _bet(self, confidence: Vector, correct: Vector) -> None:
        grown = np.cumsum(np.log1p(np.outer(STAKES, correct - confidence)), axis=1)
        paths = np.array(self.log_wealth)[:, :, None] + grown
        wealth = log_total_wealth(paths)
        self.max_log_wealth = max(self.max_log_wealth, float(wealth.max()))
        over = np.flatnonzero(wealth >= -math.log(self.alpha))
        if len(over) and self.alarm_at is None:
            self.alarm_at = self.n + int(over[0]) + 1
        self.log_wealth = paths[:, :, -1].tolist()
        self.n += len(confidence)

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
            "p_value": self.p_value,
            "all": _values(self.total),
            "recent": _values(self.decayed),
            "rolling": _values(_total(self.rolling)),
        }

    def save(self, path: str | PathLike[str]) -> None:
        """Write the state, whole or not at all."""
        text = json.dumps({"format": "rhocal-monitor", "schema": SCHEMA, **asdict(self)})
        with writing(path) as unfinished:
            unfinished.write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Monitor:
        """Read a state that ``save`` wrote."""
        try:
            state = json.loads(Path(path).read_text(encoding="utf-8"))
            if state.pop("format") != "rhocal-monitor" or state.pop("schema") > SCHEMA:
                raise FileError(f"{path}: not the state of a monitor, or of a newer version")
            return cls(**{RENAMED_FIELDS.get(name, name): value for name, value in state.items()})
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, FileError):
                raise
            raise FileError(f"{path}: not the state of a monitor: {error}") from error


def log_total_wealth(paths: Vector) -> Vector:
    """Log of all wealth: stakes share equally; start k = 0, 1, … holds 1/((k + 1)(k + 2)), and what waits is counted too.

    ``paths`` has shape (n_starts, n_stakes, n_times).
    """
    n_starts, n_stakes, _ = paths.shape
    k = np.arange(n_starts)
    shares = -np.log((k + 1.0) * (k + 2.0) * n_stakes)
    waiting = 1 / (n_starts + 1)  # Σ_{k ≥ n} 1/((k + 1)(k + 2))
    terms = paths + shares[:, None, None]
    high = np.maximum(terms.max(axis=(0, 1)), np.log(waiting))
    return np.asarray(high + np.log(np.exp(terms - high).sum(axis=(0, 1)) + waiting * np.exp(-high)))


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
