"""Settings of all tests."""

import gc

import hypothesis

from helpers import EXPLORE

# The same cases every time, so that a red build is always about the change. To look further: EXPLORE=50 make pytest
hypothesis.settings.register_profile("rhocal", deadline=None, derandomize=not EXPLORE)
hypothesis.settings.load_profile("rhocal")


def pytest_collection_finish():
    """What is imported and collected by now stays: the garbage collector need not look through it again and again."""
    gc.freeze()
