"""Rostra trains language models by letting them debate."""

import importlib
from typing import Any

__version__ = "0.1.0"

_SURFACE = {
    "Adam": "rostra.engines.training",
    "ByteChat": "rostra.engines.bytechat",
    "Completion": "rostra.engines.sampling",
    "Datum": "rostra.engines.training",
    "Engine": "rostra.engines.engine",
    "LocalEngine": "rostra.engines.local.engine",
    "Lora": "rostra.engines.local.lora",
    "OpenAIEngine": "rostra.engines.openai.engine",
    "SamplingParams": "rostra.engines.sampling",
    "Schedule": "rostra.engines.schedules",
    "ScriptedEngine": "rostra.engines.scripted",
    "Question": "rostra.tasks.question",
    "Task": "rostra.tasks.task",
    "task": "rostra.learn.setup",
    "Recipe": "rostra.runs.settings",
    "recipe": "rostra.runs.recipe",
    "PeerRules": "rostra.debate.peer",
    "Protocol": "rostra.debate.protocol",
    "Seat": "rostra.debate.seat",
    "Slot": "rostra.debate.protocol",
    "State": "rostra.debate.state",
    "Transcript": "rostra.debate.transcript",
    "Turn": "rostra.debate.turn",
    "TurnId": "rostra.debate.turn",
    "Vote": "rostra.debate.votes",
    "peer_v1": "rostra.debate.peer",
    "peer_v2": "rostra.debate.peer",
    "ModelPlayer": "rostra.players.model",
    "ScriptedPlayer": "rostra.players.scripted",
    "Debate": "rostra.arena",
    "play": "rostra.arena",
    "RewardRules": "rostra.rewards.score",
    "score": "rostra.rewards.score",
    "datums": "rostra.credit.datums",
    "read_transcripts": "rostra.runs.transcripts",
    "write_transcript": "rostra.runs.transcripts",
    "Answer": "rostra.evals.answering",
    "answer": "rostra.evals.answering",
    "answer_async": "rostra.evals.answering",
    "answer_many": "rostra.evals.answering",
}
"""The public names and where they live. Imported on first use, so `import rostra` costs nothing."""

__all__ = ["__version__", *_SURFACE]


def __getattr__(name: str) -> Any:
    if name not in _SURFACE:
        raise AttributeError(f"module 'rostra' has no attribute {name!r}")
    return getattr(importlib.import_module(_SURFACE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
