"""Settings of all tests."""

import gc

import hypothesis
import pytest

from helpers import EXPLORE

# The same cases every time, so that a red build is always about the change. To look further: EXPLORE=50 make pytest
hypothesis.settings.register_profile("rhocal", deadline=None, derandomize=not EXPLORE)
hypothesis.settings.load_profile("rhocal")


def pytest_collection_finish():
    """What is imported and collected by now stays: the garbage collector need not look through it again and again."""
    gc.freeze()


@pytest.fixture
def block_by_block(monkeypatch):
    """Streams of few rows are fitted block by block, as if a pilot had no room for all rows."""
    monkeypatch.setattr("rhocal.data.sources.fits_in_pilot", lambda *_: False)


@pytest.fixture(params=["in memory", "block by block"])
def few_rows(request):
    """Streams of few rows are fitted in both ways."""
    if request.param == "block by block":
        request.getfixturevalue("block_by_block")
    return request.param


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Two more processes than there are processors: some tests wait for a browser, a cluster or a service."""
    return (yield) + 2
