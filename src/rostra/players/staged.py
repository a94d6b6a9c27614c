"""Solutions by one player, ballots by another: how well does the second one judge the first?"""

from rostra.debate.state import State
from rostra.debate.views import View
from rostra.players.player import Player, Reply


class StagedPlayer:
    """Lets one player speak and another one judge, in all seats."""

    def __init__(self, speaker: Player, judge: Player) -> None:
        self._speaker = speaker
        self._judge = judge

    async def speak(self, state: State, view: View) -> Reply:
        ballot = state.protocol.slots[view.slot].kind == "ballot"
        return await (self._judge if ballot else self._speaker).speak(state, view)
