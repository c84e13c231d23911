"""What a wheel holds, and which platform it claims. Where no compiler works the package is pure Python."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile

import pytest

import rhocal
from helpers import ROOT

pytest.importorskip("setuptools", minversion="77")
pytestmark = pytest.mark.skipif(not (ROOT / "setup.py").is_file(), reason="the source tree is not there")


def test_a_wheel_without_a_compiler_claims_no_platform_and_holds_no_sources(tmp_path):
    source = tmp_path / "source"
    shutil.copytree(
        ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.so", "*.pyd", "__pycache__", "*.egg-info")
    )
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    build = [sys.executable, "setup.py", "-q", "bdist_wheel", "--dist-dir", str(tmp_path / "dist")]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"CC": "false"}
    done = subprocess.run(build, cwd=source, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "dist").iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert not [name for name in names if name.endswith((".c", ".h", ".so"))]
    assert {"rhocal/py.typed", "rhocal/reporting/templates/report.css", "rhocal/numerics/_kernels.pyi"} <= set(names)


def test_the_conda_recipe_requires_what_the_package_requires():
    recipe = (ROOT / "packaging" / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    run = recipe.partition("  run:\n")[2].partition("\n\n")[0]
    listed = {line.strip(" -").replace(" ", "") for line in run.splitlines()}
    assert listed == {f"python{project['requires-python']}", *project["dependencies"]}
    assert f'version: "{rhocal.__version__}"' in recipe
