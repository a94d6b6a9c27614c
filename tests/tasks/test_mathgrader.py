"""Answers in mathematics: by form, by algebra, and when algebra never ends."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rostra.errors import ConfigError
from rostra.tasks import mathgrader
from rostra.tasks.algebra import same
from rostra.tasks.answers import LONGEST, compared, read_answer
from rostra.tasks.mathgrader import MathGrader
from rostra.tasks.numbers import number
from rostra.tasks.question import Question
from rostra.tasks.workers import Workers
from tests.tasks.sameness import DIFFERENT, SAME

VECTORS = Path(__file__).parents[3] / "shared" / "vectors" / "math_equivalence.jsonl"


@pytest.fixture(scope="module")
def grader() -> Iterator[MathGrader]:
    workers = Workers("rostra.tasks.algebra", count=2)
    yield MathGrader(workers)
    workers.close()


def marks(grader: MathGrader, pairs: list[tuple[str, str]]) -> list[bool]:
    """One mark for each (reference, answer)."""
    return grader.grade([(answer, Question("q", "?", gold)) for gold, answer in pairs])


def test_what_is_the_same_is_right_however_it_is_written(grader: MathGrader) -> None:
    found = marks(grader, [(gold, answer) for gold, answer, _ in SAME])
    assert [row for row, mark in zip(SAME, found, strict=True) if not mark] == []


def test_what_is_another_answer_is_wrong_however_alike_it_looks(grader: MathGrader) -> None:
    found = marks(grader, [(gold, answer) for gold, answer, _ in DIFFERENT])
    assert [row for row, mark in zip(DIFFERENT, found, strict=True) if mark] == []


def test_a_reference_is_its_own_right_answer(grader: MathGrader) -> None:
    golds = [gold for gold, _, _ in (*SAME, *DIFFERENT)]
    assert all(marks(grader, [(gold, gold) for gold in golds]))
    assert all(compared(gold, gold) is True for gold in golds), "this needs no algebra"


@pytest.mark.skipif(not VECTORS.exists(), reason="the shared vectors are not here")
def test_the_shared_vectors_are_marked_as_they_say(grader: MathGrader) -> None:
    rows = [json.loads(line) for line in VECTORS.read_text().splitlines()]
    found = marks(grader, [(row["gold"], row["candidate"]) for row in rows])
    wrong = [r["id"] for r, mark in zip(rows, found, strict=True) if mark != r["equivalent"]]
    assert wrong == []


@pytest.mark.parametrize(
    ("reference", "answer", "mark"),
    [
        ("x^2-1", "(x-1)(x+1)", True),
        ("x^2-1", "(x-1)(x-1)", False),
        ("\\frac{1}{2}+i", "\\frac{1+2i}{2}", True),
        ("\\frac{", "5", False),
        ("", "", False),
    ],
)
def test_algebra_tells_values_apart(reference: str, answer: str, mark: bool) -> None:
    assert same(reference, answer) is mark


# Without algebra


@settings(max_examples=200, deadline=None)
@given(st.integers(-(10**6), 10**6), st.integers(1, 999), st.integers(-(10**6), 10**6))
def test_plain_numbers_are_compared_exactly_and_at_once(a: int, b: int, c: int) -> None:
    sign = "-" if a < 0 else ""
    fraction = f"{sign}\\frac{{{abs(a)}}}{{{b}}}"
    assert compared(f"{a}/{b}", fraction) is True
    assert compared(str(c), fraction) is (c * b == a)
    assert compared(f"{a / 100:.2f}", f"{sign}\\frac{{{abs(a)}}}{{100}}") is True


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60), st.text(max_size=60))
def test_any_two_texts_can_be_compared(answer: str, reference: str) -> None:
    found = compared(answer, reference)
    assert found in (True, False) or all(isinstance(form, str) for form in found)


PIECES = ["\\frac", "{", "}", "(", ")", "[", "]", ",", "\\text{", "1", "7.5", "x", "=", "<", "\\le"]
latex = st.lists(
    st.sampled_from([*PIECES, "\\pm", "\\$", "%", "^", "_", " ", ".", "cm"]), max_size=14
)


@settings(max_examples=300, deadline=None)
@given(latex.map("".join))
def test_any_latex_whose_braces_close_is_the_same_as_itself(text: str) -> None:
    assert compared(text, text) is closed(read_answer(text).tight)


def closed(text: str) -> bool:
    """Whether a text says something, and all its braces close."""
    while "{" in (left := re.sub(r"\{[^{}]*\}", "", text)) and left != text:
        text = left
    return bool(text) and not set("{}") & set(re.sub(r"\{[^{}]*\}", "", text))


def test_a_number_divided_by_nothing_is_none() -> None:
    assert number("\\frac{1}{0}") is None
    assert compared("\\frac{1}{0}", "5") is not True


def test_an_answer_that_is_far_too_long_is_wrong_at_once() -> None:
    began = time.process_time()
    assert compared("7" * 1_000_000, "7") is False
    assert compared("x" * (LONGEST + 2), "x") is False
    assert time.process_time() - began < 0.1


def test_a_reference_of_any_length_is_compared_as_text() -> None:
    long = " + ".join(f"x_{{{i}}}" for i in range(2000))
    assert compared(long.upper(), long) is True
    assert compared("5", long) is False


def test_an_answer_without_a_reference_is_wrong(grader: MathGrader) -> None:
    assert grader.grade([("5", Question("q", "?"))]) == [False]
    assert grader.grade([]) == []


# What never ends

TOWER = "10^{10^{10}}"
HOSTILE = [
    TOWER,
    "9^{9^{9^{9}}}",
    "1000000000!",
    "((((((((1+2)^3)^4)^5)^6)^7)^8)^9)^{10}",
    "\\sqrt{" * 60 + "2" + "}" * 60,
    "\\frac{1}{" * 60 + "2" + "}" * 60,
    "\\sqrt{" * 18 + "2" + "}" * 18,
    "x" * 100_000,
    "{" * 200,
    "}" * 200,
    "{" * 50_000 + "}" * 50_000,
    "(" * 150 + "1" + ")" * 150,
    "\x00\x01\x02\x1b[2J",
    "\\left(",
    "\\frac{}{}",
    "\\\\\\\\",
    "$" * 99,
    "\\begin{pmatrix}" * 20,
    "\ud800",
    "\u202e123",
]


def test_hundreds_of_answers_and_twenty_hostile_ones_are_graded_in_seconds() -> None:
    workers = Workers("rostra.tasks.algebra", count=2, deadline=1.0)
    grader = MathGrader(workers)
    plain = [(f"\\frac{{{i}}}{{{i + 1}}}", f"{i}/{i + 1}" if i % 5 else "7") for i in range(1, 401)]
    hard = [(f"{i}\\sqrt{{2}}+x", f"x+\\sqrt{{2}}\\cdot {i}") for i in range(1, 101)]
    bad = [("x^2+\\sqrt{3}", answer) for answer in HOSTILE]
    assert (len(plain) + len(hard), len(bad)) == (500, 20)
    began = time.monotonic()
    found = marks(grader, [*plain, *bad, *hard])
    assert found[:400] == [i % 5 != 0 for i in range(1, 401)]
    assert found[400:420] == [False] * 20
    assert found[420:] == [True] * 100
    assert time.monotonic() - began < 60, "about 10 seconds where nothing else runs"
    workers.close()


def test_after_a_tower_the_next_answer_is_graded_by_a_new_process() -> None:
    workers = Workers("rostra.tasks.algebra", count=1, deadline=1.0)
    grader = MathGrader(workers)
    pairs = [("x+1", TOWER), ("x+1", "1+x"), ("x+1", "2+x")]
    assert marks(grader, pairs) == [False, True, False]
    workers.close()


class Counting(Workers):
    """Counts what it is asked."""

    asked = 0

    def ask(self, lines: Any) -> list[str | None]:
        self.asked += len(lines)
        return ["1" for _ in lines]


def test_the_same_answer_is_put_to_algebra_once() -> None:
    workers = Counting("nothing")
    grader = MathGrader(workers)
    for _ in range(3):
        assert marks(grader, [("x+y", "y+x"), ("x+y", "y+x"), ("5", "5"), ("5", "6")]) == [
            True,
            True,
            True,
            False,
        ]
    assert workers.asked == 1


def test_any_thread_and_a_running_loop_may_grade(grader: MathGrader) -> None:
    found: dict[int, list[bool]] = {}

    def work(n: int) -> None:
        found[n] = marks(grader, [("a+b", f"b+a+{n}-{n}"), ("a+b", f"a-b+{n}")])

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: [True, False] for n in range(6)}

    async def inside() -> list[bool]:
        direct = marks(grader, [("u+v", "v+u")])
        return direct + await asyncio.to_thread(marks, grader, [("u+w", "w+u")])

    assert asyncio.run(inside()) == [True, True]


def test_without_the_package_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mathgrader._workers.cache_clear()
    monkeypatch.setitem(sys.modules, "math_verify", None)
    with pytest.raises(ConfigError, match=r"needs the package math_verify: pip install 'rostra\["):
        marks(MathGrader(), [("x+1", "1+x")])
    assert marks(MathGrader(), [("1/2", "0.5")]) == [True], "what needs no algebra needs no package"


@pytest.mark.skipif(os.name != "posix", reason="signals are of POSIX")
def test_a_process_that_is_killed_leaves_no_others_behind() -> None:
    code = (
        "from rostra.tasks.mathgrader import MathGrader, _workers\n"
        "from rostra.tasks.question import Question\n"
        "pairs = [(f'b+{n}', Question('q', '?', f'{n}+b')) for n in 'ac']\n"
        "MathGrader().grade(pairs)\n"
        "idle = _workers()._idle\n"
        "print(*[w.process.pid for w in idle.queue if w], flush=True)\n"
        "input()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout and parent.stdin
    children = [int(pid) for pid in parent.stdout.readline().split()]
    assert children
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    parent.stdin.close()
    deadline = time.monotonic() + 30
    while any(alive(pid) for pid in children):
        assert time.monotonic() < deadline, "a worker outlived who started it"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
