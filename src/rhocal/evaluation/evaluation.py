"""What an evaluation holds, and how it prints: one frozen value, with the evidence behind each value."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rhocal.evaluation.data_frames import FrameLibrary, html_table, to_frame
from rhocal.metrics import METRICS
from rhocal.metrics.inference.calibration_tests import TITLES
from rhocal.metrics.inference.p_values import equals_p, least_of_draws, shown_p
from rhocal.metrics.inference.verdict import points

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rhocal.metrics.inference.calibration_tests import Outcome
    from rhocal.metrics.inference.class_figures import ClassFigures, Estimate, PositiveFigures
    from rhocal.metrics.inference.ece_interval import Interval
    from rhocal.metrics.inference.verdict import State


FLAT_FIELDS = ("low", "high", "floor", "excess", "p_value")
"""What ``Evaluation.metrics`` gives of a metric besides its value."""


@dataclass(frozen=True)
class MetricValue:
    """A metric with its interval and its floor."""

    metric: str
    value: float
    low: float
    high: float
    """95 % interval of the population value. Binned errors of a sample lie above it near 0."""
    floor: float
    floor_low: float
    floor_high: float
    """What a perfectly calibrated model scores on as many samples: mean and 95 % band."""
    excess: float
    """value − floor."""
    p_value: float
    """Probability that a perfectly calibrated model looks at least as bad."""
    no_interval_reason: str = ""
    """Why low and high are NaN: no interval of this metric has the stated coverage."""
    n_draws: int = 0
    """Draws behind the p-value, which is at least 1 / (1 + n_draws); 0 where it is that of a normal distribution."""


@dataclass(frozen=True)
class Group:
    """One slice of the samples."""

    group: str
    n_samples: int
    accuracy: float
    confidence: float
    ece: MetricValue
    """Its p-value is adjusted by Holm's method for the number of groups."""
    verdict: str
    p_value: float
    """Of the combined test, adjusted by Holm's method for the number of groups."""
    state: State
    """``within`` the tolerance, ``beyond`` it, or ``undecided``; all groups are right together with 95 % confidence."""


@dataclass(frozen=True)
class Evaluation:
    """Metrics with intervals, floors and p-values, tests of calibration, and a verdict in words.

    Examples
    --------
    >>> import rhocal
    >>> evaluation = rhocal.evaluate(*rhocal.demo_logits(), kind="logits")
    >>> round(evaluation["ece"].value, 3)
    0.153
    >>> evaluation.n_samples, sorted(evaluation.to_dict())[:2]
    (5000, ['accuracy', 'classes'])
    """

    n_samples: int
    n_classes: int
    accuracy: float
    confidence: float
    """The mean."""
    values: tuple[MetricValue, ...]
    tests: Mapping[str, Outcome]
    verdict: str
    distinguishable: bool
    """Whether the combined test distinguishes the model from a perfectly calibrated one (5 %)."""
    p_value: float
    """Of the combined test: the smallest p-value of all tests, compared with that of perfectly calibrated models."""
    driver: str
    """The test with the smallest p-value."""
    state: State
    """Whether the calibration error is shown to be ``within`` the tolerance, shown to be ``beyond`` it, or ``undecided``."""
    tolerance: float
    error: Interval
    """The error that the state is about: of two classes the ECE of the positive one, else ECE."""
    n_needed: int | None
    """About how many samples would decide, if the state is undecided; None otherwise, if far more would, or with few draws."""
    n_draws: int
    """Draws behind the p-values: none is smaller than 1 / (1 + n_draws)."""
    groups: tuple[Group, ...] = ()
    """Worst first: groups whose miscalibration is certain, then the others, each by excess."""
    classes: tuple[ClassFigures, ...] = ()
    """Mean probability and prevalence of the classes that differ most, at most 20; of two classes, of the positive one."""
    positive: PositiveFigures | None = None
    """The positive class of two: prevalence, O/E, ECE, Cox intercept and slope."""
    n_effective: float | None = None
    """The effective sample size, where weights are not counts or samples depend on each other."""
    of_answers: bool = False
    """Whether samples are answers of a log that are right or wrong: accuracy is the share that is right."""
    score_column: str | None = None
    """The name of a single column of scores, where it states the positive class."""
    n_counted: float | None = None
    """The sum of weights that are counts of samples, if it is not ``n_samples``."""

    def __getitem__(self, metric: str) -> MetricValue:
        for value in self.values:
            if value.metric == metric:
                return value
        raise KeyError(f"{metric!r}; this evaluation has {', '.join(f.metric for f in self.values)}")

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries, lists and numbers."""
        document = asdict(self)
        document["values"] = {value.metric: asdict(value) for value in self.values}
        document["tests"] = {name: asdict(test) for name, test in self.tests.items()}
        document["groups"] = list(document["groups"])
        document["classes"] = list(document["classes"])
        return document

    def metrics(self, prefix: str = "") -> dict[str, float]:
        """Numbers by name, for loggers of experiments: ``mlflow.log_metrics(evaluation.metrics("test_"))``.

        A metric has its own name; interval, floor, excess and p-value follow it (``ece_low``). Only finite numbers are given.
        """
        numbers: dict[str, float] = {
            "n_samples": self.n_samples,
            "confidence": self.confidence,
            "p_value": self.p_value,
        }
        numbers |= {"accuracy": self.accuracy, "is_distinguishable": float(self.distinguishable)}
        for value in self.values:
            fields = asdict(value)
            numbers[value.metric] = value.value
            numbers |= {f"{value.metric}_{name}": fields[name] for name in FLAT_FIELDS}
        return {f"{prefix}{name}": float(number) for name, number in numbers.items() if math.isfinite(number)}

    def to_json(self) -> str:
        """The same as text; infinite statistics become null."""
        return json.dumps(_finite(self.to_dict()), indent=2, ensure_ascii=False, allow_nan=False)

    def to_frame(self, library: FrameLibrary = "pandas") -> Any:
        """One row for each metric, as a data frame of pandas or polars."""
        return to_frame([asdict(value) for value in self.values], library, "metric")

    def to_pandas(self) -> Any:
        """One row for each metric, as a data frame of pandas."""
        return self.to_frame("pandas")

    def _repr_html_(self) -> str:
        rows = [HEADER, *(cells(value) for value in self.values)]
        size = f"{self.n_samples:,} samples{self.effective}, {self.n_classes} classes"
        return html_table(rows, [f"verdict: {self.verdict}", *self.notes], size)

    @property
    def tested(self) -> str:
        """The p-values of all tests, in a line."""
        least = least_of_draws(self.n_draws)
        all_tests = f"combined p {equals_p(self.p_value, least)}"
        return "; ".join(
            [all_tests, ", ".join(f"{TITLES[name]} p {equals_p(t.p_value, least)}" for name, t in self.tests.items())]
        )

    @property
    def size(self) -> str:
        """How many samples and classes, or answers, in words."""
        if self.of_answers:
            return f"{self.n_samples:,} answers{self.effective}"
        return f"{self.n_samples:,} samples{self.effective}, {self.n_classes:,} classes"

    @property
    def positive_line(self) -> str:
        """The figures of the positive class in a line; empty without one."""
        if self.positive is None:
            return ""
        stated_by = "" if self.score_column is None else f" (by the name of column {self.score_column})"
        name = "right answers" if self.of_answers else f"positive class: {self.positive.prevalence.name}{stated_by}"
        return f"{name}, {positive_text(self.positive)}"

    @property
    def effective(self) -> str:
        """In brackets what the samples count as, if it is not their number: the effective size, or the sum of the weights."""
        if self.n_effective is not None:
            return f" (effective sample size {self.n_effective:,.0f})"
        return "" if self.n_counted is None else f" (weights count them as {self.n_counted:,.6g})"

    @property
    def notes(self) -> list[str]:
        """Why metrics have no interval, one line for each reason; and a tolerance that is wide beside the prevalence."""
        titles: dict[str, list[str]] = {}
        for value in self.values:
            if value.no_interval_reason:
                titles.setdefault(value.no_interval_reason, []).append(METRICS[value.metric].title)
        lines = [f"no interval for {', '.join(names)}: {reason}" for reason, names in titles.items()]
        return lines + self._wide_tolerance()

    def _wide_tolerance(self) -> list[str]:
        """A line if the error is within a tolerance that is no small share of the prevalence."""
        if self.positive is None or self.of_answers or self.state != "within":
            return []
        of = self.positive.prevalence
        if not 0 < of.prevalence < MIN_PREVALENCE_OVER_TOLERANCE * self.tolerance:
            return []
        smaller = float(f"{of.prevalence / 10:.0e}")
        wide = f"a tolerance of {points(self.tolerance)} is wide for class {of.name}"
        return [f"{wide}, which is {100 * of.prevalence:.1f} % of the samples: try a tolerance of {smaller:g}"]

    def __str__(self) -> str:
        rows = [HEADER, *(cells(value) for value in self.values)]
        lines = [
            self.size,
            *aligned(rows),
            "",
            f"verdict: {self.verdict}",
        ]
        lines += [f"tests:   {self.tested}", *self.notes]
        if self.positive is not None:
            lines.append(self.positive_line)
        elif self.classes:
            shown = self.classes[:MAX_CLASSES_SHOWN]
            lines += ["", *aligned([CLASS_HEADER, *(class_cells(figures) for figures in shown)])]
        if self.groups:
            lines += ["", *aligned([GROUP_HEADER, *(group_cells(group) for group in self.groups[:MAX_GROUPS_SHOWN])])]
            lines += [f"… and {len(self.groups) - MAX_GROUPS_SHOWN} more groups"] * (
                len(self.groups) > MAX_GROUPS_SHOWN
            )
        return "\n".join(lines)


ARROWS = {"lower": "↓", "higher": "↑", "zero": "→ 0", "neither": ""}
HEADER = ("metric", "value", "true value (95 %)", "if calibrated", "excess", "p")
"""The value on these samples, the interval of that on endlessly many, and what a perfectly calibrated model scores."""
MIN_PREVALENCE_OVER_TOLERANCE = 5
"""Times the tolerance that the positive class must be of the samples; the advice is a tenth of its prevalence."""
MAX_GROUPS_SHOWN = 20
"""Printed; all are in ``groups``."""
MAX_CLASSES_SHOWN = 5
"""Printed; more are in ``classes``."""
CLASS_HEADER = ("class", "labels", "mean probability", "prevalence", "O/E", "p (adjusted)")
GROUP_HEADER = ("group", "samples", "accuracy", "confidence", "ECE", "floor", "excess", "p (Holm)")


def cells(value: MetricValue) -> tuple[str, ...]:
    """A metric value as texts, under HEADER."""
    metric = METRICS[value.metric]
    return (
        f"{metric.title} {ARROWS[metric.better]}".rstrip(),
        f"{value.value:.4f}",
        "–" if value.no_interval_reason else f"{value.low:.4f} – {value.high:.4f}",
        f"{value.floor:.4f} ± {(value.floor_high - value.floor_low) / 2:.4f}",
        f"{value.excess:+.4f}",
        shown_p(value.p_value, least_of_draws(value.n_draws)),
    )


def class_cells(figures: ClassFigures) -> tuple[str, ...]:
    """A class as texts, under CLASS_HEADER."""
    return (
        figures.name, f"{figures.n_labels:,.0f}", f"{figures.mean_probability:.4f}", f"{figures.prevalence:.4f}",
        estimate_text(figures.observed_expected, 2), shown_p(figures.p_value),
    )  # fmt: skip


def estimate_text(estimate: Estimate, digits: int) -> str:
    """A value with its interval, or a dash."""
    if math.isnan(estimate.value):
        return "–"
    return f"{estimate.value:.{digits}f} ({estimate.low:.{digits}f} – {estimate.high:.{digits}f})"


def positive_text(positive: PositiveFigures) -> str:
    """The figures of the positive class, without its name."""
    of = positive.prevalence
    return (
        f"mean probability {of.mean_probability:.4f}, prevalence {of.prevalence:.4f}, O/E "
        f"{estimate_text(of.observed_expected, 2)}, debiased ECE {estimate_text(positive.ece, 4)}, Cox intercept "
        f"{estimate_text(positive.intercept, 2)}, slope {estimate_text(positive.slope, 2)}"
    )


def group_cells(group: Group) -> tuple[str, ...]:
    """A group as texts, under GROUP_HEADER."""
    ece = group.ece
    return (
        group.group, f"{group.n_samples:,}", f"{group.accuracy:.3f}", f"{group.confidence:.3f}", f"{ece.value:.4f}",
        f"{ece.floor:.4f}", f"{ece.excess:+.4f}", shown_p(group.p_value),
    )  # fmt: skip


def aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Columns in line, the first to the left."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
