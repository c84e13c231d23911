"""Figures of scores with labels: what `rhocal.plot` and the command `rhocal plot` draw from predictions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rhocal.data.spec import InputSpec
from rhocal.errors import InputError
from rhocal.evaluation.evaluate import UNCALIBRATED
from rhocal.evaluation.model_scores import model_predictions
from rhocal.metrics.inference.design import SamplingDesign
from rhocal.numerics.bins import N_BINS
from rhocal.reporting import curves, plots
from rhocal.reporting.plots.style import SIZE, new_axes_grid

if TYPE_CHECKING:
    from collections.abc import Callable

    from rhocal.data.predictions import Predictions
    from rhocal.data.spec import Kind


@dataclass(frozen=True, eq=False)
class FigureOptions:
    """What a figure shows of its samples, and what is known about how they were drawn."""

    n_bins: int = N_BINS
    scheme: str = "width"
    design: SamplingDesign = field(default_factory=SamplingDesign)

    def check(self, data: Predictions) -> None:
        """Raise an error for counts below one sample; warn of fractions whose kind is not stated."""
        if data.weights is not None:
            self.design.check_weights(data.weights)

    def samples(self, data: Predictions) -> dict[str, Any]:
        """What every curve reads of its samples."""
        return {"kind": "logits", "sample_weight": data.weights}

    def drawn(self, data: Predictions) -> dict[str, Any]:
        """The same, for curves with bands and intervals."""
        return {**self.samples(data), "weight_kind": self.design.weight_kind, "clusters": self.design.clusters}


def _named_labels(data: Predictions) -> dict[str, Any]:
    return {"classes": data.classes, "positive": data.positive}


def _labels(data: Predictions) -> Any:
    return data.classes[data.labels]


def reliability(data: Predictions, options: FigureOptions, ax: Any = None) -> Any:
    """Accuracy in bins of confidence."""
    bins: dict[str, Any] = {"n_bins": options.n_bins, "scheme": options.scheme}
    curve = curves.reliability(data.logits, data.labels, **bins, **options.drawn(data))
    return _with_legend(plots.reliability(curve, ax=ax))


def positive(data: Predictions, options: FigureOptions, ax: Any = None) -> Any:
    """Share of the positive class in bins of its probability."""
    spec: dict[str, Any] = {"n_bins": options.n_bins, "scheme": options.scheme, **_named_labels(data)}
    curve = curves.reliability(data.logits, _labels(data), **spec, **options.drawn(data), of_positive=True)
    return _with_legend(plots.reliability(curve, ax=ax))


def cumulative(data: Predictions, options: FigureOptions, ax: Any = None) -> Any:
    """Correct − confidence added up in order of confidence; of two classes, of the positive one."""
    spec: dict[str, Any] = {**options.drawn(data), **_named_labels(data), "of_positive": data.n_classes == 2}
    return plots.cumulative(curves.cumulative_gap(data.logits, _labels(data), **spec), ax=ax)


def smooth(data: Predictions, options: FigureOptions, ax: Any = None) -> Any:
    """Accuracy against confidence without bins; ``scheme`` is kernel or isotonic."""
    smoother = options.scheme if options.scheme in {"kernel", "isotonic"} else "kernel"
    curve = curves.smooth_reliability(data.logits, data.labels, smoother=smoother, **options.drawn(data))
    return plots.smooth(curve, ax=ax)


def histogram(data: Predictions, options: FigureOptions, ax: Any = None) -> Any:
    """How confidence is spread."""
    curve = curves.histogram(data.logits, data.labels, n_bins=options.n_bins, **options.samples(data))
    return plots.histogram(curve, ax=ax)


def classwise(data: Predictions, options: FigureOptions, ax: Any = None) -> Any:
    """A heat-map of the worst classes."""
    spec: dict[str, Any] = {"classes": data.classes, "n_bins": options.n_bins, **options.samples(data)}
    return plots.class_heat(curves.class_heat(data.logits, data.labels, **spec), ax=ax)


def grid(views: Mapping[str, Predictions], options: FigureOptions, _ax: Any = None) -> Any:
    """Histogram and reliability diagram of every model."""
    drawn = {}
    for name, data in views.items():
        bins: dict[str, Any] = {"n_bins": options.n_bins}
        drawn[name] = (
            curves.histogram(data.logits, data.labels, **bins, **options.samples(data)),
            curves.reliability(data.logits, data.labels, scheme=options.scheme, **bins, **options.drawn(data)),
        )
    return plots.grid(drawn)


def risk_coverage(views: Mapping[str, Predictions], options: FigureOptions, ax: Any = None) -> Any:
    """Errors among the most confident samples, for every model."""
    drawn = {
        name: curves.risk_coverage(data.logits, data.labels, **options.samples(data)) for name, data in views.items()
    }
    return plots.risk_coverage(drawn, ax=ax)


def decision(views: Mapping[str, Predictions], options: FigureOptions, ax: Any = None) -> Any:
    """Net benefit over thresholds of the positive class, for every model."""
    drawn = {
        name: curves.net_benefit(data.logits, _labels(data), **options.drawn(data), **_named_labels(data))
        for name, data in views.items()
    }
    return plots.net_benefit(drawn, ax=ax)


OF_ONE: dict[str, Callable[..., Any]] = {
    "reliability": reliability, "positive": positive, "cumulative": cumulative, "smooth": smooth, "histogram": histogram,
    "classwise": classwise,
}  # fmt: skip
"""Figures of one model."""
OF_SEVERAL: dict[str, Callable[..., Any]] = {"grid": grid, "risk-coverage": risk_coverage, "decision": decision}
"""Figures that show several models together."""


def plot(
    scores: Any,
    labels: Any = None,
    what: str = "reliability",
    *,
    kind: Kind = "probs",
    classes: Any = None,
    positive: Any = None,
    sample_weight: Any = None,
    weight_kind: str | None = None,
    clusters: Any = None,
    n_bins: int = N_BINS,
    scheme: str = "width",
    ax: Any = None,
) -> Any:
    """Draw a figure of one or several models with matplotlib.

    Parameters
    ----------
    scores : array, tensor or data frame of shape (n_samples, n_classes), or a mapping of names to them
        A mapping holds several models on the same samples. Figures of one model are then drawn side by side.
    labels : array of shape (n_samples,)
        The true classes.
    what : str
        ``"reliability"``, ``"positive"``, ``"cumulative"``, ``"smooth"``, ``"histogram"``, ``"classwise"``, ``"grid"``,
        ``"risk-coverage"`` or ``"decision"``; docs/gallery.md shows them.
    kind : {"probs", "logits", "log_probs"}
        What the scores are; it is never inferred.
    classes : array of shape (n_classes,), optional
        The label of each column.
    positive : optional
        The positive class of two.
    sample_weight : array of shape (n_samples,), optional
    weight_kind : {"frequency", "importance"}, optional
        What the weights are: counts of samples (the default), or corrections of a selection. Bands and intervals depend on it.
    clusters : array of shape (n_samples,), optional
        Samples of one cluster (patient, session) may depend on each other; bands and intervals are wider then.
    n_bins : int
    scheme : str
        Bins of equal ``"width"`` or ``"mass"``; of ``"smooth"``, ``"kernel"`` or ``"isotonic"``.
    ax : matplotlib axes, optional
        Where to draw; by default new axes.

    Returns
    -------
    matplotlib axes, or an array of them where several are drawn

    Examples
    --------
    >>> import rhocal
    >>> ax = rhocal.plot(*rhocal.demo_logits("test"), kind="logits")
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('confidence', 'accuracy')
    >>> ax.figure.savefig("reliability.svg")  # doctest: +SKIP
    """
    if what not in {**OF_ONE, **OF_SEVERAL}:
        raise InputError(f"what is one of {', '.join((*OF_ONE, *OF_SEVERAL))}; got {what!r}")
    models = dict(scores) if isinstance(scores, Mapping) else {UNCALIBRATED: scores}
    if not models:
        raise InputError("scores is empty; pass at least one model")
    spec = InputSpec(kind, classes, positive=positive)
    views = model_predictions(models, labels, sample_weight, spec=spec)
    options = FigureOptions(n_bins, scheme, SamplingDesign(weight_kind, clusters))
    options.check(next(iter(views.values())))
    if what in OF_SEVERAL:
        return OF_SEVERAL[what](views, options, ax)
    if len(views) == 1:
        return OF_ONE[what](next(iter(views.values())), options, ax)
    if ax is not None:
        raise InputError(f"ax: {len(views)} models are drawn side by side on new axes; draw each by itself")
    (axes,) = new_axes_grid(None, 1, len(views), (SIZE[0] * len(views), SIZE[1]))
    for place, (name, data) in zip(axes, views.items(), strict=True):
        OF_ONE[what](data, options, place).set_title(name)
    return axes


def _with_legend(ax: Any) -> Any:
    ax.legend(loc="upper left", bbox_to_anchor=(0, 0.93), fontsize=7, frameon=False)
    return ax
