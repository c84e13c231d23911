"""`rhocal adapt`: a calibrator for another mix of the classes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rhocal.cli.adapt_features import Covariates, reweight_file
from rhocal.cli.execution import ExecutionOptions
from rhocal.cli.options import Arrays, Json, SpecOptions, grouped, print_json
from rhocal.errors import InputError

if TYPE_CHECKING:
    from rhocal.evaluation.adapt import Adaptation

KNOWN = "What is known"
COVARIATES = "If features changed, not the mix of the classes"


@grouped
def adapt(
    artifact: Annotated[
        Path, typer.Argument(metavar="CALIBRATOR", help="The file that `rhocal fit` wrote.", show_default=False)
    ],
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="Samples of the new mix, from which it is estimated; labels are not needed.",
            show_default=False,
        ),
    ] = None,
    *,
    output: Annotated[Path, typer.Option("-o", "--output", help="The .safetensors file to write.", show_default=False)],
    prevalence: Annotated[
        float | None,
        typer.Option(
            "--prevalence",
            help="The share of the positive class of two (--positive).",
            rich_help_panel=KNOWN,
            show_default=False,
        ),
    ] = None,
    priors: Annotated[
        str | None,
        typer.Option(
            "--priors", help="The share of each class: cat=0.2,dog=0.8.", rich_help_panel=KNOWN, show_default=False
        ),
    ] = None,
    sampling_rates: Annotated[
        str | None,
        typer.Option(
            "--sampling-rates",
            help="The share of the samples of a class that was kept: no=0.1 if nine of ten were dropped before training.",
            rich_help_panel=KNOWN,
            show_default=False,
        ),
    ] = None,
    labeled: Annotated[
        Path | None,
        typer.Option(
            "--labeled",
            help="Labeled samples of the calibration mix: they repair the estimate and test whether another mix explains FILE.",
            show_default=False,
        ),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            "--features",
            help="What changed, if it is not the mix of the classes: arrays or columns of --labeled and of FILE, separated by "
            "commas, or a file with a row for each sample of --labeled.",
            rich_help_panel=COVARIATES,
            show_default=False,
        ),
    ] = None,
    target_features: Annotated[
        Path | None,
        typer.Option(
            "--target-features",
            help="A file of --features of the new population, instead of FILE; scores and labels are not needed.",
            rich_help_panel=COVARIATES,
            show_default=False,
        ),
    ] = None,
    arrays: Arrays,
    spec: SpecOptions,
    execution: ExecutionOptions,
    as_json: Json = False,
) -> None:
    """Adapt a calibrator to another mix of the classes, or to other features.

    The mix is stated (known shares, a known sampling rate) or estimated from unlabeled samples.

    `rhocal adapt cal.safetensors --prevalence 0.02 -o rare.safetensors` corrects a model that was trained and calibrated on
    balanced classes. `rhocal adapt cal.safetensors new.npz --labeled cal.npz -o new.safetensors` estimates the shares from
    unlabeled samples, with intervals. It is assumed that samples of each class are the same as before. Exit code 1: another mix
    does not explain the samples (the calibrator is written all the same).

    `rhocal adapt cal.safetensors new.csv --labeled cal.csv --features age,site -o new.safetensors` fits the method again on the
    labeled samples with importance weights, so that their features are distributed as in FILE (covariate shift). It is assumed
    that labels depend on features as before. With --weights and --labeled, without FILE, the weights are given.
    """
    from rhocal.calibrators.artifact import load
    from rhocal.data.arguments import check_level
    from rhocal.data.storage.atomic import check_artifact_output
    from rhocal.evaluation.adapt import adapt_to_shares, adapt_to_source

    if features is not None or target_features is not None or (arrays.weights is not None and labeled is not None):
        stated_mix = {"--prevalence": prevalence, "--priors": priors, "--sampling-rates": sampling_rates}
        reweight_file(
            artifact, labeled, path, output, Covariates(features, target_features, stated_mix), arrays, spec, execution,
            as_json=as_json,
        )  # fmt: skip
        return
    given = {"FILE": path, "--prevalence": prevalence, "--priors": priors, "--sampling-rates": sampling_rates}
    inputs = [name for name, value in given.items() if value is not None]
    if len(inputs) != 1:
        raise InputError(f"give exactly one of {', '.join(given)}; got {' and '.join(inputs) or 'none'}")
    if prevalence is not None:
        check_level(prevalence, "--prevalence", "0.02 for 2 %")
    if labeled is not None and path is None:
        raise InputError("--labeled belongs to a file of unlabeled samples")
    check_artifact_output("-o", output, [one for one in (artifact, path, labeled) if one is not None])
    cal = load(artifact)
    stated = spec.spec([cal])
    if path is None:
        result = adapt_to_shares(
            cal,
            priors=None if priors is None else _numbers(priors, "--priors"),
            prevalence=prevalence,
            sampling_rates=None if sampling_rates is None else _numbers(sampling_rates, "--sampling-rates"),
            positive=spec.positive,
        )
    else:
        unlabeled = execution.open(path, arrays.of_calibrator(cal, path), stated, "test", needs_labels=False)
        known = None
        if labeled is not None:
            known = execution.open(labeled, arrays.of_calibrator(cal, labeled), stated, "calibration")
        with execution.cluster(), execution.progress("reading", unlabeled) as blocks:
            result = adapt_to_source(cal, blocks, known)
    result.calibrator.save(output)
    if as_json:
        removed = {} if cal.policy_ is None else {"policy": "removed"}
        print_json({**result.to_dict(), "output": str(output), **removed})
    else:
        _show(result, output, has_policy=cal.policy_ is not None)
    raise typer.Exit(int(not result.is_explained))


def _numbers(text: str, option: str) -> dict[str, float]:
    """NAME=NUMBER, separated by commas."""
    numbers: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = part.rpartition("=")
        try:
            numbers[name.strip()] = float(value)
        except ValueError:
            equals = ""
        if not equals:
            raise InputError(f"{option} takes CLASS=NUMBER, separated by commas; got {part.strip()!r}")
    return numbers


def _show(result: Adaptation, output: Path, *, has_policy: bool) -> None:
    from rhocal.reporting import tables

    screen = tables.console()
    rows = result.rows()
    if result.priors is not None:
        screen.print(tables.class_shares(rows, result.calibrator.label))
    screen.print(result.verdict)
    if has_policy:
        screen.print(
            "the policy was removed: it was certified for another mix; run rhocal decide on labeled samples of the new one"
        )
    screen.print(f"saved {output}")
