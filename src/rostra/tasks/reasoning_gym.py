"""reasoning-gym: a hundred kinds of puzzles, made from a seed and scored by rules of their own."""

import difflib
import json
import logging
from collections.abc import Mapping, Sequence
from functools import cache

from rostra.errors import ConfigError, DataError
from rostra.seeds import derive
from rostra.tasks.gym import CHUNK, MAKING, Place
from rostra.tasks.marks import Marks, Pair
from rostra.tasks.needs import check_installed
from rostra.tasks.parts import asked, parted
from rostra.tasks.question import Question
from rostra.tasks.sources import Source
from rostra.tasks.task import Task
from rostra.tasks.workers import Workers

LEFT_OUT: Mapping[str, str] = {
    "boxnet": "it has no answer of its own",
    "coin_flip": "its scorer calls 0 right whatever was asked",
    "composite": "it is made of others",
    "game_of_life_halting": "its scorer calls any text right",
    "graph_color": "it has no answer of its own",
    "propositional_logic": "it has no answer of its own",
    "puzzle24": "its scorer does not look at which numbers are used",
    "rubiks_cube": "it has no answer of its own",
    "rush_hour": "it has no answer of its own",
}
"""What is not offered, and why."""
SECONDS: Mapping[str, float] = {
    "countdown": 0.05,
    "futoshiki": 0.4,
    "intermediate_integration": 0.16,
    "knight_swap": 0.5,
    "sokoban": 0.15,
    "zebra_puzzles": 0.11,
}
"""What a question takes to make, where that is much."""
LONGEST = 1000
"""An answer that is longer than the right one by so much is wrong, unread."""
_notes = logging.getLogger("rostra")


@cache
def _workers() -> Workers:
    check_installed("reasoning_gym")
    return Workers("rostra.tasks.gym", patience=MAKING)


class GymGrader:
    """What the scorer of a puzzle calls wholly right. Any thread may grade."""

    def __init__(self, places: Mapping[str, Place]) -> None:
        self._places = places
        """Where every question comes from."""
        self._marks = Marks()

    def grade(self, pairs: Sequence[tuple[str, Question]]) -> list[bool]:
        marks = self._marks.recall([(answer, question.id) for answer, question in pairs])
        hard: dict[Pair, str] = {}
        for answer, question in pairs:
            pair, said, gold = (answer, question.id), answer.strip(), question.reference or ""
            if not said or len(said) > LONGEST + 2 * len(gold) or question.id not in self._places:
                marks[pair] = False
            elif said == gold.strip():
                marks[pair] = True
            elif pair not in marks:
                hard[pair] = json.dumps(["score", *self._places[question.id], said])
        found = _workers().ask(list(hard.values())) if hard else []
        scored = {pair: mark == "1" for pair, mark in zip(hard, found, strict=True)}
        self._marks.keep(scored)
        marks |= scored
        return [marks[answer, question.id] for answer, question in pairs]


def reasoning_gym(source: Source, size: int) -> Task:
    """`size` puzzles of each of the kinds that `source.dataset` names, with commas between."""
    kinds = [kind.strip() for kind in source.dataset.split(",") if kind.strip()]
    _check(kinds)
    found: dict[object, Question] = {}
    places: dict[str, Place] = {}
    for kind in kinds:
        seed = derive("reasoning_gym", kind) % 2**31
        for place, (prompt, answer) in enumerate(_made(kind, seed, size)):
            question = Question(f"{kind}-{place}", prompt, answer, metadata={"dataset": kind})
            if found.setdefault(asked(question), question) is question:
                places[question.id] = Place(kind, seed, size, place)
    parts = parted(list(found.values()), shares=(source.validation, source.held_out))
    train, validation, test = (part[: source.limit or None] for part in parts)
    return Task("reasoning_gym", train, test, GymGrader(places), validation)


def _check(kinds: Sequence[str]) -> None:
    known = [name for name in json.loads(_asked(["names"])) if name not in LEFT_OUT]
    for kind in kinds:
        if kind in LEFT_OUT:
            raise ConfigError(f"dataset = {kind!r}: is left out, because {LEFT_OUT[kind]}")
        if kind not in known:
            close = difflib.get_close_matches(kind, known, n=1)
            hint = f", did you mean {close[0]}?" if close else f" (there are: {', '.join(known)})"
            raise ConfigError(f"dataset = {kind!r}: reasoning-gym has no such puzzle{hint}")


def _made(kind: str, seed: int, size: int) -> list[tuple[str, str]]:
    workers = _workers()
    seconds = SECONDS.get(kind, 0.0) * size / workers.count
    if seconds > 20:
        _notes.warning("making %d puzzles of %s takes about %.0f seconds", size, kind, seconds)
    lines = [json.dumps(["make", kind, seed, size, start]) for start in range(0, size, CHUNK)]
    found: list[tuple[str, str]] = []
    # The first alone: what cannot be made at all fails at once.
    for some in (lines[:1], lines[1:]):
        for chunk in workers.ask(some):
            rows = json.loads(chunk) if chunk is not None else "it took too long"
            if isinstance(rows, str):
                raise DataError(f"reasoning-gym: {kind}: {rows}; try another task.size")
            found += [(prompt, answer) for prompt, answer in rows]
    return found


def _asked(request: Sequence[object]) -> str:
    answer = _workers().ask([json.dumps(request)])[0]
    if answer is None:
        raise DataError("reasoning-gym: its process died; is the machine out of memory?")
    return answer
