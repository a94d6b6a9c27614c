"""The settings of peer debate: the two presets, what is refused, and what is warned about."""

import math
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from rostra.debate.peer import PRESETS, PeerRules, peer_v1, peer_v2
from rostra.debate.seat import PERSONAS, Persona
from rostra.errors import ConfigError
from tests.playing import begin


def test_peer_v1_has_the_settings_of_the_design() -> None:
    rules = PRESETS["peer-v1"]()
    assert rules.name == "peer-v1"
    assert rules.schedule == "sequential"
    assert rules.sections == (
        "solution",
        "evaluation",
        "comparison",
        "consensus",
        "consensus_reason",
    )
    assert rules.votes_shown
    assert rules.stop_on_consensus
    assert rules.malformed == "abort"
    assert rules.reward == "win_rate"
    assert rules.personas == ()
    assert rules.history_rounds == -1
    assert not rules.closing_ballot


def test_peer_v2_has_the_settings_of_the_design() -> None:
    rules = PRESETS["peer-v2"]()
    assert rules.name == "peer-v2"
    assert rules.schedule == "simultaneous"
    assert rules.sections == ("solution", "evaluation", "comparison")
    assert not rules.votes_shown
    assert not rules.stop_on_consensus
    assert rules.malformed == "mask"
    assert rules.reward == "streams"
    assert rules.consensus == "leave_one_out"
    assert rules.format_penalty == 0.5
    assert rules.personas == PERSONAS
    assert rules.history_rounds == -1
    assert rules.max_chars_per_field is None
    assert rules.closing_ballot


def test_presets_take_changes_and_keep_the_rest() -> None:
    rules = peer_v1(agents=4, reward="win_minus_loss", votes_shown=False)
    assert (rules.agents, rules.reward, rules.votes_shown) == (4, "win_minus_loss", False)
    assert rules.schedule == "sequential"
    assert peer_v2(schedule="sequential").malformed == "mask"


def test_personas_are_the_five_of_the_design() -> None:
    assert [(p.name, p.temperature) for p in PERSONAS] == [
        ("Methodical Analyst", 0.6),
        ("Creative Problem-Solver", 1.0),
        ("Devil's Advocate", 0.9),
        ("Synthesizer", 1.0),
        ("First Principles Thinker", 0.8),
    ]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"agents": 2}, "agents = 2"),
        ({"agents": 0}, "agents = 0"),
        ({"rounds": 0}, "rounds = 0"),
        ({"rounds": 1001}, "rounds = 1001: must be at most 1,000"),
        ({"agents": 101}, "agents = 101: must be at most 100"),
        ({"rounds": 10**16}, "must be at most"),
        ({"rounds": -1}, "rounds = -1"),
        ({"schedule": "random"}, "schedule"),
        ({"malformed": "ignore"}, "malformed"),
        ({"reward": "elo"}, "reward"),
        ({"consensus": "everybody"}, "consensus"),
        ({"sections": ("solution", "verdict", "comparison")}, "verdict is not one of"),
        ({"sections": ("comparison", "solution")}, "in the order"),
        ({"sections": ("solution", "solution", "comparison")}, "each once"),
        ({"sections": ("evaluation", "comparison")}, "without solution"),
        ({"sections": ("solution", "evaluation")}, "without comparison"),
        ({"sections": ()}, "without solution"),
        ({"stop_on_consensus": True}, "add consensus to sections"),
        ({"history_rounds": -2}, "history_rounds = -2"),
        ({"max_chars_per_field": 0}, "max_chars_per_field = 0"),
        ({"max_tokens": 0}, "max_tokens = 0"),
        ({"stop": ("</comparison>", 256)}, "mixture"),
        ({"stop": (256, "</comparison>")}, "mixture"),
        ({"stop": ("",)}, "empty string"),
        ({"temperature": -0.1}, "temperature = -0.1"),
        ({"temperature": math.nan}, "temperature"),
        ({"personas": (Persona("Grump", "You grumble.", -1.0),)}, "Grump"),
        ({"personas": (Persona("Grump", "You grumble.", math.inf),)}, "Grump"),
        ({"format_penalty": -0.5}, "format_penalty = -0.5"),
        ({"format_penalty": math.nan}, "format_penalty"),
        ({"prompts": {"sistem": "x"}}, "did you mean system"),
        ({"prompts": {"system": "{{nam}}"}}, "did you mean name"),
    ],
    ids=str,
)
def test_nonsense_is_refused_with_its_name(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        peer_v2(**changes)


def test_the_refusal_of_two_agents_names_the_fix() -> None:
    with pytest.raises(ConfigError, match="use 3 or more"):
        PeerRules(agents=2)


def test_edges_that_make_sense_are_accepted() -> None:
    rules = PeerRules(
        agents=3,
        rounds=1,
        sections=("solution", "comparison"),
        history_rounds=0,
        max_chars_per_field=1,
        max_tokens=1,
        temperature=0.0,
        personas=(),
        format_penalty=0.0,
        stop=(256, 10),
    )
    assert rules.protocol().rounds == 1


def test_rules_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        PeerRules().agents = 4  # type: ignore[misc]


@pytest.mark.parametrize(
    ("rules", "about", "fix"),
    [
        (peer_v2(agents=3), "no judge signal", "use 5 or more agents"),
        (peer_v2(agents=3, consensus="majority"), "always +1", "consensus = leave_one_out"),
        (peer_v2(agents=4, consensus="majority"), "only be +1 or 0", "consensus = leave_one_out"),
        (peer_v2(agents=5, consensus="majority"), "own vote", "consensus = leave_one_out"),
        (peer_v2(closing_ballot=False), "last round", "turn closing_ballot on"),
        (peer_v2(history_rounds=0), "cannot vote", "use -1 or 1"),
    ],
    ids=["one judge", "majority of 3", "majority of 4", "majority of 5", "no ballot", "no history"],
)
def test_a_disappointing_setting_is_warned_about_in_one_sentence(
    rules: PeerRules, about: str, fix: str
) -> None:
    (warning,) = rules.warnings()
    assert about in warning
    assert fix in warning
    assert warning.endswith(".")
    assert warning.count(". ") == 0


@pytest.mark.parametrize(
    "rules",
    [
        peer_v1(),
        peer_v1(agents=3, consensus="majority"),
        peer_v2(),
        peer_v2(agents=4),
        peer_v2(schedule="sequential", closing_ballot=False),
        peer_v2(history_rounds=1),
    ],
    ids=["v1", "scalar reward", "v2", "two judges", "sequential", "window"],
)
def test_a_sound_setting_is_not_warned_about(rules: PeerRules) -> None:
    assert rules.warnings() == []


def test_every_disappointment_has_its_own_warning() -> None:
    rules = peer_v2(agents=3, closing_ballot=False, history_rounds=0)
    assert len(rules.warnings()) == 3


def test_simultaneous_rounds_are_one_slot_each_and_a_ballot() -> None:
    protocol = peer_v2(agents=4, rounds=2).protocol()
    assert [(s.round, s.seats, s.kind) for s in protocol.slots] == [
        (0, (0, 1, 2, 3), "speak"),
        (1, (0, 1, 2, 3), "speak"),
        (2, (0, 1, 2, 3), "ballot"),
    ]
    assert protocol.slots[-1].sections == ("evaluation", "comparison")
    assert (protocol.rounds, protocol.agents) == (2, 4)


def test_sequential_rounds_are_one_slot_for_each_agent_in_order() -> None:
    protocol = peer_v1(agents=3, rounds=2).protocol()
    assert [(s.round, s.seats) for s in protocol.slots] == [
        (0, (0,)),
        (0, (1,)),
        (0, (2,)),
        (1, (0,)),
        (1, (1,)),
        (1, (2,)),
    ]
    assert {s.kind for s in protocol.slots} == {"speak"}


def test_a_ballot_of_rules_without_evaluation_only_compares() -> None:
    protocol = peer_v2(sections=("solution", "comparison")).protocol()
    assert protocol.slots[-1].sections == ("comparison",)


def test_a_turn_stops_at_the_closing_tag_of_its_last_section() -> None:
    assert {s.stop for s in peer_v1().protocol().slots} == {("</consensus_reason>",)}
    assert {s.stop for s in peer_v2().protocol().slots} == {("</comparison>",)}
    *rounds, ballot = peer_v1(closing_ballot=True).protocol().slots
    assert {s.stop for s in rounds} == {("</consensus_reason>",)}
    assert ballot.stop == ("</comparison>",)


@pytest.mark.parametrize("stop", [("STOP",), (256,), ()], ids=str)
def test_stops_that_are_given_replace_the_closing_tag(stop: Any) -> None:
    assert {s.stop for s in peer_v2(stop=stop).protocol().slots} == {stop}


def test_votes_are_shown_in_v1_and_hidden_in_v2() -> None:
    assert all("comparison" in s.shows for s in peer_v1().protocol().slots)
    assert not any("comparison" in s.shows for s in peer_v2().protocol().slots)
    assert peer_v2().protocol().slots[0].shows == ("solution", "evaluation")


def test_personas_come_round_again_with_their_temperatures() -> None:
    seats = peer_v2(agents=7).protocol().seats
    assert [s.persona for s in seats] == [*PERSONAS, PERSONAS[0], PERSONAS[1]]
    assert [s.temperature for s in seats] == [0.6, 1.0, 0.9, 1.0, 0.8, 0.6, 1.0]


def test_agents_without_a_persona_have_the_common_temperature() -> None:
    seats = peer_v1(temperature=0.7).protocol().seats
    assert {(s.persona, s.temperature) for s in seats} == {(None, 0.7)}


def test_the_persona_is_in_the_system_message_and_only_there_where_there_is_one() -> None:
    system = begin(peer_v2()).view(2).messages[0]
    assert system.role == "system"
    assert "Devil's Advocate" in system.text
    assert PERSONAS[2].style in system.text
    assert "character" not in begin(peer_v1()).view(0).messages[0].text


def test_the_token_limit_holds_for_every_slot() -> None:
    assert {s.max_tokens for s in peer_v2(max_tokens=77).protocol().slots} == {77}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"rouns": 3}, "rouns: unknown key, did you mean rounds?"),
        ({"rounds": "3"}, "rounds = '3': must be a whole number"),
        ({"rounds": True}, "rounds = True: must be a whole number"),
        ({"agents": 3.5}, "agents = 3.5: must be a whole number"),
        ({"closing_ballot": "no"}, "closing_ballot = 'no': must be true or false"),
        ({"temperature": "hot"}, "temperature = 'hot': must be a number"),
        ({"personas": ("x",)}, "personas: each has a name"),
        ({"personas": [Persona("a", "b")]}, "personas = .*: must be a list"),
        ({"stop": "</x>"}, "stop = '</x>': give a list"),
        ({"stop": (None,)}, "use strings or token ids"),
        ({"schedule": "simultanous"}, "did you mean simultaneous?"),
    ],
)
def test_a_setting_of_the_wrong_kind_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        peer_v2(**changes)


def test_a_stop_before_the_last_section_is_warned_about() -> None:
    [warning] = peer_v2(stop=("</solution>",)).warnings()
    assert warning.startswith("stop holds </solution>, which cuts every reply off")
    assert peer_v2(stop=("</comparison>",)).warnings() == []
    assert peer_v2(stop=(7,)).warnings() == []


def test_the_opening_is_the_first_slot_alone_and_nothing_ends_it_early() -> None:
    rules = peer_v1(agents=4, stop_on_agreement=0.5, temperature=0.7)
    opening = rules.opening()
    assert [(slot.round, slot.seats) for slot in opening.slots] == [(0, (0,))]
    assert (opening.ends_on_consensus, opening.ends_on_agreement) == (False, 0)
    assert opening.malformed == "mask"
    assert {seat.temperature for seat in opening.seats} == {0.7}
    assert {seat.temperature for seat in peer_v2().opening(0.0).seats} == {0.0}
    assert peer_v2(agents=4).opening().slots[0].seats == (0, 1, 2, 3)
