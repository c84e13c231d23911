"""Files in, artifacts out."""

import json
import os

import ml_dtypes  # noqa: F401 - registers bfloat16 with NumPy
import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import load_file, save_file

import rhocal
from helpers import card_of, quick, synthetic
from rhocal.calibrators import CALIBRATORS
from rhocal.data import files
from rhocal.data.formats import write_arrays
from rhocal.data.formats.base import Names
from rhocal.data.storage.atomic import writing
from rhocal.errors import FileError, InputError

Z, Y = synthetic(30, 3, dtype=np.float32)


def as_npz(path):
    np.savez(path, logits=Z, labels=Y)


def as_csv(path):
    pd.DataFrame(Z, columns=["a", "b", "c"]).assign(labels=Y).to_csv(path, index=False)


def as_parquet_lists(path):
    pd.DataFrame({"logits": list(Z), "labels": Y}).to_parquet(path)


def as_parquet_columns(path):
    pd.DataFrame(Z, columns=["a", "b", "c"]).assign(labels=Y).to_parquet(path)


def as_safetensors(path):
    save_file({"logits": Z, "labels": Y}, path)


def as_pt(path):
    torch.save({"logits": torch.tensor(Z), "labels": torch.tensor(Y)}, path)


@pytest.mark.parametrize(
    ("ending", "write"),
    [
        (".npz", as_npz),
        (".csv", as_csv),
        (".parquet", as_parquet_lists),
        (".parquet", as_parquet_columns),
        (".safetensors", as_safetensors),
        (".pt", as_pt),
    ],
)
def test_reads_every_format(tmp_path, ending, write):
    path = tmp_path / f"x{ending}"
    write(path)
    split = files.read(path).calibration_set()
    np.testing.assert_allclose(np.asarray(split.scores), Z, rtol=1e-6)
    np.testing.assert_array_equal(np.asarray(split.labels), Y)


def test_npy_with_labels_beside_it(tmp_path):
    np.save(tmp_path / "z.npy", Z)
    np.save(tmp_path / "y.npy", Y)
    split = files.read(tmp_path / "z.npy", labels=tmp_path / "y.npy").calibration_set()
    np.testing.assert_array_equal(split.labels, Y)
    with pytest.raises(InputError, match="labels_name="):
        files.read(tmp_path / "z.npy").calibration_set()


def test_own_split_and_other_names(tmp_path):
    np.savez(tmp_path / "a.npz", logits_val=Z, labels_val=Y, logits_test=Z[:5], labels_test=Y[:5])
    contents = files.read(tmp_path / "a.npz")
    assert len(contents.calibration_set().scores) == 30
    assert len(contents.test_set().scores) == 5
    np.savez(tmp_path / "b.npz", scores=Z, y=Y)
    assert len(files.read(tmp_path / "b.npz", Names("scores", "y")).calibration_set().labels) == 30


def test_text_labels_of_a_csv_file(tmp_path):
    (tmp_path / "x.csv").write_text("cat,dog,labels\n1.5,2,dog\n0,-1e3,cat\n", encoding="utf-8")
    split = files.read(tmp_path / "x.csv").calibration_set()
    assert split.labels.tolist() == ["dog", "cat"]
    np.testing.assert_array_equal(split.scores, [[1.5, 2], [0, -1000]])


DAMAGED = {
    "missing.npz": (None, "no such file"),
    "x.xlsx": (b"hello", "unknown kind of file '.xlsx'; understood are .npz"),
    "x.npz": (b"hello", "damaged"),
    "x.npy": (b"hello", "damaged"),
    "x.safetensors": (b"hello", "damaged"),
    "x.parquet": (b"hello", "damaged"),
    "x.pt": (b"hello", "damaged"),
    "empty.npz": (b"", "damaged"),
    "empty.csv": (b"", "not a single byte"),
    "x.csv": (b"a,b,labels\n", "column names"),
    "numbers.csv": (b"1,2,3\n4,5,6\n", "first row must hold column names"),
    "short.csv": (b"a,b,labels\n1,2,0\n1,2\n", "line 3 has 2 fields"),
    "text.csv": (b"a,b,labels\n1,x,0\n", "not numbers"),
    "bytes.csv": (b"\xff\xfe\x00a,b", "readable"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_named(tmp_path, name):
    content, message = DAMAGED[name]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(FileError, match=message) as caught:
        files.read(tmp_path / name)
    assert name in str(caught.value)


def test_what_was_found_is_listed(tmp_path):
    np.savez(tmp_path / "x.npz", scores=Z, y=Y)
    with pytest.raises(FileError, match=r"found scores \(30, 3\), y \(30,\); need 'logits'.*logits_name="):
        files.read(tmp_path / "x.npz")
    with pytest.raises(FileError, match="a folder"):
        files.read(tmp_path)


class Bomb:
    def __reduce__(self):
        return os.system, ("touch exploded",)


@pytest.mark.parametrize("ending", [".npz", ".npy", ".pt"])
def test_nothing_is_unpickled(tmp_path, ending, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bomb = np.array([Bomb()], dtype=object)
    if ending == ".npz":
        np.savez("x.npz", logits=bomb)
    elif ending == ".npy":
        np.save("x.npy", bomb, allow_pickle=True)
    else:
        torch.save({"logits": Bomb()}, "x.pt")
    with pytest.raises(FileError, match="never unpickled"):
        files.read(tmp_path / f"x{ending}").calibration_set()
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("ending", [".npz", ".npy", ".csv", ".safetensors"])
def test_writes_and_reads_back(tmp_path, ending):
    path = tmp_path / f"x{ending}"
    write_arrays(path, {"probs": Z, "predicted": Y})
    found = {".npz": np.load, ".npy": np.load, ".csv": pd.read_csv, ".safetensors": load_file}[ending](path)
    if ending == ".npy":
        np.testing.assert_array_equal(found, Z)
    elif ending == ".csv":
        assert list(found) == ["probs_0", "probs_1", "probs_2", "predicted"]
        np.testing.assert_allclose(found.iloc[:, :3], Z, rtol=1e-7)
    else:
        np.testing.assert_array_equal(found["probs"], Z)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    target = tmp_path / "x.txt"
    target.write_text("old", encoding="utf-8")

    def interrupted():
        with writing(target) as unfinished:
            unfinished.write_text("half", encoding="utf-8")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert target.read_text(encoding="utf-8") == "old"
    assert os.listdir(tmp_path) == ["x.txt"]  # noqa: PTH208
    with pytest.raises(FileError, match="does not exist"), writing(tmp_path / "no" / "x"):
        pass
    with pytest.raises(FileError, match="cannot write"):
        write_arrays(tmp_path / "x.xls", {"probs": Z})


# Artifacts ----------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::rhocal.errors.RhocalWarning")
@pytest.mark.parametrize("name", CALIBRATORS)
def test_round_trip_is_bit_exact(tmp_path, name):
    cal = quick(name).fit(Z, np.array(["x", "yy", "z"])[Y], classes=["x", "yy", "z"])
    path = tmp_path / "cal.safetensors"
    cal.save(path)
    again = rhocal.load(path)
    assert type(again) is type(cal)
    assert repr(again) == repr(cal)
    np.testing.assert_array_equal(again.predict_proba(Z), cal.predict_proba(Z))
    np.testing.assert_array_equal(again.predict(Z), cal.predict(Z))
    for parameter in cal.parameters:
        np.testing.assert_array_equal(getattr(again, parameter), getattr(cal, parameter))
        assert type(getattr(again, parameter)) is type(getattr(cal, parameter))
        assert np.shape(getattr(again, parameter)) == np.shape(getattr(cal, parameter))
    assert json.dumps(card_of(path)["evidence"]["trials"]) == json.dumps(list(cal.solution_.trials))
    assert str(again.solution_) == str(cal.solution_)


def test_an_objective_made_in_python_is_saved_as_its_text(tmp_path):
    cal = rhocal.TemperatureScaling(objective=rhocal.NLL() + 0.5 * rhocal.Brier()).fit(Z, Y)
    cal.save(tmp_path / "cal.safetensors")
    assert rhocal.load(tmp_path / "cal.safetensors").objective == "nll + 0.5*brier"


def test_numbers_as_classes_come_back_as_numbers(tmp_path):
    cal = rhocal.TemperatureScaling().fit(Z, np.array([10, 20, 30])[Y], classes=[10, 20, 30])
    cal.save(tmp_path / "cal.safetensors")
    assert rhocal.load(tmp_path / "cal.safetensors").predict(Z).tolist() == cal.predict(Z).tolist()


def test_kind_is_saved(tmp_path):
    p = np.exp(Z) / np.exp(Z).sum(1, keepdims=True)
    cal = rhocal.TemperatureScaling().fit(p, Y, kind="probs")
    cal.save(tmp_path / "cal.safetensors")
    np.testing.assert_array_equal(rhocal.load(tmp_path / "cal.safetensors").predict_proba(p), cal.predict_proba(p))


def test_foreign_newer_and_damaged_artifacts(tmp_path):
    path = tmp_path / "cal.safetensors"
    with pytest.raises(FileError, match="no such file"):
        rhocal.load(path)
    path.write_bytes(b"nonsense")
    with pytest.raises(FileError, match="damaged"):
        rhocal.load(path)
    save_file({"weight": Z}, path)
    with pytest.raises(FileError, match="not a rhocal calibrator \\(it holds weight\\)"):
        rhocal.load(path)
    rhocal.TemperatureScaling().fit(Z, Y).save(path)
    card, tensors = card_of(path), load_file(path)
    for change, message in (
        ({"schema": 99, "version": "9.0"}, "written by rhocal 9.0 with schema 99.*Upgrade"),
        ({"method": "magic"}, "does not know the method 'magic'"),
        ({"options": {"nope": 1}}, "options do not fit"),
        ({"format": "other"}, "not a calibrator"),
    ):
        save_file(tensors, path, metadata={"rhocal": json.dumps(card | change)})
        with pytest.raises(FileError, match=message):
            rhocal.load(path)
    save_file({"n_classes": tensors["n_classes"]}, path, metadata={"rhocal": json.dumps(card)})
    with pytest.raises(FileError, match="temperature_ is missing"):
        rhocal.load(path)
    save_file(tensors, path, metadata={"rhocal": "{"})
    with pytest.raises(FileError, match="description cannot be read"):
        rhocal.load(path)


def test_what_cannot_be_saved_is_said(tmp_path):
    with pytest.raises(rhocal.errors.NotFittedError):
        rhocal.TemperatureScaling().save(tmp_path / "x.safetensors")
    dates = np.array(["2020-01-01", "2020-01-02", "2020-01-03"], "datetime64[D]")
    cal = rhocal.TemperatureScaling().fit(Z, dates[Y], classes=dates)
    with pytest.raises(InputError, match="classes of type date cannot be saved"):
        cal.save(tmp_path / "x.safetensors")
