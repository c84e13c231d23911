"""What the caller states about scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from rhocal.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Kind = Literal["logits", "probs", "log_probs"]
KINDS = get_args(Kind)


@dataclass(frozen=True, eq=False)
class InputSpec:
    """What the caller states about the scores of a source; nothing of it is inferred from their values."""

    kind: Kind = "logits"
    classes: NDArray[Any] | None = None
    """The name of each column; None: the names in the file, else 0 to m − 1."""
    ignore_index: int | None = None
    """Samples with this label are left out (−100 for tokens and pixels)."""
    class_axis: int = -1
    """The axis of the classes, 1 for (N, C, H, W)."""

    positive: Any = None
    """The positive class of two, by name or column number: of a single column of scores, the class that they are scores of.
    None: not stated, and a single column belongs to the second class."""
    columns: tuple[str, ...] | None = None
    """The names of the columns in a table, which are matched with the classes; None: their position decides."""
    columns_of_fit: tuple[str, ...] | None = None
    """The names of the columns that a calibrator was fitted on: the same names in another order are put in theirs."""
    labels_count_columns: bool = False
    """Whether labels that are whole numbers count ``columns``, as in a file or a frame whose classes are those of a calibrator;
    of classes that the caller states it is unclear what labels count where columns stand in another order."""

    of_answers: bool = False
    """Whether samples are answers that are right or wrong, as a log of them states: the probability of the positive class is
    the confidence of the answer, and being right is its correctness."""

    kind_is_stated: bool = True
    """Whether ``kind`` was stated; otherwise a file that states it itself decides."""
    classes_of_labels: bool = False
    """Whether ``classes`` are those that the labels of a pilot show, and nobody stated which column is which."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"kind is one of {', '.join(KINDS)}; got {self.kind!r}")
        if not _is_whole(self.class_axis):
            raise InputError(f"class_axis is a whole number; got {self.class_axis!r}")
        if self.ignore_index is not None and not _is_whole(self.ignore_index):
            raise InputError(f"ignore_index is a whole number; got {self.ignore_index!r}")


def _is_whole(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)
