"""Any folder, tar or zip of pictures sorted into classes; and Tiny-ImageNet, which is nearly that."""

from __future__ import annotations

from collections import defaultdict
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from rhocal.errors import FileError
from rhocal_paper.train.data.archive import walk
from rhocal_paper.train.data.dataset import Dataset, Images, dataset, held_out
from rhocal_paper.train.data.official import OFFICIAL
from rhocal_paper.train.data.pictures import Decoder, is_picture

if TYPE_CHECKING:
    from pathlib import Path

    from rhocal_paper.train.data.dataset import Pixels

SPLITS = {"train": "train", "test": "test", "val": "tune", "valid": "tune", "validation": "tune", "tune": "tune"}
TEST_SHARE = 0.2
Found = list[tuple[str, str, "Pixels"]]
"""Class, name and pixels of every picture."""


def read_folders(path: Path, size: int | None = None) -> Dataset:
    """``train/<class>/*.jpg`` and ``test/<class>/*.jpg``, and ``val`` if it is there; or ``<class>/*.jpg``.

    Without a ``test`` folder a fixed fifth of every class is the test set.
    """
    splits: dict[str, Found] = defaultdict(list)
    decode = Decoder(path, size)
    for name, data in walk(path, is_picture):
        parts = PurePosixPath(name).parts
        if len(parts) < 2:
            raise FileError(
                f"{path}: {name} lies in no folder of its class; expected <class>/*.jpg or train/<class>/*.jpg"
            )
        split = SPLITS.get(parts[-3], "") if len(parts) > 2 else ""
        splits[split].append((parts[-2], name, decode(name, data)))
    if not splits:
        raise FileError(f"{path}: holds no pictures (.jpg, .jpeg, .png)")
    if "" in splits and len(splits) > 1:
        raise FileError(f"{path}: {splits[''][0][1]} is in none of train, val and test, where others are")
    everything = splits.get("train") or splits.get("")
    if not everything:
        raise FileError(f"{path}: has {', '.join(splits)}, but no folder train")
    classes = tuple(sorted({label for found in splits.values() for label, _, _ in found}))
    if len(classes) < 2:
        raise FileError(f"{path}: one class only ({classes[0]})")
    images = {split: _images(found, classes) for split, found in splits.items()}
    train, test = images.get("train") or images[""], images.get("test")
    if test is None:
        held, kept = held_out(train.labels, TEST_SHARE)
        train, test = train.take(kept), train.take(held)
    return dataset(path.name, train, test, classes, tune=images.get("tune"))


def read_tiny_imagenet(root: Path, size: int | None = None) -> Dataset:
    """200 classes at 64 px. Its test set has no labels: ``val`` is the test set here, as everywhere in the literature."""
    path = next(
        (root / name for name in ("tiny-imagenet-200.zip", "tiny-imagenet-200") if (root / name).exists()), None
    )
    if path is None:
        raise OFFICIAL["tiny-imagenet"].missing(root)
    decode = Decoder(path, size)
    train: Found = []
    test: list[tuple[str, Pixels]] = []
    labels: dict[str, str] = {}
    for name, data in walk(path, lambda name: is_picture(name) or name.endswith("val_annotations.txt")):
        parts = PurePosixPath(name).parts
        if parts[-1] == "val_annotations.txt":
            rows = (line.split("\t") for line in data.decode().splitlines() if line)
            labels = {row[0]: row[1] for row in rows if len(row) > 1}
        elif "train" in parts[:-3]:
            train.append((parts[-3], name, decode(name, data)))
        elif "val" in parts[:-2]:
            test.append((parts[-1], decode(name, data)))
    unknown = [name for name, _ in test if name not in labels]
    if unknown or not train or not test:
        raise FileError(
            f"{path}: {len(train)} training and {len(test)} val pictures, {len(unknown)} of them without a label"
        )
    classes = tuple(sorted({label for label, _, _ in train}))
    strange = set(labels.values()) - set(classes)
    if strange:
        raise FileError(f"{path}: val_annotations.txt names {min(strange)}, which is no training class")
    return dataset(
        "Tiny-ImageNet",
        _images(train, classes),
        _images([(labels[name], name, pixels) for name, pixels in test], classes),
        classes,
    )


def _images(found: Found, classes: tuple[str, ...]) -> Images:
    """In the order of their names, so that the order in an archive does not matter."""
    found = sorted(found, key=lambda row: row[:2])
    place = {label: k for k, label in enumerate(classes)}
    return Images(
        np.stack([pixels for _, _, pixels in found]), np.array([place[label] for label, _, _ in found], np.int64)
    )
