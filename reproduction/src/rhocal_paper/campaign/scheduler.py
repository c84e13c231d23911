"""Runs over devices: for each device a process, which trains one run after the other.

Several devices may form a group that trains one network together; its processes get the same jobs.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rhocal.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from rhocal_paper.campaign.plan import PlannedRun

    Report = Callable[[PlannedRun, dict[str, Any]], None]

CPU = "cpu"
PATIENCE = 10.0
"""Seconds that a process gets to end before it is killed."""


def device_groups(text: str, n_per_run: int) -> list[list[str]]:
    """Groups of devices from the text of an option.

    >>> device_groups("0,1,2,3", 2)
    [['0', '1'], ['2', '3']]
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    wrong = [name for name in names if name != CPU and not name.isdigit()]
    if wrong or not names:
        raise InputError(f"gpus are numbers separated by commas, or cpu; got {text!r}")
    if CPU in names and set(names) != {CPU}:
        raise InputError(f"gpus are numbers or cpu, not both; got {text!r}")
    if CPU not in names and len(set(names)) < len(names):
        raise InputError(f"gpus: a device is named twice; got {text!r}")
    if n_per_run < 1 or len(names) % n_per_run:
        raise InputError(f"gpus: {len(names)} devices cannot be divided into groups of {n_per_run} (gpus_per_run)")
    return [names[k : k + n_per_run] for k in range(0, len(names), n_per_run)]


@dataclass
class WorkerGroup:
    """The processes of a group of devices."""

    devices: Sequence[str]
    log: Path
    """Where the processes write what libraries print, and tracebacks."""
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self) -> None:
        """Start a process for each device."""
        port = str(free_port()) if len(self.devices) > 1 else ""
        for rank, device in enumerate(self.devices):
            environment = dict(os.environ)
            for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
                environment.pop(name, None)
            if device != CPU:
                environment["CUDA_VISIBLE_DEVICES"] = device
            if port:
                environment |= {"RANK": str(rank), "WORLD_SIZE": str(len(self.devices)), "LOCAL_RANK": "0"}
                environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            with self.log.open("a", encoding="utf-8") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", "rhocal_paper.campaign.worker"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    encoding="utf-8",
                    env=environment,
                )
            self.processes.append(process)

    def train(self, message: dict[str, Any], report: Callable[[dict[str, Any]], None]) -> str:
        """Train one job; the empty text, or why it failed. After a failure of a process all are started again."""
        if any(process.poll() is not None for process in self.processes):
            self.stop()
        if not self.processes:
            self.start()
        text = json.dumps(message) + "\n"
        failures = []
        for process in self.processes:
            with suppress(BrokenPipeError, ValueError, OSError):
                assert process.stdin is not None
                process.stdin.write(text)
                process.stdin.flush()
        for process in self.processes:
            failure, ended = self.wait(process, report)
            if failure:
                failures.append(failure)
                if ended or len(self.processes) > 1:  # the others wait for one that will not come
                    self.stop()
                    break
        return failures[0] if failures else ""

    def wait(self, process: subprocess.Popen[str], report: Callable[[dict[str, Any]], None]) -> tuple[str, bool]:
        """Read answers until the job is over: why it failed, and whether the process ended with it."""
        assert process.stdout is not None
        for line in process.stdout:
            answer = json.loads(line)
            if "done" in answer:
                return "", False
            if "error" in answer:
                return str(answer["error"]), bool(answer.get("ended"))
            report(answer)
        return f"its process ended with code {process.wait()}; {self.log} has what it printed", True

    def stop(self) -> None:
        """End all processes."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
        self.processes.clear()


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Schedule:
    """Runs that are left, and the groups of devices that take one after the other."""

    def __init__(self, runs: Sequence[PlannedRun], data: Path, report: Report) -> None:
        self.left: queue.SimpleQueue[PlannedRun] = queue.SimpleQueue()
        for run in runs:
            self.left.put(run)
        self.data, self.report = data, report
        self.failures: dict[PlannedRun, str] = {}
        self.errors: list[BaseException] = []
        self.stopping = threading.Event()

    def work(self, group: WorkerGroup) -> None:
        """Train on a group of devices until nothing is left; an unexpected error stops all groups."""
        try:
            while not self.stopping.is_set():
                self.train(group, self.left.get_nowait())
        except queue.Empty:
            return
        except BaseException as error:  # noqa: BLE001 - raised again by the main thread
            self.errors.append(error)
            self.stopping.set()

    def train(self, group: WorkerGroup, run: PlannedRun) -> None:
        """Train one run and report how it ended."""
        self.report(run, {"device": ",".join(group.devices)})
        message = {
            "options": run.job.to_options(),
            "root": str(self.data),
            "folder": str(run.folder),
            "device": CPU if group.devices[0] == CPU else "cuda",
        }
        failure = group.train(message, lambda answer: self.report(run, answer))
        if self.stopping.is_set():
            return
        if failure:
            self.failures[run] = failure
        self.report(run, {"failure": failure} if failure else {"done": True})


def schedule(
    runs: Sequence[PlannedRun], groups: Sequence[Sequence[str]], *, data: Path, output: Path, report: Report
) -> dict[PlannedRun, str]:
    """Train all runs; those that failed, with the reason. An interruption ends all processes and is raised again."""
    state = Schedule(runs, data, report)
    names = [f"device-{'-'.join(devices)}-{k}.txt" for k, devices in enumerate(groups)]
    workers = [WorkerGroup(devices, output / name) for devices, name in zip(groups, names, strict=True)]
    threads = [threading.Thread(target=state.work, args=(group,), daemon=True) for group in workers[: len(runs)]]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)
    finally:
        state.stopping.set()
        for group in workers:
            group.stop()
    if state.errors:
        raise state.errors[0]
    return state.failures
