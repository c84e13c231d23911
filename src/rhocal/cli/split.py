"""`rhocal split`: one file of logits and labels becomes one with a calibration and a test split."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rhocal.cli.options import FILE, Arrays, InputFile, Json, grouped, input_spec, print_json
from rhocal.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.data.files import Contents


ONE_FILE = (".npz", ".safetensors")
"""Formats in which arrays may differ in length."""

TABLES = (".csv", ".tsv", ".jsonl", ".parquet")
"""Formats with a row for each sample: each split is a file of its own."""


@grouped
def split(
    source: InputFile,
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            help="The file to write, .npz or .safetensors; for x.csv, .tsv, .jsonl or .parquet the files x_val and x_test.",
        ),
    ],
    share: Annotated[float, typer.Option("--cal", help="The share of the samples in the calibration split.")] = 0.5,
    seed: Annotated[int, typer.Option(help="The seed of the random order.")] = 0,
    *,
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            help="What the numbers are: logits, probs or log_probs. It is kept in the file (.npz, .safetensors), and other "
            "commands read it there.",
            rich_help_panel=FILE,
            show_default=False,
        ),
    ] = None,
    arrays: Arrays,
    as_json: Json = False,
) -> None:
    """Cut a file at random into a calibration and a test split, as the other commands take them.

    Every array or column with one value a sample is cut; identifiers, dates and other columns stay as they are
    written. Scores are copied as they are, logits or probabilities. In the output they are named logits (or
    logits_CLASS) and labels, so that --columns and --labels-name are not needed for it.
    """
    import numpy as np

    from rhocal.data.formats import write_arrays
    from rhocal.data.storage.atomic import check_output

    if output.suffix not in {*ONE_FILE, *TABLES}:
        raise InputError(f"{output}: a split is written to {', '.join((*ONE_FILE, *TABLES))}")
    outputs = _outputs(output)
    for path in outputs.values():
        check_output(path, [source])
    contents = arrays.contents(source)
    if contents.has_splits:
        raise InputError(f"{source} has two splits already")
    whole = contents.calibration_set()
    n = whole.n_rows
    n_calibration = round(share * n)
    if not 0 < n_calibration < n:
        raise InputError(f"--cal must leave samples on both sides; {share} of {n:,} are {n_calibration:,}")
    order = np.random.default_rng(seed).permutation(n)
    halves = {"val": order[:n_calibration], "test": order[n_calibration:]}
    values = _all_arrays(contents, arrays) | _stated_kind(kind, output)
    is_cut = {name: bool(array.ndim) and len(array) == n and name != "classes" for name, array in values.items()}
    if output.suffix in TABLES:
        _refuse_other_shapes(output, {name: array for name, array in values.items() if name != "classes"}, is_cut)
        for half, rows in halves.items():
            write_arrays(outputs[half], {name: a[rows] if is_cut[name] else a for name, a in values.items()})
    else:
        parts: dict[str, Any] = {}
        for name, array in values.items():
            new = {f"{name}_{half}": array[rows] for half, rows in halves.items()} if is_cut[name] else {name: array}
            if twice := [one for one in new if one in parts]:
                raise InputError(f"{source}: two arrays would be written as {twice[0]!r}; rename one of them")
            parts |= new
        write_arrays(output, parts)
    written = list(dict.fromkeys(str(path) for path in outputs.values()))
    if as_json:
        document = {"output": written[0] if len(written) == 1 else written, "n_calibration": n_calibration}
        print_json({**document, "n_test": n - n_calibration, "seed": seed})
    else:
        text = f"{n_calibration:,} calibration samples, {n - n_calibration:,} test samples"
        typer.echo(f"{text}: {', '.join(written)}")


def _stated_kind(kind: str | None, output: Path) -> dict[str, NDArray[Any]]:
    """The kind as an array of the output; a table has no room for it."""
    import numpy as np

    if kind is None:
        return {}
    input_spec(kind)  # validates it
    if output.suffix in TABLES:
        raise InputError(
            f"--kind: {output.suffix} files do not keep it; write .npz, or state --kind with the commands that follow"
        )
    return {"kind": np.array([kind])}


def _outputs(output: Path) -> dict[str, Path]:
    """The file of each split."""
    if output.suffix in ONE_FILE:
        return {"val": output, "test": output}
    return {half: output.with_stem(f"{output.stem}_{half}") for half in ("val", "test")}


def _refuse_other_shapes(output: Path, values: dict[str, NDArray[Any]], is_cut: dict[str, bool]) -> None:
    """Raise an error for arrays that a table would lose."""
    for name, array in values.items():
        if not is_cut[name] or array.ndim > 2:
            raise InputError(f"{output}: {name} of shape {array.shape} does not go into a table; write .npz")


def _all_arrays(contents: Contents, arrays: Arrays) -> dict[str, NDArray[Any]]:
    """All arrays of a file, columns of classes in order and with their names."""
    import numpy as np

    from rhocal.data.columns import match_columns
    from rhocal.data.formats.base import read_all
    from rhocal.data.formats.copies import storable
    from rhocal.data.labels.columns import label_values
    from rhocal.data.spec import InputSpec

    file, names = contents.file, contents.names
    used = {names.logits, names.labels, names.weights}  # read as numbers; others are copied as they were written
    values = {
        name: storable(read_all(array, file.path)) if name in used else file.copied(name)
        for name, array in file.arrays.items()
    }
    if contents.labels is not None:
        values[names.labels] = np.asarray(contents.labels)
    spec = arrays.stated(InputSpec(), InputSpec(classes=contents.classes, columns=contents.file.columns))
    if contents.file.columns is not None and "classes" in values:
        raise InputError(
            f"{contents.file.path}: a column called classes would be taken for the names of classes; rename it"
        )
    if spec.columns is not None and len(spec.columns) == 1:
        values[names.logits] = values[names.logits].reshape(-1)
        if (two := _two_classes(spec.columns[0], spec.classes, values.get(names.labels))) is not None:
            values["classes"] = two
    elif spec.columns is not None:
        columns, classes = match_columns(spec.columns, spec.classes, label_values(values.get(names.labels), None))
        if columns is not None:
            values[names.logits] = values[names.logits][:, columns]
        if classes is not None:
            values["classes"] = classes
    used_arrays = {"logits": values.pop(names.logits), "labels": values.pop(names.labels)}
    for name, stored in (("logits", names.logits), ("labels", names.labels)):
        if name in values:
            raise InputError(
                f"{contents.file.path}: {stored} and {name} would both be written as {name!r}; rename {name}"
            )
    return used_arrays | values


def _two_classes(name: str, classes: Any, labels: Any) -> NDArray[Any] | None:
    """The two classes, second the one that a single column of scores is named after; None if it is named after none."""
    import numpy as np

    from rhocal.data.labels.columns import label_values
    from rhocal.data.score_names import score_class

    values = label_values(labels, None) if classes is None else np.asarray(classes)
    known = None if values is None else np.unique(values)
    if known is None or len(known) != 2 or known.dtype.kind != "U":
        return None
    column = score_class(None, name, known)
    return None if column is None else known[[1 - column, column]]
