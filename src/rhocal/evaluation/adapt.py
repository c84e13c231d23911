"""Adapt a calibrator to another mix of the classes: from known shares, a known sampling rate, or unlabeled samples.

>>> import rhocal
>>> logits, labels = rhocal.demo_logits("cal", "cifar10")
>>> cal = rhocal.TemperatureScaling().fit(logits, labels)
>>> rare = rhocal.adapt(cal, priors=[0.01] + [0.11] * 9)
>>> rare.calibrator.label
'temperature:prior-shift'
>>> float(rare.calibrator.predict_proba(logits)[:, 0].mean()) < float(cal.predict_proba(logits)[:, 0].mean())
True
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.compose.chain import Chain
from rhocal.calibrators.fit_spec import check_calibrator, positive_of_fit, spec_of_fit
from rhocal.calibrators.linear.prior_shift import PriorShift
from rhocal.data.arguments import check_finite, check_level
from rhocal.data.predictions import SMALLEST_PROB
from rhocal.data.sampling import distinct_keys
from rhocal.data.sources import as_source
from rhocal.errors import FewSamplesWarning, InputError, warn
from rhocal.metrics.inference.label_shift import estimated_shares, shares_with_labels
from rhocal.metrics.inference.p_values import equals_p

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rhocal.calibrators import Calibrator
    from rhocal.data.predictions import Predictions
    from rhocal.data.sources import Source
    from rhocal.data.spec import Kind
    from rhocal.numerics.special import Floats, Vector

SUM_TOLERANCE = 1e-6
MAX_SAMPLES = 1_000_000
"""Samples from which shares are estimated; of more, some."""
MAX_ENTRIES = 1 << 24
"""Probabilities of these samples that are held in memory."""
REJECTED = 0.01
"""A p-value of the test of label shift below which the correction is doubted."""
FEW_PER_CLASS = 20
"""Unlabeled samples for each class below which estimated shares are mostly noise."""
N_SHOWN = 20


@dataclass(frozen=True, eq=False)
class Adaptation:
    """A calibrator for another mix of the classes, and where its shares come from."""

    calibrator: Calibrator
    classes: NDArray[Any]
    source: Vector | None
    """The share of each class that the former calibrator assumes: that of its calibration set."""
    priors: Vector | None
    """The share of each class now; None where only a sampling rate is known."""
    low: Vector | None = None
    high: Vector | None = None
    """Limits of the 95 % interval of each share, where shares were estimated."""
    p_value: float | None = None
    """Of the test whether another mix explains the samples: a small one says that it does not."""
    n_samples: int = 0
    n_labeled: int = 0
    positive: Any = None
    """The class whose prevalence was stated."""

    def __str__(self) -> str:
        return self.verdict

    @property
    def verdict(self) -> str:
        """What was done, and whether it can be trusted."""
        if not self.n_samples:
            of = "" if self.positive is None else f" (positive class: {self.positive})"
            return f"the shares were stated{of}; nothing about them was tested"
        text = f"estimated from {self.n_samples:,} unlabeled samples"
        if self.p_value is None:
            return (
                f"{text}, as if the probabilities were exact; labeled samples of the calibration mix would repair this, "
                "give an interval, and test whether another mix explains the samples"
            )
        if self.p_value < REJECTED:
            return (
                f"{text}; a change of class shares alone does not explain them (p {equals_p(self.p_value)}): samples of a "
                "class look different from those of the calibration set, so that this correction may be wrong"
            )
        return f"{text}; a change of class shares alone explains them (no sign of another change, p {equals_p(self.p_value)})"

    @property
    def is_explained(self) -> bool:
        """Whether nothing speaks against label shift."""
        return self.p_value is None or self.p_value >= REJECTED

    def rows(self) -> list[dict[str, Any]]:
        """A row for each class."""
        columns = {"calibration": self.source, "share": self.priors, "low": self.low, "high": self.high}
        known = {name: values for name, values in columns.items() if values is not None}
        return [
            {"class": str(name), **{key: float(values[k]) for key, values in known.items()}}
            for k, name in enumerate(self.classes)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything but the calibrator, as JSON takes it."""
        of = {} if self.positive is None else {"positive": self.positive}
        return {
            "method": self.calibrator.label,
            "classes": self.rows(),
            **of,
            "p_value": self.p_value,
            "n_samples": self.n_samples,
            "n_labeled": self.n_labeled,
            "verdict": self.verdict,
        }


def adapt(
    calibrator: Calibrator,
    logits: Any = None,
    *,
    priors: Any = None,
    prevalence: float | None = None,
    sampling_rates: Any = None,
    labeled: tuple[Any, Any] | None = None,
    positive: Any = None,
    kind: Kind | None = None,
) -> Adaptation:
    """A fitted calibrator for another mix of the classes (label shift): samples of each class stay as they are.

    Give exactly one of ``logits``, ``priors``, ``prevalence`` and ``sampling_rates``.

    Parameters
    ----------
    calibrator
        A fitted calibrator. Its probabilities are those of the mix of its calibration set (``label_shares_``).
    logits
        Unlabeled samples of the new mix, in the form that the calibrator takes, or a ``rhocal.stream``; shares are estimated.
    priors
        The share of each class: a sequence in the order of ``classes_``, or a mapping from class to share.
    prevalence
        The share of the positive class of two; the result names it (``positive``).
    sampling_rates
        The share of the samples of each class that was kept when the calibration (and training) set was drawn, in the form of
        ``priors``: ``{"no": 0.1}`` if nine of ten negatives were dropped. Classes that a mapping does not name were kept.
    labeled
        With ``logits``: logits and labels of the calibration mix, best samples that fitted nothing. They repair estimates where
        the probabilities are not exact, give honest intervals, and test whether another mix explains the samples.
    positive
        The positive class of two, by name or column number. Default: that of the calibrator; of classes that are numbers the
        second. Classes that are texts need it with ``prevalence``.
    kind
        What ``logits`` are; by default what the calibrator was fitted on.

    Returns
    -------
    Adaptation
        Its ``calibrator`` is the adapted one, and its ``priors`` are the shares of the classes.

    Examples
    --------
    >>> import rhocal
    >>> cal = rhocal.TemperatureScaling().fit(*rhocal.demo_logits("cal", "table"))
    >>> rare = rhocal.adapt(cal, prevalence=0.01).calibrator
    >>> bool(rare.predict_proba([[0.0, 0.0]])[0, 1] < cal.predict_proba([[0.0, 0.0]])[0, 1])
    True
    """
    check_calibrator(calibrator, logits, "adapt")
    given = {"logits": logits, "priors": priors, "prevalence": prevalence, "sampling_rates": sampling_rates}
    stated = [name for name, value in given.items() if value is not None]
    if len(stated) != 1:
        raise InputError(f"give exactly one of {', '.join(given)}; got {' and '.join(stated) or 'none'}")
    if labeled is not None and logits is None:
        raise InputError("labeled belongs to logits, unlabeled samples from which shares are estimated")
    pair: Any = labeled
    if pair is not None and not (isinstance(pair, tuple | list) and len(pair) == 2):
        raise InputError(f"labeled must be a pair, (logits, labels); got {type(labeled).__name__}")
    if labeled is not None:
        check_calibrator(calibrator, labeled[0], "adapt")
    spec = spec_of_fit(calibrator, kind=kind)
    unlabeled = None
    if logits is not None:
        unlabeled = as_source(logits, spec=spec, needs_labels=False)
    known = None if labeled is None else as_source(labeled[0], labeled[1], spec=spec)
    if unlabeled is not None:
        return adapt_to_source(calibrator, unlabeled, known)
    return adapt_to_shares(
        calibrator, priors=priors, prevalence=prevalence, sampling_rates=sampling_rates, positive=positive
    )


def adapt_to_shares(
    calibrator: Calibrator,
    *,
    priors: Any = None,
    prevalence: float | None = None,
    sampling_rates: Any = None,
    positive: Any = None,
) -> Adaptation:
    """The same for what is known."""
    classes, source = calibrator.classes_, calibrator.label_shares_
    if sampling_rates is not None:
        if isinstance(calibrator, Chain) and isinstance(calibrator.second_, PriorShift):
            # Rates speak of how its calibration set was drawn, whatever it was adapted to since.
            if source is not None:
                drawn = source * np.exp(-calibrator.second_.bias_)
                source = drawn / drawn.sum()
            calibrator = calibrator.first_
        rates = _of_classes(sampling_rates, classes, "sampling_rates", default=1.0)
        if not ((rates > 0) & (rates <= 1)).all():
            raise InputError(f"sampling_rates must be above 0 and at most 1; got {sampling_rates!r}")
        target = None if source is None else source / rates / (source / rates).sum()
        return Adaptation(shift(calibrator, -np.log(rates), target), classes, source, target)
    whose = None
    if prevalence is not None:
        target, whose = _of_positive(prevalence, calibrator, positive)
    else:
        target = _of_classes(priors, classes, "priors")
        if not (target > 0).all() or abs(target.sum() - 1) > SUM_TOLERANCE:
            raise InputError(f"priors must be above 0 and sum to 1; the sum of {len(target)} is {target.sum():g}")
    source = _source_of(calibrator)
    return Adaptation(shift(calibrator, np.log(target / source), target), classes, source, target, positive=whose)


def adapt_to_source(calibrator: Calibrator, unlabeled: Source, labeled: Source | None) -> Adaptation:
    """The same for unlabeled samples."""
    source = _source_of(calibrator)
    probs = unlabeled.reduce(partial(_sample_block, calibrator=calibrator), _Sampled.merge).probs
    if len(probs) < 2:
        raise InputError("at least two unlabeled samples are needed to estimate shares of classes")
    if len(probs) < FEW_PER_CLASS * len(source):
        warn(
            f"shares of {len(source):,} classes are estimated from {len(probs):,} samples; below {FEW_PER_CLASS} a class that "
            "is mostly noise, and the result may be worse than no change. State the shares if they are known",
            FewSamplesWarning,
        )
    classes = calibrator.classes_
    if labeled is None:
        shares = estimated_shares(probs, source, calibrator.n_samples_)
        adapted = shift(calibrator, np.log(shares / source), shares)
        return Adaptation(adapted, classes, source, shares, n_samples=len(probs))
    known = labeled.reduce(partial(_sample_block, calibrator=calibrator), _Sampled.merge)
    assert known.labels is not None
    estimate = shares_with_labels(probs, known.probs, known.labels, source)
    adapted = shift(calibrator, np.log(estimate.value / source), estimate.value)
    n_labeled = len(known.labels)
    return Adaptation(
        adapted, classes, source, estimate.value, estimate.low, estimate.high, estimate.p_value, len(probs), n_labeled
    )


def shift(calibrator: Calibrator, bias: Vector, mix: Vector | None) -> Calibrator:
    """The calibrator with a bias of each class behind it; one that it has already is replaced by the sum of both."""
    first, shifted = calibrator, PriorShift.from_bias(calibrator.classes_, bias)
    if isinstance(calibrator, Chain) and isinstance(calibrator.second_, PriorShift):
        first = calibrator.first_
        shifted = PriorShift.from_bias(calibrator.classes_, bias + calibrator.second_.bias_)
    chain = Chain.from_fitted(first, shifted, like=calibrator)
    chain.label_shares_ = mix
    return chain


def _source_of(calibrator: Calibrator) -> Vector:
    shares = calibrator.label_shares_
    if shares is None:
        raise InputError("this calibrator does not know the mix of its calibration set; fit it again with this version")
    if shares.min() <= 0:
        absent = [str(name) for name in calibrator.classes_[shares <= 0][:N_SHOWN]]
        raise InputError(
            f"the calibration set has no samples of {', '.join(absent)}, so that the share of this class cannot be moved; "
            "fit on samples of every class"
        )
    return np.asarray(shares)


def _of_positive(prevalence: float, calibrator: Calibrator, positive: Any) -> tuple[Vector, Any]:
    """The share of each class, and the name of the positive one."""
    classes = calibrator.classes_
    if len(classes) != 2:
        raise InputError(
            f"prevalence is the share of the positive class of two, and there are {len(classes)}",
            argument="priors",
            remedy="state the share of each class",
        )
    check_level(prevalence, "prevalence", "0.02 for 2 %")
    column = positive_of_fit(positive, calibrator, "prevalence is the share of the positive class")
    target = np.full(2, 1 - prevalence)
    target[column] = prevalence
    return target, classes[column].item()


def _of_classes(values: Any, classes: NDArray[Any], name: str, default: float | None = None) -> Vector:
    """A number for each class, from a sequence or a mapping."""
    if hasattr(values, "items"):
        return _from_mapping(values, classes, name, default)
    try:
        numbers = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        numbers = np.zeros(0)
    if numbers.shape != (len(classes),) or not np.isfinite(numbers).all():
        raise InputError(f"{name} must be a finite number for each of the {len(classes)} classes; got {values!r}")
    return numbers


def _from_mapping(values: Mapping[Any, float], classes: NDArray[Any], name: str, default: float | None) -> Vector:
    for key, value in values.items():
        check_finite(value, f"{name}: that of {key!s}", "a finite number")
    given = {str(key): float(value) for key, value in values.items()}
    names = [str(known) for known in classes.tolist()]
    unknown = [key for key in given if key not in names]
    absent = [known for known in names if known not in given and default is None]
    if unknown or absent:
        text = f"{', '.join(unknown[:N_SHOWN])} is no class" if unknown else f"{', '.join(absent[:N_SHOWN])} is missing"
        raise InputError(f"{name}: {text}; the classes are {', '.join(names[:N_SHOWN])}")
    return np.array([given.get(known, default) for known in names], np.float64)


@dataclass(frozen=True, eq=False)
class _Sampled:
    """Calibrated probabilities of some samples: those whose keys are smallest."""

    probs: Floats
    labels: NDArray[np.intp] | None
    keys: NDArray[np.uint64]

    def merge(self, other: _Sampled) -> _Sampled:
        """The sample of both."""
        probs, keys = np.concatenate([self.probs, other.probs]), np.concatenate([self.keys, other.keys])
        both = self.labels is not None and other.labels is not None
        labels = np.concatenate([self.labels, other.labels]) if both else None
        return _Sampled(probs, labels, keys).cut()

    def cut(self) -> _Sampled:
        """The same with no more samples than are used. Keys follow from what a block holds, so order in it does not matter."""
        size = min(MAX_SAMPLES, MAX_ENTRIES // self.probs.shape[1])
        if len(self.keys) <= size:
            return self
        rows = np.flatnonzero(self.keys <= np.partition(self.keys, size - 1)[size - 1])
        return _Sampled(self.probs[rows], None if self.labels is None else self.labels[rows], self.keys[rows])


def _sample_block(data: Predictions, calibrator: Calibrator) -> _Sampled:
    if data.weights is not None:
        raise InputError("weights are not used here: shares of classes are estimated from samples as they come")
    probs = np.maximum(calibrator.map_.probs(data).astype(np.float64), SMALLEST_PROB)
    keys = distinct_keys(_content_keys(probs), [] if data.labels is None else [data.labels])
    return _Sampled(probs, data.labels, keys).cut()


def _content_keys(probs: Floats) -> NDArray[np.uint64]:
    """A number for each row that looks random and follows from its content (multiplicative hashing, then a finalizer)."""
    factors = np.random.default_rng(0).integers(1 << 63, size=probs.shape[1], dtype=np.uint64) | np.uint64(1)
    keys = (probs.view(np.uint64) * factors).sum(axis=1, dtype=np.uint64)
    keys = (keys ^ (keys >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)
    return np.asarray(keys ^ (keys >> np.uint64(29)))
