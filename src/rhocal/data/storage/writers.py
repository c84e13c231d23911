"""Files of results, written block by block: one writer for ``.npy`` and ``.safetensors``, one for the other formats.

``BlockWriter`` writes rows to their places in a ``PartFile`` beside the target (``.NAME.part``), with a journal of the blocks
that are complete. The target gets its name at the end, when everything is written.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from rhocal.data.formats import check_writable, write_arrays
from rhocal.data.formats.npy import npy_header
from rhocal.data.formats.safetensors import safetensors_header
from rhocal.data.storage.part_file import PartFile
from rhocal.errors import FileError, InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import NDArray

Arrays = dict[str, np.ndarray[Any, Any]]

BLOCK_FORMATS = (".npy", ".safetensors")
"""Formats in which rows have a place that is known before the others are written."""


@dataclass(frozen=True)
class Layout:
    """Where each array of a file begins, and the header before them."""

    header: bytes
    offsets: dict[str, int]
    dtypes: dict[str, np.dtype[Any]]
    row_bytes: dict[str, int]
    size: int

    @classmethod
    def from_arrays(cls, suffix: str, arrays: Arrays, n_rows: int | None, metadata: Mapping[str, str]) -> Layout:
        """The layout of arrays like these, with ``n_rows`` rows (None: as many as these have); ``.npy`` holds the first."""
        if suffix == ".npy":
            arrays = dict([next(iter(arrays.items()))])
        shapes = {name: (len(a) if n_rows is None else n_rows, *a.shape[1:]) for name, a in arrays.items()}
        dtypes = {name: array.dtype for name, array in arrays.items()}
        spans, end = {}, 0
        for name, shape in shapes.items():
            spans[name] = (end, end + math.prod(shape) * dtypes[name].itemsize)
            end = spans[name][1]
        if suffix == ".npy":
            ((name, shape),) = shapes.items()
            header = npy_header(dtypes[name], shape)
        else:
            header = safetensors_header(dtypes, shapes, spans, metadata)
        return cls(
            header,
            {name: len(header) + start for name, (start, _) in spans.items()},
            dtypes,
            {name: math.prod(shape[1:]) * dtypes[name].itemsize for name, shape in shapes.items()},
            len(header) + end,
        )


@dataclass
class BlockWriter:
    """Writes ``.npy`` and ``.safetensors`` block by block, and continues after the last complete block."""

    output: Path
    sizes: tuple[int, ...] | None
    """Rows of every block; None for a single block of any shape."""
    fingerprint: str
    """Changes with everything that changes the output; a run with another one does not continue this one."""
    classes: NDArray[Any]
    """Names of the columns. A safetensors file holds numbers: texts are written as column numbers, beside the names."""
    restart: bool = False
    layout: Layout | None = field(default=None, repr=False)

    def __enter__(self) -> Self:
        if not self.output.parent.is_dir():
            raise FileError(f"cannot write {self.output}: the folder {self.output.parent} does not exist")
        if self.output.is_dir():
            raise FileError(f"cannot write {self.output}: it is a folder")
        self.part = PartFile(self.output, self.fingerprint, restart=self.restart)
        if self.sizes is not None:  # the last block is written again: the input is verified when its end is read
            self.part.n_blocks = min(self.part.n_blocks, len(self.sizes) - 1)
        return self

    @property
    def n_blocks(self) -> int:
        """Blocks that are complete."""
        return self.part.n_blocks

    @property
    def n_rows(self) -> int:
        """Rows that are written."""
        return sum((self.sizes or ())[: self.n_blocks])

    def append(self, arrays: Arrays) -> None:
        """Write the arrays of the next block."""
        arrays = {name: self._as_numbers(name, array) for name, array in arrays.items()}
        if self.layout is None:
            total = None if self.sizes is None else sum(self.sizes)
            is_text = self.classes.dtype.kind in "USO"
            metadata = {"classes": json.dumps(self._stored_classes())} if is_text else {}
            self.layout = Layout.from_arrays(self.output.suffix, arrays, total, metadata)
            if self.n_blocks == 0:
                self.part.reserve(self.layout.header, self.layout.size)
        self.part.write_block(self._pieces(arrays))

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if kind is None:
            self.part.complete()
        else:
            self.part.close()

    def _pieces(self, arrays: Arrays) -> dict[int, Any]:
        """The bytes of a block, by their place in the file."""
        assert self.layout is not None
        pieces, n_rows = {}, None if self.sizes is None else self.sizes[self.n_blocks]
        for name, offset in self.layout.offsets.items():
            if name not in arrays or arrays[name].dtype != self.layout.dtypes[name]:
                raise FileError(f"block {self.n_blocks}: its {name} differ in type from those of the first block")
            data = np.ascontiguousarray(arrays[name])
            if n_rows is not None and data.nbytes != n_rows * self.layout.row_bytes[name]:
                raise FileError(f"block {self.n_blocks}: its {name} differ in shape from those of the first block")
            pieces[offset + self.n_rows * self.layout.row_bytes[name]] = data.reshape(-1).view(np.uint8).data
        return pieces

    def _as_numbers(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        if self.output.suffix == ".npy" or array.dtype.kind not in "USO":
            return array
        order = np.argsort(self.classes)
        codes = order[np.minimum(np.searchsorted(self.classes[order], array), len(order) - 1)]
        if np.any(self.classes[codes] != array):
            raise InputError(f"{name} hold values that are not in the classes of the calibrator; write .npz or .csv")
        stored = self._stored_classes()
        return np.array(stored)[codes] if isinstance(stored[0], int) else codes.astype(np.int64)

    def _stored_classes(self) -> list[Any]:
        """The names of the columns; texts of whole numbers as numbers, so that a label 1 can only be the name."""
        names = self.classes.tolist()
        are_numbers = all(str(name).isdecimal() and str(int(name)) == name for name in names)
        return [int(name) for name in names] if are_numbers else names


@dataclass
class ArrayWriter:
    """Writes a single block in any format of ``rhocal.data.formats``."""

    output: Path
    classes: NDArray[Any]
    """Names of the columns; written where they are texts."""
    n_blocks = n_rows = 0
    arrays: Arrays = field(default_factory=dict, repr=False)

    def __enter__(self) -> Self:
        return self

    def append(self, arrays: Arrays) -> None:
        """Keep the arrays until the end."""
        self.arrays = arrays
        self.n_blocks = 1

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if kind is None:
            is_text = self.classes.dtype.kind in "USO"
            write_arrays(self.output, self.arrays | ({"classes": self.classes.astype(str)} if is_text else {}))


def open_writer(
    output: Path, sizes: tuple[int, ...] | None, fingerprint: str, classes: NDArray[Any], *, restart: bool = False
) -> BlockWriter | ArrayWriter:
    """The writer for the format that the name ends in; ``sizes`` are the rows of every block, None for a single block."""
    if output.suffix in BLOCK_FORMATS:
        return BlockWriter(output, sizes, fingerprint, classes, restart)
    if sizes is not None:
        raise FileError(f"{output}: block by block only {' and '.join(BLOCK_FORMATS)} can be written")
    check_writable(output)
    return ArrayWriter(output, classes)
