"""Protocols as data: what a set of slots has to satisfy."""

from typing import Any

import pytest

from rostra.debate.peer import peer_v2
from rostra.debate.prompts import builtin
from rostra.debate.protocol import Protocol, Sight, Slot
from rostra.debate.seat import Seat
from rostra.errors import ConfigError

THREE = tuple(Seat(i, f"Agent {i}") for i in range(3))


def protocol(*slots: Slot, seats: tuple[Seat, ...] = THREE, **fields: Any) -> Protocol:
    return Protocol("test", seats, slots, builtin("peer"), **fields)


@pytest.mark.parametrize(
    ("slots", "says"),
    [
        ((), "no slots"),
        ((Slot(0, ()),), "slot 0: nobody may speak"),
        ((Slot(0, (0,)), Slot(0, (3,))), "slot 1: there are only seats 0 to 2"),
        ((Slot(0, (-1,)),), "only seats 0 to 2"),
        ((Slot(0, (1, 1)),), "speaks twice in round 0"),
        ((Slot(0, (0, 1)), Slot(0, (2, 1))), "slot 1: a seat speaks twice in round 0"),
        ((Slot(1, (0,)), Slot(0, (1,))), "slot 1: round 0 comes after a later round"),
        ((Slot(0, (0,), sections=("solution",), shows=("comparison",)),), "does not ask for"),
        ((Slot(0, (0,), shows=("solution",)),), "does not ask for"),
        ((Slot(0, (0,), "verdict"),), "two sides"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_slots_that_cannot_be_played_are_refused(slots: tuple[Slot, ...], says: str) -> None:
    with pytest.raises(ConfigError, match=f"protocol test.*{says}"):
        protocol(*slots)


def test_a_stop_list_of_strings_and_ids_is_refused() -> None:
    with pytest.raises(ConfigError, match="mixture"):
        protocol(Slot(0, (0,), stop=("x", 1)))  # type: ignore[arg-type]


@pytest.mark.parametrize("order", [(1, 0), (0, 2), (1, 2)], ids=str)
def test_seats_have_to_be_numbered_in_order(order: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="numbered 0, 1, 2"):
        protocol(Slot(0, (0,)), seats=tuple(Seat(i, "x") for i in order))


def test_a_verdict_between_one_side_is_refused_and_between_two_accepted() -> None:
    slot = Slot(0, (0,), "verdict")
    with pytest.raises(ConfigError, match="two sides"):
        protocol(slot, sides=("A",))
    assert protocol(slot, sides=("A", "B")).rounds == 0


def test_rounds_count_speaking_only() -> None:
    slots = (Slot(0, (0,)), Slot(0, (1,)), Slot(4, (0, 1)), Slot(5, (0, 1), "ballot"))
    assert protocol(*slots).rounds == 2


def test_agents_count_peers_only() -> None:
    seats = (*THREE, Seat(3, "Judge", "judge"))
    assert protocol(Slot(0, (0,)), seats=seats).agents == 3


def test_a_slot_sees_everything_where_nothing_else_is_said() -> None:
    assert Slot(0, (0,)).sees == Sight(rounds=-1, seats=None, background=True)


def test_protocols_of_the_same_rules_are_equal() -> None:
    assert peer_v2(agents=4).protocol() == peer_v2(agents=4).protocol()
    assert peer_v2(agents=4).protocol() != peer_v2(agents=5).protocol()
