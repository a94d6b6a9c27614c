"""What the tests of the local engine share. They need torch, and skip where it is missing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Two test processes on two cores: more threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def toy() -> Any:
    """A toy engine for tests that do not train it."""
    from rostra.engines.local.engine import LocalEngine

    engine = LocalEngine("toy")
    yield engine
    engine.close()


@pytest.fixture
def fresh(tmp_path: Path) -> Any:
    """Makes toy engines of one's own, and closes them."""
    from rostra.engines.local.engine import LocalEngine

    made = []

    def make(**options: Any) -> LocalEngine:
        engine = LocalEngine("toy", **({"folder": tmp_path / "checkpoints"} | options))
        made.append(engine)
        return engine

    yield make
    for engine in made:
        engine.close()
