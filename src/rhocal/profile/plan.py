"""What a pass over rows keeps of them: the numbers that a fit reads, and where its table of curves lies."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rhocal.numerics.caching import cached_property
from rhocal.numerics.kernels import GRID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rhocal.numerics.special import Vector
    from rhocal.profile.profile import Profile

RINGS = (-1, 0, 1)
"""Rings of a common table: scales from 1/8 to 8 times its center."""

ALL_NAMES = (
    *(f"norm {rho:g}{centered}" for centered in ("", " centred") for rho in GRID),
    *("mean", "largest", "runner_up_gap", "base"),
)
"""Numbers of a sample that serve every family."""

COMMON = ""
"""The key of the table that samples share."""


@dataclass(frozen=True)
class PassPlan:
    """What to keep of rows that are released: numbers of every sample, tables of their curves, and some of the rows."""

    log_center: float | None
    """log σ in the middle of the common table; None without one."""
    names: tuple[str, ...] = ALL_NAMES
    """Numbers that are kept; see ``Profile.kept``."""
    expected_scale: Mapping[str, Callable[[Profile], Vector]] = field(default_factory=dict)
    """Key → the scale around which each sample's curve is tabulated: tables of their own, for fits that end near it."""
    has_common_table: bool = True
    mask_gap: float | None = None
    """How far below the largest logit of its row an entry is a mask; None: every block decides."""
    smallest_prob: float | None = None
    """What smaller probabilities are raised to before the logarithm; None: every block decides."""
    max_key: float | None = None
    """Rows whose sampling key is at most this are kept; None for no rows."""

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The keys of all tables."""
        return (*((COMMON,) if self.has_common_table else ()), *self.expected_scale)

    @classmethod
    def union(cls, plans: Iterable[PassPlan]) -> PassPlan | None:
        """The plan that keeps what each of the plans keeps; None without plans."""
        plans = list(plans)
        if not plans:
            return None
        return replace(
            next((plan for plan in plans if plan.has_common_table), plans[0]),
            names=tuple(dict.fromkeys(name for plan in plans for name in plan.names)),
            expected_scale={key: scale for plan in plans for key, scale in plan.expected_scale.items()},
        )
