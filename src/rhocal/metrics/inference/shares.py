"""How a total error is shared out over the bins, given the observed sums.

Given are noisy sums Z_b = ±u_b + s_b·noise and a total Σ u_b = θ; unknown are the u_b. The likelihood alone would give
everything to a few bins, so the shares have a prior, and functions of them are averaged over the posterior. The prior is a
mixture:

* any signs, shares ~ Dirichlet(``SPARSE``): a few bins have most of the error;
* one sign everywhere, shares ~ Dirichlet(1): over-confident all over, or under-confident.

A total of θ is cut into ``N_STEPS`` steps, and sums over all ways to distribute them are convolutions. Bins whose error is
certain (more than ``MIN_CERTAIN`` standard deviations) are one normal sum with a known sign, whose prior is flat.
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
"""Prior probability that all errors have one sign."""
N_STEPS = 64
MIN_CERTAIN = 6.0
"""Standard deviations beyond which the error of a bin is certain."""
N_FFT = 4 * N_STEPS
FADE = 1e-3 ** (np.arange(N_STEPS + 1) / N_STEPS)
"""Factor before the circular convolution, so that totals beyond θ, which wrap around, weigh 1e-12."""


@dataclass(frozen=True)
class NoisyBinSums:
    """Sums of bins with their standard deviations; those that are certain are added up to one."""

    sums: Vector
    deviations: Vector
    """Of the uncertain bins."""
    known: float
    known_deviation: float
    """Of Σ|Z| of the others; 0 if there are none."""
    signs: frozenset[float]
    """Of the others."""
    n_known: int

    @classmethod
    def from_bins(cls, sums: Vector, deviations: Vector) -> NoisyBinSums:
        """Separate the certain bins from the others."""
        certain = np.abs(sums) > MIN_CERTAIN * deviations
        return cls(
            sums[~certain],
            deviations[~certain],
            float(np.abs(sums[certain]).sum()),
            float(np.sqrt((deviations[certain] ** 2).sum())),
            frozenset(np.sign(sums[certain]).tolist()),
            int(certain.sum()),
        )

    @property
    def least(self) -> float:
        """A lower bound of the known part; only the total above it is distributed."""
        return max(0.0, self.known - 2 * MIN_CERTAIN * self.known_deviation)

    @property
    def all_deviations(self) -> Vector:
        """Of the uncertain bins, then of the known part if there is one."""
        return np.append(self.deviations, self.known_deviation) if self.n_known else self.deviations


def posterior_means(
    observed: NoisyBinSums, totals: Vector, functions: list[Callable[[Vector], Vector]]
) -> list[Vector]:
    """Posterior means of functions of u_b/s_b, for each total: shape (n_totals, n_bins). The known part comes last.

    Functions of the known part get its u less ``least``.
    """
    s = observed.all_deviations
    distributed = np.maximum(totals - observed.least, 0)
    means = (
        distributed[:, None, None] * (np.arange(N_STEPS + 1) / N_STEPS) / s[:, None]
    )  # (n_totals, n_bins, N_STEPS + 1)
    values = [function(means) for function in functions]
    plus, minus = _likelihoods(observed, means)
    numerators: list[Vector] = [np.zeros(means.shape[:2]) for _ in functions]
    evidence = np.zeros(len(totals))
    for weight, alpha, likelihood in _patterns(observed, plus, minus):
        prior, prior_total = _prior(alpha, len(s), has_known=observed.n_known > 0)
        joint = likelihood * prior
        joint *= _others(joint)
        evidence += weight / prior_total * np.maximum(joint[:, 0].sum(axis=-1), 1e-300)
        for k, value in enumerate(values):
            numerators[k] += weight / prior_total * np.einsum("tbj,tbj->tb", joint, value)
    return [total / evidence[:, None] for total in numerators]


def _likelihoods(observed: NoisyBinSums, means: Vector) -> tuple[Vector, Vector]:
    """Of the sums, if the error of a bin has a plus and if it has a minus; each bin scaled to a largest of 1."""
    z = observed.sums / observed.deviations
    if observed.n_known:
        z = np.append(z, (observed.known - observed.least) / observed.known_deviation)
    logs = np.stack([-((z[:, None] - means) ** 2) / 2, -((z[:, None] + means) ** 2) / 2])
    if observed.n_known:
        logs[1, :, -1] = logs[0, :, -1]
    logs -= logs.max(axis=(0, 3), keepdims=True)
    plus, minus = np.exp(logs)
    return plus, minus


def _patterns(observed: NoisyBinSums, plus: Vector, minus: Vector) -> Iterator[tuple[float, float, Vector]]:
    """Probability, concentration and likelihood of each part of the prior."""
    yield 1 - ONE_SIGN, SPARSE, (plus + minus) / 2
    for sign, likelihood in ((1.0, plus), (-1.0, minus)):
        if observed.signs <= {sign}:
            # with any signs, the known bins have theirs with a probability of ½ each
            yield ONE_SIGN / 2 * 2.0**observed.n_known, 1.0, likelihood


@cache
def _prior(alpha: float, n_bins: int, *, has_known: bool) -> tuple[Vector, float]:
    """u^(α − 1), summed over each step, shape (n_bins, N_STEPS + 1); and its sum over all ways to distribute a total."""
    edges = np.append(0, np.arange(N_STEPS + 1) + 0.5) / N_STEPS
    prior = np.tile(np.diff(edges**alpha), (n_bins, 1))
    if has_known:
        prior[-1] = np.diff(edges)
    prior *= FADE / prior.max(axis=1, keepdims=True)
    return prior, float(_at_total(np.fft.rfft(prior, N_FFT).prod(axis=0)))


def _others(parts: Vector) -> Vector:
    """For each step of a bin, the sum over all ways in which the other bins give the rest of the total."""
    spectra = np.fft.rfft(parts, N_FFT)
    n_bins = spectra.shape[1]
    products = np.ones_like(spectra)
    after = np.ones_like(spectra[:, 0])
    for b in range(1, n_bins):
        np.multiply(products[:, b - 1], spectra[:, b - 1], out=products[:, b])
    for b in range(n_bins - 2, -1, -1):
        after *= spectra[:, b + 1]
        products[:, b] *= after
    return np.fft.irfft(products, N_FFT)[..., N_STEPS::-1]


def _at_total(spectra: NDArray[np.complex128]) -> Vector:
    """The last step, which is the total."""
    return np.fft.irfft(spectra, N_FFT)[..., N_STEPS]
