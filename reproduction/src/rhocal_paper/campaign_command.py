"""`rhocal-paper campaign`: from official files to the paper's tables."""

from __future__ import annotations

import math
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rhocal.cli.options import Json, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rhocal_paper.campaign.config import CampaignNetwork
    from rhocal_paper.campaign.plan import PlannedRun
    from rhocal_paper.campaign.scheduler import Report


def campaign(
    config: Annotated[
        Path | None,
        typer.Argument(
            metavar="[CONFIG]", show_default=False,
            help="A TOML file with a table for each network, headed \\[\\[network]]; without it, the networks of the paper.",
        ),
    ] = None,
    *,
    data: Annotated[Path, typer.Option(help="The folder of the official files.", show_default=False)],
    gpus: Annotated[str, typer.Option(help="Numbers of GPUs, separated by commas; or cpu. One process for each.")] = "0",
    gpus_per_run: Annotated[
        int, typer.Option(min=1, help="Train each network on so many of them together (data-parallel).")
    ] = 1,
    seeds: Annotated[int, typer.Option(min=1, help="Networks to train of each kind.")] = 5,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The folder of the runs and tables. A second call goes on with it.")
    ] = Path("campaign"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan, its commands and its cost, and train nothing.")
    ] = False,
    tflops: Annotated[
        float | None,
        typer.Option(help="Sustained TFLOP/s of a device, for the estimate.  [default: 15 for a GPU, 0.03 for the CPU]"),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes for the tables.")] = 1,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Train every network of the paper with several seeds, then measure all tables on the official split.

    Calibrators are fitted on the calibration set and measured on the test set; tables have means ± sd over seeds. Runs that
    are done are skipped, and interrupted ones go on. A run that fails does not stop the others.
    """
    from rhocal.errors import FileError
    from rhocal.reporting import tables
    from rhocal_paper.campaign import plan as plans
    from rhocal_paper.campaign.config import missing_files, read_config
    from rhocal_paper.campaign.lock import lock
    from rhocal_paper.campaign.results import write_results
    from rhocal_paper.campaign.scheduler import CPU, device_groups, schedule

    groups = device_groups(gpus, gpus_per_run)
    networks = read_config(config, data)
    runs = plans.plan(networks, seeds, output)
    plans.validate_folders(runs)
    speed = tflops or (plans.CPU_TFLOPS if groups[0][0] == CPU else plans.GPU_TFLOPS)
    document = document_of(networks, runs, speed, len(groups), data)
    document["unit"] = "CPU" if groups[0][0] == CPU else "GPU"
    missing = missing_files(networks, data)
    if as_json and dry_run:
        print_json(document | {"missing": missing})
        return
    screen = tables.console()
    for line in plan_lines(document):
        screen.print(line, soft_wrap=True, highlight=False)
    if dry_run:
        for sentence in missing:
            screen.print(f"missing: {sentence}", soft_wrap=True, highlight=False)
        return
    if missing:
        raise FileError("; ".join(missing))
    with lock(output):
        left = [run for run in runs if not run.is_done]
        try:
            failures = schedule(left, groups, data=data, output=output, report=reporter(screen, len(left)))
        except KeyboardInterrupt:
            screen.print("interrupted: the same command continues each run after its last whole epoch", highlight=False)
            raise
        page = write_results(output, n_jobs=jobs, step=lambda text: screen.print(text, highlight=False))
    if as_json:
        print_json({"page": str(page), "failed": {run.folder.name: reason for run, reason in failures.items()}})
    for run, reason in failures.items():
        screen.print(f"failed: {run.folder.name}: {reason}", soft_wrap=True, highlight=False)
    screen.print(f"tables: {page}", soft_wrap=True, highlight=False)
    if failures:
        raise typer.Exit(1)


def document_of(
    networks: Sequence[CampaignNetwork], runs: Sequence[PlannedRun], tflops: float, n_groups: int, data: Path
) -> dict[str, Any]:
    """The plan as plain values."""
    from rhocal_paper.campaign import plan as plans

    lines, total, unknown = [], 0.0, False
    for network in networks:
        mine = [run for run in runs if run.network is network]
        each, is_measured = plans.hours(network, runs, tflops)
        epochs = network.job.recipe.epochs
        left = each * sum(plans.remaining_epochs(run) for run in mine) / epochs
        if math.isnan(left):
            left, unknown = (left, True) if any(not run.is_done for run in mine) else (0.0, unknown)
        total += 0.0 if math.isnan(left) else left
        lines.append(
            {
                "name": network.name, "title": plans.title(network), "tables": plans.tables_of_network(network),
                "runs": len(mine), "done": sum(run.is_done for run in mine), "hours_per_run": each,
                "hours_left": left, "measured": is_measured,
            }
        )  # fmt: skip
    return {
        "networks": lines,
        "figure2": [[one.name, other.name] for one, other in plans.pairs(networks)],
        "hours_left": total,
        "days": total / n_groups / 24,
        "some_unknown": unknown,
        "n_groups": n_groups,
        "tflops": tflops,
        "commands": [shlex.join(run.job.command(data, run.folder)) for run in runs if not run.is_done],
    }


def plan_lines(document: dict[str, Any]) -> list[Any]:
    """The plan as a table, commands and a sum."""
    from rich.table import Table

    table = Table(title="Networks", title_justify="left")
    for name in ("network", "", "tables", "runs", "done", "hours a run", "hours left"):
        table.add_column(name, justify="left" if name in {"network", ""} else "right", no_wrap=name != "")
    pairs = [name for pair in document["figure2"] for name in pair]
    for line in document["networks"]:
        where = [str(number) for number in line["tables"]] + (["Fig. 2"] if line["name"] in pairs else [])
        each = "unknown" if math.isnan(line["hours_per_run"]) else f"{line['hours_per_run']:.2f}"
        left = "unknown" if math.isnan(line["hours_left"]) else f"{line['hours_left']:.2f}"
        table.add_row(
            line["name"], line["title"], ", ".join(where), str(line["runs"]), str(line["done"]),
            each + (" (measured)" if line["measured"] else ""), left,
        )  # fmt: skip
    lines: list[Any] = [table]
    for one, other in document["figure2"]:
        lines.append(f"Figure 2: {one} beside {other}")
    lines += document["commands"]
    lines.append(f"{len(document['commands'])} runs left: {estimate(document)}")
    return lines


def estimate(document: dict[str, Any]) -> str:
    """How long the runs that are left will take, as far as it is known."""
    unknown = "how long networks on data of your own take is known after their first epoch"
    if document["some_unknown"] and not document["hours_left"]:
        return unknown
    return (
        f"about {document['hours_left']:,.1f} {document['unit']} hours, {document['days']:,.1f} days on "
        f"{document['n_groups']} in parallel (estimates assume {document['tflops']:g} TFLOP/s sustained on a device)"
        + (f"; {unknown}" if document["some_unknown"] else "")
    )


def reporter(screen: Any, n_runs: int) -> Report:
    """Print when a run starts and ends, and ten times on its way."""
    begun: dict[str, float] = {}
    n_over = 0

    def report(run: PlannedRun, answer: dict[str, Any]) -> None:
        nonlocal n_over
        name, epochs = run.folder.name, run.job.recipe.epochs
        if "device" in answer:
            begun[name] = time.perf_counter()
            text = f"{name}: begins on {answer['device']}"
        elif "epoch" in answer:
            if answer["epoch"] % max(1, epochs // 10):
                return
            text = f"{name}: epoch {answer['epoch']} of {epochs}, {answer['seconds']:.1f} s each"
        else:
            n_over += 1
            outcome = f"failed: {answer['failure']}" if "failure" in answer else "done"
            text = f"{name}: {outcome} ({n_over} of {n_runs}, {time.perf_counter() - begun[name]:.0f} s)"
        screen.print(text, soft_wrap=True, highlight=False)

    return report
