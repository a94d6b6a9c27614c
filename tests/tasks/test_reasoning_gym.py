"""Puzzles of reasoning-gym: the same every time, and scored strictly."""

import json
from pathlib import Path
from typing import Any

import pytest

from rostra.errors import ConfigError, DataError
from rostra.learn.setup import make_task
from rostra.runs.syllabus import TaskSettings
from rostra.tasks import gym
from rostra.tasks import reasoning_gym as loader
from rostra.tasks.gym import Place
from rostra.tasks.task import PARTS, Task
from rostra.tasks.workers import Workers

pytest.importorskip("reasoning_gym")


def puzzles(dataset: str, **settings: Any) -> Task:
    return make_task(TaskSettings("reasoning_gym", dataset=dataset, **settings))


@pytest.fixture(scope="module")
def legs() -> Task:
    return puzzles("leg_counting, countdown", size=40)


def test_kinds_are_mixed_parted_and_never_shared(legs: Task) -> None:
    parts = [legs.part(part) for part in PARTS]
    assert all(parts) and sum(map(len, parts)) == 80
    kinds = [question.metadata["dataset"] for part in parts for question in part]
    assert (kinds.count("leg_counting"), kinds.count("countdown")) == (40, 40)


def test_puzzles_are_the_same_in_every_process(legs: Task) -> None:
    workers = Workers("rostra.tasks.gym", count=1, patience=300.0)
    seed = loader.derive("reasoning_gym", "leg_counting") % 2**31
    (line,) = workers.ask([json.dumps(["make", "leg_counting", seed, 40, 0])])
    workers.close()
    assert line is not None
    known = {q.id: (q.prompt, q.reference) for part in PARTS for q in legs.part(part)}
    found = {
        f"leg_counting-{i}": (prompt, gold) for i, (prompt, gold) in enumerate(json.loads(line))
    }
    assert len(found) == 10
    assert {name: known[name] for name in found} == found


def test_only_what_is_wholly_right_is_right(legs: Task) -> None:
    count = next(q for q in legs.train if q.metadata["dataset"] == "leg_counting")
    equation = next(q for q in legs.train if q.metadata["dataset"] == "countdown")
    gold = equation.reference or ""
    pairs = [
        (count, f"\\boxed{{ {count.reference} }}", True),
        (count, f"\\boxed{{{int(count.reference or 0) + 1}}}", False),
        (count, f"\\boxed{{about {count.reference}}}", False),
        (count, None, False),
        (equation, f"\\boxed{{{gold}}}", True),
        (equation, f"\\boxed{{({gold})}}", True),
        (equation, f"\\boxed{{{gold} + 1}}", False),
        (equation, "\\boxed{1}", False),
        (equation, "\\boxed{" + "1+" * 5000 + "1}", False),
    ]
    assert legs.grade([(q, s) for q, s, _ in pairs]) == [right for _, _, right in pairs]
    assert legs.grade([(q, s) for q, s, _ in pairs]) == [right for _, _, right in pairs]


@pytest.mark.parametrize(
    "answer",
    [
        "__import__('pathlib').Path('{}').touch()",
        "exec(chr(49))",
        "open('{}', 'w')",
        "(1).__class__",
        "lambda: 1",
    ],
)
def test_no_answer_is_run_as_code(answer: str, legs: Task, tmp_path: Path) -> None:
    equation = next(q for q in legs.train if q.metadata["dataset"] == "countdown")
    mark = tmp_path / "touched"
    assert not legs.right(equation, f"\\boxed{{{answer.replace('{}', str(mark))}}}")
    assert not mark.exists()
    assert not gym.right(Place("countdown", 0, 10, 0), answer.replace("{}", str(mark)))
    assert not mark.exists()


def test_an_answer_that_never_ends_is_wrong(legs: Task) -> None:
    equation = next(q for q in legs.train if q.metadata["dataset"] == "countdown")
    assert not legs.right(equation, "\\boxed{9**9**9**9}")
    assert legs.right(equation, f"\\boxed{{{equation.reference}}}")


NONSENSE = ("zzqx", "0", "1", "[]", "-1", "a b c")


@pytest.mark.parametrize("kind", ["game_of_life_halting", "coin_flip"])
def test_a_kind_that_is_left_out_still_calls_nonsense_right(kind: str) -> None:
    places = [Place(kind, 1, 12, n) for n in range(12)]
    fooled = max(sum(gym.right(place, word) for place in places) for word in NONSENSE)
    assert fooled > 6, f"{kind} has been mended: offer it"


OFFERED = (
    "ab", "advanced_geometry", "arc_1d", "base_conversion", "basic_arithmetic", "bf",
    "binary_matrix", "caesar_cipher", "calendar_arithmetic", "chain_sum", "complex_arithmetic",
    "count_primes", "course_schedule", "decimal_arithmetic", "dice", "family_relationships",
    "fraction_simplification", "gcd", "group_anagrams", "gsm_symbolic",
    "intermediate_integration", "knights_knaves", "leg_counting", "letter_jumble", "maze",
    "mini_sudoku", "n_queens", "number_format", "number_sorting", "polynomial_multiplication",
    "power_function", "products", "simple_equations", "simple_geometry", "simple_integration",
    "spell_backward", "spiral_matrix", "string_insertion", "syllogism", "time_intervals",
    "tower_of_hanoi", "word_ladder", "word_sorting",
)  # fmt: skip
ABSENT = ("nan", "NaN", "n a n", "inf", "-infinity", "nanj", "1+nani", "(nan)", "1e999")
"""What Python takes for a number, and what a scorer may then be at no distance from."""


@pytest.mark.parametrize("kind", OFFERED)
def test_a_kind_that_is_offered_takes_its_own_answer_and_no_nonsense(kind: str) -> None:
    made = gym.made(Place(kind, 1, 3, 0))
    assert isinstance(made, list) and len(made) == 3
    for n, (prompt, gold) in enumerate(made):
        place = Place(kind, 1, 3, n)
        assert gym.right(place, gold.strip())
        words = (*NONSENSE, *ABSENT, "", "foo", "word " * 100, prompt)
        wrong = [word for word in words if not same_number(word, gold)]
        assert [word for word in wrong if gym.right(place, word)] == []


def same_number(word: str, gold: str) -> bool:
    try:
        return float(word) == float(gold)
    except ValueError:
        return word == gold.strip()


def test_any_board_on_which_no_queen_takes_another_is_right() -> None:
    places = [Place("n_queens", 1, 20, n) for n in range(20)]
    boards = {p: gym._entry(p)["metadata"]["valid_answers"] for p in places}
    place = next(place for place, valid in boards.items() if len(valid) > 1)
    assert all(gym.right(place, board) for board in boards[place])
    board = boards[place][0]
    assert not gym.right(place, board.replace("Q", "_", 1))
    assert not gym.right(place, f"__import__('os').getcwd() or {board}")


def test_a_text_with_letters_put_in_is_looked_at() -> None:
    place = Place("string_insertion", 1, 3, 0)
    made = gym.made(place)
    assert isinstance(made, list)
    gold = made[0][1]
    assert gym.right(place, gold)
    assert not gym.right(place, gold + "A")
    assert not gym.right(place, str(list(gold)))


def test_a_kind_that_is_left_out_says_why() -> None:
    with pytest.raises(ConfigError, match="'coin_flip': is left out, because its scorer calls 0"):
        puzzles("leg_counting, coin_flip")


def test_an_unknown_kind_is_named_with_what_was_meant() -> None:
    with pytest.raises(ConfigError, match="no such puzzle, did you mean leg_counting?"):
        puzzles("leg_conting")


def test_a_kind_that_cannot_make_so_many_says_so() -> None:
    with pytest.raises(DataError, match="reasoning-gym: word_ladder: .*too large"):
        puzzles("word_ladder", size=5_000_000)
