"""The rehearsal script: it plays any peer debate, and its votes mean something."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rostra.debate.peer import PeerRules, peer_v1, peer_v2
from rostra.debate.transcript import Transcript
from rostra.debate.turn import Turn, TurnId
from rostra.engines.bytechat import ByteChat
from rostra.engines.chat import Message
from rostra.engines.scripted import Prompt
from rostra.players.rehearsal import rehearsal
from tests.playing import play_rehearsal, question

BOX = re.compile(r"\\boxed\{(.*?)\}")
RIGHT = "408"

RULES = st.builds(
    lambda preset, **changes: preset(**changes),
    st.sampled_from([peer_v1, peer_v2]),
    agents=st.integers(3, 6),
    rounds=st.integers(1, 3),
    history_rounds=st.sampled_from([-1, 0, 1, 2]),
    closing_ballot=st.booleans(),
    shuffle_peers=st.booleans(),
)


def boxed(turn: Turn) -> str:
    found = BOX.search(turn.section("solution"))
    assert found
    return found[1]


def answers(transcript: Transcript) -> dict[TurnId, str]:
    speeches = [t for t in transcript.turns if transcript.kind(t) == "speak" and t.ok]
    return {t.id: boxed(t) for t in speeches}


@settings(max_examples=40, deadline=None)
@given(rules=RULES, seed=st.integers(0, 2**32))
def test_a_rehearsed_debate_follows_the_rules(rules: PeerRules, seed: int) -> None:
    transcript = play_rehearsal(rules, rehearsal(), seed)
    for turn in transcript.turns:
        assert turn.ok
        assert turn.comparisons.self_dropped == 0
        assert turn.comparisons.malformed == 0
        assert turn.comparisons.duplicates == 0
        assert turn.comparisons.lines_invalid == 0
        assert transcript.ballots[turn.id].unseen == 0
        pairs = len(turn.names) * (len(turn.names) - 1) // 2
        assert len(transcript.ballots[turn.id].votes) == pairs


@pytest.mark.parametrize(
    ("asked", "right"),
    [
        ("What is 17 * 24?", "408"),
        ("What is 12 + 30?", "42"),
        ("What is 5 - 9?", "-4"),
        ("What is 3 x 4?", "12"),
        ("What is -6 × 7?", "-42"),
        ("What is 2·8, roughly?", "16"),
    ],
)
def test_small_sums_are_solved(asked: str, right: str) -> None:
    over = play_rehearsal(peer_v2(agents=3, rounds=1), rehearsal(right=1.0), about=question(asked))
    assert set(answers(over).values()) == {right}


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_with_right_at_zero_no_first_answer_is_right(seed: int) -> None:
    over = play_rehearsal(peer_v2(agents=5, rounds=1), rehearsal(right=0.0), seed)
    assert RIGHT not in answers(over).values()


def test_first_answers_are_right_about_as_often_as_asked() -> None:
    right = [
        answer == RIGHT
        for seed in range(50)
        for answer in answers(
            play_rehearsal(peer_v2(agents=5, rounds=1), rehearsal(right=0.45), seed)
        ).values()
    ]
    assert 0.35 < sum(right) / len(right) < 0.55


@pytest.mark.parametrize("judgement", [0.0, 1.0])
def test_judgement_decides_how_right_and_wrong_answers_compare(judgement: float) -> None:
    decided = 0
    for seed in range(10):
        over = play_rehearsal(peer_v2(rounds=2), rehearsal(judgement=judgement), seed)
        said = answers(over)
        for vote in over.votes:
            better, worse = said[vote.a] == RIGHT, said[vote.b] == RIGHT
            if better != worse:
                decided += 1
                assert vote.op == ">"
                assert better == (judgement == 1.0)
    assert decided > 20


def test_equal_answers_tie_and_different_ones_do_not() -> None:
    for seed in range(5):
        over = play_rehearsal(peer_v2(rounds=2), rehearsal(), seed)
        said = answers(over)
        assert {(v.op == "=") == (said[v.a] == said[v.b]) for v in over.votes} == {True}


@pytest.mark.parametrize("history", [-1, 1], ids=["append-only", "window"])
def test_a_right_answer_is_kept_and_spreads(history: int) -> None:
    first = last = 0
    for seed in range(12):
        rules = peer_v2(rounds=3, history_rounds=history)
        said = answers(play_rehearsal(rules, rehearsal(), seed))
        for seat in range(5):
            right = [said[TurnId(seat, r)] == RIGHT for r in range(3)]
            assert right == sorted(right)
            first, last = first + right[0], last + right[2]
    assert last > first


def test_a_wrong_answer_that_nobody_corrects_is_kept() -> None:
    said = answers(play_rehearsal(peer_v2(rounds=3), rehearsal(right=0.0), 1))
    assert RIGHT not in said.values()
    assert all(len({said[TurnId(seat, r)] for r in range(3)}) == 1 for seat in range(5))


def test_agents_who_are_all_right_agree_as_soon_as_all_have_been_heard() -> None:
    over = play_rehearsal(peer_v1(agents=4, rounds=5), rehearsal(right=1.0))
    assert over.outcome.ended == "consensus"
    assert over.outcome.rounds == 2


def test_faults_are_malformed_replies_at_the_rate_asked_for() -> None:
    def malformed(fault: float) -> list[bool]:
        script = rehearsal(fault=fault)
        debates = [play_rehearsal(peer_v2(rounds=2), script, seed) for seed in range(20)]
        return [not turn.ok for d in debates for turn in d.turns]

    assert all(malformed(1.0))
    some = malformed(0.3)
    assert 0.2 < sum(some) / len(some) < 0.4


def test_a_fault_ends_a_v1_debate() -> None:
    over = play_rehearsal(peer_v1(agents=3), rehearsal(fault=1.0))
    assert over.outcome.by == TurnId(0, 0)
    assert len(over.turns) == 1


def test_a_question_without_a_sum_gets_one_of_five_letters() -> None:
    about = question("Which colour is best?")
    said = {
        answer
        for seed in range(10)
        for answer in answers(
            play_rehearsal(peer_v2(rounds=2), rehearsal(), seed, about=about)
        ).values()
    }
    assert len(said) > 1
    assert said <= set("ABCDE")


def test_the_same_seed_rehearses_the_same_debate() -> None:
    def texts(seed: int) -> list[str]:
        return [t.text for t in play_rehearsal(peer_v2(rounds=2), rehearsal(), seed).turns]

    assert texts(1) == texts(1)
    assert texts(1) != texts(2)


def test_a_prompt_that_names_no_agent_and_no_sections_gets_an_empty_reply() -> None:
    tokens = ByteChat().open([Message("user", "Hello")])
    assert rehearsal()(Prompt(tokens), 0) == ""


def test_a_tag_that_the_script_does_not_know_is_answered_with_nothing_to_say() -> None:
    tokens = ByteChat().open([Message("user", "Question:\nWhat is 1 + 1?\n\nReply with <mood>.")])
    assert rehearsal()(Prompt(tokens), 0) == "<mood>N/A</mood>"
