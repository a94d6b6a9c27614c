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
_BARS = (("<|", "‹|"), ("|>", "|›"), ("<｜", "‹｜"), ("｜>", "｜›"))
"""ChatML, Llama 3, Harmony, DeepSeek."""
_ANGLE = re.compile(
    r"<(?=/?(?:s|bos|eos|pad|unk|start_of_turn|end_of_turn|image|tool_call|tool_response)>|</?SYS>>)",
    re.IGNORECASE,
)
_SQUARE = re.compile(
    r"\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\])", re.IGNORECASE
)
_SUSPECT = re.compile(r"[<>=&\[]")
"""Nothing harmful can be written without one of these."""


def sanitise(text: str) -> str:
    """Text with comparisons removed, and tags and control tokens defused.

    Brackets become look-alikes, so a reader can still see what was written. Comparisons go first,
    because finding them resolves entities; after that one character replaces one, so nothing
    harmless can be joined into something harmful.
    """
    if not _SUSPECT.search(text):
        return text
    text = without_comparisons(text, REMOVED)
    text = _TAG.sub(r"‹\1›", text)
    for bar, defused in _BARS:
        text = text.replace(bar, defused)
    return _SQUARE.sub("⟦", _ANGLE.sub("‹", text))


def clip(text: str, limit: int | None) -> str:
    """The beginning of a text, with a mark where it was cut."""
    if limit is None or len(text) <= limit:
        return text
    return text[:limit].rstrip() + CLIPPED


def quoted(text: str, mark: str) -> str:
    """Text as a quotation: every line begins with the mark, so none can pose as a line of the
    prompt itself. With an empty mark the text becomes one line, its parts divided by ` / `."""
    lines = text.splitlines() or [""]
    return "\n".join(mark + line for line in lines) if mark else " / ".join(lines)
