"""Logs of language models as arrays, for Python; the command line opens the same files by their name."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.formats import open_file
from rhocal.data.formats.base import Names
from rhocal.errors import FileError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from numpy.typing import NDArray

    from rhocal.data.spec import Kind


@dataclass(frozen=True, eq=False)
class EvaluationLog:
    """A log of a language model: scores of options or answers, with what is known about each."""

    scores: NDArray[np.float64]
    """Of options: a row a question, a column an option. Of answers: one number each."""
    labels: NDArray[Any] | None
    """The correct option, or whether the answer is right (1) or wrong (0); None if the log does not state it."""
    kind: Kind
    """What the scores are, as ``fit`` and ``evaluate`` take it."""
    source: str
    """What the file was recognized as."""
    holds_options: bool
    """Whether columns are options, which have no meaning of their own: ``AutoCalibrator(exchangeable=True)``."""
    question_id: NDArray[Any] | None = None
    """The question of each sample: ``clusters`` of ``evaluate``, where a question occurs more than once."""
    subject: NDArray[Any] | None = None
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """Everything else: other scores of the same samples, numbers and texts of the lines."""
    skipped: tuple[str, ...] = ()
    """What is wrong with the lines that were left out."""

    @property
    def is_repeated(self) -> bool:
        """Whether a question occurs more than once."""
        return self.question_id is not None and len(np.unique(self.question_id)) < len(self.question_id)


def read_log(path: str | PathLike[str], *, scores: str = "logits", skip_bad: bool = False) -> EvaluationLog:
    """Read a log of a language model.

    Understood are samples of lm-evaluation-harness (``samples_*.jsonl``), logs of Inspect AI (``.eval``, ``.json``), responses
    of OpenAI and vLLM with log-probabilities, JSON Lines of questions with options, and JSON Lines of answers with a score and
    whether they are right. Texts may be compressed (``.jsonl.gz``).

    Parameters
    ----------
    path
        The file.
    scores
        Which scores, where a log has several: ``"logits"`` are the usual ones, others are in ``arrays``.
    skip_bad
        Leave out lines that cannot be used; ``skipped`` says which, and why.

    Returns
    -------
    EvaluationLog
        Scores, labels, and what is known about them.

    Examples
    --------
    >>> log = rhocal.read_log("run.eval")  # doctest: +SKIP
    >>> rhocal.evaluate(log.scores, log.labels, kind=log.kind)  # doctest: +SKIP
    """
    file = open_file(Path(path), Names(skip_bad=skip_bad))
    if file.log is None:
        raise FileError(f"{path}: holds no log of a language model; found {', '.join(file.describe())}")
    arrays = {name: np.asarray(array[:]) for name, array in file.arrays.items()}
    if scores not in file.log.scores:
        raise FileError(
            f"{path}: has no scores {scores!r}; there are {', '.join(file.log.scores)}",
            argument="scores",
            remedy="name them",
        )
    known = {"logits", "labels", "question_id", "subject", scores}
    return EvaluationLog(
        arrays[scores],
        arrays.get("labels"),
        file.log.kinds.get(scores, "logits"),
        file.log.source,
        file.log.holds_options,
        arrays.get("question_id"),
        arrays.get("subject"),
        {name: array for name, array in arrays.items() if name not in known},
        file.bad_lines,
    )
