"""Learning from the best solutions of debates that were played before."""

import asyncio
from pathlib import Path

import pytest

from rostra.arena import Debate
from rostra.debate.peer import PeerRules, peer_v1
from rostra.debate.state import State
from rostra.debate.transcript import Transcript
from rostra.debate.views import View
from rostra.engines.bytechat import transcribe
from rostra.engines.scripted import ScriptedEngine
from rostra.errors import ConfigError
from rostra.learn.warmstart import WarmStart, best_solutions
from rostra.players.rehearsal import rehearsal
from rostra.players.scripted import ScriptedPlayer
from rostra.runs.folder import RunFolder, read_lines
from rostra.runs.settings import EvalSettings, ModelSettings, Recipe
from rostra.runs.syllabus import Phase
from rostra.runs.transcripts import dumps
from rostra.tasks.grading import Integers
from rostra.tasks.question import Question
from rostra.tasks.task import Task
from tests.learn.test_selfplay import Screen
from tests.playing import MALFORMED, played, wrap

QUESTION = Question("q", "q?", "7")
TASK = Task("known", [QUESTION], [], Integers())
RULES = PeerRules(agents=3, rounds=2)
SECTIONS = RULES.sections


def debate(rounds: list[str], votes: str = "", about: Question = QUESTION) -> Transcript:
    """What each seat answers in each round, `.` where it is malformed; the same votes by all."""

    def line(state: State, view: View) -> str:
        slot = state.protocol.slots[view.slot]
        if slot.kind == "ballot":
            return wrap(slot.sections, comparison=votes)
        said = rounds[slot.round].split()[view.seat]
        if said == ".":
            return MALFORMED
        return "So: " + wrap(slot.sections, solution=f"\\boxed{{{said}}}", evaluation="Fine.")

    return played(Debate.peer(about, RULES), ScriptedPlayer(line))


def test_right_solutions_are_found_in_every_round() -> None:
    ((_, texts),) = best_solutions([debate(["7 8 8", "8 7 ."])], TASK, "right", SECTIONS)
    assert len(texts) == 2
    assert all("\\boxed{7}" in text for text in texts)


def test_a_solution_of_a_later_round_is_told_as_if_alone() -> None:
    ((_, texts),) = best_solutions([debate(["8 8 8", "8 7 8"])], TASK, "right", SECTIONS)
    assert texts == [
        "<solution>\\boxed{7}</solution><evaluation>N/A</evaluation><comparison>N/A</comparison>"
    ]
    ((_, texts),) = best_solutions([debate(["8 7 8", "8 8 8"])], TASK, "right", SECTIONS)
    assert texts[0].startswith("So: <solution>")


def test_winners_are_those_that_the_votes_preferred_right_or_not() -> None:
    one = debate(["7 8 9", "7 8 9"], "Agent 1 > Agent 0\nAgent 1 > Agent 2")
    ((_, texts),) = best_solutions([one], TASK, "winners", SECTIONS)
    assert len(texts) == 1
    assert "\\boxed{8}" in texts[0]


def test_a_debate_without_a_winner_teaches_nothing() -> None:
    ties = debate(["7 8 9", "7 8 9"], "Agent 1 = Agent 0\nAgent 1 = Agent 2")
    assert best_solutions([ties, debate(["7 8 9", "7 8 9"])], TASK, "winners", SECTIONS) == []
    assert best_solutions([debate([". 8 8", "8 8 ."])], TASK, "right", SECTIONS) == []


def warm(path: Path, choose: str, transcripts: list[Transcript]) -> WarmStart:
    file = path / "debates.jsonl"
    file.write_text("".join(dumps(t) + "\n" for t in transcripts))
    recipe = Recipe(
        loop="warmstart",
        folder=str(path / "run"),
        model=ModelSettings(engine="scripted"),
        protocol=PeerRules(agents=5, rounds=1),
        eval=EvalSettings(questions=0),
        phases=(Phase("stored", 3, 2, path=str(file), choose=choose),),  # type: ignore[arg-type]
    )
    folder = RunFolder.open(recipe, resume=False, overwrite=False)
    engine = ScriptedEngine(rehearsal(), path / "weights")
    return WarmStart(recipe, TASK, engine, folder, Screen())


def test_a_phase_learns_the_winners_in_every_seat_and_nothing_else(tmp_path: Path) -> None:
    won = debate(["7 8 9", "7 8 9"], "Agent 1 > Agent 0\nAgent 1 > Agent 2")
    run = warm(tmp_path, "winners", [won])
    asyncio.run(run.run())
    losses = [line["loss"] for line in read_lines(tmp_path / "run" / "metrics.jsonl")]
    assert len(losses) == 3
    place = run._place(0)
    data = asyncio.run(run._data(place, 0))
    learned = [transcribe(d.targets[d.mask > 0]) for d in data]
    assert len(learned) == 5  # one seat each
    assert all("\\boxed{8}" in text and "\\boxed{7}" not in text for text in learned)
    run.folder.close()


def test_a_file_in_which_nothing_is_to_be_learned_is_refused(tmp_path: Path) -> None:
    run = warm(tmp_path, "right", [debate(["8 8 8", "8 8 8"])])
    with pytest.raises(ConfigError, match="no solution in it is to be learned"):
        asyncio.run(run.run())
    run.folder.close()


def test_only_a_stored_phase_can_choose() -> None:
    with pytest.raises(ConfigError, match="only a stored phase can choose"):
        Phase("debate", choose="winners")


def test_solutions_are_told_in_the_sections_that_are_learned() -> None:
    ((_, texts),) = best_solutions([debate(["7 8 8", "8 8 8"])], TASK, "right", peer_v1().sections)
    assert texts[0].endswith("<consensus>NO</consensus><consensus_reason>N/A</consensus_reason>")


def test_debates_about_held_out_questions_are_left_out(tmp_path: Path) -> None:
    other = Question("held", "held?", "7")
    run = warm(
        tmp_path, "right", [debate(["7 8 8", "8 8 8"]), debate(["7 8 8", "8 8 8"], about=other)]
    )
    run.task = Task("known", [QUESTION], [other], Integers())
    assert [d.question.id for d, _ in run._read(run.recipe.phases[0])] == ["q"]
    assert "1 debates are about held-out questions" in run.display.paper.getvalue()  # type: ignore[attr-defined]
    run.task = Task("known", [], [QUESTION, other], Integers())
    with pytest.raises(ConfigError, match="only held-out questions"):
        run._read(run.recipe.phases[0])
    run.folder.close()


def test_a_debate_that_a_malformed_reply_ended_is_not_spoken_again(tmp_path: Path) -> None:
    def line(state: State, view: View) -> str:
        return MALFORMED

    broken = played(Debate.peer(QUESTION, peer_v1(agents=3)), ScriptedPlayer(line))
    run = warm(tmp_path, "all", [broken])
    with pytest.raises(ConfigError, match="no debate in it was finished"):
        asyncio.run(run.run())
    run.folder.close()
