"""The teacher of the world of sums: what a debater says who knows the game and is careless at it.

It answers, and it looks again: an evaluation states the judge's own answer and who agrees with it,
and a comparison follows from that. The second look is better than the first answer, as checking is
easier than solving; how much better, and how careless the rest is, are its settings.
"""

from dataclasses import dataclass

from rostra.debate.state import State
from rostra.debate.views import View
from rostra.seeds import derive, fraction
from rostra.tasks.grading import boxed
from rostra.tasks.sums import compared, has_carry, lines_of, matched, terms, usual_mistake, worked


@dataclass(frozen=True, slots=True)
class Carelessness:
    """How often something goes wrong, each a share from 0 to 1."""

    forgets: float = 0.0
    """Answers to questions with a carry that forget it."""
    slips: float = 0.0
    """Other answers that are wrong, by a little and by chance."""
    malformed: float = 0.0
    """Solutions that are not in the form they should be in."""
    spoilt: float = 0.0
    """Ballots that are not."""
    misjudges: float = 0.0
    """Comparisons that come out at random."""
    doubts: float = 0.0
    """Second looks that are as careless as a first answer."""


class SumsTeacher:
    """Speaks for every seat."""

    def __init__(self, careless: Carelessness, *, early_votes: bool = True) -> None:
        self._careless = careless
        self._early_votes = early_votes

    def __call__(self, state: State, view: View) -> str:
        slot = state.protocol.slots[view.slot]
        seed = derive(state.turn_seed(view.seat), "teacher")
        a, b = terms(state.question.prompt)
        own = self._answer(a, b, derive(seed, "second")) if self._doubts(seed) else a + b
        judges = slot.kind == "ballot" or self._early_votes
        peers = _peers(state, view) if judges else {}
        agree = all(said == str(own) for said in peers.values())
        bodies = {
            "solution": f"\\boxed{{{self._answer(a, b, derive(seed, 'first'))}}}",
            "evaluation": _evaluation(worked(a, b, own), str(own), peers),
            "comparison": self._comparison(str(own), peers, seed),
            "consensus": "YES" if agree else "NO",
            "consensus_reason": "N/A",
        }
        formed = self._formed([(tag, bodies[tag]) for tag in slot.sections], seed)
        return f"{a}+{b}=" + formed if "solution" in slot.sections else formed

    def _doubts(self, seed: int) -> bool:
        return fraction(seed, "doubts") < self._careless.doubts

    def _answer(self, a: int, b: int, seed: int) -> int:
        if has_carry(a, b) and fraction(seed, "forgets") < self._careless.forgets:
            return usual_mistake(a, b)
        if fraction(seed, "slips") < self._careless.slips:
            return max(0, a + b + (-2, -1, 1, 2)[derive(seed, "slip") % 4])
        return a + b

    def _comparison(self, own: str, peers: dict[int, str], seed: int) -> str:
        verdicts = compared({seat: said == own for seat, said in peers.items()})
        careless = [
            (i, "><="[derive(seed, "op", i, j) % 3], j)
            if fraction(seed, "misjudges", i, j) < self._careless.misjudges
            else (i, op, j)
            for i, op, j in verdicts
        ]
        return lines_of(careless) or "N/A"

    def _formed(self, sections: list[tuple[str, str]], seed: int) -> str:
        parts = [f"<{tag}>{body}</{tag}>" for tag, body in sections]
        tag, body = sections[0]
        faults = self._careless.malformed if tag == "solution" else self._careless.spoilt
        if fraction(seed, "malformed") < faults:
            match derive(seed, "fault") % 3:
                case 0:
                    parts[0] = body  # no tags around the first section
                case 1:
                    parts[0] = f"<{tag}>{body}"  # never closed
                case _:
                    parts = parts[1:]  # left out
        return "".join(parts)


def _peers(state: State, view: View) -> dict[int, str]:
    """The latest answer of each peer who may be compared, in the order in which they are shown."""
    turns = {turn.id: turn for turn in state.turns}
    place = {turn: at for at, turn in enumerate(view.seen)}
    order = sorted(view.names, key=lambda seat: place[view.names[seat]])
    said = {seat: turns[view.names[seat]].section("solution") for seat in order}
    return {seat: boxed(solution) or "" for seat, solution in said.items()}


def _evaluation(work: str, mine: str, peers: dict[int, str]) -> str:
    if not peers:
        return "N/A"
    marks = [f"Agent {i}:{matched(said, mine)}" for i, said in peers.items()]
    return "\n".join([work, *marks])
