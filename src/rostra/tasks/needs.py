"""Packages that some tasks need, imported where they are used."""

from types import ModuleType

from rostra import needs

INSTALL = "pip install 'rostra[data]'"


def need(package: str) -> ModuleType:
    return needs.need(package, INSTALL)


def check_installed(package: str) -> None:
    needs.check_installed(package, INSTALL)
