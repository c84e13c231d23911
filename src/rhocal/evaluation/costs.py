"""Decisions of least expected cost: what they save against today's rule, and what calibrating is worth, in the user's unit.

>>> import rhocal
>>> cal = rhocal.TemperatureScaling().fit(*rhocal.demo_logits("cal", "cifar10"))
>>> found = rhocal.minimize_cost(cal, *rhocal.demo_logits("test", "cifar10"), costs=10 * (1 - np.eye(10)), review=1)
>>> print(found.verdict)
mean cost 0.6... a sample (0.5... – 0.6...): automate ... %, review the others; saves ...
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.fit_spec import check_calibrator, named_positive, spec_of_fit
from rhocal.calibrators.policies.policy import Policy
from rhocal.data.arguments import check_finite, check_whole
from rhocal.data.sources import as_source
from rhocal.errors import InputError
from rhocal.evaluation.clusters import one_of_each_cluster
from rhocal.evaluation.question import Question, cost_table, costs_of_fit, in_order, score_block
from rhocal.metrics.inference.cost_interval import MeanCost, mean_cost
from rhocal.numerics.special import row_argmax, softmax

if TYPE_CHECKING:
    from rhocal.calibrators import Calibrator
    from rhocal.data.predictions import Predictions
    from rhocal.data.sources import Source
    from rhocal.data.spec import Kind
    from rhocal.numerics.special import Vector

RULES = ("policy", "today", "uncalibrated")
MAX_ENUMERATED_CLASSES = 20


@dataclass(frozen=True)
class CostDecision:
    """The decision of least expected cost, and what it is worth."""

    n_samples: int
    policy: Policy
    coverage: float
    """Share of samples that are automated; the others are reviewed."""
    cost: MeanCost
    """Mean cost of a sample."""
    today: MeanCost
    """The same for today's rule: the class with the largest uncalibrated score, always automated."""
    saving: MeanCost
    """Today's cost minus that of the policy."""
    value_of_calibrating: MeanCost
    """The cost of the same rule on uncalibrated probabilities minus that of the policy."""

    def __str__(self) -> str:
        return self.verdict

    @property
    def verdict(self) -> str:
        """In words."""
        reviewed = "" if self.coverage == 1 else ", review the others"
        text = f"mean cost {_interval(self.cost)}: automate {100 * self.coverage:.1f} %{reviewed}; "
        text += f"saves {_interval(self.saving)} against deciding the most probable class always"
        value = self.value_of_calibrating
        worth = "is not shown to pay" if value.low <= 0 else "saves"
        if value.high < 0:
            worth = "costs"
        return f"{text}; calibrating {worth}: {_interval(value)} against uncalibrated probabilities"

    def summary(self) -> dict[str, str]:
        """Names and values of a table."""
        return {
            "automated": f"{100 * self.coverage:.1f} % of {self.n_samples:,} samples",
            "least expected cost": _interval(self.cost, ""),
            "today: the most probable class": _interval(self.today, ""),
            "saving": _interval(self.saving, ""),
            "value of calibrating": _interval(self.value_of_calibrating, ""),
        }

    def to_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        costs = self.policy.costs
        document = {name: asdict(getattr(self, name)) for name in ("cost", "today", "saving", "value_of_calibrating")}
        return {
            "n_samples": self.n_samples,
            "coverage": self.coverage,
            **document,
            "costs": None if costs is None else costs.tolist(),
            "verdict": self.verdict,
        }


def _interval(cost: MeanCost, unit: str = " a sample") -> str:
    return f"{cost.value:.4g}{unit} ({cost.low:.4g} – {cost.high:.4g})"


def minimize_cost(
    calibrator: Calibrator | None,
    logits: Any,
    labels: Any = None,
    *,
    costs: Any,
    review: float | None = None,
    otherwise: str = "review",
    sample_weight: Any = None,
    groups: Any = None,
    clusters: Any = None,
    kind: Kind | None = None,
    classes: Any = None,
    positive: Any = None,
    ignore_index: int | None = None,
    seed: int = 0,
) -> CostDecision:
    """Decide what costs least in expectation, and measure what that saves on held-out samples.

    The probabilities decide, so that they must be calibrated.

    Parameters
    ----------
    calibrator
        Fitted on other samples than these. None: the scores as they are.
    logits, labels
        Held-out samples. Also a ``rhocal.stream``.
    costs
        ``costs[i][j]`` is the cost of deciding class j for a sample of class i, in the order of ``classes``; unless these are
        stated, in that of ``calibrator.classes_``, whatever the order of named columns. Without a calibrator: in the order of
        the columns. A last column is the cost of a review. Of a data frame whose rows and columns are named, names decide.
    review
        The cost of a review, instead of that column.
    otherwise
        The action for other samples: ``review`` or ``abstain``.
    sample_weight
        Whole numbers: a weight of k stands for k samples.
    groups
        The domain of each sample, for calibrators that know domains.
    clusters
        The cluster of each sample (question, patient), where samples of a cluster depend on each other: one of each cluster,
        drawn by content, is measured; every cluster counts once, whatever its size. In memory only.
    kind, classes, ignore_index
        What the scores are; by default as the calibrator was fitted.
    positive
        Without a calibrator: the class of two that a single column is scores of. With one that is as in its fit.
    seed
        Of the draws behind intervals.

    Returns
    -------
    CostDecision
        The mean cost, what it saves, and the ``policy``.

    Examples
    --------
    >>> import numpy as np, rhocal
    >>> cal = rhocal.VectorScaling().fit(*rhocal.demo_logits("cal", "table"))
    >>> missed_fraud = np.array([[0.0, 1.0], [20.0, 0.0]])
    >>> rhocal.minimize_cost(cal, *rhocal.demo_logits("test", "table"), costs=missed_fraud).policy.rule
    'cost'
    """
    check_calibrator(calibrator, logits, "minimize_cost", may_be_none=True)
    spec = spec_of_fit(calibrator, kind=kind, classes=classes, ignore_index=ignore_index, positive=positive)
    named_positive(positive, calibrator, classes)  # it has to be a class
    costs = costs_of_fit(costs, calibrator, classes)
    check_whole(seed, "seed", 0)
    if calibrator is not None:
        calibrator.check_groups(groups)
    source = as_source(logits, labels, sample_weight, groups, spec=spec)
    source = one_of_each_cluster(source, clusters, calibrator)
    return minimize_cost_of_source(calibrator, source, costs, review, otherwise, seed)


def minimize_cost_of_source(
    calibrator: Calibrator | None,
    source: Source,
    costs: Any,
    review: float | None = None,
    otherwise: str = "review",
    seed: int = 0,
) -> CostDecision:
    """The same for a source."""
    work = partial(cost_block, calibrator=calibrator, costs=costs, review=review, otherwise=otherwise, seed=seed)
    blocks = list(source.map(work))
    policy = blocks[0][0]
    numbers = np.concatenate([part for _, part in blocks], axis=1)
    automated, weights = numbers[0], numbers[1]
    paid = dict(zip(RULES, numbers[2:5], strict=True))
    drawn = dict(zip(RULES, numbers[5:8], strict=True))
    decided = dict(zip(RULES, numbers[8:11], strict=True))

    def mean(one: str, other: str | None = None) -> MeanCost:
        if other is None:
            return mean_cost(paid[one], _possible(policy, decided[one], drawn[one]), weights, seed=seed)
        possible = _possible(policy, decided[one], drawn[one] - drawn[other], decided[other])
        return mean_cost(paid[one] - paid[other], possible, weights, seed=seed)

    return CostDecision(
        int(weights.sum()),
        policy,
        float(weights @ automated / weights.sum()),
        mean("policy"),
        mean("today"),
        mean("today", "policy"),
        mean("uncalibrated", "policy"),
    )


def _possible(policy: Policy, decided: Vector, drawn: Vector, other: Vector | None = None) -> Vector:
    """The costs (or differences) that decisions can have: for any label if classes are few, else for drawn labels."""
    assert policy.costs is not None
    if len(policy.costs) > MAX_ENUMERATED_CLASSES:
        return drawn
    pairs = np.unique(np.stack([decided, decided if other is None else other]), axis=1).astype(np.intp)
    costs = policy.costs[:, pairs[0]]
    return np.unique(costs if other is None else costs - policy.costs[:, pairs[1]])


def cost_block(
    data: Predictions, calibrator: Calibrator | None, costs: Any, review: float | None, otherwise: str, seed: int
) -> tuple[Policy, Vector]:
    """The policy, and numbers of every sample: automated, weight; of each rule cost, cost of a drawn label, decision."""
    data = in_order(data, calibrator)
    samples = score_block(data, calibrator, Question("error", 0.5))
    n_classes = len(samples.classes)
    table = cost_table(costs, samples.classes)
    if review is not None:
        if table.shape[1] > n_classes:
            raise InputError("review: the table of costs has a column for a review already; leave review out")
        check_finite(review, "review", "a finite cost")
        table = np.column_stack([table, np.full(n_classes, float(review))])
    policy = Policy("cost", costs=table, otherwise=otherwise)
    policy.check(n_classes)
    raw = softmax(data.logits).astype(np.float64)
    probs = raw if calibrator is None else calibrator.map_.probs(data).astype(np.float64)
    chosen = policy.decide(probs, samples.classes)
    plain = chosen if calibrator is None else policy.decide(raw, samples.classes)
    columns = {
        "policy": np.where(chosen.automated, chosen.column, n_classes),
        "today": row_argmax(data.logits),
        "uncalibrated": np.where(plain.automated, plain.column, n_classes),
    }
    rng = np.random.default_rng((seed, data.block))
    level = np.cumsum(probs, axis=1)
    drawn = np.minimum((level < rng.random((len(probs), 1)) * level[:, -1:]).sum(axis=1), n_classes - 1)
    rows = [chosen.automated, samples.weights]
    for labels in (samples.labels, drawn):
        rows += [table[labels, columns[name]] for name in RULES]
    return policy, np.stack([*rows, *(columns[name] for name in RULES)]).astype(np.float64)


def binary_costs(false_positive: float, false_negative: float, positive: int) -> Vector:
    """The table of two classes; right decisions cost nothing.

    >>> binary_costs(5, 50, positive=1).tolist()
    [[0.0, 5.0], [50.0, 0.0]]
    """
    table = np.zeros((2, 2))
    table[1 - positive, positive], table[positive, 1 - positive] = false_positive, false_negative
    return table
