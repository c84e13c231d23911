"""Latency of one row of logits: what a request costs, beside SciPy's softmax of the same row in the same run.

Rounds of all candidates alternate, and a figure is the median of its rounds' medians: a load that comes and goes moves all
of them.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
import scipy
import torch
from scipy.special import softmax

import rhocal

if TYPE_CHECKING:
    from collections.abc import Callable

METHODS = ("temperature", "rho-norm", "smart", "field", "svs", "svs:field")
N_CLASSES, N_ROUNDS, N_CALLS = 1000, 9, 400
PAGE = Path(__file__).with_name("README.md")
MARK = "<!-- table -->"


def logits_and_labels() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(3000, N_CLASSES)) * 3
    labels = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
    return (truth * np.exp(0.6 * rng.normal(size=(len(truth), 1)))).astype(np.float32), labels  # ρ-norms matter


def median_time(call: Callable[[], Any]) -> float:
    times = []
    for _ in range(N_CALLS):
        start = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - start)
    return float(np.median(times)) / 1000


def candidates(folder: Path) -> dict[tuple[str, str], Callable[[], Any]]:
    logits, labels = logits_and_labels()
    row, tensor = logits[:1].copy(), torch.from_numpy(logits[:1].copy())
    calls: dict[tuple[str, str], Callable[[], Any]] = {
        ("softmax", "SciPy"): lambda: softmax(row, axis=1),
        ("softmax", "torch module"): lambda: torch.softmax(tensor, dim=-1),
    }
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    for method in METHODS:
        calibrator = rhocal.calibrator(method).fit(logits, labels)
        calibrator.to_onnx(folder / "map.onnx")
        session = onnxruntime.InferenceSession(folder / "map.onnx", options)
        compiled, module = calibrator.compiled(), calibrator.to_torch(output="probs")
        calls[method, "compiled()"] = lambda run=compiled: run(row)  # type: ignore[misc]
        calls[method, "predict_proba"] = lambda cal=calibrator: cal.predict_proba(row)  # type: ignore[misc]
        calls[method, "torch module"] = lambda module=module: module(tensor)  # type: ignore[misc]
        calls[method, "onnxruntime"] = lambda run=session.run: run(None, {"logits": row})  # type: ignore[misc]
    return calls


def table(times: dict[tuple[str, str], float]) -> str:
    ways = ["compiled()", "predict_proba", "torch module", "onnxruntime"]
    base = times["softmax", "SciPy"]
    lines = [f"| one row of {N_CLASSES:,} logits | {' | '.join(ways)} |", "|---" * (len(ways) + 1) + "|"]
    lines.append(f"| softmax | {base:.1f} µs (SciPy) | | {times['softmax', 'torch module']:.1f} µs (torch) | |")
    for method in METHODS:
        cells = [f"{times[method, way]:.1f} µs, {times[method, way] / base:.2f} ×" for way in ways]
        lines.append(f"| `{method}` | {' | '.join(cells)} |")
    versions = (
        f"rhocal {rhocal.__version__}, NumPy {np.__version__}, SciPy {scipy.__version__}, torch {torch.__version__}"
    )
    return "\n".join([*lines, "", f"{versions}, onnxruntime {onnxruntime.__version__}; one thread."])


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    with TemporaryDirectory() as folder:
        calls = candidates(Path(folder))
        rounds = [{key: median_time(call) for key, call in calls.items()} for _ in range(N_ROUNDS)]
    text = table({key: float(np.median([one[key] for one in rounds])) for key in calls})
    print(text)
    begin, _, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    PAGE.write_text(f"{begin}{MARK}\n{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
