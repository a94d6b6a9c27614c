"""What a seat sees when it is about to speak."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rostra.debate.prompts import Prompts
from rostra.debate.protocol import Protocol, Slot
from rostra.debate.sanitise import clip, quoted, sanitise
from rostra.debate.seat import Seat
from rostra.debate.sections import without_thinking
from rostra.debate.turn import Turn, TurnId
from rostra.debate.votes import comparable
from rostra.engines.chat import Message
from rostra.seeds import derive, permuted

if TYPE_CHECKING:
    from rostra.debate.state import State


@dataclass(frozen=True, slots=True)
class View:
    """The prompt of a turn.

    Where `extends` names an own earlier turn, the prompt is that turn's prompt, the tokens it
    sampled, and then `messages`. Where it is None, `messages` is everything.
    """

    seat: int
    slot: int
    extends: TurnId | None
    messages: tuple[Message, ...]
    seen: tuple[TurnId, ...]
    """The turns in the whole prompt, own ones included."""
    names: Mapping[int, TurnId]
    """For every other seat, the turn that its name stands for when it is compared."""


def view(state: State, seat: int, slot: int) -> View:
    """What the seat sees at a slot, as an addition to what it has seen before where possible."""
    opening = state.protocol.slots[slot]
    if opening.sees.rounds >= 0:
        return _window(state, seat, slot)
    last = next((t for t in reversed(state.turns) if t.id.seat == seat and t.slot < slot), None)
    if last is None:
        return _opened(state, seat, slot, _shuffled(state, seat, slot, 0))
    order = _shuffled(state, seat, slot, last.slot)
    fresh = [t.id for t in order]
    seen = (*last.seen, last.id, *fresh)
    # A name stands for what it stood for before, unless its seat has spoken since.
    names = {s: t for s, t in last.names.items() if s not in {i.seat for i in fresh}}
    names |= comparable(order, fresh, seat)
    turns = "\n\n".join([state.shown[t.id] for t in order])
    task = _task(state, seat, slot, names, seen)
    text = _render(state, seat, "next", turns=turns, task=task, question=state.question.prompt)
    return View(seat, slot, last.id, (Message("user", text),), seen, names)


def conversation(state: State, seat: int, slot: int) -> tuple[Message, ...]:
    """The whole prompt as messages, for engines that take or render conversations whole."""
    now = view(state, seat, slot)
    if now.extends is None:
        return now.messages
    own = next(t for t in state.turns if t.id == now.extends)
    before = conversation(state, seat, own.slot)
    return (*before, Message("assistant", own.text), *now.messages)


def show(protocol: Protocol, slot: Slot, turn: Turn, *, own: bool = False) -> str:
    """A turn as others see it. Rendered once, when it is submitted."""
    seat = protocol.seats[turn.id.seat]
    prompts = protocol.prompts
    who = f"{seat.name} (you)" if own else seat.name
    if not turn.ok:
        body = prompts.render("silent", seat.role, who=who)
    elif not slot.sections:
        speech = sanitise(without_thinking(turn.text))
        body = _field(protocol, seat, "", clip(speech, protocol.max_chars_per_field))
    else:
        fields = [
            _field(protocol, seat, name, _public(protocol, turn, name)) for name in slot.shows
        ]
        body = "\n".join(fields)
    return prompts.render("turn", seat.role, who=who, round=turn.id.round + 1, body=body)


def _public(protocol: Protocol, turn: Turn, section: str) -> str:
    """A section as others may read it. Votes are never clipped: half a vote is another vote."""
    if section == "comparison":
        lines = [f"Agent {a} {op} Agent {b}" for a, op, b in turn.comparisons.valid]
        return "\n".join(lines) or "N/A"
    return clip(sanitise(turn.section(section)), protocol.max_chars_per_field)


def _field(protocol: Protocol, seat: Seat, name: str, text: str) -> str:
    text = quoted(text, protocol.prompts.quote)
    title = name.replace("_", " ").capitalize()
    return protocol.prompts.render("field", seat.role, section=title, text=text)


def _visible(state: State, seat: int, slot: int, since: int) -> list[Turn]:
    """Turns of others in slots [since, slot) that the slot lets the seat see."""
    seats = state.protocol.slots[slot].sees.seats
    return [
        t
        for t in state.turns
        if since <= t.slot < slot and t.id.seat != seat and (seats is None or t.id.seat in seats)
    ]


def _shuffled(state: State, seat: int, slot: int, since: int) -> list[Turn]:
    """The visible turns, in the order in which they are shown: by round, and shuffled in it."""
    turns = _visible(state, seat, slot, since)
    if state.protocol.shuffle and len(turns) > 1:
        turns = permuted(turns, derive(state.seed, "order", seat, slot))
        turns.sort(key=_round)
    return turns


def _round(turn: Turn) -> int:
    return turn.id.round


def _window(state: State, seat: int, slot: int) -> View:
    """History rendered anew: the round so far and the rounds before it that are in sight."""
    opening = state.protocol.slots[slot]
    own = [t for t in state.turns if t.id.seat == seat and t.slot < slot]
    turns = _shuffled(state, seat, slot, 0) + own
    # Rounds that were really spoken: a consensus may have skipped some.
    past = sorted({t.id.round for t in turns if t.id.round < opening.round})
    reach = past[-opening.sees.rounds] if opening.sees.rounds < len(past) else 0
    turns = [t for t in turns if t.id.round >= reach] if opening.sees.rounds else []
    turns.sort(key=_round)
    return _opened(state, seat, slot, turns)


def _opened(state: State, seat: int, slot: int, turns: list[Turn]) -> View:
    """A conversation that begins here: the system message and one message with everything."""
    seen = tuple(t.id for t in turns)
    names = comparable(state.turns, seen, seat)
    blocks = [_block(state, t, own=t.id.seat == seat) for t in turns]
    sees = state.protocol.slots[slot].sees
    text = _render(
        state,
        seat,
        "opening",
        question=state.question.prompt,
        answers=_answers(state),
        background=(state.question.background or "") if sees.background else "",
        turns="\n\n".join(blocks),
        task=_task(state, seat, slot, names, seen),
    )
    return View(seat, slot, None, (_system(state, seat), Message("user", text)), seen, names)


def _system(state: State, seat: int) -> Message:
    protocol = state.protocol
    sitting = protocol.seats[seat]
    prompts = protocol.prompts
    sections = next(s.sections for s in protocol.slots if seat in s.seats)
    persona = sitting.persona
    text = prompts.render(
        "system",
        sitting.role,
        name=sitting.name,
        agents=protocol.agents,
        rounds=protocol.rounds,
        persona=prompts.render("persona", persona=persona.name, style=persona.style)
        if persona
        else "",
        contract="\n".join(prompts.render(f"contract.{section}") for section in sections),
        answer="" if sitting.side is None else state.question.choices[sitting.side],
        answers=_answers(state),
    )
    return Message("system", text)


def _answers(state: State) -> str:
    """The choices, under the names of the sides that defend them."""
    pairs = zip(state.protocol.sides, state.question.choices, strict=False)
    return "\n".join(f"{side}: {choice}" for side, choice in pairs)


def _block(state: State, turn: Turn, *, own: bool) -> str:
    if own:
        return show(state.protocol, state.protocol.slots[turn.slot], turn, own=True)
    return state.shown[turn.id]


def _task(
    state: State, seat: int, slot: int, names: Mapping[int, TurnId], seen: tuple[TurnId, ...]
) -> str:
    """What is asked of the seat now. Whom it may compare stands in the order of what was shown."""
    opening = state.protocol.slots[slot]
    sitting = state.protocol.seats[seat]
    place = {turn: at for at, turn in enumerate(seen)}
    order = sorted(names, key=lambda other: place[names[other]])
    match opening.kind:
        case "ballot" | "verdict":
            template: str = opening.kind
        case "speak" if sitting.role != "agent":
            template = "speech"
        case _ if opening.round > 0:
            template = "again"
        case _:
            template = ("alone", "pair", "compare")[min(len(names), 2)]
    return _render(
        state,
        seat,
        template,
        name=sitting.name,
        round=opening.round + 1,
        rounds=state.protocol.rounds,
        comparable=", ".join([state.protocol.seats[i].name for i in order]) or "nobody",
        tags=", ".join([f"<{section}>" for section in opening.sections]),
    )


def _render(state: State, seat: int, template: str, **values: object) -> str:
    prompts: Prompts = state.protocol.prompts
    return prompts.render(template, state.protocol.seats[seat].role, **values)
