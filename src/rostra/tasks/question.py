"""A question, as any task hands it to a debate."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rostra.errors import DataError


@dataclass(frozen=True, slots=True)
class Question:
    """Something to be answered, with all that is known about it."""

    id: str
    prompt: str
    reference: str | None = None
    """The right answer, where one is known. Never shown to a seat."""
    choices: tuple[str, ...] = ()
    """The answers to choose between; in judged debate, one for each side."""
    background: str | None = None
    """A text that some seats may read and others may not."""
    metadata: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.prompt.strip():
            raise DataError(f"question {self.id!r} is empty: give it some text to debate about")
