"""Work shared among threads: every item once, in order; errors are raised; nested and forked work neither waits nor fails."""

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import threadpoolctl

import rhocal
from helpers import PATIENCE
from rhocal.numerics.threads import in_threads
from rhocal.optimize.blas import single_threaded_blas

SOURCE = Path(rhocal.__file__).parent


@pytest.fixture(autouse=True)
def _three_threads(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")


def test_every_item_once_and_in_order():
    seen, lock = [], threading.Lock()
    three = threading.Barrier(3, timeout=PATIENCE)

    def work(k):
        if k < 3:  # nobody takes a second item before all three have one
            three.wait()
        with lock:
            seen.append((k, threading.current_thread().name))
        return k * k

    assert in_threads(work, range(40)) == [k * k for k in range(40)]
    assert sorted(k for k, _ in seen) == list(range(40))
    assert len({name for _, name in seen}) == 3


def test_an_error_is_raised_and_ends_the_work():
    done = []

    def work(k):
        if k == 3:
            raise ValueError("the third")
        time.sleep(0.01)
        done.append(k)

    with pytest.raises(ValueError, match="the third"):
        in_threads(work, range(1000))
    assert len(done) < 900
    assert in_threads(abs, [-1, -2, -3]) == [1, 2, 3]  # and the next work is done as if nothing had been


def test_work_inside_of_work_is_not_shared_again():
    def outer(k):
        return in_threads(lambda j: (k, j, threading.current_thread().name), range(3))

    for k, found in enumerate(in_threads(outer, range(4))):
        assert [(a, b) for a, b, _ in found] == [(k, j) for j in range(3)]
        assert len({name for _, _, name in found}) == 1


def test_callers_at_the_same_time_do_not_wait_for_each_other_forever():
    results = []
    callers = [threading.Thread(target=lambda: results.append(in_threads(abs, range(50)))) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(timeout=PATIENCE)
    assert results == [list(range(50))] * 8


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_finds_threads_of_its_own():
    """In a process of its own: whoever runs the tests has threads that a fork would not take along."""
    program = (
        "import os; from rhocal.numerics.threads import in_threads; same = list(range(9))\n"
        "assert in_threads(abs, range(9)) == same\n"
        "child = os.fork()\n"
        "if child == 0: os._exit(0 if in_threads(abs, range(9)) == same else 1)\n"
        "raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], timeout=PATIENCE, check=False)
    assert done.returncode == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_process_that_is_forked_while_another_thread_fits_does_not_wait_for_it():
    """A thread is stopped inside a cached property and with the lock of BLAS held; a child of the process must not wait."""
    program = """
import os, threading
import rhocal
from rhocal.data.predictions import Predictions
from rhocal.optimize import blas

logits, labels = rhocal.demo_logits("cal")
rhocal.TemperatureScaling().fit(logits[:500], labels[:500])
compute, inside = Predictions.logits.func, threading.Event()

def stop(data):
    with blas._lock:
        inside.set()
        threading.Event().wait()

Predictions.logits.func = stop
threading.Thread(target=lambda: Predictions.from_arrays(logits).logits, daemon=True).start()
inside.wait()
Predictions.logits.func = compute
child = os.fork()
if child == 0:
    rhocal.FieldScaling().fit(logits[:500], labels[:500])
    os._exit(0)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], timeout=PATIENCE, check=False)
    assert done.returncode == 0


def test_cached_properties_have_no_lock():
    """That of functools has one on Python 3.11, which all instances share."""
    users = [path for path in SOURCE.rglob("*.py") if re.search(r"functools.*cached_property", path.read_text("utf-8"))]
    assert [path.name for path in users] == ["caching.py"]


def test_blas_has_one_thread_while_any_fit_runs_and_gets_the_others_back():
    """Fits that overlap, in whichever order they end."""

    def threads_of_blas():
        return [pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]

    with threadpoolctl.threadpool_limits(3, user_api="blas"):
        before = threads_of_blas()
        assert before
        for first_out in (0, 1):
            fits = [single_threaded_blas(), single_threaded_blas()]
            for fit in fits:
                fit.__enter__()
            assert set(threads_of_blas()) == {1}
            fits[first_out].__exit__(None, None, None)
            assert set(threads_of_blas()) == {1}
            fits[1 - first_out].__exit__(None, None, None)
            assert threads_of_blas() == before
        with pytest.raises(ZeroDivisionError), single_threaded_blas():
            raise ZeroDivisionError
        assert threads_of_blas() == before
