"""Options that commands share: what is in a file, and how a command is made of groups of options."""

from __future__ import annotations

import inspect
import json
import math
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_type_hints

import typer

from rhocal.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rhocal.calibrators import Calibrator
    from rhocal.data.files import Contents
    from rhocal.data.formats.base import Names
    from rhocal.data.spec import InputSpec, Kind


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
    str | None,
    typer.Option(
        "--kind",
        help="What the numbers are: logits, probs or log_probs. Default: logits, or what a log states.",
        rich_help_panel=FILE,
        show_default=False,
    ),
]
KindOfFit = Annotated[
    str | None,
    typer.Option(
        "--kind",
        help="What the numbers are: logits, probs or log_probs. Default: as in the fit of the calibrator; without one, logits.",
        rich_help_panel=FILE,
        show_default=False,
    ),
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
ColumnsOption = Annotated[
    str | None,
    typer.Option(
        "--columns",
        help="The columns of a table that hold one class each, separated by commas.",
        rich_help_panel=FILE,
        show_default=False,
    ),
]
ClassesOption = Annotated[
    str | None,
    typer.Option(
        "--classes",
        help="The label of each column, separated by commas; of a table, columns with these names.",
        rich_help_panel=FILE,
        show_default=False,
    ),
]
WeightsName = Annotated[
    str | None,
    typer.Option(
        "--weights",
        help="The name of the array or column with the weight of each sample.",
        rich_help_panel=FILE,
        show_default=False,
    ),
]
IgnoreIndex = Annotated[
    int | None, typer.Option("--ignore-index", help="Leave out samples with this label (-100).", rich_help_panel=FILE)
]
ClassAxis = Annotated[
    int, typer.Option("--class-axis", help="The axis of the classes, 1 for (N, C, H, W).", rich_help_panel=FILE)
]
PositiveOption = Annotated[
    str | None,
    typer.Option(
        "--positive",
        help="The positive class of two, by name or column number: that of a single column of scores.",
        rich_help_panel=FILE,
    ),
]
SkipBad = Annotated[
    bool,
    typer.Option(
        "--skip-bad",
        help="Leave out lines of a log, or blocks of a file, that cannot be read, and count them.",
        rich_help_panel=FILE,
    ),
]
GroupsOption = Annotated[
    str | None,
    typer.Option(
        "--groups", help="The domain of every sample, for multi-domain: an array of the file, or another file."
    ),
]
ClustersOption = Annotated[
    str | None,
    typer.Option(
        "--clusters",
        help="Samples that depend on each other (patient, session): an array or column of the file, or another file. "
        "Without it samples are assumed to be independent.",
    ),
]
WeightKindOption = Annotated[
    str | None,
    typer.Option(
        "--weight-kind",
        help="What --weights are: frequency (counts of samples, the default) or importance (they correct a selection).",
        show_default=False,
    ),
]
ToleranceOption = Annotated[
    float, typer.Option("--tolerance", help="The calibration error that is tolerated: 0.02 for two points.")
]
KeepDecision = Annotated[
    bool, typer.Option("--keep-decision", help="Use only methods that never change the predicted class.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of a table.")]


@dataclass(frozen=True)
class Arrays:
    """Which arrays of a file hold scores and labels."""

    labels: LabelsOption = None
    logits_name: LogitsName = "logits"
    labels_name: LabelsName = "labels"
    columns: ColumnsOption = None
    classes: ClassesOption = None
    weights: WeightsName = None
    skip_bad: SkipBad = False

    def of_calibrator(self, calibrator: Calibrator | None, path: Path) -> Arrays:
        """The same for a table whose columns are those that a calibrator was fitted on, in the order in which they stand."""
        from rhocal.data.formats import find_columns

        if calibrator is None or calibrator.columns_ is None or self.columns or self.classes:
            return self
        columns = find_columns(path, calibrator.columns_, self.names())
        # None: lists of scores, whose order is stated, or columns that are matched with the classes by name
        return self if columns is None else replace(self, columns=",".join(columns))

    def names(self, groups: str | None = None, classes: Any = None) -> Names:
        """The names as readers take them; ``classes`` are those of a calibrator."""
        from rhocal.data.formats.base import Names

        known = _listed(self.classes) or (None if classes is None else tuple(str(name) for name in classes))
        columns = _listed(self.columns)
        return Names(self.logits_name, self.labels_name, groups, self.weights, columns, known, self.skip_bad)

    def check_weight_kind(self, weight_kind: str | None) -> None:
        """Raise an error for a kind of weights without weights."""
        if weight_kind is not None and self.weights is None:
            raise InputError(
                f"--weight-kind {weight_kind} states what weights are, and there are none: name the array or column of "
                "weights with --weights"
            )

    @property
    def stated_classes(self) -> Any:
        """The classes that --classes names, whole numbers as such; None without it."""
        names = _listed(self.classes)
        return None if names is None else _as_numbers(names)

    def stated(self, spec: InputSpec, stored: InputSpec) -> InputSpec:
        """A spec with the classes of the options. ``spec`` has those of a calibrator, ``stored`` what the file states."""
        from rhocal.data.columns import check_frame

        names = _listed(self.classes)
        columns = stored.columns
        if names is not None:
            if columns is None:
                columns = names  # in the order of the columns
            elif spec.classes is not None and len(columns) == len(names) and set(columns) != set(names):
                columns = _named_columns(columns, names)
            if spec.classes is None:
                spec = replace(spec, classes=_as_numbers(names))
        elif columns is not None and spec.classes is not None:
            if set(columns) != set(spec.columns_of_fit or ()):
                check_frame(columns, spec.classes, None)
            is_stated = (
                self.columns is not None and len(spec.columns_of_fit or ()) == 1
            )  # two columns after a fit on one
            of_fit = None if is_stated else spec.columns_of_fit
            spec = replace(spec, columns_of_fit=of_fit, labels_count_columns=True)
        kind = spec.kind if spec.kind_is_stated or not stored.kind_is_stated else stored.kind
        positive = stored.positive if spec.positive is None else spec.positive
        of_answers = stored.of_answers and str(positive) == str(stored.positive)
        return replace(spec, columns=columns, kind=kind, positive=positive, of_answers=of_answers)

    def contents(self, path: Path, classes: Any = None, groups: str | None = None) -> Contents:
        """A file whose arrays are not read yet; ``classes`` are those of a calibrator, ``groups`` a column of names."""
        from rhocal.data import files

        return files.read(path, self.names(groups, classes), self.labels)


@dataclass(frozen=True)
class SpecOptions:
    """What the user states about the scores."""

    kind: KindOfFit = None
    ignore_index: IgnoreIndex = None
    class_axis: ClassAxis = -1
    positive: PositiveOption = None

    def spec(self, calibrators: Iterable[Calibrator] = ()) -> InputSpec:
        """The same as the library takes it. Unless stated, kind and positive class are those of the calibrators' fits.

        The classes are those of the first calibrator.
        """
        known = list(calibrators)
        kinds = sorted({calibrator.kind_ for calibrator in known})
        if self.kind is None and len(kinds) > 1:
            raise InputError(
                f"-c: the calibrators were fitted on {' and on '.join(kinds)}",
                argument="kind",
                remedy="state which of them the file holds",
            )
        classes, positive = None, self.positive
        if known:
            classes, positive = known[0].classes_, known[0].positive_ if positive is None else positive
        spec = input_spec(self.kind, classes, self.ignore_index, self.class_axis, positive)
        spec = replace(spec, columns_of_fit=known[0].columns_) if known else spec
        return spec if self.kind or not kinds else replace(spec, kind=kinds[0])


@dataclass(frozen=True)
class FitSpecOptions(SpecOptions):
    """What the user states about the scores of a command without a calibrator."""

    kind: KindOption = None


def _listed(text: str | None) -> tuple[str, ...] | None:
    """Names that are separated by commas."""
    return None if text is None else tuple(name.strip() for name in text.split(","))


def _named_columns(columns: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    """The stated class of every column, as it stands in the table."""
    import numpy as np

    from rhocal.data.columns import match_columns

    order, _ = match_columns(columns, np.array(names), None)
    return names if order is None else tuple(names[k] for k in np.argsort(order))


def _as_numbers(names: tuple[str, ...]) -> Any:
    """Names of classes, whole numbers as such."""
    import numpy as np

    are_numbers = all(name.removeprefix("-").isdecimal() for name in names)
    return np.array([int(name) for name in names] if are_numbers else names)


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Turn groups of options among the parameters of a command (dataclasses such as ``Arrays``) into single options."""
    parameters = inspect.signature(command).parameters
    types = get_type_hints(command, include_extras=True)
    groups = {name: types[name] for name in parameters if is_dataclass(types[name])}
    shown: dict[str, inspect.Parameter] = {}
    for name, parameter in parameters.items():
        if name not in groups:
            shown[name] = parameter.replace(annotation=types[name], kind=parameter.KEYWORD_ONLY)
            continue
        inside = get_type_hints(groups[name], include_extras=True)
        for option in fields(groups[name]):
            assert option.default is not MISSING, "an option of a group has a default"
            shown[option.name] = inspect.Parameter(
                option.name, parameter.KEYWORD_ONLY, default=option.default, annotation=inside[option.name]
            )

    def run(**options: Any) -> None:
        values = {
            name: group(**{option.name: options.pop(option.name) for option in fields(group)})
            for name, group in groups.items()
        }
        command(**options, **values)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {name: parameter.annotation for name, parameter in shown.items()}
    vars(run)["__signature__"] = inspect.Signature(list(shown.values()))
    return run


def input_spec(
    kind: str | None,
    classes: Any = None,
    ignore_index: int | None = None,
    class_axis: int = -1,
    positive: Any = None,
) -> InputSpec:
    """What is stated about the scores, as the library takes it; a log may state its kind where nobody else does."""
    from rhocal.data.spec import InputSpec

    spec = InputSpec(cast("Kind", kind or "logits"), classes, ignore_index, class_axis, positive)  # validates the kind
    return replace(spec, kind_is_stated=kind is not None)


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
