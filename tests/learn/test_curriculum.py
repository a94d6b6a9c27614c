"""Stages that advance and survive a stop, questions that come again, and a guide that fades."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rostra.debate.peer import PeerRules
from rostra.debate.state import State
from rostra.debate.views import View
from rostra.errors import ConfigError, EngineError
from rostra.learn.curriculum import Curriculum, Difficulty, passed
from rostra.learn.guide import guide_votes
from rostra.learn.stop import Stopped
from rostra.players.player import Reply
from rostra.players.scripted import ScriptedPlayer
from rostra.runs.recipe import read_recipe, to_toml
from rostra.runs.settings import (
    EvalSettings,
    ModelSettings,
    Recipe,
    TrainSettings,
)
from rostra.runs.syllabus import BootstrapSettings, Stage, TaskSettings
from rostra.runs.transcripts import read_transcripts
from rostra.tasks.grading import Integers
from rostra.tasks.question import Question
from rostra.tasks.sums import sums
from rostra.tasks.task import Task
from tests.learn.test_selfplay import left_behind, lines, perform, recipe
from tests.playing import play_peer, ranked, wrap

EASY = TaskSettings("sums", below=10)
HARD = TaskSettings("shop", size=40)


# Stages


def test_a_stage_ends_when_its_measure_has_been_high_for_a_window() -> None:
    course = Curriculum((Stage(EASY, 100, 0.8, window=3), Stage(HARD)))
    marks = [0.9, 0.5, 0.8, 0.8, 0.8]
    found = [course.feed({"train_sums/correct": m}, "sums", s) for s, m in enumerate(marks)]
    assert found == [None, None, None, None, "correct is 80% over 3 steps"]
    assert (course.at, course.since) == (1, 5)
    assert course.feed({"train_shop/correct": 1.0}, "shop", 5) is None  # the last has no end


def test_a_stage_ends_after_its_steps_whatever_was_measured() -> None:
    course = Curriculum((Stage(EASY, 2), Stage(EASY, 2), Stage(HARD)))
    found = [course.feed({"train_sums/correct": 0.0}, "sums", step) for step in range(5)]
    assert found == [None, "after 2 steps", None, "after 2 steps", None]


def test_any_metric_can_be_the_measure_and_a_missing_one_never_counts() -> None:
    course = Curriculum((Stage(EASY, 50, 0.5, "health/decided_votes", 2), Stage(HARD)))
    for step, value in enumerate([0.9, float("nan"), float("nan")]):
        assert course.feed({"health/decided_votes": value}, "sums", step) is None
    assert course.feed({"health/decided_votes": 0.1}, "sums", 3) is not None  # mean of 0.9 and 0.1


@given(st.lists(st.floats(0, 1), max_size=30), st.integers(0, 29))
def test_a_course_goes_on_from_its_data(marks: list[float], cut: int) -> None:
    stages = (Stage(EASY, 7, 0.6, window=2), Stage(EASY, 5, 0.9), Stage(HARD))
    whole, part = Curriculum(stages), Curriculum(stages)
    for step, mark in enumerate(marks):
        if step == cut:
            part = Curriculum.from_data(stages, part.to_data())
        said = [c.feed({"train_sums/correct": mark}, "sums", step) for c in (whole, part)]
        assert said[0] == said[1]
    assert whole.to_data() == part.to_data()


def course(path: Path, **changes: Any) -> Recipe:
    train = TrainSettings(steps=6, questions=3, save_every=2, eval_every=0, learning_rate=0.01)
    stages = (Stage(EASY, 2), Stage(TaskSettings("sums", below=12), 2), Stage(HARD))
    return recipe(path, **{"train": train, "stages": stages} | changes)


def test_a_run_goes_through_its_stages_and_says_so(tmp_path: Path) -> None:
    chosen = course(tmp_path, eval=EvalSettings(questions=4, debates=2))
    screen = perform(chosen)
    assert [line["stage"] for line in lines(chosen)] == [0, 0, 1, 1, 2, 2]
    assert "stage 2 (sums) begins after step 2: after 2 steps" in screen.paper.getvalue()
    assert [line["step"] for line in lines(chosen, "eval")] == [0, 2, 4, 6]
    assert [line["stage"] for line in lines(chosen, "eval")] == [0, 1, 2, 2]
    asked = [[s.transcript.question.id for s in read_transcripts(f)] for f in debates_of(chosen)]
    easy = {q.id for q in sums(10).train}
    assert set(asked[0] + asked[1]) <= easy
    assert all(name.startswith("shop-") for name in asked[4] + asked[5])
    assert "train_shop/correct" in lines(chosen)[5]
    assert "train_sums/correct" not in lines(chosen)[5]


def test_a_stage_that_would_begin_after_the_last_step_does_not(tmp_path: Path) -> None:
    train = TrainSettings(steps=4, questions=3, save_every=2, eval_every=0, learning_rate=0.01)
    chosen = course(tmp_path, train=train, eval=EvalSettings(questions=4, debates=2))
    perform(chosen)
    assert [line["stage"] for line in lines(chosen, "eval")] == [0, 1, 1]


def test_a_measure_that_does_not_exist_is_noted(tmp_path: Path) -> None:
    stages = (Stage(EASY, 2, 0.5, "health/nosuch"), Stage(HARD))
    screen = perform(course(tmp_path, stages=stages))
    assert "there is no metric health/nosuch; only steps end stage 1" in screen.paper.getvalue()


def debates_of(chosen: Recipe) -> list[Path]:
    return sorted((Path(chosen.folder) / "transcripts").iterdir())


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("at", [1, 2, 3, 5])
def test_a_course_that_was_stopped_ends_like_one_that_was_not(
    tmp_path: Path, mode: Any, at: int
) -> None:
    changes = {"resample": 0.4, "mode": mode, "staleness": 2 if mode == "async" else 0}
    whole, part = (course(tmp_path / name) for name in ("whole", "part"))
    whole, part = (replace(c, train=replace(c.train, **changes)) for c in (whole, part))
    perform(whole)
    with pytest.raises(Stopped):
        perform(part, stop=lambda what, step: what == "step" and step == at)
    perform(part, resume=True)
    assert left_behind(part) == left_behind(whole)


def test_in_async_mode_debates_of_an_old_stage_are_marked_by_their_own_task(tmp_path: Path) -> None:
    chosen = course(tmp_path)
    chosen = replace(chosen, train=replace(chosen.train, mode="async", staleness=2))
    perform(chosen)
    found = [line["stage"] for line in lines(chosen)]
    # Two steps that were being debated when a stage ended still belong to it.
    assert found == [0, 0, 0, 0, 1, 1]


def test_stages_are_read_from_a_recipe_and_written_again(tmp_path: Path) -> None:
    file = tmp_path / "course.toml"
    file.write_text(
        '[[stages]]\nsteps = 5\nthreshold = 0.8\n[stages.task]\nname = "sums"\nbelow = 12\n'
        '[[stages]]\n[stages.task]\nname = "shop"\n'
    )
    found = read_recipe(file)
    assert [stage.task.name for stage in found.stages] == ["sums", "shop"]
    assert found.stages[0].threshold == 0.8
    again = tmp_path / "again.toml"
    again.write_text(to_toml(found))
    assert read_recipe(again) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[stages]]\nstep = 5\n", r"\[\[stages\]\] number 1: step: unknown key.*steps"),
        ('[[stages]]\n[stages.task]\nnam = "sums"\n', r"number 1: task.nam: unknown key.*name"),
        (
            '[[stages]]\n[stages.task]\nname = "sum"\n',
            "number 1: task.name = 'sum': must be sums or ",
        ),
        ("[[stages]]\nwindow = 0\n", "window = 0: must be at least 1"),
        ('[[stages]]\nmeasure = "corect"\n', "did you mean correct"),
        ('[[stages]]\nmeasure = "pass@7"\n', "must be correct or .* or pass@5"),
        ("[stages]\nwindow = 0\n", r"begins with \[\[stages\]\]"),
        ('loop = "warmstart"\n[[phases]]\n[[stages]]\n', 'only loop = "selfplay" has them'),
        ('[bootstrap]\nguide = "x"\nweight = 2\n', "weight = 2.0: a share"),
        ('[bootstrap]\nguide = "x"\n[protocol]\npreset = "peer-v1"\n', "protocol.reward = streams"),
        ("[train]\nresample = 1.0\n", "at least 0 and below 1"),
    ],
)
def test_what_is_wrong_with_a_course_is_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_recipe(file)


# Difficulty


def numbered(count: int) -> Task:
    train = [Question(f"n{i}", f"n{i}", "1") for i in range(count)]
    return Task("numbered", train, [], Integers())


@settings(deadline=None)
@given(st.integers(1, 12), st.floats(0, 0.99), st.integers(0, 50), st.sets(st.integers(0, 39)))
def test_a_step_has_its_questions_and_none_twice(
    count: int, again: float, step: int, known: set[int]
) -> None:
    memory = Difficulty()
    for i in known:
        memory.feed(0, f"n{i}", i / 40)
    drawn = memory.draw(numbered(40), 0, 7, step, count, again)
    names = [q.id for q in drawn]
    assert len(names) == len(set(names)) == count
    assert [q.id for q in memory.draw(numbered(40), 0, 7, step, count, again)] == names


def test_open_questions_come_again_more_often_than_settled_ones() -> None:
    memory = Difficulty()
    for i in range(40):
        memory.feed(0, f"n{i}", 0.5 if i < 10 else float(i % 2))
    counted = {i: 0 for i in range(40)}
    for step in range(300):
        # Only what is asked again: the rest follows the order of the task.
        fresh = {q.id for q in numbered(40).draw(7, step * 5, 5)}
        for question in memory.draw(numbered(40), 0, 7, step, 10, 0.5):
            if question.id not in fresh:
                counted[int(question.id[1:])] += 1
    open_ = np.mean([counted[i] for i in range(10)])
    settled = np.mean([counted[i] for i in range(10, 40)])
    assert open_ > 4 * settled > 0


def test_a_run_never_stays_with_its_first_questions() -> None:
    memory, asked = Difficulty(), set()
    for step in range(50):
        for question in memory.draw(numbered(40), 0, 7, step, 4, 0.9):
            memory.feed(0, question.id, 0.5)
            asked.add(question.id)
    assert len(asked) == 40


def test_a_rate_follows_the_policy_and_stages_are_apart() -> None:
    memory = Difficulty()
    memory.feed(0, "q", 1.0)
    memory.feed(0, "q", 0.0)
    memory.feed(1, "q", 0.0)
    assert memory.rates == pytest.approx({"0:q": 0.7, "1:q": 0.0})


def test_passing_needs_no_label_unless_truth_is_asked_for() -> None:
    marks, answers = {0: 1.0, 1: 0.0, 2: 0.0}, {0: "7", 1: "8", 2: "8"}
    assert passed(marks, answers, 5, "truth") == pytest.approx(0.2)
    assert passed(marks, answers, 5, "agreement") == pytest.approx(0.4)
    assert passed({}, {}, 5, "agreement") == 0


# The guide

RULES = PeerRules(agents=5, rounds=1)


def opposite(state: State, view: View) -> str:
    seats = sorted(view.names)
    pairs = zip(seats, seats[1:], strict=False)
    lines_ = "\n".join(f"Agent {b} > Agent {a}" for a, b in pairs)
    return wrap(state.protocol.slots[view.slot].sections, comparison=lines_)


def test_the_guide_answers_the_ballots_of_every_seat() -> None:
    transcript = play_peer(RULES, ranked)
    found = asyncio.run(guide_votes([transcript, transcript], ScriptedPlayer(opposite)))
    assert found.failed == 0
    assert len(found.votes) == 2
    own = {(v.author, frozenset((v.a, v.b))): v for v in transcript.votes}
    theirs = {(v.author, frozenset((v.a, v.b))): v for v in found.votes[0]}
    assert own.keys() == theirs.keys()
    assert all((v.a, v.b) == (theirs[key].b, theirs[key].a) for key, v in own.items())


def test_a_guide_that_fails_is_counted_and_does_no_harm() -> None:
    class Moody:
        async def speak(self, state: State, view: View) -> Reply:
            if view.seat == 1:
                raise EngineError("no")
            return await ScriptedPlayer(opposite).speak(state, view)

    transcript = play_peer(RULES, ranked)
    found = asyncio.run(guide_votes([transcript], Moody()))
    assert found.failed == 1
    assert {v.author.seat for v in found.votes[0]} == {0, 2, 3, 4}


def test_a_debate_without_ballots_has_nothing_to_guide() -> None:
    transcript = play_peer(PeerRules(agents=3, rounds=1, closing_ballot=False), ranked)
    assert asyncio.run(guide_votes([transcript], ScriptedPlayer(opposite))).votes == [()]


def test_its_weight_decays_in_a_straight_line_to_nothing() -> None:
    settings_ = BootstrapSettings("x", 0.8, 4)
    assert [settings_.share(s) for s in range(6)] == pytest.approx([0.8, 0.6, 0.4, 0.2, 0, 0])
    assert BootstrapSettings(weight=0.8).share(0) == 0


def test_a_guided_run_logs_the_weight_and_changes_what_judges_learn(tmp_path: Path) -> None:
    train = TrainSettings(steps=4, questions=3, save_every=4, eval_every=0, learning_rate=0.01)
    guided = recipe(
        tmp_path / "guided", train=train, bootstrap=BootstrapSettings("scripted", 1.0, 2)
    )
    alone = recipe(tmp_path / "alone", train=train)
    perform(guided)
    perform(alone)
    weights = [line.get("bootstrap/weight") for line in lines(guided)]
    assert weights == [1.0, 0.5, None, None]
    means = [[line["reward/judge/mean"] for line in lines(r)] for r in (guided, alone)]
    assert means[0][0] != means[1][0]


def test_a_guide_that_is_not_there_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    from rostra.learn.setup import check_start

    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "config.toml").write_text("")
    chosen = Recipe(
        model=ModelSettings(engine="scripted"),
        bootstrap=BootstrapSettings(str(tmp_path / "empty")),
    )
    with pytest.raises(ConfigError, match="holds no weights"):
        check_start(chosen)
