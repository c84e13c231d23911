"""`rhocal plot`: one figure from one file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rhocal.cli.artifacts import load_calibrators
from rhocal.cli.execution import IN_MEMORY, clusters_of
from rhocal.cli.options import Arrays, ClustersOption, SpecOptions, WeightKindOption, grouped
from rhocal.errors import FileError, InputError
from rhocal.numerics.bins import N_BINS
from rhocal.numerics.caching import cached_property

if TYPE_CHECKING:
    from collections.abc import Callable

    from rhocal.data.predictions import Predictions
    from rhocal.data.sources import Source
    from rhocal.reporting.plotting import FigureOptions


@dataclass
class Request:
    """What is drawn, and from which data."""

    what: str
    path: Path
    artifacts: list[Path]
    n_bins: int
    scheme: str
    metric: str
    weight_kind: str | None
    clusters: str | None
    open: Callable[..., Source]
    """Opens the file as a file of scores; of the name of an array or column, with its values as groups."""

    @cached_property
    def source(self) -> Source:
        """The test split of the file."""
        return self.open()

    @property
    def data(self) -> Predictions:
        """The samples of the test split."""
        return self.source.predictions

    @property
    def figure_options(self) -> FigureOptions:
        """What the figure shows, and what is known about how its samples were drawn."""
        from rhocal.metrics.inference.design import SamplingDesign
        from rhocal.reporting.plotting import FigureOptions

        clusters = clusters_of(self.source, self.clusters)
        groups = None if clusters is None else self.open(clusters).predictions.groups
        options = FigureOptions(self.n_bins, self.scheme, SamplingDesign(self.weight_kind, groups))
        options.check(self.data)
        return options

    def views(self) -> dict[str, Predictions]:
        """Predictions by name: uncalibrated, and with each calibrator."""
        from rhocal.evaluation.evaluate import UNCALIBRATED
        from rhocal.evaluation.measure import apply_calibrator

        calibrators = load_calibrators(self.artifacts)
        return {
            UNCALIBRATED: self.data,
            **{name: apply_calibrator(cal, self.data) for name, cal in calibrators.items()},
        }

    def calibrator(self) -> Any:
        """The one calibrator that is drawn: -c, or the file itself."""
        from rhocal.calibrators.artifact import load

        if len(self.artifacts) > 1:
            raise InputError(f"-c: this figure is about one calibrator; got {len(self.artifacts)}")
        if not self.artifacts and self.path.suffix != ".safetensors":
            raise InputError("this figure is about a calibrator: give it with -c, a file that `rhocal fit` wrote")
        return load(self.artifacts[0] if self.artifacts else self.path)

    def compared_rows(self) -> Any:
        """The rows of a comparison."""
        from rhocal.evaluation.rows import read_rows

        if not self.path.is_file() or self.path.suffix != ".csv":
            raise FileError(f"{self.path}: need the rows that `rhocal compare -o rows.csv` wrote")
        return read_rows(self.path)

    @property
    def curves(self) -> Any:
        """The module of curves, imported when a figure is drawn."""
        from rhocal.reporting import curves

        return curves

    @property
    def plots(self) -> Any:
        """The module of plots, imported when a figure is drawn."""
        from rhocal.reporting import plots

        return plots


def _of_one(r: Request) -> Any:
    from rhocal.reporting.plotting import OF_ONE

    return OF_ONE[r.what](list(r.views().values())[-1], r.figure_options)


def _of_several(r: Request) -> Any:
    from rhocal.reporting.plotting import OF_SEVERAL

    return OF_SEVERAL[r.what](r.views(), r.figure_options)


def _temperature(r: Request, against: str = "amplitude") -> Any:
    return r.plots.temperature(r.curves.temperature_map(r.calibrator(), r.data.logits, kind="logits"), against=against)


def _margin(r: Request) -> Any:
    return _temperature(r, "margin")


def _confidence_map(r: Request) -> Any:
    return r.plots.confidence_map(r.curves.confidence_map(r.calibrator(), r.data.logits, kind="logits"))


def _migration(r: Request) -> Any:
    from rhocal.evaluation.measure import apply_calibrator

    calibrated = apply_calibrator(r.calibrator(), r.data).logits
    return r.plots.migration(r.curves.migration(r.data.logits, calibrated, n_bins=r.n_bins, kind="logits"))


def _rho_grid(r: Request) -> Any:
    return r.plots.rho_grid(r.curves.rho_grid(r.calibrator()))


def _alpha(r: Request) -> Any:
    return r.plots.alpha_curve(r.curves.alpha_curve(r.calibrator()))


def _pareto(r: Request) -> Any:
    return r.plots.pareto(r.curves.pareto(r.compared_rows(), y=r.metric))


def _learning_curve(r: Request) -> Any:
    return r.plots.learning_curve(r.curves.learning_curve(r.compared_rows(), metric=r.metric))


def _amplitude(r: Request) -> Any:
    from rhocal.data.formats import open_file
    from rhocal.data.formats.base import Names

    runs = open_file(r.path, Names()).arrays if r.path.suffix == ".npz" else {}
    if not runs or not all(len(run.shape) == 3 for run in runs.values()):
        raise FileError(f"{r.path}: need an .npz with logits of shape (epochs, samples, classes)")
    return r.plots.amplitude_over_epochs([r.curves.amplitudes(name, run[:]) for name, run in runs.items()])


def _open(path: Path, arrays: Arrays, spec: SpecOptions, artifacts: list[Path], groups: str | None = None) -> Source:
    """A file of scores, read as the calibrators that are drawn take it."""
    calibrators = load_calibrators(artifacts)
    first = next(iter(calibrators.values()), None)
    stated = spec.spec(calibrators.values())
    return IN_MEMORY.open(path, arrays.of_calibrator(first, path), stated, "test", groups)


KINDS: dict[str, tuple[Callable[[Request], Any], str]] = {
    "reliability": (_of_one, "accuracy in bins of confidence"),
    "positive": (_of_one, "share of the positive class in bins of its probability"),
    "cumulative": (
        _of_one,
        "correct − confidence added up in order of confidence; of two classes, of the positive one",
    ),
    "smooth": (_of_one, "the same without bins (--scheme kernel or isotonic)"),
    "histogram": (_of_one, "how confidence is spread"),
    "grid": (_of_several, "both, for each -c"),
    "risk-coverage": (_of_several, "errors among the most confident samples, for each -c"),
    "decision": (_of_several, "net benefit over thresholds of the positive class, for each -c"),
    "classwise": (_of_one, "heat-map of the worst classes"),
    "temperature": (_temperature, "temperature against amplitude; needs -c"),
    "margin": (_margin, "temperature against margin; needs -c"),
    "confidence-map": (_confidence_map, "confidence after against before; needs -c"),
    "migration": (_migration, "confidence after, for each bin before; needs -c"),
    "rho-grid": (_rho_grid, "ECE over rho; FILE is a calibrator"),
    "alpha": (_alpha, "ECE over alpha; FILE is a calibrator fitted with alpha=auto"),
    "pareto": (_pareto, "ECE against NLL of methods; FILE is a .csv of `rhocal compare`"),
    "learning-curve": (_learning_curve, "a metric over the number of calibration samples; FILE is a .csv of rows"),
    "amplitude": (
        _amplitude,
        "amplitude over epochs; FILE is an .npz, an array (epochs, samples, classes) for each run",
    ),
}
"""Name → what draws it, and what it shows."""


@grouped
def plot(
    what: Annotated[str, typer.Argument(metavar="KIND", help="; ".join(f"`{k}`: {v}" for k, (_, v) in KINDS.items()))],
    path: Annotated[Path, typer.Argument(metavar="FILE", help="What to draw.", show_default=False)],
    output: Annotated[Path, typer.Option("-o", "--output", help="The figure to write: .svg, .pdf or .png.")],
    artifacts: Annotated[
        list[Path] | None, typer.Option("-c", "--calibrator", help="A calibrator; repeatable where several are drawn.")
    ] = None,
    n_bins: Annotated[int, typer.Option("--bins", min=1, help="Number of bins.")] = N_BINS,
    scheme: Annotated[
        str, typer.Option(help="Bins of equal `width` or equal `mass`; of `smooth` the smoother.")
    ] = "width",
    metric: Annotated[str, typer.Option(help="The metric of `pareto` and `learning-curve`.")] = "ece",
    *,
    clusters: ClustersOption = None,
    weight_kind: WeightKindOption = None,
    arrays: Arrays,
    spec: SpecOptions,
) -> None:
    """Draw one figure. The test split is used if the file has one."""
    from rhocal.reporting import plots

    if what not in KINDS:
        raise InputError(f"there is no figure {what!r}; there are {', '.join(KINDS)}")
    arrays.check_weight_kind(weight_kind)
    opener = partial(_open, path, arrays, spec, artifacts or [])
    request = Request(what, path, artifacts or [], n_bins, scheme, metric, weight_kind, clusters, opener)
    plots.save(KINDS[what][0](request), output)
    typer.echo(f"{what}: {output}")
