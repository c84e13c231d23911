"""Columns that are options without a meaning of their own are recognized; classes never are."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2

import rhocal
from helpers import SHARED, real
from rhocal.calibrators.compose.exchangeability import chi_square_quantile, look_exchangeable
from rhocal.data.predictions import Predictions
from rhocal.errors import SuspiciousInputWarning


def options(n, m, seed, scale=2.0):
    """Scores of options in random order, one of them right."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(n, m))
    return scale * truth, (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)


def exchangeable(logits, labels, weights=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return look_exchangeable(Predictions.from_arrays(logits, labels, weights=weights).prepared())


@pytest.mark.parametrize("n_free", [2, 6, 9, 27])
def test_quantile(n_free):
    assert chi_square_quantile(n_free) == pytest.approx(chi2.ppf(0.99, n_free), rel=0.01)


def test_options_pass_nearly_always():
    """Each of two tests fails one set in a hundred; of 60 sets five or more fail with a chance of 1 in 100."""
    assert sum(exchangeable(*options(1000, 3 + seed % 4, seed)) for seed in range(60)) >= 56


@pytest.mark.parametrize("size", [0.2, 0.4])
@pytest.mark.parametrize("what", ["bias", "slope", "prior"])
def test_classes_that_differ_fail(what, size):
    """A bias of one column, another scale of it, or one class that is more frequent, in 5,000 samples."""
    logits, labels = options(5000, 4, 1)
    rng = np.random.default_rng(2)
    if what == "bias":
        logits = logits + np.array([2 * size, 0, 0, 0])
    elif what == "slope":
        logits = logits * np.array([1 + size, 1, 1, 1])
    else:
        kept = (labels == 0) | (rng.random(5000) > size)
        logits, labels = logits[kept], labels[kept]
    assert not exchangeable(logits, labels)


def test_the_test_does_not_depend_on_order_columns_or_weights():
    logits, labels = options(1500, 4, 3)
    order, columns, times = np.random.default_rng(0).permutation(1500), np.array([2, 0, 3, 1]), np.arange(1500) % 3
    for scale in (1.0, 1.25):
        scaled = logits * np.array([scale, 1, 1, 1])
        found = exchangeable(scaled, labels)
        assert exchangeable(scaled[order], labels[order]) == found
        assert exchangeable(scaled[:, columns], np.argsort(columns)[labels]) == found
        repeated = exchangeable(np.repeat(scaled, times, axis=0), np.repeat(labels, times))
        assert exchangeable(scaled, labels, times) == repeated


@pytest.mark.parametrize("case", ["few samples", "two classes", "many classes", "equal logits"])
def test_where_no_test_is_made(case):
    logits, labels = {
        "few samples": lambda: options(900, 4, 0),
        "two classes": lambda: options(2000, 2, 0),
        "many classes": lambda: options(2000, 11, 0),
        "equal logits": lambda: (np.zeros((2000, 4)), np.arange(2000) % 3),
    }[case]()
    assert not exchangeable(logits, labels)


def test_auto_tries_no_map_of_a_position():
    """It says so in one line, and what it was told counts more."""
    logits, labels = options(1200, 4, 5)
    quick = {"time_budget": 0.01}
    with pytest.warns(SuspiciousInputWarning, match="the 4 columns look like options") as caught:
        cal = rhocal.AutoCalibrator(**quick).fit(logits, labels)
    assert "Pass exchangeable=False to try them" in str(caught[0].message)
    tried = {row["method"] for row in cal.solution_.trials}
    assert not tried & {"svs", "sms", "beta"}
    assert "polynomial" in tried
    with warnings.catch_warnings():
        warnings.simplefilter("error", SuspiciousInputWarning)
        for stated in (False, True):
            rhocal.AutoCalibrator(exchangeable=stated, **quick).fit(logits, labels)
        rhocal.AutoCalibrator(**quick).fit(logits + np.array([1, 0, 0, 0]), labels)


@pytest.mark.parametrize("path", sorted((SHARED.parent / "llm").glob("*.npz")), ids=lambda path: path.stem)
def test_language_models(path):
    with np.load(path) as file:
        logits, labels = file["logits"], file["labels"]
    for half in (slice(None, 5000), slice(5000, None)):
        assert exchangeable(logits[half], labels[half])


@pytest.mark.parametrize("name", ["agnews_gpt2", "cifar10_resnet110_ce", "mnli_lm_zeroshot", "iemocap_final_psrcal"])
def test_networks(name):
    logits, labels, *_ = real(name)
    assert not exchangeable(logits, labels)


@pytest.mark.parametrize(
    "path", sorted((SHARED.parent / "tabular").glob("tabular_[sw]*.npz")), ids=lambda path: Path(path).stem
)
def test_tables(path):
    with np.load(path) as file:
        logits, labels = file["logits_val"], file["labels_val"]
    assert not exchangeable(logits, labels)
