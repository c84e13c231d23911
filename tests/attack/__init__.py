"""Attacks on the promises of rhocal: random, hostile and extreme input in a loop, and a count of what did not hold.

A module here offers ``run(rng_seed, seconds) -> Counts``: it attacks until the seconds are over, with every choice drawn from
the seed. ``python -m tests.attack`` (``make attack``) runs all of them, each in a process of its own, so that a crash is a
count too. ``test_attack.py`` runs all of them for half a second.
"""

from __future__ import annotations

import os
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

import numpy as np

from rhocal.errors import RhocalError

MAX_EXAMPLES = 30
"""Descriptions of findings that are kept. Findings are counted without limit."""

MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: S108, PTH112
"""A folder in memory, if there is one: a kill does not lose what was written, and a thousand files are quick."""

REFUSED = object()
"""What ``Counts.attempt`` returns where a call raised."""


@dataclass
class Counts:
    """What an attack tried and what came of it. Counts add.

    >>> counts = Counts()
    >>> counts.attempt("1 / 0", lambda: 1 / 0) is REFUSED
    True
    >>> counts.calls, counts.foreign, counts.examples
    (1, 1, ['1 / 0: ZeroDivisionError: division by zero'])
    >>> counts.is_clean
    False
    """

    calls: int = 0
    refused: int = 0
    """Calls that raised an error of ours: the input cannot be used, and the caller is told."""
    silent_wrong: int = 0
    """Results that differ from what was promised, without an error."""
    foreign: int = 0
    """Exceptions that are not ours."""
    nan: int = 0
    """Results with NaN (or infinity where none is due)."""
    crashes: int = 0
    """Processes that died or did not end."""
    examples: list[str] = field(default_factory=list)
    cases: Counter[str] = field(default_factory=Counter)
    """How many cases of each kind were tried: mutated files of a format, kills of a command."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.calls + other.calls,
            self.refused + other.refused,
            self.silent_wrong + other.silent_wrong,
            self.foreign + other.foreign,
            self.nan + other.nan,
            self.crashes + other.crashes,
            [*self.examples, *other.examples][:MAX_EXAMPLES],
            self.cases + other.cases,
        )

    @property
    def is_clean(self) -> bool:
        """Whether every promise held."""
        return not (self.silent_wrong or self.foreign or self.nan or self.crashes)

    def attempt(self, what, call):
        """Count a call and return its result; REFUSED if it raised. An error that is not ours is a finding."""
        self.calls += 1
        try:
            return call()
        except RhocalError:
            self.refused += 1
        except Exception as error:  # noqa: BLE001 - exactly what is looked for
            self.foreign += 1
            self._keep(f"{what}: {type(error).__name__}: {' '.join(str(error).split())[:160]}")
        return REFUSED

    def check(self, what, holds):
        """Count a promise that did not hold: a silent wrong answer."""
        if not holds:
            self.silent_wrong += 1
            self._keep(f"{what}: wrong")
        return bool(holds)

    def check_finite(self, what, values):
        """Count a result with NaN or infinity."""
        if not np.isfinite(np.asarray(values, dtype=np.float64)).all():
            self.nan += 1
            self._keep(f"{what}: NaN or infinite")
            return False
        return True

    def _keep(self, example):
        if len(self.examples) < MAX_EXAMPLES and example not in self.examples:
            self.examples.append(example)


def rounds(rng_seed, seconds):
    """Generators of random numbers, one for each round of an attack, until the time is over; at least one.

    A round is reproduced by its seeds: ``np.random.default_rng((rng_seed, k))``.
    """
    end, k = time.monotonic() + seconds, 0
    while k == 0 or time.monotonic() < end:
        yield np.random.default_rng((rng_seed, k))
        k += 1


def modules():
    """The names of the attacks: every module here that is neither private nor a test."""
    paths = Path(__file__).parent.glob("*.py")
    return sorted(path.stem for path in paths if not path.stem.startswith(("_", "test_")))


def attack(name, rng_seed, seconds):
    """Run one attack in this process."""
    return import_module(f"tests.attack.{name}").run(rng_seed, seconds)


def send_counts(sending, name, rng_seed, seconds):
    """Run one attack in a process of its own and send its counts."""
    warnings.simplefilter("ignore")
    sending.send(attack(name, rng_seed, seconds))
