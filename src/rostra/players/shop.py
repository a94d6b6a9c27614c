"""The teacher of the word problems: short debates in the form a real model should learn."""

from itertools import combinations

from rostra.debate.state import State
from rostra.debate.views import View
from rostra.players.sums import Carelessness
from rostra.seeds import derive, fraction
from rostra.tasks.grading import boxed


class ShopTeacher:
    """Knows the answers, and is as careless as it is told."""

    def __init__(self, careless: Carelessness) -> None:
        self._careless = careless

    def __call__(self, state: State, view: View) -> str:
        slot = state.protocol.slots[view.slot]
        seed = derive(state.turn_seed(view.seat), "teacher")
        turns = {turn.id: turn for turn in state.turns}
        best = state.question.reference or "0"
        names = sorted(view.names)
        said = {i: boxed(turns[view.names[i]].section("solution")) or "?" for i in names}
        bodies = {
            "solution": f"The answer is \\boxed{{{self._answer(best, seed)}}}.",
            "evaluation": _evaluation(said, best),
            "comparison": self._comparison(said, best, seed),
            "consensus": "YES" if all(s == best for s in said.values()) else "NO",
            "consensus_reason": "The answers were compared.",
        }
        parts = [f"<{tag}>{bodies[tag]}</{tag}>" for tag in slot.sections]
        ballot = slot.sections[0] != "solution"
        faults = self._careless.spoilt if ballot else self._careless.malformed
        if fraction(seed, "malformed") < faults:
            parts = parts[1:]
        return "\n".join(parts)

    def _answer(self, best: str, seed: int) -> str:
        if fraction(seed, "slips") < self._careless.slips:
            return str(int(best) + (-2, -1, 1, 2)[derive(seed, "slip") % 4])
        return best

    def _comparison(self, said: dict[int, str], best: str, seed: int) -> str:
        lines = []
        for i, j in combinations(said, 2):
            better = (said[i] == best) - (said[j] == best)
            if fraction(seed, "misjudges", i, j) < self._careless.misjudges:
                better = (-1, 0, 1)[derive(seed, "op", i, j) % 3]
            a, b = (j, i) if better < 0 else (i, j)
            lines.append(f"Agent {a} {'>' if better else '='} Agent {b}")
        return "\n".join(lines) or "N/A"


def _evaluation(said: dict[int, str], best: str) -> str:
    if not said:
        return "N/A"
    marks = [f"Agent {i} says {s}: {'right' if s == best else 'wrong'}." for i, s in said.items()]
    return f"I get {best}. " + " ".join(marks)
