"""Files of scores: which arrays hold the samples of a split, and all rows of a split as one block."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from rhocal.data.blocks import Block, missing_labels
from rhocal.data.formats import open_file
from rhocal.data.formats.base import Names, StoredFile, read_all
from rhocal.data.storage.atomic import writing
from rhocal.data.top_k_files import VALUES
from rhocal.errors import FileError, MissingArrayError

if TYPE_CHECKING:
    from pathlib import Path

Split = Literal["calibration", "test"]

SUFFIXES: dict[Split, tuple[str, ...]] = {"calibration": ("_val", "_cal", "_tune"), "test": ("_test",)}
"""What the names of the arrays of a split end in."""


@dataclass(frozen=True)
class Contents:
    """A file whose arrays are not read yet: a calibration and a test split, or one set."""

    file: StoredFile
    names: Names
    labels: Any = None
    """Labels of another file."""

    @property
    def classes(self) -> Any:
        """The names of the columns, if the file has them."""
        return self.file.classes

    @property
    def has_splits(self) -> bool:
        """Whether the file holds a calibration and a test split."""
        return all(
            any(self.names.logits + suffix in self.file.arrays for suffix in suffixes) for suffixes in SUFFIXES.values()
        )

    def has_labels(self, split: Split) -> bool:
        """Whether a split has labels."""
        return self.labels is not None or self.split_names(split).labels in self.file.arrays

    def split_names(self, split: Split) -> Names:
        """The names of the arrays of a split; one set without splits serves as both."""
        for suffix in (*SUFFIXES[split], ""):
            if self.names.logits + suffix in self.file.arrays:
                return self.names.with_suffix(suffix)
        logits, labels = self.names.logits, self.names.labels
        self.file.refuse_profile()
        needed = f"{logits!r} (with {labels!r}), or {logits}_val and {logits}_test"
        if best := [name for name in VALUES if name in self.file.arrays]:
            raise MissingArrayError(
                f"{self.file.path}: holds the k best scores of each sample ({best[0]}); those of every class are needed here"
            )
        raise MissingArrayError.in_file(self.file.path, self.file.describe(), needed)

    def read(self, split: Split) -> Block:
        """Read all rows of a split."""
        block = self.file.read(self.split_names(split))
        return block if self.labels is None else replace(block, labels=self.labels)

    def calibration_set(self) -> Block:
        """Read the split to fit on, which must have labels."""
        block = self.read("calibration")
        if block.labels is None:
            raise missing_labels().at(block.location)
        return block

    def test_set(self) -> Block:
        """Read the split to apply to or evaluate on."""
        return self.read("test")


def read(path: Path, names: Names | None = None, labels: Path | None = None) -> Contents:
    """Open a file of logits and labels; its arrays are read when a split is.

    Understands the arrays ``logits``/``labels`` (or ``names``), ``logits_cal``/``labels_cal`` (or ``_val``) with
    ``logits_test``/``labels_test``, and ``classes``. ``labels`` names a second file with nothing but the labels.
    """
    names = names or Names()
    contents = Contents(open_file(path, names), names, None if labels is None else only_array(labels, "labels"))
    contents.split_names("calibration")
    if contents.labels is not None and contents.has_splits:
        raise FileError(f"{path}: holds two splits; a second file of labels goes with a single set of logits")
    return contents


def only_array(path: Path, name: str) -> Any:
    """The labels (or groups) of a file that holds nothing else, or the array of that name."""
    file = open_file(path, Names(name, name))
    if name not in file.arrays and len(file.arrays) != 1:
        raise FileError(f"{path}: expected {name} only; found {', '.join(file.describe()) or 'nothing'}")
    return read_all(file.arrays.get(name, next(iter(file.arrays.values()))), path)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with writing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
