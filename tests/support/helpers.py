"""Data that many tests share."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import warnings
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import hypothesis
import numpy as np
import pytest

from rhocal.calibrators import artifact

EXPLORE = int(os.environ.get("EXPLORE", "0"))

PATIENCE = 300
"""Seconds to wait for what comes at once on a machine with nothing else to do."""


def wait_until(condition):
    """Wait until a condition holds, however busy the machine is; whether it does."""
    deadline = time.monotonic() + PATIENCE
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return holds


def examples(n):
    """Settings for a property test: n cases, or that many times more when exploring."""
    return hypothesis.settings(max_examples=n * max(EXPLORE, 1))


ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "data" / "logits"


def synthetic(n=400, m=5, *, scale=2.5, seed=0, dtype=np.float64):
    """Logits that are ``scale`` times too large (over-confident), and labels drawn from the true distribution."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(n, m)) * 1.5
    p = np.exp(truth) / np.exp(truth).sum(1, keepdims=True)
    labels = (p.cumsum(1) > rng.random((n, 1))).argmax(1)
    return (scale * truth).astype(dtype), labels


def uneven(n, m, dtype):
    """The same with logits that are larger for some samples than for others, as a norm sees them."""
    logits, labels = synthetic(n, m, dtype=np.float32)
    size = np.exp(0.3 * np.random.default_rng(1).normal(size=(n, 1)))
    return (logits * size).astype(dtype), labels


TOP_TESTS = ("gap", "ece", "smooth", "spiegelhalter", "chi2")
"""Tests of the calibration of the top label."""


def card_of(path):
    """The description in an artifact."""
    return artifact._read(Path(path))[0]


QUICK = {"rho-norm-paper": {"n_steps": 200}, "auto": {"n_folds": 2}, "cascade": {"min_samples": 100}}
"""Options for laws that hold for every number of steps, folds and samples."""


def quick(name, **options):
    """A method with fewer steps and folds: the same map, fitted sooner."""
    import rhocal

    return rhocal.calibrator(name, **QUICK.get(name, {}) | options)


def fit_map(calibrator, *data, **spec):
    """Fit without warnings, and without the comparison with temperature scaling where that can change no map.

    Most fits are those of the comparison. Methods with a guard keep it: they may fall back. ``rhocal.compare`` fits so too.
    """
    from rhocal.calibrators.fitting import Fits
    from rhocal.calibrators.guard import check
    from rhocal.errors import RhocalWarning

    def check_guarded(_, fitted, rows):
        if fitted.is_guarded:
            check(fitted, rows)

    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore", RhocalWarning)
        patch.setattr(Fits, "_check", check_guarded)
        return calibrator.fit(*data, **spec)


def as_parquet(path, logits, labels, rows=300):
    """A Parquet file with a list of logits in each row."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    lists = pa.FixedSizeListArray.from_arrays(pa.array(logits.ravel()), logits.shape[1])
    pq.write_table(pa.table({"logits": lists, "labels": labels}), path, row_group_size=rows)


def real(name, seed=0):
    """A real network's tune and test half; skipped where the data is not there."""
    path = SHARED / f"{name}.npz"
    if not path.is_file():
        pytest.skip(f"needs {path}, real logits that are not part of the project")
    with np.load(path, allow_pickle=False) as f:
        if "logits" not in f:
            return f["logits_val"], f["labels_val"], f["logits_test"], f["labels_test"]
        logits, labels = f["logits"], f["labels"]
    order = np.random.default_rng(seed).permutation(len(labels))
    half = len(order) // 2
    tune, test = order[:half], order[half:]
    return logits[tune], labels[tune], logits[test], labels[test]


def run(*arguments, code=0, cwd=None, command="rhocal", stdin=""):
    """The command line as people run it: a process of its own, which reads the text ``stdin``."""
    line = [str(Path(sys.executable).with_name(command)), *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    if hasattr(os, "fork"):
        done = _run_in_fork(line, cwd, environment, stdin)
    else:
        done = subprocess.run(line, input=stdin, capture_output=True, text=True, check=False, cwd=cwd, env=environment)
    assert done.returncode == code, done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    return done


@cache
def _command_server():
    path = Path(__file__).with_name("command_server.py")
    return subprocess.Popen(
        [sys.executable, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def _run_in_fork(line, cwd, environment, stdin):
    """The same through the process of ``command_server.py``, which has imported what most commands need."""
    server = _command_server()
    with TemporaryDirectory() as folder:
        files = {name: Path(folder) / name for name in ("stdin", "stdout", "stderr")}
        files["stdin"].write_text(stdin, encoding="utf-8")
        request = {"command": line, "folder": str(cwd or Path.cwd()), "environment": environment}
        print(json.dumps(request | {name: str(path) for name, path in files.items()}), file=server.stdin, flush=True)
        code = int(server.stdout.readline())
        texts = {name: files[name].read_text(encoding="utf-8") for name in ("stdout", "stderr")}
    return subprocess.CompletedProcess(line, code, **texts)


def slope_error(fun, x, h=1e-5):
    """Largest difference between a gradient and central differences, relative to the gradient."""
    _, gradient = fun(x)
    numeric = np.array([(fun(x + h * e)[0] - fun(x - h * e)[0]) / (2 * h) for e in np.eye(len(x))])
    return np.abs(gradient - numeric).max() / max(np.abs(gradient).max(), 1e-8)


def run_paper(*arguments, **options):
    """The command line of the reproduction."""
    return run(*arguments, command="rhocal-paper", **options)


def reference_interpreter():
    """The function ``run`` of docs/portable.md."""
    page = (ROOT / "docs" / "portable.md").read_text(encoding="utf-8")
    names = {}
    exec(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1], names)  # noqa: S102 - our own page
    return names["run"]


def confidence_streams(n_streams, n, seed, *, off=0.0):
    """Confidences of many shapes, and correctness drawn with chance confidence − off."""
    rng = np.random.default_rng(seed)
    shape = rng.uniform(0.5, 8, size=(n_streams, 1))
    confidence = 1 - rng.beta(1, shape, size=(n_streams, n))
    return confidence, (rng.random((n_streams, n)) < confidence - off).astype(float)
