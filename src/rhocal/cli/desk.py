"""What every command shares: the options they have in common, and the small steps between arguments and library."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rhocal.errors import FileError

if TYPE_CHECKING:
    from rhocal.files import Contents, Split
    from rhocal.predictions import Kind

InputFile = Annotated[Path, typer.Argument(metavar="FILE", help="A file of logits and labels.", show_default=False)]
KindOption = Annotated[str, typer.Option("--kind", help="What the numbers are: logits, probs or log_probs.")]
LabelsOption = Annotated[
    Path | None, typer.Option("--labels", help="A second file with the labels, for .npy and files without them.")
]
LogitsName = Annotated[str, typer.Option("--logits-name", help="The name of the array or column of logits.")]
LabelsName = Annotated[str, typer.Option("--labels-name", help="The name of the array or column of labels.")]
IgnoreIndex = Annotated[int | None, typer.Option("--ignore-index", help="Leave out samples with this label (-100).")]
ClassAxis = Annotated[int, typer.Option("--class-axis", help="The axis of the classes, 1 for (N, C, H, W).")]
GroupsOption = Annotated[
    str | None,
    typer.Option(
        "--groups", help="The domain of every sample, for multi-domain: an array of the file, or another file."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of a table.")]


def read(path: Path, labels: Path | None, logits_name: str, labels_name: str, groups: str | None = None) -> Contents:
    """The file's logits and labels, and groups if an array of it is named."""
    from rhocal import files

    inside = None if groups is None or Path(groups).is_file() else groups
    return files.read(path, files.Names(logits_name, labels_name, inside), labels)


def groups_of(groups: str | None, source: Path, split: Split) -> Any:
    """The group of every sample: from a file of its own, or from the array of that name."""
    from rhocal import files

    if groups is not None and Path(groups).is_file():
        return files.only_array(Path(groups), "groups")
    if groups is not None and split.groups is None:
        raise FileError(f"{source}: no array or column {groups!r} beside these logits, and no file of that name either")
    return split.groups


def with_labels(contents: Contents) -> Split:
    """The part to measure on, which must have labels."""
    split = contents.for_testing()
    if split.labels is None:
        raise FileError(f"{contents.path}: no labels to measure against; name them with --labels or --labels-name")
    return split


def kind_of(kind: str) -> Kind:
    """The text as a kind."""
    return kind  # type: ignore[return-value]  # the border checks it and says what is allowed


def print_json(document: dict[str, Any]) -> None:
    """Print for machines."""
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
