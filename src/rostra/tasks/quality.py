"""QuALITY: questions about long stories, for debates that the judge follows without the text.

Of four options two are kept: the right one, and the one that misled most readers. Labels in the
files count from 1. The published test split has no labels: its questions keep all four.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rostra.seeds import derive
from rostra.tasks.grading import Exact
from rostra.tasks.question import Question
from rostra.tasks.rows import Row
from rostra.tasks.sources import Source, load
from rostra.tasks.task import Task


def quality(source: Source, hard: bool = False) -> Task:
    """Stories go to one part whole. `hard` keeps the questions that hasty readers got wrong."""

    def questions(row: Row) -> Iterator[Question]:
        asked = row.values.get("questions")
        if not isinstance(asked, list):
            raise row.wrong("no list 'questions' in it")
        text = row.text("article")
        for number, values in enumerate(asked, 1):
            if not isinstance(values, Mapping):
                raise row.wrong(f"question {number} must be an object with named fields")
            inner = Row(row.file, row.number, values, row.unit)
            found = _question(inner, f"{row.id}-{number}", text, _story(row))
            if found.metadata["hard"] or not hard:
                yield found

    return load("quality", source, questions, Exact(), key=story_of)


def story_of(question: Question) -> str:
    return str(question.metadata["story"])


def _question(row: Row, name: str, text: str, story: str) -> Question:
    if "question_unique_id" in row.values:
        name = row.text("question_unique_id")
    options = row.values.get("options")
    if not isinstance(options, list) or len(options) < 2:
        raise row.wrong(f"question {name!r} has no list of options")
    options = [str(option).strip() for option in options]
    told = {"story": story, "hard": row.values.get("difficult") == 1}
    prompt = row.prompt("question")
    gold = row.values.get("gold_label")
    if gold is None:
        return Question(name, prompt, None, tuple(options), text, told)
    other = row.values.get("best_distractor") or distractor(gold, row.values.get("validation", ()))
    if other is None:
        other = _any_other(gold, len(options), name)
    if not {gold, other} <= set(range(1, len(options) + 1)):
        raise row.wrong(f"question {name!r}: labels go from 1 to {len(options)}")
    right, wrong = options[gold - 1], options[other - 1]
    choices = (right, wrong) if derive("side", name) % 2 else (wrong, right)
    told |= {"gold_label": gold, "distractor": other}
    return Question(name, prompt, right, choices, text, told)


def _story(row: Row) -> str:
    for name in ("article_id", "story_key"):
        if row.values.get(name) is not None:
            return row.text(name)
    return row.id


def _any_other(gold: int, count: int, name: str) -> int:
    others = [label for label in range(1, count + 1) if label != gold]
    return others[derive("distractor", name) % len(others)]


def distractor(gold: int, validation: Sequence[Mapping[str, Any]]) -> int | None:
    """The wrong option that most readers fell for: what they answered, or, of those who were right,
    what they call the best distractor. Ties go to the first that was named."""
    votes: Counter[int] = Counter()
    for reader in validation:
        answer = reader.get("untimed_answer")
        vote = answer if answer != gold else reader.get("untimed_best_distractor")
        if vote is not None and vote != gold:
            votes[vote] += 1
    return votes.most_common(1)[0][0] if votes else None
