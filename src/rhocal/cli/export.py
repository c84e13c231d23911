"""`rhocal export`: a calibrator behind a user's ONNX model, as a model of its own, as SQL or as JSON."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rhocal.cli.options import ClassAxis, Json, print_json
from rhocal.errors import FileError, InputError

if TYPE_CHECKING:
    from rhocal.onnx.export import Exported


def export(
    artifact: Annotated[
        Path, typer.Argument(metavar="CALIBRATOR", help="The file that `rhocal fit` wrote.", show_default=False)
    ],
    model: Annotated[
        Path | None,
        typer.Argument(metavar="MODEL", help="An ONNX model; without one the calibrator becomes a model of its own."),
    ] = None,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="The file to write: .onnx, .sql with --sql, or .json for any language."),
    ] = Path("calibrated.onnx"),
    sql: Annotated[
        str | None,
        typer.Option(
            "--sql", help="Write a SELECT statement for duckdb, bigquery, snowflake, postgres, spark or sqlite."
        ),
    ] = None,
    table: Annotated[
        str, typer.Option("--table", help="The table that the statement reads, with its schema before a dot.")
    ] = ("predictions"),
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            help="The table's columns of scores, in the order of the classes; unless given, as in the fit.",
        ),
    ] = None,
    keep_columns: Annotated[
        str | None, typer.Option("--keep-columns", help="Columns of the table that the statement returns too: id,day.")
    ] = None,
    scores: Annotated[
        str | None, typer.Option("--scores", help="The name of the model's output that holds the scores.")
    ] = None,
    write: Annotated[
        str, typer.Option("--write", help="Write `probs` or `logits`; `same` keeps what the output was.")
    ] = "same",
    class_axis: ClassAxis = -1,
    as_json: Json = False,
) -> None:
    """Append a calibrator to an ONNX model, or write it as SQL or JSON.

    Before an ONNX model is written, onnxruntime runs it, and its output is compared with that of rhocal. A final Softmax is
    replaced: the output stays probabilities. An output that holds the predicted class is computed from the calibrated scores.
    Names, dynamic batch and metadata stay. With --sql or -o map.json the target needs neither ONNX nor Python
    (docs/portable.md).
    """
    from rhocal.calibrators.artifact import load
    from rhocal.data.storage.atomic import check_output
    from rhocal.onnx import export as to_file
    from rhocal.onnx import save_model

    if class_axis != -1 and model is None:
        raise InputError(
            "--class-axis: this is the axis of a model's output, but no MODEL is given; a calibrator alone takes rows"
        )
    if sql is not None or output.suffix in {".sql", ".json"}:
        if scores is not None or write not in {"same", "probs"}:
            raise InputError("--scores and --write are for ONNX models; SQL and JSON hold probabilities")
        _export_text(
            artifact, model, output, sql, as_json=as_json, table=table, columns=columns, keep_columns=keep_columns
        )
        return
    if output.suffix != ".onnx":
        raise FileError(f"-o: {output} must end in .onnx, .sql or .json (--scores names an output of the model)")
    if model is None and scores is not None:
        raise InputError(f"--scores: {scores!r} would be an output of a model, but no MODEL is given")
    check_output(output, [artifact] if model is None else [artifact, model])
    cal = load(artifact)
    if model is None:
        done = save_model(cal, output, output="probs" if write == "same" else write)
    else:
        done = to_file(cal, model, output, scores=scores, write=write, class_axis=class_axis)
    if as_json:
        print_json({"file": str(output), "method": cal.label, **asdict(done)})
        return
    _show(done, output, cal.label, has_model=model is not None)


def _show(done: Exported, output: Path, method: str, *, has_model: bool) -> None:
    """Print what was written, and how it was proved."""
    replaced = f", in the place of its {done.replaced}" if done.replaced else ""
    typer.echo(
        f"saved {output}: {done.output} holds {done.holds} calibrated with {method}{replaced} (opset {done.opset})"
    )
    if done.has_decisions:
        typer.echo("outputs decided and action hold the decisions of the policy (1: automate)")
    if done.has_sets:
        typer.echo("output set holds whether each class is in the prediction set")
    if done.label:
        typer.echo(f"output {done.label} is decided from the calibrated {done.output}")
    if done.chosen:
        typer.echo(f"chosen from the calibrated {done.output}: {', '.join(done.chosen)}")
    whole = "not run: example inputs could not be generated" if done.whole_model is None else f"{done.whole_model:.1e}"
    typer.echo(
        f"{done.output} is proved with onnxruntime: largest difference in probability {done.difference:.1e} on random and "
        "extreme scores" + (f"; whole model {whole}" if has_model else "")
    )


def _export_text(
    artifact: Path, model: Path | None, output: Path, sql: str | None, *, as_json: bool, table: str, columns: str | None,
    keep_columns: str | None,
) -> None:  # fmt: skip
    """Write a calibrator as a SELECT statement, or as a program in JSON."""
    import json

    from rhocal.calibrators.artifact import load
    from rhocal.calibrators.portable import portable_map, to_sql
    from rhocal.data.storage.atomic import check_output, writing

    if model is not None:
        raise InputError(f"MODEL: {model} would be an ONNX model; SQL and JSON are written of the calibrator alone")
    if (sql is None) != (output.suffix == ".json") or (sql is not None and output.suffix != ".sql"):
        raise InputError(f"-o: {output} must end in .sql with --sql duckdb (or another dialect), and in .json without")
    check_output(output, [artifact])
    cal = load(artifact)
    if cal.policy_ is not None:
        typer.echo(
            "warning: the policy of the calibrator is not part of SQL and JSON; they hold its probabilities", err=True
        )
    names = None if columns is None else _names(columns)
    if sql is None:
        n_names = len(cal.classes_) if names is None else len(names)
        if n_names not in {1, len(cal.classes_)}:
            raise InputError(
                f"there are {len(cal.classes_)} classes and {n_names} columns",
                argument="columns",
                remedy="name one column for each class",
            )
        text = json.dumps(portable_map(cal, is_single_score=n_names < len(cal.classes_)))
    else:
        text = to_sql(cal, sql, table=table, columns=names, keep=[] if keep_columns is None else _names(keep_columns))
    with writing(output) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
    if as_json:
        print_json({"file": str(output), "method": cal.label, "holds": sql or "program", "n_characters": len(text)})
    else:
        typer.echo(f"saved {output}: {cal.label} as {'a program in JSON' if sql is None else f'SQL for {sql}'}")


def _names(text: str) -> list[str]:
    """Names that commas separate, on one line."""
    import csv

    if any(character in text for character in "\r\n"):
        raise InputError(f"names are separated by commas, on one line; got {text!r}")
    return [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
