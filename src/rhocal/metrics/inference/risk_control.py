"""Thresholds whose risk is certified on held-out samples: learn then test (Angelopoulos et al. 2021).

A threshold t accepts the samples with scores of at least t. Whether the risk of accepting them is above a target is a null
hypothesis for each t:

* Losses of 0 and 1. Given the number of samples that the risk is a share of, the number of losses is binomial, so that the
  binomial distribution function at the target is an exact p-value. That number may be random: the error rate of accepted
  samples is conditional on how many are accepted.
* Bounded losses (costs). Wealth Π(1 + λ(target − loss)), averaged over stakes λ, has mean at most 1 under the null, and its
  inverse is a p-value. The order of the samples does not matter to a product.

Thresholds are tested from the most conservative one on, each only after the one before it was rejected, so that nothing is
paid for their number (fixed-sequence testing). Few accepted samples cannot reject however right they are, so testing starts
where zero errors would, and starts again where 3, 10, 30 and 100 errors would; the starts share the error probability, and a
start that is passed hands its share on.

The tested thresholds are fixed ranks of ``reference`` scores. If these come from other samples, the guarantee holds for any
distribution. Ranks of the certified samples themselves are exact for rates whose denominator is fixed (false positives and
negatives), and for the others if the risk of accepted samples, once it exceeds the target, does not fall below it again.
Equal scores are accepted together or not at all, and so are scores that only rounding distinguishes: a row whose logits are
those of another in another order may have a probability that differs in the last digit. Samples are assumed to be independent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from rhocal.metrics.inference.defaults import JEFFREYS
from rhocal.numerics.special import binomial_cdf, binomial_upper

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    from rhocal.numerics.special import Vector

Risk = Literal["error", "fpr", "fnr", "precision", "recall", "cost"]
RISKS: tuple[Risk, ...] = ("error", "fpr", "fnr", "precision", "recall", "cost")
"""Error rate of accepted samples; of the positive class: false-positive rate, false-negative rate, precision and recall; mean
cost of accepted samples."""
AT_LEAST = ("precision", "recall")
"""Risks whose target is a minimum: they are certified as 1 − precision and 1 − recall."""
FIXED_DENOMINATOR = ("fpr", "fnr", "recall")
"""Shares of all samples of a class, accepted or not: they are monotone in the threshold."""
FROM_BELOW = ("fnr", "recall")
"""Risks of what is not accepted: the most conservative threshold is the lowest."""

START_ERRORS = (0, 3, 10, 30, 100)
"""Testing starts where so many errors among the accepted samples would still reject."""
N_RANKS = 250
"""Thresholds at evenly spaced ranks, and as many at geometrically spaced ones."""
ROUNDING = 1e-5
"""Share of a score within which a threshold moves to the widest gap: ten times what the backends of a policy may differ by."""
DEVIATIONS = 2.0
"""Standard deviations by which fewer samples may be accepted than expected where testing starts."""
N_STAKES = 16
MIN_STAKE = 0.02


@dataclass(frozen=True, eq=False)
class Candidates:
    """Thresholds from the most conservative one on, and the samples at each."""

    thresholds: Vector
    accepted: Vector
    """Samples with scores of at least the threshold."""
    trials: Vector
    """Samples that the risk is a mean over."""
    losses: Vector
    """The sum of their losses."""
    log_wealth: Vector | None = None
    """Of bounded losses: log of the wealth of the bets against the target."""
    parts: tuple[Candidates, ...] = ()
    """The same thresholds in parts of the population, whose risks must all be at most the target."""

    @property
    def risk(self) -> Vector:
        """Observed risk; NaN without trials."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(self.losses / self.trials)

    def p_values(self, target: float) -> Vector:
        """Of the null hypotheses that the risk is above the target, in any of the parts if there are some.

        The largest p-value of the parts is a p-value of this hypothesis (Berger 1982): more parts need no correction.
        """
        if self.parts:
            return np.asarray(np.max([part.p_values(target) for part in self.parts], axis=0))
        if self.log_wealth is not None:
            return np.exp(-np.maximum(self.log_wealth, 0.0))
        return binomial_cdf(self.losses, self.trials, target)


@dataclass(frozen=True)
class Certificate:
    """A threshold, or the closest one if none is certified."""

    index: int | None
    """Of the candidate with the most accepted samples (of false negatives: the fewest) that is certified; None if none is."""
    n_certified: int
    level: float
    """The error probability that was available at the certified threshold."""


def rank_thresholds(reference: Vector, weights: Vector | None = None) -> Vector:
    """Thresholds at fixed ranks of scores between 0 and 1, in descending order, halfway between scores.

    >>> rank_thresholds(np.array([0.9, 0.5, 0.7, 0.7])).round(3).tolist()
    [0.8, 0.6, 0.0]
    """
    values, inverse = np.unique(-np.asarray(reference, np.float64), return_inverse=True)
    values = -values
    mass = np.bincount(inverse, weights)
    values, mass = values[mass > 0], mass[mass > 0]
    ranks = np.cumsum(mass)
    total = ranks[-1]
    wanted = np.concatenate([np.linspace(0, total, N_RANKS + 1)[1:], np.geomspace(1, total, N_RANKS)])
    last = np.unique(np.minimum(np.searchsorted(ranks, wanted * (1 - 1e-12)), len(values) - 1))
    below = np.append(values[1:], -values[-1])  # the last threshold is 0: all are accepted
    last = widest_gaps(values, values - below, last)
    middle = ((values + below)[last] / 2).astype(np.float32).astype(np.float64)
    # The same samples are accepted in single precision; neighbors there have no number between them.
    return np.where((middle > below[last]) & (middle <= values[last]), middle, values[last])


def widest_gaps(values: Vector, gaps: Vector, places: NDArray[np.intp]) -> NDArray[np.intp]:
    """For each place in descending values, the one with the widest gap below it among those that rounding may confuse with it.

    Between equal scores that were rounded differently a gap is far narrower than those around them.
    """
    ends = np.searchsorted(-values, -values[places] * (1 - ROUNDING), side="right")
    return np.unique([k + int(gaps[k:end].argmax()) for k, end in zip(places, ends, strict=True)])


def count_candidates(
    scores: Vector,
    losses: Vector,
    weights: Vector,
    risk: Risk,
    thresholds: Vector,
    *,
    subjects: NDArray[np.bool_] | None = None,
    target: float = 0.0,
) -> Candidates:
    """Count samples and losses at each threshold (descending).

    ``losses`` are 0 or 1 (of costs, between 0 and 1). ``subjects`` are the samples of the class whose rate it is, for risks
    with a fixed denominator. ``weights`` are whole: a weight of k stands for k samples.
    """
    order = np.argsort(-scores, kind="stable")
    ends = np.searchsorted(-scores[order], -thresholds, side="right")

    def above(values: Vector) -> Vector:
        return np.append(0.0, np.cumsum(values[order]))[ends]

    accepted = above(weights)
    if risk in FIXED_DENOMINATOR:
        assert subjects is not None
        mine = weights * subjects
        total, inside = float(mine.sum()), above(mine)
        if risk in FROM_BELOW:
            return Candidates(thresholds[::-1], accepted[::-1], np.full(len(ends), total), (total - inside)[::-1])
        return Candidates(thresholds, accepted, np.full(len(ends), total), inside)
    wealth = None
    if risk == "cost":
        bets = [above(weights * np.log1p(stake * (target - losses))) for stake in stakes(target)]
        wealth = np.logaddexp.reduce(bets, axis=0) - math.log(len(bets))
    return Candidates(thresholds, accepted, accepted, above(weights * losses), wealth)


def together(parts: Collection[Candidates], whole: Candidates) -> Candidates:
    """Candidates whose risk must be at most the target in every part; as many samples are accepted as in the smallest."""
    if not parts:
        return whole
    return replace(whole, accepted=np.min([part.accepted for part in parts], axis=0), parts=tuple(parts))


def stakes(target: float) -> Vector:
    """Stakes of bets on a mean loss between 0 and 1 below the target; no loss can ruin one."""
    return np.asarray(np.geomspace(MIN_STAKE, 0.99, N_STAKES) / (1 - target))


def certify(
    candidates: Candidates, target: float, confidence: float, risk: Risk, expected: Vector | None = None
) -> Certificate:
    """The most useful threshold whose risk is at most the target with this confidence.

    ``expected`` are the accepted samples that reference scores of other samples promise at each threshold: where testing
    starts then depends on these alone.
    """
    p_values, delta = candidates.p_values(target), 1 - confidence
    if risk in FIXED_DENOMINATOR:
        starts = {0: delta}
    else:
        counts = candidates.accepted if expected is None else expected - DEVIATIONS * np.sqrt(expected)
        starts = start_levels(counts, target, delta)
    level, index, used, n_certified = 0.0, None, 0.0, 0
    for k, p in enumerate(p_values):
        level += starts.get(k, 0.0)
        if level and p <= level:
            index, used, n_certified = k, level, n_certified + 1
        else:
            level = 0.0
    return Certificate(index, n_certified, used)


def start_levels(accepted: Vector, target: float, delta: float) -> dict[int, float]:
    """The first candidates that are tested, and the error probability of each."""
    sizes: list[int] = []
    n_samples = float(accepted.max(initial=0))
    for n_starts in range(len(START_ERRORS), 0, -1):
        sizes = [min_trials(errors, target, delta / n_starts) for errors in START_ERRORS[:n_starts]]
        if sizes[-1] <= n_samples:
            break
    levels: dict[int, float] = {}
    for size in sizes:
        k = int(np.searchsorted(accepted, size))
        if k < len(accepted):
            levels[k] = levels.get(k, 0.0) + delta / len(sizes)
    return levels


@cache
def min_trials(errors: int, target: float, level: float) -> int:
    """The fewest trials in which so many errors show that the rate is below the target.

    >>> min_trials(0, 0.02, 0.05)
    149
    """
    low, high = errors, max(2 * errors, 1)
    while binomial_cdf(np.array(errors), np.array(high), target) > level:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if binomial_cdf(np.array(errors), np.array(middle), target) > level:
            low = middle
        else:
            high = middle
    return high


def risk_bounds(candidates: Candidates, confidence: float) -> Vector:
    """Upper bounds of the risk of rates at single thresholds (Clopper and Pearson), not simultaneous ones."""
    return binomial_upper(candidates.losses, candidates.trials, confidence)


def mean_bound(losses: Vector, weights: Vector, confidence: float) -> float:
    """An upper bound of the mean of losses between 0 and 1: the largest mean that the bets do not reject."""
    low, high = 0.0, 1.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        bets = [float(weights @ np.log1p(stake * (middle - losses))) for stake in stakes(middle)]
        wealth = np.logaddexp.reduce(bets) - math.log(len(bets))
        low, high = (low, middle) if wealth >= -math.log(1 - confidence) else (middle, high)
    return high


MAX_FACTOR = 1e6


def more_samples(
    candidates: Candidates, target: float, delta: float, n_samples: float
) -> tuple[int | None, int | None]:
    """About how many more samples would certify a threshold if its risk stayed, and which; None if no risk is low enough.

    Rates count half a loss more (Jeffreys): no loss in three samples says nothing. A threshold that accepts no sample is none.
    """
    rates = (candidates.losses + JEFFREYS) / (candidates.trials + 2 * JEFFREYS)
    factors: dict[int, float] = {}
    for k in np.flatnonzero((rates < target) & (candidates.accepted > 0)).tolist():
        low, high = 1.0, 2.0
        while _p_value(candidates, k, rates[k], target, high) > delta and high < MAX_FACTOR:
            low, high = high, 2 * high
        while high - low > 1e-3 * high:
            middle = (low + high) / 2
            enough = _p_value(candidates, k, rates[k], target, middle) <= delta
            low, high = (low, middle) if enough else (middle, high)
        factors[k] = high
    if not factors or min(factors.values()) >= MAX_FACTOR:
        return None, None
    best = min(factors, key=lambda k: factors[k])
    return max(1, math.ceil(n_samples * (factors[best] - 1))), best


def _p_value(candidates: Candidates, k: int, rate: float, target: float, factor: float) -> float:
    """The p-value of a candidate on more samples."""
    if candidates.log_wealth is not None:
        return math.exp(-max(float(candidates.log_wealth[k]) * factor, 0.0))
    trials = np.floor(candidates.trials[k] * factor)
    return float(binomial_cdf(np.ceil(rate * trials), trials, target))
