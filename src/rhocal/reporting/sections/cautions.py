"""Warnings that a reader must know before relying on the values."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rhocal.calibrators.guard import is_doubtful
from rhocal.errors import RhocalWarning
from rhocal.evaluation.shift import shift
from rhocal.metrics.inference.p_values import equals_p
from rhocal.numerics.special import scan
from rhocal.reporting.sections.methods import uses_rho_norm

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rhocal.data.predictions import Predictions
    from rhocal.reporting.sections.methods import MethodSection

MIN_SAMPLES_OF_ECE = 1000
"""Below this the floor of ECE is larger than the effect of most calibrators."""
SHIFT_SIGNIFICANCE_LEVEL = 0.01
MAX_RELATIVE_MEAN = 0.1
"""A row mean above this share of the row's standard deviation is not zero."""
MAX_SHARE_OFF_CENTER = 0.05
"""Share of such rows above which there is a warning."""


class Caution(NamedTuple):
    """A warning of the report."""

    kind: str
    text: str


def cautions(
    test: Predictions,
    calibration: Predictions | None,
    methods: Sequence[MethodSection],
    *,
    same_samples: bool,
    notes: Mapping[str, str],
) -> list[dict[str, str]]:
    """Each with a ``kind`` and a ``text``."""
    items = [*_samples(test, calibration, methods, same_samples=same_samples), *_logits(test, methods), *_fits(methods)]
    if calibration is not None:
        items += [*_unseen(test, calibration), *([] if same_samples else _shifted(test, calibration))]
    items += [Caution("fit", f"{name}: {note}") for name, note in notes.items() if note]
    return [item._asdict() for item in dict.fromkeys(items)]


def _samples(
    test: Predictions, calibration: Predictions | None, methods: Sequence[MethodSection], *, same_samples: bool
) -> Iterator[Caution]:
    if same_samples:
        yield Caution(
            "same samples",
            "The calibrators were fitted on the samples they are evaluated on here, so their metrics look better than they "
            "are. Evaluate on samples that were used neither for training nor for calibration.",
        )
    if test.n_samples < MIN_SAMPLES_OF_ECE:
        ece = methods[0].evaluation["ece"]
        yield Caution(
            "few samples",
            f"Only {test.n_samples:,} samples are evaluated. The ECE of a perfectly calibrated model is {ece.floor:.3f} (up to "
            f"{ece.floor_high:.3f}) by chance alone, and smaller errors cannot be detected.",
        )
    if calibration is not None and calibration.n_samples < MIN_SAMPLES_OF_ECE and not same_samples:
        yield Caution(
            "few samples",
            f"Only {calibration.n_samples:,} samples are in the calibration set; methods with many parameters overfit first.",
        )
    if test.n_clipped:
        n = f"{test.n_clipped:,}"
        yield Caution("input", f"{n} probabilities were (nearly) 0 and were raised to 1e−30; use logits if possible.")


def _logits(test: Predictions, methods: Sequence[MethodSection]) -> Iterator[Caution]:
    if test.kind != "logits" or not uses_rho_norm(methods):
        return
    mean, spread = scan(test.logits).total / test.n_classes, np.std(test.logits, axis=1, dtype=np.float64)
    off = np.abs(mean) > MAX_RELATIVE_MEAN * np.maximum(spread, 1e-12)
    if off.mean() > MAX_SHARE_OFF_CENTER:
        yield Caution(
            "not zero-mean",
            f"The rows of logits do not have mean zero (means from {mean.min():.3g} to {mean.max():.3g}). It does "
            "not change softmax, but norms: rho-norm subtracts the mean unless center=False is set.",
        )


def _fits(methods: Sequence[MethodSection]) -> Iterator[Caution]:
    for method in methods:
        solution = None if method.calibrator is None else method.calibrator.solution_
        held_out = None if solution is None else solution.held_out
        if solution is not None and not solution.converged and (held_out is None or is_doubtful(held_out)):
            yield Caution(
                "fit",
                f"{method.name}: the optimizer stopped before it met its tolerance, and "
                f"{'no comparison on held-out samples shows' if held_out is None else 'held-out samples do not show'} that "
                "the result is as good as no calibration and temperature scaling. Use more calibration samples, or a method "
                "with fewer parameters, such as temperature.",
            )
        if solution is not None and solution.at_bound:
            yield Caution("fit", f"{method.name}: {solution.at_bound}")


def _unseen(test: Predictions, calibration: Predictions) -> Iterator[Caution]:
    assert test.labels is not None
    assert calibration.labels is not None
    unseen = np.setdiff1d(test.labels, calibration.labels)
    if len(unseen):
        names = ", ".join(str(name)[:40] for name in test.classes[unseen[:5]])
        more = f" and {len(unseen) - 5} more" if len(unseen) > 5 else ""
        yield Caution(
            "unseen classes",
            f"{len(unseen)} of the classes here are absent from the calibration set ({names}{more}); methods with "
            "parameters per class have learned nothing about them.",
        )


def _shifted(test: Predictions, calibration: Predictions) -> Iterator[Caution]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RhocalWarning)
        # one replicate: the estimates of accuracy are not used
        result = shift(calibration.logits, calibration.labels, test.logits, n_replicates=1)
    if result.p_value < SHIFT_SIGNIFICANCE_LEVEL:
        moved = 100 * (result.confidence_production - result.confidence_calibration)
        yield Caution(
            "shift",
            f"Confidence differs between the calibration set and these samples (mean {moved:+.1f} points, "
            f"Kolmogorov–Smirnov distance {result.ks_distance:.3f}, p {equals_p(result.p_value)}): the fit may not hold here.",
        )
    for message in (str(warning.message) for warning in caught):
        yield Caution("shift", f"{message[:1].upper()}{message[1:]}.")
