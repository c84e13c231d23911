"""Pictures in folders and archives of any name: how they are read, and what damaged or hostile ones meet."""

import tarfile
import zipfile

import numpy as np
import pytest

from pictures import noise, picture, same, tar
from rhocal.errors import FileError
from rhocal_paper.train.data import load
from rhocal_paper.train.data.archive import walk


def tree(splits):
    images = {name: noise(16, 16, 3) for name in splits}
    return images, {name: picture(image) for name, image in images.items()}


def test_any_folder_tar_or_zip(tmp_path):
    names = [f"set/{split}/{c}/{k}.png" for split in ("train", "test") for c in ("cat", "ant") for k in range(10)]
    images, files = tree(names)
    tar(tmp_path / "x.tar.gz", files | {"set/README.txt": b"not a picture", "set/train/cat/._1.png": b"nor this"})
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for name, content in reversed(files.items()):
            archive.writestr(name, content)
    for name, content in files.items():
        (tmp_path / "x" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "x" / name).write_bytes(content)
    for source in ("x.tar.gz", "x.zip", "x"):
        data = load(str(tmp_path / source))
        assert data.classes == ("ant", "cat")
        train = [name for name in names if "train" in name]
        assert same(data, [images[name] for name in train], ["cat" in name for name in train])
        assert len(data.tune) == 2
        assert np.array_equal(data.test.pixels[0], images["set/test/ant/0.png"])


def test_folders_with_their_own_val_and_without_splits(tmp_path):
    _, files = tree([f"{split}/{c}/{k}.png" for split in ("train", "val", "test") for c in "ab" for k in range(5)])
    tar(tmp_path / "three.tar.gz", files)
    data = load(str(tmp_path / "three.tar.gz"))
    assert (len(data.train), len(data.tune), len(data.test)) == (10, 10, 10)
    _, files = tree([f"{c}/{k}.png" for c in "ab" for k in range(50)])
    tar(tmp_path / "none.tar.gz", files)
    data = load(str(tmp_path / "none.tar.gz"))
    assert (len(data.train), len(data.tune), len(data.test)) == (72, 8, 20)
    parts = [{image.tobytes() for image in part.pixels} for part in (data.train, data.tune, data.test)]
    assert len(set.union(*parts)) == 100  # nothing twice


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["1.png"], "lies in no folder of its class"),
        (["train/a/1.png", "test/a/2.png"], "one class only"),
        (["test/a/1.png", "test/b/2.png"], "no folder train"),
        (["train/a/1.png", "extra/b/2.png"], "in none of train, val and test"),
        ([], "holds no pictures"),
    ],
)
def test_folders_refused(tmp_path, names, says):
    tar(tmp_path / "x.tar.gz", tree(names)[1])
    with pytest.raises(FileError, match=says):
        load(str(tmp_path / "x.tar.gz"))


def test_pictures_that_are_none(tmp_path):
    tar(tmp_path / "x.tar.gz", tree(["train/a/1.png"])[1] | {"train/b/2.png": b"hello"})
    with pytest.raises(FileError, match=r"train/b/2\.png: not a readable picture"):
        load(str(tmp_path / "x.tar.gz"))


@pytest.mark.parametrize("name", ["../out.png", "/etc/out.png", "a/../../out.png", "a\\b.png"])
def test_archives_cannot_leave_their_folder(tmp_path, name):
    tar(tmp_path / "x.tar.gz", {name: b"x"})
    with pytest.raises(FileError, match="leaves the archive"):
        list(walk(tmp_path / "x.tar.gz", lambda _: True))


def test_links_are_never_followed(tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
            member = tarfile.TarInfo(f"link{kind}")
            member.type, member.linkname = kind, str(tmp_path / "secret")
            archive.addfile(member)
    assert list(walk(tmp_path / "x.tar", lambda _: True)) == []
