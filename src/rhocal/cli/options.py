"""What every command shares: the options they have in common, and the small steps between arguments and library."""

from __future__ import annotations

import inspect
import json
import math
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from rhocal.errors import FileError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rhocal.data.files import Contents, Split
    from rhocal.data.predictions import Kind

InputFile = Annotated[Path, typer.Argument(metavar="FILE", help="A file of logits and labels.", show_default=False)]
SourceFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="A file of logits and labels, a folder of Parquet files, or a pattern in quotes.",
        show_default=False,
    ),
]
FILE = "What is in the file"
KindOption = Annotated[
    str, typer.Option("--kind", help="What the numbers are: logits, probs or log_probs.", rich_help_panel=FILE)
]
LabelsOption = Annotated[
    Path | None,
    typer.Option(
        "--labels", help="A second file with the labels, for .npy and files without them.", rich_help_panel=FILE
    ),
]
LogitsName = Annotated[
    str, typer.Option("--logits-name", help="The name of the array or column of logits.", rich_help_panel=FILE)
]
LabelsName = Annotated[
    str, typer.Option("--labels-name", help="The name of the array or column of labels.", rich_help_panel=FILE)
]
IgnoreIndex = Annotated[
    int | None, typer.Option("--ignore-index", help="Leave out samples with this label (-100).", rich_help_panel=FILE)
]
ClassAxis = Annotated[
    int, typer.Option("--class-axis", help="The axis of the classes, 1 for (N, C, H, W).", rich_help_panel=FILE)
]
GroupsOption = Annotated[
    str | None,
    typer.Option(
        "--groups", help="The domain of every sample, for multi-domain: an array of the file, or another file."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of a table.")]


@dataclass(frozen=True)
class Arrays:
    """Which arrays of a file are meant."""

    labels: LabelsOption = None
    logits_name: LogitsName = "logits"
    labels_name: LabelsName = "labels"

    def read(self, path: Path, groups: str | None = None) -> Contents:
        """The file's logits and labels, and groups if an array of it is named."""
        return read(path, self.labels, self.logits_name, self.labels_name, groups)


@dataclass(frozen=True)
class InputSpec:
    """What is said of the numbers."""

    kind: KindOption = "logits"
    ignore_index: IgnoreIndex = None
    class_axis: ClassAxis = -1

    def of_arrays(self) -> dict[str, Any]:
        """As ``rhocal.data.predictions`` takes it."""
        return {**self.of_blocks(), "class_axis": self.class_axis}

    def of_blocks(self) -> dict[str, Any]:
        """As streams take it."""
        return {"kind": kind_of(self.kind), "ignore_index": self.ignore_index}


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """A command with groups of options among its parameters (dataclasses such as ``Arrays``), as Typer wants it: one by one."""
    asked = inspect.signature(command).parameters
    types = get_type_hints(command, include_extras=True)
    groups = {name: types[name] for name in asked if is_dataclass(types[name])}
    shown: dict[str, inspect.Parameter] = {}
    for name, parameter in asked.items():
        if name not in groups:
            shown[name] = parameter.replace(annotation=types[name], kind=parameter.KEYWORD_ONLY)
            continue
        inside = get_type_hints(groups[name], include_extras=True)
        for option in fields(groups[name]):
            assert option.default is not MISSING, "an option of a group has a default"
            shown[option.name] = inspect.Parameter(
                option.name, parameter.KEYWORD_ONLY, default=option.default, annotation=inside[option.name]
            )

    def run(**given: Any) -> None:
        whole = {
            name: kind(**{part.name: given.pop(part.name) for part in fields(kind)}) for name, kind in groups.items()
        }
        command(**given, **whole)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {name: parameter.annotation for name, parameter in shown.items()}
    vars(run)["__signature__"] = inspect.Signature(list(shown.values()))
    return run


def read(path: Path, labels: Path | None, logits_name: str, labels_name: str, groups: str | None = None) -> Contents:
    """The file's logits and labels, and groups if an array of it is named."""
    from rhocal.data import files

    inside = None if groups is None or Path(groups).is_file() else groups
    return files.read(path, files.Names(logits_name, labels_name, inside), labels)


def groups_of(groups: str | None, source: Path, split: Split) -> Any:
    """The group of every sample: from a file of its own, or from the array of that name."""
    from rhocal.data import files

    if groups is not None and Path(groups).is_file():
        return files.only_array(Path(groups), "groups")
    if groups is not None and split.groups is None:
        raise FileError(f"{source}: no array or column {groups!r} beside these logits, and no file of that name either")
    return split.groups


def with_labels(contents: Contents) -> Split:
    """The part to measure on, which must have labels."""
    split = contents.for_testing()
    if split.labels is None:
        raise FileError(
            f"{contents.path}: labels are missing", argument="labels_name", remedy="name the array that holds them"
        )
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
