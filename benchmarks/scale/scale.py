"""What a billion rows cost: constants measured here, then a simulation of 10 to 10,000 workers.

    python benchmarks/scale/scale.py

Writes `constants.csv` and `simulation.csv` beside this file and `README.md` (from `template.md`). `--keep` takes the
constants as they were measured before, and only simulates and writes the page again.
"""

from __future__ import annotations

import argparse
import csv
import heapq
import json
import pickle
import platform
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import rhocal
from rhocal.calibrators.fitting import log_center, plan_for, profile_block
from rhocal.calibrators.summary import summarize_block
from rhocal.dask import cluster, engine
from rhocal.data.files import write_text
from rhocal.data.predictions import Predictions
from rhocal.evaluation.measure import BlockSums, Measurement, block_sums
from rhocal.evaluation.rows import write_rows
from rhocal.metrics import CORE
from rhocal.profile.plan import PassPlan

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
CLASSES = (1000, 128_256)
BLOCK_BYTES = 64e6
"""A block of half-precision logits, as files are usually cut."""
DISK = 200e6
"""Bytes a second that one worker reads from object storage."""
NETWORK = 1.25e9
"""Bytes a second into the driver: ten gigabits."""
SPREAD = 0.3
"""Standard deviation of the log of a block's time."""
FAILURES = 1e-4
"""Chance that a block's worker dies and the block is done again."""
WORKERS = (10, 30, 100, 300, 1000, 3000, 10_000)


def data(n: int, m: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(n, m)).astype(np.float32) * np.float32(3)
    labels = (truth + rng.gumbel(size=(n, m)).astype(np.float32)).argmax(axis=1)
    size = (1.8 * np.exp(0.3 * rng.normal(size=(n, 1)))).astype(np.float32)
    return (truth * size).astype(np.float16), labels


def best(work: Callable[[], Any], repeats: int = 3) -> float:
    """CPU seconds of this process, which a busy machine does not stretch as it does the clock."""
    found = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def constants(m: int) -> list[dict[str, Any]]:
    """For one number of classes: what each task costs a row."""
    n = max(400, 8_000_000 // m)
    logits, labels = data(n, m)
    pilot = Predictions.from_arrays(logits[: max(200, n // 4)], labels[: max(200, n // 4)])
    rows = []
    plans: dict[str, PassPlan] = {
        "fit temperature": plan_for(rhocal.TemperatureScaling(), pilot),
        "fit rho-norm": plan_for(rhocal.RhoNormScaling(), pilot),
        "profile for every method": PassPlan(log_center(rhocal.Profile.from_predictions(pilot))),
    }
    for what, plan in plans.items():
        part = profile_block(logits, labels, plan)
        assert part is not None
        left = summarize_block(Predictions.from_arrays(logits, labels), plan)
        fitted = rhocal.RhoNormScaling() if what == "fit rho-norm" else rhocal.TemperatureScaling()
        many = rhocal.Profile.concat([part] * max(1, 200_000 // part.n_samples))
        rows.append(
            {
                "classes": m,
                "task": what,
                "bytes_read": 2 * m,
                "seconds": best(lambda plan=plan: profile_block(logits, labels, plan)) / n,  # type: ignore[misc]
                "bytes_sent": len(pickle.dumps(left)) / n,
                "driver_bytes_in": len(pickle.dumps(left)) / n,
                "driver_bytes": _numbers(part) * 8 / n,
                "driver_seconds": best(lambda f=fitted, p=many: f.fit_profile(p), 1) / many.n_samples,  # type: ignore[misc]
            }
        )
    cal = rhocal.TemperatureScaling().fit(logits, labels)
    n_block = max(1, int(BLOCK_BYTES / (2 * m)))

    def validated_sums() -> BlockSums:
        return block_sums(Predictions.from_arrays(logits, labels), [Measurement({"": cal})], CORE)

    sums = validated_sums()
    rows.append(
        {
            "classes": m,
            "task": "evaluate, seven metrics",
            "bytes_read": 2 * m,
            "seconds": best(validated_sums) / n,
            "bytes_sent": len(pickle.dumps(sums)) / n_block,
            "driver_bytes_in": 0.0,  # the workers merge: one sum arrives, however many blocks there are
            "driver_bytes": 0.0,
            "driver_seconds": 0.0,
        }
    )
    return rows


def _numbers(part: Any) -> int:
    kept = sum(value.size for value in part.kept.values())
    table = 0 if part.table is None else sum(ring.size for ring in part.table.rings.values())
    return int(kept + table + np.size(getattr(part.table, "log_center", 0)) + 4 * part.n_samples)


def seconds_a_task() -> float:
    """What Dask's scheduler takes for a task that does nothing, on two local processes."""
    with cluster(None, 2):
        tasks = [engine.delayed(abs, pure=False)(k) for k in range(2000)]
        engine.compute(*tasks[:50])
        start = time.perf_counter()
        engine.compute(*tasks)
        return (time.perf_counter() - start) / len(tasks)


def simulate(
    cost: dict[str, Any], n_rows: float, n_workers: int, per_task: float, seed: int = 0, disk: float = DISK
) -> dict[str, Any]:
    """Blocks handed out one after the other to whoever is free; results come in over one line; the driver fits at the end."""
    rng = np.random.default_rng(seed)
    rows = BLOCK_BYTES / cost["bytes_read"]
    n_blocks = int(np.ceil(n_rows / rows))
    typical = max(BLOCK_BYTES / disk, rows * cost["seconds"])  # reading and computing overlap
    durations = (
        typical * rng.lognormal(-(SPREAD**2) / 2, SPREAD, n_blocks) * (1 + rng.geometric(1 - FAILURES, n_blocks) - 1)
    )
    free = [0.0] * min(n_workers, n_blocks)
    handed_out, arrived, busy = 0.0, 0.0, 0.0
    for duration in durations:
        handed_out = max(handed_out + per_task, heapq.heappop(free))
        done = handed_out + duration
        busy += duration
        arrived = max(arrived, done) + rows * cost["driver_bytes_in"] / NETWORK
        heapq.heappush(free, done)
    work, scheduling = busy / n_workers, n_blocks * per_task
    line, fit = n_rows * cost["driver_bytes_in"] / NETWORK, n_rows * cost["driver_seconds"]
    parts = {"workers": work, "scheduler": scheduling, "network": line, "driver": fit}
    total = max(arrived, *free) + fit
    return {
        "classes": cost["classes"], "task": cost["task"], "rows": n_rows, "workers": n_workers, "blocks": n_blocks,
        "seconds": total, "efficiency": busy / n_workers / total, "bottleneck": max(parts, key=lambda name: parts[name]),
    }  # fmt: skip


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:,.0f} s"
    return f"{seconds / 60:,.0f} min" if seconds < 7200 else f"{seconds / 3600:,.1f} h"


def measured() -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The constants of this machine, and what it is; both are written down."""
    costs = [row for m in CLASSES for row in constants(m)]
    machine = f"{platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}"
    about = {"machine": machine, "seconds_a_task": seconds_a_task()}
    write_rows(HERE / "constants.csv", costs)
    write_text(HERE / "about.json", json.dumps(about, indent=2) + "\n")
    return costs, about


def measured_before() -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The same as it was written down."""
    with (HERE / "constants.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    costs = [
        {
            name: value if name == "task" else int(value) if name == "classes" else float(value)
            for name, value in row.items()
        }
        for row in rows
    ]
    return costs, json.loads((HERE / "about.json").read_text(encoding="utf-8"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="simulate with the constants that are there")
    costs, about = measured_before() if parser.parse_args().keep else measured()
    per_task = about["seconds_a_task"]
    runs = [simulate(cost, 1e9, n, per_task) for cost in costs for n in WORKERS]
    write_rows(HERE / "simulation.csv", runs)
    table = [
        "| classes | task | TB read | core-hours | GB sent | of these to the driver | driver GB | driver |",
        "|---|---|---|---|---|---|---|---|",
    ]
    table += [
        f"| {c['classes']:,} | {c['task']} | {c['bytes_read'] / 1e3:,.0f} | {c['seconds'] * 1e9 / 3600:,.1f} | "
        f"{c['bytes_sent']:,.0f} | {c['driver_bytes_in']:,.0f} | {c['driver_bytes']:,.0f} | "
        f"{duration(c['driver_seconds'] * 1e9)} |"
        for c in costs
    ]
    grid = ["| classes | task | " + " | ".join(f"{n:,}" for n in WORKERS) + " |", "|---|---|" + "---|" * len(WORKERS)]
    for cost in costs:
        mine = [run for run in runs if (run["classes"], run["task"]) == (cost["classes"], cost["task"])]
        cells = [f"{duration(run['seconds'])} ({run['bottleneck']})" for run in mine]
        grid.append(f"| {cost['classes']:,} | {cost['task']} | " + " | ".join(cells) + " |")
    text = (HERE / "template.md").read_text(encoding="utf-8")
    facts = {
        "machine": about["machine"],
        "per_task": f"{per_task * 1e3:.2f} ms", "table": "\n".join(table), "grid": "\n".join(grid),
        "disk": f"{DISK / 1e6:.0f} MB/s", "network": f"{NETWORK * 8 / 1e9:.0f} Gbit/s", "block": f"{BLOCK_BYTES / 1e6:.0f} MB",
    }  # fmt: skip
    for name, value in facts.items():
        text = text.replace("{{" + name + "}}", value)
    write_text(HERE / "README.md", text)


if __name__ == "__main__":
    main()
