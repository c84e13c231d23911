"""Labels that come later: each joins its own samples and no other, whatever the type of the ids, and is counted once."""

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from helpers import synthetic
from rhocal.cli import app
from rhocal.data.formats.parquet import exact_values
from rhocal.data.labels.late import id_key
from rhocal.errors import InputError
from rhocal.evaluation.monitor import Monitor

N = 300
Z, Y = synthetic(2 * N, 3, scale=1.0)
RIGHT = float((Z[:N].argmax(axis=1) == Y[:N]).mean())


@pytest.fixture
def folder(tmp_path):
    for name in ("in", "labels"):
        (tmp_path / name).mkdir()
    return tmp_path


def predictions(path, ids, scores=Z[:N], **options):
    pq.write_table(pa.table({"id": ids, "logits": scores.tolist()}), path, **options)


def labels(path, ids, values=Y[:N]):
    pq.write_table(pa.table({"id": ids, "labels": values}), path)


def look(folder, *options, code=(0, 1)):
    arguments = [
        "monitor",
        folder / "in",
        "-s",
        folder / "s.json",
        "--labels-from",
        folder / "labels",
        "--json",
        *options,
    ]
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if code == 2:
        assert isinstance(done.exception, Exception)
        return done
    assert done.exit_code in code, repr(done.exception) + done.output
    return done


def counted(folder, *options):
    values = json.loads(look(folder, *options).stdout)
    return values["n_samples"], values["waiting_samples"]


def test_large_ids_with_a_gap_join_their_own_rows(folder):
    ids = [2**60 + k for k in range(N)]
    predictions(folder / "in" / "a.parquet", pa.array([None if k == 3 else name for k, name in enumerate(ids)]))
    labels(folder / "labels" / "1.parquet", pa.array(ids))
    values = json.loads(look(folder).stdout)
    keep = np.arange(N) != 3
    assert (values["n_samples"], values["waiting_samples"]) == (N - 1, 1)
    assert values["all"]["accuracy"] == pytest.approx((Z[:N].argmax(axis=1) == Y[:N])[keep].mean())


def test_a_missing_id_is_no_text(folder):
    predictions(folder / "in" / "a.parquet", pa.array(["a", None, "c"]), Z[:3])
    labels(folder / "labels" / "1.parquet", pa.array(["a", "None", "nan"]), Y[:3])
    assert counted(folder) == (1, 2)


START = datetime(2026, 1, 1, 12, 0, 0, 250_000, UTC).replace(tzinfo=None)
TIMES = [START + timedelta(seconds=k) for k in range(N)]
DAYS = [date(2026, 1, 1) + timedelta(days=k) for k in range(N)]
WHOLE = list(range(N))


@pytest.mark.parametrize(
    ("ids", "names"),
    [
        (pa.array(TIMES, pa.timestamp("ns")), pa.array(TIMES, pa.timestamp("ns"))),
        (pa.array(TIMES, pa.timestamp("ns")), pa.array(TIMES, pa.timestamp("us"))),
        (pa.array(TIMES, pa.timestamp("us")), pa.array([str(time) for time in TIMES])),
        (pa.array(TIMES, pa.timestamp("ns", "UTC")), pa.array(TIMES, pa.timestamp("us", "Europe/Berlin"))),
        (pa.array([Decimal(k) for k in WHOLE], pa.decimal128(10, 2)), pa.array(WHOLE)),
        (pa.array([Decimal(k) / 4 for k in WHOLE], pa.decimal128(10, 2)), pa.array([k / 4 for k in WHOLE])),
        (pa.array([float(k) for k in WHOLE]), pa.array([str(k) for k in WHOLE])),
        (pa.array(WHOLE, pa.int16()), pa.array(WHOLE, pa.uint64())),
        (pa.array([f"u{k}" for k in WHOLE]).dictionary_encode(), pa.array([f"u{k}".encode() for k in WHOLE])),
        (pa.array(DAYS, pa.date32()), pa.array(DAYS, pa.date64())),
    ],
    ids=["ns", "ns-us", "us-text", "zones", "decimal", "quarters", "float", "int", "dictionary-bytes", "dates"],
)  # fmt: skip
def test_equal_ids_of_different_types(folder, ids, names):
    predictions(folder / "in" / "a.parquet", ids)
    labels(folder / "labels" / "1.parquet", names)
    values = json.loads(look(folder).stdout)
    assert (values["n_samples"], values["all"]["accuracy"]) == (N, pytest.approx(RIGHT))


def test_nanoseconds():
    """Arrow makes a type of pandas of them, or an error where pandas is not there."""
    column = pa.chunked_array([pa.array([1_767_225_600_000_000_001, None], pa.timestamp("ns"))])
    assert [id_key(value) for value in exact_values(column).tolist()] == ["2026-01-01 00:00:00.000000001", None]


def test_whole_floats_beyond_2_to_53_are_refused(folder):
    """Pandas makes such ids of integers with a gap: neighbors are one float."""
    predictions(folder / "in" / "a.parquet", pa.array([float(2**60 + k) for k in range(N)]))
    labels(folder / "labels" / "1.parquet", pa.array([2**60 + k for k in range(N)]))
    done = look(folder, code=2)
    assert isinstance(done.exception, InputError)
    assert "integers or texts" in str(done.exception)


def test_labels_of_which_none_matches_are_named(folder):
    predictions(folder / "in" / "a.parquet", pa.array([f"a-{k}" for k in WHOLE]))
    labels(folder / "labels" / "1.parquet", pa.array([f"b-{k}" for k in WHOLE]))
    done = look(folder)
    assert json.loads(done.stdout)["waiting_samples"] == N
    assert "none of 300 labels" in done.stderr
    assert "'a-0'" in done.stderr
    assert "'b-0'" in done.stderr
    labels(folder / "labels" / "2.parquet", pa.array(["a-1"]), Y[1:2])
    assert "none of" not in look(folder).stderr


def test_a_renamed_file_is_counted_once(folder):
    predictions(folder / "in" / "a.parquet", pa.array(WHOLE))
    labels(folder / "labels" / "1.parquet", pa.array(WHOLE[:100]), Y[:100])
    assert counted(folder) == (100, 200)
    (folder / "in" / "a.parquet").rename(folder / "in" / "b.parquet")
    assert counted(folder) == (100, 200)
    labels(folder / "labels" / "2.parquet", pa.array(WHOLE[50:]), Y[50:N])
    assert counted(folder) == (N, 0)
    (folder / "in" / "b.parquet").rename(folder / "in" / "a.parquet")
    assert counted(folder) == (N, 0)


def test_the_same_scores_with_other_ids_are_other_samples(folder):
    predictions(folder / "in" / "a.parquet", pa.array([f"a{k}" for k in WHOLE]))
    labels(folder / "labels" / "1.parquet", pa.array([f"a{k}" for k in WHOLE]))
    assert counted(folder) == (N, 0)
    predictions(folder / "in" / "a.parquet", pa.array([f"b{k}" for k in WHOLE]))
    assert counted(folder) == (N, N)


def test_a_label_that_is_not_a_number_is_left_out(folder):
    values = Y[:N].astype(float)
    values[5] = np.nan
    predictions(folder / "in" / "a.parquet", pa.array(WHOLE))
    labels(folder / "labels" / "1.parquet", pa.array(WHOLE), pa.array(values, from_pandas=False))
    assert counted(folder) == (N - 1, 1)


def test_rows_that_waited_before_a_reset_are_left_out(folder):
    """They were predicted by the model that was repaired."""
    predictions(folder / "in" / "old.parquet", pa.array(WHOLE), 8 * Z[:N])
    labels(folder / "labels" / "1.parquet", pa.array(WHOLE[:150]), Y[:150])
    assert look(folder).exit_code == 1
    look(folder, "--reset", "repaired")
    labels(folder / "labels" / "2.parquet", pa.array(WHOLE[150:]), Y[150:N])
    done = look(folder)
    assert done.exit_code == 0
    assert "150 samples" in done.stderr
    assert json.loads(done.stdout)["waiting_samples"] == 0
    predictions(folder / "in" / "new.parquet", pa.array([f"n{k}" for k in WHOLE]), Z[N:])
    labels(folder / "labels" / "3.parquet", pa.array([f"n{k}" for k in WHOLE]), Y[N:])
    done = look(folder)
    assert (done.exit_code, json.loads(done.stdout)["n_samples"]) == (0, 150 + N)
    (event,) = Monitor.load(folder / "s.json").history
    assert event["n_dropped"] == 150


def test_labels_first_empty_files_and_an_id_with_two_labels(folder):
    labels(folder / "labels" / "0.parquet", pa.array([], pa.int64()), pa.array([], pa.int64()))
    labels(folder / "labels" / "1.parquet", pa.array(WHOLE), (Y[:N] + 1) % 3)
    labels(folder / "labels" / "2.parquet", pa.array(WHOLE))  # the last file counts
    predictions(folder / "in" / "0.parquet", pa.array([], pa.int64()), Z[:0])
    assert counted(folder) == (0, 0)
    predictions(folder / "in" / "1.parquet", pa.array(WHOLE))
    assert json.loads(look(folder).stdout)["all"]["accuracy"] == pytest.approx(RIGHT)


def test_labels_of_different_types_in_different_files(folder):
    predictions(folder / "in" / "a.parquet", pa.array(WHOLE))
    labels(folder / "labels" / "1.parquet", pa.array(WHOLE[:150]), Y[:150])
    labels(folder / "labels" / "2.parquet", pa.array(WHOLE[150:]), Y[150:N].astype(str))
    assert "1.parquet" in str(look(folder, code=2).exception)


def test_label_folders_without_parquet_files(folder):
    (folder / "labels" / "labels.csv").write_text("id,labels\n1,0\n")
    predictions(folder / "in" / "a.parquet", pa.array(WHOLE))
    assert "holds no .parquet file (1 .csv ignored)" in str(look(folder, code=2).exception)


def test_a_state_is_used_with_late_labels_or_without(folder):
    predictions(folder / "in" / "a.parquet", pa.array(WHOLE))
    labels(folder / "labels" / "1.parquet", pa.array(WHOLE))
    assert counted(folder) == (N, 0)
    plain = ["monitor", str(folder / "in"), "-s", str(folder / "s.json")]
    pq.write_table(pa.table({"id": WHOLE, "logits": Z[:N].tolist(), "labels": Y[:N]}), folder / "in" / "a.parquet")
    assert "--labels-from" in str(CliRunner().invoke(app, plain).exception)
    (folder / "s.json").unlink()
    CliRunner().invoke(app, plain)
    assert "--labels-from" in str(look(folder, code=2).exception)


def test_rotated_files_with_late_labels(folder):
    predictions(folder / "in" / "a.parquet", pa.array(WHOLE))
    labels(folder / "labels" / "1.parquet", pa.array(WHOLE[:200]), Y[:200])
    assert counted(folder) == (200, 100)
    (folder / "in" / "a.parquet").rename(folder / "in" / "a.1.parquet")
    predictions(folder / "in" / "a.parquet", pa.array([f"n{k}" for k in WHOLE]), Z[N:])
    assert counted(folder) == (200, 100 + N)
    labels(folder / "labels" / "2.parquet", pa.array(WHOLE[200:]), Y[200:N])
    assert counted(folder) == (N, N)


def test_class_columns_beside_an_id(folder):
    columns = {name: Z[:N, k] for k, name in enumerate(("cat", "dog", "eel"))}
    pq.write_table(pa.table({"id": WHOLE, **columns}), folder / "in" / "a.parquet")
    labels(folder / "labels" / "1.parquet", pa.array(WHOLE), pa.array(np.array(["cat", "dog", "eel"])[Y[:N]]))
    values = json.loads(look(folder, "--columns", "cat,dog,eel").stdout)
    assert (values["n_samples"], values["all"]["accuracy"]) == (N, pytest.approx(RIGHT))
