"""Readers of images, on small files made in each official format; and what damaged or hostile files meet."""

import gzip
import os
import pickle
import struct
import zipfile

import numpy as np
import pytest
from scipy.io import savemat

from pictures import noise, picture, same, tar
from rhocal.errors import FileError, InputError
from rhocal_paper.train.data import OFFICIAL, READERS, held_out, load, verify


def planes(images):
    """(n, 32, 32, 3) as CIFAR stores it: red, green, blue, each row by row."""
    return images.transpose(0, 3, 1, 2).reshape(len(images), -1)


@pytest.fixture
def cifar10():
    return noise(60, 32, 32, 3), np.arange(60) % 10


def cifar10_binary(images, labels, folder="cifar-10-batches-bin"):
    records = np.hstack([labels[:, None].astype(np.uint8), planes(images)])
    files = {f"{folder}/data_batch_{k + 1}.bin": records[10 * k : 10 * k + 10].tobytes() for k in range(5)}
    names = "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n"
    return files | {f"{folder}/test_batch.bin": records[50:].tobytes(), f"{folder}/batches.meta.txt": names.encode()}


def test_cifar10_binary(tmp_path, cifar10):
    images, labels = cifar10
    tar(tmp_path / "cifar-10-binary.tar.gz", cifar10_binary(images, labels))
    data = load("cifar10", tmp_path)
    assert same(data, images[:50], labels[:50])
    assert np.array_equal(data.test.pixels, images[50:])
    assert np.array_equal(data.test.labels, labels[50:])
    assert data.classes[0] == "airplane"
    assert len(data.classes) == 10
    assert data.mirror


def test_cifar10_binary_unpacked(tmp_path, cifar10):
    images, labels = cifar10
    for name, content in cifar10_binary(images, labels).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    assert same(load("cifar10", tmp_path), images[:50], labels[:50])


def test_cifar100_binary_takes_the_fine_label(tmp_path):
    images, fine = noise(200, 32, 32, 3), np.arange(200) % 100
    records = np.hstack([np.full((200, 1), 19, np.uint8), fine[:, None].astype(np.uint8), planes(images)])
    files = {
        "cifar-100-binary/train.bin": records[:150].tobytes(),
        "cifar-100-binary/test.bin": records[150:].tobytes(),
    }
    tar(tmp_path / "cifar-100-binary.tar.gz", files)
    data = load("cifar100", tmp_path)
    assert same(data, images[:150], fine[:150])
    assert data.classes == tuple(map(str, range(100)))


def old_pickle(content):
    """As the official files are: protocol 2. Python 3 writes their bytes in a roundabout way, which is read too."""
    return pickle.dumps(content, protocol=2)


def cifar10_pickles(images, labels):
    files = {}
    for k, name in enumerate([*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]):
        rows = slice(10 * k, 10 * k + 10)
        content = {b"data": planes(images[rows]), b"labels": labels[rows].tolist(), b"batch_label": b"a batch"}
        files[f"cifar-10-batches-py/{name}"] = old_pickle(content)
    return files | {"cifar-10-batches-py/batches.meta": old_pickle({b"label_names": [b"x%d" % k for k in range(10)]})}


def test_cifar10_python(tmp_path, cifar10):
    images, labels = cifar10
    tar(tmp_path / "cifar-10-python.tar.gz", cifar10_pickles(images, labels))
    data = load("cifar10", tmp_path)
    assert same(data, images[:50], labels[:50])
    assert data.classes[3] == "x3"


def test_cifar_as_python_2_wrote_it(tmp_path, cifar10):
    """The opcodes of the official files: byte strings as SHORT_BINSTRING/BINSTRING, numpy.core, a numpy dtype."""
    images, labels = cifar10
    files = cifar10_pickles(images, labels)
    pixels = planes(images[:10])

    def text(data):
        return b"U" + bytes([len(data)]) + data if len(data) < 256 else b"T" + struct.pack("<i", len(data)) + data

    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n" + b"cnumpy\nndarray\n" + b"K\x00\x85" + text(b"b") + b"\x87R"
        + b"(K\x01" + b"K\x0aM\x00\x0c\x86"
        + b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R(K\x03" + text(b"|") + b"NNN"
        + b"J\xff\xff\xff\xff" * 2 + b"K\x00tb"
        + b"\x89" + text(pixels.tobytes()) + b"tb"
    )  # fmt: skip
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels[:10]) + b"e"
    files["cifar-10-batches-py/data_batch_1"] = (
        b"\x80\x02}(" + text(b"data") + array + text(b"labels") + numbers + b"u."
    )
    tar(tmp_path / "cifar-10-python.tar.gz", files)
    assert same(load("cifar10", tmp_path), images[:50], labels[:50])


def test_the_binary_form_is_preferred(tmp_path, cifar10):
    images, labels = cifar10
    tar(tmp_path / "cifar-10-binary.tar.gz", cifar10_binary(images, labels))
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"never looked at")
    assert len(load("cifar10", tmp_path).test) == 10


class Bomb:
    def __init__(self, what, *arguments):
        self.what, self.arguments = what, arguments

    def __reduce__(self):
        return self.what, self.arguments


@pytest.mark.parametrize(
    "bomb",
    [
        Bomb(os.mkdir, "exploded"),
        Bomb(eval, "1"),
        Bomb(np.load, "x.npy"),
        np.array([{1: 2}], object),
        Bomb(np.dtype, "O"),
        bytearray(b"x"),
    ],
    ids=["os", "eval", "numpy.load", "objects", "dtype", "bytearray"],
)
def test_a_hostile_pickle_is_refused_and_does_nothing(tmp_path, cifar10, bomb, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = cifar10_pickles(*cifar10)
    files["cifar-10-batches-py/data_batch_3"] = pickle.dumps({b"data": bomb, b"labels": []}, protocol=2)
    tar(tmp_path / "cifar-10-python.tar.gz", files)
    with pytest.raises(FileError, match="not a CIFAR file"):
        load("cifar10", tmp_path)
    assert not (tmp_path / "exploded").exists()


def test_damaged_cifar(tmp_path, cifar10):
    files = cifar10_binary(*cifar10)
    for name, content, says in (
        ("data_batch_2.bin", b"\0" * 3000, "no whole number of records"),
        ("data_batch_2.bin", b"", "no whole number of records"),
        ("data_batch_2.bin", bytes([10]) + bytes(3072), "labels go from 0 to 10"),
        ("batches.meta.txt", b"cat\ndog\n", "2 class names; expected 10"),
    ):
        tar(tmp_path / "cifar-10-binary.tar.gz", files | {f"cifar-10-batches-bin/{name}": content})
        with pytest.raises(FileError, match=says):
            load("cifar10", tmp_path)
    del files["cifar-10-batches-bin/data_batch_4.bin"]
    tar(tmp_path / "cifar-10-binary.tar.gz", files)
    with pytest.raises(FileError, match=r"has no data_batch_4\.bin"):
        load("cifar10", tmp_path)
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(b"not an archive")
    with pytest.raises(FileError, match="missing or damaged"):
        load("cifar10", tmp_path)


def idx(array):
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def test_fashion_mnist(tmp_path):
    images, labels = noise(40, 28, 28), (np.arange(40) % 10).astype(np.uint8)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images[:30])))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(labels[:30]))  # unpacked is read too
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images[30:])))
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels[30:])))
    data = load("fashion-mnist", tmp_path)
    assert data.test.pixels.shape == (10, 32, 32, 1)
    assert np.array_equal(data.test.pixels[:, 2:-2, 2:-2, 0], images[30:])
    assert data.test.pixels[:, :2].max() == 0
    assert same(data, np.pad(images[:30], ((0, 0), (2, 2), (2, 2)))[..., None], labels[:30])

    path = tmp_path / "t10k-labels-idx1-ubyte.gz"
    for content, says in (
        (gzip.compress(idx(images[:2])), "begins with 00 00 08 03"),
        (gzip.compress(idx(labels)[:-1]), r"says \(40,\), but holds 39 bytes"),
        (gzip.compress(idx(labels))[:-9], "damaged"),
        (gzip.compress(idx(labels[:3])), "10 test images, but 3 labels"),
    ):
        path.write_bytes(content)
        with pytest.raises(FileError, match=says):
            load("fashion-mnist", tmp_path)


def test_svhn(tmp_path):
    images, digits = noise(50, 32, 32, 3), np.arange(50) % 10
    stored = np.where(digits == 0, 10, digits)[:, None].astype(np.uint8)  # 10 stands for 0
    for name, rows in (("train", slice(0, 30)), ("test", slice(30, 50))):
        savemat(tmp_path / f"{name}_32x32.mat", {"X": images[rows].transpose(1, 2, 3, 0), "y": stored[rows]})
    data = load("svhn", tmp_path)
    assert same(data, images[:30], digits[:30])
    assert np.array_equal(data.test.labels, digits[30:])
    assert not data.mirror  # a digit in a mirror is another digit, or none
    savemat(tmp_path / "test_32x32.mat", {"X": images[:3]})
    with pytest.raises(FileError, match="has no array of numbers 'y'"):
        load("svhn", tmp_path)
    (tmp_path / "test_32x32.mat").write_bytes(b"MATLAB? no" * 50)
    with pytest.raises(FileError, match="not a MATLAB file of version 5"):
        load("svhn", tmp_path)


def flowers(folder, sizes):
    n = len(sizes)
    shades = {k: np.full((*sizes[k], 3), k, np.uint8) for k in range(n)}
    tar(folder / "102flowers.tgz", {f"jpg/image_{k + 1:05d}.jpg": picture(shades[k], "JPEG") for k in range(n)})
    savemat(folder / "imagelabels.mat", {"labels": np.arange(1, n + 1, dtype=np.uint8)[None]})
    numbers = np.arange(1, n + 1, dtype=np.uint16)[None]
    savemat(folder / "setid.mat", {"trnid": numbers[:, 4:], "valid": numbers[:, :2], "tstid": numbers[:, 2:4]})


def test_flowers(tmp_path):
    flowers(tmp_path, [(40, 30)] * 4 + [(33, 60)] * 5)
    data = load("flowers102", tmp_path, 32)
    assert len(data.classes) == 102
    assert data.train.pixels.shape == (5, 32, 32, 3)
    assert data.train.labels.tolist() == [4, 5, 6, 7, 8]
    assert data.tune.labels.tolist() == [0, 1]  # its own validation set
    assert data.test.labels.tolist() == [2, 3]
    assert abs(data.test.pixels[1].astype(int) - 3).max() <= 1  # the picture of that number
    with pytest.raises(InputError, match="33×60 pixels, others are 40×30; give one size with --size"):
        load("flowers102", tmp_path)
    savemat(tmp_path / "setid.mat", {"trnid": [[1, 2]], "valid": [[3]], "tstid": [[99]]})
    with pytest.raises(FileError, match="image_00099"):
        load("flowers102", tmp_path, 32)


def test_tiny_imagenet(tmp_path):
    train = {f"n0{c}": noise(10, 64, 64, 3) for c in range(3)}
    val = noise(3, 64, 64, 3)
    with zipfile.ZipFile(tmp_path / "tiny-imagenet-200.zip", "w") as archive:
        for c, images in train.items():
            for k, image in enumerate(images):
                archive.writestr(f"tiny-imagenet-200/train/{c}/images/{c}_{k}.JPEG", picture(image))
        rows = "".join(f"val_{k}.JPEG\tn0{2 - k}\t0\t0\t62\t62\n" for k in range(3))
        archive.writestr("tiny-imagenet-200/val/val_annotations.txt", rows)
        for k, image in enumerate(val):
            archive.writestr(f"tiny-imagenet-200/val/images/val_{k}.JPEG", picture(image))
        archive.writestr("tiny-imagenet-200/test/images/test_0.JPEG", picture(val[0]))  # has no label: not used
    data = load("tiny-imagenet", tmp_path)
    assert same(data, np.concatenate(list(train.values())), np.repeat([0, 1, 2], 10))
    assert data.test.labels.tolist() == [0, 1, 2]  # sorted by class
    assert np.array_equal(data.test.pixels, val[::-1])
    assert data.classes == ("n00", "n01", "n02")
    assert load("tiny-imagenet", tmp_path, 32).test.pixels.shape == (3, 32, 32, 3)


@pytest.mark.parametrize("name", READERS)
def test_missing_files_are_named_with_their_checksum(tmp_path, name):
    with pytest.raises(FileError) as caught:
        load(name, tmp_path)
    message = str(caught.value)
    assert str(tmp_path) in message
    for file, md5 in OFFICIAL[name].files.items():
        assert file in message
        assert md5 in message
        assert len(md5) == 32
    assert set(READERS) == set(OFFICIAL)


def test_verify(tmp_path):
    (tmp_path / "setid.mat").write_bytes(b"something else")
    assert verify("flowers102", tmp_path) == {"setid.mat": False}
    with pytest.raises(FileError, match="no CIFAR-10 in"):
        verify("cifar10", tmp_path)


def test_what_load_refuses(tmp_path):
    with pytest.raises(InputError, match="neither an official set"):
        load("cifar11", tmp_path)
    with pytest.raises(InputError, match="images of one size"):
        load("cifar10", tmp_path, 64)


def test_the_tune_set_is_fixed_and_stratified():
    labels = np.repeat([0, 1, 2, 3], [100, 50, 5, 1])
    held, kept = held_out(labels, 0.1)
    assert np.bincount(labels[held], minlength=4).tolist() == [10, 5, 1, 0]  # a class of one image stays in training
    assert sorted([*held, *kept]) == list(range(156))
    assert np.array_equal(held, held_out(labels, 0.1)[0])
