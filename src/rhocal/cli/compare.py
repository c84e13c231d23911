"""`rhocal compare`: many methods over many files."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rhocal.cli.compare_files import Ledger, LogitsFile, forget_files
from rhocal.cli.compare_top_k import TopKNetwork
from rhocal.cli.execution import ExecutionOptions
from rhocal.cli.fit import for_options
from rhocal.cli.options import (
    Arrays,
    ClustersOption,
    IgnoreIndex,
    Json,
    KeepDecision,
    KindOption,
    PositiveOption,
    grouped,
    print_json,
)
from rhocal.cli.report import ReportOption, check_report, headline, origin, write
from rhocal.cli.top_k import holds_top_k, refuse
from rhocal.errors import InputError, RhocalWarning

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rhocal.data.formats.base import StoredFile
    from rhocal.evaluation.compare import CalibrationSplit
    from rhocal.evaluation.models import ModelComparison
    from rhocal.evaluation.rows import Row

NO_DIFFERENCES = (
    "ties with the best are not tested: rows of an earlier run, or of too many networks, have no samples to compare on"
)


ANSWERS, OTHERS = "answers that are right or wrong", "options and classes"


@grouped
def compare(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Files of logits and labels; a folder of Parquet files or a pattern in quotes is one network.",
            show_default=False,
        ),
    ],
    *,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Methods, separated by commas, or `all`. The default is a few that are fitted in seconds; with two classes "
            "there are more of them.",
            show_default=False,
        ),
    ] = None,
    keep_decision: KeepDecision = False,
    seeds: Annotated[int, typer.Option(min=1, help="Number of random halvings of files without a test split.")] = 5,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write one row per network, split and method (.csv).")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Keep the rows of the output file that are of the same data, and run what is missing."
        ),
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Number of processes; each takes a file and split at a time.")] = 1,
    models: Annotated[
        bool,
        typer.Option(
            "--models",
            help="Compare the files with each other too, as models of the same samples in the same order. Logs of the same "
            "questions are always compared.",
        ),
    ] = False,
    report: ReportOption = None,
    per_network: Annotated[bool, typer.Option("--per-network", help="Print a table for each network too.")] = False,
    kind: KindOption = None,
    positive: PositiveOption = None,
    clusters: ClustersOption = None,
    ignore_index: IgnoreIndex = None,
    arrays: Arrays,
    execution: ExecutionOptions,
    as_json: Json = False,
) -> None:
    """Compare methods: fit each on a calibration set and measure it on a test set.

    Unless methods are named, these are identity, temperature, rho-norm, field, svs, svs:field and cascade, and if all files
    have two classes quadratic, beta, centered-isotonic and venn-abers too; `--methods all` compares all.

    The two splits of a file are used if it has them; other files are cut into random halves, once for each seed; samples of a
    cluster (--clusters, or a log whose questions occur more than once) stay together. A
    report is about one file and its last split. Files that are read block by block are read twice, whatever the number of
    methods and seeds; methods that need all rows are fitted on a subsample, and their rows have a note. Of files of the k best
    classes methods that scale are compared.
    """
    from rhocal.calibrators import calibrator
    from rhocal.evaluation.compare import network_names, run, split_by_seed
    from rhocal.reporting import tables

    _check(paths, output, report, arrays, resume=resume)
    forget_files()
    are_streamed = any(execution.streams(path, skip_bad=arrays.skip_bad) for path in paths)
    execution.refuse({"--report": report is not None and are_streamed})
    networks = dict(zip(network_names(paths), paths, strict=True))
    files: Sequence[LogitsFile | TopKNetwork]
    if any(of_top_k := [holds_top_k(path, arrays) for path in paths]):
        refuse_for_top_k_files(paths, of_top_k, report, kind, positive)
        files = [TopKNetwork(path, name, arrays, execution, clusters, ignore_index) for name, path in networks.items()]
    else:
        files = [
            LogitsFile(path, name, arrays, kind, execution, positive, clusters, ignore_index)
            for name, path in networks.items()
        ]
    names = method_names(methods, files)
    if keep_decision:
        names = keeping_methods(names, are_named=methods not in {None, "all"})
    for name in names:
        calibrator(name)  # an unknown name is an error now, not after an hour
    side_by_side = model_comparison(files, is_stated=models)
    ledger = Ledger(output, names, files, resume=resume)
    resident = sorted((file for file in files if not file.streams), key=lambda file: -file.n_bytes)
    has_keys = output is not None  # where rows are kept, a later run compares what they were computed from
    tasks = [task for file in resident for task in file.tasks(names, seeds, ledger.done, has_keys=has_keys)]
    with tables.progress("fitting", sum(task.n_fits for task in tasks)) as step:
        try:
            for new in run(tasks, jobs):
                ledger.keep(new)
                for row in new:
                    step(f"{row.network}, {row.method}")
        finally:  # an interrupted run keeps what it has
            ledger.write()
    for file in files:
        if file.streams:
            for task in file.tasks(names, seeds, ledger.done, has_keys=has_keys):
                ledger.keep(list(task.rows()))
            ledger.write()
    beside = show_models(side_by_side, as_json=as_json)
    show_comparison(ledger.ordered, outcomes(files), output=output, per_network=per_network, as_json=as_json, **beside)
    if report is not None and isinstance(first := files[0], LogitsFile):
        split = split_by_seed(*first.open(), seeds - 1)
        write_report(report, paths[0], split, ledger.ordered, first.stored, quiet=as_json)


def method_names(stated: str | None, files: Sequence[LogitsFile | TopKNetwork]) -> list[str]:
    """The methods that are named, else those that files of this sort are compared with."""
    from rhocal.calibrators import CALIBRATORS, ScaleCalibrator
    from rhocal.evaluation.compare import default_methods
    from rhocal.evaluation.top_k import TOP_K_METHODS

    if stated is not None and stated != "all":
        return [name.strip() for name in stated.split(",")]
    are_top_k = isinstance(files[0], TopKNetwork)
    if stated == "all":
        return [name for name, line in CALIBRATORS.items() if not are_top_k or issubclass(line.family, ScaleCalibrator)]
    if are_top_k:
        return list(TOP_K_METHODS)
    n_classes = 2 if all(file.n_classes == 2 for file in files) else 0
    return default_methods(n_classes, holds_options=any(file.holds_options for file in files))


def refuse_for_top_k_files(
    paths: list[Path], of_top_k: list[bool], report: Path | None, kind: str | None, positive: str | None
) -> None:
    """Raise an error for what a comparison on the k best classes has no use for."""
    if not all(of_top_k):
        other = paths[of_top_k.index(False)]
        raise InputError(
            f"{paths[of_top_k.index(True)]} holds the k best classes and {other} does not; compare files of one sort"
        )
    refuse(paths[0], {"--report": report is not None, "--kind": kind is not None, "--positive": positive is not None})


def model_comparison(files: Sequence[LogitsFile | TopKNetwork], *, is_stated: bool) -> ModelComparison | None:
    """The files as models of the same samples: if that is stated, or if they are logs with common questions."""
    from rhocal.evaluation.models import compare_models

    if len(files) < 2:
        if is_stated:
            raise InputError("--models compares files with each other; got one")
        return None
    answers = {file.network: file.answers for file in files}
    known = {name: part for name, part in answers.items() if part is not None}
    has_ids = len(known) == len(files) and all(part.question_id is not None for part in known.values())
    if not is_stated and not has_ids:
        return None
    if len(known) < len(files):
        raise InputError(
            "--models needs the files in memory, but they are read block by block; --no-stream reads them whole"
        )
    if not has_ids:
        known = {name: replace(part, question_id=None) for name, part in known.items()}
        sizes = {part.data.n_samples for part in known.values()}
        if len(sizes) > 1:
            raise InputError(
                f"--models: files without question_id need the same samples in the same order; they have {sizes}"
            )
        kept = [None if part.data.rows is None else part.data.rows.tolist() for part in known.values()]
        if any(rows != kept[0] for rows in kept):
            raise InputError(
                "--models with --ignore-index: files without question_id need the same samples in the same order, but other "
                "samples are left out of each"
            )
    try:
        return compare_models(known)
    except InputError as error:
        if is_stated:
            raise
        typer.echo(f"models are not compared with each other: {error.message}", err=True)
        return None


def show_models(side_by_side: ModelComparison | None, *, as_json: bool) -> dict[str, Any]:
    """Print models side by side, or return what the JSON has of them."""
    from rhocal.reporting import tables

    if side_by_side is None:
        return {}
    if not as_json:
        screen = tables.console()
        screen.print(tables.models(side_by_side))
        for sentence in tables.model_differences(side_by_side):
            screen.print(sentence)
    return {"models": side_by_side.to_dict()}


def keeping_methods(names: list[str], *, are_named: bool) -> list[str]:
    """The methods that never change the predicted class; an error if one that was named may."""
    from rhocal.calibrators import calibrator

    kept = [name for name in names if calibrator(name).keeps_decision]
    if are_named and len(kept) < len(names):
        others = ", ".join(name for name in names if name not in kept)
        raise InputError(f"--keep-decision: {others} may change the predicted class; leave it out of --methods")
    return kept if are_named else [*kept, *(name for name in ("cascade-order", "cascade-top") if name not in kept)]


def _check(sources: list[Path], output: Path | None, report: Path | None, arrays: Arrays, *, resume: bool) -> None:
    """Raise an error for options that exclude each other, before any work."""
    from rhocal.data.storage.atomic import check_output

    if report is not None:
        check_report(report)
    if output is not None:
        check_output(output, sources)
    if resume and output is None:
        raise InputError("--resume continues the rows of a file; name it with -o")
    if report is not None and len(sources) > 1:
        raise InputError(f"--report is about one file; got {len(sources)}")
    if arrays.labels is not None and len(sources) > 1:
        raise InputError(f"--labels belongs to one file of logits; got {len(sources)}")


def write_report(
    target: Path, source: Path, split: CalibrationSplit, rows: list[Row], file: StoredFile, *, quiet: bool
) -> None:
    """Write the report on the last split; the calibrators that could be fitted are fitted again."""
    from rhocal.calibrators import calibrator
    from rhocal.calibrators.validated_fit import fit_validated
    from rhocal.metrics.inference.design import SamplingDesign
    from rhocal.reporting.document import build_document

    calibration, test = split.calibration.predictions, split.test.predictions
    notes = {row.method: row.note for row in rows if row.split == split.name and not row.failed}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhocalWarning)  # they are in the notes
        chosen = {
            name: fit_validated(for_options(calibrator(name), file, ()), calibration, kind="logits") for name in notes
        }
    provenance, main = origin(source.stem, [source]), headline(chosen)
    design = SamplingDesign.from_weights(test.weights)
    document = build_document(
        test, chosen, provenance, calibration=calibration, headline=main, notes=notes, design=design
    )
    write(document, target, quiet=quiet)


def outcomes(files: Sequence[LogitsFile | TopKNetwork]) -> dict[str, str]:
    """What the probabilities of each file are of; means over different outcomes have no meaning."""
    return {file.network: ANSWERS if file.holds_answers else OTHERS for file in files}


def show_comparison(
    rows: list[Row],
    outcome_of: Mapping[str, str] | None = None,
    *,
    output: Path | None,
    per_network: bool,
    as_json: bool,
    **beside: Any,
) -> None:
    """Write the rows, and print their summary; ``beside`` are further entries of the JSON.

    Options and answers that are right or wrong have tables of their own: their NLL and Brier scores are of other outcomes.
    """
    from rhocal.evaluation.rows import write_rows
    from rhocal.reporting import tables

    if output is not None:
        write_rows(output, [row.flat() for row in rows])
    parts: dict[str, list[Row]] = {}
    for row in rows:
        parts.setdefault((outcome_of or {}).get(row.network, OTHERS), []).append(row)
    if as_json:
        documents = {name: _document(part) for name, part in parts.items()}
        first = next(iter(documents.values()), {}) if len(documents) < 2 else {"by_outcome": documents}
        print_json({**first, "rows": [row.flat() for row in rows], **beside})
        return
    for name, part in parts.items():
        _show_part(part, f"{name}: " if len(parts) > 1 else "", per_network=per_network)
    if output is not None:
        tables.console().print(f"one row per network, split and method: {output}")


def _document(rows: list[Row]) -> dict[str, Any]:
    """The summary of rows, and the differences to the best, as JSON."""
    from rhocal.evaluation.best import differences_to_best
    from rhocal.evaluation.rows import averaged, summary

    lines, shared = summary(rows), averaged(rows)
    to_best = differences_to_best(rows, lines, shared)
    by_method = {
        line["method"]: {
            metric: differences[line["method"]].to_dict()
            for metric, differences in to_best.items()
            if line["method"] in differences
        }
        for line in lines
    }
    return {"summary": lines, "to_best": by_method}


def _show_part(rows: list[Row], prefix: str, *, per_network: bool) -> None:
    """Print the summary of rows whose outcomes can be averaged."""
    from rhocal.evaluation.best import differences_to_best
    from rhocal.evaluation.rows import averaged, summary
    from rhocal.evaluation.ties import ties
    from rhocal.reporting import tables

    lines, shared = summary(rows), averaged(rows)
    to_best = differences_to_best(rows, lines, shared)
    screen = tables.console()
    networks = list(dict.fromkeys(row.network for row in rows))
    if per_network and len(networks) > 1:
        for network in networks:
            mine = [row for row in rows if row.network == network]
            own = summary(mine)
            screen.print(tables.comparison(own, network, differences_to_best(mine, own, [network])))
    what = networks[0] if len(networks) == 1 else f"mean over {len(shared)} networks"
    n_splits = len({(row.network, row.split) for row in rows})
    marks = "* best, = tied with it" if to_best else "* best"
    title = f"{prefix}{what}, {n_splits} split{'s' if n_splits > 1 else ''} ({marks}, ± sd of splits)"
    screen.print(tables.comparison(lines, title, to_best))
    for sentence in ties(to_best, lines):
        screen.print(sentence)
    if not to_best and len(lines) > 1:
        screen.print(NO_DIFFERENCES)
    if len(shared) < len(networks):
        screen.print(
            f"not in the means, because some method has no result there: {', '.join(set(networks) - set(shared))}"
        )
    for note in dict.fromkeys(_note(row) for row in rows if row.note):
        screen.print(f"note: {note}")


def _note(row: Row) -> str:
    """The note of a row; its sentences may begin with the method, which is named once."""
    sentences = "; ".join(part.removeprefix(f"{row.method}: ") for part in row.note.split("; "))
    return f"{row.network}, {row.method}: {sentences}"
