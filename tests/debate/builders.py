"""Turns, responses and hostile text for the tests of the debate room."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from rostra.debate.comparisons import Comparisons, read_comparisons
from rostra.debate.peer import SECTIONS
from rostra.debate.sections import parse
from rostra.debate.turn import Turn, TurnId
from rostra.engines.sampling import StopReason

properties = settings(max_examples=200, deadline=None)
"""How hard to look for a counterexample; never a matter of wall time."""

CONTENT = {
    "solution": "The answer is \\boxed{4}.",
    "evaluation": "Agent 0 is right; Agent 2 slipped on the sign.",
    "comparison": "Agent 0 > Agent 2",
    "consensus": "NO",
    "consensus_reason": "Agent 2 still disagrees.",
}
"""A well-formed reply of agent 1, section by section."""


def tagged(sections: Mapping[str, str]) -> str:
    """Sections as a model writes them, one below the other."""
    return "\n".join(f"<{name}>{text}</{name}>" for name, text in sections.items())


def response(*, without: str | None = None, **changes: str) -> str:
    """A reply of the five-section contract, with some sections changed or one left out."""
    sections = CONTENT | changes
    return tagged({name: text for name, text in sections.items() if name != without})


def make_turn(
    seat: int,
    round_: int = 0,
    text: str | None = None,
    *,
    sections: Sequence[str] = SECTIONS,
    stop_reason: StopReason = "stop",
    seen: tuple[TurnId, ...] = (),
    names: Mapping[int, TurnId] | None = None,
    n_agents: int = 5,
    slot: int | None = None,
) -> Turn:
    """A turn with one token per character, read the way a debate reads it."""
    text = response() if text is None else text
    parsed = parse(text, sections, stop_reason)
    comparison = parsed.sections.get("comparison")
    tokens = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.int32)
    return Turn(
        id=TurnId(seat, round_),
        slot=round_ if slot is None else slot,
        text=text,
        stop_reason=stop_reason,
        parsed=parsed,
        comparisons=read_comparisons(comparison.text, seat, n_agents)
        if comparison
        else Comparisons(),
        seen=seen,
        names=names or {},
        extends=None,
        observation=np.zeros(1, dtype=np.int32),
        tokens=tokens,
        logprobs=np.zeros(len(tokens)),
        starts=np.arange(len(tokens)),
        temperature=1.0,
    )


any_text = st.text(st.characters(exclude_categories=()))
"""Every character there is, lone surrogates included."""


def soup(*fragments: str, max_size: int = 24) -> st.SearchStrategy[str]:
    """Text made of the fragments in any order, with a little of anything between them."""
    pieces = st.one_of(st.sampled_from(fragments), st.sampled_from(fragments), any_text)
    return st.lists(pieces, max_size=max_size).map("".join)


SECTION_TAGS = tuple(f"<{slash}{name}>" for name in SECTIONS for slash in ("", "/"))

tag_soup = soup(
    *SECTION_TAGS,
    *(tag.upper() for tag in SECTION_TAGS),
    *(
        "<Solution>",
        "</sOLUTION>",
        "<ſolution>",
        "</ſolution>",
        "<solution/>",
        "<solution lang='en'>",
    ),
    *("<think>", "</think>", "<THINK>", "</Think>", "<thin\u212a>"),
    *("```", "```xml\n", "\n```\n", "\n", " ", "&lt;solution&gt;", "&amp;", "&#60;", "<", ">", "/"),
    *("YES", "no", "**YES**", "N/A", "Agent 0 > Agent 2", "Agent 1", "9" * 40, "\\boxed{4}"),
)
"""Section and think tags in any case and order, fences, entities, comparisons, long numbers."""

whole_replies = st.builds(
    lambda before, sections, after: before + "".join(sections) + after,
    tag_soup,
    st.tuples(*(tag_soup.map(f"<{name}>{{}}</{name}>".format) for name in SECTIONS)),
    tag_soup,
)
"""Replies that have all their sections, among and around much that disturbs them."""


@cache
def hostile_texts(size: int = 1_000_000) -> dict[str, str]:
    """Texts of a given size that make careless readers slow, by what they repeat."""
    repeated = {
        "opening tags": "<solution>",
        "closing tags": "</solution>",
        "wide tags": "<solution" + " " * 500,
        "last section only": "<consensus_reason>",
        "think opens": "<think>",
        "think closes": "</think>",
        "think blocks": "<think></think>",
        "less-than signs": "<",
        "spaces": " ",
        "newlines": "\n",
        "digits": "1",
        "commas": ",",
        "commas and spaces": ",   ;   ",
        "letters and spaces": "n n n ",
        "underscores": "_",
        "agents": "Agent 1 ",
        "agents far apart": "Agent" + " " * 500,
        "chain": "Agent 1 > ",
        "chains after commas": "Agent 1 > Agent 2, ",
        "comparison lines": "Agent 1 > Agent 2\n",
        "half comparisons": "Agent 1\n> ",
        "entities begun": "&#",
        "entities": "&#62;",
        "unknown entities": "&" + "a" * 40,
        "fences": "```\n",
        "open fences": "\n```   ",
        "control marks": "<|",
        "verdicts begun": "Debater_A | ",
        "verdicts out of range": "Debater_A | 101%",
        "bars": "a|",
    }
    return {name: (unit * (size // len(unit) + 1))[:size] for name, unit in repeated.items()}


def seconds(work: Callable[[], object]) -> float:
    """How long a piece of work takes, once, without what a coverage tracer adds to every line."""
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        start = time.process_time()
        work()
        return time.process_time() - start
    finally:
        sys.settrace(tracer)
