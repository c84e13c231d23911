"""Figures of scores with labels: what `rhocal.plot` and the command `rhocal plot` draw from predictions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rhocal.data.spec import InputSpec
from rhocal.errors import InputError
from rhocal.evaluation.evaluate import UNCALIBRATED
from rhocal.evaluation.model_scores import model_predictions
from rhocal.numerics.bins import N_BINS
from rhocal.reporting import curves, plots
from rhocal.reporting.plots.style import SIZE, new_axes_grid

if TYPE_CHECKING:
    from collections.abc import Callable

    from rhocal.data.predictions import Predictions
    from rhocal.data.spec import Kind


def _spec(data: Predictions) -> dict[str, Any]:
    return {"kind": "logits", "sample_weight": data.weights}


def _named_labels(data: Predictions) -> dict[str, Any]:
    return {"classes": data.classes, "positive": data.positive}


def _labels(data: Predictions) -> Any:
    return data.classes[data.labels]


def reliability(data: Predictions, n_bins: int, scheme: str, ax: Any = None) -> Any:
    """Accuracy in bins of confidence."""
    curve = curves.reliability(data.logits, data.labels, n_bins=n_bins, scheme=scheme, **_spec(data))
    return _with_legend(plots.reliability(curve, ax=ax))


def positive(data: Predictions, n_bins: int, scheme: str, ax: Any = None) -> Any:
    """Share of the positive class in bins of its probability."""
    spec: dict[str, Any] = {"n_bins": n_bins, "scheme": scheme, **_spec(data), **_named_labels(data)}
    return _with_legend(
        plots.reliability(curves.reliability(data.logits, _labels(data), **spec, of_positive=True), ax=ax)
    )


def cumulative(data: Predictions, _n_bins: int, _scheme: str, ax: Any = None) -> Any:
    """Correct − confidence added up in order of confidence; of two classes, of the positive one."""
    spec: dict[str, Any] = {**_spec(data), **_named_labels(data), "of_positive": data.n_classes == 2}
    return plots.cumulative(curves.cumulative_gap(data.logits, _labels(data), **spec), ax=ax)


def smooth(data: Predictions, _n_bins: int, scheme: str, ax: Any = None) -> Any:
    """Accuracy against confidence without bins; ``scheme`` is kernel or isotonic."""
    smoother = scheme if scheme in {"kernel", "isotonic"} else "kernel"
    return plots.smooth(curves.smooth_reliability(data.logits, data.labels, smoother=smoother, **_spec(data)), ax=ax)


def histogram(data: Predictions, n_bins: int, _scheme: str, ax: Any = None) -> Any:
    """How confidence is spread."""
    return plots.histogram(curves.histogram(data.logits, data.labels, n_bins=n_bins, **_spec(data)), ax=ax)


def classwise(data: Predictions, n_bins: int, _scheme: str, ax: Any = None) -> Any:
    """A heat-map of the worst classes."""
    return plots.class_heat(
        curves.class_heat(data.logits, data.labels, classes=data.classes, n_bins=n_bins, **_spec(data)), ax=ax
    )


def grid(views: Mapping[str, Predictions], n_bins: int, scheme: str, _ax: Any = None) -> Any:
    """Histogram and reliability diagram of every model."""
    drawn = {}
    for name, data in views.items():
        spec: dict[str, Any] = {"n_bins": n_bins, **_spec(data)}
        drawn[name] = (
            curves.histogram(data.logits, data.labels, **spec),
            curves.reliability(data.logits, data.labels, scheme=scheme, **spec),
        )
    return plots.grid(drawn)


def risk_coverage(views: Mapping[str, Predictions], _n_bins: int, _scheme: str, ax: Any = None) -> Any:
    """Errors among the most confident samples, for every model."""
    drawn = {name: curves.risk_coverage(data.logits, data.labels, **_spec(data)) for name, data in views.items()}
    return plots.risk_coverage(drawn, ax=ax)


def decision(views: Mapping[str, Predictions], _n_bins: int, _scheme: str, ax: Any = None) -> Any:
    """Net benefit over thresholds of the positive class, for every model."""
    drawn = {
        name: curves.net_benefit(data.logits, _labels(data), **_spec(data), **_named_labels(data))
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
    if what in OF_SEVERAL:
        return OF_SEVERAL[what](views, n_bins, scheme, ax)
    if len(views) == 1:
        return OF_ONE[what](next(iter(views.values())), n_bins, scheme, ax)
    if ax is not None:
        raise InputError(f"ax: {len(views)} models are drawn side by side on new axes; draw each by itself")
    (axes,) = new_axes_grid(None, 1, len(views), (SIZE[0] * len(views), SIZE[1]))
    for place, (name, data) in zip(axes, views.items(), strict=True):
        OF_ONE[what](data, n_bins, scheme, place).set_title(name)
    return axes


def _with_legend(ax: Any) -> Any:
    ax.legend(loc="upper left", bbox_to_anchor=(0, 0.93), fontsize=7, frameon=False)
    return ax
