"""The provenance of a report: commands, versions, hashes of inputs; and what to cite."""

from __future__ import annotations

import hashlib
import platform
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from rhocal import __version__
from rhocal.reporting.sections.methods import uses_rho_norm

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rhocal.reporting.sections.methods import MethodSection

PACKAGES = ("numpy", "scipy")

CITATIONS = [
    {
        "what": "the method",
        "text": "Siyuan Zhang and Linbo Xie. Parametric ρ-Norm Scaling Calibration. arXiv:2412.15301, 2024.",
        "bibtex": "@article{zhang2024rhonorm,\n  title = {Parametric $\\rho$-Norm Scaling Calibration},\n"
        "  author = {Zhang, Siyuan and Xie, Linbo},\n  journal = {arXiv preprint arXiv:2412.15301},\n  year = {2024}\n}",
    },
    {
        "what": "the software",
        "text": f"The rhocal developers. rhocal, version {__version__}.",
        "bibtex": f"@software{{rhocal,\n  title = {{rhocal}},\n  author = {{{{The rhocal developers}}}},\n"
        f"  version = {{{__version__}}}\n}}",
    },
]


def citations(methods: Sequence[MethodSection]) -> list[dict[str, str]]:
    """What to cite: the paper where its method is used, and the software."""
    return CITATIONS if uses_rho_norm(methods) else CITATIONS[1:]


@dataclass(frozen=True)
class InputFile:
    """A file that the report is about."""

    name: str
    n_bytes: int
    sha256: str

    @classmethod
    def from_path(cls, path: Path, name: str | None = None) -> InputFile:
        """Read the file once for its hash."""
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return cls(str(path) if name is None else name, path.stat().st_size, digest)


@dataclass(frozen=True)
class Provenance:
    """The origin of a report."""

    title: str
    created: str
    commands: tuple[str, ...] = ()
    inputs: tuple[InputFile, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def now(cls, title: str, commands: Sequence[str] = (), inputs: Sequence[InputFile] = ()) -> Provenance:
        """With the current time and the installed versions."""
        created = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        return cls(title, created, tuple(commands), tuple(inputs), _versions())


def _versions() -> dict[str, str]:
    versions = {"rhocal": __version__, "Python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions
