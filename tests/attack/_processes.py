"""Commands in forked processes: started in a millisecond, killed at any moment."""

from __future__ import annotations

import os
import signal
import sys
import time

import pyarrow.parquet  # noqa: F401 - what is imported here is not imported in every process
import typer

import rhocal.calibrators.applying
import rhocal.dask
import rhocal.data.storage.content
import rhocal.data.storage.followed
import rhocal.evaluation.monitor
import rhocal.reporting.tables  # noqa: F401
from rhocal.cli import app
from rhocal.errors import RhocalError

COMMAND = typer.main.get_command(app)

TIMEOUT = 120.0
"""Seconds after which a command counts as one that does not end."""


def start(arguments, stdin=None, command=COMMAND):
    """Run a command of rhocal, or of another program, in a process of its own, which shares what is imported here; its id."""
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if process:
        return process
    code = 70
    try:
        silence = os.open(os.devnull, os.O_RDWR)
        source = silence if stdin is None else os.open(stdin, os.O_RDONLY)
        for target, file in ((0, source), (1, silence), (2, silence)):
            os.dup2(file, target)
        sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - until the process ends
        code = _run(arguments, command)
    except BaseException:  # noqa: BLE001 - a forked process must not return
        code = 71
    finally:
        os._exit(code)


def _run(arguments, command):
    try:
        command.main([str(argument) for argument in arguments], standalone_mode=False)
    except RhocalError:
        return 2
    except (typer.Exit, SystemExit) as stopped:
        return stopped.code if hasattr(stopped, "code") else stopped.exit_code
    return 0


def wait(process, seconds=TIMEOUT):
    """The exit code of a process; negative if a signal ended it. None if it does not end, and is ended now."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    kill(process)
    return None


def kill(process):
    """End a process that was started here, without warning."""
    try:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def run(arguments, stdin=None, command=COMMAND):
    """Start a command and wait for its end."""
    return wait(start(arguments, stdin, command))
