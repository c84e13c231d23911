"""Time to apply every calibrator with two versions of the sources, alternating, and how far their probabilities differ.

    python benchmarks/speed/maps.py OLD_SRC NEW_SRC [METHOD ...]

Both versions load the same fitted calibrator and take turns; time is that of the processor. Printed for each
method and shape: the shortest time of either in milliseconds, their ratio, and the largest difference in probability.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

SHAPES = ((5_000, 10), (5_000, 100), (25_000, 1_000))
N_FIT = 2_000
N_TURNS = 9

WORKER = """
import json, sys, time, warnings
import numpy as np, rhocal, rhocal.errors
warnings.simplefilter("ignore")
for line in sys.stdin:
    job = json.loads(line)
    if job["do"] == "fit":
        logits, labels = np.load(job["logits"])[: job["n"]], np.load(job["labels"])[: job["n"]]
        try:
            rhocal.calibrator(job["method"], **job["options"]).fit(logits, labels).save(job["path"])
            answer = ""
        except rhocal.errors.InputError as error:
            answer = str(error)
    elif job["do"] == "load":
        calibrator, logits = rhocal.load(job["path"]), np.load(job["logits"])
        np.save(job["output"], calibrator.predict_proba(logits))
        answer = ""
    elif job["do"] == "methods":
        answer = list(rhocal.calibrators.CALIBRATORS)
    else:
        start = time.process_time()
        calibrator.predict_proba(logits)
        answer = time.process_time() - start
    print(json.dumps(answer), flush=True)
"""


class Version:
    """A process that runs one version of the sources."""

    def __init__(self, source: str) -> None:
        environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ask(self, **job: Any) -> Any:
        """Send a job and wait for its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(job), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())


def write_samples(folder: Path, n: int, m: int) -> dict[str, str]:
    """Draw over-confident logits and labels; return their paths."""
    rng = np.random.default_rng(m)
    logits = rng.normal(size=(n, m)).astype(np.float32) * 2
    labels = rng.integers(m, size=n)
    logits[np.arange(n), labels] += rng.normal(3 + np.log(m), 3, size=n).astype(np.float32)
    paths = {name: str(folder / f"{name}-{n}-{m}.npy") for name in ("logits", "labels")}
    np.save(paths["logits"], logits)
    np.save(paths["labels"], labels)
    return paths


def compare(old: Version, new: Version, method: str, paths: dict[str, str], folder: Path) -> str:
    """Measure one method on one file of logits; return the rest of a row of the table."""
    artifact, outputs = str(folder / "cal.safetensors"), [str(folder / name) for name in ("old.npy", "new.npy")]
    options = {"rho-norm-paper": {"n_steps": 50}, "auto": {"methods": ["temperature", "vector"]}}.get(method, {})
    # Both fit, though one artifact is used: what a process allocated before decides how fast it gets memory.
    reasons = [
        version.ask(do="fit", method=method, options=options, path=artifact, n=N_FIT, **paths) for version in (new, old)
    ]
    reason = reasons[1]
    if reason:
        return f"not fitted: {reason[:60]}"
    for version, output in zip((old, new), outputs, strict=True):
        version.ask(do="load", path=artifact, logits=paths["logits"], output=output)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(N_TURNS):
        for version, seconds in zip((old, new), times, strict=True):
            seconds += [version.ask(do="time") for _ in range(3)]
    before, after = (1000 * min(seconds) for seconds in times)
    difference = float(np.abs(np.load(outputs[0]) - np.load(outputs[1])).max())
    return f"{before:9.2f} {after:9.2f} {after / before:6.2f} {difference:9.1e}"


def main() -> None:
    """Print the table."""
    old, new = (Version(source) for source in sys.argv[1:3])
    methods = sys.argv[3:] or old.ask(do="methods")
    print(f"{'method':18} {'shape':>14} {'old ms':>9} {'new ms':>9} {'ratio':>6} {'differ':>9}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for n, m in SHAPES:
            paths = write_samples(folder, n, m)
            for method in methods:
                print(f"{method:18} {n:>6} x {m:<5} {compare(old, new, method, paths, folder)}", flush=True)


if __name__ == "__main__":
    main()
