"""QuALITY: questions about long stories, for debates that the judge follows without the text.

Of four options two are kept: the right one, and the one that misled most readers. Labels in the
files count from 1. The published test split has no labels: its questions keep all four.

Three kinds of rows are read: a story with a list of questions, as it is published; the same with
`question1`, `question1option1` and so on, as in the first release; and a pair, which is one
question with its right answer and its distractor, without the story.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count, takewhile
from typing import Any

from rostra.seeds import derive
from rostra.tasks.grading import Exact, plain
from rostra.tasks.question import Question
from rostra.tasks.rows import Row
from rostra.tasks.sources import Source, load
from rostra.tasks.task import Task


def quality(source: Source, hard: bool = False) -> Task:
    """Stories go to one part whole. `hard` keeps the questions that hasty readers got wrong."""

    def questions(row: Row) -> Iterator[Question]:
        for question in _questions(row):
            if question.metadata["hard"] or not hard:
                yield question

    return load("quality", source, questions, Exact(), key=story_of)


def story_of(question: Question) -> str:
    return str(question.metadata["story"])


def _questions(row: Row) -> Iterator[Question]:
    if "correct" in row.values and "questions" not in row.values:
        yield _pair(row)
        return
    asked = row.values.get("questions", _numbered(row.values))
    if not isinstance(asked, list) or ("questions" not in row.values and not asked):
        raise row.wrong("no list 'questions' in it, nor 'correct' and 'best_distractor'")
    text = _article(row)
    for number, values in enumerate(asked, 1):
        if not isinstance(values, Mapping):
            raise row.wrong(f"question {number} must be an object with named fields")
        yield _question(replace(row, values=values), f"{row.id}-{number}", text, _story(row))


def _question(row: Row, name: str, text: str, story: str) -> Question:
    if "question_unique_id" in row.values:
        name = row.text("question_unique_id")
    options = row.values.get("options")
    if not isinstance(options, list) or len(options) < 2:
        raise row.wrong(f"question {name!r} has no list of options")
    options = [option.strip() for option in row.texts("option", options)]
    told = {"story": story, "hard": row.values.get("difficult") == 1}
    prompt = row.prompt("question")
    labels = _Labels(row, name, len(options))
    gold = labels.read("gold_label", row.values.get("gold_label"))
    if gold is None:
        return Question(name, prompt, None, tuple(options), text, told)
    other = labels.read("best_distractor", row.values.get("best_distractor"))
    if other is None:
        other = distractor(gold, labels.readers()) or _any_other(gold, len(options), name)
    told |= {"gold_label": gold, "distractor": other}
    right, wrong = options[gold - 1], options[other - 1]
    return Question(name, prompt, right, _choices(row, name, right, wrong), text, told)


def _pair(row: Row) -> Question:
    right, wrong = row.text("correct").strip(), row.text("best_distractor").strip()
    told = {"story": _story(row), "hard": row.values.get("difficult") == 1}
    choices = _choices(row, row.id, right, wrong)
    return Question(row.id, row.prompt("question"), right, choices, None, told)


def _choices(row: Row, name: str, right: str, wrong: str) -> tuple[str, str]:
    """Both answers, in an order that says nothing."""
    if plain(right) == plain(wrong):
        raise row.wrong(f"question {name!r}: the distractor is the right answer")
    return (right, wrong) if derive("side", name) % 2 else (wrong, right)


class _Labels:
    """The labels of one question, each of which is one of its options."""

    def __init__(self, row: Row, name: str, options: int) -> None:
        self._row, self._name, self._options = row, name, options

    def read(self, field: str, value: Any) -> int | None:
        if value is None or (type(value) is int and 1 <= value <= self._options):
            return value
        raise self._row.wrong(
            f"question {self._name!r}: {field} = {value!r}: labels go from 1 to {self._options}"
        )

    def readers(self) -> list[Mapping[str, int | None]]:
        """What every reader answered, and was nearly misled by."""
        found = self._row.values.get("validation")
        if found is None:
            return []
        if not isinstance(found, list) or not all(isinstance(one, Mapping) for one in found):
            raise self._row.wrong(
                f"question {self._name!r}: 'validation' must be a list of objects"
            )
        return [{field: self.read(field, one.get(field)) for field in _READERS} for one in found]


_READERS = ("untimed_answer", "untimed_best_distractor")


def _article(row: Row) -> str:
    """The text of the story; the first release has it line by line."""
    lines = row.values.get("article")
    return "".join(row.texts("line", lines)) if isinstance(lines, list) else row.text("article")


def _numbered(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The questions of a row that numbers them, as they are published now."""
    found = []
    for name in takewhile(values.__contains__, (f"question{number}" for number in count(1))):
        options = takewhile(values.__contains__, (f"{name}option{number}" for number in count(1)))
        gold = values.get(f"{name}_gold_label")
        said, misled, hasty = (
            told if isinstance(told := values.get(f"{name}_{field}"), list) else []
            for field in ("annotator_answers", "eval3s", "annotator_speed_answers")
        )
        found.append(
            {
                "question": values[name],
                "options": [values[option] for option in options],
                "gold_label": gold,
                "validation": [
                    dict(zip(_READERS, pair, strict=True))
                    for pair in zip(said, misled, strict=False)
                ],
                "difficult": int(2 * hasty.count(gold) < len(hasty)) if hasty else None,
            }
        )
    return found


def _story(row: Row) -> str:
    for name in ("article_id", "story_key"):
        if row.values.get(name) is not None:
            return row.text(name)
    return row.id


def _any_other(gold: int, options: int, name: str) -> int:
    others = [label for label in range(1, options + 1) if label != gold]
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
