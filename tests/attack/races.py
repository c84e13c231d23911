"""Two writers of one output: one wins, and the file is its, whole. The other is refused, or wrote the file before or after."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
from tests.attack import MEMORY, Counts, rounds
from tests.attack._processes import run as run_command
from tests.attack._processes import start, wait
from tests.attack.kills import scores, write_parquet

import rhocal

OUTPUTS = ("npy", "safetensors", "npz")


def run(rng_seed, seconds, outputs=OUTPUTS):
    """Attack until the seconds are over."""
    counts = Counts()
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        folder = Path(name)
        logits, labels = scores(6000, 20)
        (folder / "parts").mkdir()
        for k, rows in enumerate(np.array_split(np.arange(6000), 12)):
            write_parquet(folder / "parts" / f"in-{k:02d}.parquet", logits[rows], labels[rows])
        np.savez(folder / "in.npz", logits=logits, labels=labels)
        for k, part in enumerate((slice(0, 3000), slice(3000, 6000))):
            rhocal.TemperatureScaling().fit(logits[part], labels[part]).save(folder / f"c{k}.safetensors")
        expected = {ending: [_alone(folder, k, ending) for k in range(2)] for ending in outputs}
        for rng in rounds(rng_seed, seconds):
            for ending in outputs:
                race(counts, rng, folder, ending, expected[ending])
    return counts


def race(counts, rng, folder, ending, expected):
    """Start two writers at nearly the same time."""
    output = folder / f"out.{ending}"
    writers = []
    for k in rng.permutation(2):
        writers.append(start(_command(folder, k, output, restart=bool(rng.integers(2)))))
        time.sleep(float(rng.choice([0.0, 0.002, 0.02]) * rng.random()))
    codes = [wait(process) for process in writers]
    counts.calls += 2
    counts.cases[f"races for .{ending}"] += 1
    counts.refused += codes.count(2)
    counts.crashes += codes.count(None)
    counts.check(f"{ending}: exit codes {codes}", set(codes) <= {0, 2} and 0 in codes)
    content = output.read_bytes() if output.exists() else None
    counts.check(f"{ending}: not the file of one writer", content in expected)
    left = [path.name for path in folder.glob(".*")]
    counts.check(f"{ending}: left behind {left}", not left)
    for path in [output, *folder.glob(".*")]:
        path.unlink(missing_ok=True)


def _command(folder, k, output, *, restart=False):
    source = folder / "in.npz" if output.suffix == ".npz" else folder / "parts"
    return ["apply", folder / f"c{k}.safetensors", source, "-o", output, *(["--restart"] if restart else [])]


def _alone(folder, k, ending):
    """The file of a writer that nobody disturbs."""
    output = folder / f"alone.{ending}"
    assert run_command(_command(folder, k, output)) == 0
    content = output.read_bytes()
    output.unlink()
    return content
