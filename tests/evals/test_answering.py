"""Answers by debate: who is counted, when a debate stops or grows, and what it costs."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rostra
from rostra.arena import Heard
from rostra.debate.peer import PeerRules, peer_v1, peer_v2
from rostra.debate.state import State
from rostra.debate.views import View
from rostra.engines.scripted import ScriptedEngine
from rostra.errors import ArenaError, ConfigError, DataError, EngineError, EngineUnavailable
from rostra.evals.answering import (
    Answer,
    answer,
    answer_async,
    answer_many,
    open_model,
    plan,
    read_answer,
    undecided,
)
from rostra.players.model import ModelPlayer
from rostra.players.player import Player, Reply
from rostra.players.rehearsal import rehearsal
from rostra.players.scripted import ScriptedPlayer
from rostra.runs.transcripts import from_data, to_data
from rostra.tasks.question import Question
from tests.playing import MALFORMED, play_peer, wrap

Says = Callable[[int, int, int], str | None]
"""The answer of a seat in a round of a debate with so many agents; None is a malformed reply."""
Votes = Callable[[int], str]
"""The comparisons of a seat in a ballot."""

PLAIN = PeerRules(agents=5, rounds=2, closing_ballot=False)


def speaker(says: Says, votes: Votes = lambda seat: "N/A") -> ScriptedPlayer:
    def line(state: State, view: View) -> str:
        slot = state.protocol.slots[view.slot]
        if slot.kind == "ballot":
            return wrap(slot.sections, comparison=votes(view.seat))
        said = says(view.seat, slot.round, state.protocol.agents)
        return MALFORMED if said is None else wrap(slot.sections, solution=f"\\boxed{{{said}}}")

    return ScriptedPlayer(line)


def rows(*table: str) -> Says:
    """Answers of one letter each, a row for every round; a dot is a malformed reply."""
    return lambda seat, round_, agents: (
        None if (said := table[min(round_, len(table) - 1)][seat]) == "." else said
    )


def by_size(table: Mapping[int, str]) -> Says:
    """Answers by how many agents the debate has."""
    return lambda seat, round_, agents: table[agents][seat]


def asked(says: Says, rules: PeerRules | None = PLAIN, **more: Any) -> Answer:
    return answer("Which letter?", model=speaker(says), rules=rules, **more)


def turns(found: Answer) -> list[int]:
    return [len(t.turns) for t in found.transcripts]


def test_agreement_at_once_costs_one_turn_for_each_agent() -> None:
    found = asked(rows("aaaaa"))
    assert (found.answer, found.agreement, found.how) == ("a", 1.0, "plurality")
    assert (found.ended, found.rounds, found.agents) == ("agreement", 1, 5)
    assert turns(found) == [5]
    assert found.tokens == sum(len(turn.tokens) for turn in found.transcripts[0].turns) > 5


def test_disagreement_is_debated_to_the_last_round() -> None:
    found = asked(rows("aaaab", "aaabb"))
    assert (found.answer, found.agreement) == ("a", 0.6)
    assert (found.ended, found.rounds) == ("rounds", 2)
    assert turns(found) == [10]


def test_the_share_that_stops_a_debate_is_that_of_the_rules_or_of_the_call() -> None:
    four = rows("aaaab")
    assert asked(four, replace(PLAIN, stop_on_agreement=0.8)).rounds == 1
    assert asked(four, stop_on_agreement=0.8).rounds == 1
    assert asked(four, replace(PLAIN, stop_on_agreement=0.8), stop_on_agreement=1.0).rounds == 2
    assert asked(rows("aaaaa"), stop_on_agreement=0.0).rounds == 2


def test_a_debate_without_rules_has_a_ballot_only_where_votes_choose() -> None:
    split = rows("aaaab")
    plain = asked(split, None)
    assert (plain.agents, plain.rounds, turns(plain)) == (5, 3, [15])
    assert turns(asked(split, None, choose="votes")) == [20]


def test_rules_with_a_ballot_keep_it_and_rules_without_get_one_where_votes_need_it() -> None:
    split = rows("aaaab")
    assert turns(asked(split, replace(PLAIN, closing_ballot=True))) == [15]
    assert turns(asked(split, PLAIN, choose="votes")) == [15]
    in_turn = replace(PLAIN, schedule="sequential")
    assert turns(asked(split, in_turn, choose="votes")) == [10]


def test_the_most_common_answer_wins_and_a_tie_goes_to_the_lower_seat() -> None:
    assert asked(rows("baacb")).answer == "b"
    assert asked(rows("cabba")).answer == "a"
    assert asked(rows("edcba")).answer == "e"


def test_answers_that_are_the_same_number_are_counted_together() -> None:
    said = ["8", "7.0", "7", "+7", "8"]
    found = answer("?", model=speaker(lambda seat, r, n: said[seat]), rules=PLAIN)
    assert (found.answer, found.agreement) == ("7.0", 0.6), "as the first of them wrote it"


def test_malformed_replies_are_seats_without_an_answer() -> None:
    found = asked(rows("a...b"))
    assert (found.answer, found.agreement, found.agents) == ("a", 0.2, 5)
    assert asked(rows(".....")).answer is None
    assert asked(rows(".....")).agreement == 0


def test_a_reply_without_an_answer_takes_nothing_back() -> None:
    found = asked(rows("aabbb", "....a"))
    assert (found.answer, found.agreement, found.ended) == ("a", 0.6, "rounds")


def test_an_abandoned_answer_is_not_counted() -> None:
    assert asked(rows("aaabb", "aabbb")).answer == "b"


def test_a_debate_that_was_aborted_answers_with_what_was_said() -> None:
    rules = peer_v1(agents=3, rounds=2)
    found = asked(lambda seat, round_, n: None if (seat, round_) == (1, 1) else "abb"[seat], rules)
    assert (found.answer, found.ended, found.rounds) == ("b", "malformed", 1)


def test_adaptive_rounds_go_on_until_agents_agree() -> None:
    found = asked(rows("aaaab", "aaaab", "aaaab", "aaaaa"), adaptive=True)
    assert (found.answer, found.ended, found.rounds, found.agents) == ("a", "agreement", 4, 5)
    assert turns(found) == [20], "one debate, not two"


def test_adaptive_rounds_are_at_most_twice_those_of_the_rules_or_as_many_as_said() -> None:
    never = rows("aaaab")
    assert asked(never, adaptive=True).rounds == 4
    assert asked(never, adaptive=True, max_rounds=3).rounds == 3
    assert asked(never, adaptive=True, max_rounds=2).rounds == 2


def test_every_prompt_of_an_adaptive_debate_extends_the_one_before() -> None:
    """So that what was computed for a round is used in those after it."""
    (transcript,) = asked(rows("aaaab"), adaptive=True).transcripts
    for own in transcript.by_seat():
        assert [turn.extends for turn in own] == [None, *[turn.id for turn in own[:-1]]]


def test_seats_are_added_only_where_no_answer_has_more_than_half() -> None:
    decided = asked(rows("aaabc"), adaptive=True, max_rounds=2)
    assert (decided.agents, len(decided.transcripts)) == (5, 1)
    split = {5: "aabbc", 7: "ababbbb", 9: "aaaaaaaaa"}
    found = asked(by_size(split), adaptive=True, max_rounds=2)
    assert (found.answer, found.agents, len(found.transcripts)) == ("b", 12, 2)
    assert found.agreement == pytest.approx(7 / 12)
    assert found.rounds == 4
    assert turns(found) == [10, 14]
    assert found.tokens == sum(len(t.tokens) for d in found.transcripts for t in d.turns)


def test_exactly_half_is_not_decided() -> None:
    half = replace(PLAIN, agents=4)
    table = {4: "aabc", 6: "aaaaab", 7: "aaaaaaa"}
    found = asked(by_size(table), half, adaptive=True, max_rounds=2)
    assert [t.protocol.agents for t in found.transcripts] == [4, 6]
    assert asked(by_size({4: "aaab"}), half, adaptive=True).agents == 4


@pytest.mark.parametrize(
    ("most", "sizes"), [(None, [5, 7, 9]), (5, [5]), (6, [5, 6]), (8, [5, 7, 8]), (7, [5, 7])]
)
def test_seats_grow_by_two_up_to_a_bound(most: int | None, sizes: list[int]) -> None:
    letters: Says = lambda seat, round_, agents: f"{agents}.{seat}5"  # noqa: E731
    found = asked(letters, adaptive=True, max_rounds=2, max_agents=most)
    assert [t.protocol.agents for t in found.transcripts] == sizes
    assert found.agents == sum(sizes)
    assert found.agreement == pytest.approx(1 / sum(sizes))


def test_an_agreement_of_the_added_seats_ends_the_search() -> None:
    found = asked(by_size({5: "abcde", 7: "fffffff"}), adaptive=True, max_rounds=2)
    assert (found.answer, found.agents, found.ended) == ("f", 12, "agreement")
    assert [t.outcome.rounds for t in found.transcripts] == [2, 1]


def test_a_low_share_that_was_reached_adds_no_seats() -> None:
    found = asked(rows("aabcdefgh"), adaptive=True, stop_on_agreement=0.4)
    assert (found.answer, found.ended, found.agents) == ("a", "agreement", 5)


def test_without_adaptive_nothing_grows() -> None:
    found = asked(rows("abcde"))
    assert (found.agents, found.rounds, len(found.transcripts)) == (5, 2, 1)


def prefers(*pairs: str) -> Votes:
    """Every seat votes as told, where it is no side."""
    return lambda seat: "\n".join(
        f"Agent {a} > Agent {b}" for a, b in pairs if str(seat) not in (a, b)
    )


ONE = PeerRules(agents=5, rounds=1, closing_ballot=False)


def voted(letters: str, *pairs: str, **more: Any) -> Answer:
    model = speaker(rows(letters), prefers(*pairs))
    return answer("?", model=model, rules=ONE, choose="votes", **more)


def test_votes_beat_a_wrong_plurality() -> None:
    found = voted("aaabb", "30", "31", "32", "40", "41", "42")
    assert (found.answer, found.agreement, found.how) == ("b", 0.4, "votes")
    assert read_answer(found.transcripts).answer == "a"


def test_an_answer_earns_the_mean_of_the_turns_that_give_it() -> None:
    """Seat 0 is always preferred and seat 1 never; together they are worth as much as seat 2, which
    wins once and loses once, and the tie goes to the more common answer."""
    found = voted("bbacd", "02", "21")
    assert (found.answer, found.how) == ("b", "votes")
    assert voted("bacde", "02", "21").answer == "b", "alone, the one always preferred"
    assert voted("abcde", "10").answer == "b"


def test_an_answer_that_is_given_often_earns_no_more_for_that() -> None:
    """Seats 0 and 1 earn a third each with the same answer, seat 2 a half with its own."""
    lines = {
        0: "Agent 2 > Agent 3\nAgent 1 > Agent 3",
        1: "Agent 2 > Agent 3\nAgent 0 > Agent 2\nAgent 0 > Agent 3",
        2: "Agent 1 > Agent 3",
        4: "Agent 2 > Agent 3\nAgent 3 > Agent 0\nAgent 3 > Agent 1",
    }
    model = speaker(rows("bbacd"), lambda seat: lines.get(seat, "N/A"))
    found = answer("?", model=model, rules=ONE, choose="votes")
    assert (found.answer, found.how) == ("a", "votes")


def test_a_tie_by_votes_and_by_number_goes_to_the_lower_seat() -> None:
    everybody_equal: Votes = lambda seat: "\n".join(  # noqa: E731
        f"Agent {a} = Agent {b}" for a in range(5) for b in range(a) if seat not in (a, b)
    )
    model = speaker(rows("cbaba"), everybody_equal)
    found = answer("?", model=model, rules=ONE, choose="votes")
    assert (found.answer, found.how) == ("b", "votes")


def test_without_votes_plurality_chooses_and_says_so() -> None:
    found = voted("aaabb")
    assert (found.answer, found.how) == ("a", "plurality: no votes")
    early = voted("aaaaa", "01")
    assert (early.ended, early.how) == ("agreement", "plurality: no votes")
    assert voted(".....", "01").how == "plurality: no votes"


def test_votes_on_answers_that_nobody_holds_any_more_choose_nothing() -> None:
    def line(state: State, view: View) -> str:
        slot = state.protocol.slots[view.slot]
        said = "abcde"[view.seat] if slot.round == 0 else "xxyyz"[view.seat]
        first = slot.round == 1 and view.seat > 1
        return wrap(
            slot.sections,
            solution=f"\\boxed{{{said}}}",
            comparison="Agent 0 > Agent 1" if first else "N/A",
        )

    found = answer("?", model=ScriptedPlayer(line), rules=PLAIN, choose="votes")
    assert found.transcripts[0].votes
    assert (found.answer, found.how) == ("x", "plurality: no votes")


def test_votes_of_all_debates_count() -> None:
    """Alone, the first debate prefers a and the second b; together both are worth nothing, and c
    is worth a half in each."""
    lines = {0: "Agent 2 > Agent 1", 1: "Agent 0 > Agent 2"}
    lines |= {3: lines[0], 4: lines[0]}
    says = by_size({5: "abcde", 7: "bacdefg"})
    model = speaker(says, lambda seat: lines.get(seat, "N/A"))
    found = answer(
        "?", model=model, rules=ONE, choose="votes", adaptive=True, max_rounds=1, max_agents=7
    )
    assert [read_answer([t], "votes").answer for t in found.transcripts] == ["a", "b"]
    assert (found.answer, found.how, found.agents) == ("c", "votes", 12)
    assert found.agreement == pytest.approx(2 / 12)


class Failing:
    """Speaks as another player, and fails where it is told to."""

    def __init__(
        self, player: Player, fails: Callable[[State, View], bool], error: Exception | None = None
    ) -> None:
        self._player = player
        self._fails = fails
        self._error = error or EngineError("no reply")
        self.failed = 0

    async def speak(self, state: State, view: View) -> Reply:
        if self._fails(state, view):
            self.failed += 1
            raise self._error
        return await self._player.speak(state, view)


def test_a_seat_that_fails_once_is_asked_again() -> None:
    player = Failing(speaker(rows("aaaaa")), lambda s, v: v.seat == 2 and player.failed == 0)
    found = answer("?", model=player, rules=PLAIN)
    assert (found.answer, player.failed) == ("a", 1)


def test_a_debate_that_keeps_failing_is_an_error_that_names_the_cause() -> None:
    player = Failing(speaker(rows("aaaaa")), lambda s, v: v.seat == 2)
    with pytest.raises(ArenaError, match="EngineError: no reply"):
        answer("?", model=player, rules=PLAIN)
    assert player.failed == 3


def test_added_seats_that_fail_leave_the_answer_that_was_there_and_are_told_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    player = Failing(speaker(rows("aabbc")), lambda s, v: s.protocol.agents > 5)
    found = answer("?", model=player, rules=PLAIN, adaptive=True)
    assert (found.answer, found.agents, found.ended) == ("a", 5, "rounds")
    assert player.failed > 0
    assert "answers of fewer seats stand" in caplog.text
    assert "EngineError: no reply" in caplog.text


def test_of_many_questions_only_those_whose_added_seats_failed_keep_their_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = {"one": "aabbc", "two": "bbccd"}
    player = Failing(
        by_question(table), lambda s, v: s.protocol.agents > 5 and s.question.prompt == "one"
    )
    first, second = many(list(table), player, adaptive=True, max_agents=7)
    assert (first.agents, second.agents) == (5, 12)
    assert "some added seats failed, so answers of fewer stand: no reply" in caplog.text


def test_an_engine_that_is_gone_ends_everything() -> None:
    gone = EngineUnavailable("the server is gone")
    player = Failing(speaker(rows("aabbc")), lambda s, v: s.protocol.agents > 5, gone)
    with pytest.raises(EngineUnavailable, match="the server is gone"):
        answer("?", model=player, rules=PLAIN, adaptive=True)


def many(questions: Sequence[str | Question], player: Player, **more: Any) -> list[Answer]:
    found: list[Answer] = []

    async def main() -> None:
        found.extend(await answer_many(questions, player, PLAIN, **more))

    asyncio.run(main())
    return found


def by_question(table: Mapping[str, str]) -> ScriptedPlayer:
    return ScriptedPlayer(
        lambda state, view: wrap(
            state.protocol.slots[view.slot].sections,
            solution=f"\\boxed{{{table[state.question.prompt][view.seat % 5]}}}",
        )
    )


def test_many_questions_are_answered_in_their_order_and_only_hard_ones_grow() -> None:
    table = {"easy": "aaaaa", "hard": "abcde", "middling": "bbbaa"}
    found = many(list(table), by_question(table), adaptive=True)
    assert [f.answer for f in found] == ["a", "a", "b"]
    assert [f.rounds for f in found] == [1, 12, 4]
    assert [f.agents for f in found] == [5, 21, 5]
    assert many([], by_question(table)) == []


def test_a_question_that_fails_has_no_answer_and_does_not_disturb_the_others() -> None:
    table = {"one": "aaaaa", "two": "bbbbb", "three": "ccccc"}
    player = Failing(by_question(table), lambda s, v: s.question.prompt == "two")
    first, second, third = many(list(table), player)
    assert (first.answer, third.answer) == ("a", "c")
    assert second == Answer(None, 0.0, "failed", "failed", 0, 0, 0, ())
    with pytest.raises(ArenaError, match="none of 1 debates"):
        many(["two"], player)


def rehearsed(
    questions: Sequence[str], seed: int, rules: PeerRules = PLAIN, **more: Any
) -> list[Any]:
    """What a rehearsal answers, with everything it said."""
    found: list[Answer] = []

    async def main() -> None:
        engine = ScriptedEngine(rehearsal(fault=0.1))
        player = ModelPlayer(await engine.sampler(), engine.chat)
        found.extend(await answer_many(questions, player, rules, seed=seed, **more))

    asyncio.run(main())
    return [(f, [turn.text for t in f.transcripts for turn in t.turns]) for f in found]


def test_answers_depend_on_question_and_seed_and_not_on_company() -> None:
    questions = [f"What is {i} * 24?" for i in range(8)]
    options = {"adaptive": True, "choose": "votes"}
    together = rehearsed(questions, 3, **options)
    assert [text for _, text in rehearsed(questions[::-1], 3, **options)][::-1] == [
        text for _, text in together
    ]
    assert rehearsed(questions[4:5], 3, **options)[0][1] == together[4][1]
    assert rehearsed(questions, 4, **options)[0][1] != together[0][1]
    seeds = {t.seed for found, _ in together for t in found.transcripts}
    assert len(seeds) == sum(len(found.transcripts) for found, _ in together)


def test_one_question_is_played_with_the_seed_that_was_given() -> None:
    found = asked(rows("abcdefghi"), seed=11, adaptive=True)
    first, *others = [t.seed for t in found.transcripts]
    assert first == 11
    assert len({first, *others}) == 3


@settings(max_examples=60, deadline=None)
@given(
    said=st.lists(st.lists(st.sampled_from("ab7."), min_size=5, max_size=5), min_size=1, max_size=3)
)
def test_an_answer_is_one_that_a_seat_gave_and_its_share_is_counted(said: list[list[str]]) -> None:
    table = ["".join(row) for row in said]
    found = asked(rows(*table), replace(PLAIN, rounds=len(table)))
    last: list[str] = []
    for seat in range(5):
        own = [row[seat] for row in table[: found.rounds] if row[seat] != "."]
        last += own[-1:]
    if not last:
        assert (found.answer, found.agreement) == (None, 0)
        return
    assert found.answer in last
    assert found.agreement == pytest.approx(max(map(last.count, last)) / 5)
    assert found.agreement == pytest.approx(last.count(found.answer) / 5)
    assert undecided(found.transcripts) == (found.ended != "agreement" and found.agreement <= 0.5)


@settings(max_examples=60, deadline=None)
@given(letters=st.text("abc", min_size=5, max_size=5), seed=st.integers(0, 9))
def test_votes_choose_among_the_answers_that_seats_hold(letters: str, seed: int) -> None:
    pairs = [f"{(seed + i) % 5}{(seed + 2 * i + 1) % 5}" for i in range(1, 5)]
    found = voted(letters, *[pair for pair in pairs if pair[0] != pair[1]])
    assert found.answer is not None and found.answer in letters
    assert found.agreement == pytest.approx(letters.count(found.answer) / 5)
    assert found.how == ("votes" if found.transcripts[0].votes else "plurality: no votes")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"choose": "vote"}, "choose = 'vote': must be plurality or votes, did you mean votes?"),
        ({"max_rounds": 4}, "max_rounds = 4: only an adaptive debate grows"),
        ({"max_agents": 9}, "max_agents = 9: only an adaptive debate grows"),
        ({"adaptive": True, "max_rounds": 1}, "max_rounds = 1: a debate begins with rounds = 2"),
        ({"adaptive": True, "max_agents": 4}, "max_agents = 4: a debate begins with agents = 5"),
        ({"adaptive": True, "max_agents": 10**9}, "max_agents = 1000000000: must be at most 100"),
        ({"adaptive": True, "max_rounds": 10**9}, "max_rounds = 1000000000: must be at most 1,000"),
        ({"adaptive": True, "stop_on_agreement": 0.0}, "give a share above 0"),
        ({"stop_on_agreement": 1.5}, "stop_on_agreement = 1.5: a share"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        plan(PLAIN, **options)


def test_an_empty_question_and_a_model_that_is_none_are_refused() -> None:
    with pytest.raises(DataError, match="is empty"):
        answer("  ", model=speaker(rows("aaaaa")))
    with pytest.raises(ConfigError, match="the name of a model, an engine or a player"):
        answer("?", model=7)  # type: ignore[arg-type]


def test_where_an_event_loop_runs_the_other_call_is_named() -> None:
    async def main() -> Answer:
        with pytest.raises(ConfigError, match="await rostra.answer_async"):
            answer("?", model=speaker(rows("aaaaa")))
        return await answer_async("?", speaker(rows("aaaaa")), PLAIN)

    assert asyncio.run(main()).answer == "a"


def test_the_three_lines_of_the_guide_work_with_any_engine() -> None:
    found = rostra.answer("What is 17 * 24?", model=ScriptedEngine(rehearsal(right=1.0)))
    assert (found.answer, found.agreement) == ("408", 1.0)
    assert "transcripts" not in repr(found)


def test_whoever_watches_hears_every_turn_of_every_debate() -> None:
    heard: list[Heard] = []

    async def main() -> Answer:
        return await answer_async(
            "?", speaker(rows("abcdefghi")), PLAIN, adaptive=True, watch=heard.append
        )

    found = asyncio.run(main())
    assert [len(event.state.protocol.seats) for event in heard] == [5] * 20 + [7] * 28 + [9] * 36
    assert turns(found) == [20, 28, 36]


def old(data: dict[str, Any]) -> dict[str, Any]:
    """A transcript as it was written before debates could stop on agreement."""
    if data["rules"]:
        del data["rules"]["stop_on_agreement"]
    if data["protocol"]:
        del data["protocol"]["ends_on_agreement"]
    return json.loads(json.dumps(data))  # type: ignore[no-any-return]


@pytest.mark.parametrize("rules", [peer_v1(agents=3), peer_v2(agents=3, rounds=1)], ids=str)
def test_transcripts_that_were_written_before_are_read_as_before(rules: PeerRules) -> None:
    transcript = play_peer(rules)
    for written in (transcript, replace(transcript, rules=None)):
        again = from_data(old(to_data(written)))
        assert again.outcome == transcript.outcome
        assert again.protocol == transcript.protocol
        assert again.rules == written.rules


def test_a_debate_that_ended_by_agreement_is_stored_and_read() -> None:
    (transcript,) = asked(rows("aaaaa"), adaptive=True).transcripts
    again = from_data(json.loads(json.dumps(to_data(transcript))))
    assert again.outcome == transcript.outcome
    assert again.outcome.ended == "agreement"
    assert again.rules == transcript.rules
    claimed = json.loads(json.dumps(to_data(transcript)))
    claimed["rules"]["stop_on_agreement"] = 0.0
    with pytest.raises(DataError, match="not over"):
        from_data(claimed)


@pytest.fixture(scope="module")
def sums() -> Any:
    """The tiny model that comes with Rostra: it adds, makes mistakes, and judges well."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from rostra.runs.recipe import find_recipe

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    engine = open_model(str(find_recipe("peer-v2-sums").parent / "weights" / "sums"))
    yield engine
    engine.close()  # type: ignore[attr-defined]
    torch.set_num_threads(threads)


def sums_answers(engine: Any, count: int, **options: Any) -> tuple[list[Question], list[Answer]]:
    from rostra.learn.setup import make_task
    from rostra.runs.recipe import find_recipe, read_recipe

    recipe = read_recipe(find_recipe("peer-v2-sums"))
    questions = list(make_task(recipe.task).fresh(0, count))
    rules = replace(recipe.protocol, closing_ballot=False)
    found: list[Answer] = []

    async def main() -> None:
        found.extend(await answer_many(questions, engine, rules, **options))

    asyncio.run(main())
    return questions, found


def test_a_real_model_debates_hard_questions_longer_than_easy_ones(sums: Any) -> None:
    _, found = sums_answers(sums, 40, adaptive=True)
    easy = [f for f in found if f.transcripts[0].outcome.rounds == 1]
    hard = [f for f in found if f.transcripts[0].outcome.rounds > 1]
    assert len(easy) >= 4
    assert len(hard) >= 10
    assert {(f.ended, f.rounds, f.agents, f.agreement) for f in easy} == {("agreement", 1, 5, 1.0)}
    assert min(f.rounds for f in hard) == 2
    assert any(f.agents > 5 for f in hard), "some had no answer with more than half of the seats"
    assert all((f.agents > 5) == undecided(f.transcripts[:1]) for f in found)

    def cost(group: list[Answer]) -> float:
        return sum(f.tokens for f in group) / len(group)

    assert cost(hard) > 2 * cost(easy)


def test_votes_of_a_real_model_choose_better_than_plurality(sums: Any) -> None:
    questions, found = sums_answers(sums, 60, choose="votes")
    plain = [read_answer(f.transcripts) for f in found]
    right = sum(f.answer == q.reference for q, f in zip(questions, found, strict=True))
    common = sum(f.answer == q.reference for q, f in zip(questions, plain, strict=True))
    assert sum(f.how == "votes" for f in found) >= 30
    assert right >= common + 4, (right, common)


async def words(model: Any) -> list[str]:
    """What a model says in a short debate."""
    rules = PeerRules(agents=3, rounds=1, max_tokens=8, closing_ballot=False)
    found = await answer_async("?", model, rules)
    return [turn.text for t in found.transcripts for turn in t.turns]


def test_a_run_is_a_model_with_its_adapter_and_so_is_its_checkpoint(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("peft")
    from rostra.engines.local.engine import LocalEngine
    from rostra.engines.local.lora import Lora

    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "config.toml").write_text('[model]\nname = "toy"\nlora_rank = 4\n')
    with pytest.raises(ConfigError, match="holds no weights"):
        open_model(str(run))

    trained = LocalEngine("toy", lora=Lora(4, 8.0), folder=run / "checkpoints")
    with torch.no_grad():
        for name, part in trained.peft.named_parameters():
            if "lora_B" in name:
                part.fill_(0.3)

    async def save() -> None:
        await (await trained.trainer()).save("weights-000003")

    asyncio.run(save())
    trained.close()
    (run / "checkpoints" / "step-000003.json").write_text('{"step": 3}')

    said = []
    for name in (run, run / "checkpoints" / "weights-000003"):
        engine: Any = open_model(str(name))

        async def both(engine: Any = engine) -> tuple[list[str], list[str]]:
            base = ModelPlayer(await engine.sampler(), engine.chat)
            return await words(engine), await words(base)

        adapted, base = asyncio.run(both())
        assert adapted != base
        said.append(adapted)
        engine.close()
    assert said[0] == said[1]


def test_a_run_with_all_weights_trained_is_a_model(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from rostra.engines.local.engine import LocalEngine

    run = tmp_path / "run"
    run.mkdir()
    (run / "config.toml").write_text('[model]\nname = "toy"\nlora_rank = 0\n')
    trained = LocalEngine("toy", folder=run / "checkpoints", seed=5)

    async def save() -> list[str]:
        await (await trained.trainer()).save("weights-000002")
        return await words(trained)

    expected = asyncio.run(save())
    trained.close()
    (run / "checkpoints" / "step-000002.json").write_text('{"step": 2}')
    engine: Any = open_model(str(run))
    assert asyncio.run(words(engine)) == expected
    assert asyncio.run(words("toy")) != expected
    engine.close()


def test_an_adapter_trained_on_the_weights_of_another_run_is_put_on_those(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("peft")
    from rostra.engines.local.engine import LocalEngine
    from rostra.engines.local.lora import Lora

    base, run = tmp_path / "base", tmp_path / "run"
    for folder, start in ((base, ""), (run, str(base))):
        (folder / "checkpoints").mkdir(parents=True)
        (folder / "config.toml").write_text(f'[model]\nname = "toy"\nstart = "{start}"\n')
        (folder / "checkpoints" / "step-000001.json").write_text('{"step": 1}')

    async def save(engine: Any) -> list[str]:
        await (await engine.trainer()).save("weights-000001")
        return await words(engine)

    whole = LocalEngine("toy", folder=base / "checkpoints", seed=5)
    expected = asyncio.run(save(whole))
    whole.close()
    weights = str(base / "checkpoints" / "weights-000001")
    adapted = LocalEngine(weights, lora=Lora(4, 8.0), folder=run / "checkpoints")
    assert asyncio.run(save(adapted)) == expected, "a new adapter changes nothing"
    adapted.close()
    engine: Any = open_model(str(run))
    assert engine.peft is not None
    assert asyncio.run(words(engine)) == expected
    engine.close()


def test_large_debates_grow_to_what_a_debate_may_be_at_the_most() -> None:
    planned = plan(PeerRules(agents=60, rounds=600), adaptive=True)
    assert (planned.rules.rounds, planned.stages()[-1].agents) == (1000, 100)
