"""What the scale of a sample may be computed from: the same questions, answered by logits or by a profile of them.

Answers are columns, one row a sample. None depends on a shift of all logits of a sample, except a norm that is not centered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rhocal.errors import InputError
from rhocal.numerics.caching import cached_property
from rhocal.numerics.ops import DOUBLE_EPS

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

    def largest(self, k: int) -> Value:
        """The k largest logits, largest first; fewer if no more are known."""

    def masked_largest(self, k: int) -> Value | None:
        """Which of the k largest logits are masks, because fewer classes are not masked; None if none can be."""


class LogitFeatures:
    """Read from logits with the operations of a backend."""

    def __init__(
        self, ops: Ops, logits: Value, groups: NDArray[Any] | None = None, masked: Value | None = None
    ) -> None:
        self.ops, self.logits, self.groups, self.masked = ops, logits, groups, masked

    def norm(self, rho: Value, *, center: bool) -> Value:
        z = self.logits
        if self.masked is not None:  # what stands in place of a mask adds nothing
            z = self._below_top() if center else z
            z = self.ops.where(self.masked, self.ops.mean_where_not(self.masked, z) if center else 0.0, z)
        return self.ops.rho_norm(z, rho, center=center)

    def centered_top(self, k: int) -> Value:
        if self.masked is None:
            return self.ops.centered_top(self.logits, k)
        z = self._below_top()
        return self.ops.top(z, k) - self.ops.mean_where_not(self.masked, z)

    def _below_top(self) -> Value:
        """Logits less the largest in single precision, where a mean of three logits of 5e8 is off by as much as they differ.

        In double precision they stay: a row has the same bits alone as in a batch with masks.
        """
        return self.logits - self.ops.max(self.logits) if self.ops.eps > DOUBLE_EPS else self.logits

    def margin(self) -> Value:
        two = self.ops.top(self.logits, 2)
        return self.ops.column(two, 0) - self.ops.column(two, 1)

    def largest(self, k: int) -> Value:
        return self.ops.top(self.logits, k)

    def masked_largest(self, k: int) -> Value | None:
        if self.masked is None:
            return None
        return self.ops.top(self.ops.where(self.masked, 0.0, 1.0), k) <= 0.0  # masks come last


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
        n_best = self.profile.n_best
        mean = self.profile.mean if n_best is None else self.profile.best(n_best).mean(axis=0)
        return np.asarray((largest - mean).T)

    def margin(self) -> Value:
        return -self.profile.runner_up_gap[:, None]

    def largest(self, k: int) -> Value:
        return self.profile.best(k).T

    def masked_largest(self, k: int) -> Value | None:  # noqa: ARG002
        return None


class BestFeatures:
    """Read from the k largest logits of a sample, as if there were no other classes."""

    def __init__(self, ops: Ops, sample: SampleFeatures, k: int) -> None:
        self.ops, self.sample, self.k, self.groups = ops, sample, k, sample.groups

    @cached_property
    def best(self) -> LogitFeatures:
        """The k largest logits; not sorted out for a scale that reads none of them."""
        largest = self.sample.largest(self.k)
        if isinstance(self.sample, ProfileFeatures) and largest.shape[1] < self.k:
            raise InputError(
                f"k = {largest.shape[1]}: the calibrator was fitted on the {self.k} best classes and needs as many; fit one on "
                f"the {largest.shape[1]} best, or use temperature"
            )
        masked = self.sample.masked_largest(self.k)
        return LogitFeatures(self.ops, largest, self.groups, masked)

    def norm(self, rho: Value, *, center: bool) -> Value:
        return self.best.norm(rho, center=center)

    def centered_top(self, k: int) -> Value:
        return self.best.centered_top(k)

    def margin(self) -> Value:
        return self.best.margin()

    def largest(self, k: int) -> Value:
        return self.best.largest(k)

    def masked_largest(self, k: int) -> Value | None:
        return self.best.masked_largest(k)
