"""Word problems in the manner of GSM8K, made from a seed: two or three steps, a whole number.

They are for trying a real model where no dataset is at hand.
"""

from functools import lru_cache
from random import Random

from rostra.seeds import derive
from rostra.tasks.grading import Integers
from rostra.tasks.question import Question
from rostra.tasks.task import Task, split

_NAMES = ("Ada", "Ben", "Chloe", "Dan", "Eva", "Finn", "Grace", "Hugo")
_THINGS = ("apples", "pencils", "books", "stamps", "eggs", "tickets", "shells", "cookies")


@lru_cache(maxsize=4)
def shop(size: int = 1000, held_out: float = 0.15) -> Task:
    """`size` different problems."""
    found: dict[str, Question] = {}
    place = 0
    while len(found) < size:
        text, answer = _problem(Random(derive("shop", place)))
        place += 1
        found.setdefault(text, Question(f"shop-{place}", text, str(answer)))
    train, held = split(list(found.values()), held_out, 0)
    return Task("shop", train, held, Integers())


def _problem(random: Random) -> tuple[str, int]:
    name, other = random.sample(_NAMES, 2)
    thing = random.choice(_THINGS)
    a, b, c = random.randint(3, 20), random.randint(2, 9), random.randint(2, 9)
    match random.randrange(4):
        case 0:
            return (
                f"{name} has {a} {thing} and buys {b} more boxes with {c} {thing} in each. "
                f"How many {thing} does {name} have now?"
            ), a + b * c
        case 1:
            left = a + b
            return (
                f"{name} has {left} {thing}. {name} gives {b} of them to {other}, and then finds "
                f"{c} more. How many {thing} does {name} have now?"
            ), a + c
        case 2:
            return (
                f"A shop sells {thing} at {b} dollars each. {name} buys {c} of them and {other} "
                f"buys {a}. How many dollars do they pay together?"
            ), b * (a + c)
        case _:
            c = min(c, a * b - 1)
            return (
                f"{name} collects {a} {thing} every day for {b} days, and {other} collects "
                f"{c} {thing} in all. How many more {thing} does {name} have than {other}?"
            ), a * b - c
