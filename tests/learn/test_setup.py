"""What a run stands for when it is asked."""

from pathlib import Path

import pytest

from rostra.errors import ConfigError
from rostra.learn.setup import model_of
from rostra.runs.recipe import to_toml
from rostra.runs.settings import ModelSettings, Recipe


def run(folder: Path, rank: int) -> Path:
    model = ModelSettings(name="toy", start=str(folder / "gone"), lora_rank=rank)
    (folder / "config.toml").write_text(to_toml(Recipe(model=model)))
    return folder


def test_a_run_that_trained_all_weights_can_be_asked_without_what_it_began_with(
    tmp_path: Path,
) -> None:
    found = model_of(str(run(tmp_path, 0)), ModelSettings())
    assert (found.name, found.start) == ("toy", str(tmp_path))


def test_an_adapter_needs_what_it_stands_on(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gone holds no weights"):
        model_of(str(run(tmp_path, 8)), ModelSettings())
