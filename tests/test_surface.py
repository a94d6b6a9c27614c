"""What `import rostra` offers."""

import importlib
import sys

import pytest

import rostra


@pytest.mark.parametrize("name", rostra.__all__)
def test_every_public_name_resolves_and_is_listed(name: str) -> None:
    assert getattr(rostra, name) is not None
    assert name in dir(rostra)


def test_public_classes_and_functions_are_the_ones_of_their_modules() -> None:
    for name in set(rostra.__all__) - {"__version__"}:
        thing = getattr(rostra, name)
        home = sys.modules[thing.__module__]
        assert home.__name__.startswith("rostra.")
        assert getattr(home, thing.__name__) is thing


def test_no_name_is_offered_twice() -> None:
    assert len(set(rostra.__all__)) == len(rostra.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'rostra' has no attribute 'debaet'"):
        _ = rostra.debaet  # type: ignore[attr-defined]
    assert not hasattr(rostra, "Moderator")


def test_everything_can_be_imported_with_a_star() -> None:
    names: dict[str, object] = {}
    exec("from rostra import *", names)
    assert set(rostra.__all__) <= set(names)


def test_the_version_is_the_one_that_is_installed() -> None:
    assert importlib.import_module("importlib.metadata").version("rostra") == rostra.__version__
