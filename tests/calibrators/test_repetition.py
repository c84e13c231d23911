"""Batches whose rows came before: a retry is skipped, samples that chance made equal count."""

import math

import numpy as np
import pytest

import rhocal
from rhocal.calibrators.online.memory import Memory
from rhocal.calibrators.online.repetition import is_copy, is_tied

PROBS = np.array([0.02, 0.1, 0.98])
LOGITS = np.c_[np.zeros(3), np.log(PROBS / (1 - PROBS))]


@pytest.fixture(scope="module")
def cal():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(2000, 2))
    return rhocal.calibrator("identity").fit(z, (rng.random(2000) < 1 / (1 + np.exp(z[:, 0] - z[:, 1]))).astype(int))


def tied(rng, n):
    """Samples whose scores, which are right, are three numbers."""
    k = rng.choice(3, n, p=[3 / 7, 1 / 7, 3 / 7])
    return k, (rng.random(n) < PROBS[k]).astype(int)


def continuous(rng, n):
    z = rng.normal(size=(n, 2))
    return z, rng.integers(2, size=n)


@pytest.mark.parametrize("seed", range(3))
def test_a_calibrator_that_is_right_stays_with_tied_scores(cal, seed):
    """260 of 300 batches were skipped, the rare ones counted, and a correction was adopted that loses 0.01 nats a sample."""
    rng = np.random.default_rng(seed)
    online, loss, n_skipped = rhocal.OnlineCalibration.begin(cal), 0.0, 0
    for _ in range(300):
        k, y = tied(rng, 5)
        probs = online.calibrator.predict_proba(LOGITS[k])[np.arange(5), y]
        loss += float(np.log(np.where(y == 1, PROBS[k], 1 - PROBS[k]) / probs).sum())
        step = online.update(LOGITS[k], y)
        online, n_skipped = step.online, n_skipped + (step.action == "skipped")
    assert online.n_updates == 0
    assert n_skipped <= 3  # before the memory shows that scores are tied
    assert loss <= math.log(20) * (1 + math.log2(300))
    assert loss == pytest.approx(online.loss, abs=1e-6)


@pytest.mark.parametrize("n", [1, 3, 40])
@pytest.mark.parametrize("n_later", [0, 30])
def test_a_retry_of_continuous_scores_is_skipped(cal, n, n_later):
    rng = np.random.default_rng(n)
    online = rhocal.OnlineCalibration.begin(cal)
    z, y = continuous(rng, n)
    for batch in [(z, y), *(continuous(rng, 10) for _ in range(n_later))]:
        online = online.update(*batch).online
    order = rng.permutation(n)
    assert online.update(z[order], y[order]).action == "skipped"


def test_a_retry_with_some_tied_scores_is_skipped(cal):
    """One in ten scores is the largest one."""
    rng = np.random.default_rng(1)
    online, batches = rhocal.OnlineCalibration.begin(cal), [continuous(rng, 20) for _ in range(30)]
    for z, _ in batches:
        z[:2] = [0.0, 9.0]
    for batch in batches:
        online = online.update(*batch).online
    assert is_tied(online.memory)
    assert {online.update(*batch).action for batch in batches} == {"skipped"}


def test_a_retry_of_a_large_batch_of_votes_is_skipped(cal, tmp_path):
    """Chance does not make 2,000 samples with 22 contents twice; a state that was saved knows it too."""
    rng = np.random.default_rng(2)
    online, batches = rhocal.OnlineCalibration.begin(cal), []
    for _ in range(4):
        k = rng.integers(11, size=2000)
        batches.append(
            (np.c_[np.zeros(2000), (k - 5) / 2], (rng.random(2000) < 1 / (1 + np.exp((5 - k) / 2))).astype(int))
        )
        online = online.update(*batches[-1]).online
    online.save(tmp_path / "online.safetensors")
    online = rhocal.OnlineCalibration.load(tmp_path / "online.safetensors")
    assert {online.update(*batch).action for batch in batches} == {"skipped"}


def test_copies_in_a_batch_are_not_ties():
    rng = np.random.default_rng(3)
    z, y = (np.repeat(part, 4, axis=0) for part in continuous(rng, 5))
    ones = np.ones(20)
    memory = Memory.empty(2).add(z, y, ones, 1e6)
    assert not is_tied(memory)
    assert is_copy(memory, z, y, ones, 1)
    assert is_tied(memory.add(z[:4], y[:4], ones[:4], 1e6))
    assert is_tied(memory.add(z[:4], 1 - y[:4], ones[:4], 1e6))
    assert is_copy(Memory.empty(2), z, y, ones, 1)


def test_clusters_of_copies_count_as_one_draw():
    """One cluster of 40 equal rows comes again by chance; 40 clusters of one row each do not."""
    outputs, labels = np.repeat(LOGITS, 40, axis=0), np.repeat([0, 1, 1], 40)
    memory = Memory.empty(2)
    for k in range(3):
        rows = slice(40 * k, 40 * k + 40)
        for _ in range(2):
            memory = memory.add(outputs[rows], labels[rows], np.full(40, 1 / 40), 1e6)
    assert not is_copy(memory, outputs[:40], labels[:40], np.full(40, 1 / 40), 6, clustered=True)
    assert is_copy(memory, outputs[:40], labels[:40], np.full(40, 1.0), 6, clustered=True)


@pytest.mark.parametrize("n", [1, 2, 5, 20])
def test_chance_rarely_looks_like_a_copy(n):
    """The contents of a new batch that came before are counted, whatever the size of batches."""
    rng = np.random.default_rng(n)
    memory, seen, n_copies = Memory.empty(2), set(), 0
    for b in range(400):
        k, y = tied(rng, n)
        content = tuple(sorted(zip(k.tolist(), y.tolist(), strict=True)))
        n_copies += content in seen and is_copy(memory, LOGITS[k], y, np.ones(n), b)
        seen.add(content)
        memory = memory.add(LOGITS[k], y, np.ones(n), 1e6)
    assert n_copies <= 2
