"""The section of CONTRIBUTING.md that lists the packages, from their docstrings. Written by `make packages`."""

import ast
import re

from helpers import ROOT

SOURCE = ROOT / "src" / "rhocal"
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- packages: written by `make packages` -->", "<!-- end of packages -->"
ORDER = (
    "numerics", "data", "data/labels", "data/formats", "data/language_models", "data/storage", "profile", "objectives",
    "optimize", "calibrators", "calibrators/scale", "calibrators/linear", "calibrators/binary", "calibrators/order",
    "calibrators/compose", "calibrators/cascade", "calibrators/correctness", "calibrators/online", "calibrators/bootstrap",
    "calibrators/policies", "calibrators/portable", "metrics", "metrics/inference", "evaluation", "reporting",
    "reporting/curves", "reporting/plots", "reporting/sections", "sklearn", "torch", "onnx", "dask", "integrations", "cli",
)  # fmt: skip
"""Each package imports only those above it; `tests/laws/test_layers.py` checks it."""


def statement(package):
    """The first two paragraphs of a package's docstring: what belongs there and what does not."""
    text = ast.get_docstring(ast.parse((SOURCE / package / "__init__.py").read_text(encoding="utf-8")))
    paragraphs = [" ".join(part.split()) for part in text.split("\n\n") if not part.lstrip().startswith(">>>")]
    return " ".join(paragraphs[:2]).replace("``", "`")


def packages_text():
    """The list of packages."""
    return "\n".join(f"- **`{package}/`** {statement(package)}" for package in ORDER)


def page_with_packages():
    """CONTRIBUTING.md with the list as it should be."""
    page = PAGE.read_text(encoding="utf-8")
    return re.sub(
        f"(?<={re.escape(BEGIN)}\n).*?(?=\n{re.escape(END)})", lambda _: packages_text(), page, flags=re.DOTALL
    )


if __name__ == "__main__":
    PAGE.write_text(page_with_packages(), encoding="utf-8")
