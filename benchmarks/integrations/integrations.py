"""Run the programs of examples/integrations with the packages themselves, and write table and programs into the documentation.

    make integrations

A program has user code between ``# begin`` and ``# end``, which docs/integrations.md or docs/scale.md shows, with data before
and checks after it. Its first line names what it is about, and the packages whose versions the table shows.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "integrations"
PAGE = ROOT / "docs" / "integrations.md"
OTHER_PAGES = (ROOT / "docs" / "scale.md",)
"""Pages that show programs too."""
NODE_MODULES = ROOT / "build" / "integrations" / "node" / "node_modules"
SECONDS = 600
"""After which a program is stopped."""

HEAD = re.compile(
    r'"""(?P<title>.*)"""  # packages: (?P<packages>[^;\n]*)(; npm: (?P<npm>[\w-]+))?(; needs: (?P<needs>\w+))?'
)
MARKED = r"(?<=<!-- {name} -->\n).*?(?=<!-- end of {name} -->)"


@dataclass(frozen=True)
class Example:
    """A program that uses rhocal with another package."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem.removeprefix("with_")

    @property
    def head(self) -> re.Match[str]:
        found = HEAD.match(self.text)
        assert found, f"{self.path}: the first line names the packages"
        return found

    @property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @property
    def user_code(self) -> str:
        """What a user writes, as the documentation shows it."""
        found = re.search(r"^ *# begin\n(.*?)^ *# end$", self.text, re.DOTALL | re.MULTILINE)
        assert found, f"{self.path}: no lines between # begin and # end"
        return textwrap.dedent(found[1]).strip("\n") + "\n"

    @property
    def n_lines(self) -> int:
        lines = (line.strip() for line in self.user_code.splitlines())
        return sum(bool(line) and not line.startswith("#") for line in lines)

    @property
    def versions(self) -> str:
        names = [*self.head["packages"].split()]
        found = [f"{name} {_version(name)}" for name in names]
        if self.head["npm"]:
            found.append(f"{self.head['npm']} {_npm_version(self.head['npm'])}")
        return ", ".join(found)

    def run(self) -> str:
        """Nothing if it works, else why it does not."""
        if self.head["needs"] and shutil.which(self.head["needs"]) is None:
            return f"not run: `{self.head['needs']}` is not installed"
        if self.head["npm"] and not (NODE_MODULES / self.head["npm"]).is_dir():
            return f"not run: {self.head['npm']} is not installed"
        environment = os.environ | {"OMP_NUM_THREADS": "1", "RHOCAL_NODE_MODULES": str(NODE_MODULES)}
        with tempfile.TemporaryDirectory() as folder:
            try:
                done = subprocess.run(
                    [sys.executable, self.path], cwd=folder, env=environment, capture_output=True, text=True,
                    timeout=SECONDS, check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                return f"no: not finished after {SECONDS} s"
        if done.returncode == 0:
            return ""
        print(done.stderr, file=sys.stderr)
        lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
        return "no: " + lines[-1].replace("|", " ")[:200]


def _version(package: str) -> str:
    try:
        return version(package).partition("+")[0]
    except PackageNotFoundError:
        return "(absent)"


def _npm_version(package: str) -> str:
    path = NODE_MODULES / package / "package.json"
    found = re.search(r'"version": *"([^"]+)"', path.read_text(encoding="utf-8")) if path.is_file() else None
    return found[1] if found else "(absent)"


def examples() -> list[Example]:
    """All programs."""
    return [Example(path) for path in sorted(EXAMPLES.glob("with_*.py"))]


def page_with_programs(page: str) -> str:
    """The page with the user code of each program that it shows."""
    for example in examples():
        shown = f"```python\n{example.user_code}```\n"
        page = _replaced(page, f"example: {example.name}", shown)
    return page


def _replaced(page: str, name: str, text: str) -> str:
    return re.sub(MARKED.format(name=re.escape(name)), lambda _: text, page, flags=re.DOTALL)


def main() -> None:
    """Run the programs, print the table, and write it into the page; exit code 1 if one does not work."""
    rows, failed = [], False
    for example in examples():
        problem = example.run()
        failed |= problem.startswith("no:")
        rows.append(f"| {example.head['title']} | {problem or 'yes'} | {example.n_lines} | {example.versions} |")
        print(rows[-1], flush=True)
    system = (
        f"rhocal {_version('rhocal')}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    )
    table = "\n".join(["| integration | works | lines | versions |", "|---|---|---|---|", *rows])
    text = f"{system}. Lines are those of the program that this page shows or names, without its data and checks.\n\n{table}\n"
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(_replaced(page_with_programs(page), "table of integrations", text), encoding="utf-8")
    for path in OTHER_PAGES:
        path.write_text(page_with_programs(path.read_text(encoding="utf-8")), encoding="utf-8")
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
