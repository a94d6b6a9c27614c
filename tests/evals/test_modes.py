"""The four modes, played whole by scripts, kept on a shelf, and gone on with."""

import asyncio
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rostra.debate.peer import PeerRules
from rostra.debate.state import State
from rostra.debate.transcript import Transcript
from rostra.debate.views import View
from rostra.errors import ArenaError, ConfigError, DataError, EngineError
from rostra.evals.accuracy import Row, summary
from rostra.evals.modes import MODES, Examination, Findings, Mode, Tally, examine
from rostra.evals.results import results
from rostra.evals.store import EvalFolder, read_rows, read_settings
from rostra.players.player import Player, Reply
from rostra.players.scripted import ScriptedPlayer
from rostra.tasks.grading import Integers
from rostra.tasks.question import Question
from rostra.tasks.task import Task
from tests.playing import MALFORMED, ranking, wrap

QUESTIONS = [Question(f"q{i}", f"question {i}", "7") for i in range(6)]
TASK = Task("known", [], QUESTIONS, Integers())
RULES = PeerRules(agents=3, rounds=2)


class Memory:
    """A shelf that forgets."""

    def __init__(self) -> None:
        self.kept: dict[Mode, dict[int, Transcript]] = {}

    def known(self, mode: Mode) -> Mapping[int, Transcript]:
        return self.kept.get(mode, {})

    def keep(self, mode: Mode, transcript: Transcript) -> None:
        self.kept.setdefault(mode, {})[transcript.seed] = transcript


def line(answer: Callable[[State, View], str]) -> Callable[[State, View], str]:
    def say(state: State, view: View) -> str:
        slot = state.protocol.slots[view.slot]
        solution = f"\\boxed{{{answer(state, view)}}}"
        return wrap(slot.sections, solution=solution, comparison=ranking(view))

    return say


def learner(state: State, view: View) -> str:
    """Wrong in the first round, right in the second, but for the last question."""
    first = state.protocol.slots[view.slot].round == 0
    return "8" if first or state.question.id == "q5" else "7"


def right(state: State, view: View) -> str:
    return "7"


def exam(**changes: Any) -> Examination:
    return Examination(**{"task": TASK, "questions": QUESTIONS, "rules": RULES} | changes)


def examined(
    mode: Mode, shelf: Any = None, players: Mapping[str, Player] | None = None, **changes: Any
) -> Findings:
    policy = ScriptedPlayer(line(learner))
    given = players or {"policy": policy, "opponent": ScriptedPlayer(line(right))}
    return asyncio.run(examine(mode, exam(**changes), given, shelf or Memory()))


def run(
    mode: Mode, shelf: Any = None, players: Mapping[str, Player] | None = None, **changes: Any
) -> list[Row]:
    return examined(mode, shelf, players, **changes).rows


class Moody:
    """Fails at some questions, or at some seats of them."""

    def __init__(self, *names: str, seat: int | None = None, text: str = "no") -> None:
        self._names = names
        self._seat = seat
        self._text = text

    async def speak(self, state: State, view: View) -> Reply:
        if state.question.id in self._names and self._seat in (None, view.seat):
            raise EngineError(self._text)
        return await ScriptedPlayer(line(right)).speak(state, view)


def test_direct_asks_every_opener_once() -> None:
    shelf = Memory()
    rows = run("direct", shelf, samples=3)
    assert [row.question for row in rows] == [q.id for q in QUESTIONS]
    assert [row.accuracy for row in rows] == [0] * 6
    assert all(len(t.turns) == 3 for t in shelf.kept["direct"].values())
    assert run("direct", samples=4)[0].measures["k"] == 4
    one = Memory()
    assert run("direct", one, samples=1)[0].measures["k"] == 1
    assert all(len(t.turns) == 1 for t in one.kept["direct"].values())


def test_a_debate_that_helps_is_above_a_vote_on_its_first_answers() -> None:
    rows = run("debate")
    assert [row.accuracy for row in rows] == [1, 1, 1, 1, 1, 0]
    assert summary(rows)["vote@first"].mean == 0


def test_roles_put_the_policy_into_every_seat_and_opponents_into_the_others() -> None:
    shelf = Memory()
    rows = run("roles", shelf)
    assert [row.accuracy for row in rows] == [1, 1, 1, 1, 1, 0]
    assert summary(rows)["opponents"].mean == 1
    seats = [
        tuple(seat.player for seat in t.protocol.seats)
        for t in shelf.kept["roles"].values()
        if t.question.id == "q0"
    ]
    assert sorted(seats) == [
        ("opponent", "opponent", "policy"),
        ("opponent", "policy", "opponent"),
        ("policy", "opponent", "opponent"),
    ]


def test_roles_without_an_opponent_are_refused() -> None:
    with pytest.raises(ConfigError, match="needs an opponent"):
        run("roles", players={"policy": ScriptedPlayer(line(right))})


def test_a_vote_spends_what_the_debate_of_its_question_took() -> None:
    shelf = Memory()
    debates = {row.question: row.tokens for row in run("debate", shelf)}
    rows = run("vote", shelf)
    for row in rows:
        assert row.measures["budget"] == debates[row.question]
        # The answer that crosses the budget is the last one.
        assert debates[row.question] <= row.tokens < debates[row.question] + 200
        assert row.accuracy == 0


def test_a_vote_without_debates_needs_a_budget() -> None:
    with pytest.raises(ConfigError, match="needs the mode debate before it, or a budget"):
        run("vote")
    assert {row.measures["k"] for row in run("vote", budget=1)} == {1}


def test_a_question_that_keeps_failing_is_left_out_and_counted() -> None:
    shelf = Memory()
    for _ in range(2):  # the second time it is the only one that is missing
        found = examined("debate", shelf, players={"policy": Moody("q3")})
        assert [row.question for row in found.rows] == ["q0", "q1", "q2", "q4", "q5"]
        assert found.tally == Tally(6, 1, "EngineError: no")
        assert found.tally.notes() == ["1 of 6 questions failed: EngineError: no"]
    votes = examined("vote", shelf, players={"policy": Moody("q3")})
    assert [row.question for row in votes.rows] == ["q0", "q1", "q2", "q4", "q5"]
    assert votes.tally.notes() == [
        "1 of 6 questions failed: their debates failed, so there are no tokens to spend"
    ]
    assert examined("debate", shelf).tally == Tally(6)
    assert Tally(6).notes() == []
    with pytest.raises(ArenaError):
        run("debate", Memory(), players={"policy": Moody("q3")}, questions=[QUESTIONS[3]])


def test_an_error_is_told_in_one_line() -> None:
    found = examined("debate", players={"policy": Moody("q3", text="line\n" * 100)})
    error = found.tally.error or ""
    assert error.startswith("EngineError: line line")
    assert len(error) == 200 and "\n" not in error


def test_a_question_counts_in_roles_where_the_policy_had_every_seat() -> None:
    players = {"policy": Moody("q1", seat=2), "opponent": ScriptedPlayer(line(right))}
    found = examined("roles", players=players)
    assert [row.question for row in found.rows] == ["q0", "q2", "q3", "q4", "q5"]
    assert {row.measures["k"] for row in found.rows} == {3}
    assert (found.tally.asked, found.tally.failed) == (6, 1)
    with pytest.raises(ArenaError, match="no question could be finished.*EngineError: no"):
        examined("roles", players=players, questions=[QUESTIONS[1]])


class Tired:
    """Answers one question so often, and never again."""

    def __init__(self, name: str, times: int) -> None:
        self._name = name
        self._left = times

    async def speak(self, state: State, view: View) -> Reply:
        if state.question.id == self._name:
            self._left -= 1
            if self._left < 0:
                raise EngineError("no more")
        return await ScriptedPlayer(line(right)).speak(state, view)


@pytest.mark.parametrize(("mode", "more"), [("direct", {"samples": 9}), ("vote", {"budget": 600})])
def test_a_question_with_only_some_of_its_answers_is_left_out_until_it_has_all(
    mode: Mode, more: dict[str, int]
) -> None:
    shelf = Memory()
    found = examined(mode, shelf, players={"policy": Tired("q1", 4)}, **more)
    assert [row.question for row in found.rows] == ["q0", "q2", "q3", "q4", "q5"]
    assert found.tally == Tally(6, 1, "EngineError: no more")
    steady = {"policy": ScriptedPlayer(line(right))}
    resumed, fresh = (examined(mode, on, players=steady, **more) for on in (shelf, Memory()))
    assert resumed.rows == fresh.rows and len(resumed.rows) == 6


@pytest.mark.parametrize("mode", MODES)
def test_questions_without_a_known_answer_are_left_out_and_counted(mode: Mode) -> None:
    unknown = [Question(f"u{i}", f"unknown {i}") for i in range(2)]
    shelf = Memory()
    found = examined(mode, shelf, questions=[*QUESTIONS, *unknown], budget=1)
    assert [row.question for row in found.rows] == [q.id for q in QUESTIONS]
    assert found.tally == Tally(6, ungraded=2)
    assert found.measures["accuracy"] == examined(mode, budget=1).measures["accuracy"]
    assert found.tally.notes() == ["2 of 8 questions have no known answer and were not asked."]


# On disk


def settings(**changes: Any) -> dict[str, Any]:
    return {"subject": "x", "seed": 0, "modes": ["direct"]} | changes


def test_a_folder_is_gone_on_with_where_it_was(tmp_path: Path) -> None:
    folder = EvalFolder.open(tmp_path / "e", settings(), resume=False, overwrite=False)
    whole = run("debate", folder)
    folder.close()
    calls = 0

    class Counted:
        async def speak(self, state: State, view: View) -> Reply:
            nonlocal calls
            calls += 1
            return await ScriptedPlayer(line(learner)).speak(state, view)

    again = EvalFolder.open(tmp_path / "e", settings(), resume=True, overwrite=False)
    assert run("debate", again, {"policy": Counted()}) == whole
    assert calls == 0
    again.close()


@pytest.mark.parametrize("cut", [1, 40, 300])
def test_a_torn_end_is_played_again(tmp_path: Path, cut: int) -> None:
    folder = EvalFolder.open(tmp_path / "e", settings(), resume=False, overwrite=False)
    whole = run("debate", folder)
    folder.close()
    file = tmp_path / "e" / "transcripts" / "debate.jsonl.zst"
    os.truncate(file, file.stat().st_size - cut)
    again = EvalFolder.open(tmp_path / "e", settings(), resume=True, overwrite=False)
    assert 0 < len(again.known("debate")) < 6
    assert run("debate", again) == whole
    assert len(EvalFolder(tmp_path / "e", {}).known("debate")) == 6
    again.close()


def test_an_evaluation_is_not_replaced_or_mixed_silently(tmp_path: Path) -> None:
    place = tmp_path / "e"
    first = EvalFolder.open(place, settings(), resume=False, overwrite=False)
    run("debate", first)
    first.close()
    with pytest.raises(ConfigError, match="there is an evaluation already"):
        EvalFolder.open(place, settings(), resume=False, overwrite=False)
    with pytest.raises(ConfigError, match="other settings .seed: 0 -> 1"):
        EvalFolder.open(place, settings(seed=1), resume=True, overwrite=False)
    more = EvalFolder.open(place, settings(modes=["debate"]), resume=True, overwrite=False)
    with pytest.raises(ConfigError, match="another process"):
        EvalFolder.open(place, settings(), resume=True, overwrite=False)
    more.close()
    assert read_settings(place)["modes"] == ["direct", "debate"]
    anew = EvalFolder.open(place, settings(seed=1), resume=False, overwrite=True)
    assert read_settings(place)["seed"] == 1
    assert not anew.known("debate")
    anew.close()


def test_who_comes_second_leaves_the_folder_of_the_first_alone(tmp_path: Path) -> None:
    first = EvalFolder.open(tmp_path / "e", settings(), resume=False, overwrite=False)
    for flags in ({"resume": True, "overwrite": False}, {"resume": False, "overwrite": True}):
        with pytest.raises(ConfigError, match="another process"):
            EvalFolder.open(tmp_path / "e", settings(), **flags)
    assert (tmp_path / "e" / "eval.json").exists()
    run("debate", first)
    first.close()
    with pytest.raises(ConfigError, match="not both"):
        EvalFolder.open(tmp_path / "e", settings(), resume=True, overwrite=True)
    assert len(EvalFolder(tmp_path / "e", {}).known("debate")) == 6


def test_a_folder_in_which_nothing_was_kept_leaves_no_trace(tmp_path: Path) -> None:
    EvalFolder.open(tmp_path / "e", settings(), resume=False, overwrite=False).close()
    assert not (tmp_path / "e").exists()


def test_a_folder_that_is_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match="left alone"):
        EvalFolder.open(tmp_path, settings(), resume=False, overwrite=True)
    assert (tmp_path / "thesis.tex").exists()


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    folder = EvalFolder.open(tmp_path / "e", settings(), resume=False, overwrite=False)
    rows = run("debate", folder)
    with pytest.raises(DataError, match="has not ended"):
        read_rows(tmp_path / "e")
    found_out = Findings(rows, summary(rows), Tally(7, 1, "why"))
    folder.write({"debate": rows}, results({"debate": found_out}))
    folder.close()
    found = read_rows(tmp_path / "e")["debate"]
    assert [found[row.question]["accuracy"] for row in rows] == [row.accuracy for row in rows]
    kept = json.loads((tmp_path / "e" / "results.json").read_text())
    assert kept["debate"]["accuracy"]["mean"] == pytest.approx(5 / 6)
    said = [kept["debate"][name] for name in ("questions", "asked", "failed", "error")]
    assert said == [6, 7, 1, "why"]


def test_killed_and_resumed_it_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    """kill -9 while it plays; the command goes on and finds the same numbers."""
    command = [sys.executable, "-m", "rostra", "eval", "scripted", "--task", "shop"]
    command += ["--questions", "16", "--mode", "all", "--opponent", "scripted"]
    whole = [*command, "--out", str(tmp_path / "whole")]
    assert subprocess.run(whole, capture_output=True, cwd=tmp_path).returncode == 0
    part = [*command, "--out", str(tmp_path / "part"), "--resume"]
    modes: tuple[Mode, ...] = ("debate", "vote", "roles")
    for mode in modes:
        killed = subprocess.Popen(part, stdout=-3, stderr=-3, cwd=tmp_path)
        file = tmp_path / "part" / "transcripts" / f"{mode}.jsonl.zst"
        deadline = time.monotonic() + 120
        while not (file.exists() and file.stat().st_size):
            assert killed.poll() is None, f"it ended before mode {mode} had begun"
            assert time.monotonic() < deadline, f"mode {mode} does not begin"
            time.sleep(0.005)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        begun, all_ = (len(EvalFolder(tmp_path / n, {}).known(mode)) for n in ("part", "whole"))
        assert begun < all_
    # The folder knows which modes it was asked for.
    words = [word for word in part if word not in ("--mode", "all")]
    assert subprocess.run(words, capture_output=True, cwd=tmp_path).returncode == 0
    for name in ("rows.jsonl", "results.json"):
        assert (tmp_path / "part" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert set(json.loads((tmp_path / "part" / "results.json").read_text())) == set(MODES)


# Without a right answer

OPEN = [Question(f"w{i}", f"Write about {i}.") for i in range(8)]
WRITING = Task("writing", [], OPEN, Integers())


def wordy(count: int) -> Callable[[State, View], str]:
    def say(state: State, view: View) -> str:
        sections = state.protocol.slots[view.slot].sections
        return wrap(sections, solution="word " * count)

    return say


def prefers(better: str) -> Callable[[State, View], str]:
    """A judge who knows who sits where."""

    def say(state: State, view: View) -> str:
        seats = state.protocol.seats
        won = next(seat.index for seat in seats if seat.player == better)
        sections = state.protocol.slots[view.slot].sections
        return wrap(sections, comparison=f"Agent {won} > Agent {1 - won}")

    return say


def test_writing_is_judged_by_those_who_did_not_play() -> None:
    players = {
        "policy": ScriptedPlayer(wordy(30)),
        "opponent": ScriptedPlayer(wordy(10)),
        "judge": ScriptedPlayer(prefers("policy")),
    }
    asked = Examination(WRITING, OPEN, RULES)
    found = asyncio.run(examine("roles", asked, players, Memory()))
    assert [row.accuracy for row in found.rows] == [1.0] * 8
    assert found.measures["win_rate"].mean == 1
    assert found.measures["length_difference"].mean == 20
    # Of one debate; a question has two of them.
    tokens = found.measures["tokens"].mean
    assert tokens == found.measures["tokens_per_question"].mean / 2 > 0
    with pytest.raises(ConfigError, match="have no right answer; use mode roles"):
        asyncio.run(examine("direct", asked, players, Memory()))
    with pytest.raises(ConfigError, match="a judge that does not play"):
        asyncio.run(examine("roles", asked, {**players, "judge": players["policy"]}, Memory()))


@pytest.mark.parametrize("order", [0, 1])
def test_writing_that_failed_in_one_order_is_left_out_in_both(order: int) -> None:
    class Half:
        async def speak(self, state: State, view: View) -> Reply:
            policy = [seat.player for seat in state.protocol.seats].index("policy")
            if state.question.id == "w1" and policy == order:
                raise EngineError("no")
            return await ScriptedPlayer(prefers("policy")).speak(state, view)

    players = {
        "policy": ScriptedPlayer(wordy(30)),
        "opponent": ScriptedPlayer(wordy(10)),
        "judge": Half(),
    }
    found = asyncio.run(examine("roles", Examination(WRITING, OPEN, RULES), players, Memory()))
    assert [row.question for row in found.rows] == ["w0", *(f"w{i}" for i in range(2, 8))]
    assert found.tally == Tally(8, 1, "EngineError: no")
    with pytest.raises(ArenaError, match="in both orders.*EngineError: no"):
        asked = Examination(WRITING, OPEN[1:2], RULES)
        asyncio.run(examine("roles", asked, players, Memory()))


def test_writing_that_is_malformed_on_both_sides_is_counted_and_paid_for() -> None:
    def mute(state: State, view: View) -> str:
        return MALFORMED if state.question.id < "w3" else wordy(30)(state, view)

    players = {
        "policy": ScriptedPlayer(mute),
        "opponent": ScriptedPlayer(mute),
        "judge": ScriptedPlayer(prefers("policy")),
    }
    found = asyncio.run(examine("roles", Examination(WRITING, OPEN, RULES), players, Memory()))
    assert [row.question for row in found.rows] == [f"w{i}" for i in range(3, 8)]
    assert found.tally == Tally(8, 3, "both answers are malformed, or no judge voted")
    assert found.measures["malformed/policy"].mean == 3 / 8
    assert found.measures["win_rate"].mean == 1
    asked = Examination(WRITING, OPEN[:3], RULES)
    silent = asyncio.run(examine("roles", asked, players, Memory()))
    assert silent.tally.failed == 3 and math.isnan(silent.measures["win_rate"].mean)
    assert silent.measures["tokens"].mean > 0


def test_several_judges_have_a_seat_each_and_one_alone_fills_three() -> None:
    players: dict[str, Player] = {
        "policy": ScriptedPlayer(wordy(30)),
        "opponent": ScriptedPlayer(wordy(10)),
        "judge": ScriptedPlayer(prefers("policy")),
    }
    asked = Examination(WRITING, OPEN, RULES)
    alone, several = Memory(), Memory()
    asyncio.run(examine("roles", asked, players, alone))
    assert {t.protocol.seats[-1].index for t in alone.kept["roles"].values()} == {4}
    players["judge 2"] = ScriptedPlayer(prefers("opponent"))
    found = asyncio.run(examine("roles", asked, players, several))
    assert {t.protocol.seats[-1].index for t in several.kept["roles"].values()} == {3}
    # The two never agree.
    assert {row.accuracy for row in found.rows} == {0.5}
    assert found.measures["agreement"].mean < 0
    for player in ("policy", "opponent"):
        with pytest.raises(ConfigError, match="a judge that does not play"):
            plays = {**players, "judge 2": players[player]}
            asyncio.run(examine("roles", asked, plays, Memory()))
