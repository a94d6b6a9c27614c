"""Seats and the personas that sit in them."""

from dataclasses import dataclass
from typing import Literal

Role = Literal["agent", "debater", "consultant", "judge"]


@dataclass(frozen=True, slots=True)
class Persona:
    """A way of thinking, and how freely it is sampled."""

    name: str
    style: str
    temperature: float = 1.0


PERSONAS = (
    Persona(
        "Methodical Analyst",
        "You work systematically, step by step, and write down every step before the next.",
        0.6,
    ),
    Persona(
        "Creative Problem-Solver",
        "You look for unconventional approaches that others would not think of first.",
        1.0,
    ),
    Persona(
        "Devil's Advocate",
        "You are sceptical: you look for counterexamples and for the step that fails.",
        0.9,
    ),
    Persona(
        "Synthesizer",
        "You combine different viewpoints and keep what is strongest in each.",
        1.0,
    ),
    Persona(
        "First Principles Thinker",
        "You return to the fundamentals and build the answer up from what is certain.",
        0.8,
    ),
)
"""The five of peer-v2. With more than five agents they come round again."""


@dataclass(frozen=True, slots=True)
class Seat:
    """One role in one debate."""

    index: int
    name: str
    role: Role = "agent"
    persona: Persona | None = None
    temperature: float = 1.0
    side: int | None = None
    """In judged debate, the index of the choice that the seat defends."""
    player: str = "policy"
    """The name of the player that fills the seat."""
