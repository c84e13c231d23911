"""How we say no: which argument, what came, what to do."""

from __future__ import annotations


class RhocalError(Exception):
    """Every error rhocal raises on purpose."""


class InputError(RhocalError, ValueError):
    """Data or an option that cannot be used as it is."""


class FileError(RhocalError, ValueError):
    """A file that is missing, damaged, or not what it should be."""


class NotFittedError(RhocalError, ValueError, AttributeError):
    """A calibrator was asked for probabilities before ``fit``."""


class MissingExtraError(RhocalError, ImportError):
    """An optional package is needed and not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}, which is not installed: pip install 'rhocal[{extra}]'")


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


class SubsampleWarning(RhocalWarning):
    """A method that cannot be fitted block by block was fitted on some of the samples."""
