"""Debates for tests: written down as votes, spoken from a script, or rehearsed."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import combinations

from hypothesis import strategies as st

from rostra.arena import Debate, play
from rostra.debate.peer import PeerRules
from rostra.debate.state import State
from rostra.debate.transcript import Transcript
from rostra.debate.turn import TurnId
from rostra.debate.views import View
from rostra.debate.votes import Vote
from rostra.engines.scripted import ScriptedEngine
from rostra.players.model import ModelPlayer
from rostra.players.player import Player
from rostra.players.rehearsal import rehearsal
from rostra.players.scripted import ScriptedPlayer
from rostra.tasks.question import Question

QUESTION = Question("product", "What is 6 * 7?", reference="42")
NONSENSE = "I would rather not say."
"""Malformed under every contract."""


def turn(name: str) -> TurnId:
    return TurnId.read(name)


def vote(line: str) -> Vote:
    """Reads `0.1: 1.0 > 2.0`; a `<` is turned round."""
    author, a, op, b = line.replace(":", "").split()
    if op == "<":
        a, op, b = b, ">", a
    assert op in (">", "=")
    return Vote(turn(author), turn(a), op, turn(b))


def votes(*lines: str) -> list[Vote]:
    return [vote(line) for line in lines]


def speech(sections: Sequence[str], comparison: str = "N/A", solution: str = "It is 42.") -> str:
    """A well-formed reply."""
    bodies = {
        "solution": solution,
        "evaluation": "Sound work.",
        "comparison": comparison,
        "consensus": "NO",
        "consensus_reason": "Not yet.",
    }
    return "\n".join(f"<{name}>{bodies[name]}</{name}>" for name in sections)


Line = Callable[[State, View], str]


def spoken(rules: PeerRules, line: Line, seed: int = 0) -> Transcript:
    """A debate in which every reply comes from `line`."""
    return played(rules, ScriptedPlayer(line), [seed])[0]


def scripted(
    rules: PeerRules,
    comparisons: Mapping[str, str] | None = None,
    malformed: Collection[str] = (),
    seed: int = 0,
) -> Transcript:
    """A debate by turns: what each one compares (`0.1`: `Agent 1 > Agent 2`), and which fail."""
    said = comparisons or {}

    def line(state: State, view: View) -> str:
        slot = state.protocol.slots[view.slot]
        name = str(TurnId(view.seat, slot.round))
        if name in malformed:
            return NONSENSE
        return speech(slot.sections, said.get(name, "N/A"), f"Turn {name} says 42.")

    return spoken(rules, line, seed)


def rehearse(rules: PeerRules, seeds: Sequence[int] = (0,), **chances: float) -> list[Transcript]:
    """Debates of a script that reads its prompts like a model."""
    engine = ScriptedEngine(rehearsal(**chances))
    sampler = asyncio.run(engine.sampler())
    return played(rules, ModelPlayer(sampler, engine.chat), seeds)


def played(rules: PeerRules, player: Player, seeds: Sequence[int]) -> list[Transcript]:
    debates = [Debate.peer(QUESTION, rules, seed) for seed in seeds]
    return asyncio.run(play(debates, player, retries=0)).transcripts


def full_ballots(agents: int) -> st.SearchStrategy[list[Vote]]:
    """Every agent takes a side on every pair of the others."""
    asked = [
        (author, a, b)
        for author in range(agents)
        for a, b in combinations([i for i in range(agents) if i != author], 2)
    ]

    def cast(sides: list[bool]) -> list[Vote]:
        return [
            Vote(TurnId(author, 1), TurnId(a if first else b, 0), ">", TurnId(b if first else a, 0))
            for (author, a, b), first in zip(asked, sides, strict=True)
        ]

    return st.lists(st.booleans(), min_size=len(asked), max_size=len(asked)).map(cast)


@st.composite
def valid_votes(draw: st.DrawFn, agents: int = 5, rounds: int = 3) -> list[Vote]:
    """Votes of agents on two others, each in an earlier round than the author's turn."""
    seats = st.permutations(range(agents))
    found = []
    for _ in range(draw(st.integers(0, 24))):
        author, a, b, *_ = draw(seats)
        round_ = draw(st.integers(1, rounds))
        seen = st.integers(0, round_ - 1)
        found.append(
            Vote(
                TurnId(author, round_),
                TurnId(a, draw(seen)),
                draw(st.sampled_from((">", "="))),
                TurnId(b, draw(seen)),
            )
        )
    return found


def relabelled(cast: Sequence[Vote], names: Sequence[int]) -> list[Vote]:
    """The same votes among agents who changed their seats."""
    return [
        Vote(renamed(v.author, names), renamed(v.a, names), v.op, renamed(v.b, names)) for v in cast
    ]


def renamed(old: TurnId, names: Sequence[int]) -> TurnId:
    return TurnId(names[old.seat], old.round)
