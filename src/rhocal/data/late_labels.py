"""Labels that arrive after the predictions, in files of their own: joined by the id of a sample.

A row of predictions waits until its label is there. Which rows of a file wait is part of its position, so that a row is counted
once, whenever its label comes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.blocks import read_block
from rhocal.data.followed import Position, RowDigest, digest_of, file_status
from rhocal.data.formats.parquet import read_table
from rhocal.data.streams import parquet_files
from rhocal.errors import FileError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rhocal.data.blocks import Block, BlockRef


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

    def refresh(self) -> None:
        """Read files that are new or changed."""
        if not self.folder.is_dir():
            raise InputError(f"{self.folder}: not a folder of label files")
        paths = parquet_files(self.folder)
        known = {path.name: self.files.get(path.name, ((), {}))[0] for path in paths}
        changed = [path for path in paths if known[path.name] != file_status(path)]
        if not changed and len(paths) == len(self.files):
            return
        files = {path.name: self.files[path.name] for path in paths if path not in changed}
        for path in changed:
            status = file_status(path)
            files[path.name] = status, self._read(path)
        self.files = {path.name: files[path.name] for path in paths}
        self.labels = {key: label for _, labels in self.files.values() for key, label in labels.items()}
        self.version += 1

    def _read(self, path: Path) -> dict[str, Any]:
        """The labels of a file; rows without an id or a label are left out."""
        columns = [self.id_name, self.label_name]
        try:
            ids, labels = (read_table(path, columns).column(name).to_pylist() for name in columns)
        except KeyError as error:
            raise FileError(
                f"{path}: a file of labels has the columns {' and '.join(columns)}; one is missing"
            ) from error
        pairs = zip(ids, labels, strict=True)
        return {id_key(name): label for name, label in pairs if name is not None and label is not None}


def id_key(value: Any) -> str:
    """The text of an id. Whole numbers are one id in every type: a column with a gap holds 7.0 in place of 7."""
    is_whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if is_whole else str(value)


def labeled_rows(
    path: Path, stored: Any, blocks: Sequence[BlockRef], labels: dict[str, Any]
) -> Iterator[tuple[Block | None, dict[str, Any]]]:
    """Rows whose label is known and that are not counted yet, each block with the position after it.

    The groups of the blocks are the ids. ``stored`` is the position as the state keeps it.
    """
    status = file_status(path)
    position, waiting = Position.from_state(stored), _rows_of((stored or {}).get("waiting", []))
    if position.n_rows and digest_of(blocks, position.n_rows) != position.digest:
        position, waiting = Position(), set()  # other rows than those that are counted: a new file
    total, done, digest = sum(ref.n_rows for ref in blocks), 0, RowDigest()
    for ref in blocks:
        block = read_block(ref)
        if file_status(path) != status:
            raise FileError(f"{path}: was changed while it was read")
        digest.add(block)
        first, done = done, done + block.n_rows
        if block.groups is None:
            raise InputError(f"{block.location}: there is no column of ids", argument="id", remedy="name it")
        rows = [row for row in range(first, done) if row >= position.n_rows or row in waiting]
        ids = np.array([id_key(name) for name in np.asarray(block.groups).tolist()], dtype=object)
        known = [row for row in rows if ids[row - first] in labels]
        waiting = (waiting | set(rows)) - set(known)
        if done > position.n_rows:
            position = Position(done, digest.value())
        if done == total:
            position = replace(position, status=status)
        state = position.as_state() | {"waiting": _ranges_of(waiting)}
        if not known:
            yield None, state
            continue
        places = np.array(known) - first
        found = np.array([labels[name] for name in ids[places]])
        weights = None if block.weights is None else np.asarray(block.weights)[places]
        yield replace(block, scores=block.scores[places], labels=found, weights=weights, groups=None), state


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
