"""Table 1: post-hoc methods by ECE, AdaECE and MCE."""

from __future__ import annotations

from rhocal import RhoNormScaling
from rhocal.calibrators import calibrator
from rhocal_paper.grid import ADA, ECE, IN_DIRECTION, MCE, NOT, REPRODUCED, Claim, Entry, Finding, Grid, Level, Means

OURS = "rho-norm-paper"
RIVALS = ("identity", "histogram-binning", "temperature", "vector", "temperature-avuc")


def named(name: str, theirs: str | None) -> Entry:
    """A method of our table, with its options there."""
    return Entry(lambda _seed: calibrator(name), theirs)


def lowest(metric: str, ours: str = OURS) -> Claim:
    """ρ-norm is the best of the paper's methods; in direction: it is below temperature scaling and the network itself."""

    def judge(m: Means) -> Finding:
        known = {name: m(name, metric) for name in RIVALS}
        best = min(known, key=lambda name: known[name])
        level = m.below(ours, best, metric)
        if level is not Level.NOT:
            return level.verdict, m.told(ours, best, "temperature", metric=metric)
        ahead = m(ours, metric) < min(known["temperature"], known["identity"])
        return (IN_DIRECTION if ahead else NOT), m.told(best, ours, "temperature", metric=metric)

    how = "" if ours == OURS else " (not the paper's: with our objective, without KL)"
    return Claim(f"ρ-norm scaling has the lowest {metric}{how}", judge)


def not_lowest(m: Means) -> Finding:
    """The paper grants it."""
    known = {name: m(name, MCE) for name in (*RIVALS, OURS)}
    best = min(known, key=lambda name: known[name])
    return (NOT if best == OURS else REPRODUCED), m.told(best, OURS, metric=MCE)


def temperature_before_vector(m: Means) -> Finding:
    """Fewer parameters, lower error."""
    return m.below("temperature", "vector").verdict, m.told("temperature", "vector")


def keeps_accuracy(m: Means) -> Finding:
    """Decision invariance."""
    kept = m(OURS, "accuracy") == m("identity", "accuracy")
    return (REPRODUCED if kept else NOT), m.told("identity", OURS, "vector", metric="accuracy")


GRID = Grid(
    table=1,
    title="Post-hoc methods",
    entries={
        "identity": named("identity", "uncalibrated"),
        "histogram-binning": named("histogram-binning", "histogram-binning"),
        "temperature": named("temperature", "temperature"),
        "vector": named("vector", "vector"),
        "temperature-avuc": named("temperature-avuc", "temperature-avuc"),
        OURS: Entry(lambda seed: RhoNormScaling.paper(random_state=seed), "rho-norm"),
        "rho-norm": named("rho-norm", None),  # with our own defaults, which the paper does not have
    },
    metrics=(ECE, ADA, MCE),
    claims=(
        lowest(ECE),
        lowest(ADA),
        lowest(ECE, "rho-norm"),
        lowest(ADA, "rho-norm"),
        Claim("ρ-norm scaling does not have the lowest MCE", not_lowest),
        Claim("temperature scaling has a lower ECE than vector scaling", temperature_before_vector),
        Claim("ρ-norm scaling keeps the accuracy", keeps_accuracy),
    ),
)
