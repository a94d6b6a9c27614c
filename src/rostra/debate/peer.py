"""Peer debate: N equals who solve, evaluate and compare each other.

`peer-v1` and `peer-v2` are two settings of one set of rules. Every setting can be mixed with every
other; what makes no sense is refused, and what makes little sense is warned about.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Literal, get_args

from rostra.debate.prompts import builtin, did_you_mean
from rostra.debate.protocol import (
    MOST_ROUNDS,
    MOST_SEATS,
    Malformed,
    Protocol,
    Sight,
    Slot,
    check_least,
    check_most,
)
from rostra.debate.seat import PERSONAS, Persona, Seat
from rostra.engines.sampling import Stop, check_stop
from rostra.errors import ConfigError

SECTIONS = ("solution", "evaluation", "comparison", "consensus", "consensus_reason")
"""The sections of peer debate, in the one order they can have."""
BALLOT = ("evaluation", "comparison")
"""What is left in a closing ballot."""

Schedule = Literal["sequential", "simultaneous"]
FLAGS = ("votes_shown", "stop_on_consensus", "closing_ballot", "shuffle_peers")
RewardName = Literal["win_rate", "win_minus_loss", "streams"]
Consensus = Literal["leave_one_out", "majority"]


@dataclass(frozen=True, slots=True)
class PeerRules:
    """The settings of a peer debate. The defaults are peer-v2."""

    name: str = "peer-v2"
    agents: int = 5
    rounds: int = 3
    """At most so many; fewer where the debate ends on consensus."""
    schedule: Schedule = "simultaneous"
    """One after the other, each seeing who spoke before; or all at once, seeing earlier rounds."""
    sections: tuple[str, ...] = SECTIONS[:3]
    history_rounds: int = -1
    """-1: all of the debate, as one growing conversation. 0: nothing. K: the round so far and the
    K rounds before it."""
    max_chars_per_field: int | None = None
    votes_shown: bool = False
    """Whether others see an agent's comparisons; off is blind review."""
    stop_on_consensus: bool = False
    stop_on_agreement: float = 0.0
    """The share of all agents who must give the same answer in a round for the debate to end there,
    without a ballot; 1 is everybody, 0 never. A malformed reply agrees with nobody."""
    malformed: Malformed = "mask"
    """abort: the debate ends when the slot does, and the step is worth -1. mask: the others see a
    placeholder, the turn is penalised on the judge stream, and the debate goes on."""
    closing_ballot: bool = True
    """A last slot in which every agent only evaluates and compares. Without it nobody ever votes on
    the last solutions of a simultaneous debate."""
    shuffle_peers: bool = True
    """Show the others in an order drawn anew for every reader and round."""
    personas: tuple[Persona, ...] = PERSONAS
    """Given to the agents in turn, with their temperatures; empty for none."""
    temperature: float = 1.0
    """For agents without a persona."""
    max_tokens: int = 1024
    """For one turn."""
    stop: Stop | None = None
    """Strings or token ids at which a turn ends; None: the closing tag of its last section."""
    reward: RewardName = "streams"
    consensus: Consensus = "leave_one_out"
    """Whom a judge is measured against: the majority of the others, or of all."""
    format_penalty: float = 0.5
    """Taken from the judge stream of a turn that could compare and did not."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Templates that replace the shipped ones, by name."""

    def __post_init__(self) -> None:
        self._check_types()
        check_choice("schedule", self.schedule, get_args(Schedule))
        check_choice("malformed", self.malformed, get_args(Malformed))
        check_choice("reward", self.reward, get_args(RewardName))
        check_choice("consensus", self.consensus, get_args(Consensus))
        check_penalty(self.format_penalty)
        self._check_seats()
        self._check_sections()
        if self.rounds < 1:
            raise ConfigError(f"rounds = {self.rounds}: a debate has at least 1 round")
        check_most("rounds", self.rounds, MOST_ROUNDS)
        if not 0 <= self.stop_on_agreement <= 1:
            raise ConfigError(
                f"stop_on_agreement = {self.stop_on_agreement}: a share of the agents, from 0 "
                "(never) to 1 (all of them)"
            )
        if self.history_rounds < -1:
            raise ConfigError(
                f"history_rounds = {self.history_rounds}: -1 for all, 0 for none, K for K rounds"
            )
        if self.max_chars_per_field is not None:
            check_least("max_chars_per_field", self.max_chars_per_field, 1)
        check_least("max_tokens", self.max_tokens, 1)
        if self.stop is not None:
            check_stop(self.stop)
        builtin("peer").replaced(self.prompts)

    def _check_types(self) -> None:
        for kind, what, names in (
            (int, "a whole number", ("agents", "rounds", "history_rounds", "max_tokens")),
            (bool, "true or false", FLAGS),
            ((int, float), "a number", ("temperature", "format_penalty", "stop_on_agreement")),
            (tuple, "a list", ("sections", "personas")),
        ):
            for name in names:
                value = getattr(self, name)
                if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
                    raise ConfigError(f"{name} = {value!r}: must be {what}")
        if not all(isinstance(persona, Persona) for persona in self.personas):
            raise ConfigError("personas: each has a name, a style and a temperature")

    def _check_seats(self) -> None:
        if self.agents < 3:
            raise ConfigError(
                f"agents = {self.agents}: nobody judges himself, so with fewer than 3 agents there "
                "are no two others to compare; use 3 or more (5 for a judge signal)"
            )
        check_most("agents", self.agents, MOST_SEATS)
        for persona in self.personas:
            if not 0 <= persona.temperature < math.inf:
                raise ConfigError(f"persona {persona.name}: temperature must be 0 or more")
        if not 0 <= self.temperature < math.inf:
            raise ConfigError(f"temperature = {self.temperature}: must be 0 or more")

    def _check_sections(self) -> None:
        unknown = [s for s in self.sections if s not in SECTIONS]
        if unknown:
            raise ConfigError(f"sections: {unknown[0]} is not one of {', '.join(SECTIONS)}")
        if list(self.sections) != [s for s in SECTIONS if s in self.sections]:
            raise ConfigError(f"sections: must be in the order {', '.join(SECTIONS)}, each once")
        for needed in ("solution", "comparison"):
            if needed not in self.sections:
                raise ConfigError(f"sections: without {needed} there is nothing to vote on")
        if self.stop_on_consensus and "consensus" not in self.sections:
            raise ConfigError(
                "stop_on_consensus: agents cannot say that they agree; add consensus to sections"
            )

    def warnings(self) -> list[str]:
        """Settings that are allowed and will disappoint, one sentence each, with the fix."""
        found = judge_warnings(self.agents, self.consensus) if self.reward == "streams" else []
        if self.schedule == "simultaneous" and not self.closing_ballot:
            found.append(
                "closing_ballot = false: nobody votes on the last round of a simultaneous debate, "
                "so its gen reward is no signal; turn closing_ballot on."
            )
        if 0 < self.stop_on_agreement <= 0.5:
            found.append(
                f"stop_on_agreement = {self.stop_on_agreement}: half of the agents may still "
                "disagree when the debate stops; use more than 0.5."
            )
        if self.personas and self.temperature != 1:
            found.append(
                f"temperature = {self.temperature}: agents with a persona have that of the "
                "persona; change theirs, or set personas = []."
            )
        early = [t for t in self.sections[:-1] if self.stop and f"</{t}>" in self.stop]
        if early:
            found.append(
                f"stop holds </{early[0]}>, which cuts every reply off before its last section; "
                "leave stop out."
            )
        if self.history_rounds == 0:
            found.append(
                "history_rounds = 0: agents see nobody's work and cannot vote; use -1 or 1."
            )
        return found

    def protocol(self) -> Protocol:
        """The rules as seats and slots."""
        return Protocol(
            name=self.name,
            seats=tuple(map(self._seat, range(self.agents))),
            slots=self._slots(),
            prompts=builtin("peer").replaced(self.prompts),
            ends_on_consensus=self.stop_on_consensus,
            ends_on_agreement=self.stop_on_agreement,
            malformed=self.malformed,
            max_chars_per_field=self.max_chars_per_field,
            shuffle=self.shuffle_peers,
        )

    def opening(self, temperature: float | None = None) -> Protocol:
        """The first slot of a debate and nothing else: answers that were given alone. Where all
        speak at once this is every seat; one after the other, only the first ever answers alone.
        Without a temperature, every seat keeps its own."""
        protocol = self.protocol()
        seats = protocol.seats
        if temperature is not None:
            seats = tuple(replace(seat, temperature=temperature) for seat in seats)
        return replace(
            protocol,
            seats=seats,
            slots=protocol.slots[:1],
            malformed="mask",
            ends_on_consensus=False,
            ends_on_agreement=0.0,
        )

    def _seat(self, index: int) -> Seat:
        if not self.personas:
            return Seat(index, f"Agent {index}", temperature=self.temperature)
        persona = self.personas[index % len(self.personas)]
        return Seat(index, f"Agent {index}", "agent", persona, persona.temperature)

    def _slots(self) -> tuple[Slot, ...]:
        everybody = tuple(range(self.agents))
        shows = tuple(s for s in self.sections if self.votes_shown or s != "comparison")
        slot = Slot(
            round=0,
            seats=everybody,
            sections=self.sections,
            shows=shows,
            sees=Sight(self.history_rounds),
            stop=self._stop(self.sections),
            max_tokens=self.max_tokens,
        )
        openings = (
            [everybody] if self.schedule == "simultaneous" else [(seat,) for seat in everybody]
        )
        slots = [replace(slot, round=r, seats=s) for r in range(self.rounds) for s in openings]
        if self.closing_ballot:
            sections = tuple(s for s in BALLOT if s in self.sections)
            stop = self._stop(sections)
            ballot = replace(
                slot, round=self.rounds, kind="ballot", sections=sections, shows=(), stop=stop
            )
            slots.append(ballot)
        return tuple(slots)

    def _stop(self, sections: tuple[str, ...]) -> Stop:
        return (f"</{sections[-1]}>",) if self.stop is None else self.stop


def judge_warnings(agents: int, consensus: Consensus) -> list[str]:
    """Why the judge reward will disappoint with so many agents, and the fix."""
    if consensus == "leave_one_out":
        if agents == 3:
            return [
                "agents = 3 with consensus = leave_one_out: every pair has only one judge, so "
                "there is no judge signal; use 5 or more agents."
            ]
        return []
    levels = {3: "is always +1 and carries nothing", 4: "can only be +1 or 0"}.get(
        agents, "counts the judge's own vote, which pulls it towards +1"
    )
    return [
        f"agents = {agents} with consensus = majority: the judge reward {levels}; use "
        "consensus = leave_one_out with 5 or more agents."
    ]


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuses a word that is not one of the choices."""
    if value not in choices:
        close = did_you_mean(str(value), choices)
        raise ConfigError(f"{name} = {value!r}: must be {' or '.join(choices)}{close}")


def check_penalty(penalty: float) -> None:
    """Refuses a penalty that would be a bonus, or no number."""
    if not 0 <= penalty < math.inf:
        raise ConfigError(f"format_penalty = {penalty}: it is subtracted, so give it as 0 or more")


def _changed(rules: PeerRules, changes: Mapping[str, object]) -> PeerRules:
    known = tuple(f.name for f in fields(PeerRules))
    for name in changes:
        if name not in known:
            raise ConfigError(f"{name}: unknown key{did_you_mean(name, known)}")
    return replace(rules, **changes)  # type: ignore[arg-type]


def peer_v1(**changes: object) -> PeerRules:
    """Sequential, five tags, votes in the open, one scalar per agent, consensus ends it."""
    rules = PeerRules(
        name="peer-v1",
        schedule="sequential",
        sections=SECTIONS,
        votes_shown=True,
        stop_on_consensus=True,
        malformed="abort",
        closing_ballot=False,
        personas=(),
        reward="win_rate",
    )
    return _changed(rules, changes)


def peer_v2(**changes: object) -> PeerRules:
    """Simultaneous rounds, blind review, personas, separate credit for solving and judging."""
    return _changed(PeerRules(), changes)


PRESETS = {"peer-v1": peer_v1, "peer-v2": peer_v2}
