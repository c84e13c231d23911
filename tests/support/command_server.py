"""Run commands in forks of one process that has imported the package: importing it takes longer than most commands do.

A request is a line of JSON on stdin, the answer a line with the exit code. The command's output goes to files.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import sys
import traceback

FRAMEWORKS = ("dask", "integrations", "onnx", "sklearn", "torch")
"""Packages that import a framework: a command that needs one imports it, as it does for people."""


WARM_UP = (["methods"], ["fit", "--help"])
"""Commands that the server itself runs first: the parser and the tables import most of their modules when used."""


def import_package() -> None:
    """Import every module of rhocal that needs no framework, and what the command line imports when it is used."""
    import rhocal

    skipped = tuple(f"rhocal.{name}" for name in FRAMEWORKS)
    for module in pkgutil.walk_packages(rhocal.__path__, "rhocal.", onerror=lambda _: None):
        if not module.name.startswith(skipped) and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in ("pyarrow.parquet", "safetensors.numpy"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    from typer.testing import CliRunner

    from rhocal.cli import app
    from rhocal.errors import MissingExtraError
    from rhocal.reporting.page import _plotly, load_templates

    with contextlib.suppress(MissingExtraError):
        _plotly()  # every page embeds the same bundle, compressed
        for name in load_templates().list_templates(extensions=["j2"]):
            load_templates().get_template(name)  # and compiles the same templates
    for arguments in WARM_UP:
        CliRunner().invoke(app, arguments)
    gc.freeze()  # forks need not look through what is imported


def run_command(request: dict) -> None:
    """Become the command: its arguments, folder, environment and output."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        os.dup2(os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    os.dup2(os.open(request["stdin"], os.O_RDONLY), 0)
    sys.argv = request["command"]
    code = 1
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - what an interpreter does with it
        traceback.print_exc()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    """Answer requests until stdin ends."""
    import_package()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            run_command(json.loads(line))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
