"""`rhocal shift`: compare production with the calibration set, without labels of production."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rhocal.cli.execution import IN_MEMORY
from rhocal.cli.options import Arrays, InputFile, Json, SpecOptions, grouped, print_json


@grouped
def shift(
    calibration: InputFile,
    production: Annotated[
        Path, typer.Argument(metavar="PRODUCTION", help="A file of logits; labels are not needed.", show_default=False)
    ],
    artifact: Annotated[Path | None, typer.Option("-c", "--calibrator", help="Calibrate both with this first.")] = None,
    *,
    arrays: Arrays,
    spec: SpecOptions,
    seed: Annotated[int, typer.Option(help="The seed of the resamples behind the error bars.")] = 0,
    as_json: Json = False,
) -> None:
    """Compare production with the calibration set on confidence alone, and estimate its accuracy without labels.

    A warning states where production lies outside the range of the calibration set. Of a file with two splits, the
    calibration split is the calibration set and the test split is production.
    """
    from dataclasses import replace

    from rhocal.calibrators.artifact import load
    from rhocal.evaluation.measure import apply_calibrator
    from rhocal.evaluation.shift import shift as shifted
    from rhocal.reporting import tables

    cal = None if artifact is None else load(artifact)
    stated = spec.spec([] if cal is None else [cal])
    before = IN_MEMORY.open(calibration, arrays.of_calibrator(cal, calibration), stated, "calibration").predictions
    alone = replace(arrays, labels=None).of_calibrator(cal, production)
    after = IN_MEMORY.open(production, alone, stated, "test", needs_labels=False).predictions
    pair = [apply_calibrator(cal, data).logits for data in (before, after)]
    result = shifted(pair[0], before.labels, pair[1], seed=seed)
    if as_json:
        print_json(result.to_dict())
        return
    from rhocal.metrics.inference.p_values import equals_p

    rows = {
        "samples": f"{result.n_calibration:,} calibration, {result.n_production:,} production",
        "mean confidence": f"{result.confidence_calibration:.4f} before, {result.confidence_production:.4f} production",
        "Kolmogorov–Smirnov": f"distance {result.ks_distance:.4f}, p {equals_p(result.p_value)}",
        "accuracy": f"{result.accuracy_calibration:.4f} on the calibration set",
    }
    for title, guess in (("threshold (ATC)", result.accuracy_atc), ("confidence (DoC)", result.accuracy_doc)):
        rows[f"estimated by {title}"] = f"{guess.value:.4f} ({guess.low:.4f} – {guess.high:.4f})"
    outside = ", ".join(f"{name} {100 * share:.1f} %" for name, share in result.outside.items())
    rows["outside the range of the calibration set"] = outside
    screen = tables.console()
    screen.print(tables.pairs(rows, f"{production} against {calibration}"))
    screen.print(f"verdict: {result.verdict}")
