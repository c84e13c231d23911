"""False alarms of the monitor, and how soon it detects a drift.

Writes monitor.csv beside this file and prints it.

    python experiments/coverage/monitor.py --trials 100
"""

from __future__ import annotations

import argparse
import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from models import MIDDLE, SURE
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

import rhocal
from rhocal.evaluation.monitor import Monitor
from rhocal.evaluation.rows import write_rows

if TYPE_CHECKING:
    from rhocal.numerics.special import Vector

HERE = Path(__file__).parent
N_WATCHED = 20_000
N_CLEAN = 1_000_000
PER_CLUSTER, CORRELATION = 10, 0.2


def confidences(rng: np.random.Generator, n: int, beta: tuple[float, float] = MIDDLE) -> Vector:
    return np.minimum(0.1 + 0.9 * rng.beta(*beta, n), 1 - 1e-6)


def correct(rng: np.random.Generator, chance: Vector) -> Vector:
    return (rng.random(len(chance)) < chance).astype(np.float64)


def fitted(seed: int, n_calibration: int) -> tuple[Vector, Vector]:
    """Confidence and correctness of a network whose temperature, the right model, was fitted on few samples."""
    rng = np.random.default_rng([seed, n_calibration])
    logits = rng.normal(0, 2, (n_calibration + N_WATCHED, 5))
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (np.cumsum(probs, axis=1) < rng.random((len(logits), 1))).sum(axis=1).clip(0, 4)
    cal = rhocal.TemperatureScaling().fit(1.7 * logits[:n_calibration], labels[:n_calibration])
    found = cal.predict_proba(1.7 * logits[n_calibration:])
    return found.max(axis=1), (found.argmax(axis=1) == labels[n_calibration:]).astype(np.float64)


def false_alarms(trials: int) -> list[dict[str, Any]]:
    rows = []
    for n in (500, 1000, 5000):
        options: dict[str, dict[str, Any]] = {
            "": {}, "tolerance .02": {"tolerance": 0.02}, "n_calibration": {"n_calibration": n},
        }  # fmt: skip
        alarms = dict.fromkeys(options, 0)
        for seed in range(trials):
            samples = fitted(seed, n)
            for name, chosen in options.items():
                monitor = Monitor(**chosen)
                monitor.add(*samples)
                alarms[name] += monitor.alarm
        rows += [
            {"what": "false alarms", "model": f"temperature fitted on {n:,}", "options": name, "share": count / trials}
            for name, count in alarms.items()
        ]
    alarms = dict.fromkeys(("", "clusters"), 0)
    perfect = 0
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        c = confidences(rng, N_WATCHED)
        monitor = Monitor()
        monitor.add(c, correct(rng, c))
        perfect += monitor.alarm
        common = np.repeat(rng.random(N_WATCHED // PER_CLUSTER), PER_CLUSTER)
        shared = rng.random(N_WATCHED) < np.sqrt(CORRELATION)
        right = (np.where(shared, common, rng.random(N_WATCHED)) < c).astype(np.float64)
        for name, clusters in (("", None), ("clusters", np.arange(N_WATCHED) // PER_CLUSTER)):
            monitor = Monitor()
            monitor.add(c, right, clusters)
            alarms[name] += monitor.alarm
    rows.append({"what": "false alarms", "model": "perfect", "options": "", "share": perfect / trials})
    return rows + [
        {"what": "false alarms", "model": "ten samples a cluster", "options": name, "share": count / trials}
        for name, count in alarms.items()
    ]


def fitted_classes(seed: int, n_calibration: int, n_classes: int) -> tuple[Any, Any]:
    """Probabilities and labels of a network whose temperature, the right model, was fitted on few samples."""
    rng = np.random.default_rng([seed, n_calibration, n_classes])
    logits = rng.normal(0, 2, (n_calibration + N_WATCHED, n_classes))
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (np.cumsum(probs, axis=1) < rng.random((len(logits), 1))).sum(axis=1).clip(0, n_classes - 1)
    cal = rhocal.TemperatureScaling().fit(1.7 * logits[:n_calibration], labels[:n_calibration])
    return np.asarray(cal.predict_proba(1.7 * logits[n_calibration:]), np.float64), labels[n_calibration:]


def class_false_alarms(trials: int) -> list[dict[str, Any]]:
    """With bets on classes as well."""
    rows = []
    for n_classes in (2, 10):
        options: dict[str, dict[str, Any]] = {
            "": {}, "tolerance .02": {"tolerance": 0.02}, "n_calibration": {"n_calibration": 1000},
        }  # fmt: skip
        alarms = dict.fromkeys(options, 0)
        for seed in range(trials):
            samples = fitted_classes(seed, 1000, n_classes)
            for name, chosen in options.items():
                monitor = Monitor(**chosen)
                monitor.add_probs(*samples)
                alarms[name] += monitor.alarm
        model = f"temperature fitted on 1,000, {n_classes} classes"
        rows += [
            {"what": "false alarms", "model": model, "options": name, "share": count / trials}
            for name, count in alarms.items()
        ]
    return rows


def class_delays(trials: int) -> list[dict[str, Any]]:
    """A logistic regression with balanced class weights at 3 % positives, from the first sample."""
    found: dict[str, list[float]] = {"": [], "tolerance .02": [], "top label alone": []}
    for seed in range(trials):
        x, y = make_classification(20_000, 20, weights=[0.97], class_sep=0.7, random_state=seed)
        model = LogisticRegression(class_weight="balanced", max_iter=500).fit(x[:10_000], y[:10_000])
        probs, labels = model.predict_proba(x[10_000:]), y[10_000:]
        for name, delays_of in found.items():
            monitor = Monitor(tolerance=0.02 if name == "tolerance .02" else 0.0)
            if name == "top label alone":
                monitor.add(probs.max(axis=1), (probs.argmax(axis=1) == labels).astype(np.float64))
            else:
                monitor.add_probs(probs, labels)
            delays_of.append(np.inf if monitor.alarm_at is None else monitor.alarm_at)
    rows = []
    for name, delays_of in found.items():
        middle, late = np.quantile(delays_of, [0.5, 0.9], method="higher")
        rows.append({"what": "balanced class weights, 3 % positives", "model": "logistic regression", "options": name,
                     "median_delay": float(middle), "delay_90": float(late)})  # fmt: skip
    return rows


def delays(trials: int) -> list[dict[str, Any]]:
    rows = []
    for name, beta in (("accuracy .78", MIDDLE), ("accuracy .93", SURE)):
        for options, tolerance in (("", 0.0), ("tolerance .02", 0.02)):
            rng, clean = np.random.default_rng(0), Monitor(tolerance=tolerance)
            for _ in range(10):
                c = confidences(rng, N_CLEAN // 10, beta)
                clean.add(c, correct(rng, c))
            for what, before in (
                (f"a drift of .05 after {N_CLEAN:,}", clean),
                ("a drift of .05 from the first", Monitor(tolerance=tolerance)),
            ):
                row = _delay(what, name, before, beta, trials, lambda c: c - 0.05)
                rows.append(row | {"options": options})
    rows.append(
        _delay("a tilt of ECE .05 from the first", "accuracy .78", Monitor(), MIDDLE, trials,
               lambda c: c - 0.05 * np.sign(c - 0.83))
    )  # fmt: skip
    return rows


def _delay(what: str, model: str, before: Monitor, beta: Any, trials: int, right: Any) -> dict[str, Any]:
    found = []
    for seed in range(trials):
        rng, monitor = np.random.default_rng([seed, 7]), copy.deepcopy(before)
        c = confidences(rng, 15_000, beta)
        monitor.add(c, correct(rng, np.clip(right(c), 0, 1)))
        found.append(np.inf if monitor.alarm_at is None else monitor.alarm_at - before.n)
    middle, late = np.quantile(found, [0.5, 0.9], method="higher")
    return {"what": what, "model": model, "options": "", "median_delay": float(middle), "delay_90": float(late)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100)
    trials = parser.parse_args().trials
    parts = (delays, class_delays, false_alarms, class_false_alarms)
    rows = [row | {"trials": trials} for part in parts for row in part(trials)]
    write_rows(HERE / "monitor.csv", rows)
    for row in rows:
        print(row)


if __name__ == "__main__":
    main()
