"""Marks that are remembered, and packages that are missing."""

import sys

import pytest

from rostra.errors import ConfigError
from rostra.tasks.marks import Marks
from rostra.tasks.needs import check_installed, need


def test_the_newest_marks_are_remembered() -> None:
    marks = Marks(limit=3)
    for n in range(5):
        marks.keep({(str(n), "?"): n % 2 == 0})
    asked = [(str(n), "?") for n in range(6)]
    assert marks.recall(asked) == {("2", "?"): True, ("3", "?"): False, ("4", "?"): True}


def test_a_package_is_found_or_its_install_line_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert need("json").loads("1") == 1
    check_installed("json")
    monkeypatch.setitem(sys.modules, "absent", None)
    for ask in (need, check_installed):
        with pytest.raises(ConfigError, match=r"^this needs the package absent: pip install 'rost"):
            ask("absent")
    with pytest.raises(ConfigError, match="no_such_package"):
        check_installed("no_such_package")
