"""Making the text of one seat safe to show to another.

Nothing in it may close or open a section, spell a control token of a chat template, cast a vote, or
speak for somebody else. Ordinary mathematics (`a < b`, `x > y`) is left alone.
"""

import re

from rostra.debate.comparisons import without_comparisons

TAGS = (
    "solution",
    "evaluation",
    "comparison",
    "consensus",
    "consensus_reason",
    "think",
    "quote",
    "invalid_quote",
)
"""Every tag that means something to Rostra, in any protocol."""

REMOVED = "[comparison removed]"
CLIPPED = " [...]"

_TAG = re.compile(rf"<(/?(?:{'|'.join(TAGS)})\s*+/?)>", re.IGNORECASE)
_CONTROL = re.compile(
    r"""
    <[|｜] | [|｜]>                                        # ChatML, Llama 3, DeepSeek, Harmony
    | <(?=/?(?:s|bos|eos|pad|unk|start_of_turn|end_of_turn|image|tool_call|tool_response)>)
    | \[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\])
    | <(?=</?SYS>>)
    """,
    re.IGNORECASE | re.VERBOSE,
)
_SUSPECT = re.compile(r"[<>=&\[]")
"""Nothing harmful can be written without one of these."""
_LOOKALIKE = str.maketrans({"<": "‹", ">": "›", "[": "⟦"})


def sanitise(text: str, *, votes_allowed: bool = False) -> str:
    """Text with tags, control tokens and (unless it is a ballot) comparisons defused.

    Brackets become look-alikes, so a reader can still see what was written. One character replaces
    one, hence no deletion can join two harmless pieces into a harmful one.
    """
    if not _SUSPECT.search(text):
        return text
    text = _TAG.sub(lambda m: f"‹{m[1]}›", text)
    text = _CONTROL.sub(lambda m: m[0].translate(_LOOKALIKE), text)
    return text if votes_allowed else without_comparisons(text, REMOVED)


def clip(text: str, limit: int | None) -> str:
    """The beginning of a text, with a mark where it was cut."""
    if limit is None or len(text) <= limit:
        return text
    return text[:limit].rstrip() + CLIPPED


def quoted(text: str, mark: str) -> str:
    """Text as a quotation: every line begins with the mark, so none can pose as a line of the
    prompt itself. With an empty mark the text becomes one line."""
    lines = text.splitlines() or [""]
    return "\n".join(mark + line for line in lines) if mark else " ".join(lines)
