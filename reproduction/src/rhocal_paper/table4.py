"""Table 4: ρ-norm scaling for one ρ after the other (SCE + KL with α = 1, exact)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from rhocal import Identity, RhoNormScaling, TemperatureScaling
from rhocal_paper.grid import ADA, ECE, NOT, REPRODUCED, Claim, Entry, Finding, Grid, Means

if TYPE_CHECKING:
    from rhocal.calibrators import Calibrator

RHOS = (1.5, 1.75, 2.0, 2.25, 2.5)
WITHOUT = ", alpha=0"
"""The KL term holds every ρ near the uncalibrated network and hides what ρ does; so there are columns without it."""


def name_of(rho: float) -> str:
    """As published.csv has it.

    >>> [name_of(rho) for rho in (1.75, 2.0)]
    ['rho=1.75', 'rho=2']
    """
    return f"rho={rho:g}"


def rho_norm(_seed: int, rho: float, alpha: float) -> Calibrator:
    """The paper's preset at one ρ, fitted exactly."""
    return RhoNormScaling.paper(rho=rho, alpha=alpha, solver="expected")


def with_best(m: Means, suffix: str) -> tuple[Means, str]:
    """The best ρ as a method, and its name."""
    return m.with_lowest([name_of(rho) + suffix for rho in RHOS])


def before_temperature(suffix: str) -> Claim:
    """The best ρ beats temperature scaling."""

    def judge(m: Means) -> Finding:
        found, best = with_best(m, suffix)
        return Claim.below(best, "temperature", found, ECE, "uncalibrated")

    return Claim(f"the best ρ has a lower ECE than temperature scaling{spoken(suffix)}", judge)


def smooth_near_2(suffix: str) -> Claim:
    """The steps of ECE to the neighbours of ρ = 2 are smaller than those beyond them."""

    def judge(m: Means) -> Finding:
        steps = np.abs(np.diff([m(name_of(rho) + suffix) for rho in RHOS]))
        near, far = steps[1:3].max(), steps[[0, 3]].max()
        told = f"largest step of ECE between neighbours: {near:.4f} next to ρ = 2, {far:.4f} beyond"
        return (REPRODUCED if near < far else NOT), told

    return Claim(f"results are smooth near ρ = 2{spoken(suffix)}", judge)


def searching_pays(suffix: str) -> Claim:
    """Some ρ is better than 2, by more than the spread over splits."""

    def judge(m: Means) -> Finding:
        found, best = with_best(m, suffix)
        gap, half = found.gap(name_of(2) + suffix, best)
        told = f"the best: {best}; ρ = 2 is {gap:.4f} ± {half:.4f} above"
        return found.below(best, name_of(2) + suffix).verdict, told

    return Claim(f"ρ = 2 is not the best: searching ρ pays{spoken(suffix)}", judge)


def spoken(suffix: str) -> str:
    """What a claim says about the KL term."""
    return " (without the KL term)" if suffix else ""


def entries() -> dict[str, Entry]:
    """The columns of the table, then those without the KL term."""
    found = {name_of(rho): Entry(partial(rho_norm, rho=rho, alpha=1.0), name_of(rho)) for rho in RHOS}
    found["uncalibrated"] = Entry(lambda _seed: Identity(), "uncalibrated")
    found["temperature"] = Entry(lambda _seed: TemperatureScaling(), "temperature")
    for rho in RHOS:
        found[name_of(rho) + WITHOUT] = Entry(partial(rho_norm, rho=rho, alpha=0.0))
    return found


GRID = Grid(
    table=4,
    title="Different norms",
    entries=entries(),
    metrics=(ECE, ADA),
    claims=[claim(suffix) for suffix in ("", WITHOUT) for claim in (before_temperature, smooth_near_2, searching_pays)],
)
