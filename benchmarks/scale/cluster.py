"""The cost model of scale.py beside a run: 10 GB of half-precision logits on the workers of this machine.

    make cluster

Files with 1,000 classes are written to a temporary folder one by one, and deleted afterwards; before each task the page cache
of the files is given back. Writes `cluster.md` beside this file.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import save_file
from scale import data, duration, measured_before, simulate

import rhocal
from rhocal.dask import DaskExecutor, cluster
from rhocal.data.files import write_text

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
N_CLASSES, BASE_ROWS, COPIES = 1000, 50_000, 10
"""A file holds copies of the same random rows with the columns moved on: drawing all rows would take longer than all tasks."""
PAPER_ROWS = 5e7
PAPER_WORKERS = (10, 100)


def write_files(folder: Path, n_files: int) -> list[Path]:
    """Files of one gigabyte each."""
    logits, labels = data(BASE_ROWS, N_CLASSES)
    paths = []
    for k in range(n_files):
        shifts = [(k * COPIES + j) % N_CLASSES for j in range(COPIES)]
        paths.append(folder / f"part-{k:02d}.safetensors")
        arrays = {
            "logits": np.concatenate([np.roll(logits, shift, axis=1) for shift in shifts]),
            "labels": np.concatenate([(labels + shift) % N_CLASSES for shift in shifts]),
        }
        save_file(arrays, paths[-1])
    return paths


def drop_cache(paths: list[Path]) -> None:
    """Give the cached pages of files back, so that they are read from the disk."""
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_rate(path: Path) -> float:
    """Bytes a second of one process that only reads."""
    drop_cache([path])
    start, size = time.perf_counter(), 0
    with path.open("rb", buffering=0) as file:
        while part := file.read(1 << 24):
            size += len(part)
    return size / (time.perf_counter() - start)


def tasks(paths: list[Path]) -> dict[str, Callable[[], Any]]:
    """Task of the cost model → what does it."""

    def source() -> Any:
        return rhocal.stream([str(path) for path in paths]).on(DaskExecutor())

    cal = rhocal.TemperatureScaling().fit(*data(2000, N_CLASSES))
    return {
        "fit temperature": lambda: rhocal.TemperatureScaling().fit(source()),
        "fit rho-norm": lambda: rhocal.RhoNormScaling().fit(source()),
        "evaluate, seven metrics": lambda: rhocal.measure(source(), calibrator=cal),
    }


def cpu_seconds(client: Any) -> float:
    return float(sum(client.run(time.process_time).values()))


def run_all(
    paths: list[Path], workers: list[int], costs: list[dict[str, Any]], per_task: float, disk: float
) -> list[str]:
    """A row of the table for each task and number of workers."""
    n_rows, rows = len(paths) * COPIES * BASE_ROWS, []
    for n_workers in workers:
        with cluster(None, n_workers) as client:
            client.run(__import__, "rhocal.evaluation.measure")
            for task, work in tasks(paths).items():
                (cost,) = (cost for cost in costs if (cost["classes"], cost["task"]) == (N_CLASSES, task))
                expected = simulate(cost, n_rows, n_workers, per_task, disk=disk / n_workers)
                drop_cache(paths)
                before, driver, start = cpu_seconds(client), time.process_time(), time.perf_counter()
                work()
                seconds, driver = time.perf_counter() - start, time.process_time() - driver
                rows.append(
                    f"| {task} | {n_workers} | {cost['seconds'] * n_rows:,.0f} | {cpu_seconds(client) - before:,.0f} | "
                    f"{cost['driver_seconds'] * n_rows:,.1f} | {driver:,.1f} | {expected['seconds']:,.0f} | {seconds:,.0f} |"
                )
                print(rows[-1], flush=True)
    return rows


def on_paper(costs: list[dict[str, Any]], per_task: float) -> list[str]:
    """The same model for 100 GB, with a disk for each worker."""
    rows = []
    for cost in costs:
        if cost["classes"] == N_CLASSES:
            cells = [duration(simulate(cost, PAPER_ROWS, n, per_task)["seconds"]) for n in PAPER_WORKERS]
            sent, memory = (cost[name] * PAPER_ROWS / 1e9 for name in ("bytes_sent", "driver_bytes"))
            rows.append(f"| {cost['task']} | {cells[0]} | {cells[1]} | {sent:,.1f} | {memory:,.1f} |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=int, default=10)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    n_files = options.gigabytes
    costs, about = measured_before()
    with tempfile.TemporaryDirectory() as folder:
        paths = write_files(Path(folder), n_files)
        disk = read_rate(paths[0])
        rows = run_all(paths, options.workers, costs, about["seconds_a_task"], disk)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    n_rows, load = n_files * COPIES * BASE_ROWS, os.getloadavg()[1]
    workers = " ".join(map(str, options.workers))
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    text = f"""# {n_files} GB on a cluster of processes

Written by `cluster.py --gigabytes {n_files} --workers {workers}`: {n_rows:,} rows
of {N_CLASSES:,} classes, float16, in {n_files} safetensors files, on Dask workers
of one thread each ({machine}). The disk gives {disk / 1e6:,.0f} MB/s to one process that only reads; the workers share it.
The model is that of `scale.py`, with its constants (`constants.csv`) and this disk; its CPU seconds are those of computing, the
measured ones include reading. Elapsed seconds depend on what else the machine does: its load average was {load:.1f}.
The driver's peak memory was {peak:.1f} GB.

| task | workers | CPU s, model | CPU s of workers | driver s, model | driver CPU s | seconds, model | seconds |
|---|---|---|---|---|---|---|---|
{chr(10).join(rows)}

On paper, for 100 GB ({PAPER_ROWS:,.0f} rows), each worker with 200 MB/s of its own:

| task | {PAPER_WORKERS[0]} workers | {PAPER_WORKERS[1]} workers | GB sent | GB at the driver |
|---|---|---|---|---|
{chr(10).join(on_paper(costs, about["seconds_a_task"]))}
"""
    write_text(HERE / "cluster.md", text)


if __name__ == "__main__":
    main()
