"""Errors: the tree in the module's docstring is the hierarchy, and a remedy names the argument or the option."""

import pickle
import re
from copy import copy

import pytest

from helpers import run
from rhocal import errors
from rhocal.cli import app, in_options
from rhocal.errors import FileError, InputError, MissingExtraError, MissingPackageError, RhocalError, RhocalWarning

CLASSES = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, RhocalError | RhocalWarning)
}


def drawn():
    """Name → parent, as the docstring draws them."""
    parents, last = {}, {}
    for line in errors.__doc__.splitlines():
        found = re.match(r"^((?:│   |    |├── |└── )*)(\w+)", line)
        if found and found[2] in CLASSES:
            depth = len(found[1]) // 4
            parents[found[2]] = last.get(depth - 1)
            last[depth] = found[2]
    return parents


def test_the_tree_is_the_hierarchy():
    parents = drawn()
    assert set(parents) == set(CLASSES)
    for name, parent in parents.items():
        if parent is not None:
            assert CLASSES[name].__mro__[1] is CLASSES[parent]


def test_a_remedy_in_the_words_of_the_caller():
    error = InputError(
        "logits.npz: labels are missing", argument="labels_name", remedy="name the array that holds them"
    )
    assert str(error) == "logits.npz: labels are missing. Pass labels_name= to name the array that holds them"
    assert (
        in_options(error, app) == "logits.npz: labels are missing. Use --labels-name to name the array that holds them"
    )
    valued = InputError("row 3 sums to 7", argument="kind='logits'", remedy="use them as logits")
    assert str(valued) == "row 3 sums to 7. Pass kind='logits' to use them as logits"
    assert in_options(valued, app) == "row 3 sums to 7. Use --kind logits to use them as logits"
    unknown = InputError("labels are texts", argument="n_draws", remedy="draw more")
    assert in_options(unknown, app) == "labels are texts"
    alone = InputError("kind is missing", argument="kind")
    assert str(alone) == "kind is missing"
    assert in_options(alone, app) == "--kind is missing"
    assert in_options(InputError("plain"), app) == str(InputError("plain")) == "plain"


@pytest.mark.parametrize(
    "error",
    [
        FileError("x: missing", argument="labels_name", remedy="name it"),
        MissingExtraError("pandas", "pandas", "to_pandas()"),
        MissingPackageError("mlflow", "logging"),
        errors.not_fitted("fit first"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_cross_processes_and_keep_their_remedy(error):
    for other in (pickle.loads(pickle.dumps(error)), copy(error)):  # noqa: S301 - our own
        assert (type(other), str(other), other.argument) == (type(error), str(error), error.argument)
    assert str(error.at("z.npy, rows 0 to 9")) == f"z.npy, rows 0 to 9: {error}"
    assert type(error.at("here")) is type(error)


def test_the_command_line_names_options(tmp_path):
    (tmp_path / "y.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    text = run("evaluate", tmp_path / "y.csv", code=2).stderr
    assert "labels_name" not in text
    assert "--labels-name" in text
