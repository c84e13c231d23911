"""Whether columns are options without a meaning of their own: a permutation test of rows.

If columns are exchangeable, a sample is as likely as the same sample with its columns, and its label with them, in any other
order. Of a number for every column, such as its probability or whether it is the label, the sum over samples then has a known
mean and covariance: those of a random order in every row. Columns of classes (cat, dog) fail: classes differ in frequency,
in their scores or in how right the scores are.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from rhocal.calibrators.guard import TEMPERATURE, fit_without_warnings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rhocal.data.predictions import Predictions
    from rhocal.numerics.special import Floats, Vector

MIN_COLUMNS, MAX_COLUMNS = 3, 10
"""Columns for which the test is made. With two, classes may be symmetric (a number above or below its median), and maps for
single classes help all the same."""

MIN_TEST_SAMPLES = 1_000
"""With fewer the test may not see that classes differ."""

NORMAL_QUANTILE = 2.326
"""Of 99 %: one calibration set of exchangeable options in a hundred fails each of the two tests."""

MAX_FEATURE_LOGIT = 4.0
"""Scaled logits are cut here, so that no sample decides the test."""

MIN_RELATIVE_VARIANCE = 1e-9
"""Combinations of features with less of the largest variance are constant but for rounding."""


def look_exchangeable(data: Predictions) -> bool:
    """Whether scores and labels pass the test; False where there are too few samples, or not as many columns as options."""
    if not MIN_COLUMNS <= data.n_classes <= MAX_COLUMNS or data.total_weight < MIN_TEST_SAMPLES or data.has_masks:
        return False
    counts = data.counts
    rows = np.flatnonzero(counts > 0)
    return all(is_even(features, counts[rows]) for features in column_features(data.take(rows)))


def column_features(data: Predictions) -> tuple[list[Floats], list[Floats]]:
    """Numbers for every column: of scores, and of labels with the errors of the scores."""
    assert data.labels is not None
    scaled = fit_without_warnings(TEMPERATURE, data).map_
    probs = scaled.probs(data).astype(np.float64)
    logits = scaled.logits(data).astype(np.float64)
    logits = np.clip(logits - logits.mean(axis=1, keepdims=True), -MAX_FEATURE_LOGIT, MAX_FEATURE_LOGIT)
    columns = np.arange(data.n_classes)
    is_label = (data.labels[:, None] == columns).astype(np.float64)
    is_top = (data.seen.column[:, None] == columns).astype(np.float64)
    return [probs, is_top, logits], [is_label, is_label - probs, (is_label - probs) * logits]


def is_even(features: Sequence[Floats], counts: Vector) -> bool:
    """Whether the sums of features over samples are as equal between columns as random orders of every row make them.

    With one sum D_kj for each feature k and column j, both centered over columns, the covariance under random orders is V_kl
    times the projection that centers columns: ΣDᵀV⁻¹D is χ² with rank(V)·(m − 1) degrees of freedom.
    """
    centered = [values - values.mean(axis=1, keepdims=True) for values in features]
    n_columns = centered[0].shape[1]
    sums = np.stack([counts @ values for values in centered])
    products = [[float(counts @ (a * b).sum(axis=1)) for b in centered] for a in centered]
    variances, vectors = np.linalg.eigh(np.array(products) / (n_columns - 1))
    kept = variances > MIN_RELATIVE_VARIANCE * variances[-1]
    n_free = int(kept.sum()) * (n_columns - 1)
    if not variances[-1] > 0:
        return False
    statistic = float((((vectors.T @ sums)[kept] ** 2) / variances[kept, None]).sum())
    return statistic <= chi_square_quantile(n_free)


def chi_square_quantile(n_free: int) -> float:
    """The 99 % quantile of χ² by the cube of a normal number (Wilson and Hilferty 1931); 1 % too small at 3, less above."""
    variance = 2 / (9 * n_free)
    return float(n_free * (1 - variance + NORMAL_QUANTILE * math.sqrt(variance)) ** 3)
