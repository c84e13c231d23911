"""Folds of a calibration set: which samples a candidate is fitted on, and which it is scored on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from rhocal.calibrators.scale.scale_search import ScaleSearch
from rhocal.numerics.caching import cached_property

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from rhocal.numerics.special import Vector
    from rhocal.profile.profile import Profile

MAX_COPIES_TOGETHER = 8
"""Equal samples that stay in one fold. With more of them the fold would be a lump of one outcome that other folds lack."""

MAX_SHARE_TOGETHER = 0.02
"""Of the weight: so do equal samples that have at most this share. Of 150 samples of a forest, eight equal errors are a quarter
of a fold; without them temperature scaling looks 7 % worse than it is, and no calibration looks better."""

MAX_SHARE_HELD_OUT = 1 - 1e-6
"""If one fold has more of the weight, a sample in it counts as much as all others: nothing is left to fit on without it."""

GOLDEN = (5**0.5 - 1) / 2
"""Multiples of the golden ratio, modulo 1, are all different and far from each other."""


@dataclass(frozen=True, eq=False)
class Folds:
    """A division of a calibration set. Each fold is held out once. Empty if there is only one fold: nothing can be compared."""

    rows: NDArray[np.intp]
    """Samples that take part."""
    codes: NDArray[np.intp]
    """The number of the fold of each of them."""
    weights: Vector
    """Of all samples; they sum to 1."""
    n_folds: int

    @classmethod
    def from_codes(cls, codes: NDArray[np.intp], weights: Vector, rows: NDArray[np.intp]) -> Folds:
        """Number the folds that have weight. A sample of weight 0 in another fold joins one of them: any will do."""
        present = np.unique(codes[weights[rows] > 0])
        numbers = np.searchsorted(present, codes).clip(max=max(len(present) - 1, 0))
        held_out = np.bincount(numbers, weights[rows], minlength=1)
        is_divided = len(present) > 1 and held_out.max() < MAX_SHARE_HELD_OUT * held_out.sum()
        return cls(rows, numbers, weights, len(present) if is_divided else 0)

    @classmethod
    def from_profile(
        cls, profile: Profile, n_folds: int, *, by_label: bool = True, shuffle_ties: bool = False
    ) -> Folds:
        """Folds stratified by label, or by confidence alone; none where every logit of every sample is equal.

        With ``shuffle_ties`` chance divides the labels of samples with equal scores, as on other samples: for evidence. Folds
        whose outputs are fitted on are better alike.
        """
        if profile.spread > 0 and not by_label:
            codes = confidence_codes(ScaleSearch.from_profile(profile), n_folds, shuffle_ties=shuffle_ties)
            return cls.from_codes(codes, profile.weights, np.arange(profile.n_samples))
        if profile.spread > 0:
            return cls.stratified(ScaleSearch.from_profile(profile), n_folds)
        return cls(np.arange(profile.n_samples), np.zeros(profile.n_samples, np.intp), profile.weights, 0)

    @classmethod
    def stratified(cls, search: ScaleSearch, n_folds: int, max_entries: int | None = None) -> Folds:
        """Divide by rank, so that every fold has every class and every level of confidence.

        With ``max_entries`` only rows at regular ranks take part, such that they hold about so many entries.
        """
        weights = search.profile.weights
        if max_entries is None:
            return cls.from_codes(stratified_codes(search, n_folds), weights, np.arange(len(weights)))
        every, rows = ranks_apart(search, max_entries), thinned_rows(search, max_entries)
        return cls.from_codes(stratified_codes(search, n_folds * every)[rows] // every, weights, rows)

    def first(self, n_folds: int) -> Folds:
        """The first few folds, as a division of their own samples."""
        chosen = self.codes < n_folds
        return Folds(self.rows[chosen], self.codes[chosen], self.weights, n_folds)

    def __len__(self) -> int:
        return self.n_folds

    def __iter__(self) -> Iterator[Fold]:
        return (Fold(k, self) for k in range(self.n_folds))


@dataclass(frozen=True, eq=False)
class Fold:
    """Samples to fit on (``inside``) and samples to score on (``outside``)."""

    number: int
    folds: Folds

    @property
    def inside(self) -> NDArray[np.intp]:
        """Rows of the other folds."""
        return self.folds.rows[self.folds.codes != self.number]

    @cached_property
    def outside(self) -> NDArray[np.intp]:
        """Rows that are held out."""
        return self.folds.rows[self.folds.codes == self.number]

    @property
    def held_out_weights(self) -> Vector:
        """The weights of all samples, 0 for those that are not held out."""
        weights = np.zeros_like(self.folds.weights)
        weights[self.outside] = self.folds.weights[self.outside]
        return weights

    @property
    def share(self) -> float:
        """The weight of the samples held out."""
        return float(self.held_out_weights.sum())


def stratified_codes(search: ScaleSearch, n_folds: int) -> NDArray[np.intp]:
    """The fold of every sample: its rank by class, correctness and confidence, counted round.

    So folds are alike in size, in classes and in confidence. Copies of a sample share a rank while they are few (repeating a
    sample is then the same as its weight); many, and samples whose scores are tied, are spread over the folds, because a fold
    that holds all of them would lack them elsewhere. Samples with the same confidence are ordered by their other numbers, so
    that the order in which they come changes nothing.
    """
    keys = sort_keys(search)
    return rank_codes(keys, score_keys(keys), search.profile, n_folds)


def confidence_codes(search: ScaleSearch, n_folds: int, *, shuffle_ties: bool = False) -> NDArray[np.intp]:
    """The same by confidence alone; the label distinguishes only samples that are equal otherwise.

    In folds that all have the same share of every class, the share of a class in the calibration set looks exact: with few
    samples per class a map of single classes would fit its noise, and held-out samples would confirm it. So it is with the
    share of a class among samples with equal scores; with ``shuffle_ties`` these are in random order.
    """
    keys = sort_keys(search)
    label, correct, _, label_gap, *_ = keys
    scores = score_keys(keys)
    return rank_codes([*scores, label_gap, label, correct], scores, search.profile, n_folds, shuffle_ties=shuffle_ties)


def rank_codes(
    keys: list[Vector], scores: list[Vector], profile: Profile, n_folds: int, *, shuffle_ties: bool = False
) -> NDArray[np.intp]:
    """The fold of every sample: its rank by some keys, the first key first, counted round.

    With ``shuffle_ties`` samples that are equal in ``scores``, the first of the keys, are shuffled with a fixed seed. Samples
    of a cluster are in one fold: the rank of a cluster is that of its middle sample.
    """
    weights = profile.weights
    if profile.clusters is not None:
        codes, middle, cluster_weights = middle_samples(keys, weights, profile.clusters)
        keys, scores = ([key[middle] for key in columns] for columns in (keys, scores))
        return unit_codes(keys, scores, cluster_weights, n_folds, shuffle_ties=shuffle_ties)[codes]
    further_keys = partial(keys_of_equals, profile, class_ranks(profile, scores[0]))
    return unit_codes(keys, scores, weights, n_folds, shuffle_ties=shuffle_ties, further_keys=further_keys)


def middle_samples(
    keys: list[Vector], weights: Vector, clusters: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp], Vector]:
    """The place of each sample's cluster, the sample in the middle of every cluster by keys, and its weight."""
    names, codes = np.unique(clusters, return_inverse=True)
    order = np.lexsort([*keys[::-1], codes])
    passed, ends = np.cumsum(weights[order]), np.cumsum(np.bincount(codes))
    before = np.append(0.0, passed[ends[:-1] - 1])
    cluster_weights = np.bincount(codes, weights, len(names)).astype(np.float64, copy=False)
    places = np.searchsorted(passed, before + (0.5 - 1e-9) * cluster_weights)
    return codes, order[np.clip(places, np.append(0, ends[:-1]), ends - 1)], cluster_weights


def unit_codes(
    keys: list[Vector],
    scores: list[Vector],
    weights: Vector,
    n_folds: int,
    *,
    shuffle_ties: bool,
    further_keys: Callable[[NDArray[np.intp]], list[Vector]] | None = None,
) -> NDArray[np.intp]:
    """The fold of every sample, or cluster: its rank, counted round."""
    order, ranks = ordered_ranks(keys, scores, weights, further_keys)
    if shuffle_ties and len(order):
        ranks = _shuffle_ties(ranks, is_first_of_equals(scores, order))
    codes = np.zeros(len(weights), np.intp)
    codes[order] = ranks % n_folds
    return codes


def _shuffle_ties(ranks: NDArray[np.intp], is_first: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Shuffle the ranks of samples that follow each other up to the next ``is_first``. Each distinct rank draws once."""
    begins = np.flatnonzero(np.append(True, ranks[1:] != ranks[:-1]))
    tie = np.cumsum(is_first)[begins]
    is_tied = np.zeros(len(begins), np.bool_)
    np.equal(tie[1:], tie[:-1], out=is_tied[1:])
    is_tied[:-1] |= is_tied[1:]
    tied = np.flatnonzero(is_tied)
    if not len(tied):
        return ranks
    shuffled = np.arange(len(begins))
    shuffled[tied[np.lexsort((np.random.default_rng(0).random(len(begins))[tied], tie[tied]))]] = tied
    return shuffled[ranks]


def ordered_ranks(
    keys: list[Vector],
    scores: list[Vector],
    weights: Vector,
    further_keys: Callable[[NDArray[np.intp]], list[Vector]] | None = None,
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Samples with weight in the order of some keys, and their ranks; copies share a rank while they are few.

    Equal samples are copies unless others have the same ``scores`` and another outcome: then the classifier gives one answer
    to different samples, as trees do, and together they would be a lump of one outcome. Samples that are equal in all keys and
    do not share a rank are ordered by ``further_keys``.
    """
    order = lexical_order(keys)
    order = order[weights[order] > 0]
    if not len(order):
        return order, order
    is_first = is_first_of_equals(keys, order)
    group = np.cumsum(is_first) - 1
    n_copies, weight = np.bincount(group), np.bincount(group, weights[order])
    are_many = (n_copies > MAX_COPIES_TOGETHER) | (weight > MAX_SHARE_TOGETHER * weight.sum())
    are_many |= _share_scores(scores, order[is_first])
    is_apart = np.repeat(are_many, n_copies)
    if further_keys is not None and is_apart.any():
        rows = order[is_apart]
        order[is_apart] = rows[np.lexsort((weights[rows], *further_keys(rows), group[is_apart]))]
    return order, np.cumsum(is_first | is_apart) - 1


def keys_of_equals(profile: Profile, ranks: Vector, rows: NDArray[np.intp]) -> list[Vector]:
    """What tells samples apart whose classes have the same scores in another order, or whose scores differ by a constant.

    A sum of the logits with irrational weights, one for each rank of a class, and one with random weights, because the third
    irrational weight is the sum of the first two. Not where the logits are not in memory, because what is fitted there treats
    all classes alike.
    """
    logits = getattr(profile.passes, "logits", None)
    if not isinstance(logits, np.ndarray):
        return [profile.top[rows]]
    weights = np.arange(1, len(ranks) + 1) * GOLDEN % 1.0
    halves = logits[rows][:, np.argsort(ranks)].astype(np.float64) / 2  # halves of gaps do not overflow
    with np.errstate(over="ignore"):
        gaps = halves - profile.top[rows, None] / 2
        return [gaps @ np.random.default_rng(0).random(len(ranks)), profile.top[rows], gaps @ weights]


def _share_scores(scores: list[Vector], rows: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Which of these rows, no two of them equal, have the same scores as another."""
    order = lexical_order([key[rows] for key in scores])
    group = np.cumsum(is_first_of_equals(scores, rows[order])) - 1
    is_shared = np.empty(len(rows), np.bool_)
    is_shared[order] = np.bincount(group)[group] > 1
    return is_shared


def lexical_order(keys: list[Vector]) -> NDArray[np.intp]:
    """Samples in the order of some keys, the first key first; the others are read only of samples that are equal in it."""
    order = np.argsort(keys[0], kind="stable")
    ordered, is_tied = keys[0][order], np.zeros(len(order), np.bool_)
    np.equal(ordered[1:], ordered[:-1], out=is_tied[1:])
    is_tied[:-1] |= is_tied[1:]
    tied = order[is_tied]
    order[is_tied] = tied[np.lexsort([key[tied] for key in reversed(keys)])]
    return order


def is_first_of_equals(keys: list[Vector], order: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Which samples, in an order, differ from the one before in some key."""
    return np.append(True, np.any([key[order[1:]] != key[order[:-1]] for key in keys], axis=0))


def effective_weight(search: ScaleSearch) -> float:
    """How many samples of weight 1 say as much: (Σw)² / Σw² (Kish). A few samples that have nearly all weight are few samples.

    Forests give the same scores to several samples, which
    differ from one sample of their weight in nothing; therefore a weight
    of at most ``MAX_COPIES_TOGETHER`` counts as so many samples.
    """
    profile = search.profile
    keys = sort_keys(search)
    order, ranks = ordered_ranks(keys, score_keys(keys), profile.weights)
    counts = np.bincount(ranks, profile.total_weight * profile.weights[order], minlength=1)
    squares = np.where(counts <= MAX_COPIES_TOGETHER, counts, counts**2)
    return float(counts.sum() ** 2 / max(float(squares.sum()), 1e-300))


def sort_keys(search: ScaleSearch) -> list[Vector]:
    """What samples are ordered by, the first key first: class, correctness, confidence, and what tells equal ones apart.

    Numbers are rounded, because their last bits may depend on the order of the columns. Where logits are no better than chance,
    NLL has its minimum at scale 0; a scale that distinguishes samples is taken then, if there is one.
    """
    profile = search.profile
    spread = profile.spread
    scale = max(float(np.exp(search.log_scale)), 1 / max(spread, 1e-300)) if spread > 0 else 1.0
    confidence = np.round(search.confidence(np.full(profile.n_samples, scale)), 9)
    gaps = [np.round(scale * gap, 7) for gap in (profile.label_gap, profile.mean_gap)]
    rank = class_ranks(profile, confidence)
    return [rank[profile.labels], profile.correct, confidence, *gaps, rank[profile.predicted]]


def score_keys(keys: list[Vector]) -> list[Vector]:
    """Those of the keys that follow from the scores alone: confidence, mean gap and predicted class."""
    _, _, confidence, _, mean_gap, predicted = keys
    return [confidence, mean_gap, predicted]


def class_ranks(profile: Profile, confidence: Vector) -> Vector:
    """Rank the classes by their share of the weight, and equal ones by their mean confidence.

    Neither the names of classes, nor the order of samples, nor repeating one changes it, but for classes equal in both.
    """
    shares = np.bincount(profile.labels, profile.weights, profile.n_classes)
    means = np.bincount(profile.labels, profile.weights * confidence, profile.n_classes) / np.maximum(shares, 1e-300)
    ranks = np.empty(profile.n_classes)
    ranks[np.lexsort((np.round(means, 9), np.round(shares, 12)))] = np.arange(profile.n_classes)
    return ranks


def thinned_rows(search: ScaleSearch, max_entries: int) -> NDArray[np.intp]:
    """Rows with weight at regular ranks in confidence, such that they hold about ``max_entries`` entries."""
    chosen = stratified_codes(search, ranks_apart(search, max_entries)) == 0
    return np.flatnonzero(chosen & (search.profile.weights > 0))


def ranks_apart(search: ScaleSearch, max_entries: int) -> int:
    """The distance in rank of the rows that ``thinned_rows`` takes."""
    n_present = int((search.profile.weights > 0).sum())
    return max(1, -(-n_present * search.profile.n_classes // max_entries))
