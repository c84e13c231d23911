"""CIFAR-10 and CIFAR-100: the binary files (preferred), or the Python ones through a reader that calls nothing else."""

from __future__ import annotations

import io
import pickle
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.errors import FileError
from rhocal_paper.train.data.archive import walk
from rhocal_paper.train.data.dataset import Dataset, Images, dataset
from rhocal_paper.train.data.official import OFFICIAL

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SIDE = 32
PIXELS = 3 * SIDE * SIDE

_TEN = [f"data_batch_{k}" for k in range(1, 6)]
TRAIN = {"cifar10": _TEN, "cifar100": ["train"]}
TEST = {"cifar10": "test_batch", "cifar100": "test"}
NAMES = {"cifar10": ("batches.meta.txt", "batches.meta"), "cifar100": ("fine_label_names.txt", "meta")}
N_CLASSES = {"cifar10": 10, "cifar100": 100}
SOURCES = {
    "cifar10": ("cifar-10-binary.tar.gz", "cifar-10-batches-bin", "cifar-10-python.tar.gz", "cifar-10-batches-py"),
    "cifar100": ("cifar-100-binary.tar.gz", "cifar-100-binary", "cifar-100-python.tar.gz", "cifar-100-python"),
}
"""Where the files may be, the binary ones first: the archive, or the folder that it makes."""


def read_cifar(name: str, root: Path) -> Dataset:
    """Read ``cifar10`` or ``cifar100``."""
    source = next((root / file for file in SOURCES[name] if (root / file).exists()), None)
    if source is None:
        raise OFFICIAL[name].missing(root)
    binary = "bin" in source.name
    parts = [*TRAIN[name], TEST[name]]
    files = [f"{part}.bin" for part in parts] if binary else parts
    names_file = NAMES[name][0 if binary else 1]
    found = {
        PurePosixPath(path).name: data
        for path, data in walk(source, lambda path: PurePosixPath(path).name in {*files, names_file})
    }
    for file in files:
        if file not in found:
            raise FileError(f"{source}: has no {file}")
    read: Callable[[str, bytes, str], Images] = from_binary if binary else from_pickle
    images = [read(name, found[file], f"{source}, {file}") for file in files]
    train = Images(
        np.concatenate([part.pixels for part in images[:-1]]), np.concatenate([part.labels for part in images[:-1]])
    )
    return dataset(OFFICIAL[name].title, train, images[-1], _classes(name, found.get(names_file), binary=binary))


def from_binary(name: str, data: bytes, where: str) -> Images:
    """Records of a label byte (for CIFAR-100 the coarse label, then the fine one) and 3,072 bytes, plane by plane."""
    n_labels = 1 if name == "cifar10" else 2
    if not data or len(data) % (n_labels + PIXELS):
        raise FileError(f"{where}: {len(data)} bytes are no whole number of records of {n_labels + PIXELS}")
    records = np.frombuffer(data, np.uint8).reshape(-1, n_labels + PIXELS)
    return Images(_images(records[:, n_labels:]), records[:, n_labels - 1].astype(np.int64))


def from_pickle(name: str, data: bytes, where: str) -> Images:
    """A dictionary with ``data`` (n, 3072) and ``labels`` or ``fine_labels``."""
    content = _plain(data, where)
    pixels, labels = content.get(b"data"), content.get(b"labels" if name == "cifar10" else b"fine_labels")
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != PIXELS:
        raise FileError(f"{where}: no array `data` of bytes, n × {PIXELS}")
    if not isinstance(labels, list) or not all(isinstance(label, int) for label in labels):
        raise FileError(f"{where}: no list of labels")
    return Images(_images(pixels), np.array(labels, np.int64))


def _images(planes: Any) -> Any:
    return np.ascontiguousarray(planes.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1))


def _classes(name: str, data: bytes | None, *, binary: bool) -> tuple[str, ...]:
    """Names of the classes; numbers where the file of names is not there."""
    if data is None:
        return tuple(str(k) for k in range(N_CLASSES[name]))
    if binary:
        names = data.decode("utf-8", "replace").split()
    else:
        key = b"label_names" if name == "cifar10" else b"fine_label_names"
        names = [text.decode("utf-8", "replace") for text in _plain(data, NAMES[name][1]).get(key, [])]
    if len(names) != N_CLASSES[name]:
        raise FileError(f"{name}: {len(names)} class names; expected {N_CLASSES[name]}")
    return tuple(names)


def _plain(data: bytes, where: str) -> dict[bytes, Any]:
    """A pickled dictionary of texts, numbers, lists and arrays; a file that asks for anything else is refused."""
    try:
        content = _Restricted(io.BytesIO(data), encoding="bytes").load()
    except FileError:
        raise
    except Exception as error:  # a damaged pickle can raise anything
        raise FileError(f"{where}: damaged: {error}") from error
    if not isinstance(content, dict):
        raise FileError(f"{where}: holds a {type(content).__name__}; expected a dictionary")
    return {key.encode() if isinstance(key, str) else key: value for key, value in content.items()}


def _latin1(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes in the old protocol: only this one encoding."""
    if encoding != "latin1":
        raise FileError(f"a pickle that encodes to {encoding!r} is not a CIFAR file")
    return text.encode("latin1")


class _Restricted(pickle.Unpickler):
    """Rebuilds arrays and nothing else: ``find_class`` is the only door, and it opens to four names."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):
            return _latin1
        if module in {"numpy.core.multiarray", "numpy._core.multiarray"} and name == "_reconstruct":
            return _reconstruct
        if module == "numpy" and name == "ndarray":
            return np.ndarray
        if module == "numpy" and name == "dtype":
            return _dtype
        raise FileError(f"a pickle that asks for {module}.{name} is not a CIFAR file; not read any further")


def _reconstruct(kind: Any, _shape: Any, _code: Any) -> Any:
    """The empty array that the state of an array is then put into."""
    if kind is not np.ndarray:
        raise FileError("a pickle that rebuilds anything but plain arrays is not a CIFAR file")
    return np.ndarray((0,), np.uint8)


def _dtype(code: Any, *_: Any) -> np.dtype[Any]:
    """Bytes are all that images are made of."""
    if code not in {"u1", b"u1"}:
        raise FileError(f"a pickle with an array of {code!r} is not a CIFAR file; expected bytes (u1)")
    return np.dtype(np.uint8)
