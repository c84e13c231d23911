"""Unfinished outputs: one writer at a time, checksums of what is continued, no links, permissions kept."""

import os
import stat

import numpy as np
import pytest

import rhocal
from helpers import synthetic
from rhocal.calibrators.applying import apply
from rhocal.data.formats import base, write_arrays
from rhocal.data.storage.atomic import writing
from rhocal.data.storage.part_file import PartFile
from rhocal.errors import FileError

Z, Y = synthetic(400, 4, dtype=np.float32)
CAL = rhocal.TemperatureScaling().fit(Z, Y)


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.setattr(base, "BLOCK_ENTRIES", 200)
    np.savez(tmp_path / "z.npz", logits=Z, labels=Y)
    return tmp_path / "z.npz"


def interrupted(source, output, monkeypatch, n_blocks=4):
    """Apply to the first blocks and stop."""
    write_block = PartFile.write_block

    def stop(part, pieces):
        write_block(part, pieces)
        if part.n_blocks == n_blocks:
            raise KeyboardInterrupt

    monkeypatch.setattr(PartFile, "write_block", stop)
    with pytest.raises(KeyboardInterrupt):
        apply(CAL, rhocal.stream(source), output)
    monkeypatch.setattr(PartFile, "write_block", write_block)
    return output.with_name(f".{output.name}.part"), output.with_name(f".{output.name}.journal")


def resumed(source, output):
    report = apply(CAL, rhocal.stream(source), output)
    np.testing.assert_array_equal(np.load(output), CAL.predict_proba(Z))
    assert not list(output.parent.glob(".*"))
    return report["resumed_at"]


def test_a_run_is_continued(source, monkeypatch):
    output = source.with_name("o.npy")
    interrupted(source, output, monkeypatch)
    assert resumed(source, output) == 200
    interrupted(source, output, monkeypatch, n_blocks=8)  # all rows are there, the file has no name yet
    assert resumed(source, output) == 350


def test_a_part_that_is_cut_off_or_changed(source, monkeypatch):
    output = source.with_name("o.npy")
    part, _ = interrupted(source, output, monkeypatch)
    part.write_bytes(part.read_bytes()[:500])
    assert resumed(source, output) == 0
    for place, kept in ((3, 0), (200, 0), (128 + 60 * 16, 50), (128 + 199 * 16, 150)):
        interrupted(source, output, monkeypatch)
        content = bytearray(part.read_bytes())
        content[place] ^= 1
        part.write_bytes(content)
        assert resumed(source, output) == kept


def test_a_journal_that_is_cut_off_or_changed(source, monkeypatch):
    output = source.with_name("o.npy")
    _, journal = interrupted(source, output, monkeypatch)
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines)[:-7])
    interrupted_again = interrupted(source, output, monkeypatch, n_blocks=6)
    assert interrupted_again[1] == journal
    assert resumed(source, output) == 300
    for content in (b"", b"{}", b"\xff\n", lines[1]):
        interrupted(source, output, monkeypatch)
        journal.write_bytes(content)
        assert resumed_or_refused(source, output)


def resumed_or_refused(source, output):
    try:
        return resumed(source, output) == 0
    except FileError as error:
        apply(CAL, rhocal.stream(source), output, restart=True)
        return "left by an interrupted run" in str(error)


def test_another_writer_is_refused(source):
    output = source.with_name("o.npy")
    with PartFile(output, "other", restart=False):
        for restart in (False, True):
            with pytest.raises(FileError, match="another process is writing it"):
                apply(CAL, rhocal.stream(source), output, restart=restart)


@pytest.mark.parametrize("ending", ["part", "journal"])
def test_links_are_not_followed(source, ending):
    output, victim = source.with_name("o.npy"), source.with_name("victim")
    victim.write_bytes(b"keep me" * 1000)
    planted = source.with_name(f".o.npy.{ending}")
    planted.symlink_to(victim)
    try:
        apply(CAL, rhocal.stream(source), output)
    except FileError as error:
        assert str(planted) in str(error)  # noqa: PT017 - replacing the link is as good
    assert victim.read_bytes() == b"keep me" * 1000
    planted.unlink(missing_ok=True)
    planted.hardlink_to(victim)
    try:
        apply(CAL, rhocal.stream(source), output)
    except FileError as error:
        assert "remove it" in str(error)  # noqa: PT017
    assert victim.read_bytes() == b"keep me" * 1000


def test_permissions_are_kept(source, tmp_path):
    for name in ("o.npy", "o.safetensors", "o.npz"):
        output = tmp_path / name
        apply(CAL, Z if name == "o.npz" else rhocal.stream(source), output)
        assert stat.S_IMODE(output.stat().st_mode) == 0o666 & ~umask()
        output.chmod(0o600)
        apply(CAL, Z if name == "o.npz" else rhocal.stream(source), output)
        assert stat.S_IMODE(output.stat().st_mode) == 0o600
    CAL.save(tmp_path / "c.safetensors")
    (tmp_path / "c.safetensors").chmod(0o640)
    CAL.save(tmp_path / "c.safetensors")
    assert stat.S_IMODE((tmp_path / "c.safetensors").stat().st_mode) == 0o640


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_bytes_are_on_the_disk_before_the_name(tmp_path, monkeypatch):
    events = []
    replace, fsync = type(tmp_path).replace, os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (events.append("sync"), fsync(file))[1])
    monkeypatch.setattr(type(tmp_path), "replace", lambda path, to: (events.append("rename"), replace(path, to))[1])
    with writing(tmp_path / "x.txt") as unfinished:
        unfinished.write_text("x")
    write_arrays(tmp_path / "x.npz", {"logits": Z})
    assert events == ["sync", "rename", "sync"] * 2


def test_an_input_that_was_replaced_is_another_run(source, monkeypatch):
    output, status = source.with_name("o.npy"), source.stat()
    interrupted(source, output, monkeypatch)
    np.savez(source, logits=-Z, labels=Y)
    os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert source.stat().st_size == status.st_size
    with pytest.raises(FileError, match="another input"):
        apply(CAL, rhocal.stream(source), output)
