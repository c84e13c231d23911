"""The curves L of all samples, tabulated: after one pass over the logits every evaluation costs O(n_samples).

Around a center the axis log σ is cut into rings, each reaching from one half of its middle scale to twice that. In a ring L
is the polynomial of degree 14 that meets L, L′ and L″ at five nodes, which are to each other as 3 : 4 : 6 : 9 : 12. So one
exponential of every logit gives all five, and they lie almost where the error of such a polynomial is smallest. In complex
log σ the nearest singularity of L lies atan(π / log(m − 1)) from the real axis (m − 1 rivals at one gap g:
1 + (m − 1) exp(−σ g) = 0). That worst case has an error of 3e−5 with 100 classes and 5e−4 with 1,000; on real logits it is
below 2e−5 at most and 5e−7 in the mean. Rings are built when a search first enters them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cache
from math import factorial
from typing import TYPE_CHECKING

import numpy as np

from rhocal.numerics import kernels
from rhocal.numerics.threads import in_threads
from rhocal.profile.passes import FEW_CLASSES, FIVE, Curve
from rhocal.profile.plan import COMMON, RINGS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rhocal.numerics.special import Vector
    from rhocal.profile.plan import PassPlan
    from rhocal.profile.profile import Profile

RING = 2 * np.log(2)
"""Width of a ring in log σ: two octaves."""

REACH = 0.999 * RING / 2
"""How far around its middle, in log σ, a ring is evaluated: not to the last digit."""

NODES = np.array(FIVE) / FIVE[2]
"""Scales at the nodes of a ring, in units of its middle."""

DEGREE = 14

N_EVALUATED_SAMPLES = 1 << 14
"""Samples whose polynomials are evaluated together."""

MAX_SHARE_DIRECT = 0.02
"""If no more than this share of the samples is outside the rings built, these are evaluated directly."""


@dataclass(frozen=True)
class Table:
    """Polynomials of log σ for L of every sample, ring by ring."""

    profile: Profile
    log_center: float | Vector
    """log σ in the middle of ring 0; one for all samples, or one for each."""
    rings: dict[int, NDArray[np.float64]] = field(default_factory=dict)
    """Ring → coefficients, one row a power, of t = (log σ − middle) / log 2 between −1 and 1."""

    def take(self, rows: NDArray[np.intp], profile: Profile) -> Table:
        """The table of some of the samples, whose profile is given."""
        center = self.log_center[rows] if isinstance(self.log_center, np.ndarray) else self.log_center
        return Table(profile, center, {ring: part.take(rows, axis=1) for ring, part in self.rings.items()})

    def followed_by(self, others: Sequence[Table], profile: Profile) -> Table:
        """The table of these samples and those of other tables after them, whose profile is given."""
        tables = [self, *others]
        centers = [np.asarray(table.log_center) for table in tables]
        center: float | Vector = float(centers[0]) if centers[0].ndim == 0 else np.concatenate(centers)
        rings = {ring: np.concatenate([table.rings[ring] for table in tables], axis=1) for ring in self.rings}
        return Table(profile, center, rings)

    def curve(self, scale: Vector, order: int = 2) -> Curve:
        """L and its derivatives up to an order (1, 2 or 3) of every sample at its own scale."""
        if self.profile.passes is None:
            return self._within_one(scale, order) if len(self.rings) == 1 else self._within(scale, order)
        if not isinstance(self.log_center, np.ndarray):  # the ends tell whether one ring is enough
            low, high = (round((math.log(end) - self.log_center) / RING) for end in (scale.min(), scale.max()))
            if low == high:
                return Curve(derivatives(self._ring(low), scale, self.log_center + low * RING, order))
        ring = np.rint((np.log(scale) - self.log_center) / RING)
        low, high = int(ring.min()), int(ring.max())
        out = np.empty((order + 1, len(scale)))
        for k in range(low, high + 1):
            rows = np.flatnonzero(ring == k)
            if k in self.rings or len(rows) > MAX_SHARE_DIRECT * len(scale):
                out[:, rows] = derivatives(self._ring(k).take(rows, axis=1), scale[rows], self._middle(k, rows), order)
            elif len(rows):
                out[:, rows] = self.profile.take(rows).curve(scale[rows], order).orders
        return Curve(tuple(out))

    @property
    def own_ring(self) -> tuple[NDArray[np.float64], Vector] | None:
        """The polynomials around every sample's own scale, and their middles; None for a table that samples share."""
        if not isinstance(self.log_center, np.ndarray) or len(self.rings) != 1:
            return None
        ((ring, coefficients),) = self.rings.items()
        return coefficients, self.log_center + ring * RING

    def ring_around(self, low: float, high: float) -> tuple[Vector, float] | None:
        """The polynomials of the ring that holds all log σ from low to high, and its middle; None if there is no such ring."""
        if isinstance(self.log_center, np.ndarray):
            return None
        ring = round(((low + high) / 2 - self.log_center) / RING)
        middle = self.log_center + ring * RING
        if not middle - REACH <= low <= high <= middle + REACH or (
            self.profile.passes is None and ring not in self.rings
        ):
            return None
        return self._ring(ring), middle

    def _within(self, scale: Vector, order: int) -> Curve:
        """The curve of a saved table, which has no logits to build further rings from: beyond them, its tangent."""
        at = (np.log(scale) - self.log_center) / RING
        low, high = min(self.rings) - 0.5, max(self.rings) + 0.5
        inside = np.clip(at, low, high)
        clipped = np.where(inside == at, scale, np.exp(self.log_center + RING * inside))
        ring = np.clip(np.rint(inside), min(self.rings), max(self.rings)).astype(int)
        out = np.empty((order + 1, len(scale)))
        for k in np.unique(ring):
            rows = np.flatnonzero(ring == k)
            out[:, rows] = derivatives(self.rings[k].take(rows, axis=1), clipped[rows], self._middle(k, rows), order)
        return _with_tangent(tuple(out), scale, clipped)

    def _within_one(self, scale: Vector, order: int) -> Curve:
        """The same for a table of one ring, some samples at a time: their polynomials stay in the cache."""
        ((middle, c),) = self.rings.items()
        orders = kernels.ring(c, scale, self.log_center + RING * middle, order, edge=1.0)
        if orders is not None:
            return Curve(orders)
        at = (np.log(scale) - self.log_center) / RING
        center = np.broadcast_to(self.log_center, at.shape)
        out = np.empty((order + 1, len(scale)))

        def work(start: int) -> None:
            rows = slice(start, start + N_EVALUATED_SAMPLES)
            t, own = 2 * (at[rows] - middle), scale[rows]
            own_middle = center[rows] + RING * middle
            if np.abs(t).max() <= 1:
                out[:, rows] = derivatives(c[:, rows], own, own_middle, order)
                return
            inside = np.clip(t, -1, 1)
            clipped = np.where(inside == t, own, np.exp(own_middle + RING * inside / 2))
            out[:, rows] = _with_tangent(derivatives(c[:, rows], clipped, own_middle, order), own, clipped).orders

        in_threads(work, range(0, len(scale), N_EVALUATED_SAMPLES))
        return Curve(tuple(out))

    def _middle(self, ring: int, rows: NDArray[np.intp]) -> float | Vector:
        """Log σ in the middle of a ring, for some of the samples."""
        own = self.log_center[rows] if isinstance(self.log_center, np.ndarray) else self.log_center
        return own + ring * RING

    def _ring(self, ring: int) -> NDArray[np.float64]:
        if ring not in self.rings:
            self.build(ring)
        return self.rings[ring]

    def build(self, ring: int) -> None:
        """Build a ring with one pass over the logits."""
        if self.profile.passes is None or not kernels.is_enabled:
            self.set_nodes(ring, self.nodes(ring))
            return
        scales = self._node_scales(ring)
        sums = self.profile.passes.moments(self.profile.top, scales).reshape(15, -1)
        self.rings[ring] = kernels.interpolate(_interpolation(), scales, sums)

    def _node_scales(self, ring: int) -> Vector:
        return np.asarray(np.exp(self.log_center + ring * RING) * NODES)

    def nodes(self, ring: int) -> NDArray[np.float64]:
        """One pass over the logits: L, dL/dt and d²L/dt² at the five nodes of a ring (15 × n_samples)."""
        if self.profile.passes is None:
            return np.asarray(_meeting() @ self.rings[ring])
        scales = self._node_scales(ring)
        met = self.profile.passes.moments(self.profile.top, scales)
        total, first, second = met
        first *= scales[:, None] / total  # σ E[z]
        second *= scales[:, None] ** 2 / total
        second += first - first**2  # σ² Var[z] + σ E[z] = d²L/d(log σ)²
        first *= np.log(2)
        second *= np.log(2) ** 2
        np.log(total, out=total)
        return met.reshape(15, -1)

    def set_nodes(self, ring: int, met: NDArray[np.float64]) -> None:
        """Build a ring from its nodes."""
        self.rings[ring] = _interpolation() @ met


def _with_tangent(orders: tuple[Vector, ...], scale: Vector, clipped: Vector) -> Curve:
    """Curves known at clipped scales, carried on along their tangents, as far down as 0: no L is smaller."""
    away = clipped != scale
    if away.any():
        orders[0][:] += orders[1] * (scale - clipped)
        for higher in orders[2:]:
            higher[away] = 0
        below = orders[0] < 0
        orders[0][below] = 0
        orders[1][below] = 0
    return Curve(orders)


def around(profile: Profile, scale: Vector) -> Table:
    """A table of one ring around every sample's own scale, for fits that end near it: half the work of a common ring.

    One exponential of every logit, at half the scale; its square and the square of that give the scale and twice it. The
    polynomial of degree 8 meets L and L′ at both ends and four derivatives in the middle: at t from it the error falls
    like t⁵.
    """
    assert profile.passes is not None
    coefficients = _from_middle() @ _slopes_in_log(profile.passes.moments_at(profile.top, scale), scale)
    return Table(profile, np.log(scale), {0: coefficients})


def _slopes_in_log(sums: Vector, scale: Vector) -> Vector:
    """From the sums of ``moments_at`` to L and its derivatives in t = log σ / log 2: two, five and two of them."""
    (low, low_z), middle, (high, high_z) = sums[:2], sums[2:7], sums[7:]
    power, moments = 1 / middle[0], []
    for k in range(1, 5):
        power = power * scale
        moments.append(middle[k] * power)
    m1, m2, m3, m4 = moments
    square = m1 * m1  # NumPy's ** takes ten times as long as a product
    a2 = np.maximum(m2 - square, 0)
    a3 = m3 - m1 * (3 * m2 - 2 * square)
    a4 = m4 - 4 * m1 * m3 - 3 * m2 * m2 + 6 * square * (2 * m2 - square)
    u = np.log(2)  # below: derivatives in log σ of a function whose k-th derivative in σ is a_k / σ^k
    return np.stack(
        [
            np.log(low), u * low_z * scale / 2 / low,
            np.log(middle[0]), u * m1, u**2 * (a2 + m1), u**3 * (a3 + 3 * a2 + m1), u**4 * (a4 + 6 * a3 + 7 * a2 + m1),
            np.log(high), u * high_z * 2 * scale / high,
        ]
    )  # fmt: skip


@cache
def _from_middle() -> NDArray[np.float64]:
    """From what ``_slopes_in_log`` gives to coefficients of 1, t, …, t⁸."""
    k = np.arange(9)
    rows = [np.where(k == d, float(factorial(d)), 0.0) for d in range(5)]
    low, high = ([(1.0 * t) ** k, k * (1.0 * t) ** np.maximum(k - 1, 0)] for t in (-1, 1))
    return np.asarray(np.linalg.inv(np.vstack([*low, *rows, *high])))


@cache
def _interpolation() -> NDArray[np.float64]:
    """From L, dL/dt and d²L/dt² at the nodes to coefficients of 1, t, …, t¹⁴."""
    return np.asarray(np.linalg.inv(_meeting()))


@cache
def _meeting() -> NDArray[np.float64]:
    """The way back."""
    t, k = np.log2(NODES)[:, None], np.arange(DEGREE + 1)
    return np.vstack([t**k, k * t ** np.maximum(k - 1, 0), k * (k - 1) * t ** np.maximum(k - 2, 0)])


def derivatives(c: NDArray[np.float64], scale: Vector, log_middle: float | Vector, order: int) -> tuple[Vector, ...]:
    """Value and derivatives in σ of polynomials of t = (log σ − log_middle) / log 2: Horner's rule on all of them at once."""
    if (compiled := kernels.ring(c, scale, log_middle, order)) is not None:
        return compiled
    t = (np.log(scale) - log_middle) / np.log(2)
    taylor = [c[-1].copy(), *(np.zeros_like(t) for _ in range(order))]  # the k-th derivative over k!
    for k in range(len(c) - 2, -1, -1):
        for d in range(order, 0, -1):
            taylor[d] *= t
            taylor[d] += taylor[d - 1]
        taylor[0] *= t
        taylor[0] += c[k]
    np.maximum(taylor[0], 0, out=taylor[0])  # a rounding error must not make a confidence larger than 1
    # From derivatives in u = log σ to derivatives in σ: σ L′ = L_u, σ² L″ = L_uu − L_u, σ³ L‴ = L_uuu − 3 L_uu + 2 L_u
    in_log = [d * factorial(k) / np.log(2) ** k for k, d in enumerate(taylor)]
    in_scale = [in_log[0], in_log[1] / scale]
    if order > 1:
        in_scale.append((in_log[2] - in_log[1]) / scale / scale)
    if order > 2:
        in_scale.append((in_log[3] - 3 * in_log[2] + 2 * in_log[1]) / scale / scale / scale)
    return tuple(in_scale)


def tabulate(profile: Profile, plan: PassPlan, key: str = COMMON) -> Profile:
    """The profile, of which the numbers of the plan are read, without its logits.

    With few classes these stay: they are fewer than the numbers that would replace them.
    """
    if len(profile.classes) <= FEW_CLASSES:
        return profile
    bare = replace(profile, passes=None)
    if key == COMMON:
        assert plan.log_center is not None
        table = Table(profile, plan.log_center)
        for ring in RINGS:
            table.build(ring)
    else:
        table = around(profile, plan.expected_scale[key](profile))
    return replace(bare, table=Table(bare, table.log_center, table.rings))
