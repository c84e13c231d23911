"""Doctests of modules whose framework is not installed are left out; `make integrations` installs them."""

from importlib.util import find_spec

FRAMEWORKS = {"ray": "ray", "spark": "pyspark", "mlflow": "mlflow", "keras": "keras"}

collect_ignore = [
    f"rhocal/integrations/{module}.py" for module, package in FRAMEWORKS.items() if find_spec(package) is None
]
