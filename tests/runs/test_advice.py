"""What does nothing is said."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rostra.debate.peer import peer_v1
from rostra.errors import ConfigError
from rostra.runs.advice import warnings
from rostra.runs.recipe import read_recipe
from rostra.runs.settings import Recipe, RewardSettings, TrainSettings
from rostra.runs.syllabus import BootstrapSettings, Phase, Stage, TaskSettings

RECIPES = Path(__file__).parent.parent.parent / "recipes"
WARM = Recipe(loop="warmstart", phases=(Phase(),))


@pytest.mark.parametrize("file", sorted(RECIPES.glob("*.toml")), ids=lambda file: file.stem)
def test_nothing_is_idle_in_what_we_ship(file: Path) -> None:
    assert warnings(read_recipe(file)) == []


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        (
            replace(WARM, rewards=RewardSettings(truth=0.3), train=TrainSettings(resample=0.5)),
            "rewards.truth, train.resample: do nothing here, as a warm start does not read them",
        ),
        (
            replace(WARM, bootstrap=BootstrapSettings(guide="toy")),
            "bootstrap.guide: does nothing here, as a warm start does not read it; take it out.",
        ),
        (
            Recipe(protocol=peer_v1(format_penalty=0.1), rewards=RewardSettings(judge=0.5)),
            "rewards.judge, protocol.format_penalty: do nothing here, as reward = win_rate does",
        ),
        (
            Recipe(task=TaskSettings(name="shop"), stages=(Stage(),)),
            "task.name: does nothing here, as a run with [[stages]] does not read it",
        ),
        (
            Recipe(bootstrap=BootstrapSettings(weight=0.9)),
            "bootstrap.weight: does nothing here, as a run without bootstrap.guide does not read",
        ),
        (
            Recipe(task=TaskSettings(name="shop", below=40)),
            "task.below: does nothing here, as task shop does not read it",
        ),
        (
            Recipe(train=TrainSettings(questions=4, resample=0.1)),
            "train.resample = 0.1: of 4 questions in a step that is none to ask again",
        ),
        (
            Recipe(protocol=replace(Recipe().protocol, temperature=0.1)),
            "temperature = 0.1: agents with a persona have that of the persona",
        ),
    ],
)
def test_what_does_nothing_is_said(recipe: Recipe, said: str) -> None:
    (warning,) = warnings(recipe)
    assert warning.startswith(said)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"stages": (Stage(threshold=7),)}, "threshold = 7: correct is a share, from 0 to 1"),
    ],
)
def test_what_can_never_be_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Recipe(**changes)
    # Any metric can be the measure, and need not be a share.
    Recipe(stages=(Stage(threshold=7, measure="health/distinct_answers"),))
