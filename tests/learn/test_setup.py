"""What a run stands for when it is asked."""

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

import rostra
from rostra.errors import ConfigError
from rostra.learn.setup import (
    TAUGHT,
    check_start,
    check_training,
    make_task,
    make_tasks,
    model_of,
    untrained,
)
from rostra.learn.warmstart import teacher
from rostra.runs.recipe import to_toml
from rostra.runs.settings import EngineName, EvalSettings, ModelSettings, Recipe
from rostra.runs.syllabus import BootstrapSettings, Phase, Stage, TaskSettings
from rostra.tasks.catalogue import TaskName
from rostra.tasks.parts import asked


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


SERVED = "http://127.0.0.1:8000/v1#qwen3"


def test_an_address_stands_for_what_is_served_there() -> None:
    found = model_of(SERVED, ModelSettings(name="toy", start="runs/x", lanes=7))
    assert (found.engine, found.name, found.start, found.lanes) == ("openai", SERVED, "", 7)
    # And what stands beside it is run here.
    assert model_of("toy", found).engine == "local"
    assert model_of("scripted", found).engine == "scripted"


def test_what_is_served_is_not_trained() -> None:
    with pytest.raises(ConfigError, match="can play and judge, but not be trained"):
        check_training(Recipe(model=ModelSettings(engine="openai", name=SERVED)), [])
    guided = Recipe(bootstrap=BootstrapSettings(guide=SERVED), model=ModelSettings(name="toy"))
    check_training(guided, [])


def test_what_is_served_has_no_weights_to_begin_with() -> None:
    with pytest.raises(ConfigError, match="the openai engine has no weights"):
        check_start(Recipe(model=ModelSettings(engine="openai", name=SERVED, start="runs/x")))


@pytest.mark.parametrize("engine", ["local", "scripted", "openai"])
def test_a_password_in_an_address_is_neither_taken_nor_repeated(engine: EngineName) -> None:
    with pytest.raises(ConfigError, match="holds no user, password") as caught:
        ModelSettings(engine=engine, name="https://me:hunter2@host/v1#m")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("engine", "name", "says"),
    [
        ("local", SERVED, 'an address needs engine = "openai"'),
        ("scripted", SERVED, 'an address needs engine = "openai"'),
        ("openai", "smollm2", "is not the address of a server"),
    ],
)
def test_an_engine_and_a_name_that_do_not_go_together_are_refused(
    engine: EngineName, name: str, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        ModelSettings(engine=engine, name=name)


SMALL, LARGE = (TaskSettings(name="sums", below=below) for below in (10, 30))


def test_no_stage_trains_on_what_another_holds_back() -> None:
    alone = [make_task(settings) for settings in (SMALL, LARGE)]
    assert {asked(q) for q in alone[0].train} & {asked(q) for q in alone[1].test}
    stages = (Stage(task=SMALL, steps=3), Stage(task=LARGE))
    tasks = make_tasks(Recipe(stages=stages))
    held = {asked(q) for task in tasks for q in task.test}
    assert [len(task.test) for task in tasks] == [len(task.test) for task in alone]
    assert not any(asked(q) in held for task in tasks for q in task.train)


def test_a_run_is_not_asked_what_it_was_trained_on_under_other_settings() -> None:
    own = make_task(LARGE)
    run = Recipe(task=SMALL)
    left = untrained(own, LARGE, run)
    seen = {asked(q) for q in make_task(SMALL).train}
    assert len(left.test) < len(own.test)
    assert [asked(q) for q in left.test] == [asked(q) for q in own.test if asked(q) not in seen]
    assert untrained(own, LARGE, Recipe(task=LARGE)) is own
    assert untrained(own, LARGE, Recipe(task=TaskSettings(name="shop"))) is own


@pytest.mark.parametrize(
    ("recipe", "name", "said"),
    [
        (Recipe(), "aime", "task aime: has no questions to train on"),
        (
            Recipe(eval=EvalSettings(prepared=9)),
            "jsonl",
            "eval.prepared = 9: nobody can prepare answers to task jsonl; set eval.prepared=0",
        ),
        (
            Recipe(stages=(Stage(), Stage()), eval=EvalSettings(prepared=9)),
            "jsonl",
            "stage 2: eval.prepared",
        ),
        (Recipe(loop="warmstart", phases=(Phase(),)), "jsonl", "has no teacher"),
    ],
)
def test_tasks_that_cannot_be_trained_on_are_refused_before_anything_is_made(
    recipe: Recipe, name: str, said: str
) -> None:
    like = make_task(SMALL)
    task = replace(like, name=name, train=[] if name == "aime" else like.train)
    tasks = [like, task] if recipe.stages else [task]
    with pytest.raises(ConfigError, match=said):
        check_training(replace(recipe, model=ModelSettings(name="toy")), tasks)


@pytest.mark.parametrize("name", get_args(TaskName))
def test_who_is_taught_has_a_teacher(name: str) -> None:
    task = replace(make_task(SMALL), name=name)
    if name in TAUGHT:
        teacher(task, Phase())
    else:
        with pytest.raises(ConfigError, match="has no teacher"):
            teacher(task, Phase())


def test_a_task_by_name_is_the_one_of_a_recipe() -> None:
    assert rostra.task("sums", below=10) is make_task(SMALL)
    with pytest.raises(ConfigError, match="belwo: unknown setting, did you mean below"):
        rostra.task("sums", belwo=3)
    with pytest.raises(ConfigError, match="did you mean sums"):
        rostra.task("smus")


def test_a_recipe_by_name_has_rules_to_debate_by() -> None:
    found = rostra.recipe("peer-v2-sums", "protocol.agents=3", "steps=4")
    assert (found.protocol.agents, found.train.steps, found.task.name) == (3, 4, "sums")


def test_a_run_with_stages_is_asked_what_all_of_them_held_back() -> None:
    run = Recipe(stages=(Stage(task=SMALL, steps=3), Stage(task=LARGE)))
    for settings in (SMALL, LARGE):
        own = make_task(settings)
        assert len(untrained(own, settings, run).test) == len(own.test)
