"""Data that many tests share."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared" / "data" / "logits"


def synthetic(n=400, m=5, *, scale=2.5, seed=0, dtype=np.float64):
    """Logits that are ``scale`` times too large (over-confident), and labels drawn from the true distribution."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(n, m)) * 1.5
    p = np.exp(truth) / np.exp(truth).sum(1, keepdims=True)
    labels = (p.cumsum(1) > rng.random((n, 1))).argmax(1)
    return (scale * truth).astype(dtype), labels


def real(name, seed=0):
    """A real network's tune and test half; skipped where the data is not there."""
    path = SHARED / f"{name}.npz"
    if not path.is_file():
        pytest.skip(f"needs {path}, real logits that are not part of the project")
    with np.load(path, allow_pickle=False) as f:
        if "logits" not in f:
            return f["logits_val"], f["labels_val"], f["logits_test"], f["labels_test"]
        logits, labels = f["logits"], f["labels"]
    order = np.random.default_rng(seed).permutation(len(labels))
    half = len(order) // 2
    tune, test = order[:half], order[half:]
    return logits[tune], labels[tune], logits[test], labels[test]


def needs(package, extra):
    """Skip where an optional package is missing."""
    return pytest.mark.skipif(importlib.util.find_spec(package) is None, reason=f"needs rhocal[{extra}]")
