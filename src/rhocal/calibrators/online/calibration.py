"""Calibration that follows labeled samples as they come, and is never much worse than the calibrator it began with.

A correction behind the first calibrator (a temperature, or ``svs`` where predictions may change) is fitted on a memory of
samples whose weights decay. A batch first judges, then teaches: the corrections that were fitted before it came, the map in use
and the first calibrator are compared by their NLL on it. So no map is judged on samples that it was fitted on.

A correction is adopted when its evidence against the map in use is 1/α. The evidence is a ratio of likelihoods,
Π p_correction(y) / p_in_use(y), shared out over the batches at which a drift may begin (the recursion of
``evaluation/bets.py``). If the map in use is right, its mean is at most 1 at every moment, so that by Ville's inequality it
ever reaches 20 with a chance of at most 5 %, however many batches come.

Samples of a cluster (a patient, a question) depend on each other, so that the product of their ratios may have a larger mean.
Its power 1/k for k samples has not, whatever the dependence (Hölder's inequality): a cluster counts as one sample, with its
mean NLL. A cluster must come whole, in one batch: of its samples in a later batch a correction has learned.

The loss is the summed NLL of the maps in use minus that of the first calibrator, in which a sample counts at most ``MAX_NLL``;
a gain is negative. After n batches it may be B(n) = log(1/α)·(1 + log₂ n), 3.0 nats for each doubling of the batches. A
correction is adopted only while the loss is at most B(n) − log(1/α), and the first calibrator is used again after the first
batch at which the loss since its lowest point after the adoption exceeds log(1/α).

So at every moment of the whole stream the loss is at most B(n), and what a single batch adds. Proof: while the first calibrator
is used the loss does not change. At an adoption it is L ≤ B(n) − log(1/α). Until the batch that ends the use of the correction
the loss since the lowest point, which is at most L, is at most log(1/α), so that the loss is at most L + log(1/α) ≤ B(n). That
last batch adds what it adds, and B grows. No rule can do without this term: labels of a batch come after its predictions.
"""

from __future__ import annotations

import hashlib
import math
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.compose.chain import Chain
from rhocal.calibrators.cross_validation import paired_over_samples
from rhocal.calibrators.fit_spec import check_calibrator, spec_of_fit
from rhocal.calibrators.guard import SampleScores, fit_without_warnings
from rhocal.calibrators.online.evidence import Evidence, Update
from rhocal.calibrators.online.memory import Memory
from rhocal.calibrators.online.repetition import is_copy
from rhocal.data.arguments import check_finite, check_level
from rhocal.data.predictions import Predictions
from rhocal.data.sources import as_source
from rhocal.data.spec import InputSpec
from rhocal.errors import InputError, SuspiciousInputWarning, warn

if TYPE_CHECKING:
    from os import PathLike

    from rhocal.calibrators.base import Calibrator
    from rhocal.calibrators.policies.policy import Policy
    from rhocal.data.spec import Kind
    from rhocal.numerics.special import Floats, Vector

HALF_LIFE = 10_000.0
ALPHA = 0.05
MEMORY_SHARES = (1.0, 0.1)
"""Half-lives of the corrections, as shares of the one that was stated: one is precise, one is quick."""
MIN_MEMORY = 100
"""Samples in memory before corrections are fitted."""
MAX_NLL = 30.0
"""Of a sample; a single impossible label decides nothing."""
MAX_DIGESTS = 1000
"""Batches whose content is remembered, so that none counts twice (``repetition.py``)."""
Z95 = 1.96


@dataclass(frozen=True, eq=False)
class OnlineCalibration:
    """A calibrator that follows labeled batches: what it began with, what is used now, and a memory of bounded size.

    ``OnlineCalibration.begin(calibrator)`` begins one, ``update`` takes a batch, ``save`` and ``load`` keep it in a file. A
    value does not change; ``update`` returns the next one.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits("cal", "cifar10")
    >>> cal = rhocal.TemperatureScaling().fit(logits[:1000], labels[:1000])
    >>> cal.update(logits[1000:1500], labels[1000:1500]).action
    'began'
    """

    first: Calibrator
    correction: Calibrator | None
    """Behind the first calibrator; None while that is used alone."""
    memory: Memory
    half_life: float = HALF_LIFE
    alpha: float = ALPHA
    evidence: Evidence = field(default_factory=Evidence)
    n_batches: int = 0
    n_updates: int = 0
    digests: tuple[str, ...] = ()
    loss: float = 0.0
    """Summed NLL of the maps that were in use minus that of the first calibrator, in nats, over all batches."""
    policy: Policy | None = None
    """Of the calibrator in use, until the map changes. Not part of the file: the calibrator that is given later counts."""

    @classmethod
    def begin(cls, calibrator: Calibrator, *, half_life: float = HALF_LIFE, alpha: float = ALPHA) -> OnlineCalibration:
        """Begin with a fitted calibrator.

        Parameters
        ----------
        calibrator
            It stays in use until a correction is shown to be better, and again if that fails.
        half_life
            Samples after which a sample counts half. The memory also holds no more than 20,000 samples.
        alpha
            Chance that a correction is ever adopted if the calibrator is right.
        """
        check_calibrator(calibrator, None, "update")
        check_finite(half_life, "half_life", "a number of samples of at least 1")
        check_level(alpha, "alpha", "0.05 for 5 %")
        if half_life < 1:
            raise InputError(f"half_life must be a number of samples of at least 1; got {half_life:g}")
        if calibrator.takes_groups:
            raise InputError(
                f"{calibrator.label} reads groups, which updates do not know; update a calibrator of each group"
            )
        first = copy(calibrator)
        for name in ("online_", "policy_"):
            vars(first).pop(name, None)
        memory = Memory.empty(len(first.classes_))
        return cls(first, None, memory, float(half_life), float(alpha), policy=calibrator.policy_)

    @property
    def max_loss(self) -> float:
        """What the stream may lose, beside what a single batch adds: log(1/α) for each doubling of the batches."""
        return math.log(1 / self.alpha) * (1 + math.log2(max(self.n_batches, 1)))

    @property
    def calibrator(self) -> Calibrator:
        """What is used now."""
        used = copy(self.first) if self.correction is None else Chain.from_fitted(self.first, self.correction)
        used.online_ = self
        used.policy_ = self.policy
        return used

    def update(
        self,
        logits: Any,
        labels: Any = None,
        sample_weight: Any = None,
        *,
        kind: Kind | None = None,
        ignore_index: int | None = None,
        class_axis: int = -1,
        clusters: Any = None,
    ) -> Update:
        """Compare corrections with the map in use on a batch, and remember the batch.

        Arguments are those of ``fit``; kind and classes are those of the first calibrator. A weight of k counts as k samples.
        A cluster counts as one sample, and weights are shares of it; all of its samples must come in one batch.
        """
        check_calibrator(self.first, logits, "update")
        spec = spec_of_fit(self.first, kind=kind, ignore_index=ignore_index, class_axis=class_axis)
        source = as_source(logits, labels, sample_weight, clusters=clusters, spec=spec)
        if not source.resident:
            raise InputError("logits: update takes a batch in memory; pass arrays")
        return self.update_data(source.predictions)

    def update_data(self, data: Predictions) -> Update:
        """The same for validated samples."""
        assert data.labels is not None
        data, _ = data.in_order_of(self.first.classes_)
        assert data.labels is not None
        outputs = self.first.map_.logits(data)
        weights = self._counts(data)
        digest = _digest(outputs, data.labels, data.counts)
        if digest in self.digests and is_copy(
            self.memory, outputs, data.labels, weights, len(self.digests), clustered=data.clusters is not None
        ):
            return Update(self, "skipped")
        batch = self._samples(outputs, data.labels, weights)
        total, share = float(weights.sum()), weights / weights.sum()
        first = _nll(outputs, batch)
        in_use = first if self.correction is None else _nll(self.correction.map_.logits(batch), batch)
        above_first = float(weights @ (in_use - first))
        online = replace(
            self,
            memory=self.memory.add(outputs, data.labels, weights, self.half_life),
            n_batches=self.n_batches + 1,
            digests=(*self.digests, digest)[-MAX_DIGESTS:],
            loss=self.loss + above_first,
        )
        step = Update(online, "kept", data.n_samples, float(share @ in_use), float(share @ first))
        corrections = self._corrections()
        losses = [_nll(one.map_.logits(batch), batch) for one in corrections]
        evidence = self.evidence.advance([float(weights @ (in_use - loss)) for loss in losses], above_first)
        if corrections:
            best = int(np.argmax(evidence.log_wealth))
            value, error = paired_over_samples(losses[best], in_use, share, total, data.clusters)
            is_one = data.clusters is not None and len(np.unique(data.clusters[weights > 0])) == 1
            if is_one or np.ptp((losses[best] - in_use)[weights > 0]) == 0:
                error = math.nan  # one sample or cluster, or copies of it, show no spread
            step = replace(
                step,
                nll_candidate=float(share @ losses[best]),
                difference=(value, value - Z95 * error, value + Z95 * error),
                evidence=evidence.total,
            )
        limit = math.log(1 / self.alpha)
        if self.correction is not None and evidence.excess > limit:
            return step.changed("rolled back", online, None)
        step = replace(step, online=replace(online, evidence=evidence))
        if not corrections:
            return step if self.n_batches else replace(step, action="began")
        if evidence.total < 1 / self.alpha or value > 0:
            return step
        if online.loss > online.max_loss - limit:
            return replace(step, has_lost_too_much=True)
        return step.changed("updated", replace(online, n_updates=self.n_updates + 1), corrections[best])

    def _counts(self, data: Predictions) -> Vector:
        """How many independent samples each stands for: its weight, or its share of a cluster."""
        weights = data.counts
        if data.clusters is not None:
            of_cluster = np.bincount(data.clusters, weights)[data.clusters]
            return np.divide(weights, of_cluster, out=np.zeros(data.n_samples), where=of_cluster > 0)
        if self.first.n_clusters_ is not None and not self.n_batches:
            warn(
                "the calibrator was fitted on clusters, and without them updates take samples as independent",
                SuspiciousInputWarning,
                argument="clusters",
                remedy="state what each sample belongs to",
            )
        return weights

    def _samples(self, outputs: Floats, labels: Any, weights: Vector | None) -> Predictions:
        """Outputs of the first calibrator as the input of a correction."""
        spec = InputSpec("logits", self.first.classes_)
        return replace(Predictions.from_arrays(outputs, weights=weights, spec=spec), labels=np.asarray(labels, np.intp))

    def _corrections(self) -> list[Calibrator]:
        """Corrections fitted on the memory, one for each half-life; none while there are too few samples."""
        if self.memory.n_samples < MIN_MEMORY:
            return []
        method = "temperature" if self.first.map_.keeps_decision else "svs"
        corrections = []
        for share in MEMORY_SHARES:
            weights = self.memory.weights(share * self.half_life)
            try:
                corrections.append(
                    fit_without_warnings(method, self._samples(self.memory.outputs, self.memory.labels, weights))
                )
            except InputError:  # no sample of a class, or all scores are equal
                corrections.append(
                    fit_without_warnings("identity", self._samples(self.memory.outputs, self.memory.labels, None))
                )
        return corrections

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything to one ``.safetensors`` file, whole or not at all: the next process goes on from there.

        It holds outputs and labels of the samples in memory.
        """
        from rhocal.calibrators.online.state import save_online  # noqa: PLC0415 - it imports this module

        save_online(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> OnlineCalibration:
        """Read what ``save`` wrote."""
        from rhocal.calibrators.online.state import load_online  # noqa: PLC0415 - it imports this module

        return load_online(path)


def _nll(logits: Floats, data: Predictions) -> Vector:
    assert data.labels is not None
    return np.minimum(SampleScores.from_logits(logits, data.labels).nll, MAX_NLL)


def _digest(outputs: Floats, labels: Any, weights: Vector) -> str:
    """The content of a batch, in whatever order its samples are: a second time they would judge what was fitted on them.

    Weights are those that were stated: shares of a cluster are rounded otherwise in another order.
    """
    rows = np.ascontiguousarray(np.column_stack([outputs, labels, weights]))
    ordered = np.sort(rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel())
    return hashlib.sha256(ordered.tobytes()).hexdigest()[:32]


def update_calibrator(
    calibrator: Calibrator,
    logits: Any,
    labels: Any,
    sample_weight: Any,
    half_life: float | None,
    alpha: float | None,
    spec: dict[str, Any],
) -> Update:
    """``Calibrator.update``: go on with what the calibrator remembers, or begin."""
    stated = {name: value for name, value in (("half_life", half_life), ("alpha", alpha)) if value is not None}
    online = calibrator.online_ or OnlineCalibration.begin(calibrator, **stated)
    for name, value in stated.items():
        if getattr(online, name) != value:
            raise InputError(f"{name}: updates began with {getattr(online, name):g}; this cannot change later")
    if unknown := sorted(spec.keys() - {"kind", "ignore_index", "class_axis", "clusters"}):
        raise InputError(
            f"update has no argument {unknown[0]}; beside the samples it takes half_life, alpha, kind, ignore_index, "
            "class_axis and clusters"
        )
    return replace(online, policy=calibrator.policy_).update(logits, labels, sample_weight, **spec)
