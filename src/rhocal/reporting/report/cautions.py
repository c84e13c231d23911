"""What a reader must know before believing the figures."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from rhocal.errors import RhocalWarning
from rhocal.evaluation.shift import shift
from rhocal.numerics.special import scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rhocal.data.predictions import Predictions
    from rhocal.reporting.report.method import Measured

FEW = 1000
"""Samples below which the floor of ECE hides what a calibrator does."""
SHIFT_ALARM = 0.01
OFF_CENTRE = 0.1
"""A row mean of more than this share of the row's standard deviation is not zero."""


def cautions(
    test: Predictions,
    tune: Predictions | None,
    measured: Sequence[Measured],
    *,
    same_samples: bool,
    notes: Mapping[str, str],
) -> list[dict[str, str]]:
    """Each with a ``kind`` and a ``text``."""
    found = [*_samples(test, tune, measured, same_samples=same_samples), *_logits(test), *_fits(measured)]
    if tune is not None:
        found += [*_unseen(test, tune), *([] if same_samples else _shifted(test, tune))]
    found += [("fit", f"{name}: {note}") for name, note in notes.items() if note]
    return [{"kind": kind, "text": text} for kind, text in dict.fromkeys(found)]


def _samples(
    test: Predictions, tune: Predictions | None, measured: Sequence[Measured], *, same_samples: bool
) -> Iterator[tuple[str, str]]:
    if same_samples:
        yield (
            "same samples",
            (
                "The calibrators were fitted on the very samples they are measured on here, so their figures look better "
                "than they are. Measure on samples that neither training nor tuning has seen."
            ),
        )
    if test.n_samples < FEW:
        floor = measured[0].evaluation["ece"]
        yield (
            "few samples",
            (
                f"Only {test.n_samples:,} samples are measured: a perfect model scores an ECE of {floor.floor:.3f} (up to "
                f"{floor.floor_high:.3f}) by chance alone, and smaller errors cannot be seen."
            ),
        )
    if tune is not None and tune.n_samples < FEW and not same_samples:
        yield (
            "few samples",
            f"Only {tune.n_samples:,} samples were fitted on; methods with many parameters suffer first.",
        )
    if test.n_clipped:
        yield "input", f"{test.n_clipped:,} probabilities were (nearly) 0 and had to be raised to 1e−30; give logits."


def _logits(test: Predictions) -> Iterator[tuple[str, str]]:
    if test.kind != "logits":
        return
    mean, spread = scan(test.logits).total / test.n_classes, np.std(test.logits, axis=1, dtype=np.float64)
    off = np.abs(mean) > OFF_CENTRE * np.maximum(spread, 1e-12)
    if off.mean() > 0.05:
        yield (
            "not zero-mean",
            (
                f"The rows of logits do not have mean zero (means from {mean.min():.3g} to {mean.max():.3g}). Softmax does "
                "not see it, norms do: rho-norm takes the mean away unless center=False is said."
            ),
        )


def _fits(measured: Sequence[Measured]) -> Iterator[tuple[str, str]]:
    for method in measured:
        if method.calibrator is None:
            continue
        solution = method.calibrator.solution_
        if not solution.converged:
            yield "fit", f"{method.name}: the optimiser stopped before it met its tolerance."
        if solution.at_bound:
            yield "fit", f"{method.name}: {solution.at_bound}"


def _unseen(test: Predictions, tune: Predictions) -> Iterator[tuple[str, str]]:
    assert test.labels is not None
    assert tune.labels is not None
    unseen = np.setdiff1d(test.labels, tune.labels)
    if len(unseen):
        names = ", ".join(str(name)[:40] for name in test.classes[unseen[:5]])
        more = f" and {len(unseen) - 5} more" if len(unseen) > 5 else ""
        yield (
            "unseen classes",
            (
                f"{len(unseen)} of the classes measured here were never seen in tuning ({names}{more}); methods with "
                "parameters for each class have learned nothing about them."
            ),
        )


def _shifted(test: Predictions, tune: Predictions) -> Iterator[tuple[str, str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RhocalWarning)
        found = shift(tune.logits, tune.labels, test.logits, n_replicates=1)  # the estimates of accuracy are not used
    if found.p_value < SHIFT_ALARM:
        moved = 100 * (found.confidence_production - found.confidence_tune)
        yield (
            "shift",
            (
                f"Confidence differs between tuning and these samples (mean {moved:+.1f} points, Kolmogorov–Smirnov distance "
                f"{found.ks_distance:.3f}, p = {found.p_value:.1g}): what was learned in tuning may not hold."
            ),
        )
    yield from (("shift", f"{str(w.message)[:1].upper()}{str(w.message)[1:]}.") for w in caught)
