"""A model in a seat: the policy in training, or a frozen one."""

import numpy as np

from rostra.debate.state import State, prompt_tokens
from rostra.debate.views import View
from rostra.engines.chat import ChatFormat
from rostra.engines.sampling import Sampler, SamplingParams
from rostra.errors import EngineError
from rostra.players.player import Reply


class ModelPlayer:
    """Samples what it says. What it sampled before comes back to it token for token."""

    def __init__(
        self,
        sampler: Sampler,
        chat: ChatFormat,
        *,
        top_p: float = 1.0,
        top_k: int = 0,
        anew: bool = False,
    ) -> None:
        """With `anew`, every prompt is written from the texts of the debate: for a model that did
        not sample the turns it reads as its own, and may not share their tokens."""
        self._sampler = sampler
        self._chat = chat
        self._top_p = top_p
        self._top_k = top_k
        self._anew = anew

    async def speak(self, state: State, view: View) -> Reply:
        slot = state.protocol.slots[view.slot]
        temperature = state.protocol.seats[view.seat].temperature
        params = SamplingParams(
            max_tokens=slot.max_tokens,
            temperature=temperature,
            top_p=self._top_p,
            top_k=self._top_k,
            stop=slot.stop,
            seed=state.turn_seed(view.seat),
        )
        if view.extends is not None and self._chat.extends and not self._anew:
            turns = {turn.id: turn for turn in state.turns}
            own = turns[view.extends]
            observation = self._chat.extend(own.tokens, view.messages)
            prompt = np.concatenate([prompt_tokens(turns, own), own.tokens, observation])
            extends = own.id
        else:
            whole = view.messages if view.extends is None else state.conversation(view.seat)
            observation = prompt = self._chat.open(whole)
            extends = None
        completions = await self._sampler.sample(prompt, 1, params)
        if len(completions) != 1:
            raise EngineError(f"asked the sampler for 1 reply and got {len(completions)}")
        return Reply(completions[0], observation, extends, temperature)
