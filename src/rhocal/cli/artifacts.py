"""The calibrators that ``-c`` names, as commands with several of them call them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rhocal.cli.answers import load_for
from rhocal.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rhocal.calibrators import Calibrator
    from rhocal.cli.options import Arrays


def load_calibrators(
    paths: Sequence[Path], source: Path | None = None, arrays: Arrays | None = None
) -> dict[str, Calibrator]:
    """The calibrators of files by the name of their method; where two share it, by the name of the file too.

    ``source`` is the file that they are used on; without it they are no models of answers.
    """
    from rhocal.calibrators.artifact import load

    loaded = [
        (load(path) if source is None or arrays is None else load_for(path, source, arrays), path) for path in paths
    ]
    for calibrator, path in loaded[1:]:
        _check_classes(loaded[0][0], paths[0], calibrator, path)
    labels = [calibrator.label for calibrator, _ in loaded]
    by_name: dict[str, Calibrator] = {}
    for calibrator, path in loaded:
        label = calibrator.label
        name = label if labels.count(label) == 1 else f"{label} ({path.stem})"
        if name in by_name:
            raise InputError(f"-c: two calibrators are called {name}; rename one of the files")
        by_name[name] = calibrator
    return by_name


def _check_classes(first: Calibrator, first_path: Path, other: Calibrator, path: Path) -> None:
    """Raise an error for calibrators of different classes: one file of scores cannot belong to both."""
    if [str(name) for name in sorted(first.classes_)] != [str(name) for name in sorted(other.classes_)]:
        raise InputError(
            f"-c: {path.name} and {first_path.name} were fitted on different classes ({_classes(other)} and "
            f"{_classes(first)}); evaluate each with its own file"
        )


def _classes(calibrator: Calibrator) -> str:
    names = [str(name) for name in calibrator.classes_]
    return ", ".join(names if len(names) <= 4 else [*names[:3], "...", names[-1]])
