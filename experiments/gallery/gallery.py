"""Every figure rhocal draws, on the shipped logits: docs/gallery/*.svg and docs/gallery.md. Run by `make figures`."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import rhocal
from rhocal.data.demo import demo_file
from rhocal.data.predictions import Predictions
from rhocal.errors import RhocalWarning
from rhocal.evaluation import compare, rows
from rhocal.reporting import curves, plots
from rhocal.reporting.plots.style import pyplot

sys.path.insert(0, str(Path(__file__).parent))
from training import logits_by_epoch

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LEARNING = "experiments/learning_curve/rows.csv"
RAW: dict[str, Any] = {"kind": "logits"}
PANELS = {
    "uncalibrated": "identity",
    "ρ-Norm": "rho-norm",
    "temperature": "temperature",
    "vector": "vector",
    "TS-AvUC": "temperature-avuc",
    "histogram binning": "histogram-binning",
}
HEAD = """# Gallery

Each curve is available as data (`rhocal.reporting.curves`) and as a plot (`rhocal.reporting.plots`, extra `plots`). All plot
functions take `ax=` and return the axes; `plots.save` writes SVG, PDF or PNG. The colors are those of Okabe and Ito; hatches,
dashes and markers make the plots readable in gray print. `make figures` draws this page from the logits shipped with the
package (a thin ResNet-18 on CIFAR-10) unless a section names other data.
"""


@dataclass(frozen=True)
class Figure:
    """A picture with what is said about it."""

    name: str
    ax: Any
    title: str
    command: str
    text: str

    def section(self) -> str:
        """As Markdown."""
        command = f"```\nrhocal plot {self.command} -o out.svg\n```"
        return f"\n## {self.title}\n\n{self.text}\n\n{command}\n\n![{self.title}](gallery/{self.name}.svg)\n"


class Scene:
    """The shipped logits, and the methods of the paper's Fig. 3 fitted on them."""

    def __init__(self) -> None:
        self.tune = rhocal.demo_logits("cal", "cifar10")
        self.logits, self.labels = rhocal.demo_logits("test", "cifar10")
        with demo_file("cifar10").open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            self.classes = arrays["classes"]
        self.cals = {name: rhocal.calibrator(method).fit(*self.tune) for name, method in PANELS.items()}
        self.views = {name: cal.transform(self.logits) for name, cal in self.cals.items()}


def cats_and_dogs(scene: Scene, logits: Any, labels: Any) -> tuple[Any, Any]:
    """Two classes of the shipped logits; dogs are positive."""
    cat, dog = (scene.classes.tolist().index(name) for name in ("cat", "dog"))
    rows_of_both = np.isin(labels, [cat, dog])
    return logits[rows_of_both][:, [cat, dog]], (labels[rows_of_both] == dog).astype(int)


def decision_curve(scene: Scene) -> Figure:
    """The net benefit before and after temperature scaling."""
    logits, labels = cats_and_dogs(scene, scene.logits, scene.labels)
    calibrated = rhocal.TemperatureScaling().fit(*cats_and_dogs(scene, *scene.tune)).transform(logits)
    views = {"uncalibrated": logits, "temperature": calibrated}
    return Figure(
        "decision",
        plots.net_benefit({name: curves.net_benefit(z, labels, **RAW) for name, z in views.items()}),
        "Decision curve",
        "decision FILE -c CAL",
        'Net benefit of deciding "positive" from a threshold on, with a 95 % band: true positives minus false positives '
        "weighted by the odds of the threshold. Cats and dogs of the shipped logits.",
    )


def positive_class(scene: Scene) -> Figure:
    """The diagram of one class of two: cats and dogs of the shipped logits."""
    logits, labels = cats_and_dogs(scene, scene.logits, scene.labels)
    ax = plots.reliability(curves.reliability(logits, labels, of_positive=True, **RAW))
    ax.legend(loc="upper left", bbox_to_anchor=(0, 0.93), fontsize=7, frameon=False)
    return Figure(
        "positive",
        ax,
        "Reliability of the positive class",
        "positive FILE",
        "Prevalence in each bin of the probability of the positive class of two (here: cats and dogs of the shipped logits). "
        "The diagram of the predicted class looks the same for a rare event with too much probability.",
    )


def diagrams(scene: Scene) -> Iterator[Figure]:
    """Confidence against accuracy."""
    given = (scene.logits, scene.labels)
    for scheme in ("width", "mass"):
        ax = plots.reliability(curves.reliability(*given, scheme=scheme, **RAW))
        ax.legend(loc="upper left", bbox_to_anchor=(0, 0.93), fontsize=7, frameon=False)
        yield Figure(
            f"reliability-{scheme}",
            ax,
            f"Reliability diagram, bins of equal {scheme}",
            f"reliability FILE --scheme {scheme}",
            "Accuracy in each bin, the gap to the mean confidence hatched, the 95 % band of a perfectly calibrated model, a "
            "bootstrap interval, and the number of samples.",
        )
    yield positive_class(scene)
    yield Figure(
        "cumulative",
        plots.cumulative(curves.cumulative_gap(*given, **RAW)),
        "Cumulative differences",
        "cumulative FILE",
        "Correct − confidence, added up over the samples in order of confidence: no bins. Where the curve falls the model is "
        "over-confident. Perfect models stay in the band with a probability of 95 %.",
    )
    for smoother in ("kernel", "isotonic"):
        yield Figure(
            f"smooth-{smoother}",
            plots.smooth(curves.smooth_reliability(*given, smoother=smoother, **RAW)),
            f"Reliability without bins, {smoother}",
            f"smooth FILE --scheme {smoother}",
            "A regression of correctness on confidence with a bootstrap band, and the distribution of the samples.",
        )
    yield Figure(
        "histogram",
        plots.histogram(curves.histogram(*given, **RAW)),
        "Confidence histogram",
        "histogram FILE",
        "If the mean confidence (dashed) is to the right of the accuracy, the model is over-confident.",
    )
    pairs = {
        name: (curves.histogram(z, scene.labels, **RAW), curves.reliability(z, scene.labels, **RAW))
        for name, z in scene.views.items()
    }
    yield Figure(
        "grid",
        plots.grid(pairs),
        "Methods beside each other (paper, Fig. 3)",
        "grid FILE -c A -c B",
        "Histogram above, reliability diagram below.",
    )
    yield Figure(
        "classwise",
        plots.class_heat(curves.class_heat(*given, classes=scene.classes, **RAW)),
        "Classes",
        "classwise FILE",
        "Frequency minus probability, for each class and bin; worst class first.",
    )


def fitted(scene: Scene) -> Iterator[Figure]:
    """The map itself."""
    field = rhocal.FieldScaling().fit(*scene.tune)
    for kind, against in (("temperature", "amplitude"), ("margin", "margin")):
        yield Figure(
            f"temperature-{against}",
            plots.temperature(curves.temperature_map(field, scene.logits), against=against),
            f"Temperature against {against} (field)",
            f"{kind} FILE -c CAL",
            "The temperature of each sample against a feature of its logits.",
        )
    yield Figure(
        "confidence-map",
        plots.confidence_map(curves.confidence_map(scene.cals["vector"], scene.logits)),
        "Confidence after against before (vector)",
        "confidence-map FILE -c CAL",
        "Vector scaling may change decisions; such samples are crosses. A scale (ρ-Norm, field) never changes a decision.",
    )
    yield Figure(
        "rho-grid",
        plots.rho_grid(curves.rho_grid(scene.cals["ρ-Norm"])),
        "The grid of ρ",
        "rho-grid CAL",
        "ECE on the calibration set for every ρ tried. All values are within 0.001: ρ has little effect on this network.",
    )
    yield Figure(
        "alpha",
        plots.alpha_curve(curves.alpha_curve(rhocal.RhoNormScaling(alpha="auto").fit(*scene.tune))),
        "The weight of the KL term",
        "alpha CAL",
        "Fitted with `alpha='auto'`; a large weight keeps the calibrator near the uncalibrated model.",
    )
    axes = pyplot().subplots(1, 3, figsize=(10.5, 3.6), layout="constrained")[1]
    for ax, (name, objective) in zip(
        axes, {"NLL": "nll", "SCE": "sce", "SCE + KL": "sce + 0.1*kl"}.items(), strict=True
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RhocalWarning)  # SCE alone has no sharp minimum for so many parameters
            calibrated = rhocal.VectorScaling(objective=objective).fit(*scene.tune).transform(scene.logits)
        plots.migration(curves.migration(scene.logits, calibrated, **RAW), ax=ax).set_title(f"vector scaling, {name}")
    yield Figure(
        "migration",
        axes,
        "Where the samples of a bin go (paper, Fig. 4)",
        "migration FILE -c CAL",
        "Quantiles (5, 25, 50, 75 and 95 %) of the calibrated confidence for each bin of uncalibrated confidence, under three "
        "objectives.",
    )


def quality(scene: Scene) -> Iterator[Figure]:
    """Methods against each other."""
    yield Figure(
        "risk-coverage",
        plots.risk_coverage({k: curves.risk_coverage(z, scene.labels, **RAW) for k, z in scene.views.items()}),
        "Risk and coverage",
        "risk-coverage FILE -c A -c B",
        "The error rate when only the most confident samples are answered. Histogram binning gives many samples the same "
        "confidence and loses their order.",
    )
    yield decision_curve(scene)
    split = compare.CalibrationSplit.from_predictions(
        compare.OWN, Predictions.from_arrays(*scene.tune), Predictions.from_arrays(scene.logits, scene.labels)
    )
    methods = {name: rhocal.calibrator(name) for name in rhocal.CALIBRATORS}
    yield Figure(
        "pareto",
        plots.pareto(curves.pareto([row.flat() for row in compare.compare("demo", [(split, methods)])])),
        "ECE against NLL",
        "pareto rows.csv",
        "Filled markers: no other method is better in both. ECE alone can mislead: histogram binning has a low ECE and a high "
        "NLL.",
    )
    yield Figure(
        "learning-curve",
        plots.learning_curve(curves.learning_curve(rows.read_rows(ROOT / LEARNING))),
        "Quality over the size of the calibration set",
        f"learning-curve {LEARNING}",
        "Mean over real networks with standard errors (`make learning-curve`).",
    )


def training() -> Iterator[Figure]:
    """The paper's Fig. 2."""
    runs = [
        curves.amplitudes(name, logits_by_epoch(decay))
        for name, decay in (("no weight decay", 0.0), ("weight decay", 3e-3))
    ]
    axes = pyplot().subplots(1, 3, figsize=(10.5, 3.2), layout="constrained")[1]
    plots.amplitude_over_epochs(runs, ax=axes[0])
    plots.amplitude_histogram(runs, ax=axes[1])
    plots.confidence_histogram(runs, ax=axes[2])
    yield Figure(
        "amplitude",
        axes,
        "Amplitude during training (paper, Fig. 2)",
        "amplitude runs.npz",
        "A two-layer network on points of four overlapping classes (`experiments/gallery/training.py`), trained with and "
        "without weight decay. Without it the amplitude of the logits and the confidence keep growing.",
    )


def main() -> None:
    scene = Scene()
    sections = [HEAD]
    (DOCS / "gallery").mkdir(exist_ok=True)
    for figures in (diagrams(scene), fitted(scene), quality(scene), training()):
        for figure in figures:
            plots.save(figure.ax, DOCS / "gallery" / f"{figure.name}.svg")
            sections.append(figure.section())
    (DOCS / "gallery.md").write_text("".join(sections), encoding="utf-8")
    print(f"{len(sections) - 1} figures: {DOCS / 'gallery.md'}")


if __name__ == "__main__":
    main()
