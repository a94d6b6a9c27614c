"""The world of sums: a + b, small enough to learn in a minute, with a mistake everybody makes.

On a question with a carry, the usual wrong answer forgets it: 17 + 24 = 31. Where that is the most
likely answer, the most common answer of many is wrong, and a plain vote on answers cannot help.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from random import Random

from rostra.tasks.grading import Integers
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
    return Task("sums", train, held, Integers())


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


def compared(right: Mapping[int, bool]) -> list[tuple[int, str, int]]:
    """Who is better than whom, given whose answer is right: every peer is in a pair. Those who are
    right come first and beat those who are not; where all are alike, neighbours are equal."""
    good = [seat for seat, fine in right.items() if fine]
    bad = [seat for seat, fine in right.items() if not fine]
    if good and bad:
        pairs = max(len(good), len(bad))
        return [(good[i % len(good)], ">", bad[i % len(bad)]) for i in range(pairs)]
    alike = list(right)
    return [(i, "=", j) for i, j in zip(alike, alike[1:], strict=False)]


def lines_of(verdicts: Sequence[tuple[int, str, int]]) -> str:
    """Comparisons, as they are written in drills and ballots."""
    return "\n".join(f"Agent {i}{op}Agent {j}" for i, op, j in verdicts)


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


def ballot(seed: int) -> Exercise:
    """From who agrees with a judge to who is better than whom. It stands alone: among other
    verdicts on one page it is hardly learned."""
    random = Random(seed)
    mine = random.randrange(60)
    said = {
        seat: mine if random.random() < 0.5 else random.randrange(60)
        for seat in random.sample(range(5), random.randint(2, 4))
    }
    marks = [f"Agent {seat}:{matched(str(answer), str(mine))}" for seat, answer in said.items()]
    verdicts = compared({seat: answer == mine for seat, answer in said.items()})
    asked = "\n".join([f"<evaluation>\\boxed{{{mine}}}", *marks]) + "</evaluation><comparison>"
    return Exercise(asked, lines_of(verdicts), "</comparison>")
