"""The text of ``src/rhocal/__init__.pyi``; run as a script it writes the file."""

from collections import defaultdict
from pathlib import Path

import rhocal

STUB = Path(rhocal.__file__).with_suffix(".pyi")


def order(name):
    """Constants, classes, functions: the order of the linter."""
    return (not name.isupper(), not name[0].isupper(), name)


def stub_text():
    """An import of every public name, which type checkers read instead of the lazy module."""
    imports = defaultdict(list)
    for alias, (module, name) in rhocal.public_names().items():
        imports[module].append(f"{name} as {alias}")
    imports["rhocal"] = [f"{name} as {name}" for name in rhocal.PACKAGES]
    imports["rhocal.calibrators.registry"].append("CALIBRATORS as CALIBRATORS")
    lines = ["# Written by `make stubs` from the registry and rhocal/__init__.py.", ""]
    for module, entries in sorted(imports.items()):
        lines += [f"from {module} import {entry}" for entry in sorted(entries, key=lambda text: order(text.split()[0]))]
    names = "".join(f'    "{name}",\n' for name in sorted(rhocal.__all__, key=order))
    return "\n".join(lines) + f"\n\n__version__: str\n\n__all__ = [\n{names}]\n"


if __name__ == "__main__":
    STUB.write_text(stub_text(), encoding="utf-8")
