"""The same calibrator in every place it can be shipped to: largest difference in probability, and decisions.

    python benchmarks/parity/parity.py

writes README.md beside this file. Nothing but the shipped logits is needed.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
import torch

import rhocal
from rhocal.calibrators import CALIBRATORS
from rhocal.errors import RhocalWarning

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from rhocal.calibrators import Calibrator

HERE = Path(__file__).parent
BACKENDS = ("NumPy", "torch float32", "torch bfloat16", "ONNX float32", "TorchScript", "torch.export")
Run = "Callable[[NDArray[np.float32]], NDArray[Any]]"


def extremes(z: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
    """Logits as they are, and made hard."""
    tied = z.copy()
    tied[:, 1] = tied.max(axis=1)
    return {
        "as they are": z,
        "× 1,000": (1000 * z).astype(np.float32),
        "× 0.001": (0.001 * z).astype(np.float32),
        "ties": np.concatenate([np.round(z), tied]).astype(np.float32),
        "equal": np.zeros((2, z.shape[1]), np.float32),
    }


def backends(cal: Calibrator, example: NDArray[np.float32], *, has_export: bool = True) -> dict[str, Any]:
    """Probabilities by every backend, ``torch.export`` if asked for; bfloat16 is given as what it rounds to."""
    apply, parameters = cal.apply_fn()
    module = cal.to_torch(output="probs").eval()
    rows = torch.from_numpy(example[:4])
    half = cal.to_torch(output="probs").to(torch.bfloat16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        script: Any = torch.jit.trace(module, (rows,))  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "calibrator.onnx"
        cal.to_onnx(path)
        session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name

    def with_torch(run: Callable[[torch.Tensor], torch.Tensor]) -> Any:
        return lambda z: run(torch.from_numpy(z)).detach().float().numpy()

    runs = {
        "NumPy": lambda z: apply(parameters, z),
        "torch float32": with_torch(module),
        "torch bfloat16": with_torch(lambda z: half(z.bfloat16())),
        "ONNX float32": lambda z: session.run(None, {name: z})[0],
        "TorchScript": with_torch(script),
    }
    if has_export:
        program = torch.export.export(module, (rows,), dynamic_shapes=({0: torch.export.Dim("batch")},)).module()
        runs["torch.export"] = with_torch(program)
    return runs


def rounded(z: NDArray[np.float32], backend: str) -> NDArray[np.float32]:
    """What a backend sees of the logits."""
    return torch.from_numpy(z).bfloat16().float().numpy() if "bfloat16" in backend else z


def measured(method: str, cal: Calibrator, z: NDArray[np.float32], *, has_export: bool = True) -> list[dict[str, Any]]:
    """A row for each backend and kind of logits."""
    runs = backends(cal, z, has_export=has_export)
    rows = []
    for what, hard in extremes(z).items():
        for backend, run in runs.items():
            seen = rounded(hard, backend)
            want, got = cal.predict_proba(seen), run(seen)
            rows.append(
                {
                    "method": method,
                    "logits": what,
                    "backend": backend,
                    "difference": float(np.abs(got - want).max()),
                    "decisions": int((got.argmax(axis=1) != cal.predict(seen)).sum()),
                }
            )
    return rows


def fitted(method: str, logits: Any, labels: Any) -> Calibrator:
    """A calibrator, without its warnings."""
    options = {"rho-norm-paper": {"n_steps": 200}}.get(method, {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhocalWarning)
        return rhocal.calibrator(method, **options).fit(logits, labels)


def many_classes() -> tuple[NDArray[np.float32], NDArray[np.intp]]:
    """1,000 classes, drawn: over-confident logits of a model that is right by half."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(2000, 1000)) * 2
    truth[np.arange(2000), rng.integers(1000, size=2000)] += 9
    p = np.exp(truth - truth.max(axis=1, keepdims=True))
    labels = (p.cumsum(axis=1) > rng.random((2000, 1)) * p.sum(axis=1, keepdims=True)).argmax(axis=1)
    return (2 * truth).astype(np.float32), labels


def table(rows: list[dict[str, Any]]) -> str:
    """The largest difference of every method and backend, and the decisions that changed."""
    lines = ["| method | " + " | ".join(BACKENDS) + " | decisions changed |", "|---|" + "---|" * (len(BACKENDS) + 1)]
    for method in dict.fromkeys(row["method"] for row in rows):
        mine = [row for row in rows if row["method"] == method]
        worst = [max(row["difference"] for row in mine if row["backend"] == backend) for backend in BACKENDS]
        changed = sum(row["decisions"] for row in mine)
        lines.append(f"| {method} | " + " | ".join(f"{value:.0e}" for value in worst) + f" | {changed} |")
    return "\n".join(lines)


def main() -> None:
    tune, labels = rhocal.demo_logits("cal", "cifar10")
    test = rhocal.demo_logits("test", "cifar10")[0][:2000].astype(np.float32)
    wide, wide_labels = many_classes()
    few: list[dict[str, Any]] = []
    many: list[dict[str, Any]] = []
    for method, line in CALIBRATORS.items():
        if not line.family.is_portable:
            continue
        few += measured(method, fitted(method, tune, labels), test)
        try:
            cal = fitted(method, wide[:1000], wide_labels[:1000])
        except rhocal.errors.InputError as error:
            print(f"{method}: not for 1,000 classes: {error}")
            continue
        many += measured(method, cal, wide[1000:1200])
        print(method, flush=True)
    text = (HERE / "template.md").read_text(encoding="utf-8")
    for mark, rows in (("{few}", few), ("{many}", many)):
        text = text.replace(mark, table(rows))
    versions = f"rhocal {rhocal.__version__}, torch {torch.__version__}, onnxruntime {onnxruntime.__version__}"
    (HERE / "README.md").write_text(text.replace("{versions}", versions), encoding="utf-8")


if __name__ == "__main__":
    main()
