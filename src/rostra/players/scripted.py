"""A player that says what it is told: a list of texts, or a function of what it sees."""

from collections import deque
from collections.abc import Callable, Iterable

from rostra.debate.state import State
from rostra.debate.views import View
from rostra.engines.scripted import ScriptedEngine
from rostra.errors import EngineError
from rostra.players.model import ModelPlayer
from rostra.players.player import Reply

Line = Callable[[State, View], str]
"""What to say, given the whole debate and the view of the seat."""


class ScriptedPlayer:
    """Speaks a script. A list is spoken in the order in which turns are asked for."""

    def __init__(self, script: Line | Iterable[str]) -> None:
        if callable(script):
            self._line: Line = script
        else:
            queue = deque(script)
            self._line = lambda state, view: _next(queue)

    async def speak(self, state: State, view: View) -> Reply:
        engine = ScriptedEngine([self._line(state, view)])
        player = ModelPlayer(await engine.sampler(), engine.chat)
        return await player.speak(state, view)


def _next(queue: deque[str]) -> str:
    if not queue:
        raise EngineError("the script has no line left")
    return queue.popleft()
