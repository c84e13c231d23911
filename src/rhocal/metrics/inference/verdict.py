"""The verdict: a state, and one sentence about calibration that a reader without statistics understands.

The state compares intervals with a tolerance: the error is shown to be *within* it, shown to be *beyond* it, or there are too
few samples to tell. Only where the combined test rejects perfect calibration is an error beyond the tolerance, or spoken of as
one. The sentence names a direction, class or region only where its own test detects it. Error rates of states and sentences
are measured in experiments/coverage.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rhocal.metrics.inference.calibration_tests import TITLES
from rhocal.metrics.inference.defaults import CONFIDENCE_LEVEL, SIGNIFICANCE_LEVEL, Z
from rhocal.metrics.inference.ece_interval import ece_interval
from rhocal.metrics.inference.floor import Floor
from rhocal.metrics.inference.localize import NAMING_LEVEL, ClassGap, Region, class_gaps, positive_gap, regions
from rhocal.metrics.inference.null import path_nulls
from rhocal.metrics.inference.p_values import equals_p
from rhocal.metrics.scored import Scored
from rhocal.numerics.bins import N_BINS, equal_width

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rhocal.data.predictions import Predictions
    from rhocal.metrics.inference.calibration_tests import CombinedTest, Outcome
    from rhocal.metrics.inference.ece_interval import Interval
    from rhocal.metrics.inference.joint_null import JointNull

State = Literal["within", "beyond", "undecided"]

TOLERANCE = 0.02
"""The calibration error that is tolerated unless another is named: two points."""
MAX_NEEDED = 1000
"""Times the samples that would be needed up to which their number is named."""
MIN_DRAWS = 39
"""Draws with which the combined test can reject at 5 % where one of them looks as bad as the samples: 2 / (1 + 39) = .05."""
MAX_REGIONS_NAMED = 2
OF_TOP_LABEL = ("over-confident", "under-confident")
"""Beginnings of descriptions of the confidence in the predicted class."""
STANDS_ALONE = ("over-confident by", "under-confident by", "class ", "column ")
"""Beginnings of descriptions that say by themselves that the model is miscalibrated."""
MIN_SHARE_OF_ECE = 0.5
"""Share of ECE that a mean gap must have for a model to be called over- or under-confident as a whole."""


@dataclass(frozen=True)
class Verdict:
    """What is known about the calibration of a model."""

    text: str
    state: State
    """Whether the error is shown to be ``within`` the tolerance, shown to be ``beyond`` it, or neither (``undecided``)."""
    tolerance: float
    error: Interval
    """The calibration error that the state is about: of two classes that of the positive one, else that of the top label."""
    p_value: float
    """Of the combined test of perfect calibration."""
    distinguishable: bool
    """Whether that test rejects perfect calibration at 5 %."""
    driver: str
    """The test with the smallest p-value."""
    n_needed: int | None = None
    """About how many samples would decide, where the state is undecided; None: it is decided, hopelessly many, or few draws."""
    gaps: tuple[ClassGap, ...] = ()
    """Calibration in the large of every class, of two classes of the positive one; the most certain difference first."""


@dataclass(frozen=True)
class Evidence:
    """What a verdict is formed from."""

    scored: Scored
    ece: Floor
    interval: Interval
    tests: Mapping[str, Outcome]
    combined: CombinedTest
    null: JointNull
    classes: Sequence[Any] = ()
    """Names of the columns."""
    positive: int | None = None
    """The column of the positive class of two."""
    of_answers: bool = False
    """Whether samples are answers, and the positive class is that they are right."""
    n_samples: float | None = None
    """Samples, where weights sum to the effective sample size, which is smaller."""

    @property
    def size(self) -> float:
        """Samples as a reader counts them, not the independent ones that tell as much."""
        return float(self.scored.weights.sum()) if self.n_samples is None else self.n_samples


def evidence_of(
    scored: Scored,
    ece: Floor,
    interval: Interval,
    tests: Mapping[str, Outcome],
    combined: CombinedTest,
    null: JointNull,
    data: Predictions | None,
    n_samples: float | None = None,
) -> Evidence:
    """The evidence of samples whose probabilities are those of ``data``, if they are known."""
    if data is None:
        return Evidence(scored, ece, interval, tests, combined, null, n_samples=n_samples)
    positive = data.positive_column if data.n_classes == 2 else None
    names = data.classes.tolist()
    return Evidence(scored, ece, interval, tests, combined, null, names, positive, data.of_answers, n_samples)


def verdict(
    evidence: Evidence, tolerance: float = TOLERANCE, *, p_value: float | None = None, level: float = CONFIDENCE_LEVEL
) -> Verdict:
    """The state, and the sentence; ``p_value`` and ``level`` allow for other verdicts beside this one."""
    p_value = evidence.combined.p_value if p_value is None else p_value
    gaps = all_class_gaps(evidence, level)
    error = _error_interval(evidence, level)
    detected = p_value <= SIGNIFICANCE_LEVEL
    state = _state(error, gaps, tolerance, is_detected=detected)
    needed = None
    if not detected and evidence.combined.n_draws < MIN_DRAWS and _is_beyond(error, gaps, tolerance):
        sentence = _of_few_draws(evidence.combined.n_draws, tolerance)
    else:
        if state == "undecided":
            needed = samples_that_decide(evidence, error, gaps, tolerance, is_detected=detected)
        text = _describe(evidence, gaps) if detected else ""
        sentence = _sentence(evidence, text, state, error, _open_class(evidence, gaps, tolerance), tolerance, needed)
    return Verdict(
        sentence,
        state,
        tolerance,
        error,
        p_value,
        detected,
        evidence.combined.smallest,
        needed,
        tuple(sorted(gaps, key=lambda gap: -abs(gap.z))),
    )


def all_class_gaps(evidence: Evidence, level: float = CONFIDENCE_LEVEL) -> list[ClassGap]:
    """Calibration in the large of every class; of two classes, of the positive one."""
    null = evidence.null
    if null.classes is not None:
        return class_gaps(null.classes, level)
    if null.positive is not None and null.positive_paths is not None and evidence.positive is not None:
        return [positive_gap(null.positive, null.positive_paths, evidence.positive, level)]
    return []


def _error_interval(evidence: Evidence, level: float) -> Interval:
    path = evidence.null.positive
    if path is None:
        if level == CONFIDENCE_LEVEL:
            return evidence.interval
        path = evidence.null.top
    view = Scored(path.confidence, path.correct, path.confidence, path.confidence, path.weights)
    return ece_interval(view, equal_width(path.confidence, N_BINS), N_BINS, level)


def _state(error: Interval, gaps: Sequence[ClassGap], tolerance: float, *, is_detected: bool) -> State:
    """Intervals of few samples are not exact, and there are several; the combined test is exact, so *beyond* takes both."""
    if _is_beyond(error, gaps, tolerance):
        return "beyond" if is_detected else "undecided"
    if error.high <= tolerance and all(-tolerance <= gap.low and gap.high <= tolerance for gap in gaps):
        return "within"
    return "undecided"


def _is_beyond(error: Interval, gaps: Sequence[ClassGap], tolerance: float) -> bool:
    """Whether an interval lies beyond the tolerance."""
    return error.low > tolerance or any(gap.low > tolerance or gap.high < -tolerance for gap in gaps)


def samples_that_decide(
    evidence: Evidence, error: Interval, gaps: Sequence[ClassGap], tolerance: float, *, is_detected: bool = True
) -> int | None:
    """About how many samples would decide: intervals shrink with the root of their number, clustered and weighted as these.

    One interval beyond the tolerance decides: if a detected difference is estimated above it, the number is the smallest that
    shows one of them to be beyond. To show all differences to be within takes the largest of their numbers. A difference that
    is not detected may be noise, and next to the tolerance it would need any number of samples: it counts as half the tolerance
    at most. Where no error is detected, the number is also one that shows a perfect model to be within.
    """
    found = [(error.estimate, error.high - error.estimate, is_detected)]  # 0 may cut the lower limit
    found += [(abs(gap.gap), (gap.high - gap.low) / 2, is_detected and gap.detected) for gap in gaps]
    sizes = [(size if is_known else min(size, tolerance / 2), reach) for size, reach, is_known in found]
    above = [_factor(size, reach, tolerance) for size, reach in sizes if size > tolerance]
    factor = min(above) if above else max(_factor(size, reach, tolerance) for size, reach in sizes)
    if not is_detected:
        factor = max(factor, (max(error.high, evidence.ece.high) / tolerance) ** 2)
    if not factor <= MAX_NEEDED:
        return None
    needed = evidence.size * max(factor, 1.1)
    unit = 10.0 ** (math.floor(math.log10(needed)) - 1)
    return math.ceil(needed / unit) * round(unit) if unit >= 1 else math.ceil(needed)


def _factor(size: float, reach: float, tolerance: float) -> float:
    """Times the samples after which the interval of a difference no longer holds the tolerance."""
    return (reach / (tolerance - size)) ** 2 if size != tolerance else math.inf


def points(share: float) -> str:
    """A share in percentage points."""
    return f"{100 * share:.1f} point{'' if f'{100 * share:.1f}' == '1.0' else 's'}"


def enough_text(needed: int | None) -> str:
    """How many samples would decide; None stands for hopelessly many."""
    return f"about {needed:,} samples would decide" if needed is not None else "only far more samples would decide"


def _open_class(evidence: Evidence, gaps: Sequence[ClassGap], tolerance: float) -> str:
    """The class whose mean probability may be off by most, if that is beyond the tolerance; else empty."""
    widest = max(gaps, key=lambda gap: max(-gap.low, gap.high), default=None)
    reach = 0.0 if widest is None else max(-widest.low, widest.high)
    if widest is None or reach <= tolerance:
        return ""
    return f"mean probability of {_name(evidence, widest.column)} may be off by up to {points(reach)}"


def _sentence(
    evidence: Evidence, text: str, state: State, error: Interval, open_class: str, tolerance: float, needed: int | None
) -> str:
    total, ece = round(evidence.size), evidence.ece
    n = f"{total:,} {'answer' if evidence.of_answers else 'sample'}{'' if total == 1 else 's'}"
    about, what = "ECE", "true ECE"
    if evidence.positive is not None and not evidence.of_answers:
        what = f"true error of {_name(evidence, evidence.positive)}"
        if not text.startswith(OF_TOP_LABEL):
            about, ece = f"ECE of {_name(evidence, evidence.positive)}", _positive_ece(evidence)
    compared = f"{about} {ece.value:.3f}, floor {ece.mean:.3f} ± {(ece.high - ece.low) / 2:.3f}"
    limit = points(tolerance)
    if state == "within":
        chance = f", as chance adds about {ece.mean:.3f}" if error.high < ece.value else ""
        bound = f"{what} at most {error.high:.3f} with 95 % confidence{chance}"
        if not text:
            return f"indistinguishable from perfect calibration at {n}, and within {limit} ({compared}; {bound})"
        return f"calibrated within {limit}, but not perfectly: {text} ({compared}; {bound})"
    text = text if text.startswith(STANDS_ALONE) else f"miscalibrated: {text}" if text else ""
    if state == "beyond":
        return f"{text} ({compared}); beyond the tolerance of {limit}"
    enough = enough_text(needed)
    open_question = f"too few samples to tell whether it is within {limit}: {enough}"
    of_class = open_class if error.high <= tolerance else ""  # the error is decided, a class is not
    if text:
        between = f"{what} between {error.low:.3f} and {error.high:.3f}"
        return f"{text} ({compared}); {f'{between}, and the {of_class}' if of_class else between}, {open_question}"
    return (
        f"too few samples to tell: indistinguishable from perfect calibration at {n} ({compared}), but the "
        f"{of_class or f'{what} may be up to {error.high:.3f}'} (95 % confidence); {enough} for a tolerance of {limit}"
    )


def _of_few_draws(n_draws: int, tolerance: float) -> str:
    return (
        f"too few draws to tell: an interval lies beyond the tolerance of {points(tolerance)}, but {n_draws} draws are too few "
        f"to reject perfect calibration at 5 %; n_replicates must be at least {MIN_DRAWS}"
    )


def _positive_ece(evidence: Evidence) -> Floor:
    """The ECE of the positive class of two in bins of its probability, with its floor."""
    path, paths = evidence.null.positive, evidence.null.positive_paths
    if path is None or paths is None:
        return evidence.ece
    return Floor.from_null("ece", path_nulls(path, paths, ["ece"])["ece"])


def _describe(evidence: Evidence, gaps: Sequence[ClassGap]) -> str:
    """What is detected: a direction, a class, a region, or the test that rejects; the largest difference first."""
    scored = evidence.scored
    confidence, accuracy = scored.mean_confidence, scored.accuracy
    gap = accuracy - confidence
    detected = sorted((c for c in gaps if c.detected), key=lambda c: -abs(c.z))
    is_directed = (
        evidence.tests["gap"].p_value <= NAMING_LEVEL
        and abs(gap) > _reach_of_gap(scored, gap)
        and abs(gap) >= MIN_SHARE_OF_ECE * max(evidence.ece.excess, evidence.interval.estimate)
    )
    of_class = _about_class(evidence, detected[0]) if detected and not evidence.of_answers else ""
    # A rare class with too much probability looks like a lack of confidence in the others: the class is the cause.
    if of_class and (not is_directed or (evidence.positive is not None and abs(detected[0].gap) >= 0.95 * abs(gap))):
        return of_class
    if is_directed:
        word = "over-confident" if gap < 0 else "under-confident"
        means = f"mean confidence {100 * confidence:.1f} %, accuracy {100 * accuracy:.1f} %"
        if evidence.of_answers:
            means = f"answers state {100 * confidence:.1f} % on average, {100 * accuracy:.1f} % are right"
        whole = f"{word} by {points(abs(gap))}: {means}"
        return f"{whole}; {of_class}" if of_class and evidence.positive is None else whole
    where = _about_regions(evidence)
    if where:
        return f"{where}; by about {points(evidence.interval.estimate)} overall"
    by = evidence.combined.smallest
    return (
        f"detected by the test {TITLES[by]} (p {equals_p(evidence.tests[by].p_value, evidence.combined.least_p_value)})"
    )


def _reach_of_gap(scored: Scored, gap: float) -> float:
    """Half of the 95 % interval of the mean gap, whatever else is wrong with the model."""
    total = float(scored.weights.sum())
    squares = float(scored.weights @ (scored.correct - scored.confidence) ** 2)
    return Z * math.sqrt(max(squares - total * gap**2, 0.0)) / total


def _name(evidence: Evidence, column: int) -> str:
    return f"class {evidence.classes[column]}" if column < len(evidence.classes) else f"column {column}"


def _about_class(evidence: Evidence, gap: ClassGap) -> str:
    size = "much" if gap.gap < 0 else "little"
    return (
        f"{_name(evidence, gap.column)} gets too {size} probability: mean probability {100 * gap.expected:.1f} %, "
        f"observed {100 * gap.observed:.1f} %"
    )


def _about_regions(evidence: Evidence) -> str:
    """The regions in which a difference is detected, the most certain first."""
    null = evidence.null
    where = regions(null.top, null.top_paths)
    texts = [_about_region(region) for region in _most_certain(where)]
    if not texts and null.positive is not None and null.positive_paths is not None and evidence.positive is not None:
        name = _name(evidence, evidence.positive)
        texts = [
            f"{name} has too {'high' if r.gap < 0 else 'low'} probabilities between {r.low:.1f} and {r.high:.1f}"
            for r in _most_certain(regions(null.positive, null.positive_paths))
        ]
    return ", ".join(texts)


def _most_certain(where: Sequence[Region]) -> list[Region]:
    detected = [region for region in where if region.p_value <= NAMING_LEVEL]
    return sorted(detected, key=lambda r: (r.p_value, -abs(r.gap)))[:MAX_REGIONS_NAMED]


def _about_region(region: Region) -> str:
    word = "over-confident" if region.gap < 0 else "under-confident"
    return f"{word} at confidence {region.low:.1f} to {region.high:.1f}"
