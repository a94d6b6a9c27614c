"""A protocol: the rules of one debate, as data.

A family of debates (peer, judged) compiles its settings into a protocol; everything below it, the
state, the views, the arena, knows protocols only.
"""

from dataclasses import dataclass
from typing import Literal

from rostra.debate.prompts import Prompts
from rostra.debate.seat import Seat
from rostra.engines.sampling import Stop, check_stop
from rostra.errors import ConfigError

# More is a slip or a hostile file. All slots are made before play begins, and must fit in memory.
MOST_SEATS = 100
MOST_ROUNDS = 1000

SlotKind = Literal["speak", "ballot", "verdict"]
"""`speak`: a solution or a speech. `ballot`: judgement of peers. `verdict`: a judge decides."""

Malformed = Literal["abort", "mask"]
"""What a malformed response does: end the debate, or be hidden from the others."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What a slot lets its seats see. Turns of the same slot or of later ones are never seen."""

    rounds: int = -1
    """-1: everything earlier, as an append-only conversation. 0: nothing. K: the round so far and
    the K rounds before it, rendered anew at every turn."""
    seats: tuple[int, ...] | None = None
    """Whose turns are seen besides one's own; None means everybody's."""
    background: bool = True
    """Whether the background text of the question is seen."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One opening to speak, for one seat or for several at the same time."""

    round: int
    seats: tuple[int, ...]
    kind: SlotKind = "speak"
    sections: tuple[str, ...] = ()
    """What a response must hold, in order. Empty: anything goes."""
    shows: tuple[str, ...] = ()
    """The sections that others see of it. Empty, with no sections required: the whole text."""
    sees: Sight = Sight()
    stop: Stop = ()
    max_tokens: int = 1024


@dataclass(frozen=True, slots=True)
class Protocol:
    """Who sits where, who speaks when, what they see, and how it ends."""

    name: str
    seats: tuple[Seat, ...]
    slots: tuple[Slot, ...]
    prompts: Prompts
    sides: tuple[str, ...] = ()
    """In judged debate, the names under which the choices are defended and verdicts are given."""
    ends_on_consensus: bool = False
    """End when everybody says YES in one round; a ballot is still held."""
    ends_on_agreement: float = 0.0
    """End, without a ballot, when after a round at least this share of all agents gives the same
    answer; 0 never does."""
    malformed: Malformed = "mask"
    max_chars_per_field: int | None = None
    """Longer sections are clipped before others see them."""
    shuffle: bool = False
    """Show the turns of others in an order drawn anew for every reader and round."""

    def __post_init__(self) -> None:
        if [seat.index for seat in self.seats] != list(range(len(self.seats))):
            raise ConfigError(f"protocol {self.name}: seats must be numbered 0, 1, 2, ... in order")
        if not self.slots:
            raise ConfigError(f"protocol {self.name}: nobody ever speaks, because it has no slots")
        if len(self.sides) < 2 and any(slot.kind == "verdict" for slot in self.slots):
            raise ConfigError(f"protocol {self.name}: a verdict needs two sides to choose between")
        if not 0 <= self.ends_on_agreement <= 1:
            raise ConfigError(f"protocol {self.name}: ends_on_agreement is a share, from 0 to 1")
        taken: set[tuple[int, int]] = set()
        for index, slot in enumerate(self.slots):
            where = f"protocol {self.name}, slot {index}"
            if not slot.seats:
                raise ConfigError(f"{where}: nobody may speak")
            if any(seat not in range(len(self.seats)) for seat in slot.seats):
                raise ConfigError(f"{where}: there are only seats 0 to {len(self.seats) - 1}")
            pairs = {(seat, slot.round) for seat in slot.seats}
            if len(pairs) < len(slot.seats) or pairs & taken:
                raise ConfigError(f"{where}: a seat speaks twice in round {slot.round}")
            if index and slot.round < self.slots[index - 1].round:
                raise ConfigError(f"{where}: round {slot.round} comes after a later round")
            if set(slot.shows) - set(slot.sections):
                raise ConfigError(f"{where}: shows a section that it does not ask for")
            check_stop(slot.stop)
            taken |= pairs

    @property
    def rounds(self) -> int:
        """How many rounds of speaking there are at the most; ballots and verdicts do not count."""
        return len({slot.round for slot in self.slots if slot.kind == "speak"})

    @property
    def agents(self) -> int:
        """How many seats are peers."""
        return sum(seat.role == "agent" for seat in self.seats)


def check_least(name: str, value: int, least: int) -> None:
    """Refuses a number that is too small."""
    if value < least:
        raise ConfigError(f"{name} = {value}: must be at least {least}")


def check_most(name: str, value: int, most: int) -> None:
    """Refuses a number that is too large."""
    if value > most:
        raise ConfigError(f"{name} = {value}: must be at most {most:,}")
