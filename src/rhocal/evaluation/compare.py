"""Compare methods over networks: every method is fitted on a calibration set and measured on a test set."""

from __future__ import annotations

import csv
import math
import time
import warnings
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.base import fit_validated
from rhocal.calibrators.fitting import SUBSAMPLED
from rhocal.data.atomic import writing
from rhocal.data.predictions import Predictions
from rhocal.data.spec import InputSpec
from rhocal.errors import InputError, RhocalWarning
from rhocal.evaluation.measure import FLOOR, Measurement, block_sums
from rhocal.metrics import CORE, METRICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from rhocal.calibrators import Calibrator
    from rhocal.data.files import Contents
    from rhocal.data.predictions import Kind
    from rhocal.data.sampling import Half


COLUMNS = (*CORE, "classwise_ece")
"""The metrics of a row."""

OWN = "own"
"""The name of the split of a network with a calibration and a test set of its own."""

FAILED = "no result: "
"""The beginning of the note of a row whose method could not be fitted."""

MORE = ("kl_to_base", "kl_from_base")
"""Values that some rows have besides: how far calibrated distributions are from the original ones."""

NUMBERS = ("ece_floor", "seconds", "cpu_seconds", *MORE)
"""Columns of rows that are numbers, besides the metrics."""


@dataclass(frozen=True)
class Row:
    """One method on one split of one network."""

    network: str
    split: str
    method: str
    values: dict[str, float]
    seconds: float
    n_tune: int
    n_test: int
    ece_floor: float = math.nan
    """The ECE of a perfectly calibrated model with the same confidences, on as many samples (the mean)."""
    note: str = ""
    cpu_seconds: float = math.nan
    """Processor time of the fit, all threads together; a busy machine does not change it."""

    @classmethod
    def from_fit(cls, network: str, fit: FittedMethod, values: Mapping[str, float], n_test: int) -> Row:
        """The row of a method with its values; what is missing is not a number."""
        columns = {name: values.get(name, math.nan) for name in COLUMNS}
        floor = values.get(FLOOR, math.nan)
        sizes = fit.n_tune, n_test
        return cls(network, fit.split, fit.method, columns, fit.seconds, *sizes, floor, fit.note, fit.cpu_seconds)

    @property
    def failed(self) -> bool:
        """Whether the method could not be fitted."""
        return self.note.startswith(FAILED)

    def flat(self) -> dict[str, Any]:
        """Plain columns."""
        head = {"network": self.network, "split": self.split, "method": self.method}
        tail = {
            "ece_floor": self.ece_floor,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "n_tune": self.n_tune,
            "n_test": self.n_test,
            "note": self.note,
        }
        return head | self.values | tail

    @classmethod
    def from_flat(cls, row: Mapping[str, Any]) -> Row:
        """A row from the columns of a file; an empty cell is not a number."""
        values = {
            name: float(row.get(name, math.nan)) for name in (*COLUMNS, *(extra for extra in MORE if extra in row))
        }
        seconds, floor, cpu = (float(row.get(name, math.nan)) for name in ("seconds", "ece_floor", "cpu_seconds"))
        sizes = int(row["n_tune"]), int(row["n_test"])
        return cls(
            row["network"], row["split"], row["method"], values, seconds, *sizes, floor, row.get("note", ""), cpu
        )


@dataclass(frozen=True)
class CalibrationSplit:
    """A calibration set and a test set, with the name of the split."""

    name: str
    calibration: Predictions
    test: Predictions


def splits(contents: Contents, n_seeds: int, kind: Kind = "logits") -> list[CalibrationSplit]:
    """The file's own calibration and test split; for a single set, one random halving for each seed."""
    sets = validated_sets(contents, kind)
    return [split_of(*sets, seed) for seed in range(len(split_names(n_seeds, has_test=sets[1] is not None)))]


def split_names(n_seeds: int, *, has_test: bool) -> list[str]:
    """The names of the splits: one for a network with a calibration and a test set, else one for each seed."""
    return [OWN] if has_test else [f"seed {seed}" for seed in range(n_seeds)]


def validated_sets(contents: Contents, kind: Kind = "logits") -> tuple[Predictions, Predictions | None]:
    """The calibration and the test set of a file, or its single set."""
    spec = InputSpec(kind, contents.classes)
    parts = [contents.calibration_set(), *([contents.test_set()] if contents.has_splits else [])]
    sets = [Predictions.from_arrays(part.scores, part.labels, spec=spec) for part in parts]
    return sets[0], sets[1] if contents.has_splits else None


def split_of(first: Predictions, test: Predictions | None, seed: int) -> CalibrationSplit:
    """The two sets of a file, or the halves of its single set that a seed gives."""
    return halves(first, seed) if test is None else CalibrationSplit(OWN, first, test)


def halves(whole: Predictions, seed: int, n_tune: int | None = None) -> CalibrationSplit:
    """A random half (or ``n_tune`` samples) as the calibration set, and the others as the test set."""
    order = np.random.default_rng(seed).permutation(whole.n_samples)
    middle = whole.n_samples // 2 if n_tune is None else n_tune
    return CalibrationSplit(f"seed {seed}", whole.take(order[:middle]), whole.take(order[middle:]))


@dataclass(frozen=True)
class FittedMethod:
    """A method on one split: its calibrator, or why there is none."""

    method: str
    calibrator: Calibrator | None
    note: str
    seconds: float = math.nan
    cpu_seconds: float = math.nan
    split: str = ""
    half: Half | None = None
    """The rows of a stream that it was fitted on; None for all."""
    n_tune: int = 0

    @property
    def key(self) -> tuple[str, str]:
        """Split and method."""
        return self.split, self.method


def try_fit(method: str, calibrator: Calibrator, fit: Callable[[], Any]) -> FittedMethod:
    """Run a fit; warnings become its note, and so does the reason of a failure."""
    start = np.array([time.perf_counter(), time.process_time()])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RhocalWarning)
        try:
            fit()
        except InputError as error:  # too many classes for a full matrix, say: the other methods are still compared
            return FittedMethod(method, None, f"{FAILED}{error}")
    seconds, cpu_seconds = (np.array([time.perf_counter(), time.process_time()]) - start).tolist()
    note = "; ".join(dict.fromkeys(str(warning.message) for warning in caught))
    return FittedMethod(method, calibrator, note, seconds, cpu_seconds)


def compare(network: str, pair: CalibrationSplit, methods: Mapping[str, Calibrator]) -> Iterator[Row]:
    """Fit every method on the calibration set and measure it on the test set."""
    data = replace(pair.calibration, scores=pair.calibration.logits, kind="logits")
    for method, calibrator in methods.items():
        fit = try_fit(method, calibrator, partial(fit_validated, calibrator, data, kind="logits"))
        fit = replace(fit, split=pair.name, n_tune=pair.calibration.n_samples)
        values: dict[str, float] = {}
        if fit.calibrator is not None:
            measurement = Measurement({method: fit.calibrator})
            sums = block_sums(pair.test, [measurement], [*COLUMNS, FLOOR], exact=True)
            values = {name: state.value for name, state in sums[method].items()}
        yield Row.from_fit(network, fit, values, pair.test.n_samples)


def complete(rows: Sequence[Row]) -> list[str]:
    """The networks on which every method has a result: only over these are means comparable."""
    failed = {row.network for row in rows if row.failed}
    return [network for network in dict.fromkeys(row.network for row in rows) if network not in failed]


def averaged(rows: Sequence[Row]) -> list[str]:
    """The networks that means are taken over: the complete ones; if there are none, all of them."""
    return complete(rows) or list(dict.fromkeys(row.network for row in rows))


def summary(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """For each method the mean over networks of the mean over splits, and the standard deviation over splits."""
    networks = averaged(rows)
    lines = []
    for method in dict.fromkeys(row.method for row in rows):
        cells = [[row for row in rows if row.method == method and row.network == network] for network in networks]
        line: dict[str, Any] = {"method": method}
        for name in COLUMNS:
            table = [[row.values[name] for row in cell] for cell in cells]
            line[name] = _mean([_mean(values) for values in table])
            line[f"{name}_sd"] = _mean([float(np.std(values, ddof=min(1, len(values) - 1))) for values in table])
        line["subsampled"] = any(SUBSAMPLED in row.note for cell in cells for row in cell)
        line["ece_floor"] = _mean([_mean([row.ece_floor for row in cell]) for cell in cells])
        line["seconds"] = _mean([row.seconds for cell in cells for row in cell])
        lines.append(line)
    return lines


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else math.nan


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as CSV with six digits. The file appears complete or not at all; missing values stay empty."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with writing(path) as unfinished, unfinished.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.6g}"
    return value


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read rows that ``write_rows`` wrote, metrics and seconds as numbers; empty cells are left out."""
    with path.open(newline="", encoding="utf-8") as file:
        return [
            {
                name: float(value) if name in METRICS or name in NUMBERS else value
                for name, value in row.items()
                if value or name == "note"
            }
            for row in csv.DictReader(file)
        ]
