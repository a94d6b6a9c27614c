"""From a recipe to the parts of a run: a task and an engine."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from rostra.debate.prompts import did_you_mean
from rostra.engines.address import is_address
from rostra.engines.engine import Engine
from rostra.engines.scripted import ScriptedEngine
from rostra.errors import ConfigError
from rostra.players.rehearsal import rehearsal
from rostra.runs.folder import checkpoint_files, weights_name
from rostra.runs.recipe import read_config
from rostra.runs.settings import ModelSettings, Recipe
from rostra.runs.syllabus import TaskSettings
from rostra.tasks.aime import aime
from rostra.tasks.catalogue import CATALOGUE, GRADER, TaskName
from rostra.tasks.gsm8k import gsm8k
from rostra.tasks.jsonl import own_task
from rostra.tasks.longwriter import longwriter
from rostra.tasks.math import math
from rostra.tasks.nyu import nyu
from rostra.tasks.parts import without
from rostra.tasks.quality import quality
from rostra.tasks.reasoning_gym import reasoning_gym
from rostra.tasks.shop import shop
from rostra.tasks.sources import Source
from rostra.tasks.sums import sums
from rostra.tasks.task import PartName, Task


def make_task(settings: TaskSettings) -> Task:
    """The task of the settings. It is read once: the same settings give the same task."""
    task = _made(json.dumps(asdict(replace(settings, only={}))))
    return task.where(settings.only) if settings.only else task


@lru_cache(maxsize=8)
def _made(frozen: str) -> Task:
    settings = TaskSettings(**json.loads(frozen))
    source = Source(
        settings.path,
        settings.dataset or CATALOGUE[settings.name].hub,
        settings.splits,
        settings.validation,
        settings.held_out,
        settings.limit,
    )
    match settings.name:
        case "sums":
            return sums(settings.below, settings.held_out)
        case "shop":
            return shop(settings.size, settings.held_out)
        case "gsm8k":
            return gsm8k(source)
        case "math":
            return math(source, settings.levels, settings.subjects)
        case "aime":
            return aime(source)
        case "longwriter":
            return longwriter(source)
        case "quality":
            return quality(source, settings.hard)
        case "nyu":
            return nyu(source)
        case "reasoning_gym":
            return reasoning_gym(source, settings.size)
        case "jsonl" | "hub":
            return own_task(settings.name, source, settings.fields, settings.grader or GRADER)


def task(name: TaskName, **settings: Any) -> Task:
    """A task by its name, with settings as in the table [task] of a recipe."""
    known = tuple(field.name for field in fields(TaskSettings))
    for key in settings:
        if key not in known:
            raise ConfigError(f"{key}: unknown setting{did_you_mean(key, known)}")
    return make_task(TaskSettings(name=name, **settings))


HELD: tuple[PartName, ...] = ("validation", "test")
"""The parts that nothing is trained on."""


def make_tasks(recipe: Recipe) -> list[Task]:
    """The task of a recipe, or those of its stages. No stage trains on what another holds back."""
    if not recipe.stages:
        return [make_task(recipe.task)]
    tasks = [make_task(stage.task) for stage in recipe.stages]
    held = [question for task in tasks for question in (*task.validation, *task.test)]
    return [replace(task, train=without(task.train, held)) for task in tasks]


def untrained(task: Task, settings: TaskSettings, run: Recipe) -> Task:
    """A task without the questions that a run was trained on under other settings, such as other
    shares for its parts."""
    stages = [stage.task for stage in run.stages] or [run.task]
    if not any(one.name == settings.name and one != settings for one in stages):
        return task
    pairs = zip(stages, make_tasks(run), strict=True)
    seen = [q for one, trained in pairs if one.name == settings.name for q in trained.train]
    held = {name: without(task.part(name), seen) for name in HELD}
    return replace(task, **held)  # type: ignore[arg-type]


def model_of(spec: str, like: ModelSettings) -> ModelSettings:
    """The model that a name, an address, a folder of weights or a run stands for, to be asked and
    not trained; the rest as in `like`."""
    if is_address(spec):
        return replace(like, engine="openai", name=spec, start="", lora_rank=0)
    path = Path(spec)
    name = ModelSettings().name if like.engine == "openai" else like.name
    like = replace(like, engine="local", name=name, start="", lora_rank=0)
    if spec == "scripted":
        return replace(like, engine="scripted")
    adapted = (path / "adapter_config.json").is_file()
    run = path.parent.parent if adapted else path
    if (run / "config.toml").is_file():
        own = read_config(run).model
        # Where all weights were trained, what they began as may be gone.
        begun = find_start(own) if own.start and own.lora_rank else None
        if begun is not None and not (begun / "adapter_config.json").exists():
            own = replace(own, name=str(begun))  # what an adapter of the run stands on
        if own.engine == "scripted":
            return replace(own, start="")  # a rehearsal has no weights to go on with
        return replace(own, start=spec, lanes=like.lanes, threads=like.threads or own.threads)
    if adapted or (path / "config.json").exists():
        return replace(like, start=spec)
    return replace(like, name=spec)


def run_of(spec: str) -> Path | None:
    """The run that a model comes from, where it is a run or the weights of one."""
    path = Path(spec)
    run = path.parent.parent if path.parent.name == "checkpoints" else path
    return run if (run / "config.toml").is_file() else None


def make_engine(recipe: Recipe, checkpoints: Path | None) -> Engine:
    """The engine of a recipe, at the weights it begins with."""
    model = recipe.model
    if model.engine == "scripted":
        return ScriptedEngine(rehearsal(fault=0.1), checkpoints)
    if model.engine == "openai":
        from rostra.engines.openai.engine import OpenAIEngine

        return OpenAIEngine(model.name, lanes=model.lanes)
    # torch takes seconds to import, and a rehearsal does without.
    import torch

    from rostra.engines.local.engine import LocalEngine, SamplerOptions
    from rostra.engines.local.lora import Lora
    from rostra.engines.local.trainer import TrainerOptions

    if model.threads:
        torch.set_num_threads(model.threads)
    name, adapter = model.name, None
    if model.start:
        found = find_start(model)
        if (found / "adapter_config.json").exists():
            adapter = found
        else:
            name = str(found)
    return LocalEngine(
        name,
        lora=Lora(model.lora_rank, model.lora_alpha) if model.lora_rank else None,
        adapter=adapter,
        folder=checkpoints,
        seed=recipe.seed,
        sampling=SamplerOptions(lanes=model.lanes),
        training=TrainerOptions(model.batch_tokens, model.checkpointing),
    )


TAUGHT = ("sums", "shop")
"""Tasks that somebody can teach, and prepare answers to."""


def check_training(recipe: Recipe, tasks: Sequence[Task]) -> None:
    """Refuses a recipe that cannot be carried out, before anything is made."""
    if recipe.model.engine == "openai":
        raise ConfigError(
            f"model.name = {recipe.model.name!r}: a model behind an address can play and judge, "
            'but not be trained; train with model.engine = "local"'
        )
    check_start(recipe)
    prepared = recipe.eval.prepared if recipe.eval.questions else 0
    if prepared and not recipe.protocol.closing_ballot:
        raise ConfigError("eval.prepared: needs protocol.closing_ballot = true, to judge in")
    for number, task in enumerate(tasks, 1):
        where = f"stage {number}: " if recipe.stages else ""
        if recipe.loop == "selfplay" and not task.train:
            raise ConfigError(
                f"{where}task {task.name}: has no questions to train on; give a file or split of "
                "them"
            )
        if prepared and task.name not in TAUGHT:
            raise ConfigError(
                f"{where}eval.prepared = {prepared}: nobody can prepare answers to "
                f"task {task.name}; set eval.prepared=0"
            )
        if any(phase.kind != "stored" for phase in recipe.phases) and task.name not in TAUGHT:
            raise ConfigError(f'phases: task {task.name} has no teacher; use kind = "stored"')


def check_start(recipe: Recipe) -> None:
    """Refuses a recipe whose beginning is missing, before anything is made."""
    if recipe.model.start and recipe.model.engine != "local":
        raise ConfigError(
            f"model.start: the {recipe.model.engine} engine has no weights to begin with"
        )
    if recipe.model.start:
        find_start(recipe.model)
    if recipe.bootstrap.guide:
        guide = model_of(recipe.bootstrap.guide, recipe.model)
        if guide.start:
            find_start(guide)
    for phase in recipe.phases:
        if phase.kind == "stored" and not Path(phase.path).exists():
            raise ConfigError(f"phases: path = {phase.path!r}: no such run or file")


def fingerprint(model: ModelSettings) -> str:
    """What tells the weights of a model from others that were put in their place: the folder they
    are read from, and a digest of their ends. Empty where they have no folder."""
    if not model.start:
        return ""
    folder = find_start(model)
    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.safetensors")):
        size = file.stat().st_size
        with file.open("rb") as weights:
            digest.update(f"{file.name} {size} ".encode() + weights.read(1 << 20))
            weights.seek(max(0, size - (1 << 20)))
            digest.update(weights.read())
    return f"{folder.name} {digest.hexdigest()[:16]}"


def find_start(model: ModelSettings) -> Path:
    """The folder of weights that a run begins with: a checkpoint, or the last one of a run."""
    path = Path(model.start)
    if (path / "config.json").exists() or (path / "adapter_config.json").exists():
        return path
    for file in reversed(checkpoint_files(path / "checkpoints")):
        try:
            return path / "checkpoints" / weights_name(int(json.loads(file.read_text())["step"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    raise ConfigError(
        f"model.start: {path} holds no weights; give a run that has saved a checkpoint, or the "
        "folder of one (the warm start of a recipe has to be run first)"
    )
