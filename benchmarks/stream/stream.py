"""Fits of files larger than they should be for memory, beside a plain pass over the same file.

    python benchmarks/stream/stream.py

Writes two files of float16 logits into a temporary folder (2 GB and 5 GB), fits ρ-Norm Scaling on each with
`rhocal fit --stream` in a process of its own, and writes `README.md` beside this file. `--quick` takes a tenth.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import rhocal
from rhocal.data.blocks import read_ahead
from rhocal.data.files import write_text
from rhocal.numerics.threads import in_threads, row_blocks, threads

HERE = Path(__file__).parent
SHAPES = [(1_000_000, 1000), (20_000, 128_256)]


def write(folder: Path, n: int, m: int) -> tuple[Path, Path]:
    """Over-confident logits of varying size; labels drawn from the true distribution. A base block, scaled row by row."""
    rng = np.random.default_rng(0)
    n_base = max(200, 10_000_000 // m)
    truth = rng.normal(size=(n_base, m)).astype(np.float32) * np.float32(3)
    labels = (truth + rng.gumbel(size=(n_base, m)).astype(np.float32)).argmax(axis=1)
    logits_path, labels_path = folder / f"{n}x{m}.npy", folder / f"{n}x{m}.labels.npy"
    out = np.lib.format.open_memmap(logits_path, "w+", np.float16, (n, m))
    for start in range(0, n, n_base):
        k = min(n_base, n - start)
        out[start : start + k] = truth[:k] * (1.8 * np.exp(0.3 * rng.normal(size=(k, 1)))).astype(np.float32)
    out.flush()
    del out
    np.save(labels_path, np.resize(labels, n))
    return logits_path, labels_path


def plain(path: Path) -> tuple[float, float]:
    """Seconds by the clock and of the processor of one blocked logsumexp pass, with the same reader and threads."""

    def work(block: Any) -> Any:
        z = block.astype(np.float32)
        top = z.max(axis=1)
        z -= top[:, None]
        np.exp(z, out=z)
        return top + np.log(z.sum(axis=1))

    start, used = time.perf_counter(), time.process_time()
    for chunk in read_ahead(list(rhocal.stream(path).blocks)):
        scores = chunk.read().scores
        in_threads(work, [scores[rows] for rows in row_blocks(len(scores), scores.shape[1], 1 << 19)])
    return time.perf_counter() - start, time.process_time() - used


FIT = """
import json, sys, time
import rhocal
stream = rhocal.stream(sys.argv[1], labels=sys.argv[2])
cal = rhocal.RhoNormScaling()
from rhocal.calibrators import fitting
began, used = time.perf_counter(), time.process_time()
profiled = [0.0, 0.0]
read = fitting.Fits._read
def timed(self, largest):
    read(self, largest)
    profiled[:] = time.perf_counter() - began, time.process_time() - used
fitting.Fits._read = timed
cal.fit(stream)
print(json.dumps({
    "seconds": time.perf_counter() - began, "pass": profiled[0], "pass_cpu": profiled[1],
    "cpu": time.process_time() - used, "bytes": stream.bytes_read,
    "io": int(next(l for l in open("/proc/self/io") if l.startswith("rchar")).split()[1]),
    # not ru_maxrss, which a process inherits from the one that started it
    "peak": int(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1]) / 1e6,
    "rho": cal.rho_, "gamma": cal.gamma_, "beta": cal.beta_}))
"""


def streamed(paths: tuple[Path, Path]) -> dict[str, Any]:
    """A fit in a process of its own."""
    done = subprocess.run([sys.executable, "-c", FIT, *map(str, paths)], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def in_memory(paths: tuple[Path, Path], found: dict[str, Any]) -> float:
    """Largest relative difference of a sample's scale to the fit in memory."""
    logits, labels = np.load(paths[0]), np.load(paths[1])
    cal = rhocal.RhoNormScaling().fit(logits, labels)
    other = rhocal.RhoNormScaling().fit(*rhocal.demo_logits("cal", "cifar10"))
    other.rho_, other.gamma_, other.beta_ = found["rho"], found["gamma"], found["beta"]
    few = logits[:: max(1, len(logits) // 500)].astype(np.float32)
    return float(np.abs(other.scale(few) / cal.scale(few) - 1).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=int, help="the first or the second shape; README.md is not written")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows; README.md is not written")
    args = parser.parse_args()
    rows = []
    for n, m in SHAPES if args.only is None else [SHAPES[args.only - 1]]:
        with tempfile.TemporaryDirectory() as folder:
            paths = write(Path(folder), n // 10 if args.quick else n, m)
            size = paths[0].stat().st_size
            passes = [plain(paths[0]) for _ in range(2)]
            fits = [streamed(paths) for _ in range(2)]
            best, cpu = (min(values) for values in zip(*passes, strict=True))
            fast = min(fits, key=lambda fit: fit["cpu"])
            away = in_memory(paths, fast)
            pass_share, fit_share = (f"{100 * cpu / fast[name]:.0f} %" for name in ("pass_cpu", "cpu"))
            rows.append(
                f"| {n:,} × {m:,} | {size / 1e9:.2f} | {best:.1f} / {cpu:.1f} | {fast['pass']:.1f} / {fast['pass_cpu']:.1f} "
                f"({pass_share}) | {fast['seconds']:.1f} / {fast['cpu']:.1f} ({fit_share}) | "
                f"{fast['bytes'] / size:.3f} | {fast['io'] / size:.3f} | {max(f['peak'] for f in fits):.2f} | {away:.1e} |"
            )
            print(rows[-1], passes, [(f["pass_cpu"], f["cpu"]) for f in fits], flush=True)
    text = [
        "# Out of core, beside a plain pass",
        "",
        (
            f"Made by `python benchmarks/stream/stream.py`. {platform.machine()}, {threads()} threads, Python "
            f"{platform.python_version()}, NumPy {np.__version__}. float16 on disk, page cache warm, best of two; "
            "elapsed / processor seconds."
        ),
        "",
        (
            "*plain*: one blocked logsumexp over the file (NumPy, float32, same reader, same threads). *pass*: all steps that "
            "read logits, the pilot fit included. *fit*: all of `RhoNormScaling().fit(stream)`, nine ρ, selection by ECE. In "
            "brackets the throughput as a share of the plain pass, by processor time. *read*: bytes of logits requested, "
            "and bytes that the process read from any file, over the size of the file. *away*: the largest relative difference "
            "of a sample's scale to the fit in memory."
        ),
        "",
        "| rows × classes | GB | plain s | pass s | fit s | logits read | all read | peak GB | away |",
        "|---|---|---|---|---|---|---|---|---|",
        *rows,
    ]
    if not args.quick and args.only is None:
        write_text(HERE / "README.md", "\n".join(text) + "\n")


if __name__ == "__main__":
    main()
