"""Files that are read block by block and are damaged, incomplete or of another kind: which one it is, and where."""

import numpy as np
import pytest

import rhocal
from helpers import as_parquet, synthetic, uneven
from rhocal.data import sampling
from rhocal.data.formats import base
from rhocal.errors import FileError, InputError


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """So that a small file has many."""
    monkeypatch.setattr(base, "BLOCK_ENTRIES", 20_000)
    monkeypatch.setattr(sampling, "PILOT_ENTRIES", 40_000)


@pytest.fixture(scope="module")
def data():
    return uneven(1500, 100, np.float16)


def test_bad_blocks_are_named_or_counted(data, tmp_path):
    logits, labels = data
    for k, part in enumerate(np.array_split(np.arange(1500), 3)):
        as_parquet(tmp_path / f"part-{k}.parquet", logits[part].astype(np.float32), labels[part], rows=250)
    stream = rhocal.stream(tmp_path)
    raw = bytearray((tmp_path / "part-1.parquet").read_bytes())
    raw[4:2000] = bytes(1996)  # the first row group of the second file, its footer stays whole
    (tmp_path / "part-1.parquet").write_bytes(raw)
    with pytest.raises(FileError, match=r"part-1\.parquet, row group 0"):
        rhocal.TemperatureScaling().fit(stream)
    patient = rhocal.stream(tmp_path, skip_bad=True)
    cal = rhocal.TemperatureScaling().fit(patient)
    assert len(patient.skipped) == 1
    good = np.r_[0:500, 750:1500]
    same = rhocal.TemperatureScaling().fit(logits[good], labels[good])
    assert cal.temperature_ == pytest.approx(same.temperature_, rel=1e-5)


def test_a_folder_with_an_odd_file(data, tmp_path):
    logits, labels = data
    wide = logits.astype(np.float32)
    for k in range(4):
        rows = slice(300 * k, 300 * (k + 1))
        as_parquet(tmp_path / f"{k}.parquet", wide[rows], labels[rows], rows=100)
    as_parquet(tmp_path / "empty.parquet", wide[:0], labels[:0])
    whole = rhocal.TemperatureScaling().fit(rhocal.stream(tmp_path))  # a file without rows does no harm
    assert whole.temperature_ == pytest.approx(
        rhocal.TemperatureScaling().fit(logits[:1200], labels[:1200]).temperature_, rel=1e-5
    )
    methods = [rhocal.TemperatureScaling(), rhocal.calibrator("vector")]

    as_parquet(tmp_path / "2.parquet", wide[:300, :90], labels[:300] % 90, rows=100)
    for cal in methods:
        with pytest.raises(InputError, match=r"0\.parquet, row group 0 has 100, .*2\.parquet, row group \d has 90"):
            cal.fit(rhocal.stream(tmp_path))
    with pytest.raises(InputError, match=r"0\.parquet, row group 0 has 100, .*2\.parquet, row group 0 has 90"):
        rhocal.measure(rhocal.stream(tmp_path))

    bad = wide[600:900].copy()
    bad[170, 3] = np.nan
    as_parquet(tmp_path / "2.parquet", bad, labels[600:900], rows=100)
    for work in (*(cal.fit for cal in methods), rhocal.measure):
        with pytest.raises(InputError, match=r"2\.parquet, row group 1: logits must be finite.* row 70"):
            work(rhocal.stream(tmp_path))

    stream = rhocal.stream(tmp_path)
    (tmp_path / "3.parquet").unlink()  # between the listing and the reading
    with pytest.raises(FileError, match=r"3\.parquet, row group \d: cannot be read: .*No such file"):
        rhocal.TemperatureScaling().fit(stream)
    (tmp_path / "2.parquet").unlink()
    patient = rhocal.stream(sorted(tmp_path.glob("*.parquet")), skip_bad=True)
    (tmp_path / "1.parquet").unlink()
    cal = rhocal.TemperatureScaling().fit(patient)
    assert len(patient.skipped) == 3  # its three blocks
    assert cal.temperature_ == pytest.approx(
        rhocal.TemperatureScaling().fit(logits[:300], labels[:300]).temperature_, rel=1e-4
    )


def test_what_cannot_be_read_is_said(data, tmp_path):
    logits, labels = data
    np.save(tmp_path / "z.npy", logits)
    np.save(tmp_path / "short.npy", labels[:7])
    np.savez(tmp_path / "z.npz", x=logits)
    whole = (tmp_path / "z.npy").read_bytes()
    (tmp_path / "cut.npy").write_bytes(whole[: len(whole) // 2])
    for name, message in [
        ("none.npy", "no such file"),
        ("z.npz", "need 'logits'"),
        ("*.zip", "no file fits"),
    ]:
        with pytest.raises(FileError, match=message):
            rhocal.stream(tmp_path / name)
    (tmp_path / "nothing.npy").touch()
    with pytest.raises(FileError, match="not a single byte"):
        rhocal.stream(tmp_path / "nothing.npy")
    (tmp_path / "z.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(FileError, match="block by block"):
        rhocal.stream(tmp_path / "z.csv")
    with pytest.raises(FileError, match="differ in length"):
        rhocal.stream(tmp_path / "z.npy", labels=tmp_path / "short.npy")
    np.save(tmp_path / "labels.npy", labels)
    with pytest.raises(FileError, match="cut off"):
        rhocal.TemperatureScaling().fit(rhocal.stream(tmp_path / "cut.npy", labels=tmp_path / "labels.npy"))
    with pytest.raises(InputError, match="labels are missing"):
        rhocal.TemperatureScaling().fit(rhocal.stream(tmp_path / "z.npy"))
    with pytest.raises(InputError, match="bring their own"):
        rhocal.TemperatureScaling().fit(rhocal.stream(tmp_path / "z.npy"), labels)
    with pytest.raises(InputError, match=r"block 0 must be"):
        rhocal.TemperatureScaling().fit(rhocal.stream(iter([logits])))
    bad = logits.copy()
    bad[1399, 3] = np.nan  # a block that gives no sample to the pilot
    np.savez(tmp_path / "bad.npz", logits=bad, labels=labels)
    with pytest.raises(InputError, match=r"bad\.npz, rows 1,200 to 1,400: .*row 199"):
        rhocal.TemperatureScaling().fit(rhocal.stream(tmp_path / "bad.npz"))


def test_a_folder_with_data_in_other_formats_is_refused(tmp_path):
    logits, labels = synthetic(40)
    as_parquet(tmp_path / "a.parquet", logits, labels)
    rhocal.TemperatureScaling().fit(logits, labels).save(tmp_path / "cal.safetensors")
    for name in (".b.csv", "_c.csv", "d.csv.tmp", "state.json", "README.md"):  # hidden, temporary, about the others
        (tmp_path / name).write_text("0,1,labels\n1,2,0\n")
    (tmp_path / "empty").mkdir()
    assert rhocal.stream(tmp_path).n_rows == 40
    (tmp_path / "e.csv").write_text("0,1,labels\n1,2,0\n")
    (tmp_path / "more").mkdir()
    as_parquet(tmp_path / "more" / "f.parquet", logits, labels)
    with pytest.raises(FileError, match=r"holds e\.csv, more/ beside \.parquet files.*\*\.parquet"):
        rhocal.stream(tmp_path)
    assert rhocal.stream(str(tmp_path / "*.parquet")).n_rows == 40
