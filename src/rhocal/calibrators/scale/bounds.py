"""Proposition 1 of the paper: bounds of the probabilities that ρ-Norm Scaling can give."""

from __future__ import annotations

import numpy as np

from rhocal.errors import InputError


def confidence_bounds(n_classes: int, rho: float, gamma: float) -> tuple[float, float]:
    """Bounds of the probability that ρ-Norm Scaling with β = 0 can give any class (Proposition 1).

    Upper: 1 / ((m−1)·exp(−k/γ) + 1), k = (1 + (m−1)^(−1/(ρ−1)))^((ρ−1)/ρ), and k = 1 at ρ = 1; it is attained.
    Lower: 1 / ((m−1)·exp(2^((ρ−1)/ρ)/γ) + 1). It is attained with two classes and at ρ = 1; else no probability is so small:
    the smallest is above it, by a factor of at most m−1. The paper prints the k of the upper bound here too. That is the
    probability at z ∝ (−(m−1)^(1/(ρ−1)), 1, …, 1): the smallest for large γ, and too large for small ones. With m = 3, ρ = 2,
    γ = 0.1 and z ∝ (1, −1, 0) a class gets 7.2e−7, and the printed bound is 2.4e−6.

    >>> low, high = confidence_bounds(3, rho=2, gamma=0.1)
    >>> z = np.array([1, -1, 0]) / np.sqrt(2)
    >>> p = np.exp(z / 0.1) / np.exp(z / 0.1).sum()
    >>> bool(low <= p.min() < 7.3e-7 < 2.4e-6)
    True
    """
    if n_classes < 2 or rho < 1 or gamma <= 0:
        raise InputError(f"need n_classes ≥ 2, rho ≥ 1, gamma > 0; got {n_classes!r}, {rho!r}, {gamma!r}")
    m = n_classes - 1
    k = 1.0 if rho == 1 else (1 + m ** (-1 / (rho - 1))) ** ((rho - 1) / rho)
    return _odds(m, 2 ** ((rho - 1) / rho) / gamma), _odds(m, -k / gamma)


def _odds(m: int, exponent: float) -> float:
    """1 / (m·e^exponent + 1), without overflow."""
    return float(np.exp(-np.logaddexp(np.log(m) + exponent, 0)))
