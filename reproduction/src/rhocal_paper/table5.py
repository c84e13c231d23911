"""Table 5: the weight α of the KL term, for every reduction and direction of that term.

Its caption says ρ-norm scaling, but its CIFAR-100 row is that of vector scaling in Table 3 (ECE .173 and .041, KL .106 and
.003 for α = 0 and 1), not that of ρ-norm in Table 2 (ECE .009). So both families are measured.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rhocal import RhoNormScaling, VectorScaling
from rhocal_paper.grid import ECE, KL, NOT, REPRODUCED, Claim, Entry, Finding, Grid, Means
from rhocal_paper.table3 import N_STEPS

if TYPE_CHECKING:
    from rhocal.calibrators import Calibrator
    from rhocal.calibrators.linear.vector import Start

ALPHAS = (0.0, 0.01, 0.1, 1.0, 10.0, 100.0)
FORMS = [(reduction, direction) for reduction in ("mean", "samples", "sum") for direction in ("to-base", "from-base")]
"""How the KL term may be read. The first is the preset: the only reduction that fits the published values."""


def term(reduction: str, direction: str) -> str:
    """The KL term as text."""
    return f"kl(direction={direction}, reduction={reduction})"


def rho_norm(_seed: int, alpha: float, kl: str) -> Calibrator:
    """The paper's preset at one α, fitted exactly."""
    return RhoNormScaling.paper(alpha=alpha, kl=kl, solver="expected")


def vector(seed: int, alpha: float, start: Start) -> Calibrator:
    """Vector scaling at one α, by the mini-batches of Table 3."""
    objective = f"sce + {alpha!r}*{term(*FORMS[0])}" if alpha else "sce"
    return VectorScaling(objective, ridge=0, solver="adam", start=start, n_steps=N_STEPS, random_state=seed)


def name_of(alpha: float, variant: str) -> str:
    """As published.csv has it for the preset; else with the variant.

    >>> name_of(0.01, ""), name_of(1.0, "samples from-base")
    ('alpha=0.01', 'samples from-base alpha=1')
    """
    return f"{variant} alpha={alpha:g}".strip()


def interior(variant: str, spoken: str) -> Claim:
    """Some α between the ends is best."""

    def judge(m: Means) -> Finding:
        values = {alpha: m(name_of(alpha, variant)) for alpha in ALPHAS}
        best = min(values, key=lambda alpha: values[alpha])
        told = "ECE: " + ", ".join(f"α = {alpha:g} {value:.4f}" for alpha, value in values.items())
        if best in {ALPHAS[0], ALPHAS[-1]}:
            return NOT, told
        ends = (name_of(alpha, variant) for alpha in (ALPHAS[0], ALPHAS[-1]))
        return min(m.below(name_of(best, variant), end) for end in ends).verdict, told

    return Claim(f"α has an optimum inside ({spoken})", judge)


def falls(m: Means) -> Finding:
    """As it must."""
    values = [m(name_of(alpha, ""), KL) for alpha in ALPHAS]
    told = "KL: " + ", ".join(f"α = {alpha:g} {value:.5f}" for alpha, value in zip(ALPHAS, values, strict=True))
    return (REPRODUCED if values == sorted(values, reverse=True) else NOT), told


VARIANTS = {"" if form == FORMS[0] else " ".join(form): f"ρ-norm, {' '.join(form)}" for form in FORMS}
VARIANTS |= {
    "vector": "vector scaling, mini-batches from the identity",
    "vector-random": "vector scaling, mini-batches from random scales",
}


def entries() -> dict[str, Entry]:
    """The columns of the table, once for each form of the KL term and for vector scaling."""
    found = {}
    for reduction, direction in FORMS:
        preset = (reduction, direction) == FORMS[0]
        variant = "" if preset else f"{reduction} {direction}"
        for alpha in ALPHAS:
            theirs = name_of(alpha, "") if preset else None
            make = partial(rho_norm, alpha=alpha, kl=term(reduction, direction))
            found[name_of(alpha, variant)] = Entry(make, theirs)
    starts: dict[str, Start] = {"vector": "identity", "vector-random": "random"}
    for variant, start in starts.items():
        for alpha in ALPHAS:
            found[name_of(alpha, variant)] = Entry(partial(vector, alpha=alpha, start=start), name_of(alpha, ""))
    return found


GRID = Grid(
    table=5,
    title="The weight of the KL term",
    entries=entries(),
    metrics=(ECE, KL),
    claims=(
        *(interior(variant, spoken) for variant, spoken in VARIANTS.items()),
        Claim("KL falls as α grows (ρ-norm, mean to-base)", falls),
    ),
)
