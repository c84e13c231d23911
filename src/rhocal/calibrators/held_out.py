"""How a hyper-parameter is chosen by cross-validation, for families that are not scale maps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.scale.ridge import CAUTION, stratified_folds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rhocal.calibrators.scale.scale_search import ScaleSearch
    from rhocal.numerics.special import Vector


def folds_of(fit: ScaleSearch, n_folds: int, entries: int) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Rows to fit on and rows to look at, for each fold; of a large tune set only so many rows that they hold ``entries``.

    Which rows, is decided by their rank in confidence (see ``stratified_folds``), so neither the order of the samples nor
    copies of them change anything. Empty if there is nothing to look at.
    """
    profile = fit.profile
    rows = thinned(fit, entries)
    fold = stratified_folds(fit, n_folds * _every(fit, entries))[rows] // _every(fit, entries)
    present = np.unique(fold[profile.weights[rows] > 0])
    if len(present) < 2:
        return []
    return [(rows[fold != k], rows[fold == k]) for k in present]


def thinned(fit: ScaleSearch, entries: int) -> NDArray[np.intp]:
    """The rows of every k-th rank in confidence, such that they hold about ``entries`` entries."""
    every = _every(fit, entries)
    return np.flatnonzero((stratified_folds(fit, every) == 0) & (fit.profile.weights > 0))


def _every(fit: ScaleSearch, entries: int) -> int:
    present = int((fit.profile.weights > 0).sum())
    return max(1, -(-present * fit.profile.n_classes // entries))


def cautious(
    held_out: Vector, shares: Vector, candidates: Sequence[dict[str, Any]]
) -> tuple[int, tuple[dict[str, Any], ...]]:
    """The first candidate within ``CAUTION`` standard errors of the lowest, and the figures of all.

    ``held_out`` has a row for each fold and a column for each candidate, the most careful first; ``shares`` are the weights
    of the folds.
    """
    shares = shares / shares.sum()
    mean = shares @ held_out
    above = held_out - held_out[:, [int(mean.argmin())]]
    errors = np.sqrt(shares @ (above - shares @ above) ** 2 / max(len(shares) - 1, 1))
    best = int(np.argmax(shares @ above <= CAUTION * errors))
    rows = ({**c, "held_out": float(mean[i]), "standard_error": float(errors[i])} for i, c in enumerate(candidates))
    return best, tuple(rows)
