"""Models of answers on the command line: the probability that an answer is right, from its score, features and subject."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rhocal.cli.options import print_json
from rhocal.errors import FileError, InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rhocal.calibrators import Calibrator
    from rhocal.calibrators.correctness.model import CorrectnessModel
    from rhocal.cli.execution import ExecutionOptions
    from rhocal.cli.options import Arrays
    from rhocal.data.formats.base import StoredFile
    from rhocal.data.spec import InputSpec

ANSWERS = "Answers that are right or wrong"


@dataclass(frozen=True)
class AnswerOptions:
    """What is known about each answer besides its score."""

    features: Annotated[
        str | None,
        typer.Option(
            "--features",
            help="Columns of numbers, separated by commas (length, agreement), that predict with the score whether an answer "
            "is right.",
            show_default=False,
            rich_help_panel=ANSWERS,
        ),
    ] = None
    subjects: Annotated[
        str | None,
        typer.Option(
            "--subjects",
            help="A column of subjects: each has an offset; those with few answers stay near the others.",
            show_default=False,
            rich_help_panel=ANSWERS,
        ),
    ] = None

    @property
    def are_stated(self) -> bool:
        """Whether a model of answers is wanted."""
        return self.features is not None or self.subjects is not None

    @property
    def names(self) -> list[str]:
        """The names of the features."""
        return [name.strip() for name in (self.features or "").split(",") if name.strip()]


def fit_answers(
    path: Path,
    output: Path,
    options: AnswerOptions,
    arrays: Arrays,
    spec: InputSpec,
    execution: ExecutionOptions,
    clusters: str | None,
    *,
    as_json: bool,
) -> None:
    """Fit a model of answers on a log, and save it."""
    from rhocal.calibrators.correctness.model import CorrectnessModel
    from rhocal.reporting import tables

    file = answers_file(path, arrays, "--features", options.subjects)
    source = execution.open(path, arrays, spec, "calibration")
    execution.refuse({"--features": not source.resident})
    source = execution.with_clusters(source, clusters, path, arrays, spec)
    (block,) = source.blocks
    rows, data = block.read(), source.predictions
    columns = beside(file, options.names, options.subjects)
    model = CorrectnessModel().fit(
        rows.scores, data.labels, kind=data.kind, sample_weight=rows.weights, clusters=rows.clusters, **columns
    )
    model.subjects_name_ = options.subjects or model.subjects_name_
    model.save(output)
    n_answers = data.n_samples
    if as_json:
        numbers = {"intercept": model.intercept_, "slope": model.slope_, "deviation_of_subjects": model.deviation_}
        print_json(
            {
                "method": "correctness",
                "output": str(output),
                "n_samples": n_answers,
                **asdict(model),
                **numbers,
                "weights": model.weights_,
                "offsets": {str(name): offset for name, offset in model.offsets_.items()},
                "held_out": model.held_out_,
            }
        )
        return
    screen = tables.console()
    if model.held_out_ is not None:
        seen = model.held_out_
        screen.print(
            f"NLL on held-out answers {seen['nll']:.4f}; of the score alone {seen['nll_of_score_alone']:.4f} (difference "
            f"{seen['above']:+.4f} ± {seen['standard_error']:.4f})"
        )
    screen.print(tables.pairs(summary(model), f"fitted on {n_answers:,} answers"))
    screen.print(f"saved {output}; evaluate it on other answers with: rhocal evaluate OTHER -c {output}")


def summary(model: CorrectnessModel) -> dict[str, Any]:
    """The fitted numbers; of subjects those that differ most."""
    lines: dict[str, Any] = {"intercept": model.intercept_, "slope of the score": model.slope_}
    lines |= {f"{name}, for a standard deviation": weight for name, weight in model.weights_.items()}
    if model.offsets_:
        ends = sorted(model.offsets_.items(), key=lambda pair: pair[1])
        shown = ends if len(ends) <= 6 else [*ends[:3], *ends[-3:]]
        lines["subjects"] = f"{len(ends):,}, deviation {model.deviation_:g} in log-odds"
        lines["offsets"] = ", ".join(f"{name} {offset:+.2f}" for name, offset in shown)
    return lines


def answers_file(path: Path, arrays: Arrays, option: str, subjects: str | None = None) -> StoredFile:
    """The file of a log of answers; ``subjects`` is the column of their names."""
    if not path.is_file():
        raise InputError(f"{option} needs one file of answers; got {path}")
    file = arrays.contents(path, ("0", "1"), subjects).file
    if file.log is None or file.log.holds_options or file.log.positive is None:
        raise FileError(
            f"{path}: {option} is for answers that are right or wrong: lines or columns with score (or confidence) and correct"
        )
    return file


def beside(file: StoredFile, features: Sequence[str], subjects: str | None) -> dict[str, Any]:
    """The features and subjects of every answer, as ``CorrectnessModel`` takes them."""
    values = {name: column(file, name, "--features", "iufb") for name in features}
    return {"features": values, "subjects": None if subjects is None else column(file, subjects, "--subjects", "iuUb")}


def column(file: StoredFile, name: str, option: str, kinds: str) -> NDArray[Any]:
    """A column of the file, with one value for every answer."""
    import numpy as np

    array = file.arrays.get(name)
    values = None if array is None else np.asarray(array[:])
    if values is None or values.ndim != 1 or values.dtype.kind not in kinds:
        known = [
            other
            for other, stored in file.arrays.items()
            if np.asarray(stored[:]).dtype.kind in kinds and other not in {"logits", "labels"}
        ]
        what = "numbers" if option == "--features" else "subjects"
        raise InputError(
            f"{option}: {file.path} has no column of {what} {name!r} with a value in every line; there are "
            f"{', '.join(known) or 'none'}"
        )
    return values


def load_for(artifact: Path, path: Path, arrays: Arrays) -> Calibrator:
    """The calibrator of an artifact; of a model of answers its probabilities of the answers of a file."""
    import numpy as np

    from rhocal.calibrators.artifact import load
    from rhocal.calibrators.correctness.file import FORMAT
    from rhocal.calibrators.correctness.file import load as load_model
    from rhocal.calibrators.correctness.rows import AnswerProbabilities
    from rhocal.data.storage.container import format_of

    if format_of(artifact) != FORMAT:
        return load(artifact)
    model = load_model(artifact)
    file = answers_file(path, arrays, f"{artifact.name}, a model of answers,", model.subjects_name_)
    columns = beside(file, list(model.weights_), model.subjects_name_ if model.offsets_ else None)
    scores = np.asarray(file.arrays[arrays.logits_name][:])
    kind = file.log.kinds.get(arrays.logits_name, "logits") if file.log is not None else "logits"
    if kind != model.kind_:
        raise InputError(f"{path}: its scores are {kind}, and the model was fitted on {model.kind_}")
    return AnswerProbabilities.of_file(model.kind_, model.predict_proba(scores, **columns))
