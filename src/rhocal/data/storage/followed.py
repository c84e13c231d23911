"""Files of a folder that grows: which rows are counted already, identified by their content.

A file may be absent for a while, moved, written again with more rows, or replaced. Rows that are counted are known by their
digest; a file whose first rows are others is new. A file whose size, times and place are unchanged is not read again.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.blocks import read_block
from rhocal.errors import FileError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rhocal.data.blocks import Block, BlockRef

MAX_ABSENT = 10_000
"""Files that are remembered after they are gone."""


@dataclass(frozen=True)
class Position:
    """How much of a file is counted."""

    n_rows: int = 0
    digest: str = ""
    """Of the rows that are counted; empty for states of earlier versions, which are believed."""
    status: tuple[int, ...] = ()
    """Size, times and place of the file when all of its rows were counted."""
    identity: tuple[int, ...] = ()
    """Size, modification time and place of the file, which a new name does not change."""
    n_blocks: int | None = None
    """Row groups that are counted, in states of earlier versions."""

    @classmethod
    def from_state(cls, value: Any) -> Position:
        """What a state keeps."""
        if value is None:
            return cls()
        if isinstance(value, int):
            return cls(n_blocks=value)
        try:
            status = tuple(int(number) for number in value["status"])
            identity = tuple(int(number) for number in value.get("identity", identity_of(status)))
            return cls(int(value["n_rows"]), str(value["digest"]), status, identity)
        except (KeyError, TypeError, ValueError) as error:
            raise FileError(f"the state of a file cannot be read: {value!r}") from error

    def as_state(self) -> dict[str, Any]:
        """The same as JSON."""
        return {name: value for name, value in asdict(self).items() if name != "n_blocks"}


class RowDigest:
    """A digest of rows that does not depend on the blocks they come in; ``with_ids``: of what names them as well."""

    def __init__(self, *, with_ids: bool = False) -> None:
        self.with_ids = with_ids
        self.parts = [hashlib.blake2b(digest_size=16) for _ in range(4 if with_ids else 3)]

    def add(self, block: Block) -> None:
        """Take in the rows of a block."""
        scores, *others = self.parts
        scores.update(np.ascontiguousarray(block.scores, np.float64).tobytes())
        for digest, values in zip(others, (block.labels, block.weights, block.groups), strict=False):
            if values is not None:
                digest.update(
                    "".join(json.dumps(one, default=str) + "\n" for one in np.asarray(values).tolist()).encode()
                )

    def value(self) -> str:
        """The digest of the rows so far."""
        return hashlib.blake2b(b"".join(part.digest() for part in self.parts), digest_size=16).hexdigest()


def file_status(path: Path) -> tuple[int, ...]:
    """Size, times and place of a file. The time of the last change cannot be set by its owner."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def find_position(
    positions: dict[str, Any], path: Path, present: set[str], blocks: Sequence[BlockRef], *, with_ids: bool = False
) -> None:
    """Let the name of a file have the position of its rows, if some of them are counted.

    A position of other rows is kept aside: their file may return. A file without a position gets that of one that is gone and
    had its size, modification time and rows.
    """

    def has_rows(position: Position) -> bool:
        return digest_of(blocks, position.n_rows, with_ids=with_ids) == position.digest

    stored = Position.from_state(positions.get(path.name))
    if stored.n_rows and not has_rows(stored):
        set_aside(positions, path.name)
    if path.name in positions:
        return
    status = file_status(path)
    for name, value in positions.items():
        position = Position.from_state(value)
        if name not in present and position.identity[:2] == status[:2] and has_rows(position):
            positions[path.name] = positions.pop(name)
            return


def set_aside(positions: dict[str, Any], name: str) -> None:
    """Keep a position under a key that no file has, because its name is that of another file now."""
    value = positions.pop(name)
    positions[f"{name}/{Position.from_state(value).digest}"] = value


def follow_renames(positions: dict[str, Any], folder: Path, present: set[str]) -> dict[str, Any]:
    """Positions under the names that their files have now; a name may have passed to another file (a.parquet, a.1.parquet, …).

    A file is the same if its size, modification time and place are. Whether its rows are those that were counted is checked
    when it is read.
    """
    known = {name: Position.from_state(value).identity for name, value in positions.items()}
    names = {identity: name for name, identity in known.items() if identity}
    now = {}
    for name in present:
        with suppress(FileNotFoundError):
            now[name] = identity_of(file_status(folder / name))
    moved = {}
    for name, identity in now.items():
        before = names.get(identity, name)
        if known.get(name) != identity and now.get(before) != identity:
            moved[name] = before
    kept = {name: value for name, value in positions.items() if name not in moved.values()}
    for name in moved:
        if name in kept:
            set_aside(kept, name)
    return kept | {name: positions[before] for name, before in moved.items()} if moved else positions


def identity_of(status: tuple[int, ...]) -> tuple[int, ...]:
    """What a new name does not change: size, modification time and place."""
    return (*status[:2], *status[3:])


def digest_of(blocks: Sequence[BlockRef], n_rows: int, *, with_ids: bool = False) -> str | None:
    """The digest of the first rows; None if there are fewer."""
    digest, left = RowDigest(with_ids=with_ids), n_rows
    for ref in blocks:
        if left <= 0:
            break
        block = first_rows(read_block(ref), left)
        digest.add(block)
        left -= block.n_rows
    return digest.value() if left <= 0 else None


def new_rows(
    path: Path, position: Position, blocks: Sequence[BlockRef], status: tuple[int, ...]
) -> Iterator[tuple[Block | None, Position]]:
    """Blocks of rows that are not counted yet, each with the position after it; without such rows only the position.

    The position is one of these rows. ``status`` is that of the file before it was opened: if it changes, blocks may be of two
    files.
    """
    digest = RowDigest()
    if position.n_blocks is not None:
        n_rows = sum(ref.n_rows for ref in blocks[: position.n_blocks])
        position = Position(n_rows, digest_of(blocks, n_rows) or "")
    total, done = sum(ref.n_rows for ref in blocks), 0
    for ref in blocks:
        block = read_block(ref)
        if file_status(path) != status:
            raise FileError(f"{path}: was changed while it was read")
        digest.add(block)
        first, done = done, done + block.n_rows
        if done > position.n_rows:
            rows = last_rows(block, position.n_rows - first)
            yield rows, Position(done, digest.value(), status if done == total else (), identity_of(status))
    if position.n_rows == total:
        yield None, replace(position, status=status, identity=identity_of(status))


def first_rows(block: Block, n: int) -> Block:
    """The first rows of a block."""
    return _slice(block, slice(0, n))


def last_rows(block: Block, start: int) -> Block:
    """The rows of a block from one on."""
    return _slice(block, slice(max(start, 0), None))


def _slice(block: Block, rows: slice) -> Block:
    if rows.start == 0 and (rows.stop is None or rows.stop >= block.n_rows):
        return block
    labels, weights, groups = (
        None if values is None else values[rows] for values in (block.labels, block.weights, block.groups)
    )
    return replace(block, scores=block.scores[rows], labels=labels, weights=weights, groups=groups)


def forget_absent(positions: dict[str, Any], present: set[str]) -> dict[str, Any]:
    """Positions of the files that are there, and of the latest of those that are gone."""
    absent = [name for name, value in positions.items() if name not in present and not isinstance(value, int)]
    dropped = set(absent[:-MAX_ABSENT]) if len(absent) > MAX_ABSENT else set()
    return {name: value for name, value in positions.items() if name not in dropped}
