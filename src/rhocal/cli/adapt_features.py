"""`rhocal adapt --features`: a calibrator for a population with other features, fitted with importance weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rhocal.cli.options import print_json
from rhocal.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rhocal.calibrators import Calibrator
    from rhocal.cli.execution import ExecutionOptions
    from rhocal.cli.options import Arrays, SpecOptions
    from rhocal.evaluation.covariate_shift import ImportanceWeights, Reweighting

ONLY = "features"
"""The array of a file that holds features and nothing else."""


@dataclass(frozen=True)
class Covariates:
    """Where features are, and options that do not go with them."""

    features: str | None
    target: Path | None
    others: Mapping[str, Any]


def reweight_file(
    artifact: Path,
    labeled: Path | None,
    new: Path | None,
    output: Path,
    covariates: Covariates,
    arrays: Arrays,
    spec: SpecOptions,
    execution: ExecutionOptions,
    *,
    as_json: bool,
) -> None:
    """Fit the method of an artifact again with importance weights, print what they are worth, and save it."""
    from rhocal.calibrators.artifact import load
    from rhocal.data.storage.atomic import check_artifact_output
    from rhocal.evaluation.covariate_shift import reweight_data

    target = covariates.target or new
    _check(labeled, new, covariates, arrays)
    assert labeled is not None
    check_artifact_output("-o", output, [one for one in (artifact, labeled, target) if one is not None])
    cal = load(artifact)
    execution.refuse({"--labeled": execution.streams(labeled, skip_bad=arrays.skip_bad)})
    weights = None
    if covariates.features is not None:  # first: a column that is not there is no class
        assert target is not None
        weights = _estimate(covariates.features, labeled, target)
    source = execution.open(labeled, arrays.of_calibrator(cal, labeled), spec.spec([cal]), "calibration")
    if weights is not None:
        (block,) = source.blocks
        rows = block.read()
        if rows.n_rows != len(weights.weights):
            raise InputError(
                f"--features: there are {len(weights.weights):,} rows of features and {rows.n_rows:,} samples in {labeled}"
            )
        source = replace(source, blocks=(replace(rows, weights=weights.weights),))
    result = reweight_data(cal, source.predictions, weights)
    result.calibrator.save(output)
    _show(result, cal, output, as_json=as_json)


def _check(labeled: Path | None, new: Path | None, covariates: Covariates, arrays: Arrays) -> None:
    stated = [option for option, value in covariates.others.items() if value is not None]
    if stated:
        raise InputError(f"{stated[0]} is about the mix of the classes, and goes with neither --features nor --weights")
    if labeled is None:
        raise InputError("--features: labeled samples are fitted on; name their file with --labeled")
    if covariates.features is None:
        if covariates.target is not None:
            raise InputError("--target-features belongs to --features, the same features of the labeled samples")
        if new is not None:
            raise InputError("--weights are those of --labeled, and FILE is not used; leave one of them out")
        return
    if arrays.weights is not None:
        raise InputError("--weights and --features exclude each other: weights are estimated from features")
    if covariates.target is None and new is None:
        raise InputError(
            "--features: name a file with the same features of the new population: FILE or --target-features"
        )
    if covariates.target is not None and new is not None:
        raise InputError("give FILE or --target-features; got both")


def _estimate(features: str, labeled: Path, target: Path) -> ImportanceWeights:
    from rhocal.data.features import cell_numbers, read_features
    from rhocal.data.files import only_array
    from rhocal.evaluation.covariate_shift import estimate_weights

    if Path(features).is_file():
        ours, theirs = (cell_numbers(only_array(path, ONLY), path) for path in (Path(features), target))
        return estimate_weights(ours, theirs)
    names = [name.strip() for name in features.split(",") if name.strip()]
    if not names:
        raise InputError("--features: name at least one array or column")
    return estimate_weights(read_features(labeled, names, "calibration"), read_features(target, names, "test"))


def _show(result: Reweighting, cal: Calibrator, output: Path, *, as_json: bool) -> None:
    from rhocal.reporting import tables

    if as_json:
        removed = {} if cal.policy_ is None else {"policy": "removed"}
        print_json({**result.to_dict(), "output": str(output), **removed})
        return
    screen = tables.console()
    if result.weights is not None:
        screen.print(result.weights.verdict)
    screen.print(result.verdict)
    if cal.policy_ is not None:
        screen.print("the policy was removed: it was certified for another population; run rhocal decide again")
    screen.print(f"saved {output}")
