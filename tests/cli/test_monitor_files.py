"""The files of a monitor: every row is counted once, whatever happens to the file; columns, classes and weights by name."""

import json
import os

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import rhocal
from helpers import as_parquet, synthetic
from rhocal.cli import app
from rhocal.cli.monitor import files
from rhocal.cli.monitor_run import exclusive
from rhocal.cli.options import Arrays
from rhocal.data.spec import InputSpec
from rhocal.data.storage import followed
from rhocal.errors import FileError
from rhocal.evaluation.monitor import Monitor

Z, Y = synthetic(900, 3, scale=1.0)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def count(folder, *options, text=None, code=0):
    arguments = ["monitor", "-" if text is not None else str(folder), "-s", str(folder.parent / "s.json"), "--json"]
    result = CliRunner().invoke(app, [*arguments, *map(str, options)], input=text)
    if code:
        assert result.exception is not None
        return str(result.exception)
    assert isinstance(result.exception, SystemExit | None), repr(result.exception)
    return json.loads(result.stdout)


def n_samples(folder, *options):
    return count(folder, *options)["n_samples"]


def test_a_file_that_is_absent_for_one_look(folder):
    as_parquet(folder / "a.parquet", Z[:300], Y[:300])
    as_parquet(folder / "b.parquet", Z[300:400], Y[300:400])
    assert n_samples(folder) == 400
    (folder / "a.parquet").rename(folder.parent / "away")
    assert n_samples(folder) == 400
    (folder.parent / "away").rename(folder / "a.parquet")
    assert n_samples(folder) == 400


def test_a_file_that_is_written_again(folder):
    as_parquet(folder / "a.parquet", Z[:300], Y[:300])
    assert n_samples(folder) == 300
    as_parquet(folder / "a.parquet", Z[:300], Y[:300])  # the same rows
    assert n_samples(folder) == 300
    as_parquet(folder / "a.parquet", Z[:450], Y[:450], rows=400)  # more rows, in other row groups
    assert n_samples(folder) == 450
    as_parquet(folder / "a.parquet", Z[450:700], Y[450:700])  # other rows
    assert n_samples(folder) == 700
    as_parquet(folder / "a.parquet", Z[450:700], (Y[450:700] + 1) % 3)  # the same scores with other labels
    assert n_samples(folder) == 950


def test_a_file_of_the_same_size_and_time_is_told_apart(folder):
    as_parquet(folder / "a.parquet", Z[:300], Y[:300])
    assert n_samples(folder) == 300
    status = (folder / "a.parquet").stat()
    as_parquet(folder / "a.parquet", -Z[:300], Y[:300])
    os.utime(folder / "a.parquet", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert n_samples(folder) == 600


def test_moved_and_copied_files(folder):
    as_parquet(folder / "a.parquet", Z[:300], Y[:300])
    assert n_samples(folder) == 300
    (folder / "a.parquet").rename(folder / "b.parquet")
    assert n_samples(folder) == 300
    as_parquet(folder / "c.parquet", Z[:300], Y[:300])  # equal rows of another file are other samples
    assert n_samples(folder) == 600


def test_hidden_files_are_not_complete(folder):
    as_parquet(folder / "a.parquet", Z[:300], Y[:300])
    as_parquet(folder / ".b.parquet.parquet", Z[300:], Y[300:])
    (folder / ".tmp.parquet").write_bytes(b"PAR1")
    assert n_samples(folder) == 300
    assert rhocal.stream(folder).n_rows == 300


def test_a_file_that_changes_while_it_is_read(folder):
    as_parquet(folder / "a.parquet", Z[:600], Y[:600])
    batches = files(Monitor(), folder, Arrays(), InputSpec(), None, None)
    next(batches)
    as_parquet(folder / "a.parquet", -Z[:600], Y[:600])
    with pytest.raises(FileError, match="changed while it was read"):
        next(batches)


def test_a_state_of_an_earlier_version(folder):
    as_parquet(folder / "a.parquet", Z[:600], Y[:600])
    old = Monitor()
    old.add(np.full(300, 0.5), Y[:300] % 2.0)
    old.positions = {"a.parquet": 1}  # row groups
    old.save(folder.parent / "s.json")
    assert n_samples(folder) == 600
    assert n_samples(folder) == 600


NAMES = np.array(["zebra", "cat", "dog"])


def test_columns_by_name(folder):
    right = float((Z.argmax(axis=1) == Y).mean())
    table = pd.DataFrame(Z, columns=NAMES).assign(labels=NAMES[Y], id=np.arange(900), use=1.0)
    table[["dog", "id", "labels", "zebra", "cat", "use"]].to_parquet(folder / "a.parquet")
    assert count(folder, "--weights", "use")["all"]["accuracy"] == pytest.approx(right)
    table.assign(labels=Y).to_parquet(folder / "a.parquet")
    (folder.parent / "s.json").unlink()
    assert count(folder, "--columns", "zebra,cat,dog")["all"]["accuracy"] == pytest.approx(right)


@pytest.mark.filterwarnings("ignore::rhocal.errors.SuspiciousInputWarning")  # the columns are in another order indeed
def test_texts_as_labels_of_lists_need_classes(folder):
    right = float((Z.argmax(axis=1) == Y).mean())
    as_parquet(folder / "a.parquet", Z, NAMES[Y])
    assert "labels are texts" in count(folder, code=2)
    assert count(folder, "--classes", ",".join(NAMES))["all"]["accuracy"] == pytest.approx(right)


def test_weights_are_0_or_1(folder):
    use = (np.arange(900) % 3 == 0).astype(float)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(Z.ravel()), 3)
    pq.write_table(pa.table({"logits": lists, "labels": Y, "use": use}), folder / "a.parquet")
    assert n_samples(folder, "--weights", "use") == 300
    pq.write_table(pa.table({"logits": lists, "labels": Y, "use": use / 2}), folder / "a.parquet")
    assert "weights of a monitor are 0 or 1" in count(folder, "--weights", "use", code=2)


def test_the_kind_of_the_fit_is_the_default(folder):
    probs = np.exp(Z) / np.exp(Z).sum(axis=1, keepdims=True)
    cal = rhocal.TemperatureScaling().fit(probs, Y, kind="probs")
    cal.save(folder.parent / "c.safetensors")
    as_parquet(folder / "a.parquet", probs, Y)
    confidence = count(folder, "-c", folder.parent / "c.safetensors")["all"]["confidence"]
    assert confidence == pytest.approx(cal.predict_proba(probs).max(axis=1).mean())


def test_the_size_of_the_calibration_set_is_that_of_the_calibrator(folder):
    cal = rhocal.TemperatureScaling().fit(Z, Y, sample_weight=np.r_[np.ones(400), np.zeros(500)])
    cal.save(folder.parent / "c.safetensors")
    as_parquet(folder / "a.parquet", Z, Y)
    assert count(folder, "-c", folder.parent / "c.safetensors")["n_calibration"] == 400
    assert "begun with --n-calibration 400" in count(folder, "--n-calibration", "0", code=2)
    (folder.parent / "s.json").unlink()
    assert count(folder, "-c", folder.parent / "c.safetensors", "--n-calibration", "0")["n_calibration"] is None


def test_files_that_are_gone_are_forgotten_in_the_end(monkeypatch):
    monkeypatch.setattr(followed, "MAX_ABSENT", 3)
    state = {"n_rows": 1, "digest": "", "status": []}
    positions = {"-": 7, **{f"{k}.parquet": state for k in range(9)}}
    kept = followed.forget_absent(positions, {"0.parquet"})
    assert list(kept) == ["-", "0.parquet", "6.parquet", "7.parquet", "8.parquet"]


def test_a_folder_without_parquet_files_is_an_error(folder):
    pd.DataFrame(Z, columns=list("abc")).assign(labels=Y).to_csv(folder / "test.csv", index=False)
    assert "in holds no .parquet file (1 .csv ignored)" in count(folder, code=2)
    as_parquet(folder / "a.parquet", Z, Y)
    result = CliRunner().invoke(app, ["monitor", str(folder), "-s", str(folder.parent / "s.json")])
    assert "1 .csv ignored" in result.stderr
    (folder / "a.parquet").unlink()
    assert n_samples(folder) == 900, "archived files are no error"


def test_an_empty_folder_has_no_file_yet(folder):
    result = CliRunner().invoke(app, ["monitor", str(folder), "-s", str(folder.parent / "s.json")])
    assert (result.exit_code, "no file yet" in result.stderr) == (0, True)


def test_missing_labels_name_the_columns(folder):
    lists = pa.FixedSizeListArray.from_arrays(pa.array(Z.ravel()), 3)
    pq.write_table(pa.table({"logits": lists, "fraud": Y, "when": Y}), folder / "a.parquet")
    assert "labels are missing; other columns of the table: fraud, when" in count(folder, code=2)


def test_clusters_that_are_large_integers(folder):
    visits = [2**60 + k for k in range(900)]
    columns = {"logits": Z.tolist(), "labels": Y}
    pq.write_table(pa.table({**columns, "visit": visits}), folder / "a.parquet")
    n_samples(folder, "--clusters", "visit")
    assert Monitor.load(folder.parent / "s.json").n_units == 900
    pq.write_table(pa.table({**columns, "visit": [None, *visits[1:]]}), folder / "b.parquet")
    assert "none missing" in count(folder, "--clusters", "visit", code=2)


def test_two_monitors_cannot_use_one_state(folder):
    as_parquet(folder / "a.parquet", Z, Y)
    with exclusive(folder.parent / "s.json"):
        assert "in use by another monitor" in count(folder, code=2)
    assert n_samples(folder) == 900


def test_the_samples_since_a_reset(folder):
    as_parquet(folder / "a.parquet", 8 * Z, Y)
    ask = ["monitor", str(folder), "-s", str(folder.parent / "s.json")]
    assert "too high: mean confidence" in CliRunner().invoke(app, ask).stderr
    CliRunner().invoke(app, [*ask, "--acknowledge", "seen by Ada"])
    assert "seen by Ada" in CliRunner().invoke(app, ask, env={"COLUMNS": "200"}).stdout
    CliRunner().invoke(app, [*ask, "--reset", "repaired"])
    shown = CliRunner().invoke(app, ask, env={"COLUMNS": "200"}).stdout
    assert "samples since the reset" in shown
    assert "None" not in shown


def test_rotated_files_are_counted_once(folder):
    """The name of the latest file stays, and its rows move on: a.parquet becomes a.1.parquet."""
    for k in range(3):
        for number in range(k, 0, -1):
            before = folder / ("a.parquet" if number == 1 else f"a.{number - 1}.parquet")
            before.rename(folder / f"a.{number}.parquet")
        as_parquet(folder / "a.parquet", Z[300 * k : 300 * (k + 1)], Y[300 * k : 300 * (k + 1)])
        assert n_samples(folder) == 300 * (k + 1)


def test_a_state_in_the_folder_that_it_watches(folder):
    ask = ["monitor", str(folder), "-s", str(folder / "s.json"), "--log", str(folder / "log.jsonl")]
    for _ in range(2):
        result = CliRunner().invoke(app, ask)
        assert (result.exit_code, "no file yet" in result.stderr) == (0, True)
    as_parquet(folder / "a.parquet", Z, Y)
    assert "ignored" not in CliRunner().invoke(app, ask).stderr


def test_empty_files(folder):
    as_parquet(folder / "a.parquet", Z[:0], Y[:0])
    pd.DataFrame(Z[:0], columns=list("abc")).assign(labels=Y[:0]).to_parquet(folder / "b.parquet")
    assert n_samples(folder) == 0
    as_parquet(folder / "c.parquet", Z, Y)
    assert n_samples(folder) == 900


def test_a_file_that_is_renamed_after_half_of_it_was_counted(folder, monkeypatch):
    as_parquet(folder / "a.parquet", Z, Y)
    save = Monitor.save

    def killed(self, path):
        save(self, path)
        if self.n:
            raise KeyboardInterrupt

    monkeypatch.setattr(Monitor, "save", killed)
    CliRunner().invoke(app, ["monitor", str(folder), "-s", str(folder.parent / "s.json")])
    monkeypatch.undo()
    assert Monitor.load(folder.parent / "s.json").n == 300
    (folder / "a.parquet").rename(folder / "b.parquet")
    assert n_samples(folder) == 900


def test_a_file_that_returns_after_another_had_its_name(folder):
    away = folder.parent / "away"
    as_parquet(folder / "a.parquet", Z[:300], Y[:300])
    assert n_samples(folder) == 300
    (folder / "a.parquet").rename(away)
    as_parquet(folder / "a.parquet", Z[300:500], Y[300:500])  # a new file with the old name
    assert n_samples(folder) == 500
    away.rename(folder / "b.parquet")
    assert n_samples(folder) == 500
    (folder / "a.parquet").rename(away)
    (folder / "b.parquet").rename(folder / "a.parquet")  # or one that is counted gets it
    assert n_samples(folder) == 500
    away.rename(folder / "c.parquet")
    assert n_samples(folder) == 500
