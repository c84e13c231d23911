"""Sources: every container gives the same blocks, in order, validated once, with errors that name the block."""

from functools import partial

import dask.array as da
import numpy as np
import pytest

import rhocal
from helpers import synthetic
from rhocal.data.blocks import Block
from rhocal.data.formats import base
from rhocal.data.sources import Source, as_source
from rhocal.data.spec import InputSpec
from rhocal.errors import FileError, InputError

N, M = 700, 6


@pytest.fixture(scope="module")
def data():
    return synthetic(N, M, dtype=np.float32)


@pytest.fixture(params=["array", "file", "iterator", "dask", "threads of dask on a file"])
def source(request, data, tmp_path, monkeypatch):
    logits, labels = data
    monkeypatch.setattr(base, "BLOCK_ENTRIES", 100 * M)
    if request.param == "array":
        return as_source(logits, labels)
    if request.param == "iterator":
        parts = [(logits[k : k + 100], labels[k : k + 100]) for k in range(0, N, 100)]
        return as_source(rhocal.stream(iter(parts)))
    if request.param == "dask":
        return as_source(da.from_array(logits, chunks=(100, 3)), da.from_array(labels, chunks=100))
    np.savez(tmp_path / "z.npz", logits=logits, labels=labels)
    opened = as_source(rhocal.stream(tmp_path / "z.npz"))
    if request.param == "file":
        return opened
    from rhocal.dask import DaskExecutor

    return opened.on(DaskExecutor())


def numbers(data):
    return data.block, data.scores, data.labels


def n_correct(data):
    return int((data.seen.column == data.labels).sum())


def test_map_gives_every_block_in_order(source, data):
    parts = list(source.map(numbers))
    assert [k for k, *_ in parts] == list(range(1 if source.resident else 7))
    np.testing.assert_array_equal(np.concatenate([scores for _, scores, _ in parts]), data[0])
    np.testing.assert_array_equal(np.concatenate([labels for *_, labels in parts]), data[1])


def test_reduce_is_the_sum_of_map(source, data):
    logits, labels = data
    assert source.reduce(n_correct, int.__add__) == int((logits.argmax(axis=1) == labels).sum())


def test_a_pilot_leaves_every_block_in_the_source(source, data):
    pilot, rest = source.pilot()
    assert 0 < pilot.n_samples <= N
    np.testing.assert_array_equal(np.concatenate([scores for _, scores, _ in rest.map(numbers)]), data[0])


def test_bytes_are_counted_once_and_blocks_are_read_again(data, tmp_path, monkeypatch):
    monkeypatch.setattr(base, "BLOCK_ENTRIES", 100 * M)
    np.savez(tmp_path / "z.npz", logits=data[0], labels=data[1])
    opened = as_source(rhocal.stream(tmp_path / "z.npz"))
    assert (opened.sizes, opened.n_rows) == ((100,) * 7, N)
    _, rest = opened.pilot()
    list(rest.map(numbers))
    assert opened.bytes_read == rest.bytes_read == data[0].nbytes
    every, again = rest.pilot(every_block=True)  # from rows that the first pass has kept
    assert opened.bytes_read == data[0].nbytes
    assert every.n_samples == N
    list(again.map(numbers))
    assert opened.bytes_read == 2 * data[0].nbytes
    assert [k for k, *_ in opened.skip(5).map(numbers)] == [5, 6]


def test_progress_counts_rows(data):
    done = []
    parts = [Block(data[0][k : k + 100], data[1][k : k + 100], f"part {k}") for k in range(0, N, 100)]
    list(Source(parts).with_progress(done.append).map(numbers))
    Source(parts).with_progress(done.append).reduce(n_correct, int.__add__)
    assert done == [100] * 14


def test_errors_name_the_block(data):
    logits, labels = data
    bad = logits.copy()
    bad[310, 2] = np.nan
    parts = [Block(bad[k : k + 100], labels[k : k + 100], f"part {k}") for k in range(0, N, 100)]
    for work in (lambda s: list(s.map(numbers)), lambda s: s.reduce(n_correct, int.__add__), lambda s: s.pilot()):
        with pytest.raises(InputError, match=r"^part 300: logits must be finite.*row 10"):
            work(Source(parts))
    with pytest.raises(InputError, match=r"^logits must be finite.*row 310"):
        list(as_source(bad, labels).map(numbers))
    parts[4] = Block(logits[:9, :5], labels[:9] % 5, "part 400")
    with pytest.raises(InputError, match="part 0 has 6, part 400 has 5"):
        list(Source([parts[0], parts[4]]).map(numbers))
    with pytest.raises(InputError, match="part 0: labels are missing"):
        list(Source([Block(logits, None, "part 0")]).map(numbers))
    with pytest.raises(InputError, match=r"^labels are missing"):
        list(as_source(logits).map(numbers))
    assert next(as_source(logits, needs_labels=False).map(numbers))[2] is None


class Unreadable:
    location, n_rows = "part 1", 5

    def read(self):
        raise OSError("disk on fire")


def test_blocks_that_cannot_be_read_are_named_or_skipped(data):
    good = Block(data[0], data[1], "part 0")
    with pytest.raises(FileError, match="part 1: cannot be read: disk on fire"):
        list(Source([good, Unreadable()]).map(numbers))
    patient = Source([good, Unreadable()])
    patient.log.skip_bad = True
    assert len(list(patient.map(numbers))) == 1
    assert patient.skipped == ["part 1: cannot be read: disk on fire"]
    assert patient.reduce(n_correct, int.__add__) == n_correct(next(Source([good]).map(lambda data: data)))
    with pytest.raises(InputError, match="empty"):
        list(Source([]).map(numbers))


def test_blocks_without_samples_are_left_out(data):
    logits, labels = data
    ignored = np.where(np.arange(N) < 250, -100, labels)
    parts = [Block(logits[k : k + 100], ignored[k : k + 100], f"part {k}") for k in range(0, N, 100)]
    spec = InputSpec(ignore_index=-100)
    found = list(Source(parts, spec).map(lambda data: (data.block, data.n_samples, data.rows)))
    assert [(block, n) for block, n, _ in found] == [(2, 50), (3, 100), (4, 100), (5, 100), (6, 100)]
    np.testing.assert_array_equal(found[0][2], np.arange(50, 100))
    with pytest.raises(InputError, match="no samples"):
        list(Source(parts[:2], spec).map(numbers))


def test_text_labels_need_not_show_in_every_block(data):
    logits, labels = data
    names = np.array(list("abcdef"))[labels]
    order = np.argsort(labels, kind="stable")
    cut = partial(np.array_split, indices_or_sections=7)
    parts = [
        Block(*part, f"part {k}") for k, part in enumerate(zip(cut(logits[order]), cut(names[order]), strict=True))
    ]
    pilot, rest = Source(parts).pilot()
    assert pilot.classes.tolist() == list("abcdef")
    np.testing.assert_array_equal(np.concatenate([labels for *_, labels in rest.map(numbers)]), labels[order])


def test_what_a_stream_does_not_take(data):
    for arguments in (
        {"groups": data[1]},
        {"spec": InputSpec(class_axis=1)},
        {"weights": data[1]},
        {"labels": data[1]},
    ):
        with pytest.raises(InputError, match="a stream"):
            as_source(rhocal.stream(iter([data])), **arguments)
    with pytest.raises(InputError, match="cannot be sent"):
        as_source(rhocal.stream(iter([data]))).on(None)
    with pytest.raises(InputError, match="kind is one of"):
        InputSpec("scores")


def test_a_block_whose_weight_is_all_on_ignored_samples_has_no_samples():
    """It was refused, where the same rows among others in memory are read."""
    logits, labels = synthetic(6, 3)
    labels[2:4] = -100
    weights = np.array([1.0, 1, 1, 0, 0, 1])
    labels[4], weights[3] = 0, 0
    blocks = [(logits[rows], labels[rows], weights[rows]) for rows in (slice(0, 2), slice(2, 5), slice(5, 6))]
    source = as_source(rhocal.stream(blocks), spec=InputSpec(ignore_index=-100))
    parts = list(source.map(lambda data: data))
    assert [part.n_samples for part in parts] == [2, 1]
    np.testing.assert_array_equal(np.concatenate([part.scores for part in parts]), logits[[0, 1, 5]])
