"""The features of a table."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import _get_feature_names

from rhocal.errors import InputError


def check_column_order(estimator: Any, X: Any) -> None:  # noqa: N803
    """Refuse a frame whose columns stand in another order than in ``fit``.

    Most classifiers refuse it themselves; LightGBM, and a pipeline whose first step drops the names, would take one feature
    for another. Missing and unknown columns are left to the classifier.
    """
    expected, names = getattr(estimator, "feature_names_in_", None), _get_feature_names(X)
    if expected is None or names is None:
        return
    expected, names = np.asarray(expected).tolist(), np.asarray(names).tolist()
    if names == expected or set(names) != set(expected):
        return
    first = next(k for k, name in enumerate(names) if name != expected[k])
    raise InputError(
        f"Feature names must be in the same order as they were in fit; column {first} of X is {names[first]!r} where fit "
        f"had {expected[first]!r}. Use X[model.feature_names_in_]"
    )
