"""Table 3: vector scaling under one objective after the other.

The paper does not say where its descent begins, and for objectives that are not convex it matters. So every objective is
fitted in three ways: by mini-batch descent from the identity, by mini-batch descent from random scales, and by minimizing the
exact expectation from temperature scaling. There is no ridge. The descent is Adam: plain steps (``solver="sgd"``) end above the
optimum of NLL, which is convex, from every start.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rhocal import Identity, VectorScaling
from rhocal_paper.grid import ADA, ECE, IN_DIRECTION, KL, NOT, REPRODUCED, Claim, Entry, Finding, Grid, Means

if TYPE_CHECKING:
    from rhocal.calibrators import Calibrator
    from rhocal.calibrators.linear.vector import Solver, Start

OBJECTIVES = {
    "sce": "sce",
    "kl": "kl",
    "sce+kl": "sce + kl",
    "nll": "nll",
    "nll+kl": "nll + kl",
    "nll+avuc": "nll + avuc",
    "sb-ece": "sb-ece",
    "sb-ece+kl": "sb-ece + kl",
}
"""The paper's names, and ours. α = 1; KL is the mean over samples and classes."""

WAYS: dict[str, tuple[Solver, Start]] = {
    "descent": ("adam", "identity"),
    "descent-random": ("adam", "random"),
    "exact": ("expected", "temperature"),
}
"""Solver and start."""

SPOKEN = {
    "descent": "mini-batches, from the identity",
    "descent-random": "mini-batches, from random scales",
    "exact": "exact",
}

N_STEPS = 3000
"""Of a descent: NLL of 100 classes ends within 0.001 of its minimum."""


FAR = 2.0
"""How many times farther from the original distribution counts as a marked deviation."""


def vector(seed: int, way: str, objective: str) -> Calibrator:
    """Vector scaling under an objective of the table, fitted in one of the ways."""
    solver, start = WAYS[way]
    return VectorScaling(OBJECTIVES[objective], ridge=0, solver=solver, start=start, n_steps=N_STEPS, random_state=seed)


def breaks(way: str, objective: str) -> Claim:
    """A bin-level objective alone leaves the network uncalibrated and far from its own distribution; KL brings it back."""

    def judge(m: Means) -> Finding:
        alone, repaired = f"{way}: {objective}", f"{way}: {objective}+kl"
        far = m(alone, KL) > FAR * m(repaired, KL)
        told = f"{m.told('uncalibrated', alone, repaired)}; {m.told(alone, repaired, metric=KL)}"
        told += f"; {m.told('uncalibrated', alone, repaired, metric='accuracy')}"
        if far and m(alone) > 0.9 * m("uncalibrated") > m(repaired):
            return REPRODUCED, told
        return (IN_DIRECTION if far and m(alone) > m(repaired) else NOT), told

    return Claim(f"{objective.upper()} alone breaks vector scaling and KL repairs it ({SPOKEN[way]})", judge)


def alone_does_nothing(way: str) -> Claim:
    """KL alone stays at the uncalibrated network."""

    def judge(m: Means) -> Finding:
        told = m.told("uncalibrated", f"{way}: kl", f"{way}: sce+kl")
        return (REPRODUCED if m(f"{way}: kl") > 0.75 * m("uncalibrated") else NOT), told

    return Claim(f"KL alone does not calibrate ({SPOKEN[way]})", judge)


def helps_nll(way: str) -> Claim:
    """KL lowers the ECE of NLL."""

    def judge(m: Means) -> Finding:
        one, other = f"{way}: nll+kl", f"{way}: nll"
        return (
            min(m.below(one, other, metric) for metric in (ECE, ADA)).verdict,
            m.told(other, one),
            m.gap(one, other)[0],
        )

    return Claim(f"NLL + KL is better than NLL ({SPOKEN[way]})", judge)


def entries() -> dict[str, Entry]:
    """The columns of the table, once for each way."""
    found = {"uncalibrated": Entry(lambda _seed: Identity(), "uncalibrated")}
    for way in WAYS:
        for objective in OBJECTIVES:
            found[f"{way}: {objective}"] = Entry(partial(vector, way=way, objective=objective), f"vector/{objective}")
    return found


GRID = Grid(
    table=3,
    title="Vector scaling under different objectives",
    entries=entries(),
    metrics=(ECE, ADA, KL),
    claims=(
        *(breaks(way, "sce") for way in WAYS),
        *(breaks(way, "sb-ece") for way in WAYS),
        *(alone_does_nothing(way) for way in WAYS),
        *(helps_nll(way) for way in WAYS),
    ),
)
