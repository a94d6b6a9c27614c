"""Whom a command is about: a model by name, a folder of weights, or a run."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rostra.errors import ConfigError
from rostra.learn.setup import model_of
from rostra.runs.folder import checkpoint_files, weights_name
from rostra.runs.recipe import find_recipe, read_config, recipe_to_ask
from rostra.runs.settings import Recipe


def recipe_of(
    subject: str,
    settings: Sequence[str] = (),
    *,
    recipe: str | None = None,
    step: int | None = None,
    task: str | None = None,
) -> Recipe:
    """The recipe of a run with its last weights, or defaults (or another recipe) with a model."""
    path = Path(subject)
    is_run = (path / "config.toml").is_file()
    if step is not None and not is_run:
        raise ConfigError(f"--step: {subject} is no run, and has no steps")
    file = find_recipe(recipe) if recipe else path / "config.toml" if is_run else None
    found = recipe_to_ask(file, settings, task)
    model = model_of(subject, found.model)
    if step is not None:
        model = replace(model, start=str(_checkpoint(path, step)))
    return replace(found, model=model)


def opponent_of(spec: str, subject: str, ours: Recipe) -> Recipe:
    """Who sits in the other seats: `base`, the model before any training; `start`, the weights that
    a run began with; or a model, weights or a run of its own."""
    path = Path(subject)
    own = read_config(path).model if (path / "config.toml").is_file() else None
    if spec == "base":
        name = own.name if own else ours.model.name
        return replace(ours, model=replace(ours.model, name=name, start="", lora_rank=0))
    if spec == "start":
        if own is None:
            raise ConfigError(f"--opponent start: {subject} is no run, and began with nothing")
        return replace(ours, model=replace(own, lanes=ours.model.lanes))
    return replace(ours, model=model_of(spec, ours.model))


def _checkpoint(run: Path, step: int) -> Path:
    steps = [int(file.stem.partition("-")[2]) for file in checkpoint_files(run / "checkpoints")]
    if step not in steps:
        raise ConfigError(
            f"--step {step}: {run} has no such checkpoint (there are: {', '.join(map(str, steps))})"
        )
    return run / "checkpoints" / weights_name(step)
