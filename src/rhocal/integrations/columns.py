"""The blocks of tables that Ray and Spark hold: which columns they are read from, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rhocal.data.blocks import Block
from rhocal.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray


@dataclass(frozen=True)
class TableColumns:
    """The columns that hold scores, labels and weights."""

    scores: str | tuple[str, ...]
    """One column of lists, or one column for each class."""
    labels: str
    weights: str | None = None

    @classmethod
    def from_names(
        cls, logits: str | Iterable[str], labels: str, weights: str | None, present: Iterable[str]
    ) -> TableColumns:
        """The columns by name; an error for those that are absent."""
        columns = cls(logits if isinstance(logits, str) else tuple(logits), labels, weights)
        known = list(present)
        for name in columns.names:
            if name not in known:
                raise InputError(f"there is no column {name!r}; there are {', '.join(known)}")
        return columns

    @property
    def names(self) -> list[str]:
        """All columns that are read."""
        scores = [self.scores] if isinstance(self.scores, str) else list(self.scores)
        return [*scores, self.labels, *([] if self.weights is None else [self.weights])]

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the columns of scores, where each class has one."""
        return None if isinstance(self.scores, str) else self.scores

    def block(self, table: Mapping[str, Any], location: str) -> Block:
        """The rows of a table of NumPy arrays."""
        if isinstance(self.scores, str):
            scores = matrix(table[self.scores], self.scores)
        else:
            scores = np.column_stack([np.asarray(table[name]) for name in self.scores])
        return Block(scores, table[self.labels], location, None if self.weights is None else table[self.weights])


def matrix(values: Any, name: str) -> NDArray[Any]:
    """A matrix of a column of lists, one for each sample."""
    array = np.asarray(values)
    if array.ndim > 1 or array.dtype.kind != "O" or not len(array):
        return array
    lengths = {np.shape(row) for row in array}
    if len(lengths) != 1 or len(next(iter(lengths))) != 1:
        raise InputError(
            f"column {name!r}: one list of numbers for each sample is needed, with a number for each class"
        )
    return np.stack([np.asarray(row) for row in array])
