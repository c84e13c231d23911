"""`rhocal apply`: a saved calibrator and a file of logits become a file of probabilities."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rhocal.cli.answers import load_for
from rhocal.cli.execution import BLOCKS, IN_MEMORY, ExecutionOptions, StreamOption, skipped
from rhocal.cli.options import (
    Arrays,
    ClassAxis,
    ClustersOption,
    GroupsOption,
    Json,
    SourceFile,
    SpecOptions,
    grouped,
    print_json,
)
from rhocal.cli.top_k import apply_top_k_file, refuse, top_k_of
from rhocal.errors import InputError

if TYPE_CHECKING:
    from rhocal.calibrators import Calibrator
    from rhocal.calibrators.bootstrap.replicates import Replicates
    from rhocal.data.spec import InputSpec


WITHOUT_COLUMNS = {".npy", ".safetensors"}
"""Outputs that have no room for columns of the input."""


@grouped
def apply_(
    artifact: Annotated[
        Path, typer.Argument(metavar="CALIBRATOR", help="The file that `rhocal fit` wrote.", show_default=False)
    ],
    source: SourceFile,
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", help="The file to write: .npz, .npy, .csv, .tsv, .jsonl, .parquet or .safetensors."
        ),
    ],
    write: Annotated[str, typer.Option("--write", help="Write `probs` or calibrated `logits`.")] = "probs",
    kind: Annotated[str | None, typer.Option("--kind", help="What the scores are, if not as in the fit.")] = None,
    *,
    keep_columns: Annotated[
        str | None,
        typer.Option(
            "--keep-columns",
            help="Columns or arrays of the file that are copied to the output (id,customer), or `all`.",
            show_default=False,
        ),
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option(
            "--interval",
            help="Write intervals of the probabilities with this level (0.95), by fits on resamples of --fitted-on.",
            show_default=False,
        ),
    ] = None,
    fitted_on: Annotated[
        Path | None,
        typer.Option(
            "--fitted-on", help="The file that the calibrator was fitted on, for --interval.", show_default=False
        ),
    ] = None,
    n_replicates: Annotated[int, typer.Option("--n-replicates", help="Fits on resamples, for --interval.")] = 100,
    arrays: Arrays,
    class_axis: ClassAxis = -1,
    groups: GroupsOption = None,
    clusters: ClustersOption = None,
    stream: StreamOption = None,
    restart: Annotated[
        bool,
        typer.Option("--restart", help="Discard what an interrupted run has written.", rich_help_panel=BLOCKS),
    ] = False,
    as_json: Json = False,
) -> None:
    """Apply a calibrator to a file of logits.

    The output holds the probabilities (or logits), the predicted class and the confidence of every sample, and the labels
    if the file has them; a .npy file holds the first of these. --keep-columns copies others, such as identifiers, as they
    are written in the file; those of the questions of a log are always there. The test
    split is used if the file has one. Files that are read block by block are written block by block (.npy or .safetensors);
    the same command continues an interrupted run.

    `--interval 0.95 --fitted-on data.npz` adds the bounds of every probability (probs_low, probs_high): the error of the
    fit, found by fitting again on resamples of the calibration set. --weights and --clusters are then arrays of that file;
    a calibrator that was fitted with clusters needs them.
    """
    from rhocal.calibrators.applying import WRITE, apply_source
    from rhocal.calibrators.artifact import FORMAT
    from rhocal.data.storage.atomic import check_output
    from rhocal.data.storage.container import format_of

    if write not in WRITE:
        raise InputError(f"--write is {' or '.join(WRITE)}; got {write!r}")
    check_output(output, [source, artifact])
    if format_of(source) == FORMAT and format_of(artifact) != FORMAT:
        raise InputError(f"the calibrator comes first: rhocal apply {source} {artifact} -o {output}")
    of_fit = arrays
    if interval is not None:
        arrays = replace(arrays, weights=None)  # they are those of the fit
    calibrator = load_for(artifact, source, arrays)
    execution, stated = ExecutionOptions(stream), SpecOptions(kind, None, class_axis)
    if (top := top_k_of(source, arrays, stated, execution, needs_labels=False)) is not None:
        refuse(
            source,
            {
                "--interval": interval is not None,
                "--fitted-on": fitted_on is not None,
                "--clusters": clusters is not None,
                "--groups": groups is not None,
                "--write logits": write != "probs",
                "--restart": restart,
            },
        )
        apply_top_k_file(calibrator, top, output, keep_columns, as_json=as_json)
        return
    spec = stated.spec([calibrator])
    arrays = arrays.of_calibrator(calibrator, source)
    if keep_columns is not None:
        execution.refuse({"--keep-columns": execution.streams(source, skip_bad=arrays.skip_bad)})
    scores = execution.open(source, arrays, spec, "test", groups, needs_labels=False)
    beside = {} if keep_columns is None else _other_columns(arrays, source, output, keep_columns, calibrator.classes_)
    if scores.log.log is not None:
        beside = _question_ids(arrays, source, output, calibrator.classes_) | beside
    replicates = _replicates(calibrator, interval, fitted_on, n_replicates, of_fit, spec, groups, clusters)
    with execution.progress("applying", scores) as blocks:
        document = apply_source(
            calibrator,
            blocks,
            output,
            write=write,
            restart=restart,
            beside=beside,
            replicates=replicates,
            level=interval or 0.95,
        )
    left_out = skipped(scores)
    if as_json:
        print_json({"output": str(output), "method": calibrator.label, **document, **left_out})
        return
    resumed = f" (from row {document['resumed_at']:,} on)" if document["resumed_at"] else ""
    typer.echo(f"{document['rows']:,} rows of {write}, calibrated with {calibrator.label}{resumed}: {output}")


def _question_ids(arrays: Arrays, source: Path, output: Path, classes: Any) -> dict[str, Any]:
    """The identifiers of the questions of a log, where it has them and the output has room."""
    file = arrays.contents(source, classes).file
    if "question_id" in file.arrays and output.suffix not in WITHOUT_COLUMNS:
        return {"question_id": file.copied("question_id")}
    if arrays.skip_bad:
        raise InputError(
            "--skip-bad would shift the rows of the output, and nothing in it names the questions; repair the file, or write "
            ".csv, .jsonl, .parquet or .npz from lines with a question_id"
        )
    return {}


def _replicates(
    calibrator: Calibrator,
    level: float | None,
    fitted_on: Path | None,
    n_replicates: int,
    arrays: Arrays,
    spec: InputSpec,
    groups: str | None,
    clusters: str | None,
) -> Replicates | None:
    """Fits on resamples, if intervals are wanted."""
    from rhocal.calibrators.bootstrap.replicates import bootstrap_source
    from rhocal.calibrators.correctness.rows import AnswerProbabilities
    from rhocal.data.arguments import check_level
    from rhocal.reporting import tables

    if level is None:
        for option, value in (("--fitted-on", fitted_on), ("--clusters", clusters)):
            if value is not None:
                raise InputError(f"{option} is for intervals; give their level too: --interval 0.95")
        return None
    check_level(level, "--interval", "0.95 for 95 %")
    if isinstance(calibrator, AnswerProbabilities):
        raise InputError("--interval: there are no intervals of models with --features or --subjects; leave it out")
    if fitted_on is None:
        raise InputError("--interval fits again on resamples of the calibration set; give it: --fitted-on data.npz")
    arrays = arrays.of_calibrator(calibrator, fitted_on)
    source = IN_MEMORY.open(fitted_on, arrays, spec, "calibration", groups)
    source = IN_MEMORY.with_clusters(source, clusters, fitted_on, arrays, spec)
    with tables.progress("fitting for intervals", n_replicates) as step:
        return bootstrap_source(calibrator, source, n_replicates, report=step)


def _other_columns(arrays: Arrays, source: Path, output: Path, names: str, classes: Any) -> dict[str, Any]:
    """The columns of a file that are copied to the output; of a file with two splits those of the test split."""
    if output.suffix in WITHOUT_COLUMNS:
        raise InputError(
            f"--keep-columns: {output.suffix} has no room for columns; write .csv, .jsonl, .parquet or .npz"
        )
    contents = arrays.contents(source, classes)
    used = {
        contents.names.logits,
        contents.names.labels,
        contents.names.weights,
        contents.names.groups,
        "classes",
        "kind",
    }
    columns = contents.file.arrays
    if contents.has_splits:
        ending = "_test"
        others = {name.removesuffix(ending): name for name in columns if name.endswith(ending)}
    else:
        others = {name: name for name in columns}
    others = {name: stored for name, stored in others.items() if name not in used}
    chosen = list(others) if names.strip() == "all" else [name.strip() for name in names.split(",")]
    if unknown := [name for name in chosen if name not in others]:
        raise InputError(
            f"--keep-columns: {source} has no other column {', '.join(unknown)}; there are {', '.join(others) or 'none'}"
        )
    return {name: contents.file.copied(others[name]) for name in chosen}
