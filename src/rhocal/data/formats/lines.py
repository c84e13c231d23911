"""Lines of a log: JSON objects, each with its number. A line that cannot be used is an error, or is left out and counted."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from rhocal.data.formats.base import without_duplicates
from rhocal.errors import FileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from rhocal.data.formats.base import Names, StoredFile

R = TypeVar("R")
Row = dict[str, Any]


class OutcomeError(FileError):
    """Whether an answer is right is not what its line states: the labels of the file are not understood.

    Such lines are never left out: those that stay would be chosen by their outcome.
    """


@dataclass
class Lines:
    """The objects of a file that can be used so far, and what is wrong with the others."""

    path: Path
    skip_bad: bool = False
    unit: str = "line"
    """What messages count: lines of JSON Lines, samples of an archive."""
    numbers: list[int] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)
    """One message for each line that was left out."""

    @classmethod
    def from_bytes(cls, path: Path, content: bytes, names: Names) -> Lines:
        """Parse JSON Lines; a byte order mark, carriage returns and empty lines are allowed."""
        lines = cls(path, names.skip_bad)
        for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
            if line.strip():
                lines.add(number, partial(parse_object, line))
        return lines.checked()

    @classmethod
    def from_rows(cls, path: Path, rows: Iterable[Any], names: Names, unit: str) -> Lines:
        """The same for values that are parsed already."""
        lines = cls(path, names.skip_bad, unit)
        for number, row in enumerate(rows, start=1):
            lines.add(number, partial(_checked_object, row))
        return lines.checked()

    def add(self, number: int, parse: Callable[[], Row]) -> None:
        """Parse one line."""
        try:
            row = parse()
        except FileError as error:
            self._leave_out(number, error)
            return
        self.numbers.append(number)
        self.rows.append(row)

    def read(self, work: Callable[[Row], R]) -> list[R]:
        """The result of a function for each line. Those for which it raises a ``FileError`` are left out of ``rows`` too."""
        results, numbers, rows = [], [], []
        for number, row in zip(self.numbers, self.rows, strict=True):
            try:
                results.append(work(row))
            except FileError as error:
                self._leave_out(number, error)
                continue
            numbers.append(number)
            rows.append(row)
        self.numbers, self.rows = numbers, rows
        self.checked()
        return results

    def checked(self) -> Lines:
        """The same; an error if no line is left."""
        if not self.rows:
            reason = f"none of its {len(self.bad):,} {self.unit}s can be used; {self.bad[0]}" if self.bad else "empty"
            raise FileError(f"{self.path}: has no {self.unit} with an object: {reason}")
        return self

    def _leave_out(self, number: int, error: FileError) -> None:
        message = f"{self.path}: {self.unit} {number}: {error.message}"
        if isinstance(error, OutcomeError):
            raise FileError(message) from error
        if not self.skip_bad:
            raise FileError(message, argument="skip_bad=True", remedy=f"leave such {self.unit}s out") from error
        self.bad.append(message)


def read_lines(read: Callable[[Lines, Names], StoredFile], lines: Lines, names: Names) -> StoredFile:
    """What a reader makes of a file, again without the lines that it left out: they have no part in what it infers from all."""
    while True:
        n_rows = len(lines.rows)
        file = read(lines, names)
        if len(lines.rows) == n_rows:
            return file


def parse_object(line: bytes) -> Row:
    """Parse the bytes of one JSON object, whose keys all differ."""
    try:
        row = json.loads(line.decode("utf-8"), object_pairs_hook=without_duplicates)
    except FileError:
        raise
    except UnicodeDecodeError as error:
        raise FileError(f"is not UTF-8 text: {error.reason} at byte {error.start}") from error
    except (ValueError, RecursionError) as error:
        raise FileError(f"is not JSON: {error}") from error
    return _checked_object(row)


def _checked_object(row: Any) -> Row:
    if not isinstance(row, dict):
        raise FileError(f"holds no object ({{…}}), but {type(row).__name__}")
    return row
