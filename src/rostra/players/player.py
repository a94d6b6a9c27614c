"""Whatever fills a seat."""

from dataclasses import dataclass
from typing import Protocol

from rostra.debate.state import State
from rostra.debate.turn import TurnId
from rostra.debate.views import View
from rostra.engines.arrays import IntArray
from rostra.engines.sampling import Completion


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """What a player said, and the prompt tokens it was said to."""

    completion: Completion
    observation: IntArray
    """The prompt tokens that come after those of the turn it extends; all, where there is none."""
    extends: TurnId | None = None
    temperature: float = 1.0
    """The temperature that was really sampled at."""


class Player(Protocol):
    """Speaks for a seat. May raise anything: the arena plays the debate again."""

    async def speak(self, state: State, view: View) -> Reply: ...
