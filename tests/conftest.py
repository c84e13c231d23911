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


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Two more processes than there are processors: some tests wait for a browser, a cluster or a service."""
    return (yield) + 2
