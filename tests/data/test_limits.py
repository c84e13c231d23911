"""A small file that expands to gigabytes is refused before its arrays are read."""

import tracemalloc
import zipfile
from io import BytesIO

import numpy as np
import pytest

import rhocal
from helpers import run
from rhocal.errors import FileError


@pytest.fixture
def bomb(tmp_path):
    """Zeros, compressed, that are 800 MB."""
    header, path = BytesIO(), tmp_path / "bomb.npz"
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (100_000, 1000)})
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("logits.npy", "w", force_zip64=True) as member,
    ):
        member.write(header.getvalue())
        for _ in range(50):
            member.write(bytes(16_000_000))
    return path


def test_a_small_archive_that_expands_to_gigabytes_is_refused(bomb):
    assert bomb.stat().st_size < 5e6
    tracemalloc.start()
    try:
        with pytest.raises(FileError, match="expand to 800,000,000, more than 100 times"):
            rhocal.stream(bomb)
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()
    done = run("fit", bomb, "-m", "temperature", "-o", bomb.with_name("out.safetensors"), code=2)
    assert "expand to" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_header_that_promises_more_than_the_file_has_is_refused(tmp_path):
    path = tmp_path / "short.npy"
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (10**12, 10)})
    with pytest.raises(FileError):
        rhocal.stream(path, labels=np.zeros(3))


def test_zeros_that_are_not_many_are_read(tmp_path):
    np.savez_compressed(tmp_path / "zeros.npz", logits=np.zeros((20_000, 10)), labels=np.arange(20_000) % 10)
    np.savez_compressed(
        tmp_path / "normal.npz", logits=np.random.default_rng(0).normal(size=(500, 10)), labels=np.arange(500) % 10
    )
    for name in ("zeros", "normal"):
        run("evaluate", tmp_path / f"{name}.npz", "--kind", "logits")
