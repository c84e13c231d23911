"""Speed and quality of this version, beside the versions before: a row for each figure in ``history.csv``.

Quality: NLL, Brier score and ECE on the test sets that the package ships; they change only if a fit changes. Speed: seconds
of a fit or evaluation over those of ``scipy.special.log_softmax`` of the same array in the same run; rounds alternate, and a
figure is the lowest of its rounds, so that a load that comes and goes hardly matters. A figure that is worse than the newest
one of another commit by more than its margin is printed as a regression, and the exit code is 1. ECE has none: it is noisy.

    make history             # measure, compare, append
    make history SAVE=       # measure and compare only
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import time
import warnings
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import log_softmax

import rhocal
from rhocal import metrics

if TYPE_CHECKING:
    from collections.abc import Callable

FILE = Path(__file__).with_name("history.csv")
COLUMNS = ("commit", "date", "figure", "value")
QUALITY = {
    "images": ("temperature", "rho-norm", "field", "svs", "sms", "cascade", "auto"),
    "table": ("temperature", "beta", "isotonic", "svs", "cascade", "auto"),
    "options": ("temperature", "rho-norm", "field", "auto"),
}
SPEED = ("temperature", "rho-norm", "field", "vector", "svs", "isotonic", "cascade")
SHAPE = (5000, 100)
N_ROUNDS = 5
MARGINS = {"quality": 1.002, "speed": 1.3}
"""How many times the value before a figure may be."""


def quality() -> dict[str, float]:
    """Scores of methods on the shipped test sets."""
    found = {}
    for name, methods in QUALITY.items():
        calibration, (logits, labels) = rhocal.demo_logits("cal", name), rhocal.demo_logits("test", name)
        for method in methods:
            probs = rhocal.calibrator(method).fit(*calibration).predict_proba(logits)
            for metric in (metrics.nll, metrics.brier, metrics.ece):
                found[f"quality {name} {method} {metric.name}"] = float(metric(probs, labels))
    return found


def speed() -> dict[str, float]:
    """Times of fits, of an evaluation and of an application, over that of a log-softmax of the same array."""
    rng = np.random.default_rng(0)
    truth = 2 * rng.normal(size=SHAPE)
    labels = (truth + rng.gumbel(size=SHAPE)).argmax(axis=1)
    logits = (truth * np.exp(0.4 * rng.normal(size=(len(truth), 1)))).astype(np.float32)
    fitted = rhocal.RhoNormScaling().fit(logits, labels)
    calls: dict[str, Callable[[], object]] = {
        f"fit {method}": lambda method=method: rhocal.calibrator(method).fit(logits, labels)  # type: ignore[misc]
        for method in SPEED
    }
    calls["apply rho-norm"] = lambda: fitted.predict_proba(logits)
    calls["evaluate"] = lambda: rhocal.evaluate(logits, labels, kind="logits")
    unit, lowest = np.inf, dict.fromkeys(calls, np.inf)
    for _ in range(N_ROUNDS):
        unit = min(unit, seconds(lambda: log_softmax(logits, axis=1)))
        for name, call in calls.items():
            lowest[name] = min(lowest[name], seconds(call))
    return {f"speed {name}": value / unit for name, value in lowest.items()}


def seconds(call: Callable[[], object]) -> float:
    """How long a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def read() -> list[dict[str, str]]:
    """All rows so far."""
    if not FILE.is_file():
        return []
    with FILE.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def git(*arguments: str) -> str:
    """What git says about this checkout."""
    command = [which("git") or "git", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=FILE.parent).stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true", help="append the figures to history.csv")
    save = parser.parse_args().save
    warnings.simplefilter("ignore", rhocal.errors.RhocalWarning)
    commit, date = git("rev-parse", "--short=10", "HEAD"), git("show", "-s", "--format=%cs", "HEAD")
    rows = [row for row in read() if row["commit"] != commit]
    before = {row["figure"]: (float(row["value"]), row["commit"]) for row in rows}
    regressions = []
    figures = quality() | speed()
    for name, value in figures.items():
        old, at = before.get(name, (None, ""))
        told = "new" if old is None else f"{value / old:6.3f} × {at}"
        print(f"{name:<45}{value:12.6g}   {told}")
        if old is not None and not name.endswith(" ece") and value > MARGINS[name.split()[0]] * old:
            regressions.append(name)
    if save:
        rows += [
            dict(zip(COLUMNS, (commit, date, name, f"{value:.6g}"), strict=True)) for name, value in figures.items()
        ]
        with FILE.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    print(f"worse than before: {', '.join(regressions)}" if regressions else "nothing is worse than before")
    return 1 if regressions else 0


if __name__ == "__main__":
    sys.exit(main())
