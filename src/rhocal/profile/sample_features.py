"""What the scale of a sample may be computed from: the same questions, answered by logits or by a profile of them.

Answers are columns, one row a sample. None depends on a shift of all logits of a sample, except a norm that is not centered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rhocal.numerics.ops import Ops, Value
    from rhocal.profile.profile import Profile


class SampleFeatures(Protocol):
    """The numbers of every sample that a scale formula reads."""

    groups: NDArray[Any] | None
    """The domain of every sample, where it is known."""

    def norm(self, rho: Value, *, center: bool) -> Value:
        """‖z‖_ρ, minus the mean of the row with ``center``."""

    def centered_top(self, k: int) -> Value:
        """The k largest logits, largest first, minus the mean of the row; fewer if there are fewer classes."""

    def margin(self) -> Value:
        """Largest minus second largest logit."""


class LogitFeatures:
    """Read from logits with the operations of a backend."""

    def __init__(
        self, ops: Ops, logits: Value, groups: NDArray[Any] | None = None, masked: Value | None = None
    ) -> None:
        self.ops, self.logits, self.groups, self.masked = ops, logits, groups, masked

    def norm(self, rho: Value, *, center: bool) -> Value:
        z = self.logits
        if self.masked is not None:  # what stands in place of a mask adds nothing
            z = self.ops.where(self.masked, self._mean() if center else 0.0, z)
        return self.ops.rho_norm(z, rho, center=center)

    def centered_top(self, k: int) -> Value:
        if self.masked is None:
            return self.ops.centered_top(self.logits, k)
        return self.ops.top(self.logits, k) - self._mean()

    def _mean(self) -> Value:
        """Mean of the entries of a row that are not masked."""
        return self.ops.mean_where_not(self.masked, self.logits)

    def margin(self) -> Value:
        two = self.ops.top(self.logits, 2)
        return self.ops.column(two, 0) - self.ops.column(two, 1)


@dataclass
class ProfileFeatures:
    """Read from a profile, whose logits may be gone."""

    profile: Profile
    groups: NDArray[Any] | None = None

    def norm(self, rho: Value, *, center: bool) -> Value:
        return self.profile.norms([float(rho)], center=center)[0][:, None]

    def centered_top(self, k: int) -> Value:
        # the largest logit alone is in every profile
        largest = self.profile.top[None] if k == 1 else self.profile.largest[:k]
        return np.asarray((largest - self.profile.mean).T)

    def margin(self) -> Value:
        return -self.profile.runner_up_gap[:, None]
