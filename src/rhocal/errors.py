"""Exceptions and warnings.

RhocalError
├── InputError (ValueError)            data or an option that cannot be used
├── FileError (ValueError)             a file that is missing, damaged, or of another kind
│   └── MissingArrayError              a file without the array that was asked for
├── NotFittedError (ValueError, AttributeError)
└── MissingExtraError (ImportError)    an optional package is not installed
    └── MissingPackageError            a package that no extra installs
RhocalWarning (UserWarning)
├── SuspiciousInputWarning             input that looks like another kind than declared
├── BoundaryWarning                    a fit that stopped at a bound
├── FewSamplesWarning                  a calibration set that is too small
├── ConvergenceWarning                 an optimizer that stopped early
├── GuardWarning                       a fit that is, or may be, worse than no calibration or temperature scaling
├── DecisionWarning                    what a fit does to predicted classes, or what keeping them costs
├── ShiftWarning                       data outside the range of the calibration set
└── SubsampleWarning                   a fit on a part of the samples

A message names what is wrong. ``argument`` and ``remedy`` state what to do; the caller's language is chosen where they are
printed: ``str(error)`` names the Python argument, the command line names its option.
"""

from __future__ import annotations

import sys
import warnings
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable


M = TypeVar("M", bound="_Message")


def counted(n: int, noun: str, plural: str = "") -> str:
    """A number with its noun, for messages.

    >>> counted(1, "sample"), counted(1200, "sample"), counted(2, "entry", "entries")
    ('1 sample', '1,200 samples', '2 entries')
    """
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


class _Message(Exception):  # noqa: N818 - the common part of errors and warnings
    """A sentence, and a remedy that names an argument.

    >>> print(InputError("labels are missing", argument="labels_name", remedy="name the array that holds them"))
    labels are missing. Pass labels_name= to name the array that holds them
    """

    argument: str | None = None
    """The name of a Python argument, or of one with its value: ``kind='probs'``."""
    remedy: str | None = None
    """What the argument is passed for, as a verb: "name the array that holds them"."""

    def __init__(self, message: str = "", *, argument: str | None = None, remedy: str | None = None) -> None:
        super().__init__(message)
        self.argument, self.remedy = argument, remedy

    @property
    def message(self) -> str:
        """The sentence without its remedy."""
        return Exception.__str__(self)

    def __str__(self) -> str:
        if self.argument is None or self.remedy is None:
            return self.message
        equals = "" if "=" in self.argument else "="
        return f"{self.message}. Pass {self.argument}{equals} to {self.remedy}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.args, self.__dict__)

    def at(self, location: str) -> Self:
        """The same error with the file and rows that it is about."""
        return _restore(type(self), (f"{location}: {self.message}",), self.__dict__)


def _restore(kind: type[M], args: tuple[Any, ...], attributes: dict[str, Any]) -> M:
    """An error from its parts: a subclass may be constructed from others than its message, and still cross processes."""
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(attributes)
    return error


class RhocalError(_Message):
    """Every error rhocal raises on purpose."""


class InputError(RhocalError, ValueError):
    """Data or an option that cannot be used."""


class FileError(RhocalError, ValueError):
    """A file that is missing, damaged, or of another kind."""


class MissingArrayError(FileError):
    """A file without an array of the name that was asked for."""

    @classmethod
    def in_file(cls, path: Path, arrays: Iterable[str], needed: str) -> Self:
        """The error for a file of scores, with the arrays that it has."""
        message = f"{path}: found {', '.join(arrays) or 'nothing'}; need {needed}"
        return cls(message, argument="logits_name", remedy="give another name")


class NotFittedError(RhocalError, ValueError, AttributeError):
    """A calibrator was asked for probabilities before ``fit``."""


def not_fitted(message: str) -> NotFittedError:
    """Return the error; where scikit-learn is imported it is also an instance of scikit-learn's own class."""
    theirs = getattr(sys.modules.get("sklearn.exceptions"), "NotFittedError", None)
    if theirs is None:
        return NotFittedError(message)
    return _also(theirs)(message)


@cache
def _also(theirs: type[Exception]) -> type[NotFittedError]:
    """Our class and theirs in one, which is made again where it is unpickled."""
    attributes = {"__module__": __name__, "__reduce__": lambda self: (not_fitted, (self.message,))}
    return type("NotFittedError", (NotFittedError, theirs), attributes)


class MissingExtraError(RhocalError, ImportError):
    """An optional package is needed and not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}, which is not installed: pip install 'rhocal[{extra}]'")


class MissingPackageError(MissingExtraError):
    """A package that no extra of ours installs."""

    def __init__(self, package: str, purpose: str) -> None:
        ImportError.__init__(self, f"{purpose} needs {package}, which is not installed: pip install {package}")


class RhocalWarning(_Message, UserWarning):
    """Every warning rhocal gives on purpose."""


class SuspiciousInputWarning(RhocalWarning):
    """The input is used as it was declared, but it looks like something else."""


class BoundaryWarning(RhocalWarning):
    """The data puts the optimum at infinity or at zero; the fit stopped at a stated bound."""


class FewSamplesWarning(RhocalWarning):
    """The calibration set is too small for what is fitted on it."""


class ConvergenceWarning(RhocalWarning):
    """The optimizer stopped before it met its tolerance; ``solution_.converged`` is False."""


class GuardWarning(RhocalWarning):
    """Held-out samples do not show that a fit is as good as the references (``solution_.held_out``)."""


class DecisionWarning(RhocalWarning):
    """What a fit does to the predicted class: it changes it, or keeping it costs likelihood."""


class ShiftWarning(RhocalWarning):
    """Data lies outside the range that a calibrator was fitted on."""


class SubsampleWarning(RhocalWarning):
    """A method that cannot be fitted block by block was fitted on some of the samples."""


def one_line(error: BaseException) -> str:
    """The message of an error of another package in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def warn(
    message: str, category: type[RhocalWarning], *, argument: str | None = None, remedy: str | None = None
) -> None:
    """Give a warning that points at the line outside this package that led to it."""
    level, frame = 2, sys._getframe(1)  # noqa: SLF001 - what `warnings` itself does to count frames
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(category(message, argument=argument, remedy=remedy), stacklevel=level)


_PACKAGE = str(Path(__file__).parent)
