"""How a total error may be shared out over the bins, given what was seen.

Noisy sums Z_b = ±u_b + s_b·noise are given, and a total Σ u_b = θ is supposed. Which u_b? The likelihood alone would give
everything to a few bins; so the shares have a prior, and what is wanted of them is averaged over the posterior. The prior is a
mixture:

* any signs, shares ~ Dirichlet(``SPARSE``): a few bins have most of the error;
* one sign everywhere, shares ~ Dirichlet(1): over-confident all over, or under-confident.

A total of θ is cut into ``STEPS`` steps, and sums over all ways to deal them out are convolutions. Bins whose error is beyond
doubt (more than ``KNOWN`` standard deviations) are one normal sum with a known sign, whose prior is flat.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from rhocal.numerics.special import Vector

SPARSE = 0.25
ONE_SIGN = 0.2
"""Prior chance that all errors have one sign."""
STEPS = 64
KNOWN = 6.0
N_FFT = 4 * STEPS
FADE = 1e-3 ** (np.arange(STEPS + 1) / STEPS)
"""Multiplied in before convolving, so that totals beyond the wanted one, which come back round the circle, weigh 1e-12."""


@dataclass(frozen=True)
class Sums:
    """Sums of bins with their standard deviations; those beyond doubt are one."""

    sums: Vector
    deviations: Vector
    """Of the bins in doubt."""
    known: float
    known_deviation: float
    """Of Σ|Z| of the others; 0 if there are none."""
    signs: frozenset[float]
    """Of the others."""
    n_known: int

    @classmethod
    def of(cls, sums: Vector, deviations: Vector) -> Sums:
        """Sort the bins out."""
        sure = np.abs(sums) > KNOWN * deviations
        return cls(
            sums[~sure],
            deviations[~sure],
            float(np.abs(sums[sure]).sum()),
            float(np.sqrt((deviations[sure] ** 2).sum())),
            frozenset(np.sign(sums[sure]).tolist()),
            int(sure.sum()),
        )

    @property
    def least(self) -> float:
        """What the known part adds up to at least; only what is above it is dealt out."""
        return max(0.0, self.known - 2 * KNOWN * self.known_deviation)

    @property
    def all_deviations(self) -> Vector:
        """Of the bins in doubt, then of the known part if there is one."""
        return np.append(self.deviations, self.known_deviation) if self.n_known else self.deviations


def expect(seen: Sums, totals: Vector, wanted: list[Callable[[Vector], Vector]]) -> list[Vector]:
    """Posterior means of functions of u_b/s_b, for each total: shape (n_totals, n_bins). The known part comes last.

    Functions of the known part see its u less ``least``.
    """
    s = seen.all_deviations
    dealt = np.maximum(totals - seen.least, 0)
    means = dealt[:, None, None] * (np.arange(STEPS + 1) / STEPS) / s[:, None]  # (n_totals, n_bins, STEPS + 1)
    values = [of(means) for of in wanted]
    plus, minus = _likelihoods(seen, means)
    numerators: list[Vector] = [np.zeros(means.shape[:2]) for _ in wanted]
    evidence = np.zeros(len(totals))
    for weight, alpha, likelihood in _patterns(seen, plus, minus):
        prior, of_all = _prior(alpha, len(s), has_known=seen.n_known > 0)
        joint = likelihood * prior
        found, others = _convolved(joint)
        evidence += weight / of_all * found
        for k, value in enumerate(values):
            numerators[k] += weight / of_all * _at_total(np.fft.rfft(joint * value, N_FFT) * others)
    return [total / evidence[:, None] for total in numerators]


def _likelihoods(seen: Sums, means: Vector) -> tuple[Vector, Vector]:
    """Of the sums, if the error of a bin has a plus and if it has a minus; each bin scaled to a largest of 1."""
    z = seen.sums / seen.deviations
    if seen.n_known:
        z = np.append(z, (seen.known - seen.least) / seen.known_deviation)
    logs = np.stack([-((z[:, None] - means) ** 2) / 2, -((z[:, None] + means) ** 2) / 2])
    if seen.n_known:
        logs[1, :, -1] = logs[0, :, -1]
    logs -= logs.max(axis=(0, 3), keepdims=True)
    plus, minus = np.exp(logs)
    return plus, minus


def _patterns(seen: Sums, plus: Vector, minus: Vector) -> Iterator[tuple[float, float, Vector]]:
    """Chance, concentration and likelihood of each part of the prior."""
    yield 1 - ONE_SIGN, SPARSE, (plus + minus) / 2
    for sign, likelihood in ((1.0, plus), (-1.0, minus)):
        if seen.signs <= {sign}:
            # with any signs, the known bins have theirs with a chance of ½ each
            yield ONE_SIGN / 2 * 2.0**seen.n_known, 1.0, likelihood


@cache
def _prior(alpha: float, n_bins: int, *, has_known: bool) -> tuple[Vector, float]:
    """u^(α − 1), summed over each step, shape (n_bins, STEPS + 1); and its sum over all ways to deal out a total."""
    edges = np.append(0, np.arange(STEPS + 1) + 0.5) / STEPS
    prior = np.tile(np.diff(edges**alpha), (n_bins, 1))
    if has_known:
        prior[-1] = np.diff(edges)
    prior *= FADE / prior.max(axis=1, keepdims=True)
    return prior, float(_at_total(np.fft.rfft(prior, N_FFT).prod(axis=0)))


def _convolved(parts: Vector) -> tuple[Vector, NDArray[np.complex128]]:
    """Sums over all ways to deal out the steps; and, as spectra, the same over all bins but one."""
    spectra = np.fft.rfft(parts, N_FFT)
    ones = np.ones_like(spectra[:, :1])
    before = np.concatenate([ones, np.cumprod(spectra[:, :-1], axis=1)], axis=1)
    after = np.concatenate([np.cumprod(spectra[:, :0:-1], axis=1)[:, ::-1], ones], axis=1)
    others = before * after
    return np.maximum(_at_total(others[:, 0] * spectra[:, 0]), 1e-300), others


def _at_total(spectra: NDArray[np.complex128]) -> Vector:
    """The last step, which is the total."""
    return np.fft.irfft(spectra, N_FFT)[..., STEPS]
