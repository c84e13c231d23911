"""Metrics as sums: batches, orders, processes, memory; and the sketch with its bound."""

import multiprocessing
import pickle
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import examples, real, synthetic
from rhocal import metrics
from rhocal.data.predictions import Predictions
from rhocal.errors import InputError
from rhocal.metrics import METRICS, Scored
from rhocal.metrics.sums import N_CELLS, Sketch, cell_numbers, cell_widths

EXACT = [name for name, metric in METRICS.items() if metric.sums is not None]
SKETCHED = [name for name, metric in METRICS.items() if metric.sketch is not None]
STATES = [(name, "sums") for name in EXACT] + [(name, "sketch") for name in SKETCHED]


def states_of(share):
    """What a process sends back about its samples: every state of every metric that has one."""
    data = Scored.from_predictions(Predictions.from_arrays(*share))
    return {(name, how): getattr(METRICS[name], how)(data) for name, how in STATES}


def test_what_streams():
    assert SKETCHED == [
        "adaptive_ece", "adaptive_mce", "adaptive_rmsce", "ks", "kuiper", "aurc", "e_aurc", "auroc", "coverage_at_risk",
    ]  # fmt: skip
    for name, metric in METRICS.items():
        assert bool(metric.no_sums_reason) == (metric.sums is None), name


def test_merges_across_processes():
    """Four real processes, merged in two orders; equal to one shot to 1e−12."""
    logits, labels = synthetic(4000, 5)
    shares = [(logits[k::4], labels[k::4]) for k in range(4)]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        parts = list(pool.map(states_of, shares))
    whole = states_of((logits, labels))
    for key, state in whole.items():
        for order in (parts, parts[::-1]):
            total = reduce(add, (part[key] for part in order))
            assert np.isclose(total.value, state.value, rtol=1e-12, atol=1e-15), key
            if key[1] == "sketch":
                assert np.isclose(total.error, state.error, rtol=1e-12)


@given(cuts=st.lists(st.integers(1, 999), min_size=1, max_size=6, unique=True), seed=st.integers(0, 99))
@examples(10)
def test_batch_cuts_and_orders(cuts, seed):
    logits, labels = synthetic(1000, 4, seed=seed)
    weights = np.random.default_rng(seed).random(1000)
    order = np.random.default_rng(seed).permutation(1000)
    data = Predictions.from_arrays(logits, labels, weights=weights)
    for name, how in STATES:
        state = getattr(METRICS[name], how)
        parts = [state(Scored.from_predictions(data.take(rows))) for rows in np.split(order, sorted(cuts))]
        whole = state(Scored.from_predictions(data)).value
        assert np.isclose(reduce(add, parts).value, whole, rtol=1e-12, atol=1e-14), name


def test_size_does_not_grow_with_the_samples():
    sizes = {}
    for n in (50, 5000, 50_000):
        for key, state in states_of(synthetic(n, 4)).items():
            sizes.setdefault(key, set()).add(len(pickle.dumps(state)))
    assert all(len(found) == 1 for found in sizes.values()), sizes
    assert max(size for found in sizes.values() for size in found) < 200_000  # a sketch, three sums for 8,192 cells
    assert max(sizes["ece", "sums"]) < 2000


def test_memory_is_that_of_the_logits():
    """3,000 × 1,000: no table of probabilities (24 MB) is ever made, whatever is asked."""
    logits, labels = synthetic(3000, 1000, dtype=np.float32)
    data = Predictions.from_arrays(logits, labels)
    names = [name for name in METRICS if name not in {"skce", "kde_ce"}]  # kernels hold one group, as they say
    tracemalloc.start()
    for name in names:
        METRICS[name].value(Scored.from_predictions(data))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 12e6


def test_public_states():
    p, y = [[0.05, 0.95], [0.0, 1.0]], [1, 0]
    state = metrics.ece.of(p[:1], y[:1], n_bins=15) + metrics.ece.of(p[1:], y[1:], n_bins=15)
    assert np.isclose(state.value, metrics.ece(p, y, n_bins=15))
    with pytest.raises(InputError, match=r"adaptive_ece cannot be added up.*all samples; sketch=True"):
        metrics.adaptive_ece.of(p, y)
    with pytest.raises(InputError, match=r"mmce cannot be added up over batches: it depends on all pairs of samples$"):
        metrics.mmce.of(p, y, sketch=True)
    state = metrics.adaptive_ece.of(p, y, sketch=True, n_bins=2)
    assert np.isclose(state.value, metrics.adaptive_ece(p, y, n_bins=2))


@given(
    st.integers(2, 3000),
    st.integers(2, 6),
    st.sampled_from([0.3, 1.0, 3.0, 30.0]),
    st.integers(0, 10**6),
    st.sampled_from([1, 2, 10, 15, 100]),
)
@examples(60)
def test_the_bound_of_the_sketch_holds(n, m, scale, seed, n_bins):
    logits, labels = synthetic(n, m, scale=scale, seed=seed)
    weights = np.random.default_rng(seed).integers(1, 4, n)
    data = Scored.from_predictions(Predictions.from_arrays(logits, labels, weights=weights))
    for name in SKETCHED:
        options = {"n_bins": n_bins} if name.startswith("adaptive") else {}
        state = METRICS[name].sketch(data, **options)
        exact = METRICS[name].value(data, **options)
        if np.isfinite(exact):
            assert abs(state.value - exact) <= state.error + 1e-12, name


@pytest.mark.parametrize("name", ["cifar100_resnet56", "cifar10_resnet56"])
def test_the_sketch_is_sharp_on_real_networks(name):
    """The bounds, on 10,000 images: what the documentation states."""
    logits, labels, test_logits, test_labels = real(name)
    data = Scored.from_predictions(Predictions.from_arrays(np.r_[logits, test_logits], np.r_[labels, test_labels]))
    bounds = {"adaptive_ece": 2e-3, "ks": 1e-3, "kuiper": 2e-3, "aurc": 1e-3, "e_aurc": 1e-3, "auroc": 1e-3}
    bounds |= {"adaptive_mce": 3e-3, "adaptive_rmsce": 2e-3, "coverage_at_risk": 1e-3}
    assert set(bounds) == set(SKETCHED)
    for metric, bound in bounds.items():
        state = METRICS[metric].sketch(data)
        assert abs(state.value - METRICS[metric].value(data)) <= state.error < bound, (metric, state.error)


def test_cells():
    """Every confidence lies within its cell; cells ascend, cover [0, 1] and are nowhere wider than 9e−4."""
    c = np.r_[0, np.linspace(0, 1, 9999), 1 - np.logspace(-12, -1, 999), 1]
    found, edges = cell_numbers(c), np.r_[0, np.cumsum(cell_widths())]
    assert (np.diff(cell_numbers(np.sort(c))) >= 0).all()
    assert np.isclose(edges[-1], 1)
    assert cell_widths().max() < 9e-4
    assert (c >= edges[found] - 1e-9).all()
    assert (c <= edges[found + 1] + 1e-9).all()
    assert found.min() == 0
    assert found.max() == N_CELLS - 1
    state = Sketch.of(Scored(confidence=c, correct=np.ones(len(c))))
    assert np.isclose(state.sums.weight.sum(), len(c))
