"""How a conversation becomes tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from rostra.engines.arrays import IntArray
from rostra.engines.offsets import PlacedTokens

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation."""

    role: Role
    text: str


class ChatFormat(Protocol):
    """Renders messages. Whatever a message says, its text never becomes a control token."""

    extends: bool
    """Whether a longer conversation always begins with the tokens of the shorter one. Where it
    does not (templates that rewrite history), prompts are rendered anew with `open`."""

    def open(self, messages: Sequence[Message]) -> IntArray:
        """A whole conversation, ending where the assistant begins to speak."""
        ...

    def extend(self, reply: IntArray, messages: Sequence[Message]) -> IntArray:
        """What follows a sampled reply: the end of its turn if it did not sample one, the new
        messages, and the place where the assistant begins to speak again."""
        ...

    def reply(self, text: str, *, end: bool) -> PlacedTokens:
        """The tokens of a text as an assistant would say it, with the end of its turn or without,
        and where in the text each begins. For texts that no model sampled: nothing that was
        sampled is ever made into tokens again."""
        ...
