"""A player whose words are given: by a teacher, or by a debate that was played before."""

from collections.abc import Callable

import numpy as np

from rostra.debate.state import State
from rostra.debate.views import View
from rostra.engines.chat import ChatFormat
from rostra.engines.sampling import Completion
from rostra.players.player import Reply

Words = Callable[[State, View], str]
"""What a seat says to what it sees."""


class SpokenPlayer:
    """Says given words in the tokens of an engine, so that a model can learn to say them.

    Nothing was sampled, so log-probabilities are 0: such turns are for cross-entropy only.
    """

    def __init__(self, words: Words, chat: ChatFormat) -> None:
        self._words = words
        self._chat = chat

    async def speak(self, state: State, view: View) -> Reply:
        text = self._words(state, view)
        stops = [s for s in state.protocol.slots[view.slot].stop if isinstance(s, str)]
        cuts = [at + len(stop) for stop in stops if (at := text.find(stop)) >= 0]
        if cuts:
            text = text[: min(cuts)]
        said = self._chat.reply(text, end=not cuts)
        if view.extends is not None and self._chat.extends:
            turns = {turn.id: turn for turn in state.turns}
            own = turns[view.extends]
            observation, extends = self._chat.extend(own.tokens, view.messages), own.id
        else:
            whole = view.messages if view.extends is None else state.conversation(view.seat)
            observation, extends = self._chat.open(whole), None
        silent = np.zeros(len(said.tokens), np.float32)
        completion = Completion(text, said.tokens, silent, said.starts, "stop")
        return Reply(completion, observation, extends, 1.0)
