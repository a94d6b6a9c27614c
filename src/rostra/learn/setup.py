"""From a recipe to the parts of a run: a task and an engine."""

import json
from pathlib import Path

from rostra.engines.engine import Engine
from rostra.engines.scripted import ScriptedEngine
from rostra.errors import ConfigError
from rostra.players.rehearsal import rehearsal
from rostra.runs.folder import checkpoint_files, weights_name
from rostra.runs.settings import ModelSettings, Recipe, TaskSettings
from rostra.tasks.shop import shop
from rostra.tasks.sums import sums
from rostra.tasks.task import Task


def make_task(settings: TaskSettings) -> Task:
    match settings.name:
        case "sums":
            return sums(settings.below, settings.held_out)
        case "shop":
            return shop(settings.size, settings.held_out)


def make_engine(recipe: Recipe, checkpoints: Path | None) -> Engine:
    """The engine of a recipe, at the weights it begins with."""
    model = recipe.model
    if model.engine == "scripted":
        return ScriptedEngine(rehearsal(fault=0.1), checkpoints)
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


def check_start(recipe: Recipe) -> None:
    """Refuses a recipe whose beginning is missing, before anything is made."""
    if recipe.model.start and recipe.model.engine == "scripted":
        raise ConfigError("model.start: the scripted engine has no weights to begin with")
    if recipe.model.start:
        find_start(recipe.model)
    for phase in recipe.phases:
        if phase.kind == "stored" and not Path(phase.path).exists():
            raise ConfigError(f"phases: path = {phase.path!r}: no such run or file")


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
