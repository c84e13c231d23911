"""Ten common jobs: the committed table counts the committed snippets, and no snippet of ours is longer than a peer's."""

import csv
import sys

import pytest

from helpers import ROOT

FOLDER = ROOT / "benchmarks" / "jobs"


@pytest.fixture(scope="module")
def snippets():
    sys.path.insert(0, str(FOLDER))
    try:
        import snippets as module
    finally:
        sys.path.remove(str(FOLDER))
    return module.JOBS


def test_none_of_ours_is_longer(snippets):
    with (FOLDER / "jobs.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(snippets) >= 10
    assert [(row["job"], row["library"]) for row in rows] == [
        (job, name) for job, by in snippets.items() for name in by
    ]
    for row in rows:
        code = snippets[row["job"]][row["library"]].splitlines()
        assert int(row["lines"]) == sum(not line.startswith(("import ", "from ")) for line in code)
    for job in snippets:
        ours, *others = (int(row["lines"]) for row in rows if row["job"] == job)
        assert ours <= min(others)
