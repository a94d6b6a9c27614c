"""The teacher of sums: right where it is careful, and careless by the shares it was given."""

from collections.abc import Iterator

import pytest

from rostra.arena import Debate
from rostra.debate.peer import PeerRules, peer_v1, peer_v2
from rostra.debate.transcript import Transcript
from rostra.debate.turn import Turn, TurnId
from rostra.engines.bytechat import ByteChat
from rostra.players.spoken import SpokenPlayer
from rostra.players.sums import Carelessness, SumsTeacher
from rostra.tasks.grading import boxed
from rostra.tasks.question import Question
from rostra.tasks.sums import compared, has_carry, lines_of, sums, terms, usual_mistake
from tests.playing import played

V2 = peer_v2(agents=4, rounds=2)
V1 = peer_v1(agents=4, rounds=2)
CARRY, PLAIN = Question("c", "17+24", "41"), Question("p", "12+13", "25")


def debates(
    careless: Carelessness, rules: PeerRules = V2, count: int = 40, about: Question | None = None
) -> list[Transcript]:
    questions = [about] * count if about else sums().draw(0, 0, count)
    player = SpokenPlayer(SumsTeacher(careless), ByteChat())
    return [played(Debate.peer(q, rules, seed), player) for seed, q in enumerate(questions)]


def solutions(transcript: Transcript) -> Iterator[tuple[Turn, int]]:
    for turn in transcript.turns:
        if turn.ok and transcript.kind(turn) == "speak":
            yield turn, int(boxed(turn.section("solution")) or "nothing")


def stated(turn: Turn) -> str | None:
    """The judge's own answer, where it has something to judge."""
    return boxed(turn.section("evaluation").partition("\n")[0])


def share(marks: list[bool]) -> float:
    assert len(marks) > 150
    return sum(marks) / len(marks)


@pytest.mark.parametrize("rules", [V1, V2], ids=["v1", "v2"])
def test_a_careful_teacher_is_well_formed_and_right(rules: PeerRules) -> None:
    for debate in debates(Carelessness(), rules, 20):
        a, b = terms(debate.question.prompt)
        assert all(turn.ok for turn in debate.turns)
        found = list(solutions(debate))
        assert {answer for _, answer in found} == {a + b}
        assert all(turn.text.startswith(f"{a}+{b}=<solution>") for turn, _ in found)
        assert {vote.op for vote in debate.votes} <= {"="}
        assert debate.votes


def test_all_who_agree_end_a_debate_by_consensus() -> None:
    for debate in debates(Carelessness(), V1, 5):
        assert (debate.outcome.ended, debate.outcome.rounds) == ("consensus", 1)


def test_one_who_disagrees_does_not_say_that_all_agree() -> None:
    for debate in debates(Carelessness(slips=0.5), V1, 20):
        said = {turn.id: answer for turn, answer in solutions(debate)}
        a, b = terms(debate.question.prompt)
        for turn in debate.turns:
            peers = {said[name] for name in turn.names.values()}
            assert turn.parsed.consensus == (peers <= {a + b})


def test_the_first_to_speak_has_nothing_to_judge() -> None:
    for rules in (V1, V2):
        first = debates(Carelessness(), rules, 1)[0].turns[0]
        assert first.section("evaluation") == first.section("comparison") == "N/A"


@pytest.mark.parametrize("forgets", [0.3, 1.0])
def test_carries_are_forgotten_as_often_as_stated(forgets: float) -> None:
    found = [
        answer
        for debate in debates(Carelessness(forgets=forgets), about=CARRY)
        for _, answer in solutions(debate)
    ]
    assert set(found) <= {41, usual_mistake(17, 24)}
    assert share([answer == 31 for answer in found]) == pytest.approx(forgets, abs=0.1)


def test_without_a_carry_there_is_nothing_to_forget() -> None:
    for debate in debates(Carelessness(forgets=1.0), about=PLAIN, count=5):
        assert {answer for _, answer in solutions(debate)} == {25}


@pytest.mark.parametrize("about", [CARRY, PLAIN], ids=["carry", "plain"])
def test_slips_are_small_and_as_many_as_stated(about: Question) -> None:
    right = int(about.reference or "")
    found = [
        answer - right
        for debate in debates(Carelessness(slips=0.4), about=about)
        for _, answer in solutions(debate)
    ]
    assert set(found) == {-2, -1, 0, 1, 2}
    assert share([off != 0 for off in found]) == pytest.approx(0.4, abs=0.1)


def test_what_is_not_forgotten_may_still_slip() -> None:
    careless = Carelessness(forgets=0.5, slips=0.5)
    found = [answer for debate in debates(careless, about=CARRY) for _, answer in solutions(debate)]
    assert share([answer == 31 for answer in found]) == pytest.approx(0.5, abs=0.1)
    assert share([answer == 41 for answer in found]) == pytest.approx(0.25, abs=0.1)


def test_no_answer_is_below_nothing() -> None:
    for debate in debates(Carelessness(slips=1.0), about=Question("0", "0+0", "0"), count=10):
        assert all(answer >= 0 for _, answer in solutions(debate))


def test_as_many_replies_are_malformed_as_stated_and_in_several_ways() -> None:
    played_ = debates(Carelessness(malformed=0.3, spoilt=0.1), count=40)
    turns = [(d.kind(turn), turn.ok) for d in played_ for turn in d.turns]
    solving = [not ok for kind, ok in turns if kind == "speak"]
    voting = [not ok for kind, ok in turns if kind == "ballot"]
    assert share(solving) == pytest.approx(0.3, abs=0.08)
    assert share(voting) == pytest.approx(0.1, abs=0.07)
    bad = [t for d in played_ for t in d.turns if not t.ok and d.kind(t) == "speak"]
    opened = [t for t in bad if "<solution>" in t.text]
    kept = [t for t in bad if "\\boxed" in t.text.partition("<evaluation>")[0]]
    # Left out, never closed, or without tags.
    assert 0 < len(opened) < len(kept) < len(bad)
    assert all("</solution>" not in turn.text for turn in bad)


def test_every_malformed_reply_is_malformed_wherever_it_is_said() -> None:
    for rules in (V1, V2):
        for debate in debates(Carelessness(malformed=1.0, spoilt=1.0), rules, 10):
            assert debate.turns
            assert not any(turn.ok for turn in debate.turns)


@pytest.mark.parametrize("rules", [V1, V2], ids=["v1", "v2"])
@pytest.mark.parametrize(
    "careless",
    [Carelessness(forgets=0.4, slips=0.3), Carelessness(0.5, 0.2, 0.1, doubts=0.7)],
    ids=["sure", "doubtful"],
)
def test_votes_follow_from_the_answer_that_the_judge_states(
    rules: PeerRules, careless: Carelessness
) -> None:
    ops = set()
    for debate in debates(careless, rules):
        said = {turn.id: answer for turn, answer in solutions(debate)}
        for turn in debate.turns:
            for vote in debate.ballots[turn.id].votes:
                own = int(stated(turn) or "nothing")
                a, b = said[vote.a] == own, said[vote.b] == own
                assert vote.op == ("=" if a == b else ">")
                assert a >= b
                ops.add(vote.op)
    assert ops == {">", "="}


def test_every_peer_is_evaluated_and_compared_in_the_order_shown() -> None:
    several = 0
    for debate in debates(Carelessness(slips=0.3)):
        said = {turn.id: answer for turn, answer in solutions(debate)}
        for turn in debate.turns:
            if not turn.could_compare:
                continue
            own = stated(turn)
            order = sorted(turn.names, key=lambda seat: turn.seen.index(turn.names[seat]))
            lines = turn.section("evaluation").split("\n")[1:]
            assert lines == [
                f"Agent {i}:{said[turn.names[i]]}={own} "
                f"{'yes' if str(said[turn.names[i]]) == own else 'no'}"
                for i in order
            ]
            right = {i: str(said[turn.names[i]]) == own for i in order}
            assert turn.section("comparison") == lines_of(compared(right))
            votes = debate.ballots[turn.id].votes
            assert {t.seat for v in votes for t in (v.a, v.b)} == set(order)
            several += order != sorted(order)
    assert several


def test_a_judge_who_never_doubts_states_the_right_answer() -> None:
    for debate in debates(Carelessness(forgets=1.0, slips=1.0), about=CARRY, count=10):
        own = {stated(turn) for turn in debate.turns if turn.could_compare}
        assert own == {"41"}


def test_doubts_make_second_looks_as_careless_as_first_answers() -> None:
    careless = Carelessness(forgets=0.5, doubts=0.6)
    looks = [
        stated(turn)
        for debate in debates(careless, about=CARRY, count=50)
        for turn in debate.turns
        if turn.could_compare
    ]
    assert set(looks) == {"41", "31"}
    assert share([look == "31" for look in looks]) == pytest.approx(0.3, abs=0.1)


def test_the_second_look_does_not_follow_from_the_first_answer() -> None:
    careless = Carelessness(forgets=0.5, doubts=1.0)
    looks = [
        (boxed(turn.section("solution")), stated(turn))
        for debate in debates(careless, peer_v2(agents=4, rounds=3), 40, CARRY)
        for turn in debate.turns
        if turn.could_compare and debate.kind(turn) == "speak"
    ]
    assert share([first == second for first, second in looks]) == pytest.approx(0.5, abs=0.12)


def test_misjudged_comparisons_come_out_at_random() -> None:
    ops = [
        vote.op
        for debate in debates(Carelessness(misjudges=0.6), about=PLAIN, count=50)
        for vote in debate.votes
    ]
    # All answers are right: a careful judge says =, and chance says it a third of the time.
    assert share([op == "=" for op in ops]) == pytest.approx(0.4 + 0.6 / 3, abs=0.08)


def test_a_peer_whose_solution_has_no_box_agrees_with_nobody() -> None:
    def boxless(seat: int) -> SpokenPlayer:
        teacher = SumsTeacher(Carelessness())
        words = lambda s, v: (  # noqa: E731
            teacher(s, v).replace("\\boxed{41}</s", "41</s") if v.seat == seat else teacher(s, v)
        )
        return SpokenPlayer(words, ByteChat())

    debate = played(Debate.peer(CARRY, V2, 1), boxless(2))
    ballot = [v for v in debate.votes if v.author == TurnId(0, 2)]
    assert {v.op for v in ballot if 2 in (v.a.seat, v.b.seat)} == {">"}
    assert all(v.b.seat == 2 for v in ballot if v.op == ">")


def test_the_same_debate_is_said_in_the_same_words() -> None:
    careless = Carelessness(0.3, 0.2, 0.1, 0.3, 0.3)
    once, again = (
        [[t.text for t in d.turns] for d in debates(careless, count=10)] for _ in range(2)
    )
    assert once == again
    seeds = {tuple(t.text for t in d.turns) for d in debates(careless, count=10, about=CARRY)}
    assert len(seeds) == 10


def test_there_are_questions_of_both_kinds_in_these_debates() -> None:
    kinds = {has_carry(*terms(q.prompt)) for q in sums().draw(0, 0, 40)}
    assert kinds == {True, False}


def test_a_teacher_without_early_votes_judges_in_ballots_only() -> None:
    rules = peer_v1(agents=4, rounds=1, closing_ballot=True)
    words = SumsTeacher(Carelessness(slips=0.5), early_votes=False)
    debate = played(Debate.peer(CARRY, rules, 1), SpokenPlayer(words, ByteChat()))
    speeches = [turn for turn in debate.turns if debate.kind(turn) == "speak"]
    assert [turn.section("evaluation") for turn in speeches] == ["N/A"] * 4
    assert {debate.kind(turn) for turn in debate.turns if debate.ballots[turn.id].votes} == {
        "ballot"
    }
    assert len(debate.votes) >= 8
