"""The front desk: arguments in, one library call, a table or JSON out. Bad input is one clear line and exit code 2."""

from __future__ import annotations

import json
import math
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rhocal._version import __version__
from rhocal.errors import RhocalError, RhocalWarning

if TYPE_CHECKING:
    from rhocal.calibrators import Calibrator
    from rhocal.compare import Row
    from rhocal.files import Contents, Split
    from rhocal.predictions import Kind

app = typer.Typer(
    name="rhocal",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Make a classifier's confidence trustworthy: from a file of logits to calibrated probabilities.\n\n"
    "Files: .npz, .npy, .csv, .parquet, .safetensors, .pt. Arrays: `logits` and `labels`, or `logits_val`, "
    "`labels_val`, `logits_test`, `labels_test`.",
)

# The options that several commands share ----------------------------------------------------------------------------

InputFile = Annotated[Path, typer.Argument(metavar="FILE", help="A file of logits and labels.", show_default=False)]
KindOption = Annotated[str, typer.Option("--kind", help="What the numbers are: logits, probs or log_probs.")]
LabelsOption = Annotated[
    Path | None, typer.Option("--labels", help="A second file with the labels, for .npy and files without them.")
]
LogitsName = Annotated[str, typer.Option("--logits-name", help="The name of the array or column of logits.")]
LabelsName = Annotated[str, typer.Option("--labels-name", help="The name of the array or column of labels.")]
IgnoreIndex = Annotated[int | None, typer.Option("--ignore-index", help="Leave out samples with this label (-100).")]
ClassAxis = Annotated[int, typer.Option("--class-axis", help="The axis of the classes, 1 for (N, C, H, W).")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of a table.")]


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", is_eager=True, help="Print the version and stop.")] = False,
) -> None:
    """Print the version, or leave it to the command."""
    if version:
        typer.echo(f"rhocal {__version__}")
        raise typer.Exit


@app.command()
def fit(
    tune: InputFile,
    output: Annotated[Path, typer.Option("-o", "--output", help="The .safetensors file to write.")],
    method: Annotated[str, typer.Option("-m", "--method", help="A method; `rhocal methods` lists them.")] = "rho-norm",
    option: Annotated[
        list[str] | None, typer.Option("-O", "--option", help="An option of the method as NAME=VALUE; repeatable.")
    ] = None,
    kind: KindOption = "logits",
    labels: LabelsOption = None,
    logits_name: LogitsName = "logits",
    labels_name: LabelsName = "labels",
    ignore_index: IgnoreIndex = None,
    class_axis: ClassAxis = -1,
    as_json: Json = False,
) -> None:
    """Fit a calibrator on held-out logits and labels, and save it.

    If the file has a tune and a test split, the tune split is used.
    """
    from rhocal import metrics, tables
    from rhocal.calibrators import calibrator
    from rhocal.predictions import predictions

    contents = _read(tune, labels, logits_name, labels_name)
    split = contents.for_tuning()
    cal = calibrator(method, **_options(option or []))
    said: dict[str, Any] = {
        "kind": _kind(kind),
        "ignore_index": ignore_index,
        "class_axis": class_axis,
        "classes": contents.classes,
    }
    cal.fit(split.logits, split.labels, **said)
    cal.save(output)
    data = predictions(split.logits, split.labels, **said)
    before, after = (
        metrics.figures(data),
        metrics.figures(predictions(cal.transform(data.logits, kind="logits"), data.labels)),
    )
    document = {
        "method": method,
        "output": str(output),
        "n_samples": data.n_samples,
        "n_classes": data.n_classes,
        "n_ignored": data.n_ignored,
        "n_clipped": data.n_clipped,
        "parameters": _parameters(cal),
        "objective": cal.solution_.objective,
        "value": cal.solution_.value,
        "converged": cal.solution_.converged,
        "at_bound": cal.solution_.at_bound,
        "trials": list(cal.solution_.trials),
        "tune": {"before": before, "after": after},
    }
    if as_json:
        _print_json(document)
        return
    screen = tables.console()
    screen.print(tables.pairs({"method": method, **_parameters(cal), "objective": cal.solution_.objective}, "fitted"))
    screen.print(
        tables.figures({"before": before, "after": after}, f"on the {data.n_samples:,} tune samples themselves")
    )
    screen.print(f"saved {output}; measure it on other data with: rhocal evaluate OTHER -c {output}")


@app.command("apply")
def apply_(
    artifact: Annotated[Path, typer.Argument(help="A calibrator saved by `rhocal fit`.", show_default=False)],
    source: InputFile,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The file to write: .npz, .npy, .csv or .safetensors.")
    ],
    what: Annotated[str, typer.Option("--write", help="Write `probs` or calibrated `logits`.")] = "probs",
    kind: Annotated[str | None, typer.Option("--kind", help="What the numbers are, if not as in the fit.")] = None,
    logits_name: LogitsName = "logits",
    labels_name: LabelsName = "labels",
    class_axis: ClassAxis = -1,
    as_json: Json = False,
) -> None:
    """Calibrate a file of logits: probabilities, predicted class and confidence of every sample.

    If the file has a tune and a test split, the test split is used.
    """
    import numpy as np

    from rhocal import files
    from rhocal.artifact import load
    from rhocal.errors import InputError

    if what not in {"probs", "logits"}:
        raise InputError(f"--write is probs or logits; got {what!r}")
    cal = load(artifact)
    split = _read(source, None, logits_name, labels_name).for_testing()
    said: dict[str, Any] = {"kind": None if kind is None else _kind(kind), "class_axis": class_axis}
    probs = cal.predict_proba(split.logits, **said)
    arrays = {what: probs if what == "probs" else cal.transform(split.logits, **said)}
    arrays["predicted"] = cal.predict(split.logits, **said)
    arrays["confidence"] = probs.max(axis=class_axis)
    if split.labels is not None:
        arrays["labels"] = np.asarray(split.labels)
    files.write_arrays(output, arrays)
    document = {"output": str(output), "shape": list(probs.shape), "arrays": list(arrays), "method": cal.name}
    if as_json:
        _print_json(document)
    else:
        typer.echo(f"{' × '.join(f'{n:,}' for n in probs.shape)} {what}, calibrated with {cal.name}: {output}")


@app.command()
def evaluate(
    source: InputFile,
    artifact: Annotated[Path | None, typer.Option("-c", "--calibrator", help="Compare with this calibrator.")] = None,
    kind: KindOption = "logits",
    labels: LabelsOption = None,
    logits_name: LogitsName = "logits",
    labels_name: LabelsName = "labels",
    ignore_index: IgnoreIndex = None,
    class_axis: ClassAxis = -1,
    as_json: Json = False,
) -> None:
    """Measure calibration: as the numbers are, and with a calibrator if one is given.

    If the file has a tune and a test split, the test split is used.
    """
    from rhocal import metrics, tables
    from rhocal.artifact import load
    from rhocal.predictions import predictions

    contents = _read(source, labels, logits_name, labels_name)
    split = _with_labels(contents)
    cal = None if artifact is None else load(artifact)
    data = predictions(
        split.logits,
        split.labels,
        classes=contents.classes if cal is None else cal.classes_,
        kind=_kind(kind),
        ignore_index=ignore_index,
        class_axis=class_axis,
    )
    columns = {"as it is": metrics.figures(data)}
    if cal is not None:
        columns[cal.name] = metrics.figures(predictions(cal.transform(data.logits, kind="logits"), data.labels))
    if as_json:
        _print_json({"n_samples": data.n_samples, "n_classes": data.n_classes, "figures": columns})
        return
    tables.console().print(tables.figures(columns, f"{source}: {data.n_samples:,} samples, {data.n_classes} classes"))


@app.command()
def compare(
    sources: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Files of logits and labels.", show_default=False)
    ],
    methods: Annotated[str, typer.Option(help="Methods, separated by commas, or `all`.")] = "all",
    seeds: Annotated[int, typer.Option(min=1, help="Random halvings of files without a split of their own.")] = 5,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write one row per network, split and method (.csv).")
    ] = None,
    per_network: Annotated[bool, typer.Option("--per-network", help="A table for each network too.")] = False,
    kind: KindOption = "logits",
    logits_name: LogitsName = "logits",
    labels_name: LabelsName = "labels",
    as_json: Json = False,
) -> None:
    """Compare methods: fit each on the tune half and measure it on the test half.

    A file with a tune and a test split is used as it is; other files are cut into random halves, once for each seed.
    """
    from rhocal import compare as comparing
    from rhocal import tables
    from rhocal.calibrators import CALIBRATORS, calibrator

    names = list(CALIBRATORS) if methods == "all" else [name.strip() for name in methods.split(",")]
    chosen = {name: calibrator(name) for name in names}
    cut = [
        (path.stem, pair)
        for path in sources
        for pair in comparing.splits(_read(path, None, logits_name, labels_name), seeds, _kind(kind))
    ]
    rows: list[Row] = []
    with tables.progress("fitting", len(cut) * len(chosen)) as step:
        for network, pair in cut:
            for row in comparing.compare(network, pair, chosen):
                rows.append(row)
                step(f"{network}, {row.method}")
    _report(rows, output=output, per_network=per_network, as_json=as_json)


@app.command("methods")
def methods_(as_json: Json = False) -> None:
    """List the methods, with the options that `rhocal fit -O` takes."""
    from rich.table import Table

    from rhocal import tables
    from rhocal.calibrators import CALIBRATORS

    listed = [
        {
            "method": name,
            "summary": method.summary,
            "keeps_decision": method.family.keeps_decision,
            "options": {key: str(value) for key, value in method.family(**method.options).get_params().items()},
        }
        for name, method in CALIBRATORS.items()
    ]
    if as_json:
        _print_json({"methods": listed})
        return
    table = Table("method", "what it does", "keeps the decision", "options")
    for line in listed:
        options = ", ".join(line["options"])  # type: ignore[arg-type]
        table.add_row(line["method"], line["summary"], "yes" if line["keeps_decision"] else "no", options)  # type: ignore[arg-type]
    tables.console().print(table)


@app.command()
def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder for what the demo writes.")] = Path(
        "rhocal-demo"
    ),
    as_json: Json = False,
) -> None:
    """Compare all methods on the logits shipped with rhocal: a small residual network on CIFAR-10."""
    from importlib.resources import as_file

    from rhocal import calibrator, tables
    from rhocal import compare as comparing
    from rhocal.calibrators import CALIBRATORS
    from rhocal.demo import demo_file

    with as_file(demo_file()) as path:
        (pair,) = comparing.splits(_read(path, None, "logits", "labels"), 1)
    rows: list[Row] = []
    with tables.progress("fitting", len(CALIBRATORS)) as step:
        for row in comparing.compare("demo", pair, {name: calibrator(name) for name in CALIBRATORS}):
            rows.append(row)
            step(row.method)
    output.mkdir(parents=True, exist_ok=True)
    cal = calibrator("rho-norm").fit(pair.tune.logits, pair.tune.labels)
    cal.save(output / "rho-norm.safetensors")
    _report(rows, output=output / "comparison.csv", per_network=False, as_json=as_json)
    if not as_json:
        typer.echo(f"the fitted rho-norm calibrator: {output / 'rho-norm.safetensors'}")


def main() -> None:
    """Run the command line; an error of ours is one line and exit code 2."""
    warnings.simplefilter("always", RhocalWarning)
    warnings.showwarning = _show_warning
    try:
        app()
    except RhocalError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(141)  # the reader of our output went away (`rhocal methods | head`)


# Small steps between the commands and the library -------------------------------------------------------------------


def _read(path: Path, labels: Path | None, logits_name: str, labels_name: str) -> Contents:
    from rhocal.files import Names, read

    return read(path, Names(logits_name, labels_name), labels)


def _with_labels(contents: Contents) -> Split:
    from rhocal.errors import FileError

    split = contents.for_testing()
    if split.labels is None:
        raise FileError(f"{contents.path}: no labels to measure against; name them with --labels or --labels-name")
    return split


def _kind(kind: str) -> Kind:
    return kind  # type: ignore[return-value]  # the border checks it and says what is allowed


def _options(texts: list[str]) -> dict[str, Any]:
    """NAME=VALUE with VALUE read as JSON where it is JSON, else as text."""
    from rhocal.errors import InputError

    options: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"-O takes NAME=VALUE; got {text!r}")
        try:
            options[name.strip().replace("-", "_")] = json.loads(value)
        except ValueError:
            options[name.strip().replace("-", "_")] = value
    return options


def _parameters(cal: Calibrator) -> dict[str, Any]:
    """The fitted numbers; of arrays, their shape."""
    import numpy as np

    found = {}
    for name in cal.parameters:
        value = getattr(cal, name)
        found[name.rstrip("_")] = f"array of shape {value.shape}" if isinstance(value, np.ndarray) else value
    return found


def _report(rows: list[Row], *, output: Path | None, per_network: bool, as_json: bool) -> None:
    from rhocal import compare as comparing
    from rhocal import tables

    if output is not None:
        comparing.write_rows(output, [row.flat() for row in rows])
    lines = comparing.summary(rows)
    if as_json:
        _print_json({"summary": lines, "rows": [row.flat() for row in rows]})
        return
    screen = tables.console()
    networks = list(dict.fromkeys(row.network for row in rows))
    if per_network and len(networks) > 1:
        for network in networks:
            mine = [row for row in rows if row.network == network]
            screen.print(tables.comparison(comparing.summary(mine), network))
    what = networks[0] if len(networks) == 1 else f"mean over {len(networks)} networks"
    n_splits = len({(row.network, row.split) for row in rows})
    screen.print(
        tables.comparison(lines, f"{what}, {n_splits} split{'s' if n_splits > 1 else ''} (* best, ± sd of splits)")
    )
    for note in dict.fromkeys(f"{row.network}, {row.method}: {row.note}" for row in rows if row.note):
        screen.print(f"note: {note}")
    if output is not None:
        screen.print(f"one row per network, split and method: {output}")


def _print_json(document: dict[str, Any]) -> None:
    typer.echo(json.dumps(_strict(document), indent=2, ensure_ascii=False))


def _strict(value: Any) -> Any:
    """NaN and infinity are not JSON; they become null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return value


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    label = "warning" if issubclass(category, RhocalWarning) else category.__name__
    typer.echo(f"{label}: {message}", err=True)
