"""LongWriter: prompts for long texts. There is no right answer: these are for votes alone."""

from collections.abc import Iterator, Mapping

from rostra.tasks.grading import Exact
from rostra.tasks.jsonl import metadata_of
from rostra.tasks.question import Question
from rostra.tasks.rows import Row
from rostra.tasks.sources import Source, load
from rostra.tasks.task import Task


def longwriter(source: Source) -> Task:
    return load("longwriter", source, _questions, Exact())


def _questions(row: Row) -> Iterator[Question]:
    prompt = row.prompt("prompt") if "messages" not in row.values else _first_words(row)
    yield Question(row.id, prompt, metadata=metadata_of(row, {"prompt"}))


def _first_words(row: Row) -> str:
    """What the user says first."""
    messages = row.values["messages"]
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, Mapping) and message.get("role") == "user":
            content = message.get("content")
            if isinstance(content, str) and content.strip():
                return content
    raise row.wrong("no message of a user in 'messages'")
