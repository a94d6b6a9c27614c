"""The NYU debates: people and models argue about stories, and judges say how sure they are."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rostra.errors import DataError
from rostra.tasks.grading import Exact
from rostra.tasks.parts import parted
from rostra.tasks.quality import story_of
from rostra.tasks.question import Question
from rostra.tasks.rows import Row, read_rows
from rostra.tasks.sources import Source
from rostra.tasks.task import Task


@dataclass(frozen=True, slots=True)
class Speech:
    """One turn of a debate, of a debater or the judge."""

    round: int
    kind: str
    role: str
    side: int | None
    """The answer that a debater defends; None for the judge."""
    text: str
    """Quotes stand in <quote> tags."""
    probabilities: tuple[float, float] | None
    """What the judge then gives to each answer."""


@dataclass(frozen=True, slots=True)
class StoredDebate:
    """A debate or a consultancy, as it was recorded."""

    question: Question
    speeches: tuple[Speech, ...]
    judgement: tuple[float, float] | None
    """What the judge gave in the end; None if there was no end."""
    debate: bool
    """False: a consultancy, in which only one side speaks."""
    human: bool
    in_paper: bool


def nyu(source: Source) -> Task:
    """The questions that were debated, once for each debate. Stories go to one part whole."""
    questions = [debate.question for debate in read_nyu(Path(source.path))]
    if not questions:
        raise DataError(f"{source.path}: no debate in it")
    parts = parted(questions, shares=(source.validation, source.held_out), key=story_of)
    train, validation, test = (part[: source.limit or None] for part in parts)
    return Task("nyu", train, test, Exact(), validation)


def read_nyu(path: Path) -> Iterator[StoredDebate]:
    """Every debate of `debates.jsonl`, with the texts of `stories.jsonl` where that lies beside."""
    file = path / "debates.jsonl" if path.is_dir() else path
    stories = file.with_name("stories.jsonl")
    texts = {}
    if stories.exists():
        texts = {row.text("story_key"): row.text("text") for row in read_rows(stories)}
    for row in read_rows(file):
        try:
            yield _debate(row, texts)
        except (TypeError, ValueError, AttributeError, IndexError) as error:
            raise row.wrong(f"cannot be read as a debate: {error}") from None


def _debate(row: Row, texts: Mapping[str, str]) -> StoredDebate:
    answers, right = row.values.get("answers"), row.values.get("correct_index")
    if not isinstance(answers, list) or len(answers) != 2 or right not in (0, 1):
        raise row.wrong("needs two 'answers', and 0 or 1 as 'correct_index'")
    story = row.text("story_key")
    final = _pair(row.values.get("final_judgement"))
    kinds = {name: row.values.get(name) is True for name in _KINDS}
    question = Question(
        row.text("name"),
        row.prompt("question"),
        str(answers[right]),
        (str(answers[0]), str(answers[1])),
        texts.get(story),
        {"story": story, "correct": right, "judge_right": final[right] if final else None, **kinds},
    )
    turns = row.values.get("turns", [])
    return StoredDebate(question, tuple(_speech(turn) for turn in turns), final, *kinds.values())


_KINDS = ("is_debate", "is_human", "included_in_paper")


def _speech(turn: Mapping[str, Any]) -> Speech:
    return Speech(
        int(turn.get("round", 0)),
        str(turn.get("kind", "")),
        str(turn.get("role", "")),
        turn.get("index"),
        str(turn.get("text", "")),
        _pair(turn.get("probabilities")),
    )


def _pair(values: Any) -> tuple[float, float] | None:
    return (float(values[0]), float(values[1])) if values else None
