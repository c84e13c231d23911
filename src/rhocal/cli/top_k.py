"""Commands on files of top-k data: what `rhocal fit`, `evaluate` and `apply` do where only the k best classes are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from rhocal.cli.options import print_json
from rhocal.errors import FileError, InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rhocal.calibrators import Calibrator
    from rhocal.cli.options import Arrays, SpecOptions
    from rhocal.data.top_k import TopK
    from rhocal.evaluation.evaluation import Evaluation


def top_k_of(
    path: Path, arrays: Arrays, spec: SpecOptions | None = None, *, needs_labels: bool = True
) -> tuple[TopK, Any] | None:
    """The k best classes of a file and its labels; None if it holds something else."""
    from rhocal.data.top_k_files import read_top_k

    found = read_top_k(path, arrays.names())
    if found is None:
        return None
    top, labels = found
    if needs_labels and labels is None:
        raise FileError(f"{path}: labels are missing", argument="labels_name", remedy="name the array that holds them")
    if spec is not None and spec.kind not in {None, "log_probs"}:
        raise InputError("--kind: the name of the array states it: top_log_probs or top_probs")
    typer.echo(f"{path}: the {top.log_probs.shape[1]} best of {top.n_classes:,} classes", err=True)
    return top, labels


def evaluate_top_k(
    top: TopK,
    labels: Any,
    calibrators: Mapping[str, Calibrator | None],
    *,
    ignore_index: int | None,
    tolerance: float,
    seed: int,
) -> dict[str, Evaluation]:
    """Evaluate before and after applying calibrators."""
    from rhocal.calibrators.top_k import apply_top_k
    from rhocal.evaluation.evaluate import DEFAULT_METRICS, infer
    from rhocal.evaluation.samples import samples_top_k

    views = {name: top if cal is None else apply_top_k(cal, top) for name, cal in calibrators.items()}
    metrics = list(DEFAULT_METRICS)
    samples = {name: samples_top_k(view, labels, None, metrics, ignore_index) for name, view in views.items()}
    return {name: infer(part, metrics, tolerance=tolerance, seed=seed) for name, part in samples.items()}


def apply_top_k_file(calibrator: Calibrator, top: TopK, labels: Any, output: Path, *, as_json: bool) -> None:
    """Write calibrated probabilities of the k best, the total of the rest, the predicted class and its confidence."""
    import numpy as np

    from rhocal.calibrators.top_k import apply_top_k
    from rhocal.data.formats import write_arrays

    if output.suffix != ".npz":
        raise InputError(f"-o: top-k data is written to a .npz file; got {output}")
    calibrated = apply_top_k(calibrator, top)
    arrays = {
        "top_probs": np.exp(calibrated.log_probs),
        "top_indices": calibrated.indices,
        "rest_log_mass": calibrated.rest,
        "n_classes": np.array(calibrated.n_classes),
        "predicted": calibrated.indices[:, 0],
        "confidence": np.exp(calibrated.log_probs[:, 0]),
    }
    write_arrays(output, arrays | ({} if labels is None else {"labels": labels}))
    if as_json:
        print_json({"output": str(output), "method": calibrator.label, "rows": calibrated.n_samples})
        return
    typer.echo(f"{calibrated.n_samples:,} rows of probs, calibrated with {calibrator.label}: {output}")
