"""`rhocal plot`: one figure from one file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rhocal.cli.options import KindOption, LabelsName, LabelsOption, LogitsName, kind_of, read, with_labels
from rhocal.errors import FileError, InputError
from rhocal.numerics.bins import N_BINS

if TYPE_CHECKING:
    from collections.abc import Callable

    from rhocal.data.predictions import Predictions


@dataclass(frozen=True)
class Request:
    """What was asked for."""

    source: Path
    artifacts: list[Path]
    n_bins: int
    scheme: str
    metric: str
    read: Callable[[], Predictions]

    def views(self) -> dict[str, Any]:
        """Calibrated logits by name: as they came, and with each calibrator."""
        from rhocal.calibrators.artifact import load

        data = self.read()
        found = {"uncalibrated": data.logits}
        for path in self.artifacts:
            found[path.stem] = load(path).transform(data.logits, kind="logits")
        return found

    def last(self) -> tuple[Any, Any]:
        """Logits with the last calibrator given (or as they came), and labels."""
        return list(self.views().values())[-1], self.read().labels

    def calibrator(self) -> Any:
        """The one calibrator asked about: -c, or the file itself."""
        from rhocal.calibrators.artifact import load

        if len(self.artifacts) > 1:
            raise InputError(f"-c: this figure is about one calibrator; got {len(self.artifacts)}")
        if not self.artifacts and self.source.suffix != ".safetensors":
            raise InputError("this figure is about a calibrator: give it with -c, a file that `rhocal fit` wrote")
        return load(self.artifacts[0] if self.artifacts else self.source)


def _reliability(r: Request) -> Any:
    from rhocal.reporting import curves, plots

    logits, labels = r.last()
    ax = plots.reliability(curves.reliability(logits, labels, n_bins=r.n_bins, scheme=r.scheme, kind="logits"))
    ax.legend(loc="upper left", bbox_to_anchor=(0, 0.93), fontsize=7, frameon=False)
    return ax


def _smooth(r: Request) -> Any:
    from rhocal.reporting import curves, plots

    smoother = r.scheme if r.scheme in {"kernel", "isotonic"} else "kernel"
    return plots.smooth(curves.smooth_reliability(*r.last(), smoother=smoother, kind="logits"))


def _histogram(r: Request) -> Any:
    from rhocal.reporting import curves, plots

    return plots.histogram(curves.histogram(*r.last(), n_bins=r.n_bins, kind="logits"))


def _grid(r: Request) -> Any:
    from rhocal.reporting import curves, plots

    labels = r.read().labels
    spec: dict[str, Any] = {"n_bins": r.n_bins, "kind": "logits"}
    return plots.grid(
        {
            name: (curves.histogram(z, labels, **spec), curves.reliability(z, labels, scheme=r.scheme, **spec))
            for name, z in r.views().items()
        }
    )


def _risk_coverage(r: Request) -> Any:
    from rhocal.reporting import curves, plots

    labels = r.read().labels
    return plots.risk_coverage({n: curves.risk_coverage(z, labels, kind="logits") for n, z in r.views().items()})


def _classwise(r: Request) -> Any:
    from rhocal.reporting import curves, plots

    logits, labels = r.last()
    return plots.class_heat(curves.class_heat(logits, labels, classes=r.read().classes, n_bins=r.n_bins, kind="logits"))


def _temperature(r: Request, against: str = "amplitude") -> Any:
    from rhocal.reporting import curves, plots

    return plots.temperature(curves.temperature_map(r.calibrator(), r.read().logits), against=against)


def _margin(r: Request) -> Any:
    return _temperature(r, "margin")


def _confidence_map(r: Request) -> Any:
    from rhocal.reporting import curves, plots

    return plots.confidence_map(curves.confidence_map(r.calibrator(), r.read().logits))


def _migration(r: Request) -> Any:
    from rhocal.reporting import curves, plots

    raw = r.read().logits
    calibrated = r.calibrator().transform(raw, kind="logits")
    return plots.migration(curves.migration(raw, calibrated, n_bins=r.n_bins, kind="logits"))


def _rho_grid(r: Request) -> Any:
    from rhocal.reporting import curves, plots

    return plots.rho_grid(curves.rho_grid(r.calibrator()))


def _alpha(r: Request) -> Any:
    from rhocal.reporting import curves, plots

    return plots.alpha_curve(curves.alpha_curve(r.calibrator()))


def _pareto(r: Request) -> Any:
    from rhocal.evaluation import compare
    from rhocal.reporting import curves, plots

    return plots.pareto(curves.pareto(compare.read_rows(_csv(r)), y=r.metric))


def _learning_curve(r: Request) -> Any:
    from rhocal.evaluation import compare
    from rhocal.reporting import curves, plots

    return plots.learning_curve(curves.learning_curve(compare.read_rows(_csv(r)), metric=r.metric))


def _amplitude(r: Request) -> Any:
    import numpy as np

    from rhocal.reporting import curves, plots

    try:
        with np.load(r.source, allow_pickle=False) as file:
            runs = [curves.amplitudes(name, file[name]) for name in file.files]
    except (OSError, ValueError) as error:
        raise FileError(f"{r.source}: need an .npz with logits of shape (epochs, samples, classes): {error}") from error
    return plots.amplitude_over_epochs(runs)


def _csv(r: Request) -> Path:
    if not r.source.is_file() or r.source.suffix != ".csv":
        raise FileError(f"{r.source}: need the rows that `rhocal compare -o rows.csv` wrote")
    return r.source


KINDS: dict[str, tuple[Callable[[Request], Any], str]] = {
    "reliability": (_reliability, "accuracy in bins of confidence"),
    "smooth": (_smooth, "the same without bins (--scheme kernel or isotonic)"),
    "histogram": (_histogram, "how confidence is spread"),
    "grid": (_grid, "both, for each -c"),
    "risk-coverage": (_risk_coverage, "errors among the surest, for each -c"),
    "classwise": (_classwise, "heat-map of the worst classes"),
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


def plot(
    what: Annotated[str, typer.Argument(metavar="KIND", help="; ".join(f"`{k}`: {v}" for k, (_, v) in KINDS.items()))],
    source: Annotated[Path, typer.Argument(metavar="FILE", help="What to draw.", show_default=False)],
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
    kind: KindOption = "logits",
    labels: LabelsOption = None,
    logits_name: LogitsName = "logits",
    labels_name: LabelsName = "labels",
) -> None:
    """Draw one figure. The test split is used if the file has one."""
    from functools import cache

    from rhocal.data.predictions import predictions
    from rhocal.reporting import plots

    if what not in KINDS:
        raise InputError(f"there is no figure {what!r}; there are {', '.join(KINDS)}")

    @cache
    def data() -> Predictions:
        contents = read(source, labels, logits_name, labels_name)
        split = with_labels(contents)
        return predictions(split.logits, split.labels, classes=contents.classes, kind=kind_of(kind))

    ax = KINDS[what][0](Request(source, artifacts or [], n_bins, scheme, metric, data))
    plots.save(ax, output)
    typer.echo(f"{what}: {output}")
