"""A report from arrays and data frames: of one model, of a model with calibrators, or of several models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rhocal.calibrators import Calibrator
from rhocal.calibrators.top_k import apply_top_k
from rhocal.data.files import write_text
from rhocal.data.labels.per_sample import sample_groups
from rhocal.data.spec import InputSpec
from rhocal.data.top_k import TopK, refuse_for_top_k
from rhocal.errors import FileError, InputError
from rhocal.evaluation.data_frames import FrameLibrary, html_table, to_frame
from rhocal.evaluation.evaluate import UNCALIBRATED, check_tolerance, check_whole
from rhocal.evaluation.evaluation import aligned
from rhocal.evaluation.model_scores import model_predictions
from rhocal.metrics.inference.design import SamplingDesign
from rhocal.metrics.inference.verdict import TOLERANCE
from rhocal.profile.top_k import labeled_top_k
from rhocal.reporting.document import build_document, to_json
from rhocal.reporting.page import render_page
from rhocal.reporting.sections.provenance import Provenance
from rhocal.reporting.top_k import top_k_document

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from rhocal.data.spec import Kind

SHOWN = {"ece": "ECE ↓", "nll": "NLL ↓", "brier": "Brier ↓", "accuracy": "Accuracy ↑"}


@dataclass(frozen=True, eq=False)
class Report:
    """A calibration report.

    Attributes
    ----------
    document : dict
        Everything that the page shows, as plain dictionaries, lists and numbers (docs/report.md).

    Examples
    --------
    >>> import rhocal
    >>> report = rhocal.report(*rhocal.demo_logits("test"), kind="logits", title="My network")
    >>> report.verdict[:30]
    'over-confident by 14.5 points:'
    >>> report.save("report.html")  # doctest: +SKIP
    """

    document: dict[str, Any]

    @property
    def html(self) -> str:
        """The page: one file that works offline and sends nothing."""
        return render_page(self.document)

    @property
    def verdict(self) -> str:
        """The verdict on the headline: the first calibrator or the second model, if there is one."""
        verdict = self.document["verdict"]
        return str(verdict["before"] if verdict["after"] is None else verdict["after"])

    def save(self, path: str | PathLike[str]) -> None:
        """Write the page (``.html``) or the document (``.json``)."""
        target = Path(path)
        if target.suffix not in {".html", ".htm", ".json"}:
            raise FileError(f"{target}: a report is a page; let the name end in .html (or .json for its numbers)")
        write_text(target, self.to_json() if target.suffix == ".json" else self.html)

    def to_dict(self) -> dict[str, Any]:
        """The document."""
        return self.document

    def to_json(self) -> str:
        """The document as text."""
        return to_json(self.document)

    def to_frame(self, library: FrameLibrary = "pandas") -> Any:
        """One row for each model or method: metrics, floors, and differences to the first with their p-values."""
        rows = []
        for method in self.document["methods"]:
            row: dict[str, Any] = {"name": method["name"]}
            for metric, value in method["values"].items():
                row |= {metric: value["value"], f"{metric}_floor": value["floor"]}
                difference = (method["differences"] or {}).get(metric, {})
                row |= {f"{metric}_difference": difference.get("value"), f"{metric}_p_value": difference.get("p_value")}
            rows.append(row | {"verdict": method["verdict"]})
        return to_frame(rows, library, "name")

    def __str__(self) -> str:
        verdicts = [f"{method['name']}: {method['verdict']}" for method in self.document["methods"]]
        return "\n".join([self.document["title"], *aligned(self._cells()), "", *verdicts])

    def __repr__(self) -> str:
        return f"Report({self.document['title']!r}: {self.verdict})"

    def _repr_html_(self) -> str:
        verdicts = [f"{method['name']}: {method['verdict']}" for method in self.document["methods"]]
        return html_table(self._cells(), verdicts, self.document["title"])

    def _cells(self) -> list[tuple[str, ...]]:
        rows = [("", *SHOWN.values(), "floor of ECE")]
        for method in self.document["methods"]:
            values = method["values"]
            cells = [f"{values[metric]['value']:.4f}" for metric in SHOWN]
            rows.append((method["name"], *cells, f"{values['ece']['floor']:.4f}"))
        return rows


def report(
    scores: Any,
    labels: Any = None,
    *,
    calibrators: Calibrator | Sequence[Calibrator] | Mapping[str, Calibrator] | None = None,
    title: str | None = None,
    kind: Kind | None = None,
    classes: Any = None,
    positive: Any = None,
    sample_weight: Any = None,
    weight_kind: str | None = None,
    clusters: Any = None,
    groups: Any = None,
    tolerance: float = TOLERANCE,
    seed: int = 0,
) -> Report:
    """Evaluate one model, a model before and after calibration, or several models, and show it on one page.

    Parameters
    ----------
    scores : array, tensor or data frame of shape (n_samples, n_classes), or a mapping of names to them
        A mapping holds several models on the same samples: ``{"A": probs_a, "B": probs_b}``. They are compared with the first.
        Of a ``rhocal.TopK`` the report is about whether the best class is right.
    labels : array of shape (n_samples,)
        The true classes.
    calibrators : calibrator, list of them, or mapping of names to them, optional
        Fitted on other samples. The first is the headline. Only with one model.
    title : str, optional
    kind : {"logits", "probs", "log_probs"}, optional
        What the scores are: by default what the calibrators were fitted on, and probabilities without one.
    classes : array of shape (n_classes,), optional
        The label of each column.
    positive : optional
        The positive class of two.
    sample_weight : array of shape (n_samples,), optional
    weight_kind : {"frequency", "importance"}, optional
    clusters : array of shape (n_samples,), optional
        The cluster of each sample, where samples depend on each other.
    groups : array of shape (n_samples,), optional
        Slices that are evaluated one by one; by default the predicted classes.
    tolerance : float
        The calibration error that is tolerated, 0.02 for two points.
    seed : int
        Of the draws behind intervals and floors.

    Returns
    -------
    Report
        Has ``save``, ``verdict``, ``to_frame``, ``to_dict`` and ``to_json``.

    Examples
    --------
    >>> import rhocal
    >>> logits, labels = rhocal.demo_logits("test")
    >>> cal = rhocal.RhoNormScaling().fit(*rhocal.demo_logits("cal"))
    >>> rhocal.report(logits, labels, calibrators=cal).verdict[:45]
    'indistinguishable from perfect calibration at'

    Two models:

    >>> cold, warm = cal.predict_proba(logits), cal.predict_proba(1.2 * logits)
    >>> two = rhocal.report({"A": warm, "B": cold}, labels)
    >>> [method["name"] for method in two.document["methods"]]
    ['A', 'B']
    """
    check_tolerance(tolerance)
    check_whole(seed, "seed")
    fitted = _named(calibrators)
    if isinstance(scores, TopK):
        refuse_for_top_k(kind=kind == "logits", positive=positive is not None)
        classes = next((cal.classes_ for cal in fitted.values()), None) if classes is None else classes
        before, *after = (
            labeled_top_k(view, labels, sample_weight, classes)
            for view in (scores, *(apply_top_k(cal, scores) for cal in fitted.values()))
        )
        design, origin = SamplingDesign(weight_kind, clusters), Provenance.now(title or "Calibration")
        views = dict(zip(fitted, after, strict=True))
        groups = None if groups is None else sample_groups(groups, scores.n_samples, "scores")
        return Report(
            top_k_document(before, views, origin, groups=groups, design=design, tolerance=tolerance, seed=seed)
        )
    models = dict(scores) if isinstance(scores, Mapping) else {UNCALIBRATED: scores}
    if not models:
        raise InputError("scores is empty; pass at least one model")
    if len(models) > 1 and fitted:
        raise InputError("calibrators belong to one model; got a mapping of several. Report each model by itself")
    spec = InputSpec(kind or _kind(fitted), classes, positive=positive)
    if fitted and classes is None:
        first = next(iter(fitted.values()))
        spec = replace(spec, classes=first.classes_, positive=first.positive_ if positive is None else positive)
    (first_name, test), *others = model_predictions(models, labels, sample_weight, groups, spec=spec).items()
    heading = title or (" and ".join(map(str, models)) if isinstance(scores, Mapping) else "Calibration")
    document = build_document(
        test, fitted, Provenance.now(heading),
        name=first_name, models=dict(others), groups=test.groups, design=SamplingDesign(weight_kind, clusters),
        tolerance=tolerance, seed=seed,
    )  # fmt: skip
    return Report(document)


def _named(calibrators: Any) -> dict[str, Calibrator]:
    if calibrators is None:
        return {}
    if isinstance(calibrators, Calibrator):
        calibrators = [calibrators]
    pairs: list[tuple[str, Any]]
    if isinstance(calibrators, Mapping):
        pairs = [(str(name), calibrator) for name, calibrator in calibrators.items()]
    elif isinstance(calibrators, str) or not hasattr(calibrators, "__iter__"):
        raise InputError(
            f"calibrators are fitted calibrators, a list of them or a mapping; got {calibrators!r}. rhocal.load reads one "
            "from a file"
        )
    else:
        pairs = [(getattr(calibrator, "label", ""), calibrator) for calibrator in calibrators]
    for _, calibrator in pairs:
        if not isinstance(calibrator, Calibrator):
            raise InputError(
                f"calibrators are fitted calibrators; got {calibrator!r}. rhocal.load reads one from a file"
            )
        calibrator._fitted()  # noqa: SLF001 - our own
    if len(dict(pairs)) < len(pairs):
        raise InputError("two calibrators have the same name; pass a mapping of names to calibrators")
    return dict(pairs)


def _kind(calibrators: Mapping[str, Calibrator]) -> Kind:
    kinds = sorted({calibrator.kind_ for calibrator in calibrators.values()})
    if len(kinds) > 1:
        raise InputError(
            f"calibrators were fitted on {' and on '.join(kinds)}",
            argument="kind",
            remedy="state which of them the scores are",
        )
    return kinds[0] if kinds else "probs"
