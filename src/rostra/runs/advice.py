"""What in a recipe will disappoint, and what does nothing."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from rostra.runs.settings import Recipe

SELF_PLAY = (
    "steps",
    "questions",
    "mode",
    "staleness",
    "loss",
    "learning_rate",
    "schedule",
    "warmup",
    "floor",
    "weight_decay",
    "resample",
    "difficulty",
)
"""Settings of [train] that a warm start does not read: its phases have their own."""
STREAMS = ("judge_truth", "gen", "judge")
"""Settings of [rewards] that need solving and judging to be paid apart."""
TOYS = {"below": ("sums",), "size": ("shop", "reasoning_gym")}
"""Settings of [task] that only some tasks read."""


def warnings(recipe: Recipe) -> list[str]:
    """One sentence each, with the fix."""
    return [*recipe.protocol.warnings(), *_idle(recipe)]


def _idle(recipe: Recipe) -> list[str]:
    """Settings that were changed and are never read."""
    found = []
    if recipe.loop == "warmstart":
        unread = changed("rewards", recipe.rewards) + changed("bootstrap", recipe.bootstrap)
        found += _said(unread + changed("train", recipe.train, SELF_PLAY), "a warm start")
    elif recipe.protocol.reward != "streams":
        unread = changed("rewards", recipe.rewards, STREAMS)
        unread += changed("protocol", recipe.protocol, ("format_penalty",))
        found += _said(unread, f"reward = {recipe.protocol.reward}")
    if recipe.stages:
        found += _said(changed("task", recipe.task), "a run with [[stages]]")
    if recipe.loop == "selfplay" and not recipe.bootstrap.guide:
        found += _said(changed("bootstrap", recipe.bootstrap), "a run without bootstrap.guide")
    for name, tasks in TOYS.items():
        if recipe.task.name not in tasks:
            found += _said(changed("task", recipe.task, (name,)), f"task {recipe.task.name}")
    again = recipe.train.resample * recipe.train.questions
    if recipe.train.resample and (round(again) < 1 or recipe.train.questions == 1):
        found.append(
            f"train.resample = {recipe.train.resample}: of {recipe.train.questions} questions in a "
            "step that is none to ask again; raise it, or train.questions."
        )
    return found


def _said(names: Sequence[str], who: str) -> list[str]:
    if not names:
        return []
    does, them = ("does", "it") if len(names) == 1 else ("do", "them")
    return [
        f"{', '.join(names)}: {does} nothing here, as {who} does not read {them}; take {them} out."
    ]


def changed(table: str, settings: Any, names: Sequence[str] | None = None) -> list[str]:
    """The settings of a table that are not the default, all or some, with their full names."""
    default = type(settings)()
    every = [field.name for field in fields(settings)] if names is None else names
    return [f"{table}.{n}" for n in every if getattr(settings, n) != getattr(default, n)]
