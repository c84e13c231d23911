"""The report on samples of which the k best classes are known: whether the best class of each is right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.calibrators.correctness.rows import AnswerProbabilities
from rhocal.reporting.document import build_document

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rhocal.metrics.inference.design import SamplingDesign
    from rhocal.profile.top_k import LabeledTopK
    from rhocal.reporting.sections.provenance import Provenance


def top_k_document(
    before: LabeledTopK,
    after: Mapping[str, LabeledTopK],
    provenance: Provenance,
    *,
    groups: Any = None,
    design: SamplingDesign | None = None,
    tolerance: float,
    seed: int,
) -> dict[str, Any]:
    """The document of a report whose samples are answers: the best class, its confidence, and whether it is right.

    ``after`` are the same samples, calibrated. Slices are ``groups``, unless given the predicted classes.
    """
    document = build_document(
        before.answers,
        {name: AnswerProbabilities.of_file("probs", _probs(samples)) for name, samples in after.items()},
        provenance,
        groups=before.predicted if groups is None else groups,
        design=design,
        tolerance=tolerance,
        seed=seed,
    )
    k, n_classes = before.data.log_probs.shape[1], before.data.n_classes
    document["data"]["top_k"] = {"k": k, "n_classes": n_classes}
    for row in (document["mistakes"] or {"rows": ()})["rows"]:
        i = row["row"]
        row["predicted"], row["label"] = str(before.predicted[i]), str(before.classes[before.labels[i]])
        row["row"] = i if before.rows is None else int(before.rows[i])
    document["warnings"].insert(0, {"kind": "top k", "text": _scope(k, n_classes, has_calibrators=bool(after))})
    return document


def _probs(samples: LabeledTopK) -> Any:
    """The probabilities that the best class is wrong and right."""
    right = np.exp(np.minimum(samples.data.log_probs[:, 0], 0.0))
    return np.column_stack([1 - right, right])


def _scope(k: int, n_classes: int, *, has_calibrators: bool) -> str:
    """What a report on the k best classes is about, and what it does not show."""
    text = (
        f"Of each sample the {k} best of {n_classes:,} classes are known. This report is about the best one: its confidence, "
        "and whether it is right. NLL and Brier score are those of that outcome, not of the label. Not shown are the "
        "calibration of single classes and the temperature of samples, which need the probabilities of all classes."
    )
    estimated = (
        " Calibrated confidence depends on how the rest is spread over its classes, which is estimated; rhocal apply writes "
        "bounds."
    )
    return text + (estimated if has_calibrators else "")
