"""Commands on files of top-k data: what `rhocal fit`, `evaluate` and `apply` do where only the k best classes are known."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from rhocal.cli.execution import ExecutionOptions
from rhocal.cli.options import Arrays, SpecOptions, print_json
from rhocal.errors import FileError, InputError, SuspiciousInputWarning

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from rhocal.calibrators import Calibrator
    from rhocal.data.top_k import TopK
    from rhocal.data.top_k_files import TopKFile
    from rhocal.evaluation.samples import Samples
    from rhocal.profile.top_k import LabeledTopK

IN_CONFLICT = {
    "--kind": "the name of the array states it: top_log_probs or top_probs",
    "--columns": "the columns are those that top_indices names",
    "--class-axis": "the k best are on the last axis",
    "--positive": "a positive class is for two classes, with both probabilities",
    "--logits-name": "the file holds no such array",
    "--skip-bad": "all samples are read at once",
    "--stream, --workers or --scheduler": "all samples are read at once",
    "--groups": "methods that scale do not use groups",
    "--report": "it is written with rhocal report OTHER -c OUTPUT",
    "--interval": "intervals need the logits of all classes",
    "--fitted-on": "intervals need the logits of all classes",
    "--write logits": "what is written are probabilities",
    "--restart": "the output is written at once",
}
"""Options that a file of the k best classes has no use for, and why."""


def refuse(path: Path, is_used: Mapping[str, bool]) -> None:
    """Raise an error for options that a command would otherwise ignore."""
    for option, used in is_used.items():
        if used:
            raise InputError(f"{option} is not for {path}, which holds the k best classes: {IN_CONFLICT[option]}")


def holds_top_k(path: Path, arrays: Arrays) -> bool:
    """Whether a file holds the k best classes."""
    from rhocal.data.top_k_files import read_top_k

    return read_top_k(path, arrays.names()) is not None


@dataclass(frozen=True, eq=False)
class TopKInput:
    """A file of the k best classes, with what the options name in it."""

    file: TopKFile
    labels: Any
    weights: Any
    classes: Any
    """The label of each column, as stated by --classes, else by the file; None if neither does."""
    ignore_index: int | None
    clusters: Any = None
    """The cluster of each sample of the file."""

    @property
    def top(self) -> TopK:
        """The k best classes."""
        return self.file.top

    def classes_with(self, calibrators: Sequence[Calibrator]) -> Any:
        """The label of each column; those of a calibrator, where nothing else states them."""
        import numpy as np

        for calibrator in calibrators:
            names = calibrator.classes_
            if self.classes is None:
                return names
            are_numbers = any(np.array_equal(side, np.arange(len(side))) for side in (names, self.classes))
            if not are_numbers and set(np.asarray(self.classes).tolist()) != set(names.tolist()):
                raise InputError(f"{self.file.path}: its classes are not those that {calibrator.label} was fitted with")
        return self.classes

    def with_clusters(self, name: str | None) -> TopKInput:
        """The same with the clusters that an array of the file, or another file, states."""
        return self if name is None else replace(self, clusters=self._values(name))

    def beside(self, name: str, labeled: LabeledTopK) -> NDArray[Any]:
        """An array of the file, or another file, of the samples that count."""
        values = self._values(name)
        return values if labeled.rows is None else values[labeled.rows]

    def _values(self, name: str) -> NDArray[Any]:
        import numpy as np

        from rhocal.data.files import only_array
        from rhocal.data.labels.per_sample import per_sample

        if Path(name).is_file():
            return per_sample(only_array(Path(name), "groups"), name, self.top.n_samples, "values")
        return np.asarray(self.file.per_sample(name))

    def views(self, calibrators: Mapping[str, Calibrator]) -> tuple[LabeledTopK, dict[str, LabeledTopK]]:
        """The samples that count, before and after calibration."""
        from rhocal.calibrators.top_k import apply_top_k

        classes = self.classes_with(list(calibrators.values()))
        after = {name: self.labeled(apply_top_k(cal, self.top), classes) for name, cal in calibrators.items()}
        return self.labeled(self.top, classes), after

    def labeled(self, view: TopK, classes: Any) -> LabeledTopK:
        """The samples of a view of the k best that count."""
        from rhocal.profile.top_k import labeled_top_k

        try:
            return labeled_top_k(view, self.labels, self.weights, classes, self.ignore_index, self.clusters)
        except InputError as error:
            raise error.at(str(self.file.path)) from error


def top_k_of(
    path: Path,
    arrays: Arrays,
    spec: SpecOptions,
    execution: ExecutionOptions,
    *,
    needs_labels: bool = True,
) -> TopKInput | None:
    """The k best classes of a file and what the options name beside them; None if it holds something else."""
    from rhocal.data.files import only_array
    from rhocal.data.top_k_files import read_top_k

    contents = read_top_k(path, arrays.names())
    if contents is None:
        return None
    refuse(
        path,
        {
            "--kind": spec.kind is not None,
            "--columns": arrays.columns is not None,
            "--class-axis": spec.class_axis != -1,
            "--positive": spec.positive is not None,
            "--logits-name": arrays.logits_name != "logits",
            "--skip-bad": arrays.skip_bad,
            "--stream, --workers or --scheduler": bool(execution.stream or execution.workers or execution.scheduler),
        },
    )
    labels = contents.arrays.get(arrays.labels_name)
    if arrays.labels is not None:
        labels = only_array(arrays.labels, "labels")
    if needs_labels and labels is None:
        raise FileError(f"{path}: labels are missing", argument="labels_name", remedy="name the array that holds them")
    typer.echo(f"{path}: the {contents.top.log_probs.shape[1]} best of {contents.top.n_classes:,} classes", err=True)
    weights = None if arrays.weights is None else contents.per_sample(arrays.weights)
    classes = contents.arrays.get("classes") if (stated := arrays.stated_classes) is None else stated
    return TopKInput(contents, labels, weights, classes, spec.ignore_index)


def score_top_k_file(
    data: TopKInput, calibrators: Mapping[str, Calibrator | None], metrics: Sequence[str]
) -> tuple[dict[str, Samples], LabeledTopK]:
    """The samples before and after applying calibrators, and those of the file with their labels."""
    from rhocal.calibrators.top_k import apply_top_k
    from rhocal.data.scores import suspect_labels
    from rhocal.evaluation.samples import samples_top_k

    classes = data.classes_with([cal for cal in calibrators.values() if cal is not None])
    views = {name: data.top if cal is None else apply_top_k(cal, data.top) for name, cal in calibrators.items()}
    samples = {name: samples_top_k(data.labeled(view, classes), metrics) for name, view in views.items()}
    first = next(iter(samples.values()))
    suspect_labels(first.scored.accuracy, float(first.scored.weights.sum()), first.n_classes)
    return samples, data.labeled(data.top, classes)


def apply_top_k_file(
    calibrator: Calibrator, data: TopKInput, output: Path, keep_columns: str | None, *, as_json: bool
) -> None:
    """Write calibrated probabilities of the k best, the total of the rest, the predicted class, its confidence and bounds."""
    import numpy as np

    from rhocal.calibrators.top_k import apply_top_k, as_scale, calibrate_top_k
    from rhocal.data.formats import write_arrays
    from rhocal.data.labels.per_sample import class_names

    if output.suffix != ".npz":
        raise InputError(f"-o: top-k data is written to a .npz file; got {output}")
    if calibrator.policy_ is not None:
        raise InputError(
            f"{data.file.path} holds the k best classes, and the calibrator has a policy, which decides on the probabilities "
            "of all; fit one without a policy"
        )
    calibrated = apply_top_k(calibrator, data.top)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SuspiciousInputWarning)  # given once, by the line above
        _, low, high = calibrate_top_k(as_scale(calibrator), data.top)
    confidence = np.exp(calibrated.log_probs[:, 0])
    names = class_names(data.classes_with([calibrator]), calibrated.n_classes)
    arrays = {
        "top_log_probs": calibrated.log_probs,
        "top_probs": np.exp(calibrated.log_probs),
        "top_indices": calibrated.indices,
        "rest_log_mass": calibrated.rest,
        "n_classes": np.array(calibrated.n_classes),
        "predicted": names[calibrated.indices[:, 0]],
        "confidence": confidence,
        "confidence_low": np.minimum(low, confidence),
        "confidence_high": np.maximum(high, confidence),
    }
    if data.classes is not None:
        arrays["classes"] = names
    if data.labels is not None:
        arrays["labels"] = np.asarray(data.labels)
    write_arrays(output, arrays | _kept(data, keep_columns, arrays))
    widths = arrays["confidence_high"] - arrays["confidence_low"]
    bounds = {"mean": float(widths.mean()), "largest": float(widths.max())}
    if as_json:
        about = {"output": str(output), "method": calibrator.label, "rows": calibrated.n_samples}
        print_json({**about, "confidence_bounds": bounds})
        return
    typer.echo(f"{calibrated.n_samples:,} rows of probs, calibrated with {calibrator.label}: {output}")
    typer.echo(
        f"However the rest is spread over its classes, confidence lies between confidence_low and confidence_high: "
        f"{bounds['mean']:.4f} apart on average, {bounds['largest']:.4f} at most"
    )


def _kept(data: TopKInput, names: str | None, written: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays of the file that --keep-columns names."""
    if names is None:
        return {}
    others = [name for name in data.file.arrays if name not in written]
    chosen = others if names.strip() == "all" else [name.strip() for name in names.split(",")]
    if unknown := [name for name in chosen if name not in others]:
        raise InputError(
            f"--keep-columns: {data.file.path} has no other array {', '.join(unknown)}; there are "
            f"{', '.join(others) or 'none'}"
        )
    return {name: data.file.per_sample(name) for name in chosen}
