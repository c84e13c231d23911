"""Maps as SQL in SQLite and as JSON in the interpreter of the documentation, against Python, at extreme and masked logits.

Probabilities agree to 1e-6, and so do decisions wherever the two largest differ by more.
"""

from __future__ import annotations

import json
import re
import sqlite3
import warnings
from contextlib import closing
from functools import cache
from pathlib import Path

import numpy as np
from tests.attack import REFUSED, Counts, rounds
from tests.attack._calibrators import METHODS, fitted, hostile_logits

from rhocal.calibrators.portable import portable_map, to_sql

TOLERANCE = 1e-6
N_BATCHES = 10
ROOT = Path(__file__).parents[2]
NOT_EXPRESSIBLE = {"iop", "multi-domain"}
EXPRESSIBLE = tuple(name for name in METHODS if name not in NOT_EXPRESSIBLE)


def run(rng_seed, seconds, methods=EXPRESSIBLE):
    """Attack until the seconds are over."""
    counts = Counts()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RuntimeWarning)  # of NumPy
        for rng in rounds(rng_seed, seconds):
            method, m = str(rng.choice(methods)), int(rng.choice([2, 3, 5]))
            programs = counts.attempt(f"export {method}", lambda method=method, m=m: prepared(method, m))
            if programs is REFUSED:
                continue
            for _ in range(N_BATCHES):
                z = hostile_logits(rng, 4, m, largest=float(rng.choice([2, 8, 30])))
                attack_batch(counts, method, programs, z)
    return counts


@cache
def interpreter():
    """The function ``run`` of docs/portable.md."""
    page = (ROOT / "docs" / "portable.md").read_text(encoding="utf-8")
    names = {}
    exec(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1], names)  # noqa: S102 - our own page
    return names["run"]


@cache
def prepared(method, m):
    """A calibrator, and functions that calibrate rows elsewhere: probabilities and columns."""
    cal = fitted(method, m)
    document = json.loads(json.dumps(portable_map(cal), allow_nan=False))
    names = [f"z{k}" for k in range(m)]
    query = to_sql(cal, "sqlite", columns=names, keep=["id"])
    columns = ", ".join(f"{name} REAL" for name in names)

    def in_json(z):
        found = [interpreter()(document, row) for row in z.tolist()]
        return np.array([probs for probs, _ in found]), np.array([column for _, column in found])

    def in_sqlite(z):
        places = ", ".join("?" * (m + 1))
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.execute(f"CREATE TABLE predictions (id INTEGER, {columns})")
            connection.executemany(
                f"INSERT INTO predictions VALUES ({places})",  # noqa: S608 - question marks
                [(k, *row) for k, row in enumerate(z.tolist())],
            )
            rows = np.array(sorted(connection.execute(query).fetchall()), dtype=float)
        return rows[:, 1 : m + 1], rows[:, m + 1].astype(int)

    return cal, {"JSON": in_json, "SQLite": in_sqlite}


def attack_batch(counts, method, programs, z):
    """Compare both with Python."""
    cal, backends = programs
    want = counts.attempt(f"{method} in Python", lambda: cal.predict_proba(z))
    if want is REFUSED:
        return
    top = np.sort(want, axis=1)
    is_clear = top[:, -1] - top[:, -2] > TOLERANCE
    for name, apply in backends.items():
        what = f"{method} in {name}, {z.shape[1]} classes"
        got = counts.attempt(f"{what} at {z.tolist()}", lambda apply=apply: apply(z))
        if got is REFUSED or not counts.check_finite(f"{what} at {z.tolist()}", got[0]):
            continue
        apart = np.abs(got[0] - want).max(1)
        row = z[apart.argmax()].tolist()
        counts.check(f"{what}: {apart.max():.1e} apart at {row}", apart.max() <= TOLERANCE)
        counts.check(f"{what}: decision", np.array_equal(got[1][is_clear], want.argmax(1)[is_clear]))
