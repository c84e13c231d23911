"""Many methods over many networks: splits in, tidy rows out."""

from __future__ import annotations

import csv
import math
import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.fitting import SUBSAMPLED
from rhocal.data.atomic import writing
from rhocal.data.predictions import Predictions, predictions
from rhocal.errors import InputError, RhocalWarning
from rhocal.metrics import CORE, METRICS, measure_all
from rhocal.metrics.scored import Scored
from rhocal.numerics.bins import N_BINS, perfect_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from rhocal.calibrators import Calibrator
    from rhocal.data.files import Contents
    from rhocal.data.predictions import Kind


COLUMNS = (*CORE, "classwise_ece")
"""The metrics of a row."""

FAILED = "no result: "
"""How the note of a row begins whose method could not be fitted."""

MORE = ("kl_to_base", "kl_from_base")
"""Figures that some rows have besides: how far calibrated distributions are from the original ones."""

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
    """Processor time of the fit, all threads together: on a busy machine it says more than the seconds on the clock."""

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
    def of_flat(cls, row: Mapping[str, Any]) -> Row:
        """A row that was written and read again; what is empty there is not a number."""
        values = {
            name: float(row.get(name, math.nan)) for name in (*COLUMNS, *(extra for extra in MORE if extra in row))
        }
        seconds, floor, cpu = (float(row.get(name, math.nan)) for name in ("seconds", "ece_floor", "cpu_seconds"))
        sizes = int(row["n_tune"]), int(row["n_test"])
        return cls(
            row["network"], row["split"], row["method"], values, seconds, *sizes, floor, row.get("note", ""), cpu
        )


@dataclass(frozen=True)
class TunedOn:
    """A pair of sets, and what their split is called."""

    name: str
    tune: Predictions
    test: Predictions


def splits(contents: Contents, n_seeds: int, kind: Kind = "logits") -> list[TunedOn]:
    """The file's own tune and test split; for a single set, one random halving for each seed."""
    if contents.tune is not None and contents.test is not None:
        tune, test = (
            predictions(part.logits, part.labels, classes=contents.classes, kind=kind)
            for part in (contents.tune, contents.test)
        )
        return [TunedOn("own", tune, test)]
    one = contents.for_tuning()
    whole = predictions(one.logits, one.labels, classes=contents.classes, kind=kind)
    return [halves(whole, seed) for seed in range(n_seeds)]


def halves(whole: Predictions, seed: int, n_tune: int | None = None) -> TunedOn:
    """A random half (or ``n_tune`` samples) to tune on and the others to test on."""
    order = np.random.default_rng(seed).permutation(whole.n_samples)
    middle = whole.n_samples // 2 if n_tune is None else n_tune
    return TunedOn(f"seed {seed}", whole.take(order[:middle]), whole.take(order[middle:]))


def compare(network: str, pair: TunedOn, methods: Mapping[str, Calibrator]) -> Iterator[Row]:
    """Fit every method on the tune set and measure it on the test set."""
    for method, cal in methods.items():
        start = np.array([time.perf_counter(), time.process_time()])
        sizes = pair.tune.n_samples, pair.test.n_samples
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", RhocalWarning)
            try:
                cal.fit(pair.tune.logits, pair.tune.labels, pair.tune.weights)
            except InputError as error:  # too many classes for a full matrix, say: the others go on, and the row tells
                none = dict.fromkeys(COLUMNS, math.nan)
                yield Row(network, pair.name, method, none, math.nan, *sizes, math.nan, f"{FAILED}{error}")
                continue
        seconds, cpu = np.array([time.perf_counter(), time.process_time()]) - start
        calibrated = predictions(cal.transform(pair.test.logits), pair.test.labels, sample_weight=pair.test.weights)
        note = "; ".join(dict.fromkeys(str(w.message) for w in caught))
        scored = Scored.from_predictions(calibrated)
        floor = perfect_error(scored.confidence, scored.weights, N_BINS)
        found = measure_all(calibrated, COLUMNS)
        yield Row(network, pair.name, method, found, float(seconds), *sizes, floor, note, float(cpu))


def complete(rows: Sequence[Row]) -> list[str]:
    """The networks on which every method has a result: only over these are means comparable."""
    failed = {row.network for row in rows if row.failed}
    return [network for network in dict.fromkeys(row.network for row in rows) if network not in failed]


def averaged(rows: Sequence[Row]) -> list[str]:
    """The networks that means are taken over: the complete ones; without any, all of them, and who failed has no mean."""
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
    """Tidy rows as CSV with six digits, whole or not at all. What a row does not have stays empty."""
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
    """Rows that ``write_rows`` wrote, metrics and seconds as numbers; what is empty is left out."""
    with path.open(newline="", encoding="utf-8") as file:
        return [
            {
                name: float(value) if name in METRICS or name in NUMBERS else value
                for name, value in row.items()
                if value or name == "note"
            }
            for row in csv.DictReader(file)
        ]
