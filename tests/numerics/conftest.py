"""What tests of the compiled kernels share."""

import pytest

from rhocal.numerics import kernels


@pytest.fixture
def in_numpy(monkeypatch):
    """What a function gives with the compiled passes switched off."""

    def run(function, *args, **options):
        with monkeypatch.context() as patch:
            patch.setattr(kernels, "is_enabled", False)
            return function(*args, **options)

    return run
