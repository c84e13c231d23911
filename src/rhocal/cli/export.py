"""`rhocal export`: a calibrator behind a user's ONNX model, or as a model of its own."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from rhocal.cli.options import ClassAxis, Json, print_json
from rhocal.errors import FileError, InputError


def export(
    artifact: Annotated[Path, typer.Argument(help="A calibrator saved by `rhocal fit`.", show_default=False)],
    model: Annotated[
        Path | None, typer.Argument(help="An ONNX model; without one the calibrator becomes a model of its own.")
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="The .onnx file to write.")] = Path("calibrated.onnx"),
    scores: Annotated[
        str | None, typer.Option("--scores", help="The name of the model's output that holds the scores.")
    ] = None,
    write: Annotated[
        str, typer.Option("--write", help="Write `probs` or `logits`; `same` keeps what the output was.")
    ] = "same",
    class_axis: ClassAxis = -1,
    as_json: Json = False,
) -> None:
    """Append a calibrator to an ONNX model, check the result, and prove it with onnxruntime before it is written.

    A final Softmax is replaced: the output stays probabilities. An output that holds the predicted class is decided again.
    Names, dynamic batch and metadata stay.
    """
    from rhocal.calibrators.artifact import load
    from rhocal.data.atomic import check_output
    from rhocal.onnx import export as to_file
    from rhocal.onnx import save_model

    if output.suffix != ".onnx":
        raise FileError(f"-o: {output} must end in .onnx (--scores names an output of the model)")
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
    replaced = f", in the place of its {done.replaced}" if done.replaced else ""
    typer.echo(
        f"saved {output}: {done.output} holds {done.holds} calibrated with {cal.label}{replaced} (opset {done.opset})"
    )
    if done.has_decisions:
        typer.echo("outputs decided and action hold the decisions of the policy (1: automate)")
    if done.has_sets:
        typer.echo("output set holds whether each class is in the prediction set")
    if done.label:
        typer.echo(f"output {done.label} is decided from the calibrated {done.output}")
    whole = "not run: example inputs could not be generated" if done.whole_model is None else f"{done.whole_model:.1e}"
    typer.echo(
        f"proved with onnxruntime: largest difference in probability {done.difference:.1e} on random and extreme scores"
        + ("" if model is None else f"; whole model {whole}")
    )
