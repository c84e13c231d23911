"""Data of the examples: a table that is split in three, and logits with too much confidence."""

import numpy as np


def table(n_classes=3, n_features=8):
    """Training, calibration and test rows: ``X, y`` each."""
    from sklearn.datasets import make_classification

    X, y = make_classification(
        1800, n_features, n_informative=6, n_classes=n_classes, flip_y=0.2, random_state=n_classes
    )
    X = X.astype(np.float32)
    return [(X[rows], y[rows]) for rows in (slice(600), slice(600, 1200), slice(1200, None))]


def logits(n=1500, n_classes=10, seed=0):
    """Logits that are twice as large as they should be, and labels."""
    rng = np.random.default_rng(seed)
    truth = 2 * rng.normal(size=(n, n_classes))
    return np.float32(2 * truth), (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
