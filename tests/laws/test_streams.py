"""A stream gives the fit in memory: to the bit where a pilot has room for all rows, to the accuracy of tables beyond."""

import warnings

import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

import rhocal
from helpers import as_parquet, quick, synthetic
from rhocal.calibrators import CALIBRATORS
from rhocal.calibrators.fitting import Fits
from rhocal.dask import DaskExecutor
from rhocal.data import sampling
from rhocal.data.sources import as_source
from rhocal.errors import RhocalWarning

N = 600
NAMES = np.array(["dog", "ape", "cat", "eel", "bee"])


def cut(*arrays, n=90):
    return [tuple(array[k : k + n] for array in arrays) for k in range(0, len(arrays[0]), n)]


def fit(name, *data, **spec):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RhocalWarning)
        return quick(name).fit(*data, **spec)


def assert_same_bits(streamed, whole, scores):
    assert streamed.classes_.tolist() == whole.classes_.tolist()
    assert (streamed.positive_, streamed.smallest_prob_) == (whole.positive_, whole.smallest_prob_)
    assert streamed.solution_.held_out == whole.solution_.held_out
    np.testing.assert_array_equal(streamed.label_shares_, whole.label_shares_)
    np.testing.assert_array_equal(streamed.predict_proba(scores), whole.predict_proba(scores))


@pytest.mark.parametrize("name", CALIBRATORS)
def test_every_method(name):
    logits, labels = synthetic(300, 4, seed=3)
    assert_same_bits(fit(name, rhocal.stream(cut(logits, labels))), fit(name, logits, labels), logits)


@pytest.mark.parametrize("n_classes", [5, 80])
@pytest.mark.parametrize("is_small", [True, False])
@pytest.mark.parametrize("container", ["files", "iterator", "dask"])
def test_both_sides_of_the_size_of_a_pilot(container, is_small, n_classes, tmp_path, monkeypatch):
    monkeypatch.setattr(sampling, "PILOT_ENTRIES", n_classes * (N if is_small else N - 1))
    logits, labels = synthetic(N, n_classes, dtype=np.float16)
    weights = np.random.default_rng(1).integers(0, 3, N).astype(float)
    parts = cut(logits, labels, weights)
    for k, (scores, ours, beside) in enumerate(parts):
        np.savez(tmp_path / f"{k}.npz", logits=scores, labels=ours, w=beside)
    data = {
        "files": lambda: (rhocal.stream(sorted(tmp_path.iterdir()), weights_name="w"),),
        "iterator": lambda: (rhocal.stream(iter(parts)),),
        "dask": lambda: tuple(da.from_array(array, chunks=90) for array in (logits, labels, weights)),
    }[container]
    for name in ("rho-norm", "field", "histogram-binning"):
        whole = fit(name, logits, labels, weights)
        streamed = fit(name, *data())
        if is_small:
            assert_same_bits(streamed, whole, logits)
        else:
            np.testing.assert_allclose(streamed.predict_proba(logits), whole.predict_proba(logits), atol=1e-4)
    fits = Fits(as_source(*data()), {"": quick("rho-norm")})
    assert fits.source.resident == is_small
    assert fits.summary.n_rows == N


def labels_of(case):
    """A data set in memory, the same in blocks, and what is stated about both."""
    logits, labels = synthetic(N, 5)
    names = NAMES[labels]
    order = np.argsort(labels, kind="stable")
    ignored = np.where(np.arange(N) < 100, -100, labels)
    weights = np.where(np.arange(N) < 100, 0.0, 1.5)
    probs = np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))
    probs = np.round(probs, 2) / np.round(probs, 2).sum(axis=1, keepdims=True)
    masked = np.where((np.arange(5) == (labels[:, None] + 2) % 5) & (np.arange(N)[:, None] > 300), -np.inf, logits)
    frame, single = pd.DataFrame(logits, columns=NAMES), pd.Series(logits[:, 1] - logits[:, 0], name="p_spam")
    answers = np.where(labels > 1, "spam", "ham")
    tensors = torch.tensor(logits, dtype=torch.float32), torch.tensor(labels)
    mixed = cut(logits, labels)
    mixed[3] = mixed[3][0].astype(np.float32).astype(float), mixed[3][1].tolist()
    cases = {
        "texts, not all of them in each block": ((logits[order], names[order]), {"classes": NAMES}),
        "texts that name columns in order": ((logits[order], np.sort(NAMES)[labels][order]), {}),
        "ignored labels": ((logits, ignored), {"ignore_index": -100}),
        "weights of zero": ((logits, labels, weights), {}),
        "probabilities with zeros": ((probs, labels), {"kind": "probs"}),
        "half precision": ((logits.astype(np.float16), labels), {}),
        "masks in some blocks": ((masked.astype(np.float32), labels), {}),
        "tensors": (tensors, {}),
        "data frames": ((frame, names), {}),
        "data frames and numbers": ((frame, labels), {}),
        "data frames of polars": ((pl.DataFrame(dict(zip(NAMES, logits.T, strict=True))), names), {}),
        "a single column": ((logits[:, 1] - logits[:, 0], (labels > 1).astype(int)), {"positive": 1}),
        "a single column with a name": ((single, answers), {}),
        "labels that are objects": ((logits, names.astype(object)), {"classes": NAMES}),
    }
    return cases[case] if case else tuple(cases)


@pytest.mark.parametrize("is_iterator", [True, False])
@pytest.mark.parametrize("case", labels_of(None))
def test_every_container(case, is_iterator):
    data, spec = labels_of(case)
    parts = cut(*data)
    for name in ("temperature", "svs"):
        streamed = fit(name, rhocal.stream(iter(parts) if is_iterator else parts), **spec)
        assert_same_bits(streamed, fit(name, *data, **spec), data[0])


def test_frames_whose_columns_count_in_another_order():
    """Text labels do not name such columns: their numbers state the order, in memory, in blocks and where it is applied."""
    logits, labels = synthetic(N, 12)
    names = sorted(f"p_{j}" for j in range(12))
    frame = pd.DataFrame({f"p_{j}": logits[:, j] for j in range(12)})[names]
    texts = np.array([f"class {chr(97 + label)}" for label in labels])
    whole = fit("temperature", frame, texts)
    streamed = fit("temperature", rhocal.stream(cut(frame, texts)))
    assert streamed.columns_ == whole.columns_ == tuple(names)
    assert_same_bits(streamed, whole, frame)
    np.testing.assert_array_equal(whole.predict_proba(frame), fit("temperature", logits, labels).predict_proba(logits))


def test_blocks_of_several_types():
    logits, labels = synthetic(N, 5)
    logits = logits.astype(np.float32)
    parts = cut(logits, labels)
    parts[2] = parts[2][0].astype(np.float64), parts[2][1].astype(np.uint8), np.ones(90)
    parts[3] = parts[3][0].tolist(), parts[3][1].tolist()
    streamed = fit("temperature", rhocal.stream(parts))
    assert_same_bits(streamed, fit("temperature", logits.astype(np.float64), labels), logits)


@pytest.mark.parametrize("name", ["temperature", "vector"])
@pytest.mark.parametrize("executor", [None, DaskExecutor()])
def test_blocks_that_are_left_out(name, executor, tmp_path):
    logits, labels = synthetic(N, 5, dtype=np.float32)
    for k, (scores, ours) in enumerate(cut(logits, labels, n=50)):
        as_parquet(tmp_path / f"{k:02d}.parquet", scores, ours)
    broken = tmp_path / "05.parquet"
    stream = rhocal.stream(tmp_path, skip_bad=True)
    broken.unlink()
    source = stream if executor is None else stream.on(executor)
    kept = np.r_[0:250, 300:N]
    assert_same_bits(fit(name, source), fit(name, logits[kept], labels[kept]), logits)
    assert len(stream.skipped) == 1
    assert "05.parquet" in stream.skipped[0]


def test_profiles():
    logits, labels = synthetic(N, 80)
    streamed = rhocal.profile_logits(rhocal.stream(iter(cut(logits, labels))))
    whole = rhocal.profile_logits(logits, labels)
    assert streamed.log_center == whole.log_center
    for name in ("temperature", "rho-norm"):
        mine, theirs = (rhocal.calibrator(name).fit_profile(profile) for profile in (streamed, whole))
        np.testing.assert_array_equal(mine.predict_proba(logits), theirs.predict_proba(logits))
