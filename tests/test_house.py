"""The house stays as it is built: what may import what, and what `import rhocal` costs."""

import ast
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import rhocal
from rhocal.demo import NETWORKS

SOURCE = Path(rhocal.__file__).parent

# Import order, one way. A room may import the rooms above it in this list, and its own family.
ORDER = [
    "_version", "_kernels", "errors", "threads", "kernels", "special", "bins", "atomic", "tensors", "predictions", "portable",
    "passes", "profile", "curve_table", "statistics", "objectives", "solve", "demo", "calibrators", "artifact", "saved_profile",
    "metrics", "evaluation", "assess", "model_card", "shift", "curves", "plots", "sklearn", "torch", "onnx", "files", "stored",
    "streams", "blocks", "top_k", "sampling", "reading", "out_of_core", "measuring", "assess_streams", "applying", "dask",
    "monitor", "compare", "campaign", "compare_streams", "ranking", "tables", "report", "report_page", "train", "paper", "cli",
    "__main__",
]  # fmt: skip
MAY_ASK_LATER = {  # inside a function, when asked
    *(("calibrators", room) for room in ("artifact", "sklearn", "torch", "onnx", "out_of_core", "dask")),
    ("measuring", "dask"),
    ("assess", "assess_streams"),
    ("assess_streams", "dask"),
    ("saved_profile", "out_of_core"),
}
NEVER = {("metrics", "calibrators"), ("calibrators", "metrics")}
ROOMS = {
    "sklearn": {"sklearn"},
    "torch": {"torch", "files", "train"},
    "PIL": {"train"},
    "torchmetrics": {"torch"},
    "lightning": {"torch"},
    "onnx": {"onnx"},
    "onnxruntime": {"onnx"},
    "pandas": {"evaluation"},
    "pyarrow": {"files", "stored"},
    "zarr": {"stored"},
    "dask": {"dask"},
    "distributed": {"dask"},
    "typer": {"cli"},
    "rich": {"tables", "cli"},
    "scipy": {"solve", "special", "train"},
    "threadpoolctl": {"solve"},
    "matplotlib": {"plots"},
    "plotly": {"report_page"},
    "jinja2": {"report_page"},
}


def room(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "rhocal":
                yield from (f"rhocal.{alias.name}" for alias in node.names)
            else:
                yield node.module


FILES = [path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_one_way(path):
    mine = room(path)
    for name in imports(path):
        if not name.startswith("rhocal."):
            continue
        other = name.split(".")[1]
        if other not in ORDER:  # a public name such as rhocal.calibrator
            assert mine == "cli"
            continue
        assert (mine, other) not in NEVER
        if mine != other and (mine, other) not in MAY_ASK_LATER:
            assert ORDER.index(other) < ORDER.index(mine), f"{mine} imports {other}"


@pytest.mark.parametrize(("package", "rooms"), ROOMS.items())
def test_every_heavy_dependency_has_its_room(package, rooms):
    users = {room(path) for path in FILES for name in imports(path) if name.split(".")[0] == package}
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
    rhocal.RhoNormScaling().fit(*rhocal.demo_logits("tune")).save(path)
    loaded = fresh(
        "import rhocal, sys, json\n"
        f"rhocal.load({str(path)!r}).predict_proba(rhocal.demo_logits('test')[0])\n"
        "print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    )
    assert "scipy" not in loaded


def test_import_is_no_slower_than_numpy_and_scipy_optimize():
    """At most 1.2 times; the best of five of each, so that a busy machine does not decide."""

    def seconds(statement):
        code = f"import json, time; t = time.perf_counter(); {statement}; print(json.dumps(time.perf_counter() - t))"
        return min(fresh(code) for _ in range(5))

    assert seconds("import rhocal") <= 1.2 * seconds("import numpy, scipy.optimize")


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
    assert all(hasattr(rhocal, name) for name in rhocal.__all__)
    assert all(hasattr(rhocal.metrics, name) for name in rhocal.metrics.__all__)
    assert (SOURCE / "py.typed").exists()


def test_shipped_logits():
    for split, n in (("tune", 5000), ("test", 10_000)):
        logits, labels = rhocal.demo_logits(split)
        assert logits.shape == (n, 10)
        assert np.bincount(labels).tolist() == [n // 10] * 10
    with pytest.raises(rhocal.errors.InputError, match="tune or test"):
        rhocal.demo_logits("train")
    with pytest.raises(rhocal.errors.InputError, match="network is one of cifar10, flowers102"):
        rhocal.demo_logits("test", "imagenet")
    assert sum(path.stat().st_size for path in (SOURCE / "data").rglob("*")) < 3_000_000


@pytest.mark.parametrize("network", NETWORKS)
def test_shipped_logits_have_their_card(network):
    """Whatever is shipped was trained by `rhocal train`, whose card and log lie beside it."""
    folder = SOURCE / "data" / NETWORKS[network]
    card = json.loads((folder / "run.json").read_text())
    for split in ("tune", "test"):
        logits, labels = rhocal.demo_logits(split, network)
        assert logits.shape == (card[f"n_{split}"], card["n_classes"])
        assert logits.dtype == np.float32
        assert len(labels) == len(logits)
    last = (folder / "log.csv").read_text().splitlines()[-1].split(",")
    assert int(last[0]) == card["epochs"]
    logits, labels = rhocal.demo_logits("tune", network)
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
