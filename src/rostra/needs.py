"""Packages that not everybody has, imported where they are used."""

import importlib
import importlib.util
from types import ModuleType

from rostra.errors import ConfigError


def need(package: str, install: str) -> ModuleType:
    """The package, or one sentence that says how to get it."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != package.split(".")[0]:
            raise
        raise ConfigError(f"this needs the package {package}: {install}") from None


def check_installed(package: str, install: str) -> None:
    """The same, for a package that is used in another process."""
    if importlib.util.find_spec(package) is None:
        raise ConfigError(f"this needs the package {package}: {install}")
