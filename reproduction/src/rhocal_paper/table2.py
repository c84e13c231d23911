"""Table 2: which part helps, the structure (ρ-norm) or the objective (SCE + KL).

All fits are exact (``solver="expected"``), so that nothing but structure and objective differs.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rhocal import Identity, RhoNormScaling, TemperatureScaling
from rhocal_paper.grid import ADA, ECE, Claim, Entry, Finding, Grid, Means

if TYPE_CHECKING:
    from rhocal.calibrators import Calibrator

OBJECTIVES = {"nll": 0.0, "sce+kl": 1.0, "sce": 0.0}
"""Those of the table with the α of their KL term, and SCE without it."""


def temperature(_seed: int, objective: str) -> Calibrator:
    """Temperature scaling under an objective of the table."""
    return TemperatureScaling(objective.replace("+", " + "))


def rho_norm(_seed: int, objective: str) -> Calibrator:
    """ρ-norm scaling under an objective of the table."""
    name = objective.removesuffix("+kl")
    return RhoNormScaling.paper(objective=name, alpha=OBJECTIVES[objective], solver="expected")


def better(m: Means, one: str, other: str) -> Finding:
    """Whether one is below another in both metrics."""
    level = min(m.below(one, other, metric) for metric in (ECE, ADA))
    return level.verdict, f"{m.told(other, one)}; {m.told(other, one, metric=ADA)}", m.gap(one, other)[0]


def entries() -> dict[str, Entry]:
    """The columns of the table."""
    found = {"uncalibrated": Entry(lambda _seed: Identity())}
    for objective in OBJECTIVES:
        for name, make in (("temperature", temperature), ("rho-norm", rho_norm)):
            theirs = f"{name}/{objective}" if objective != "sce" else None
            found[f"{name}/{objective}"] = Entry(partial(make, objective=objective), theirs)
    return found


GRID = Grid(
    table=2,
    title="Structure and objective",
    entries=entries(),
    metrics=(ECE, ADA),
    claims=(
        Claim(
            "ρ-norm is better than temperature scaling under NLL",
            lambda m: better(m, "rho-norm/nll", "temperature/nll"),
        ),
        Claim(
            "ρ-norm is better than temperature scaling under SCE + KL",
            lambda m: better(m, "rho-norm/sce+kl", "temperature/sce+kl"),
        ),
        Claim(
            "SCE + KL is better than NLL for temperature scaling",
            lambda m: better(m, "temperature/sce+kl", "temperature/nll"),
        ),
        Claim(
            "SCE + KL is better than NLL for ρ-norm",
            lambda m: better(m, "rho-norm/sce+kl", "rho-norm/nll"),
        ),
    ),
)
