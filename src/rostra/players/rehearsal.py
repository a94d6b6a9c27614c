"""A script for the scripted engine that plays any peer debate: it reads the prompt like a model.

It solves small arithmetic questions, and makes up answers to others. Some replies are wrong on
purpose, most judgements are right, and the better answers spread from round to round, so that a
rehearsed debate has real votes and real rewards.
"""

import re
from itertools import combinations

from rostra.engines.scripted import Prompt, Script
from rostra.seeds import derive, fraction

_SUM = re.compile(r"(-?\d{1,12})\s*([-+*x×·])\s*(-?\d{1,12})")
_NAME = re.compile(r"You are Agent (\d+)")
_TAGS = re.compile(r"<(\w+)>")
_BLOCK = re.compile(r"^\[Agent (\d+)(?: \(you\))?, round (\d+)\]$([^\[]*)", re.MULTILINE)
_BOX = re.compile(r"\\boxed\{([^{}]*)\}")
_AGENT = re.compile(r"Agent (\d+)")


def rehearsal(*, right: float = 0.45, judgement: float = 0.85, fault: float = 0.0) -> Script:
    """A reply function: `right` is how often a first answer is right, `judgement` how often a right
    answer is preferred to a wrong one, `fault` how often a reply is malformed."""

    def reply(asked: Prompt, seed: int) -> str:
        prompt = asked.text
        question, best = _question(prompt)
        me = int(name[1]) if (name := _NAME.search(prompt)) else 0
        last = asked.last
        tags = _TAGS.findall(last[last.rfind("Reply with") :])
        said = _answers(prompt)
        mine = _choose(question, best, said, me, right, seed)
        names = _may_compare(last)
        spoken = {i: said[i] for i in names if i in said}
        agreed = len({*spoken.values(), mine}) == 1 and bool(spoken)
        bodies = {
            "solution": f"Working it out step by step, I get \\boxed{{{mine}}}.",
            "evaluation": _evaluation(spoken, mine),
            "comparison": _comparison(spoken, best, judgement, seed),
            "consensus": "YES" if agreed else "NO",
            "consensus_reason": "All answers agree." if agreed else "Answers still differ.",
        }
        if fraction(seed, "fault") < fault:
            tags = tags[:-1]
        return "\n".join(f"<{tag}>{bodies.get(tag, 'N/A')}</{tag}>" for tag in tags)

    return reply


def _question(prompt: str) -> tuple[str, str]:
    """The question, and the answer that the script takes for right."""
    start = prompt.find("Question:\n") + len("Question:\n")
    question = prompt[start : prompt.find("\n\n", start)]
    found = _SUM.search(question)
    if not found:
        return question, "ABCDE"[derive(question, "best") % 5]
    a, op, b = int(found[1]), found[2], int(found[3])
    return question, str({"+": a + b, "-": a - b}.get(op, a * b))


def _choose(
    question: str, best: str, said: dict[int, str], me: int, right: float, seed: int
) -> str:
    """A first answer; later, the own one again unless a better one was seen and convinced."""
    if me in said and said[me] == best:
        return best
    if said and best in said.values() and fraction(seed, "learn") < 0.6:
        return best
    if me in said:
        return said[me]
    if fraction(seed, "solve") < right:
        return best
    slip = derive(seed, "slip")
    if best.lstrip("-").isdigit():
        return str(int(best) + (1, 10, -10, 2)[slip % 4])
    return "ABCDE"[slip % 5]


def _answers(prompt: str) -> dict[int, str]:
    """The latest answer of every agent in the prompt, the own one included."""
    said: dict[int, str] = {}
    own = _NAME.search(prompt)
    turns = prompt.split("<|assistant|>")[1:-1]
    if own and turns and (box := _BOX.search(turns[-1].partition("<|end|>")[0])):
        said[int(own[1])] = box[1]
    for block in _BLOCK.finditer(prompt):
        if box := _BOX.search(block[3]):
            said[int(block[1])] = box[1]
    return said


def _may_compare(message: str) -> list[int]:
    at = message.rfind("You may compare:")
    if at >= 0:
        return [int(i) for i in _AGENT.findall(message[at : message.find("\n", at)])]
    at = message.rfind("the one agent who has spoken")
    return [int(i) for i in _AGENT.findall(message[at:])][:1] if at >= 0 else []


def _evaluation(spoken: dict[int, str], mine: str) -> str:
    if not spoken:
        return "N/A"
    return " ".join(
        f"Agent {i} gets {answer}, as I do."
        if answer == mine
        else f"Agent {i} gets {answer}; I find {mine}, so a step must have slipped."
        for i, answer in spoken.items()
    )


def _comparison(spoken: dict[int, str], best: str, judgement: float, seed: int) -> str:
    lines = []
    for a, b in combinations(spoken, 2):
        good = (spoken[a] == best) - (spoken[b] == best)
        if spoken[a] == spoken[b]:
            lines.append(f"Agent {a} = Agent {b}")
            continue
        if good == 0:
            good = 1 if derive(seed, "taste", a, b) % 2 else -1
        elif fraction(seed, "judge", a, b) >= judgement:
            good = -good
        lines.append(f"Agent {a} > Agent {b}" if good > 0 else f"Agent {b} > Agent {a}")
    return "\n".join(lines) or "N/A"
