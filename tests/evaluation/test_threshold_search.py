"""The threshold that is nearest to a certificate."""

import json

import numpy as np
import pytest

import rhocal


@pytest.mark.parametrize(
    ("options", "risk"),
    [
        ({"target": 0.05}, 1),
        ({"target": 0.05, "score": "per-class"}, 1),
        ({"target": 0.05, "segments": [0, 1]}, 1),
        ({"target": 2, "risk": "cost", "costs": np.array([[0, 4], [1, 0]])}, 4),
        ({"target": 0.95, "risk": "cost", "costs": 1 - np.eye(2)}, 1),
        ({"target": 0.05, "risk": "fpr"}, 1),
    ],
)
def test_the_nearest_threshold_accepts_a_sample(options, risk):
    """No certifying sample reaches the highest scores of the reference: the risk there is 0/0."""
    found = rhocal.decide(None, [[0.0, 2.0]] * 2, [0, 0], reference=[[0.0, 9.0], [0.0, 8.0], [0.0, 0.5]], **options)
    document = found.to_dict()
    json.dumps(document, allow_nan=False)
    assert document["best"] == {"risk": risk, "coverage": 1}
    assert document["coverage_if_known"] is None
    assert "nan" not in found.verdict
    if "segments" not in options:
        assert "on 100 % of samples; the observed risk misses the target at every threshold" in found.verdict


def test_a_threshold_that_accepts_no_sample_is_not_nearer():
    """It has no false positives, whatever the samples are."""
    scores = [[0.0, 4.0]] * 30 + [[0.0, 1.0]] * 30
    found = rhocal.decide(
        None, scores, [1] * 30 + [0] * 30, target=0.05, risk="fpr", reference=[[0.0, 9.0], [0.0, 3.0]]
    )
    assert found.best == (0, 0.5)
    assert found.verdict.startswith("not provable: false-positive rate 0 % if 50 % of samples are decided 1")
