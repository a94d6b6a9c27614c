"""The teacher of the word problems: knows the answers, and is as careless as it is told."""

import re
from itertools import combinations

import pytest

from rostra.arena import Debate
from rostra.debate.peer import PeerRules, peer_v1, peer_v2
from rostra.debate.transcript import Transcript
from rostra.debate.turn import Turn
from rostra.engines.bytechat import ByteChat
from rostra.players.shop import ShopTeacher
from rostra.players.spoken import SpokenPlayer
from rostra.players.sums import Carelessness
from rostra.tasks.grading import boxed
from rostra.tasks.question import Question
from rostra.tasks.shop import shop
from tests.playing import played

V2 = peer_v2(agents=4, rounds=2)
V1 = peer_v1(agents=4, rounds=2)
MINE = re.compile(r"^I get (-?\d+)\. ")


def debates(
    careless: Carelessness, rules: PeerRules = V2, count: int = 40, about: Question | None = None
) -> list[Transcript]:
    questions = [about] * count if about else shop().draw(0, 0, count)
    player = SpokenPlayer(ShopTeacher(careless), ByteChat())
    return [played(Debate.peer(q, rules, seed), player) for seed, q in enumerate(questions)]


def answers(transcript: Transcript) -> dict[Turn, str | None]:
    return {
        turn: boxed(turn.section("solution"))
        for turn in transcript.turns
        if turn.ok and transcript.kind(turn) == "speak"
    }


def share(marks: list[bool]) -> float:
    assert len(marks) > 150
    return sum(marks) / len(marks)


@pytest.mark.parametrize("rules", [V1, V2], ids=["v1", "v2"])
def test_a_careful_teacher_is_well_formed_and_right(rules: PeerRules) -> None:
    task = shop()
    for debate in debates(Carelessness(), rules, 20):
        assert all(turn.ok for turn in debate.turns)
        spoken = [turn for turn in debate.turns if debate.kind(turn) == "speak"]
        assert spoken
        assert all(task.right(debate.question, turn.section("solution")) for turn in spoken)
        assert debate.votes
        assert {vote.op for vote in debate.votes} == {"="}


def test_all_who_agree_end_a_debate_by_consensus_and_one_who_slips_keeps_it_open() -> None:
    assert {d.outcome.ended for d in debates(Carelessness(), V1, 5)} == {"consensus"}
    for debate in debates(Carelessness(slips=0.4), V1, 15):
        said = {turn.id: answer for turn, answer in answers(debate).items()}
        for turn in debate.turns:
            peers = {said[name] for name in turn.names.values()}
            assert turn.parsed.consensus == (peers <= {debate.question.reference})


def test_slips_are_small_and_as_many_as_stated() -> None:
    found = [
        int(answer or "") - int(debate.question.reference or "")
        for debate in debates(Carelessness(slips=0.3))
        for answer in answers(debate).values()
    ]
    assert set(found) == {-2, -1, 0, 1, 2}
    assert share([off != 0 for off in found]) == pytest.approx(0.3, abs=0.1)


def test_as_many_replies_are_malformed_as_stated() -> None:
    turns = [
        turn for debate in debates(Carelessness(malformed=0.3, spoilt=0.3)) for turn in debate.turns
    ]
    assert share([not turn.ok for turn in turns]) == pytest.approx(0.3, abs=0.08)


@pytest.mark.parametrize("rules", [V1, V2], ids=["v1", "v2"])
def test_votes_follow_from_the_answer_that_the_judge_states(rules: PeerRules) -> None:
    ops = set()
    for debate in debates(Carelessness(slips=0.4, malformed=0.05), rules):
        said = {turn.id: answer for turn, answer in answers(debate).items()}
        for turn in debate.turns:
            for vote in debate.ballots[turn.id].votes:
                stated = MINE.match(turn.section("evaluation"))
                assert stated and stated[1] == debate.question.reference
                a, b = (said[side] == stated[1] for side in (vote.a, vote.b))
                assert a >= b
                assert vote.op == ("=" if a == b else ">")
                ops.add(vote.op)
    assert ops == {">", "="}


def test_every_peer_is_evaluated_and_every_pair_compared() -> None:
    for debate in debates(Carelessness(slips=0.3), count=15):
        said = {turn.id: answer for turn, answer in answers(debate).items()}
        right = debate.question.reference
        for turn in debate.turns:
            if not turn.could_compare:
                assert turn.section("evaluation") == turn.section("comparison") == "N/A"
                continue
            found = re.findall(r"Agent (\d) says (-?\d+): (right|wrong)\.", turn.text)
            assert found == [
                (str(seat), said[name], "right" if said[name] == right else "wrong")
                for seat, name in sorted(turn.names.items())
            ]
            pairs = {frozenset((v.a, v.b)) for v in debate.ballots[turn.id].votes}
            assert pairs == {frozenset(pair) for pair in combinations(turn.names.values(), 2)}


def test_misjudged_comparisons_come_out_at_random() -> None:
    votes = [v for d in debates(Carelessness(misjudges=0.6), count=30) for v in d.votes]
    assert share([v.op == "=" for v in votes]) == pytest.approx(0.4 + 0.6 / 3, abs=0.08)
    taken = [v.a.seat < v.b.seat for v in votes if v.op == ">"]
    assert sum(taken) / len(taken) == pytest.approx(0.5, abs=0.12)


def test_a_question_without_a_reference_is_answered_all_the_same() -> None:
    (debate,) = debates(Carelessness(), count=1, about=Question("q", "How many?"))
    assert set(answers(debate).values()) == {"0"}


def test_the_same_debate_is_said_in_the_same_words() -> None:
    careless = Carelessness(slips=0.3, malformed=0.1, misjudges=0.3)
    once, again = (
        [[t.text for t in d.turns] for d in debates(careless, count=10)] for _ in range(2)
    )
    assert once == again
    about = shop().train[0]
    assert len({tuple(t.text for t in d.turns) for d in debates(careless, V2, 10, about)}) == 10
