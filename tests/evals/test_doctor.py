"""Policies with one known fault each, and the reason that must be given."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rostra.debate.peer import PeerRules, peer_v1
from rostra.engines.scripted import Prompt, Script, ScriptedEngine
from rostra.errors import EngineError
from rostra.evals.checks import Check, Diagnosis, Share
from rostra.evals.doctor import diagnose, pass_at, votes_check
from rostra.evals.sample import Memory, memory_of, size
from rostra.players.player import Player
from rostra.players.rehearsal import rehearsal
from rostra.players.spoken import SpokenPlayer
from rostra.players.sums import Carelessness, SumsTeacher
from rostra.runs.settings import Recipe, RewardSettings, TrainSettings
from rostra.runs.syllabus import Stage, TaskSettings
from rostra.tasks.sums import sums
from rostra.tasks.task import Task

RULES = PeerRules(agents=5, rounds=1)
TEACHER = SumsTeacher(Carelessness(forgets=0.5, slips=0.25), early_votes=False)


def recipe(rules: PeerRules = RULES, questions: int = 16, **rewards: float) -> Recipe:
    return Recipe(
        protocol=rules,
        train=TrainSettings(questions=questions, retries=0),
        rewards=RewardSettings(**rewards),
    )


def found(
    script: Script,
    folder: Path,
    chosen: Recipe | None = None,
    *,
    questions: int = 24,
    task: Task | None = None,
    context: int | None = None,
    prepared: bool = True,
) -> Diagnosis:
    engine = ScriptedEngine(script, folder)
    if context:
        engine.context = context  # type: ignore[attr-defined]
    speaker: Player | None = SpokenPlayer(TEACHER, engine.chat) if prepared else None
    work = diagnose(chosen or recipe(), task or sums(), engine, questions, speaker=speaker)
    return asyncio.run(work)


def check(diagnosis: Diagnosis, name: str) -> Check:
    return next(check for check in diagnosis.checks if check.name == name)


def statuses(diagnosis: Diagnosis) -> dict[str, str]:
    return {check.name: check.status for check in diagnosis.checks}


# The four answers that matter


def test_a_policy_that_solves_judges_and_keeps_the_form_is_ready(tmp_path: Path) -> None:
    good = found(rehearsal(), tmp_path)
    assert set(statuses(good).values()) == {"pass"}
    assert (good.ready, good.verdict) == (True, "ready")


def test_form_is_the_reason_where_form_is_missing_whatever_else_fails(tmp_path: Path) -> None:
    bad = found(rehearsal(fault=1.0), tmp_path)
    failed = [check.name for check in bad.checks if check.status == "fail"]
    assert failed[0] == "format"
    assert {"solves", "pass@3", "groups"} < set(failed)
    assert bad.verdict.startswith("not ready: format: 0% [0-14%] of 240 turns well-formed")
    assert bad.verdict.endswith("who cannot keep the form fails everything else too")
    assert "Warm start" in check(bad, "format").try_


def test_solving_is_the_reason_where_no_answer_is_ever_right(tmp_path: Path) -> None:
    bad = found(rehearsal(right=0.0), tmp_path)
    assert statuses(bad)["format"] == statuses(bad)["comparisons"] == "pass"
    assert bad.verdict.startswith("not ready: solves: 0% [0-14%] of 120 sampled answers right")
    assert "easier questions" in check(bad, "solves").try_
    assert statuses(bad)["own votes"] == "unknown"


def test_three_agents_who_leave_themselves_out_have_no_judge_signal(tmp_path: Path) -> None:
    bad = found(rehearsal(), tmp_path, recipe(replace(RULES, agents=3)))
    assert bad.main is check(bad, "judges")
    assert "every pair has only one judge, so there is no judge signal" in bad.verdict
    assert "protocol.agents=5" in check(bad, "judges").try_
    assert check(bad, "judge rewards").numbers["share"] == 0


# Judges


def test_three_agents_are_enough_where_judging_is_not_rewarded(tmp_path: Path) -> None:
    rules = replace(RULES, agents=3)
    fine = found(rehearsal(right=0.5), tmp_path, recipe(rules, judge=0.0), questions=48)
    assert fine.ready
    assert "rewards.judge = 0" in check(fine, "judges").saw
    assert "judge rewards" not in statuses(fine)


def test_three_agents_are_enough_where_judges_are_paid_by_the_truth(tmp_path: Path) -> None:
    rules = replace(RULES, agents=3)
    fine = found(rehearsal(right=0.5), tmp_path, recipe(rules, judge_truth=0.5), questions=48)
    assert statuses(fine)["judges"] == "pass"
    assert check(fine, "judge rewards").numbers["share"] > 0.2


@pytest.mark.parametrize(("agents", "status"), [(3, "fail"), (4, "thin"), (5, "thin")])
def test_counting_a_judge_among_his_own_majority_is_told(
    agents: int, status: str, tmp_path: Path
) -> None:
    rules = replace(RULES, agents=agents, consensus="majority")
    assert statuses(found(rehearsal(), tmp_path, recipe(rules)))["judges"] == status


def test_judges_who_prefer_what_is_wrong_fail(tmp_path: Path) -> None:
    bad = found(rehearsal(judgement=0.0), tmp_path)
    assert bad.main is check(bad, "own votes")
    assert "worse than a coin" in bad.verdict
    assert check(bad, "prepared votes").numbers["high"] < 0.5


def test_judges_who_flip_a_coin_fail_where_enough_was_seen() -> None:
    """As many debates with one right and one wrong vote as with two of either."""
    for debates, status in ((4, "unknown"), (100, "fail"), (500, "fail")):
        check = judged([(1, 2)] * (debates // 2) + [(2, 2), (0, 2)] * (debates // 4))
        assert check.numbers["share"] == 0.5
        assert check.status == status
        assert bool(check.try_)
    assert "which is no better than a coin" in check.saw
    assert "Warm start with comparisons" in check.try_
    assert Diagnosis((check,)).verdict.startswith("not ready: own votes: 50% [4")


@pytest.mark.parametrize(
    ("right", "status"),
    [(300, "fail"), (470, "fail"), (500, "fail"), (501, "thin"), (560, "pass"), (900, "pass")],
)
def test_a_thousand_votes_tell_a_judge_from_a_coin(right: int, status: str) -> None:
    check = judged([(1, 1)] * right + [(0, 1)] * (1000 - right))
    assert (check.status, check.numbers["n"]) == (status, 1000)
    assert ("Play more" in check.try_) == (status == "thin")


def judged(rows: Sequence[tuple[int, int]]) -> Check:
    return votes_check("own votes", Share.of(rows))


def test_judges_who_flip_a_coin_are_the_reason(tmp_path: Path) -> None:
    coin = found(rehearsal(judgement=0.5), tmp_path)
    votes = check(coin, "own votes")
    assert coin.main is votes and "which is no better than a coin" in coin.verdict
    assert votes.numbers["low"] <= 0.5 <= votes.numbers["high"] < 0.6
    assert statuses(coin)["prepared votes"] == "fail"


def test_a_few_judges_who_may_flip_a_coin_are_unknown_and_more_should_be_played(
    tmp_path: Path,
) -> None:
    few = check(found(rehearsal(judgement=0.5), tmp_path, questions=6), "prepared votes")
    assert (few.status, few.try_) == ("unknown", "Play more: --questions.")
    assert few.numbers["low"] <= 0.5 and few.numbers["high"] >= 0.6


def test_a_few_right_votes_prove_nothing(tmp_path: Path) -> None:
    """All votes of two debates are right, which a coin would manage too."""
    few = check(found(rehearsal(judgement=1.0), tmp_path, questions=2), "own votes")
    assert few.numbers["share"] == 1
    assert few.status == "unknown"


def test_prepared_solutions_are_judged_only_where_there_is_a_teacher_and_a_ballot(
    tmp_path: Path,
) -> None:
    assert "prepared votes" not in statuses(found(rehearsal(), tmp_path, prepared=False))
    bare = recipe(replace(RULES, rounds=2, closing_ballot=False))
    assert "prepared votes" not in statuses(found(rehearsal(), tmp_path, bare))


def test_the_teachers_own_votes_do_not_count_for_the_policy(tmp_path: Path) -> None:
    """In the second round the teacher compares too, and is always right; the policy never is."""
    engine = ScriptedEngine(rehearsal(judgement=0.0), tmp_path)
    speaker = SpokenPlayer(SumsTeacher(Carelessness(forgets=0.5, slips=0.25)), engine.chat)
    rules = replace(RULES, rounds=2)
    work = diagnose(recipe(rules), sums(), engine, 24, speaker=speaker)
    votes = check(asyncio.run(work), "prepared votes")
    assert votes.numbers["n"] > 20
    assert votes.numbers["share"] == 0


# Form, solving and signal


def test_rules_that_let_nobody_vote_fail_by_their_name(tmp_path: Path) -> None:
    rules = replace(RULES, history_rounds=0)
    bad = found(rehearsal(), tmp_path, recipe(rules))
    assert bad.verdict.startswith("not ready: comparisons: no turn could compare two others")
    assert "history_rounds=-1" in check(bad, "comparisons").try_


def test_turns_that_could_compare_and_do_not_are_counted(tmp_path: Path) -> None:
    """Half of the judges are silent, in good form."""
    speak = rehearsal()

    def silent(asked: Prompt, seed: int) -> str:
        said = speak(asked, seed)
        head, _, _ = said.partition("<comparison>")
        return head + "<comparison>N/A</comparison>" if seed % 2 else said

    bad = found(silent, tmp_path)
    share = check(bad, "comparisons").numbers["share"]
    assert 0.35 < share < 0.65
    assert check(bad, "format").numbers["share"] == 1
    assert bad.main is check(bad, "comparisons")


def test_replies_that_are_cut_are_told_with_the_setting_to_raise(tmp_path: Path) -> None:
    bad = found(rehearsal(), tmp_path, recipe(replace(RULES, max_tokens=20)))
    assert check(bad, "length").numbers["share"] == 1
    assert "max_tokens" in check(bad, "length").try_
    assert "max_tokens" in check(bad, "format").try_
    assert bad.main is check(bad, "format")


def test_solving_is_thin_between_five_and_ten_percent(tmp_path: Path) -> None:
    thin = found(rehearsal(right=0.08), tmp_path, questions=60)
    share = check(thin, "solves").numbers["share"]
    assert 0.05 <= share < 0.1
    assert statuses(thin)["solves"] == "thin"
    assert "learning is slow" in check(thin, "solves").try_


def test_a_task_without_right_answers_is_unknown_and_can_be_ready(tmp_path: Path) -> None:
    task = replace(sums(), train=[replace(q, reference=None) for q in sums().train])
    blind = found(rehearsal(), tmp_path, task=task, prepared=False)
    unknown = [name for name, status in statuses(blind).items() if status == "unknown"]
    assert unknown == ["solves", "pass@3", "own votes"]
    assert blind.verdict == "ready (unknown: solves, pass@3, own votes)"
    assert math.isnan(check(blind, "solves").numbers["share"])


def test_agents_who_always_agree_leave_no_signal(tmp_path: Path) -> None:
    flat = found(rehearsal(right=1.0), tmp_path, prepared=False)
    assert flat.main is check(flat, "groups")
    assert check(flat, "groups").numbers["expected"] == 0
    assert statuses(flat)["throughput"] == "unknown"


def test_signal_of_a_stream_that_weighs_nothing_is_none(tmp_path: Path) -> None:
    """Only form differs between these replies, and it is paid on the judge stream."""
    script = rehearsal(right=1.0, fault=0.1)
    with_judge, without = (
        check(found(script, tmp_path, recipe(judge=weight)), "groups") for weight in (1.0, 0.0)
    )
    assert with_judge.numbers["share"] > 0.5
    assert without.numbers["share"] == 0


def test_groups_with_a_signal_are_told_for_one_step(tmp_path: Path) -> None:
    groups = check(found(rehearsal(), tmp_path, recipe(questions=32)), "groups")
    assert groups.numbers["expected"] == pytest.approx(32 * groups.numbers["share"])


def test_penalties_are_not_counted_as_rewards_that_votes_gave(tmp_path: Path) -> None:
    rules = replace(RULES, agents=3)
    bad = found(rehearsal(fault=0.3), tmp_path, recipe(rules))
    assert check(bad, "judge rewards").numbers["n"] > 20
    assert check(bad, "judge rewards").numbers["share"] == 0


def test_the_first_generation_answers_alone_often_enough_for_pass_at_3(tmp_path: Path) -> None:
    v1 = found(rehearsal(), tmp_path, recipe(peer_v1(rounds=1)), questions=10, prepared=False)
    assert check(v1, "solves").numbers["n"] == 30
    assert check(v1, "pass@3").numbers["n"] == 10
    assert "reward = win_rate" in check(v1, "judges").saw
    assert not {"gen rewards", "judge rewards"} & set(statuses(v1))


# What is played


def test_held_out_questions_stay_unseen(tmp_path: Path) -> None:
    task = sums()
    heard: set[str] = set()
    speak = rehearsal()

    def listening(asked: Prompt, seed: int) -> str:
        start = asked.text.find("Question:\n") + len("Question:\n")
        heard.add(asked.text[start : asked.text.find("\n", start)])
        return speak(asked, seed)

    found(listening, tmp_path, questions=40, task=task)
    assert len(heard) == 40
    assert heard <= {question.prompt for question in task.train}


def test_no_more_questions_are_played_than_there_are(tmp_path: Path) -> None:
    small = sums(below=4)
    done = found(rehearsal(), tmp_path, questions=500, task=small)
    assert check(done, "debates").numbers["n"] == len(small.train)


def test_the_same_sample_is_judged_the_same(tmp_path: Path) -> None:
    timed = ("throughput", "memory")
    first, again = (
        [c for c in found(rehearsal(), tmp_path).checks if c.name not in timed] for _ in range(2)
    )
    assert first == again


def test_progress_counts_debates_and_tokens(tmp_path: Path) -> None:
    told: list[tuple[str, int, int, int]] = []
    engine = ScriptedEngine(rehearsal(), tmp_path)
    speaker = SpokenPlayer(TEACHER, engine.chat)
    work = diagnose(
        recipe(), sums(), engine, 5, speaker=speaker, progress=lambda *what: told.append(what)
    )
    asyncio.run(work)
    assert [what[0] for what in told if what[1] == 5] == ["debating", "judging prepared solutions"]
    tokens = [what[3] for what in told if what[0] == "debating"]
    assert tokens == sorted(tokens) and tokens[0] > 0


def failing(share: float) -> Script:
    """An engine that fails at some questions, always the same ones."""
    speak = rehearsal()

    def reply(asked: Prompt, seed: int) -> str:
        start = asked.text.find("Question:\n") + len("Question:\n")
        if sum(asked.text[start : start + 8].encode()) % 100 < 100 * share:
            raise EngineError("the lights went out")
        return speak(asked, seed)

    return reply


def test_debates_that_cannot_be_finished_are_the_reason(tmp_path: Path) -> None:
    none = found(failing(1.0), tmp_path)
    assert none.verdict.startswith("not ready: debates: none of 24 debates could be finished")
    assert "the lights went out" in none.verdict
    some = found(failing(0.5), tmp_path)
    assert some.main is check(some, "debates")
    assert 0 < some.main.numbers["share"] < 0.9
    assert "the lights went out" in some.main.saw


# What it takes


def test_a_context_that_is_too_short_fails_and_one_that_is_just_enough_is_thin(
    tmp_path: Path,
) -> None:
    need = int(check(found(rehearsal(), tmp_path), "context").numbers["need"])
    worst = int(check(found(rehearsal(), tmp_path), "context").numbers["worst"])
    assert need < worst
    for context, status in ((need - 1, "fail"), (need, "thin"), (worst, "pass")):
        there = check(found(rehearsal(), tmp_path, context=context), "context")
        assert (there.status, there.numbers["context"]) == (status, context)
        assert ("max_tokens" in there.try_) == (status != "pass")


def test_prompts_grow_by_rounds_and_a_short_history_keeps_them_short(tmp_path: Path) -> None:
    long, short = (
        check(found(rehearsal(), tmp_path, recipe(rules), questions=4), "context").numbers
        for rules in (replace(RULES, rounds=3), replace(RULES, rounds=3, history_rounds=1))
    )
    assert long["growth"] > 100
    assert long["need"] > short["need"]
    assert long["worst"] > short["worst"]


def test_the_cost_of_the_run_is_that_of_the_sample_scaled(tmp_path: Path) -> None:
    once, twice = (
        check(found(rehearsal(), tmp_path, recipe(questions=n)), "throughput").numbers
        for n in (16, 32)
    )
    assert twice["tokens"] == pytest.approx(2 * once["tokens"])
    assert once["tokens_per_second"] > 0
    assert once["training_seconds_per_debate"] > 0


def test_memory_is_told_where_the_machine_tells_it(tmp_path: Path) -> None:
    memory = memory_of(ScriptedEngine(rehearsal(), tmp_path))
    assert isinstance(memory, Memory)
    assert memory.held > 1e6 and memory.free > 0 and memory.more == 0
    assert (size(2.5e9), size(3e6)) == ("2.5 GB", "3.0 MB")


def test_a_curriculum_says_that_its_first_stage_alone_was_checked(tmp_path: Path) -> None:
    later = Stage(TaskSettings("shop"))
    done = found(rehearsal(), tmp_path, replace(recipe(), stages=(Stage(), later, later)))
    assert done.checks[-1].name == "stages"
    assert done.checks[-1].saw == "only number 1 of 3 was checked (sums > shop > shop)"
    assert "model.start" in done.checks[-1].try_
    assert done.verdict == "ready (unknown: stages)"
    lone = found(rehearsal(), tmp_path, replace(recipe(), stages=(later,)))
    assert "stages" not in statuses(lone)


# Verdicts


def test_the_first_failing_check_is_the_reason() -> None:
    checks = (
        Check("a", "pass", "fine"),
        Check("b", "unknown", "who knows"),
        Check("c", "fail", "broken"),
        Check("d", "fail", "broken too"),
    )
    assert Diagnosis(checks).verdict == "not ready: c: broken"
    assert not Diagnosis(checks).ready
    assert Diagnosis(checks[:2]).verdict == "ready (unknown: b)"
    thin = Check("e", "thin", "hardly")
    assert Diagnosis((thin, *checks[:2])).verdict == "ready (thin: e; unknown: b)"


# Shares


def test_the_interval_of_single_answers_is_wilsons() -> None:
    share = Share.of([(1, 1)] * 5 + [(0, 1)] * 5)
    assert (share.value, share.n) == (0.5, 10)
    assert share.low == pytest.approx(0.2366, abs=1e-4)
    assert share.high == pytest.approx(0.7634, abs=1e-4)


def test_none_of_many_is_not_surely_none() -> None:
    assert Share.of([(0, 1)] * 24).high == pytest.approx(0.138, abs=1e-3)
    assert Share.of([(1, 1)] * 24).low == pytest.approx(0.862, abs=1e-3)
    assert str(Share.of([(0, 1)] * 24)) == "0% [0-14%]"


def test_answers_that_go_together_count_once() -> None:
    """Five equal answers to each question say no more than one."""
    single, alike = Share.of([(1, 1), (0, 1)] * 10), Share.of([(5, 5), (0, 5)] * 10)
    apart = Share.of([(3, 5), (2, 5)] * 10)
    assert alike.high - alike.low == pytest.approx(single.high - single.low, rel=0.05)
    assert apart.high - apart.low < 0.6 * (alike.high - alike.low)


def test_nothing_to_count_is_not_a_number() -> None:
    for rows in ([], [(0, 0), (0, 0)]):
        share = Share.of(rows)
        assert share.n == 0
        assert all(math.isnan(x) for x in (share.value, share.low, share.high))


COUNTS = st.integers(0, 6).flatmap(lambda whole: st.tuples(st.integers(0, whole), st.just(whole)))


@given(st.lists(COUNTS, min_size=1, max_size=30))
def test_a_share_lies_in_its_interval_and_more_questions_narrow_it(
    rows: list[tuple[int, int]],
) -> None:
    share, more = Share.of(rows), Share.of(rows * 4)
    if not share.n:
        return
    assert 0 <= share.low <= share.value + 1e-12 and share.value - 1e-12 <= share.high <= 1
    assert more.value == pytest.approx(share.value)
    assert more.high - more.low <= share.high - share.low + 1e-12


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=3, max_size=8))
def test_pass_at_k_is_the_share_of_all_draws_with_a_right_answer(marks: Sequence[float]) -> None:
    draws = list(combinations(marks, 3))
    assert pass_at(3, marks) == pytest.approx(sum(max(d) == 1 for d in draws) / len(draws))
