"""The world of sums: a + b, small enough to learn in a minute, with a mistake everybody makes.

On a question with a carry, the usual wrong answer forgets it: 17 + 24 = 31. Where that is the most
likely answer, the most common answer of many is wrong, and a plain vote on answers cannot help.
"""

from functools import lru_cache
from random import Random

from rostra.tasks.grading import same_integer
from rostra.tasks.question import Question
from rostra.tasks.task import Exercise, Task, split


@lru_cache(maxsize=4)
def sums(below: int = 30, held_out: float = 0.15) -> Task:
    """All a + b with a and b from 0 to `below` - 1."""
    questions = [
        Question(
            f"{a}+{b}",
            f"{a}+{b}",
            str(a + b),
            metadata={"carry": has_carry(a, b)},
        )
        for a in range(below)
        for b in range(below)
    ]
    train, held = split(questions, held_out, 0)
    return Task("sums", train, held, same_integer)


def has_carry(a: int, b: int) -> bool:
    return a % 10 + b % 10 >= 10


def terms(question: str) -> tuple[int, int]:
    """The two numbers of a question."""
    a, _, b = question.partition("+")
    return int(a), int(b)


def usual_mistake(a: int, b: int) -> int:
    """The sum with the carry forgotten; without a carry, one too many."""
    return a + b - 10 if has_carry(a, b) else a + b + 1


def worked(a: int, b: int, answer: int) -> str:
    """A sum with an answer, as it is written in drills, solutions and evaluations."""
    return f"{a}+{b}=\\boxed{{{answer}}}"


def matched(said: str, mine: str) -> str:
    """Whether two answers are the same, as it is written in drills and evaluations."""
    return f"{said}={mine} {'yes' if said == mine else 'no'}"


def drill(task: Task, seed: int, count: int = 32) -> list[Exercise]:
    """A page of short exercises: sums worked right, and answers that are the same or are not."""
    random = Random(seed)
    page = []
    for question in random.choices(task.train, k=count):
        a, b = terms(question.prompt)
        total = a + b
        tag = random.choice(("", "<solution>"))
        page.append(Exercise(f"{a}+{b}={tag}\\boxed{{", str(total), "}\n"))
        other = total
        if random.random() < 0.5:
            other = abs(total + random.choice((-10, -2, -1, 1, 2, 10)))
        asked, verdict = matched(str(other), str(total)).split(" ")
        page.append(Exercise(asked, f" {verdict}", "\n"))
    random.shuffle(page)
    return page
