"""Whatever fills a seat."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rostra.debate.state import State
from rostra.debate.turn import TurnId
from rostra.debate.views import View
from rostra.engines.arrays import IntArray
from rostra.engines.sampling import Completion
from rostra.errors import EngineError


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
    """Speaks for a seat.

    When it raises EngineError, or anything that is not Rostra's, the debate is played again. Any
    other RostraError, and EngineUnavailable, ends everything: playing again would not help.
    """

    async def speak(self, state: State, view: View) -> Reply: ...


def check_completion(completion: Completion) -> None:
    """Refuses a reply that could not be trained on: every token has one finite log-probability and
    one place in the text."""
    if not len(completion.tokens) == len(completion.logprobs) == len(completion.starts):
        raise EngineError(
            f"the sampler returned {len(completion.tokens)} tokens with "
            f"{len(completion.logprobs)} log-probabilities and {len(completion.starts)} places"
        )
    if not np.isfinite(completion.logprobs).all():
        raise EngineError("the sampler returned a log-probability that is not a number")
