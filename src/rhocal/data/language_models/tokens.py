"""Tokens and answers: numbers of tokens become one number of the answer that they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.labels.per_sample import per_sample
from rhocal.errors import InputError, one_line

if TYPE_CHECKING:
    from numpy.typing import NDArray

AGGREGATES = ("mean", "sum", "min")


def aggregate_tokens(
    log_probs: Any, answers: Any, how: str = "mean", *, labels: Any = None, ignore_index: int | None = None
) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """The score of each answer from the log-probabilities of its tokens.

    Parameters
    ----------
    log_probs
        Of every token, such as ``log`` of its calibrated probability.
    answers
        The answer that every token belongs to.
    how
        ``"sum"``: the log-probability of the answer; ``"mean"``: the same per token; ``"min"``: of its least probable token.
    labels, ignore_index
        Tokens whose label is ``ignore_index`` (−100) are left out: prompts and padding.

    Returns
    -------
    scores, names
        One log-probability for each answer, and the answers, in the order in which they first occur.

    Examples
    --------
    >>> scores, names = aggregate_tokens([-0.1, -0.3, -2.0], ["a", "a", "b"], "sum")
    >>> scores.round(1).tolist(), names.tolist()
    ([-0.4, -2.0], ['a', 'b'])
    """
    if how not in AGGREGATES:
        raise InputError(f"how is one of {', '.join(AGGREGATES)}; got {how!r}")
    try:
        values = np.asarray(log_probs, np.float64).reshape(-1)
    except (TypeError, ValueError) as error:
        raise InputError(f"log_probs must hold one number for each token: {one_line(error)}") from error
    owners = per_sample(answers, "answers", len(values), "log_probs")
    if np.isnan(values).any() or (values > 1e-3).any():
        row = int((np.isnan(values) | (values > 1e-3)).argmax())
        raise InputError(f"log_probs must be at most 0; token {row} has {values[row]}")
    if (labels is None) != (ignore_index is None):
        raise InputError("labels and ignore_index go together: tokens with that label are left out")
    if labels is not None:
        kept = per_sample(labels, "labels", len(values), "log_probs") != ignore_index
        values, owners = values[kept], owners[kept]
    if not len(values):
        raise InputError("log_probs has no tokens that count")
    try:
        names, first, codes = np.unique(owners, return_index=True, return_inverse=True)
    except TypeError as error:
        raise InputError(f"answers must be all texts or all numbers, none missing: {one_line(error)}") from error
    if how == "min":
        scores = np.full(len(names), np.inf)
        np.minimum.at(scores, codes, values)
    else:
        counts = np.bincount(codes, minlength=len(names)) if how == "mean" else 1
        scores = np.bincount(codes, values, len(names)) / counts
    order = np.argsort(first, kind="stable")
    return scores[order], names[order]
