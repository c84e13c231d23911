"""Compare calibration methods on scores in memory: one call, one value that prints, converts and shows itself."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators import CALIBRATORS, Calibrator
from rhocal.calibrators import calibrator as make_calibrator
from rhocal.calibrators.estimator import unfitted
from rhocal.data.columns import frame_columns, spellings
from rhocal.data.sources import as_source
from rhocal.data.spec import InputSpec, Kind
from rhocal.errors import InputError
from rhocal.evaluation.best import ORDER, best_method, differences_to_best
from rhocal.evaluation.compare import compare as compare_splits
from rhocal.evaluation.compare import default_methods, splits
from rhocal.evaluation.data_frames import FrameLibrary, html_table, to_frame
from rhocal.evaluation.evaluate import check_whole
from rhocal.evaluation.evaluation import aligned
from rhocal.evaluation.model_scores import check_unnamed, has_names
from rhocal.evaluation.rows import summary
from rhocal.evaluation.ties import ties
from rhocal.numerics.caching import cached_property

if TYPE_CHECKING:
    from rhocal.data.sources import Source
    from rhocal.evaluation.best import DifferenceToBest
    from rhocal.evaluation.rows import Row

NAME = "scores"
"""How rows call scores that have no file name."""
SHOWN = {
    "accuracy": "Accuracy ↑", "ece": "ECE ↓", "ece_debiased": "debiased ↓", "ece_floor": "floor", "nll": "NLL ↓",
    "brier": "Brier ↓", "seconds": "fit s",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Comparison:
    """Methods fitted on a calibration set and measured on a test set.

    Attributes
    ----------
    rows : tuple of Row
        One for each split and method.
    lines : list of dict
        One for each method, with means over splits.
    best : str
        The method with the smallest debiased ECE.
    tied : list of str
        Methods that the samples do not distinguish from it.

    Examples
    --------
    >>> import rhocal
    >>> result = rhocal.compare(
    ...     *rhocal.demo_logits("cal"), test=rhocal.demo_logits("test"), methods=["identity", "temperature", "rho-norm"]
    ... )
    >>> result.best, result.tied
    ('rho-norm', ['temperature'])
    >>> round(result["identity"]["ece"], 3), round(result["rho-norm"]["ece"], 3)
    (0.145, 0.006)
    """

    rows: tuple[Row, ...]

    @cached_property
    def lines(self) -> list[dict[str, Any]]:
        """One line for each method: means over splits."""
        return summary(self.rows)

    @cached_property
    def to_best(self) -> dict[str, dict[str, DifferenceToBest]]:
        """Metric → method → difference to the best method, with a simultaneous 95 % interval."""
        return differences_to_best(self.rows, self.lines, [NAME])

    @property
    def best(self) -> str:
        """The method with the smallest debiased ECE."""
        known = [line for line in self.lines if not math.isnan(line["nll"])]
        if not known:
            raise InputError(f"no method has a result: {'; '.join(row.note for row in self.rows)}")
        return best_method(known, "ece", ORDER["ece"])

    @property
    def tied(self) -> list[str]:
        """The methods that are not distinguished from the best in ECE."""
        return [name for name, d in self.to_best.get("ece", {}).items() if d.is_tied and name != d.best]

    @property
    def notes(self) -> list[str]:
        """Ties in words, and notes of single methods."""
        return [
            *ties(self.to_best, self.lines),
            *dict.fromkeys(f"{row.method}: {row.note}" for row in self.rows if row.note),
        ]

    def __getitem__(self, method: str) -> dict[str, Any]:
        for line in self.lines:
            if line["method"] == method:
                return line
        raise KeyError(f"{method!r}; this comparison has {', '.join(line['method'] for line in self.lines)}")

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries, lists and numbers; values that are not known are None."""
        differences = {
            metric: {method: d.to_dict() for method, d in by_method.items()}
            for metric, by_method in self.to_best.items()
        }
        rows = [row.flat() for row in self.rows]
        document = {"summary": self.lines, "to_best": differences, "rows": rows, "notes": self.notes}
        return _known(document)

    def to_json(self) -> str:
        """The same as text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)

    def to_frame(self, library: FrameLibrary = "pandas") -> Any:
        """One row for each method, as a data frame of pandas or polars."""
        return to_frame(self.lines, library, "method")

    def __str__(self) -> str:
        return "\n".join([*aligned(self._cells()), "", *self.notes])

    def _repr_html_(self) -> str:
        return html_table(self._cells(), self.notes)

    def _cells(self) -> list[tuple[str, ...]]:
        rows = [("method", *SHOWN.values())]
        for line in self.lines:
            cells = []
            for name in SHOWN:
                by_method = self.to_best.get(name.removesuffix("_debiased") if name == "ece_debiased" else name, {})
                difference = None if name == "ece" else by_method.get(line["method"])
                mark = " " if difference is None else "*" if difference.best == line["method"] else "="
                mark = mark if difference is None or difference.is_tied else " "
                digits = 2 if name == "seconds" else 4
                cells.append("—" if math.isnan(line[name]) else f"{line[name]:.{digits}f}{mark}")
            rows.append((line["method"], *cells))
        return rows


def compare(
    logits: Any,
    labels: Any = None,
    *,
    test: Sequence[Any] | None = None,
    methods: str | Sequence[str | Calibrator] | Mapping[str, str | Calibrator] | None = None,
    n_seeds: int = 5,
    sample_weight: Any = None,
    kind: Kind = "logits",
    classes: Any = None,
    positive: Any = None,
) -> Comparison:
    """Compare calibration methods: fit each on a calibration set, measure it on a test set, and test the differences.

    Parameters
    ----------
    logits : array, tensor or data frame of shape (n_samples, n_classes)
        Scores of the calibration set; without ``test``, of all samples. Columns of a data frame are matched by name.
    labels : array of shape (n_samples,)
        The true classes.
    test : tuple of (logits, labels) or (logits, labels, sample_weight), optional
        The test set. Without it every split is a random half for fitting and the other half for measuring.
    methods : list of names or calibrators, mapping of names to them, or "all", optional
        ``rhocal.CALIBRATORS`` has the names. Calibrators are copied, not fitted. The default is a few fast ones.
    n_seeds : int
        Number of random halvings, where there is no ``test``.
    sample_weight : array of shape (n_samples,), optional
    kind : {"logits", "probs", "log_probs"}
        What the scores are; it is never inferred.
    classes : array of shape (n_classes,), optional
        The label of each column.
    positive : optional
        The positive class of two.

    Returns
    -------
    Comparison
        Prints as a table, and has ``best``, ``tied``, ``to_frame``, ``to_dict`` and ``to_json``.

    Examples
    --------
    >>> import rhocal
    >>> result = rhocal.compare(*rhocal.demo_logits("cal", "table"), methods=["identity", "vector"], n_seeds=2)
    >>> result.best
    'vector'
    """
    spec = InputSpec(kind, classes, positive=positive)
    source = as_source(logits, labels, sample_weight, spec=spec)
    held_out = None if test is None else _test_source(test, source, logits)
    check_whole(n_seeds, "n_seeds", at_least=1)
    n_classes = source.predictions.n_classes if source.resident else 0
    chosen = chosen_methods(methods, n_classes)
    work = (
        (split, {name: unfitted(cal) for name, cal in chosen.items()})
        for split in splits(source, held_out, n_seeds=n_seeds)
    )
    return Comparison(tuple(compare_splits(NAME, work)))


def _test_source(test: Sequence[Any], source: Source, logits: Any) -> Source:
    """The test set, with the classes of the calibration set."""
    if not isinstance(test, tuple | list) or not 2 <= len(test) <= 3:
        raise InputError("test is (logits, labels) or (logits, labels, sample_weight)")
    spec = source.spec
    if source.resident:
        data = source.predictions
        if spec.classes is None and has_names(logits):
            check_unnamed("test", test[0], data.classes)
        columns = frame_columns(test[0])
        if spec.classes is None and columns is not None and data.classes.dtype.kind == "U":
            check_unnamed("logits", logits, np.array(spellings(columns)[1]))
        spec = replace(spec, classes=data.classes)
    return as_source(*test, spec=spec)


def chosen_methods(
    methods: str | Sequence[str | Calibrator] | Mapping[str, str | Calibrator] | None, n_classes: int
) -> dict[str, Calibrator]:
    """Name → calibrator that is not fitted. Calibrators without a name are called by their label."""
    if methods is None or isinstance(methods, str):
        names = list(CALIBRATORS) if methods == "all" else default_methods(n_classes) if methods is None else [methods]
        return {name: make_calibrator(name) for name in names}
    if isinstance(methods, Calibrator):
        methods = [methods]
    if not isinstance(methods, Iterable):
        raise InputError(f"methods are names or calibrators, in a list or a mapping; got {methods!r}")
    pairs = methods.items() if isinstance(methods, Mapping) else ((_name_of(method), method) for method in methods)
    chosen: dict[str, Calibrator] = {}
    for name, method in pairs:
        if name in chosen:
            raise InputError(f"methods: {name!r} is there twice; pass a mapping of names to calibrators")
        if not isinstance(method, str | Calibrator):
            raise InputError(f"methods are names or calibrators; got {method!r}")
        chosen[name] = make_calibrator(method) if isinstance(method, str) else method
    if not chosen:
        raise InputError("methods is empty; name at least one")
    return chosen


def _name_of(method: str | Calibrator) -> str:
    return method if isinstance(method, str) else repr(method)


def _known(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _known(item) for key, item in value.items()}
    return [_known(item) for item in value] if isinstance(value, list | tuple) else value
