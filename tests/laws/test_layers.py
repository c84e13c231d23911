"""The house stays as it is built: what may import what, and what `import rhocal` costs."""

import ast
import json
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import rhocal
from packages import ORDER, PAGE, page_with_packages
from rhocal.data.demo import FILES as SHIPPED

SOURCE = Path(rhocal.__file__).parent

# The packages in order: a package may import those above it. Within a package files may import each other.
LAYERS = [
    "__version__", "errors", "numerics", "data", "profile", "objectives", "optimize", "calibrators", "metrics", "evaluation",
    "reporting", "sklearn", "torch", "onnx", "dask", "integrations", "cli", "__main__",
]  # fmt: skip
LATE = {  # inside a function, when asked
    *(("calibrators", later) for later in ("sklearn", "torch", "onnx", "dask")),
    ("evaluation", "dask"),
    ("sklearn", "onnx"),
    ("data", "dask"),
    ("data", "torch"),
}
NEVER = {("metrics", "calibrators"), ("calibrators", "metrics")}
IMPORTERS = {
    "sklearn": {"sklearn"},
    "torch": {"torch", "data"},
    "torchmetrics": {"torch"},
    "lightning": {"torch"},
    "onnx": {"onnx"},
    "onnxruntime": {"onnx"},
    "skl2onnx": {"onnx"},
    "onnxmltools": {"onnx"},
    "pandas": {"evaluation", "integrations"},
    "pyarrow": {"data", "integrations"},
    "zarr": {"data"},
    "dask": {"dask"},
    "distributed": {"dask"},
    "ray": {"integrations"},
    "pyspark": {"integrations"},
    "mlflow": {"integrations"},
    "keras": {"integrations"},
    "typer": {"cli"},
    "rich": {"reporting", "cli"},
    "scipy": {"optimize", "numerics"},
    "threadpoolctl": {"optimize"},
    "matplotlib": {"reporting"},
    "plotly": {"reporting"},
    "jinja2": {"reporting"},
}


def layer(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@cache
def imports(path):
    """Every import of a file: its name, and whether it waits until a function is called or a type checker reads it."""

    def visit(node, late):
        if isinstance(node, ast.Import):
            yield from ((alias.name, late) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "rhocal":
                yield from ((f"rhocal.{alias.name}", late) for alias in node.names)
            else:
                yield node.module, late
        waits = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        checking = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for child in ast.iter_child_nodes(node):
            yield from visit(child, "type" if checking else "call" if waits else late)

    return list(visit(ast.parse(path.read_text(encoding="utf-8")), ""))


FILES = [path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_follow_the_layers(path):
    mine = layer(path)
    for name, late in imports(path):
        if not name.startswith("rhocal."):
            continue
        other = name.split(".")[1]
        if other not in LAYERS:  # a public name such as rhocal.calibrator
            assert mine == "cli"
            continue
        if late != "type":
            assert (mine, other) not in NEVER
        if mine == other or LAYERS.index(other) < LAYERS.index(mine):
            continue
        assert (mine, other) in LATE, f"{mine} imports {other}"
        assert late, f"{mine} imports {other} when it is imported itself; it may only do so inside a function"


def test_the_list_of_packages_is_that_of_the_docstrings():
    assert PAGE.read_text(encoding="utf-8") == page_with_packages(), "run `make packages`"
    assert {path.parent.relative_to(SOURCE).as_posix() for path in SOURCE.glob("*/**/__init__.py")} == set(ORDER)


def test_at_most_twenty_entries():
    entries = {
        path.name for path in SOURCE.iterdir() if path.name != "__pycache__" and path.suffix not in {".so", ".pyd"}
    }
    assert len(entries) <= 20


@pytest.mark.parametrize("package", sorted(p.parent for p in SOURCE.rglob("__init__.py")), ids=lambda p: p.name)
def test_every_package_states_what_belongs_there(package):
    assert ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8")))


@pytest.mark.parametrize(("package", "rooms"), IMPORTERS.items())
def test_every_heavy_dependency_has_one_importer(package, rooms):
    users = {layer(path) for path in FILES for name, _ in imports(path) if name.split(".")[0] == package}
    assert users <= rooms


def fresh(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_import_loads_nothing_heavy():
    loaded = fresh("import rhocal, sys, json; print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))")
    heavy = {
        "sklearn",
        "torch",
        "matplotlib",
        "plotly",
        "jinja2",
        "onnx",
        "pandas",
        "pyarrow",
        "scipy",
        "typer",
        "rich",
        "dask",
        "zarr",
        "PIL",
    }
    assert not heavy & set(loaded)
    assert "numpy" in loaded


def test_help_does_not_import_scipy():
    loaded = fresh(
        "import sys, json\n"
        "from rhocal.cli import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    assert not [name for name in loaded if name.startswith("scipy")]


def test_applying_a_saved_calibrator_needs_no_scipy(tmp_path):
    path = tmp_path / "cal.safetensors"
    rhocal.RhoNormScaling().fit(*rhocal.demo_logits("cal")).save(path)
    loaded = fresh(
        "import rhocal, sys, json\n"
        f"rhocal.load({str(path)!r}).predict_proba(rhocal.demo_logits('test')[0])\n"
        "print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    )
    assert "scipy" not in loaded


def test_import_loads_numpy_and_rhocal_only():
    def loaded(statement):
        return set(fresh(f"import json, sys; {statement}; print(json.dumps(sorted(sys.modules)))"))

    packages = {name.partition(".")[0] for name in loaded("import rhocal") - loaded("import numpy")}
    assert packages - sys.stdlib_module_names <= {"rhocal", "numpy"}


@pytest.mark.parametrize(
    ("code", "absent", "said"),
    [
        ("rhocal.TemperatureScaling().fit([[1, 0.5], [0, 2]], [1, 0]).to_torch()", "torch", "rhocal[torch]"),
        ("import rhocal.torch.metrics", "torchmetrics", "rhocal[torchmetrics]"),
        ("import rhocal.torch.lightning", "lightning", "pip install lightning"),
        ("import rhocal.sklearn", "sklearn", "rhocal[sklearn]"),
        (
            "rhocal.TemperatureScaling().fit([[1, 0.5], [0, 2]], [1, 0]).to_onnx('a.onnx')",
            "onnxruntime",
            "rhocal[onnx]",
        ),
    ],
)
def test_a_missing_extra_is_one_line_that_says_what_to_install(code, absent, said):
    program = (
        f"import sys, json, warnings; sys.modules[{absent!r}] = None; import rhocal; warnings.simplefilter('ignore')\n"
        f"try:\n    {code}\nexcept rhocal.errors.MissingExtraError as error:\n    print(json.dumps(str(error)))"
    )
    message = fresh(program)
    assert absent in message or absent == "sklearn"
    assert said in message
    assert "\n" not in message


def test_public_names_exist():
    assert all(hasattr(rhocal.metrics, name) for name in rhocal.metrics.__all__)
    assert (SOURCE / "py.typed").exists()


SIZES = {
    "images": (5000, 5000, 10),
    "table": (5000, 5000, 2),
    "options": (3000, 3000, 4),
    "cifar10": (5000, 10_000, 10),
}


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_logits(name):
    for split, n_samples in zip(("cal", "test"), SIZES[name][:2], strict=True):
        logits, labels = rhocal.demo_logits(split, name)
        assert logits.shape == (n_samples, SIZES[name][2])
        assert logits.dtype == np.float32
        assert sorted(set(labels.tolist())) == list(range(SIZES[name][2]))


def test_shipped_logits_are_small_and_named():
    with pytest.raises(rhocal.errors.InputError, match="cal or test"):
        rhocal.demo_logits("train")
    with pytest.raises(rhocal.errors.InputError, match="name is one of images, table, options, cifar10"):
        rhocal.demo_logits("test", "imagenet")
    assert sum(path.stat().st_size for path in (SOURCE / "data" / "shipped").rglob("*")) < 1_300_000


def test_the_run_of_the_paper_has_its_card():
    """It was trained by `rhocal-paper train`, whose card and log lie beside it."""
    folder = (SOURCE / "data" / "shipped" / SHIPPED["cifar10"]).parent
    card = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    last = (folder / "log.csv").read_text(encoding="utf-8").splitlines()[-1].split(",")
    assert int(last[0]) == card["epochs"]
    logits, labels = rhocal.demo_logits("cal", "cifar10")
    assert len(labels) == card["n_calibration"]
    assert (logits.argmax(1) == labels).mean() == pytest.approx(float(last[4]), abs=1e-5)


def test_a_wheel_holds_every_file_that_is_read_at_run_time():
    """An editable install finds them anyway; only what pyproject.toml names is installed elsewhere."""
    project = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["rhocal"]
    named = {path for pattern in patterns for path in SOURCE.glob(pattern)}
    compiled = {".py", ".pyc", ".c", ".h", ".so", ".pyd"}
    there = {path for path in SOURCE.rglob("*") if path.is_file() and path.suffix not in compiled}
    assert there
    assert there <= named
