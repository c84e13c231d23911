"""What the paper leaves open, our choice for each, and what other choices give: a grid without published columns."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from rhocal import Identity, RhoNormScaling, TemperatureScaling
from rhocal_paper.grid import ADA, ECE, Claim, Entry, Finding, Grid, Means

if TYPE_CHECKING:
    from rhocal.calibrators import Calibrator

EXACT = "exact"
CHOICES: dict[str, dict[str, Any]] = {
    "preset (Algorithm 1)": {},
    "1,000 steps": {"n_steps": 1000},
    "learning rate ÷ 5": {"learning_rate": 1.0},
    "learning rate × 5": {"learning_rate": 25.0},
    "mini-batches of 32": {"batch_size": 32},
    "mini-batches of 512": {"batch_size": 512},
    EXACT: {"solver": "expected"},
    "exact, KL(s‖g)": {"solver": "expected", "kl": "kl(direction=from-base, reduction=mean)"},
    "exact, KL as a mean over samples": {"solver": "expected", "kl": "kl(direction=to-base, reduction=samples)"},
    "exact, KL(s‖g) as a mean over samples": {"solver": "expected", "kl": "kl(direction=from-base, reduction=samples)"},
    "exact, KL as a sum over the batch": {"solver": "expected", "kl": "kl(direction=to-base, reduction=sum)"},
    "exact, α = 0.1": {"solver": "expected", "alpha": 0.1},
    "exact, no KL (α = 0)": {"solver": "expected", "alpha": 0.0},
    "exact, plain maximum (no κ)": {"solver": "expected", "kappa": None},
    "exact, centered rows": {"solver": "expected", "center": True},
    "exact, ρ by the objective": {"solver": "expected", "selection": "objective"},
}
"""Name → options that differ from the preset ``RhoNormScaling.paper()``."""

AVUC_WEIGHTS = (0.1, 1.0, 10.0)

LEFT_OPEN = (
    ("start of γ and β", "not stated", "halves of the NLL-optimal temperature: γ times the mean norm = β = T/2"),
    ("T_max", "not stated for the calibrator (200 is for the networks)", "4,000 steps for each ρ"),
    (
        "learning rate, schedule",
        "not stated for the calibrator",
        "5 times the NLL-optimal temperature, falling like 1/t",
    ),
    ("result of the descent", "the last iterate", "mean of the last quarter; no step is longer than 0.05 of the start"),
    ("constraint γ, β ≥ 0", "not stated how", "γ and β are squares of what is fitted"),
    ("reduction of KL", "printed as a sum over the batch", "mean over samples and classes: fits the published values"),
    ("direction of KL", "Eq. 5 prints KL(g‖s), the text describes KL(s‖g)", "KL(g‖s)"),
    ("weight of AvUC in TS-AvUC", "not stated", "1"),
    ("what histogram binning bins", "not stated", "the confidence of the predicted class; the others share the rest"),
    (
        "“weight clipping to Norm = 3”",
        "gradient or weights; networks or calibrators",
        "gradient norm, in training only",
    ),
    ("“the iteration number was 200”", "epochs or steps", "epochs of training"),
    ("smoothing κ", "1e−4, over all classes", "1e−4, over the two largest"),
    ("edges of AdaECE's bins", "not stated", "equal numbers of samples by confidence; equal confidences share a bin"),
)
"""What, what the paper says, our choice."""


def rho_norm(seed: int, options: dict[str, Any]) -> Calibrator:
    """The preset with other options."""
    return RhoNormScaling.paper(**{"random_state": seed, **options})


def below_temperature(choice: str) -> Claim:
    """The claim of Table 1 that is asked of every choice."""

    def judge(m: Means) -> Finding:
        return Claim.below(choice, "temperature", m)

    return Claim(choice, judge)


def entries() -> dict[str, Entry]:
    """A column for each choice."""
    found = {"uncalibrated": Entry(lambda _seed: Identity()), "temperature": Entry(lambda _seed: TemperatureScaling())}
    found |= {name: Entry(partial(rho_norm, options=options)) for name, options in CHOICES.items()}
    for weight in AVUC_WEIGHTS:
        found[f"TS-AvUC, weight {weight:g}"] = Entry(partial(avuc, weight=weight))
    return found


def avuc(_seed: int, weight: float) -> Calibrator:
    """Temperature scaling under NLL and AvUC."""
    return TemperatureScaling(f"nll + {weight!r}*avuc")


GRID = Grid(
    table=0,
    title="What the paper leaves open",
    entries=entries(),
    metrics=(ECE, ADA),
    claims=[below_temperature(name) for name in entries() if name not in {"uncalibrated", "temperature"}],
)
