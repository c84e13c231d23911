"""How we say no: which argument, what came, what to do."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path


class RhocalError(Exception):
    """Every error rhocal raises on purpose."""


class InputError(RhocalError, ValueError):
    """Data or an option that cannot be used as it is."""


class NeedsLogitsError(InputError):
    """A fit that a profile cannot serve: it reads the logits themselves."""


class FileError(RhocalError, ValueError):
    """A file that is missing, damaged, or not what it should be."""


class MissingArrayError(FileError):
    """A file without an array of the name that was asked for."""


class NotFittedError(RhocalError, ValueError, AttributeError):
    """A calibrator was asked for probabilities before ``fit``."""


def not_fitted(message: str) -> NotFittedError:
    """The error; where scikit-learn is in use it is scikit-learn's too, which its tools look for."""
    theirs = getattr(sys.modules.get("sklearn.exceptions"), "NotFittedError", None)
    if theirs is None:
        return NotFittedError(message)
    return type("NotFittedError", (NotFittedError, theirs), {"__module__": __name__})(message)


class MissingExtraError(RhocalError, ImportError):
    """An optional package is needed and not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}, which is not installed: pip install 'rhocal[{extra}]'")


class MissingPackageError(MissingExtraError):
    """A package that no extra of ours installs."""

    def __init__(self, package: str, purpose: str) -> None:
        ImportError.__init__(self, f"{purpose} needs {package}, which is not installed: pip install {package}")


class RhocalWarning(UserWarning):
    """Every warning rhocal gives on purpose."""


class SuspiciousInputWarning(RhocalWarning):
    """The input is used as it was declared, but it looks like something else."""


class BoundaryWarning(RhocalWarning):
    """The data puts the optimum at infinity or at zero; the fit stopped at a stated bound."""


class FewSamplesWarning(RhocalWarning):
    """The tune set is too small for what is fitted on it."""


class ConvergenceWarning(RhocalWarning):
    """The optimiser stopped before it met its tolerance; ``solution_.converged`` is False."""


class ShiftWarning(RhocalWarning):
    """Data lies outside the range that a calibrator was fitted on."""


class SubsampleWarning(RhocalWarning):
    """A method that cannot be fitted block by block was fitted on some of the samples."""


def one_line(error: BaseException) -> str:
    """What an error of another package says, in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def warn(message: str, category: type[RhocalWarning]) -> None:
    """Give a warning that points at the line outside this package that led to it."""
    level, frame = 2, sys._getframe(1)  # noqa: SLF001 - what `warnings` itself does to count frames
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


_PACKAGE = str(Path(__file__).parent)
