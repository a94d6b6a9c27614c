"""The NYU debates: people and models argue about stories, and judges say how sure they are."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rostra.errors import DataError
from rostra.tasks.grading import Exact, plain
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
    places: dict[str, str] = {}
    for row in read_rows(file):
        debate = _debate(row, texts)
        before = places.setdefault(debate.question.id, row.place)
        if before != row.place:
            name = debate.question.id
            raise row.wrong(f"has the name {name!r} that {before} has; names must differ")
        yield debate


def _debate(row: Row, texts: Mapping[str, str]) -> StoredDebate:
    answers, right = row.values.get("answers"), row.values.get("correct_index")
    if not isinstance(answers, list) or len(answers) != 2 or right not in (0, 1):
        raise row.wrong("needs two 'answers', and 0 or 1 as 'correct_index'")
    right = int(right)
    first, second = row.texts("answer", answers)
    if plain(first) == plain(second):
        raise row.wrong(f"both answers are {first!r}")
    story = row.text("story_key")
    final = _pair(row, "final_judgement", row.values.get("final_judgement"))
    kinds = {name: row.values.get(name) is True for name in _KINDS}
    question = Question(
        row.text("name"),
        row.prompt("question"),
        (first, second)[right],
        (first, second),
        texts.get(story),
        {"story": story, "correct": right, "judge_right": final[right] if final else None, **kinds},
    )
    turns = row.values.get("turns", [])
    if not isinstance(turns, list):
        raise row.wrong("'turns' must be a list")
    speeches = [_speech(row, number, turn) for number, turn in enumerate(turns, 1)]
    return StoredDebate(question, tuple(speeches), final, *kinds.values())


_KINDS = ("is_debate", "is_human", "included_in_paper")


def _speech(row: Row, number: int, turn: Any) -> Speech:
    if not isinstance(turn, Mapping):
        raise row.wrong(f"turn {number} must be an object with named fields")
    at, side = turn.get("round", 0), turn.get("index")
    if type(at) is not int or not (side is None or type(side) is int):
        raise row.wrong(f"turn {number}: 'round' and 'index' must be whole numbers")
    return Speech(
        at,
        str(turn.get("kind", "")),
        str(turn.get("role", "")),
        side,
        str(turn.get("text", "")),
        _pair(row, f"probabilities of turn {number}", turn.get("probabilities")),
    )


def _pair(row: Row, name: str, values: Any) -> tuple[float, float] | None:
    """What a judge gives to each answer; None where nothing was said."""
    if values is None or values == []:
        return None
    match values:
        case [float() | int() as first, float() | int() as second]:
            return float(first), float(second)
    raise row.wrong(f"{name!r} must be two numbers")
