"""Many processes give what one gives: a real local cluster, workers that die, blocks that cannot be read."""

import contextlib
import http.client
import json
import logging
import operator
import os
import pickle
import signal
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import dask
import dask.array as da
import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rhocal
from helpers import PATIENCE, run, synthetic, uneven, wait_until
from rhocal import dask as many
from rhocal.calibrators import fitting
from rhocal.data import sampling
from rhocal.data.blocks import Block, NumberedBlock
from rhocal.data.predictions import Predictions
from rhocal.errors import FileError, InputError, SubsampleWarning
from rhocal.evaluation import measure
from rhocal.metrics import METRICS

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture(scope="module")
def data():
    return uneven(1200, 80, np.float32)


@pytest.fixture(scope="module")
def folder(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    logits, labels = data
    for k in range(6):
        rows = slice(200 * k, 200 * (k + 1))
        lists = pa.FixedSizeListArray.from_arrays(pa.array(logits[rows].ravel()), 80)
        pq.write_table(pa.table({"logits": lists, "labels": labels[rows]}), folder / f"part-{k}.parquet")
    return folder


@pytest.fixture(scope="module")
def cluster():
    with many.cluster(None, 2) as client:
        assert len(set(client.run(os.getpid).values())) == 2  # real processes
        yield client


on_a_cluster = pytest.mark.usefixtures("cluster")
blocks_on_a_cluster = pytest.mark.usefixtures("cluster", "block_by_block")
on_a_cluster_in_both_ways = pytest.mark.usefixtures("cluster", "few_rows")


def arrays(data):
    logits, labels = data
    return da.from_array(logits, chunks=(200, 30)), da.from_array(labels, chunks=500)


def numbers(cal):
    return [getattr(cal, name) for name in cal.parameters]


@on_a_cluster_in_both_ways
@pytest.mark.parametrize("method", ["temperature", "rho-norm", "field"])
def test_workers_give_what_one_process_gives(method, data, folder):
    alone = rhocal.calibrator(method).fit(rhocal.stream(folder))
    together = rhocal.calibrator(method).fit(*arrays(data))
    for mine, theirs in zip(numbers(alone), numbers(together), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9)
    whole = rhocal.calibrator(method).fit(*data)
    np.testing.assert_allclose(together.predict_proba(data[0]), whole.predict_proba(data[0]), atol=2e-5)


@on_a_cluster
def test_metrics_are_the_same_to_the_bit_for_counts(data, folder):
    names = [name for name, metric in METRICS.items() if metric.streams != "no"]
    cal = rhocal.TemperatureScaling().fit(*data)
    there = rhocal.measure(*arrays(data), calibrator=cal, metrics=names)
    here = rhocal.measure(rhocal.stream(folder), calibrator=cal, metrics=names)
    assert there["accuracy"] == here["accuracy"]
    for name in names:
        assert there[name] == pytest.approx(here[name], rel=1e-9, abs=1e-12), name


@on_a_cluster
def test_probabilities_are_lazy_and_the_same(data):
    cal = rhocal.RhoNormScaling().fit(*data)
    lazy = cal.predict_proba(arrays(data)[0])
    assert isinstance(lazy, da.Array)
    np.testing.assert_array_equal(lazy.compute(), cal.predict_proba(data[0]))
    with pytest.raises(InputError, match="80"):
        cal.predict_proba(da.zeros((5, 3)))


@on_a_cluster_in_both_ways
def test_weights(data):
    weight = np.random.default_rng(0).integers(0, 3, 1200).astype(float)
    cal = rhocal.TemperatureScaling().fit(*arrays(data), da.from_array(weight, chunks=100))
    assert cal.temperature_ == pytest.approx(rhocal.TemperatureScaling().fit(*data, weight).temperature_, rel=1e-6)


@blocks_on_a_cluster
def test_a_subsample_is_the_one_of_a_single_machine(data, folder, monkeypatch):
    monkeypatch.setattr(sampling, "SUBSAMPLE_ENTRIES", 40_000)
    with pytest.warns(SubsampleWarning, match="500 of 1,200"):
        here = rhocal.calibrator("histogram-binning").fit(rhocal.stream(folder))
    with pytest.warns(SubsampleWarning, match="500 of 1,200"):
        there = rhocal.calibrator("histogram-binning").fit(*arrays(data))
    np.testing.assert_array_equal(here.predict_proba(data[0]), there.predict_proba(data[0]))


def slow(data, plan):
    time.sleep(0.4)  # as long as a big block takes
    return SUMMARIZE(data, plan)


def slow_sums(data, **arguments):
    time.sleep(0.4)
    return SUMS(data, **arguments)


SUMMARIZE, SUMS = fitting.summarize_block, measure.block_sums


@pytest.mark.usefixtures("block_by_block")
def test_a_killed_worker_changes_nothing_but_the_time(cluster, folder, monkeypatch):
    alone = rhocal.RhoNormScaling().fit(rhocal.stream(folder))
    figures = rhocal.measure(rhocal.stream(folder), calibrator=alone)
    monkeypatch.setattr(fitting, "summarize_block", slow)
    monkeypatch.setattr(measure, "block_sums", slow_sums)

    def kill_one():
        victim = next(iter(cluster.run(os.getpid).values()))
        killer = threading.Timer(0.9, os.kill, (victim, signal.SIGKILL))
        killer.start()
        return victim, killer

    def wait_for_another(victim, killer):
        killer.join()
        assert wait_until(lambda: victim not in cluster.run(os.getpid, on_error="ignore").values())
        cluster.wait_for_workers(2)

    killed = kill_one()
    together = rhocal.RhoNormScaling().fit(rhocal.stream(folder).on(many.DaskExecutor()))
    wait_for_another(*killed)
    killed = kill_one()
    there = rhocal.measure(rhocal.stream(folder).on(many.DaskExecutor()), calibrator=alone)
    wait_for_another(*killed)
    assert numbers(together) == numbers(alone)
    assert there == figures


class OneIsSlow:
    """As ``summarize_block``, but one process waits until 14 blocks are done; each writes down what it did."""

    def __init__(self, lazy, notes):
        self.lazy, self.notes = lazy, notes

    def __call__(self, data, plan):
        deadline = time.monotonic() + PATIENCE
        while os.getpid() == self.lazy and len(list(self.notes.iterdir())) < 14 and time.monotonic() < deadline:
            time.sleep(0.05)
        (self.notes / f"{data.block} by {os.getpid()}").touch()
        return SUMMARIZE(data, plan)


@pytest.mark.usefixtures("block_by_block")
def test_a_slow_worker_does_less_and_changes_nothing(cluster, folder, tmp_path, monkeypatch):
    files = sorted(folder.iterdir()) * 4
    alone = rhocal.RhoNormScaling().fit(rhocal.stream(files))
    lazy = next(iter(cluster.run(os.getpid).values()))
    monkeypatch.setattr(fitting, "summarize_block", OneIsSlow(lazy, tmp_path))
    together = rhocal.RhoNormScaling().fit(rhocal.stream(files).on(many.DaskExecutor()))
    done = [path.name.split(" by ") for path in tmp_path.iterdir()]
    assert {int(k) for k, _ in done} == set(range(24))
    assert 1 <= sum(int(who) == lazy for _, who in done) < 12  # the other did not wait for its half
    assert numbers(together) == numbers(alone)


def test_what_travels_does_not_grow_with_the_classes():
    sizes = []
    for m in (100, 10_000):
        logits, labels = synthetic(60, m, dtype=np.float32)
        data = Predictions.from_arrays(logits, labels)
        plan = rhocal.plan_for(rhocal.RhoNormScaling(), data)
        sizes.append(len(pickle.dumps(fitting.summarize_block(data, plan))))
    assert sizes[1] < 1.1 * sizes[0]


def test_sums_are_merged_by_the_workers(folder, monkeypatch):
    """What arrives is one sum, however many blocks there are."""
    source = rhocal.stream(sorted(folder.iterdir()) * 12)  # more than one group of groups
    monkeypatch.setattr(many, "BLOCKS_PER_MERGE", 4)
    arrived = []
    compute = many.engine.compute

    def counted(*tasks):
        found = compute(*tasks)
        arrived.append(len(found))
        return found

    monkeypatch.setattr(many.engine, "compute", counted)
    there = rhocal.measure(source.on(many.DaskExecutor()))
    assert arrived == [1]
    here = rhocal.measure(rhocal.stream(folder))  # twelve times the same
    assert there == pytest.approx(here, rel=1e-12)


def number(block):
    return (block.number,)


@on_a_cluster
def test_results_are_merged_in_the_order_of_the_blocks(monkeypatch):
    """Sums hide it but for their last digits; the columns and classes that a message compares are those of the first block."""
    monkeypatch.setattr(many, "BLOCKS_PER_MERGE", 4)
    blocks = [NumberedBlock(k, Block(np.zeros((1, 2)), None, "")) for k in range(70)]  # three levels of groups
    assert many.DaskExecutor().reduce(number, operator.add, blocks) == tuple(range(70))
    assert list(many.DaskExecutor().map(number, blocks[:6])) == [(k,) for k in range(6)]


@on_a_cluster_in_both_ways
def test_bad_blocks_on_workers(data, folder, tmp_path):
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    raw = bytearray((tmp_path / "part-2.parquet").read_bytes())
    raw[4:1500] = bytes(1496)
    (tmp_path / "part-2.parquet").write_bytes(raw)
    with pytest.raises(FileError, match=r"part-2\.parquet, row group 0"):
        rhocal.TemperatureScaling().fit(rhocal.stream(tmp_path).on(many.DaskExecutor()))
    patient = rhocal.stream(tmp_path, skip_bad=True)
    cal = rhocal.TemperatureScaling().fit(patient.on(many.DaskExecutor()))
    assert len(patient.skipped) == 1
    good = np.r_[0:400, 600:1200]
    assert cal.temperature_ == pytest.approx(
        rhocal.TemperatureScaling().fit(data[0][good], data[1][good]).temperature_, rel=1e-5
    )


def has_dashboard(address):
    with (
        contextlib.suppress(OSError, http.client.HTTPException),
        urllib.request.urlopen(f"http://127.0.0.1:{address.port}/status", timeout=2),
    ):
        return True
    return False


@on_a_cluster
def test_workers_listen_to_this_machine_only():
    """Scheduler, workers and their nannies have sockets on the loopback interface, and no dashboard."""
    ours = psutil.Process()
    pids = {ours.pid, *(child.pid for child in ours.children(recursive=True))}
    listening = [
        connection.laddr
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.pid in pids
    ]
    assert len(listening) >= 3
    assert {address.ip for address in listening} <= {"127.0.0.1", "::1"}
    with ThreadPoolExecutor(len(listening)) as threads:  # most of them never answer
        assert not any(threads.map(has_dashboard, listening))


def test_what_does_not_fit_is_said(data):
    logits, labels = arrays(data)
    with pytest.raises(InputError, match="differ in length"):
        rhocal.TemperatureScaling().fit(logits, labels[:-1])
    with pytest.raises(InputError, match="labels are missing"):
        rhocal.TemperatureScaling().fit(logits)
    with pytest.raises(InputError, match="cannot be sent"):
        rhocal.stream(iter([])).on(many.DaskExecutor())
    with pytest.raises(InputError, match="no scheduler answers"), many.cluster("tcp://127.0.0.1:1", None, timeout="1s"):
        pass


@pytest.mark.parametrize("fails", [False, True])
def test_workers_log_nothing_when_their_cluster_ends(fails, monkeypatch):
    """A traceback that the scheduler no longer answers would look like an error of a command that has done its work."""
    disabled = []
    monkeypatch.setattr(logging, "disable", disabled.append)

    class Client:
        def run(self, function, *arguments, on_error):
            assert on_error == "ignore"
            function(*arguments)
            if fails:
                raise OSError("a worker that does not answer")

    many._mute(Client())
    assert disabled == [logging.CRITICAL]


def test_workers_are_muted_at_the_end(monkeypatch):
    muted = []
    monkeypatch.setattr(many, "_mute", lambda client: muted.append(client.run(lambda: 1)))
    with pytest.raises(KeyError), many.cluster(None, 1):
        raise KeyError
    assert [list(answers.values()) for answers in muted] == [[1]]


def test_command_line(folder, tmp_path):
    cal = tmp_path / "cal.safetensors"
    there = json.loads(run("fit", folder, "-m", "rho-norm", "--workers", "2", "-o", cal, "--json").stdout)
    here = rhocal.RhoNormScaling().fit(rhocal.stream(folder))
    assert there["parameters"]["gamma"] == here.gamma_
    workers = json.loads(run("evaluate", folder, "--workers", "2", "--json").stdout)["values"]["uncalibrated"]
    found = rhocal.measure(rhocal.stream(folder))
    for name in ("accuracy", "ece", "mce", "nll", "brier"):
        assert workers[name] == pytest.approx(found[name], rel=1e-12), name


def test_transform_and_predict_are_lazy_and_the_same(data):
    cal = rhocal.calibrator("svs").fit(*data)
    logits = arrays(data)[0]
    for apply in (cal.transform, cal.predict, cal.predict_proba):
        lazy = apply(logits)
        assert isinstance(lazy, da.Array)
        assert lazy.dtype == lazy.compute().dtype
        np.testing.assert_array_equal(lazy.compute(), apply(data[0]))
        with pytest.raises(InputError, match="class_axis"):
            apply(logits[:80], class_axis=0)
        with pytest.raises(InputError, match="groups"):
            apply(logits, groups=np.zeros(1200))
    names = np.array([f"class {k:02d}" for k in range(80)])
    named = rhocal.TemperatureScaling().fit(data[0], names[data[1]], classes=names)
    np.testing.assert_array_equal(named.predict(logits).compute(), named.predict(data[0]))


@pytest.mark.usefixtures("few_rows")
def test_frames_and_columns_of_lists():
    frames = pytest.importorskip("dask.dataframe")
    logits, labels = synthetic(300, 4, dtype=np.float32)
    names = np.array(["zebra", "cat", "dog", "ape"])
    wide = pd.DataFrame(logits, columns=names)[["dog", "ape", "zebra", "cat"]]
    lists = pd.DataFrame({"logits": list(logits), "y": names[labels]})
    alone = rhocal.TemperatureScaling().fit(logits, names[labels], classes=names)
    with dask.config.set({"dataframe.convert-string": False}):
        table, column = (frames.from_pandas(frame, npartitions=3) for frame in (wide, lists))
        cal = rhocal.TemperatureScaling().fit(table, column["y"])
        assert cal.temperature_ == pytest.approx(alone.temperature_, rel=1e-6)
        reordered = table[["cat", "zebra", "dog", "ape"]]
        np.testing.assert_array_equal(cal.predict(reordered).compute(), alone.predict(logits))
        other = rhocal.TemperatureScaling().fit(column["logits"], column["y"], classes=names)
        assert other.temperature_ == pytest.approx(alone.temperature_, rel=1e-6)
        np.testing.assert_allclose(
            other.predict_proba(column["logits"]).compute(), alone.predict_proba(logits), atol=1e-7
        )
    with pytest.raises(InputError, match="convert-string"):
        rhocal.TemperatureScaling().fit(frames.from_pandas(lists, npartitions=3)["logits"], labels)
