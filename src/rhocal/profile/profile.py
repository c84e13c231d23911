"""One pass over the logits: all that a scale calibrator ever needs of them.

For a scale σ > 0 a sample matters only through one convex function of one variable. With z shifted so that its largest
entry is 0, L(σ) = log Σ_j exp(σ z_j) lies in [0, log m], and confidence, label probability, entropy, Σp² and the
divergence to the base follow from L, L′ = E_p[z] and L″ = Var_p[z] (see ``statistics.py``).

With few classes L is evaluated directly. With many it is tabulated (``curve_table.py``), so that every further evaluation
costs O(n_samples), whatever the number of classes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rhocal.data.arrays import scan_scores
from rhocal.data.logit_sizes import MIN_LOGIT
from rhocal.errors import InputError
from rhocal.numerics.caching import cached_property
from rhocal.numerics.special import dot
from rhocal.profile.passes import ArrayPasses, Curve, HalfPasses, MaskedPasses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from rhocal.data.predictions import Kind, Predictions
    from rhocal.numerics.kernels import Scan
    from rhocal.numerics.special import Floats, Vector
    from rhocal.profile.passes import Passes


TOP_K = 10
"""How many of the largest logits a profile keeps."""


class CurveTable(Protocol):
    """A table of curves."""

    def curve(self, scale: Vector, order: int = 2) -> Curve:
        """L and its derivatives up to an order."""

    def take(self, rows: NDArray[np.intp], profile: Profile) -> CurveTable:
        """The same for some of the samples, whose profile is given."""

    def followed_by(self, others: Sequence[Any], profile: Profile) -> CurveTable:
        """The table of these samples and those of other tables after them, whose profile is given."""


@dataclass(frozen=True)
class Profile:
    """A calibration set as scale calibrators see it. ``weights`` sum to 1.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits()
    >>> parts = [rhocal.profile_logits(logits[half::2], labels[half::2]) for half in (0, 1)]
    >>> parts[0].n_samples, parts[0].n_classes
    (2500, 10)
    """

    passes: Passes | None
    """Where further numbers are read from the logits; None if the profile was saved without them."""
    classes: NDArray[Any]
    kind: Kind
    top: Vector
    label_gap: Vector
    """Logit of the label minus the largest logit: 0 where the prediction is right (or tied), else negative."""
    correct: Vector
    labels: NDArray[np.int32]
    """Column of the label of every sample; with ``predicted`` it balances classes among the folds of cross-validation."""
    predicted: NDArray[np.int32]
    """Column of the largest logit."""
    weights: Vector
    total_weight: float
    kept: dict[str, Vector] = field(default_factory=dict, repr=False)
    """What has been read so far: name → one row, or several, of one number a sample."""
    table: CurveTable | None = None
    """Replaces the logits once they are released."""
    groups: NDArray[Any] | None = None
    """The group of every sample, if known."""
    clusters: NDArray[np.intp] | None = None
    """The number of the cluster of every sample; None if samples are independent."""
    smallest_prob: float | None = None
    """What smaller probabilities were raised to before the logarithm, where the scores are probabilities."""
    mask_gap: float = np.inf
    """How far below the largest logit of its row an entry is a mask (see ``rhocal.numerics.masks``)."""
    n_best: int | None = None
    """How many of the largest logits the features of a sample are read from; None: all logits."""
    log_center: float | None = None
    """Log of the NLL-optimal single scale, where a table is to lie; None if nobody has searched for it."""

    @classmethod
    def from_predictions(cls, data: Predictions, names: Iterable[str] = ()) -> Profile:
        """Read the cheap features of every sample, where its scores are, and the numbers that have these names in ``kept``."""
        return cls.from_prepared(data.prepared(), names)

    @classmethod
    def from_prepared(cls, data: Predictions, names: Iterable[str] = ()) -> Profile:
        """The same of ``Predictions.prepared``."""
        gap, has_masks = data.mask_gap, data.has_masks
        assert gap is not None
        assert data.labels is not None
        if data.kind == "logits":
            logits, seen = data.scores, data.seen  # half precision stays as it is stored
        else:
            logits = (
                data.logits
                if isinstance(data.scores, np.ndarray)
                else data.scores.as_logits(data.kind, data.smallest_prob)
            )
            seen = scan_scores(logits)
        if isinstance(logits, np.ndarray):
            passes = array_passes(logits, seen, gap if has_masks else None)
            label_logit = logits[np.arange(len(data.labels)), data.labels].astype(np.float64)
        else:
            passes, label_logit = logits.passes(), logits.gather(data.labels)
        predicted, top, sums, _ = seen
        weights = data.counts
        total = float(weights.sum())
        profile = cls(
            passes=passes,
            classes=data.classes,
            kind=data.kind,
            top=top,
            label_gap=np.maximum(label_logit - top, -gap) if has_masks else label_logit - top,
            correct=(predicted == data.labels).astype(np.float64),
            labels=data.labels.astype(np.int32),
            predicted=predicted.astype(np.int32),
            weights=weights / total,
            total_weight=total,
            kept={"mean": passes.means() if has_masks else sums / logits.shape[1]},
            groups=data.groups,
            clusters=data.clusters,
            mask_gap=gap,
            smallest_prob=data.smallest_prob,
        )
        profile.read(names)
        return profile

    @classmethod
    def concat(cls, parts: Sequence[Profile]) -> Profile:
        """The profile of the samples of several, in their order. All must hold the same numbers."""
        if not parts:
            raise InputError("there are no samples: nothing to put together")
        first = parts[0]
        if len(parts) == 1:
            return first
        if any(part.n_classes != first.n_classes for part in parts):
            counts = sorted({part.n_classes for part in parts})
            raise InputError(f"blocks differ in the number of classes: {', '.join(map(str, counts))}")
        weights = np.concatenate([part.weights * part.total_weight for part in parts])
        arrays = [_stored(part.passes) for part in parts if isinstance(part.passes, ArrayPasses | HalfPasses)]
        gap = first.mask_gap if any(isinstance(part.passes, MaskedPasses) for part in parts) else None
        whole = replace(
            first,
            passes=array_passes(np.concatenate(arrays), gap=gap) if len(arrays) == len(parts) else None,
            top=np.concatenate([part.top for part in parts]),
            label_gap=np.concatenate([part.label_gap for part in parts]),
            correct=np.concatenate([part.correct for part in parts]),
            labels=np.concatenate([part.labels for part in parts]),
            predicted=np.concatenate([part.predicted for part in parts]),
            weights=weights / weights.sum(),
            total_weight=float(weights.sum()),
            kept={
                name: np.concatenate([part.kept[name] for part in parts], axis=-1)
                for name in first.kept
                if all(name in part.kept for part in parts)
            },
            table=None,
            groups=None,
            clusters=None,
            smallest_prob=min((p for part in parts if (p := part.smallest_prob) is not None), default=None),
        )
        tables = [part.table for part in parts if part.table is not None]
        if len(tables) < len(parts):
            return whole
        return replace(whole, table=tables[0].followed_by(tables[1:], whole))

    @property
    def n_samples(self) -> int:
        """Number of samples."""
        return len(self.top)

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.classes)

    def take(self, rows: NDArray[np.intp]) -> Profile:
        """Some of the samples, with equal weights: a mini-batch whose draw already followed the weights."""
        part = replace(
            self,
            passes=None if self.passes is None else self.passes.take(rows),
            top=self.top[rows],
            label_gap=self.label_gap[rows],
            correct=self.correct[rows],
            labels=self.labels[rows],
            predicted=self.predicted[rows],
            weights=np.full(len(rows), 1 / len(rows)),
            total_weight=float(len(rows)),
            kept={name: value.take(rows, axis=-1) for name, value in self.kept.items()},
            table=None,
            groups=None if self.groups is None else self.groups[rows],
            clusters=None if self.clusters is None else self.clusters[rows],
        )
        return part if self.table is None else replace(part, table=self.table.take(rows, part))

    @cached_property
    def spread(self) -> float:
        """Typical distance of the largest logit from the mean of its row: the unit in which scales are searched.

        It is 0 below ``MIN_LOGIT``, where samples that have weight tell nothing and others are far larger.
        """
        spread = float(dot(self.weights, self.top - self.mean))  # below 0 if the mean of equal ones was rounded up
        return spread if spread >= MIN_LOGIT else 0.0

    @property
    def mean(self) -> Vector:
        """Mean logit of every sample."""
        return self._read("mean", lambda passes: passes.means())

    @property
    def largest(self) -> Vector:
        """The ``TOP_K`` largest logits of every sample as rows, largest first; fewer if there are fewer classes."""
        return self._read("largest", lambda passes: np.ascontiguousarray(passes.largest(TOP_K).T))

    def best(self, k: int) -> Vector:
        """The k largest logits of every sample as rows, largest first; fewer if no more are known."""
        if k <= TOP_K:
            return self.largest[:k]
        return self._read(f"largest {k}", lambda passes: np.ascontiguousarray(passes.largest(k).T))

    @property
    def runner_up_gap(self) -> Vector:
        """Second largest logit minus the largest."""
        return self._read("runner_up_gap", lambda passes: passes.largest(2)[:, 1] - self.top)

    @property
    def mean_gap(self) -> Vector:
        """Mean logit of a sample minus the largest."""
        return self.mean - self.top

    @property
    def base(self) -> Curve:
        """The curve at scale 1: the uncalibrated distribution."""
        ones = np.ones(self.n_samples)
        return Curve(tuple(self._read("base", lambda passes: np.stack(passes.curve(self.top, ones, 2)))))

    def read(self, names: Iterable[str]) -> None:
        """Read the numbers that have these names in ``kept``; norms of several ρ together."""
        norms: dict[bool, list[float]] = {}
        for name in names:
            if name.startswith("norm "):
                rho, _, centred = name.removeprefix("norm ").partition(" ")
                norms.setdefault(bool(centred), []).append(float(rho))
            else:
                getattr(self, name)
        for center, rhos in norms.items():
            self.norms(rhos, center=center)

    def norms(self, rhos: Sequence[float], *, center: bool) -> list[Vector]:
        """‖z‖_ρ of every sample for several ρ, of the logits as they are or with their row mean taken away."""
        names = [f"norm {rho:g}{' centred' if center else ''}" for rho in rhos]
        missing = [rho for rho, name in zip(rhos, names, strict=True) if name not in self.kept]
        if missing:
            read = iter(self._passes(f"the norm for rho = {missing[0]:g}").norms(missing, center=center).T)
            for name in names:
                if name not in self.kept:
                    self.kept[name] = np.ascontiguousarray(next(read))
        return [self.kept[name] for name in names]

    def norm_slope(self, rho: float, *, center: bool) -> tuple[Vector, Vector]:
        """‖z‖_ρ of every sample and its derivative in ρ."""
        return self._passes("a norm whose rho is learned").norm_slope(rho, center=center)

    def curve(self, scale: Vector, order: int = 2) -> Curve:
        """L and its derivatives up to an order (1, 2 or 3) from the logits themselves, or from the table that was saved."""
        if self.passes is None and self.table is not None:
            return self.table.curve(scale, order)
        return Curve(self._passes("the curve").curve(self.top, scale, order))

    def _read(self, name: str, read: Callable[[Passes], Vector]) -> Vector:
        if name not in self.kept:
            self.kept[name] = read(self._passes(name))
        return self.kept[name]

    def _passes(self, what: str) -> Passes:
        if self.passes is None:
            raise InputError(f"this profile was saved without its logits, and {what} is not in it; fit on the logits")
        return self.passes


def _stored(passes: ArrayPasses | HalfPasses) -> Floats:
    """The rows as they are stored."""
    return passes.source if passes.rows is None else passes.source[passes.rows]


def array_passes(
    logits: Floats, scanned: Scan | None = None, gap: float | None = None
) -> ArrayPasses | MaskedPasses | HalfPasses:
    """Passes over an array of any precision; with ``gap``, over rows with masks."""
    if gap is not None:
        return MaskedPasses(logits, scanned, gap=gap)
    return HalfPasses(logits, scanned) if logits.dtype == np.float16 else ArrayPasses(logits, scanned)
