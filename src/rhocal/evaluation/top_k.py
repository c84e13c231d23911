"""Methods compared on top-k data: each is fitted on one half of the samples and measured on the other."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rhocal.calibrators.top_k import apply_top_k, fit_labeled_top_k
from rhocal.errors import InputError, RhocalWarning
from rhocal.evaluation.compare import half_order
from rhocal.evaluation.measure import DEBIASED, EXTRAS, FLOOR, SAMPLES
from rhocal.evaluation.rows import COLUMNS, FAILED, Row
from rhocal.metrics import METRICS
from rhocal.metrics.top_k import score_top_k

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rhocal.calibrators import Calibrator
    from rhocal.profile.top_k import LabeledTopK

TOP_K_METHODS = ("identity", "temperature", "rho-norm", "field")
"""What is compared unless methods are named: methods that scale."""


def compare_top_k(
    network: str, samples: LabeledTopK, methods: Mapping[str, Calibrator], seed: int, data_key: str = ""
) -> Iterator[Row]:
    """The row of every method on the halves that a seed gives. The ECE of classes is not known."""
    order, middle = half_order(samples.data.n_samples, samples.clusters, seed)
    calibration, test = samples.take(order[:middle]), samples.take(order[middle:])
    for name, calibrator in methods.items():
        start = np.array([time.perf_counter(), time.process_time()])
        row = Row(network, f"seed {seed}", name, dict.fromkeys(COLUMNS, np.nan), np.nan, middle, len(order) - middle)
        row = replace(row, data=data_key)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", RhocalWarning)
            try:
                fit_labeled_top_k(calibrator, calibration)
            except InputError as error:
                yield replace(row, note=f"{FAILED}{error}")
                continue
            seconds, cpu_seconds = (np.array([time.perf_counter(), time.process_time()]) - start).tolist()
            scored = score_top_k(replace(test, data=apply_top_k(calibrator, test.data)))
        extras = {extra: EXTRAS[extra](scored).value for extra in (FLOOR, DEBIASED, SAMPLES)}
        yield replace(
            row,
            values={
                metric: np.nan if metric == "classwise_ece" else METRICS[metric].value(scored) for metric in COLUMNS
            },
            seconds=seconds,
            cpu_seconds=cpu_seconds,
            note="; ".join(dict.fromkeys(str(warning.message) for warning in caught)),
            ece_floor=extras[FLOOR],
            ece_debiased=extras[DEBIASED],
            samples=extras[SAMPLES],
        )
