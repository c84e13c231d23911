"""Damaged files are refused in memory and block by block; checksums and declared sizes are compared with the bytes."""

import json
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rhocal
from helpers import synthetic
from rhocal.data.files import read
from rhocal.data.formats import base
from rhocal.data.storage.checksums import combine
from rhocal.errors import FileError, RhocalError
from rhocal.evaluation.measure import measure

Z, Y = synthetic(300, 4, dtype=np.float32)
SAMPLES = Path(__file__).parent / "samples"


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(base, "BLOCK_ENTRIES", 200)


def assert_refused(path, match):
    with pytest.raises(RhocalError, match=match):
        read(path).read("test")
    with pytest.raises(RhocalError, match=match):
        measure(rhocal.stream(path))


def changed(path, place, byte=0x5A):
    content = bytearray(path.read_bytes())
    content[place] ^= byte
    path.write_bytes(content)


def test_checksums_of_pieces_combine():
    rng = np.random.default_rng(0)
    for one, other in rng.integers(0, 3000, size=(20, 2)):
        a, b = rng.bytes(int(one)), rng.bytes(int(other))
        assert combine(zlib.crc32(a), zlib.crc32(b), len(b)) == zlib.crc32(a + b)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
def test_checksum_of_a_zip_file(tmp_path, save, order):
    if save is np.savez_compressed and order == "F":
        pytest.skip("is not read block by block")
    path = tmp_path / "x.npz"
    save(path, logits=np.asarray(Z, order=order), labels=Y)
    measure(rhocal.stream(path))
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo("logits.npy")
    for share in (0.3, 0.6, 0.97):  # a number in the first, a middle and the last block
        save(path, logits=np.asarray(Z, order=order), labels=Y)
        changed(path, info.header_offset + 80 + int(share * (info.compress_size - 60)))
        assert_refused(path, "damaged|cannot be read|CRC")


def test_an_array_that_stands_there_twice(tmp_path):
    np.savez(tmp_path / "x.npz", logits=Z, labels=Y)
    with zipfile.ZipFile(tmp_path / "x.npz", "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("logits.npy", archive.read("labels.npy"))
    with pytest.raises(FileError, match="more than once"):
        rhocal.stream(tmp_path / "x.npz")


def test_a_length_in_the_directory_of_an_archive_hides_no_array(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, logits=Z, labels=Y, classes=np.array(["d", "c", "b", "a"]))
    content = bytearray(path.read_bytes())
    entry = content.rfind(b"PK\x01\x02", 0, content.rfind(b"PK\x01\x02"))  # of the labels
    content[entry + 32] = len(content) - content.rfind(b"PK\x01\x02") - 22  # a comment as long as the next entry
    path.write_bytes(content)
    with zipfile.ZipFile(path) as archive:
        assert "classes.npy" not in archive.namelist()
    assert_refused(path, "states 3 members, and 2 are there")


@pytest.mark.parametrize("name", [b"samples/q23_epoch", b"samples/q5_epoch"])
def test_a_damaged_name_in_a_log_hides_no_sample(tmp_path, name):
    path = tmp_path / "x.eval"
    path.write_bytes((SAMPLES / "inspect_letters.eval").read_bytes())
    assert len(rhocal.read_log(path).labels) == 24
    changed(path, path.read_bytes().rfind(name), 1)
    with pytest.raises(FileError, match="differs from the one in the directory"):
        rhocal.read_log(path)


def test_declared_and_present_bytes_of_npy(tmp_path):
    path, labels = tmp_path / "x.npy", tmp_path / "labels.npy"
    np.save(labels, Y)
    np.save(path, Z)
    content = path.read_bytes()
    for changed_content in (content[:-4], content + b"\0" * 16, content.replace(b"(300, 4)", b"(100, 4)")):
        path.write_bytes(changed_content)
        for work in (lambda: read(path, labels=labels), lambda: rhocal.stream(path, labels=labels)):
            with pytest.raises(FileError, match=r"x\.npy: damaged"):
                work()


def safetensors(path, entries, n_bytes):
    header = json.dumps(entries).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + Z.tobytes() + Y.tobytes()[: n_bytes - Z.nbytes])


def test_offsets_of_safetensors(tmp_path):
    path, end = tmp_path / "x.safetensors", Z.nbytes + Y.nbytes
    good = {
        "logits": {"dtype": "F32", "shape": [300, 4], "data_offsets": [0, Z.nbytes]},
        "labels": {"dtype": "I64", "shape": [300], "data_offsets": [Z.nbytes, end]},
    }
    safetensors(path, good, end)
    np.testing.assert_array_equal(read(path).read("test").labels, Y)
    bad_spans = ([4, Z.nbytes + 4], [-4, Z.nbytes - 4], [0, Z.nbytes - 16], [Z.nbytes, 0], [0.0, float(Z.nbytes)])
    bad = [good | {"logits": good["logits"] | {"data_offsets": span}} for span in bad_spans]
    bad += [good | {"logits": good["logits"] | {"shape": shape}} for shape in ([300, 3], [-300, -4], [299, 4])]
    bad += [good | {"labels": good["labels"] | {"data_offsets": [0, Y.nbytes]}}]
    for entries in bad:
        safetensors(path, entries, end)
        with pytest.raises(FileError, match=r"x\.safetensors"):
            rhocal.stream(path)
    safetensors(path, good, end - 8)
    with pytest.raises(FileError, match="the file has"):
        rhocal.stream(path)


def test_ragged_lists_whose_total_divides(tmp_path):
    path = tmp_path / "x.parquet"
    for rows in ([[1.0, 2, 3], [1.0], [1.0, 2]], [[1.0, 2], None, [1.0, 2]], [[1.0, 2], [None, 2], [1.0, 2]]):
        pq.write_table(pa.table({"logits": rows * 10, "labels": [0, 1, 0] * 10}), path)
        assert_refused(path, "differ in length or are missing")
    two_groups = pa.table({"logits": [[1.0, 2, 3]] * 2 + [[1.0, 2, 3, 4]] * 2, "labels": [0, 1, 0, 1]})
    pq.write_table(two_groups, path, row_group_size=2)
    assert_refused(path, "differ in length|differ in the number of classes")


def test_checksums_of_pages(tmp_path):
    path = tmp_path / "x.parquet"
    from rhocal.data.formats import write_arrays

    write_arrays(path, {"logits": Z, "labels": Y})
    content = path.read_bytes()
    changed(path, content.index(Z[100:102].tobytes()[:8]) if Z[100:102].tobytes()[:8] in content else 2000)
    assert_refused(path, "damaged|cannot be read")


def test_keys_and_columns_that_stand_there_twice(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"a": 1.5, "b": 2.5, "a": 3.5, "labels": 0}\n')
    (tmp_path / "x.csv").write_text("a,b,a,labels\n1.5,2.5,3.5,0\n")
    pq.write_table(pa.Table.from_arrays([pa.array([1.5])] * 3, names=["a", "b", "a"]), tmp_path / "x.parquet")
    for ending in ("jsonl", "csv", "parquet"):
        with pytest.raises(FileError, match="'a' stands there more than once"):
            read(tmp_path / f"x.{ending}")


def test_weights_block_by_block(tmp_path):
    weights = np.arange(300.0)
    np.savez(tmp_path / "x.npz", logits=Z, labels=Y, mass=weights)
    source = rhocal.stream(tmp_path / "x.npz", weights_name="mass")
    right = np.average(Z.argmax(axis=1) == Y, weights=weights)
    assert measure(source, metrics=["accuracy"])["accuracy"] == pytest.approx(right)
    with pytest.raises(FileError, match="no array or column 'weight'"):
        rhocal.stream(tmp_path / "x.npz", weights_name="weight")
