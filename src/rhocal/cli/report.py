"""`rhocal report`: one page about a file, with and without calibrators; and what other commands need to write one."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rhocal.cli.artifacts import load_calibrators
from rhocal.cli.execution import IN_MEMORY, clusters_of
from rhocal.cli.options import (
    Arrays,
    ClustersOption,
    InputFile,
    Json,
    SpecOptions,
    ToleranceOption,
    WeightKindOption,
    grouped,
)
from rhocal.cli.top_k import top_k_of
from rhocal.errors import FileError, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rhocal.reporting.sections.provenance import Provenance

ReportOption = Annotated[Path | None, typer.Option("--report", help="Write a report too: one .html page.")]


@grouped
def report(
    source: InputFile,
    output: Annotated[Path, typer.Option("-o", "--output", help="The .html page to write.")],
    artifacts: Annotated[
        list[Path] | None,
        typer.Option("-c", "--calibrator", help="Compare with this calibrator; repeatable, the first is the headline."),
    ] = None,
    json_output: Annotated[
        Path | None,
        typer.Option("--json-output", help="Write the JSON document of the page to this file too."),
    ] = None,
    title: Annotated[str | None, typer.Option(help="The title; unless given, the name of the file.")] = None,
    groups: Annotated[
        str | None,
        typer.Option(
            "--groups", help="Slices: an array of the file, or another file; unless given, predicted classes."
        ),
    ] = None,
    *,
    clusters: ClustersOption = None,
    weight_kind: WeightKindOption = None,
    tolerance: ToleranceOption = 0.02,
    arrays: Arrays,
    spec: SpecOptions,
    seed: Annotated[int, typer.Option(help="The seed of intervals and floors.")] = 0,
    as_json: Json = False,
) -> None:
    """Write a report: verdict, metrics with floors and intervals, diagrams, slices, warnings, on one page that works offline.

    The test split is used if the file has one. Of a file of the k best classes the report is about whether the best one is
    right. The file may also be the JSON of a report; then its page is written again.
    """
    from rhocal.data.storage.atomic import check_folder
    from rhocal.evaluation.evaluate import check_tolerance
    from rhocal.metrics.inference.design import SamplingDesign
    from rhocal.reporting.document import build_document, to_json
    from rhocal.reporting.top_k import top_k_document

    check_report(output)
    if json_output is not None:
        check_folder(json_output)
    check_tolerance(tolerance, "--tolerance")
    arrays.check_weight_kind(weight_kind)
    if source.suffix == ".json" and (document := _read_document(source)) is not None:
        write(document, output, json_output, quiet=as_json)
        if as_json:
            typer.echo(to_json(document))
        return
    if source.is_file() and (top := top_k_of(source, arrays, spec, IN_MEMORY)) is not None:
        before, after = top.views(load_calibrators(artifacts or []))
        document = top_k_document(
            before,
            after,
            origin(title or source.stem, [source, *(artifacts or []), *([arrays.labels] if arrays.labels else [])]),
            groups=None if groups is None else top.beside(groups, before),
            design=SamplingDesign(weight_kind, None if clusters is None else top.beside(clusters, before)),
            tolerance=tolerance,
            seed=seed,
        )
        write(document, output, json_output, quiet=as_json)
        if as_json:
            typer.echo(to_json(document))
        return
    cals = load_calibrators(artifacts or [], source, arrays)
    first = next(iter(cals.values()), None)
    arrays = arrays.of_calibrator(first, source)
    contents = arrays.contents(source)
    stated = spec.spec(cals.values())
    if groups is None and contents.file.log is not None and "subject" in contents.file.arrays:
        groups = "subject"
    data = IN_MEMORY.open(source, arrays, stated, "test", groups)
    test, clusters = data.predictions, clusters_of(data, clusters)
    design = SamplingDesign(weight_kind)
    if clusters is not None:
        design = replace(design, clusters=IN_MEMORY.open(source, arrays, stated, "test", clusters).predictions.groups)
    has_calibration = contents.has_splits and contents.has_labels("calibration")
    document = build_document(
        test,
        cals,
        origin(title or source.stem, [source, *(artifacts or []), *([arrays.labels] if arrays.labels else [])]),
        calibration=IN_MEMORY.open(source, arrays, stated, "calibration").predictions if has_calibration else None,
        groups=test.groups,
        design=design,
        tolerance=tolerance,
        seed=seed,
    )
    write(document, output, json_output, quiet=as_json)
    if as_json:
        typer.echo(to_json(document))


def origin(title: str, paths: Sequence[Path]) -> Provenance:
    """The command being run, and the hashes of what it read."""
    from rhocal.reporting.sections.provenance import InputFile, Provenance

    return Provenance.now(title, [shlex.join(["rhocal", *sys.argv[1:]])], [InputFile.from_path(path) for path in paths])


def check_report(output: Path) -> None:
    """Raise an error for a report that cannot be written: the wrong ending, no such folder, or missing packages."""
    from rhocal.data.storage.atomic import check_folder
    from rhocal.reporting.page import check_packages

    if output.suffix not in {".html", ".htm"}:
        raise FileError(f"{output}: a report is a page; let the name end in .html")
    check_folder(output)
    check_packages()


def write(document: Mapping[str, Any], output: Path, json_output: Path | None = None, *, quiet: bool = False) -> None:
    """Write the page, and the document if asked, whole or not at all."""
    from rhocal.data.files import write_text
    from rhocal.reporting.document import to_json
    from rhocal.reporting.page import render_page

    check_report(output)
    write_text(output, render_page(document))
    if json_output is not None:
        write_text(json_output, to_json(document))
    if not quiet:
        typer.echo(f"report: {output}" + (f" and {json_output}" if json_output else ""))


def headline(methods: Mapping[str, Any]) -> str | None:
    """What a comparison is about, chosen before looking at its figures: the paper's method, if it is there."""
    return "rho-norm" if "rho-norm" in methods else None


def _read_document(path: Path) -> dict[str, Any] | None:
    """The JSON of a report; None if the file is a log."""
    from rhocal.data.formats.jsonl import is_log

    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FileError(f"{path}: not a readable JSON file: {one_line(error)}") from error
    if isinstance(document, dict) and not is_log(document):
        return document
    rows = [document] if isinstance(document, dict) else document
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise FileError(f"{path}: not a report, and no log of a language model either")
    return None
