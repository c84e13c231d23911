"""Labels that arrive after the predictions, in files of their own: joined by the id of a sample.

A row of predictions waits until its label is there. Which rows of a file wait is part of its position, so that a row is counted
once, whenever its label comes.
"""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.blocks import read_block
from rhocal.data.formats.parquet import exact_values, read_table
from rhocal.data.storage.followed import Position, RowDigest, file_status, identity_of
from rhocal.data.streams import other_files, parquet_files
from rhocal.errors import FileError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from rhocal.data.blocks import Block, BlockRef

MAX_EXACT = 2.0**53
"""Whole numbers from here on have neighbors that are the same float."""


class LateLabels:
    """The labels of a folder of Parquet files that grows. Of an id that comes twice the label of the last file counts."""

    def __init__(self, folder: Path, id_name: str, label_name: str) -> None:
        self.folder, self.id_name, self.label_name = folder, id_name, label_name
        self.files: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {}
        self.labels: dict[str, Any] = {}
        self.version = 0
        """Grows whenever labels come."""
        self.seen: dict[str, int] = {}
        """File of scores → the version that its rows were last joined with."""
        self.waiting_id: str | None = None
        """The id of a sample without a label, for messages."""

    def refresh(self) -> None:
        """Read files that are new or changed."""
        if not self.folder.is_dir():
            raise InputError(f"{self.folder}: not a folder of label files")
        paths = parquet_files(self.folder)
        if not paths and (others := other_files(self.folder)):
            raise FileError(f"{self.folder} holds no .parquet file ({others} ignored)")
        known = {path.name: self.files.get(path.name, ((), {}))[0] for path in paths}
        changed = [path for path in paths if known[path.name] != file_status(path)]
        if not changed and len(paths) == len(self.files):
            return
        files = {path.name: self.files[path.name] for path in paths if path not in changed}
        for path in changed:
            status = file_status(path)
            files[path.name] = status, self._read(path)
            if file_status(path) != status:
                raise FileError(f"{path}: was changed while it was read")
        self.files = {path.name: files[path.name] for path in paths}
        self._check_types()
        self.labels = {key: label for _, labels in self.files.values() for key, label in labels.items()}
        self.version += 1

    def _read(self, path: Path) -> dict[str, Any]:
        """The labels of a file; rows without an id or a label are left out."""
        columns = [self.id_name, self.label_name]
        try:
            table = read_table(path, columns)
            ids, labels = table.column(self.id_name), table.column(self.label_name).to_pylist()
        except KeyError as error:
            raise FileError(
                f"{path}: a file of labels has the columns {' and '.join(columns)}; one is missing"
            ) from error
        pairs = zip(id_keys(exact_values(ids), str(path)), labels, strict=True)
        return {key: label for key, label in pairs if key is not None and label is not None and label == label}  # noqa: PLR0124 - NaN

    def _check_types(self) -> None:
        """Labels that are texts in one file and numbers in another would all be taken as texts."""
        kinds: dict[bool, str] = {}
        for name, (_, labels) in self.files.items():
            for is_text in {isinstance(label, str) for label in labels.values()}:
                kinds.setdefault(is_text, name)
        if len(kinds) > 1:
            raise FileError(
                f"{self.folder}: labels are texts in {kinds[True]} and numbers in {kinds[False]}; use one of them"
            )

    def sentence_without_match(self, n_samples: int) -> str:
        """What to say where labels came, and none is of a sample."""
        return (
            f"{self.folder}: none of {len(self.labels):,} labels is of one of the {n_samples:,} samples; column "
            f"{self.id_name!r} holds {self.waiting_id!r} beside the scores and {next(iter(self.labels))!r} beside the labels"
        )


def id_keys(values: NDArray[Any], location: str) -> list[str | None]:
    """The texts of ids, None where there is none; an error names the location."""
    try:
        return [id_key(value) for value in values.tolist()]
    except InputError as error:
        raise error.at(location) from error


def id_key(value: Any) -> str | None:
    """The text of an id, the same for equal values of different types; None if it is missing.

    >>> [id_key(value) for value in (7, 7.0, Decimal("7.00"), "7", b"7", 0.25, None, math.nan)]
    ['7', '7', '7', '7', '7', '0.25', None, None]
    """
    if isinstance(value, float | Decimal):
        if not math.isfinite(value):
            return None
        if isinstance(value, float) and abs(value) >= MAX_EXACT:
            raise InputError(
                f"the id {value:g} is a float, of which neighbors are equal; store ids as integers or texts"
            )
        number = Decimal(repr(value)) if isinstance(value, float) else value
        return str(int(number)) if number == int(number) else format(number.normalize(), "f")
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return None if value is None else str(value)


def labeled_rows(
    path: Path, stored: Any, blocks: Sequence[BlockRef], late: LateLabels, status: tuple[int, ...]
) -> Iterator[tuple[Block | None, dict[str, Any]]]:
    """Rows whose label is known and that are not counted yet, each block with the position after it.

    The groups of the blocks are the ids. ``stored`` is the position of these rows as the state keeps it, ``status`` that of
    the file before it was opened.
    """
    labels = late.labels
    position, waiting = Position.from_state(stored), _rows_of((stored or {}).get("waiting", []))
    total, done, digest = sum(ref.n_rows for ref in blocks), 0, RowDigest(with_ids=True)
    for ref in blocks:
        block = read_block(ref)
        if file_status(path) != status:
            raise FileError(f"{path}: was changed while it was read")
        if block.groups is None:
            raise InputError(f"{block.location}: there is no column of ids", argument="id", remedy="name it")
        digest.add(block)
        first, done = done, done + block.n_rows
        rows = [row for row in range(first, done) if row >= position.n_rows or row in waiting]
        ids = id_keys(np.asarray(block.groups), block.location)
        known = [row for row in rows if ids[row - first] in labels]
        waiting = (waiting | set(rows)) - set(known)
        if len(known) < len(rows):
            late.waiting_id = next(ids[row - first] for row in rows if row in waiting)
        if done > position.n_rows:
            position = Position(done, digest.value(), identity=identity_of(status))
        if done == total:
            position = replace(position, status=status, identity=identity_of(status))
        state = position.as_state() | {"waiting": _ranges_of(waiting)}
        if not known:
            yield None, state
            continue
        places = np.array(known) - first
        matched = np.array([labels[ids[place]] for place in places])
        weights = None if block.weights is None else np.asarray(block.weights)[places]
        yield replace(block, scores=block.scores[places], labels=matched, weights=weights, groups=None), state


def n_counted(positions: dict[str, Any]) -> int:
    """Rows whose label has come, or that are left out."""
    n_read = sum(value.get("n_rows", 0) for value in positions.values() if isinstance(value, dict))
    return n_read - n_waiting(positions)


def drop_waiting(positions: dict[str, Any]) -> int:
    """Leave out the rows whose label has not come; their number."""
    n = n_waiting(positions)
    for name, value in positions.items():
        if isinstance(value, dict) and value.get("waiting"):
            positions[name] = value | {"waiting": []}
    return n


def n_waiting(positions: dict[str, Any]) -> int:
    """Rows whose label has not come."""
    ranges = (pair for value in positions.values() if isinstance(value, dict) for pair in value.get("waiting", []))
    return sum(stop - start for start, stop in ranges)


def _rows_of(ranges: Any) -> set[int]:
    try:
        return {row for start, stop in ranges for row in range(int(start), int(stop))}
    except (TypeError, ValueError) as error:
        raise FileError(f"the state of a file cannot be read: {ranges!r}") from error


def _ranges_of(rows: set[int]) -> list[list[int]]:
    """Row numbers as ranges, each from its first to behind its last."""
    ranges: list[list[int]] = []
    for row in sorted(rows):
        if ranges and ranges[-1][1] == row:
            ranges[-1][1] = row + 1
        else:
            ranges.append([row, row + 1])
    return ranges
