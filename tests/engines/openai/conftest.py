"""No keys and proxies of whoever runs the tests, shorter pauses, and nothing left open."""

import gc
import os
from collections.abc import Iterator

import pytest

from rostra.engines.openai import endpoint

pause = endpoint._pause


@pytest.fixture(autouse=True, scope="module")
def _closed() -> Iterator[None]:
    """What was not closed warns when it is collected, and a warning is an error."""
    yield
    gc.collect()


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("ROSTRA_KEY_") or name.lower().endswith(("_proxy", "openai_api_key")):
            monkeypatch.delenv(name)
    monkeypatch.setattr(endpoint, "_pause", lambda attempt: pause(attempt) / 10)
