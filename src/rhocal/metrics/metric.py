"""A metric of the table. It is itself the public function: ``metrics.ece(probs, labels, n_bins=15)``."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.columns import frame_columns
from rhocal.errors import InputError
from rhocal.metrics.scored import Scored
from rhocal.metrics.sums import MetricSketch, Sketch, Sums, WeightedMean

if TYPE_CHECKING:
    from collections.abc import Callable

    from rhocal.data.predictions import Kind
    from rhocal.numerics.special import Vector


@dataclass(frozen=True, eq=False, repr=False)
class Metric:
    """A metric of one set of predictions with labels; calling it validates its input and returns the value.

    ``metric(probs, labels, sample_weight=, kind=, **options)`` is the value; ``metric.of(...)``, with the same arguments,
    is the state of one batch, which adds (``+``) and has the ``value``.
    """

    title: str
    better: str
    """``lower``, ``higher``, ``zero`` (it has a sign), or ``neither`` (it describes)."""
    value: Callable[..., float]
    """The formula: of ``Scored`` and its options."""
    sums: Callable[..., Sums] | None = None
    """The state of a batch, exact; None where the definition does not allow it."""
    range: tuple[float, float] = (0.0, 1.0)
    reference: str = ""
    no_sums_reason: str = ""
    """Why it has no sums."""
    sketch: Callable[..., MetricSketch] | None = None
    """The state of a batch in fixed memory, for metrics without sums: the value comes with a bound of its error."""
    per_sample: Callable[[Scored], Vector] | None = None
    """The number of each sample, if the metric is a mean."""
    one_pass: Callable[..., float | None] | None = None
    """The value in one compiled pass over plain arrays; it returns None if these have to be converted or rejected."""
    name: str = ""
    """Its name in the table."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "__doc__", inspect.getdoc(self.value))  # `help` and editors show the formula's

    def __repr__(self) -> str:
        return f"rhocal.metrics.{self.name}{inspect.signature(self)}"

    @property
    def summary(self) -> str:
        """What it is, in one line."""
        return (inspect.getdoc(self.value) or "").splitlines()[0]

    @property
    def streams(self) -> str:
        """``exactly``, ``sketch`` (fixed memory, with a bound of the error) or ``no``."""
        return "exactly" if self.sums is not None else "sketch" if self.sketch is not None else "no"

    @property
    def options(self) -> dict[str, Any]:
        """Its options and their defaults."""
        parameters = inspect.signature(self.value).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    @property
    def __signature__(self) -> inspect.Signature:
        """What ``help`` and editors show."""
        either = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature(
            [
                inspect.Parameter("probs", either),
                inspect.Parameter("labels", either),
                *(inspect.Parameter(k, inspect.Parameter.KEYWORD_ONLY, default=v) for k, v in self.options.items()),
                inspect.Parameter("sample_weight", inspect.Parameter.KEYWORD_ONLY, default=None),
                inspect.Parameter("kind", inspect.Parameter.KEYWORD_ONLY, default="probs"),
                inspect.Parameter("classes", inspect.Parameter.KEYWORD_ONLY, default=None),
                inspect.Parameter("positive", inspect.Parameter.KEYWORD_ONLY, default=None),
            ],
            return_annotation=float,
        )

    def __call__(
        self,
        probs: Any,
        labels: Any,
        *,
        sample_weight: Any = None,
        kind: Kind = "probs",
        classes: Any = None,
        positive: Any = None,
        **options: Any,
    ) -> float:
        """Validate the input and compute the value; ``classes`` names the label of each column.

        ``positive`` is the positive class of two, by name or column number: that of scores of shape (n_samples,).
        """
        self._validate(options)
        is_plain = classes is None and positive is None and frame_columns(probs) is None
        if self.one_pass is not None and sample_weight is None and kind == "probs" and is_plain:
            value = self.one_pass(probs, labels, **options)
            if value is not None:
                return value
        return self.value(
            Scored.from_arrays(probs, labels, sample_weight, kind, classes=classes, positive=positive), **options
        )

    def of(
        self,
        probs: Any,
        labels: Any,
        *,
        sample_weight: Any = None,
        kind: Kind = "probs",
        classes: Any = None,
        positive: Any = None,
        sketch: bool = False,
        **options: Any,
    ) -> Any:
        """The state of one batch. States add; ``value`` is the metric over all of them.

        With ``sketch=True`` metrics that need all samples at once are approximated in fixed memory; ``error`` bounds the error.
        """
        self._validate(options)
        factory = self.sketch if sketch and self.sums is None else self.sums
        if factory is None:
            remedy = "; sketch=True approximates it in fixed memory" if self.sketch is not None and not sketch else ""
            raise InputError(f"{self.name} cannot be added up over batches: {self.no_sums_reason}{remedy}")
        return factory(
            Scored.from_arrays(probs, labels, sample_weight, kind, classes=classes, positive=positive), **options
        )

    def _validate(self, options: dict[str, Any]) -> None:
        for key in options:
            if key not in self.options:
                known = ", ".join([*self.options, "sample_weight", "kind"])
                raise InputError(f"{self.name} has no option {key!r}; it has {known}")
        validate_options({key: value for key, value in options.items() if value is not self.options[key]})


def validate_options(options: dict[str, Any]) -> None:
    """Raise an error that names the first option with a value that is not allowed."""
    for key, value in options.items():
        allowed, requirement = RULES[key]
        if not allowed(value):
            raise InputError(f"{key} must be {requirement}; got {value!r}")


def _whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= 1)


def _number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "n_bins": (_whole, "a whole number of at least 1"),
    "k": (_whole, "a whole number of at least 1"),
    "power": (lambda value: _number(value) and value >= 1, "a number of at least 1, or inf"),
    "threshold": (lambda value: _number(value) and value >= 0, "a number that is not negative"),
    "min_labels": (lambda value: _number(value) and value >= 0, "a number that is not negative"),
    "risk": (lambda value: _number(value) and 0 <= value <= 1, "a number from 0 to 1"),
    "span": (lambda value: _number(value) and 0 < value <= 1, "a number above 0, at most 1"),
    "bandwidth": (lambda value: _number(value) and 0 < value < np.inf, "a positive number"),
}
"""Options of metrics: the values that are allowed, as code and in words. The default is always allowed."""


def mean_metric(
    title: str,
    per_sample: Callable[[Scored], Vector],
    better: str,
    *,
    reference: str,
    range: tuple[float, float] = (0.0, 1.0),  # noqa: A002 - the name of the field
) -> Metric:
    """A metric that is the mean of one number per sample."""

    def sums(scored: Scored) -> Sums:
        return WeightedMean.of(per_sample(scored), scored.weights)

    def value(scored: Scored) -> float:
        return sums(scored).value

    value.__doc__ = per_sample.__doc__
    return Metric(title, better, value, sums, range, reference, per_sample=per_sample)


def sums_metric(
    title: str,
    sums: Callable[..., Sums],
    better: str,
    *,
    reference: str,
    range: tuple[float, float] = (0.0, 1.0),  # noqa: A002
    one_pass: Callable[..., float | None] | None = None,
) -> Metric:
    """A metric that is computed from sums."""

    def value(scored: Scored, **options: Any) -> float:
        return sums(scored, **options).value

    value.__doc__, value.__signature__ = sums.__doc__, inspect.signature(sums)  # type: ignore[attr-defined]
    return Metric(title, better, value, sums, range, reference, one_pass=one_pass)


RANKS = "it depends on the rank of every sample among all"


def ranked_metric(
    title: str,
    formula: Callable[..., float],
    better: str,
    *,
    reference: str,
    bound: Callable[..., float] | None = None,
    reason: str = RANKS,
) -> Metric:
    """A metric of the ranking by confidence; with a ``bound`` of its error it can be computed from a sketch."""

    def value(scored: Scored, **options: Any) -> float:
        return formula(scored.ranked, **options)

    def sketch(scored: Scored, **options: Any) -> MetricSketch:
        assert bound is not None
        return MetricSketch(Sketch.of(scored), partial(formula, **options), partial(bound, **options))

    value.__doc__, value.__signature__ = formula.__doc__, inspect.signature(formula)  # type: ignore[attr-defined]
    return Metric(
        title, better, value, reference=reference, no_sums_reason=reason, sketch=None if bound is None else sketch
    )
