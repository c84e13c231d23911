"""Sources: every container gives the same blocks, in order, validated once, with errors that name the block."""

from dataclasses import replace
from functools import partial

import dask.array as da
import numpy as np
import pytest

import rhocal
from helpers import synthetic
from rhocal.data import sampling
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


@pytest.mark.usefixtures("few_rows")
def test_a_pilot_leaves_every_block_in_the_source(source, data):
    pilot, rest = source.pilot()
    assert 0 < pilot.n_samples <= N
    np.testing.assert_array_equal(np.concatenate([scores for _, scores, _ in rest.map(numbers)]), data[0])


@pytest.mark.usefixtures("block_by_block")
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


@pytest.mark.usefixtures("few_rows")
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


@pytest.mark.usefixtures("few_rows")
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


def few_blocks(logits, labels, weights=None):
    beside = [None] * 7 if weights is None else np.split(weights, 7)
    parts = zip(np.split(logits, 7), np.split(labels, 7), beside, strict=True)
    return [Block(scores, ours, f"part {k}", weight) for k, (scores, ours, weight) in enumerate(parts)]


class Counted:
    """A block that counts how often it is read."""

    def __init__(self, block):
        self.block, self.location, self.n_rows, self.n_reads = block, block.location, block.n_rows, 0

    def read(self):
        self.n_reads += 1
        return self.block


@pytest.mark.parametrize("is_iterator", [True, False])
def test_few_rows_are_read_once_and_stay_in_memory(is_iterator, data):
    refs = [Counted(block) for block in few_blocks(*data)]
    done = []
    source = Source(iter(refs) if is_iterator else refs).with_progress(done.append)
    pilot, resident = source.pilot()
    assert [ref.n_reads for ref in refs] == [1] * 7
    assert (sum(done), source.bytes_read, resident.bytes_read) == (N, data[0].nbytes, data[0].nbytes)
    assert resident.resident
    assert resident.predictions is pilot
    assert resident.pilot() == (pilot, resident)
    np.testing.assert_array_equal(pilot.scores, data[0])
    np.testing.assert_array_equal(pilot.labels, data[1])


@pytest.mark.parametrize("n_rows", [699, 700, 701])
def test_an_iterator_that_ends_near_the_size_of_a_pilot_loses_no_row(n_rows, data, monkeypatch):
    monkeypatch.setattr(sampling, "PILOT_ENTRIES", M * 700)
    logits, labels = (np.concatenate([array, array])[:n_rows] for array in data)
    for step in (50, 100, 350, 900):
        parts = [(logits[k : k + step], labels[k : k + step]) for k in range(0, n_rows, step)]
        _, rest = as_source(rhocal.stream(iter(parts))).pilot()
        assert rest.resident == (n_rows <= 700)
        np.testing.assert_array_equal(np.concatenate([scores for _, scores, _ in rest.map(numbers)]), logits)


@pytest.mark.usefixtures("few_rows")
def test_errors_of_a_pilot_name_the_block(data):
    logits, labels = data
    wrong, masked, weights = labels.copy(), logits.copy(), np.ones(N)
    wrong[310], masked[310, labels[310]], weights[310] = 9, -1e30, -1.0
    short = few_blocks(logits, labels)
    short[2], short[3] = (replace(short[2], labels=labels[:101]), replace(short[3], labels=labels[:99]))
    empty = few_blocks(logits, labels)
    empty[3] = Block(logits[:0], labels[:0], "part 3")
    deep = [Block(logits.reshape(350, 2, M), labels.reshape(350, 2), "part 0")]
    for parts, message in (
        (few_blocks(logits, wrong), r"^part 3: labels must be column numbers from 0 to 5.* row 10"),
        (few_blocks(masked, labels), r"^part 3: labels: the label of row 10 is a class whose logit is -1e\+30"),
        (few_blocks(logits, labels, weights), r"^part 3: sample_weight must be finite and not negative.* row 10"),
        (short, "^part 2: labels and logits differ in length: 101 labels, 100 samples"),
        (empty, "^part 3: logits has no samples: it is empty"),
        (deep, r"^part 0: a block of logits has shape \(n_samples, n_classes\); got \(350, 2, 6\)"),
    ):
        for blocks in (parts, iter(parts)):
            with pytest.raises(InputError, match=message):
                rhocal.TemperatureScaling().fit(Source(blocks))


def test_damaged_bytes_of_few_rows_are_noticed(data, tmp_path):
    np.savez(tmp_path / "z.npz", logits=data[0], labels=data[1])
    raw = bytearray((tmp_path / "z.npz").read_bytes())
    place = raw.find(data[0][300:301].tobytes())
    raw[place] ^= 1
    (tmp_path / "z.npz").write_bytes(raw)
    with pytest.raises(FileError, match=r"z\.npz: damaged, the checksum of logits\.npy"):
        rhocal.stream(tmp_path / "z.npz").pilot()


@pytest.mark.usefixtures("few_rows")
def test_blocks_without_any_sample_are_an_error(data):
    logits, labels = data
    with pytest.raises(InputError, match="no samples: every label is ignore_index, or every weight 0"):
        rhocal.TemperatureScaling().fit(Source(few_blocks(logits, labels, np.zeros(N))))
    with pytest.raises(InputError, match="no samples: every label is ignore_index, or every weight 0"):
        rhocal.TemperatureScaling().fit(Source(few_blocks(logits, np.full(N, -100))), ignore_index=-100)
