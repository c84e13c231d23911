"""Honest statistics: floors, intervals, tests, paired differences, and how many samples it takes.

The formulas live in one file each; this is where to import them from. How to read them: docs/statistics.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rhocal.errors import InputError
from rhocal.metrics.binned import N_BINS
from rhocal.metrics.bootstrap import BINNED, bootstrap
from rhocal.metrics.calibration_tests import Test, calibration_tests
from rhocal.metrics.floor import Floor, check_names, floor, floors
from rhocal.metrics.inverted import Interval, ece_interval
from rhocal.metrics.paired import Difference, against, differences, holm, paired
from rhocal.metrics.power import Needed, samples_needed, typical_confidences
from rhocal.metrics.scores import Scored
from rhocal.metrics.units import take, units
from rhocal.predictions import Kind, predictions

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

LEVEL = 0.95


def interval(
    metric: str,
    probs: Any,
    labels: Any,
    *,
    sample_weight: Any = None,
    kind: Kind = "probs",
    method: str = "auto",
    stratified: bool = False,
    level: float = LEVEL,
    n_replicates: int = 1000,
    seed: int = 0,
) -> Interval:
    """A confidence interval for what the metric is on endlessly many samples.

    ``method`` is ``inverted`` (ECE and AdaECE, valid near 0), ``percentile``, ``bca``, or ``auto``: inverted where it exists,
    else bca. ``stratified`` keeps the number of samples of every class as it is.
    """
    if labels is None:
        raise InputError("labels are missing; an interval needs one label for each sample")
    if not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1; got {level!r}")
    data = predictions(probs, labels, sample_weight=sample_weight, kind=kind, name=kind)
    strata = data.labels if stratified else None
    return intervals(
        Scored.of(data), [metric], method=method, strata=strata, level=level, n_replicates=n_replicates, seed=seed
    )[metric]


def intervals(
    scored: Scored,
    names: Sequence[str],
    *,
    method: str = "auto",
    strata: NDArray[np.intp] | None = None,
    level: float = LEVEL,
    n_replicates: int = 1000,
    seed: int = 0,
) -> dict[str, Interval]:
    """Intervals of several metrics, from the same resamples."""
    check_names(names)
    if method not in {"auto", "inverted", "percentile", "bca"}:
        raise InputError(f"method is auto, inverted, percentile or bca; got {method!r}")
    inverted = [name for name in names if name in BINNED and method in {"auto", "inverted"}]
    others = [name for name in names if name not in inverted]
    if method == "inverted" and others:
        raise InputError(f"method='inverted' is for {', '.join(BINNED)}; for {others[0]} take bca")
    sample = take(scored, units(scored))
    found = {name: ece_interval(sample, BINNED[name](sample), N_BINS, level) for name in inverted}
    if others:
        drawn = bootstrap(scored, others, strata=strata, n_replicates=n_replicates, seed=seed)
        found |= {name: drawn[name].interval("bca" if method == "auto" else method, level) for name in others}
    return {name: found[name] for name in names}


__all__ = [
    "Difference",
    "Floor",
    "Interval",
    "Needed",
    "Test",
    "against",
    "calibration_tests",
    "differences",
    "floor",
    "floors",
    "holm",
    "interval",
    "intervals",
    "paired",
    "samples_needed",
    "typical_confidences",
]
