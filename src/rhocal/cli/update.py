"""`rhocal update`: a calibrator learns from new labeled samples, and goes back if that was a mistake."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rhocal.cli.execution import IN_MEMORY
from rhocal.cli.options import Arrays, ClustersOption, Json, SpecOptions, grouped, print_json
from rhocal.errors import InputError

if TYPE_CHECKING:
    from rhocal.calibrators import Calibrator
    from rhocal.calibrators.online.calibration import OnlineCalibration
    from rhocal.calibrators.online.evidence import Update


@grouped
def update(
    artifact: Annotated[
        Path,
        typer.Argument(metavar="CALIBRATOR", help="The fitted calibrator that updates begin with.", show_default=False),
    ],
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="New labeled samples; each file is a batch.", show_default=False),
    ],
    *,
    state: Annotated[
        Path,
        typer.Option(
            "-s",
            "--state",
            help="The .safetensors file that keeps the memory; it is created if absent.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            help="The .safetensors file to write: the calibrator to use from now on.",
            show_default=False,
        ),
    ],
    half_life: Annotated[
        float | None, typer.Option(help="Samples after which one counts half; 10,000 unless given.")
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(
            help="The probability that a correction is ever adopted although the calibrator is right; 0.05 unless given."
        ),
    ] = None,
    clusters: ClustersOption = None,
    arrays: Arrays,
    spec: SpecOptions,
    as_json: Json = False,
) -> None:
    """Update a calibrator with new labeled samples; a correction is adopted only if it is shown to be better.

    Each batch first compares the map in use with corrections that were fitted on earlier batches; then its samples are added to
    the memory, in which old samples count less and less. A correction that turns out worse than the first calibrator is
    dropped. `rhocal monitor` shows when an update is due. With --clusters a cluster counts as one sample, and must be whole in
    one file. The calibrator is written first and the state last: a run that was stopped can be repeated, and a batch that was
    counted is skipped.
    """
    from dataclasses import replace

    from rhocal.calibrators.artifact import load
    from rhocal.calibrators.online.calibration import OnlineCalibration
    from rhocal.data.storage.atomic import check_artifact_output
    from rhocal.data.streams import has_splits

    if state.resolve() == output.resolve():
        raise InputError("-s and -o are the same file; the state and the calibrator are two")
    for option, path in (("-s", state), ("-o", output)):
        check_artifact_output(option, path, [artifact, *paths])
    cal = load(artifact)
    given = {name: value for name, value in (("half_life", half_life), ("alpha", alpha)) if value is not None}
    if state.exists():
        online = OnlineCalibration.load(state)
        _check_state(online, cal, given, state, artifact)
    else:
        online = replace(OnlineCalibration.begin(cal, **given), policy=None)
    stated = spec.spec([online.first])
    steps = []
    for path in paths:
        of_batch = arrays.of_calibrator(cal, path)
        if has_splits(path, of_batch.names()):
            raise InputError(f"{path}: holds two splits; a batch is one set of samples, save it in a file of its own")
        source = IN_MEMORY.open(path, of_batch, stated, "test")
        source = IN_MEMORY.with_clusters(source, clusters, path, of_batch, stated)
        steps.append((path, online.update_data(source.predictions)))
        online = steps[-1][1].online
    if _is_same(cal, online.calibrator):
        online = replace(online, policy=cal.policy_)
    online.calibrator.save(output)
    online.save(state)
    _show(steps, online, cal, output, as_json=as_json)


def _check_state(
    online: OnlineCalibration, cal: Calibrator, given: dict[str, float], state: Path, artifact: Path
) -> None:
    """Raise an error for a state that began with another calibrator or with other options."""
    if not any(_is_same(cal, known) for known in (online.first, online.calibrator)):
        raise InputError(f"-s: {state} began with another calibrator than {artifact}; name that one, or another state")
    for name, value in given.items():
        if getattr(online, name) != value:
            option = name.replace("_", "-")
            raise InputError(f"--{option}: {state} was begun with {getattr(online, name):g}; this cannot change later")


def _is_same(one: Calibrator, other: Calibrator) -> bool:
    """Whether two calibrators are the same map; the policy does not matter."""
    from rhocal.calibrators.artifact import map_checksum

    return map_checksum(one) == map_checksum(other)


def _show(
    steps: list[tuple[Path, Update]], online: OnlineCalibration, cal: Calibrator, output: Path, *, as_json: bool
) -> None:
    from rhocal.calibrators.online.evidence import LOST_POLICY
    from rhocal.reporting import tables

    has_lost_policy = cal.policy_ is not None and online.policy is None
    if as_json:
        document: dict[str, Any] = {
            "batches": [{"file": str(path), **step.to_dict()} for path, step in steps],
            "method": online.calibrator.label,
            "output": str(output),
        }
        print_json(document | ({"policy": "removed"} if has_lost_policy else {}))
        return
    screen = tables.console()
    for path, step in steps:
        screen.print(f"{path.name}: {step.verdict}")
    if has_lost_policy:
        screen.print(LOST_POLICY)
    screen.print(f"saved {output} ({online.calibrator.label}); the memory is in the state")
