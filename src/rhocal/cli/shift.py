"""`rhocal shift`: compare production with the calibration set, without labels of production."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rhocal.cli.options import InputFile, Json, KindOption, LabelsName, LogitsName, kind_of, print_json, read


def shift(
    calibration: InputFile,
    production: Annotated[Path, typer.Argument(help="A file of logits; labels are not needed.", show_default=False)],
    artifact: Annotated[Path | None, typer.Option("-c", "--calibrator", help="Calibrate both with this first.")] = None,
    kind: KindOption = "logits",
    logits_name: LogitsName = "logits",
    labels_name: LabelsName = "labels",
    seed: Annotated[int, typer.Option(help="The seed of the resamples behind the error bars.")] = 0,
    as_json: Json = False,
) -> None:
    """Compare production with the calibration set on confidence alone, and estimate its accuracy without labels.

    A warning states where production lies outside the range of the calibration set. Of a file with two splits, the
    calibration split is the calibration set and the test split is production.
    """
    from rhocal.calibrators.artifact import load
    from rhocal.data.predictions import predictions
    from rhocal.evaluation.shift import shift as compared
    from rhocal.reporting import tables

    contents = read(calibration, None, logits_name, labels_name)
    first, second = contents.for_tuning(), read(production, None, logits_name, labels_name).for_testing()
    cal = None if artifact is None else load(artifact)
    before = predictions(
        first.logits, first.labels, classes=contents.classes if cal is None else cal.classes_, kind=kind_of(kind)
    )
    after = predictions(second.logits, kind=kind_of(kind))
    pair = [data.logits if cal is None else cal.transform(data.logits, kind="logits") for data in (before, after)]
    found = compared(pair[0], before.labels, pair[1], seed=seed)
    if as_json:
        print_json(found.to_dict())
        return
    rows = {
        "samples": f"{found.n_calibration:,} calibration, {found.n_production:,} production",
        "mean confidence": f"{found.confidence_calibration:.4f} before, {found.confidence_production:.4f} production",
        "Kolmogorov–Smirnov": f"distance {found.ks_distance:.4f}, p = {found.p_value:.2g}",
        "accuracy": f"{found.accuracy_calibration:.4f} on the calibration set",
    }
    for title, guess in (("threshold (ATC)", found.accuracy_atc), ("confidence (DoC)", found.accuracy_doc)):
        rows[f"estimated by {title}"] = f"{guess.value:.4f} ({guess.low:.4f} – {guess.high:.4f})"
    outside = ", ".join(f"{name} {100 * share:.1f} %" for name, share in found.outside.items())
    rows["outside the range of the calibration set"] = outside
    screen = tables.console()
    screen.print(tables.pairs(rows, f"{production} against {calibration}"))
    screen.print(f"verdict: {found.verdict}")
