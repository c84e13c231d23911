"""A decision policy: which class is decided, and whether it is acted upon, from calibrated probabilities.

``rhocal.decide`` makes policies whose risk is certified on held-out samples. A policy is part of its calibrator: saved with it,
carried out by ``Calibrator.decide``, and exported to torch and ONNX. Its formula is written once over ``Ops``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from rhocal.calibrators.fitted_values import Values
from rhocal.calibrators.policies.prediction_sets import SetRule, build_sets, describe_sets, set_rows
from rhocal.data.arguments import show_level
from rhocal.errors import FileError, InputError
from rhocal.numerics.numpy_ops import NUMPY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rhocal.calibrators.base import Calibrator
    from rhocal.data.storage.container import Tensors
    from rhocal.numerics.ops import Ops, Parameters, Value
    from rhocal.numerics.special import Floats, Vector

Rule = Literal["confidence", "per-class", "positive", "cost", "sets"]
RULES: tuple[Rule, ...] = get_args(Rule)
OTHERWISE = ("review", "abstain")
AUTOMATE = "automate"
NEVER = 2.0
"""A threshold that no probability reaches."""
LARGEST_COST = 1e12


@dataclass(frozen=True)
class Certificate:
    """What was certified, and on which evidence."""

    risk: str
    """``error``, ``fpr``, ``fnr``, ``precision``, ``recall`` or ``cost``."""
    target: float
    """The largest risk that is promised; of precision and recall the smallest value."""
    confidence: float
    """The probability, over the samples that certified, that the promise holds."""
    n_samples: int
    n_automated: int
    """Samples that the policy acts on; of a positive class, those that are decided positive."""
    observed: float
    """The risk (precision, recall) on these samples."""
    bound: float
    """Its upper (precision, recall: lower) confidence bound."""
    coverage: float
    """``n_automated / n_samples``, with a 95 % interval."""
    coverage_low: float
    coverage_high: float


@dataclass(frozen=True, eq=False)
class Policy:
    """What is decided from calibrated probabilities.

    ``confidence``: the most probable class, automated if its probability reaches the threshold. ``per-class``: the same with a
    threshold for each class. ``positive``: the positive class of two if its probability reaches the threshold, else the
    other one; all are automated. ``cost``: the class of least expected cost, automated unless a review costs less. ``sets``:
    the most probable class of the prediction set, automated if it is the only one.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits(name="table")
    >>> calibrator = rhocal.BetaCalibration().fit(logits[:3000], labels[:3000])
    >>> policy = rhocal.decide(calibrator, logits[3000:], labels[3000:], target=0.05).policy
    >>> policy.rule, policy.otherwise
    ('confidence', 'review')
    """

    rule: Rule
    thresholds: Vector = field(default_factory=lambda: np.zeros(0))
    """One, or one for each class; none where costs decide."""
    positive: int | None = None
    """The column of the positive class."""
    costs: Vector | None = None
    """Cost of deciding column j for a sample of class i; a last column, if there is one more, is the cost of its review."""
    otherwise: str = "review"
    """The action for samples that are not automated: ``review`` or ``abstain``."""
    certificate: Certificate | None = None
    sets: SetRule | None = None
    """Which classes are in the prediction set of a sample; with any rule."""

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise InputError(f"the rule of a policy is one of {', '.join(RULES)}; got {self.rule!r}")
        if self.otherwise not in OTHERWISE:
            raise InputError(f"otherwise is {' or '.join(OTHERWISE)}; got {self.otherwise!r}")

    def check(self, n_classes: int) -> None:
        """Raise an error unless it fits a calibrator with so many classes."""
        lengths = {"classes": n_classes, "actions": n_classes + 1}
        shape = {"per-class": "classes", "cost": "0", "sets": "0"}.get(self.rule, "1")
        Values(shape, minimum=0.0, maximum=NEVER, allows_empty=True).check("thresholds", self.thresholds, lengths)
        if (self.costs is not None) != (self.rule == "cost"):
            raise InputError(
                f"a policy with the rule {self.rule} has {'no' if self.costs is None else 'a table of'} costs"
            )
        if self.costs is not None:
            table = Values("classes classes | classes actions", minimum=-LARGEST_COST, maximum=LARGEST_COST)
            table.check("costs", self.costs, lengths)
        if (self.positive is not None) != (self.rule == "positive"):
            raise InputError(
                f"a policy with the rule {self.rule} has {'no' if self.positive is None else 'a'} positive class"
            )
        if self.positive is not None and (n_classes != 2 or self.positive not in {0, 1}):
            raise InputError("a positive class is one of two")
        if self.sets is not None:
            self.sets.check(n_classes)
        elif self.rule == "sets":
            raise InputError("a policy with the rule sets has prediction sets")

    @property
    def sentence(self) -> str:
        """What is decided and promised, in words."""
        text = {
            "confidence": "automates where the predicted class has a probability of at least {:.6g}",
            "per-class": "automates where the predicted class reaches its own threshold",
            "positive": "decides the positive class where its probability is at least {:.6g}",
            "cost": "takes the decision of least expected cost",
            "sets": "automates where the prediction set is a single class",
        }[self.rule].format(*self.thresholds[:1])
        if self.sets is not None:
            text = f"{text}; {self.sets.sentence}"
        if self.certificate is None:
            return text
        promise, shown = self.certificate, f"{self.certificate.target:.6g}"
        side = "at least" if promise.risk in {"precision", "recall"} else "at most"
        return (
            f"{text}; {promise.risk} {side} {shown} with {show_level(promise.confidence)} confidence, certified on "
            f"{promise.n_samples:,} samples"
        )

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The numbers that another backend must hold."""
        numbers = {} if self.sets is None else self.sets.arrays
        if self.costs is not None:
            n_classes = len(self.costs)
            numbers["costs"] = self.costs[:, :n_classes]
            if self.costs.shape[1] > n_classes:
                numbers["review"] = self.costs[:, n_classes:]
        elif self.rule != "sets":
            numbers["thresholds"] = self.thresholds
        return numbers

    def margin(self, probs: Floats) -> Vector:
        """How far, at least, a probability must change (of costs: in units of their range) before a decision does.

        ``SetRule.is_clear`` shows whether a class stays in a set.
        """
        p = np.asarray(probs, np.float64)
        if self.costs is not None:
            expected = np.sort(p @ self.costs, axis=1)
            return np.asarray(expected[:, 1] - expected[:, 0]) / float(np.ptp(self.costs))
        if self.positive is not None:
            return np.abs(p[:, self.positive] - self.thresholds[0])
        top = np.sort(p, axis=1)
        if self.rule == "sets":
            return top[:, -1] - top[:, -2]
        reach = np.abs(p - self.thresholds)[np.arange(len(p)), p.argmax(axis=1)]
        return np.minimum(reach, top[:, -1] - top[:, -2])

    def decide(self, probs: Floats, classes: NDArray[Any]) -> Decisions:
        """The decisions for probabilities (n_samples × n_classes)."""
        p = np.asarray(probs, np.float64)
        parameters = {**self.arrays, "order": np.arange(len(classes), dtype=np.float64)}
        column, automated, included = decide_rows(NUMPY, self, parameters, p)
        column, automated = column[:, 0].astype(np.intp), automated[:, 0] > 0
        action = np.where(automated, AUTOMATE, self.otherwise)
        return Decisions(classes[column], action, automated, column, None if included is None else included > 0)


@dataclass(frozen=True, eq=False)
class Decisions:
    """The decision for each sample."""

    label: NDArray[Any]
    """The class that is decided, as a value of ``classes_``; of samples that are not automated a suggestion."""
    action: NDArray[Any]
    """``automate``, or ``review`` (``abstain``)."""
    automated: NDArray[np.bool_]
    column: NDArray[np.intp]
    """The column of the label."""
    sets: NDArray[np.bool_] | None = None
    """Whether each class is in the prediction set of the sample, (n_samples, n_classes); None without prediction sets."""


class PolicyAttribute:
    """The policy of a calibrator: a ``Policy``, None, or what has one (the answer of ``rhocal.decide``)."""

    def __get__(self, calibrator: Any, family: type | None = None) -> Policy | None:
        return None if calibrator is None else vars(calibrator).get("policy_")

    def __set__(self, calibrator: Any, value: Any) -> None:
        policy = getattr(value, "policy", value)
        if policy is None and value is not None:
            raise InputError(f"policy_: there is no policy, because nothing is certified ({value})")
        if policy is not None and not isinstance(policy, Policy):
            raise InputError(
                "policy_ must be a policy, such as rhocal.decide(calibrator, logits, labels, target=0.05).policy, or None; "
                f"got {type(value).__name__}"
            )
        vars(calibrator)["policy_"] = policy

    def __delete__(self, calibrator: Any) -> None:
        vars(calibrator).pop("policy_", None)


def policy_of(calibrator: Calibrator) -> Policy:
    """The policy of a fitted calibrator; an error where it has none, or one for another number of classes."""
    policy = calibrator.policy_
    if policy is None:
        raise InputError(
            f"this {type(calibrator).__name__} has no policy; set policy_ to that of rhocal.decide(calibrator, logits, labels)"
        )
    policy.check(len(calibrator.classes_))
    return policy


def decide_rows(ops: Ops, policy: Policy, parameters: Parameters, probs: Value) -> tuple[Value, Value, Value | None]:
    """The column that is decided and whether it is automated (n_samples × 1), and the prediction sets, by any backend.

    All are numbers. ``parameters`` are the arrays of the policy as the backend holds them, and ``order``, the numbers of
    the columns.
    """
    included = None if policy.sets is None else set_rows(ops, policy.sets, parameters, probs)
    if policy.rule == "sets":
        order = parameters["order"]
        # An empty set has the most probable class of all as its suggestion.
        candidates = ops.where(included < ops.max(included), -1.0, probs)
        column = ops.sum(ops.where(ops.first_max(candidates, order), order, 0.0))
        return column, ops.where(ops.abs(ops.sum(included) - 1.0) < 0.5, 1.0, 0.0), included
    return *_decide_by_threshold(ops, policy, parameters, probs), included


def _decide_by_threshold(ops: Ops, policy: Policy, parameters: Parameters, probs: Value) -> tuple[Value, Value]:
    order, top = parameters["order"], ops.max(probs)
    if policy.rule == "cost":
        expected = ops.matmul(probs, parameters["costs"])
        least = -ops.max(-expected)
        column = ops.sum(ops.where(ops.first_max(-expected, order), order, 0.0))
        if "review" not in parameters:
            return column, top * 0.0 + 1.0
        return column, ops.where(least <= ops.matmul(probs, parameters["review"]), 1.0, 0.0)
    threshold = parameters["thresholds"]
    if policy.rule == "positive":
        assert policy.positive is not None
        is_positive = ops.where(ops.column(probs, policy.positive) < threshold, 0.0, 1.0)
        column = is_positive if policy.positive == 1 else 1.0 - is_positive
        return column, top * 0.0 + 1.0
    first = ops.first_max(probs, order)  # of tied classes the first is decided, and its threshold counts
    column = ops.sum(ops.where(first, order, 0.0))
    missing = ops.sum(ops.where(first, threshold - probs, 0.0))
    return column, ops.where(missing <= 0.0, 1.0, 0.0)


# In artifacts ----------------------------------------------------------------------------------------------------------


def describe_policy(policy: Policy, tensors: Tensors) -> dict[str, Any]:
    """A policy as JSON; its numbers go into ``tensors``."""
    tensors["policy.thresholds"] = np.asarray(policy.thresholds, np.float64)
    if policy.costs is not None:
        tensors["policy.costs"] = np.asarray(policy.costs, np.float64)
    return {
        "rule": policy.rule,
        "positive": policy.positive,
        "otherwise": policy.otherwise,
        "certificate": None if policy.certificate is None else asdict(policy.certificate),
        **({} if policy.sets is None else {"sets": describe_sets(policy.sets, tensors)}),
    }


def build_policy(about: Any, tensors: Tensors, n_classes: int) -> Policy:
    """The policy that ``describe_policy`` described; its numbers are taken out of the tensors."""
    names = {"rule", "positive", "otherwise", "certificate"}
    if not isinstance(about, dict) or set(about) - {"sets"} != names:
        raise FileError("damaged, its policy does not fit")
    if about["positive"] is not None and type(about["positive"]) is not int:
        raise FileError(f"damaged, the positive class of its policy is {about['positive']!r}")
    if "policy.thresholds" not in tensors:
        raise FileError("damaged, the thresholds of its policy are missing")
    thresholds, costs = tensors.pop("policy.thresholds"), tensors.pop("policy.costs", None)
    try:
        certificate, sets = _certificate(about["certificate"]), build_sets(about.get("sets"), tensors)
        policy = Policy(about["rule"], thresholds, about["positive"], costs, about["otherwise"], certificate, sets)
        policy.check(n_classes)
    except InputError as error:
        raise FileError(f"damaged, its policy does not fit: {error}") from error
    return policy


def _certificate(about: Mapping[str, Any] | None) -> Certificate | None:
    if about is None:
        return None
    certificate = Certificate(**about)
    counts, numbers = (certificate.n_samples, certificate.n_automated), asdict(certificate)
    shares = [value for name, value in numbers.items() if name not in {"risk", "n_samples", "n_automated"}]
    if not all(type(count) is int and count >= 0 for count in counts) or not isinstance(certificate.risk, str):
        raise FileError("damaged, the certificate of its policy has no counts")
    if not all(isinstance(value, float) and np.isfinite(value) for value in shares):
        raise FileError("damaged, the certificate of its policy has values that are no numbers")
    return certificate
