"""What `import rhocal` offers: names that are imported when used, and the stub that type checkers read."""

import pytest

import rhocal
from rhocal.calibrators import CALIBRATORS
from stubs import STUB, stub_text


def test_the_stub_lists_what_the_package_offers():
    assert STUB.read_text(encoding="utf-8") == stub_text(), "run `make stubs`"


@pytest.mark.parametrize("name", rhocal.__all__)
def test_every_public_name_exists(name):
    assert getattr(rhocal, name) is not None
    assert name in dir(rhocal)


def test_every_family_is_public():
    assert {method.class_name for method in CALIBRATORS.values()} <= set(rhocal.__all__)
    for method in CALIBRATORS.values():
        assert getattr(rhocal, method.class_name) is method.family


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'rhocal' has no attribute 'magic'"):
        rhocal.magic  # noqa: B018


@pytest.mark.parametrize("name", [name for name in rhocal.__all__ if callable(getattr(rhocal, name))])
def test_help_of_every_public_name_has_an_example(name):
    assert ">>> " in (getattr(rhocal, name).__doc__ or "")
