"""`rostra eval` and `rostra compare`, run as commands."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from rostra.cli import eval as eval_
from rostra.cli.tables import print_table
from rostra.debate.state import State
from rostra.debate.views import View
from rostra.errors import EngineError
from rostra.evals.store import EvalFolder
from rostra.players.player import Player, Reply
from rostra.players.scripted import ScriptedPlayer
from rostra.runs.recipe import to_toml
from rostra.runs.settings import ModelSettings, Recipe
from rostra.runs.syllabus import TaskSettings
from rostra.tasks.sums import sums
from tests.cli.inside import inside
from tests.playing import answer

ENVIRONMENT = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}


def rostra(*words: str, cwd: Path, columns: int = 200) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rostra", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**ENVIRONMENT, "COLUMNS": str(columns)},
    )


def compare(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return inside("compare", *words, cwd=cwd, COLUMNS="200", NO_COLOR="1")


def scripted(cwd: Path, *words: str, out: str = "one") -> subprocess.CompletedProcess[str]:
    common = ("eval", "scripted", "--task", "sums", "--questions", "12", "--opponent", "scripted")
    return rostra(*common, "--out", out, *words, cwd=cwd)


def test_all_four_modes_are_in_one_table_with_intervals_and_tokens(tmp_path: Path) -> None:
    done = scripted(tmp_path, "--mode", "all", "--price", "1,4")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    heads = "mode accuracy 95% tokens dollars format vote@k winner pass@k cons@k votes right"
    assert " ".join(lines[0].split()) == heads
    assert [line.split()[0] for line in lines[1:5]] == ["direct", "debate", "vote", "roles"]
    assert all(re.search(r"\d+-\d+", line) for line in lines[1:5])
    results = json.loads((tmp_path / "one" / "results.json").read_text())
    debate, vote = results["debate"], results["vote"]
    assert vote["tokens"]["mean"] == pytest.approx(debate["tokens"]["mean"], rel=0.2)
    # One answer costs less than a fifth of a debate of five who speak more than once.
    assert 0 < results["direct"]["tokens"]["mean"] < debate["tokens"]["mean"] / 5
    assert results["roles"]["tokens"]["mean"] == pytest.approx(debate["tokens"]["mean"], rel=0.2)
    assert {results[mode]["asked"] for mode in results} == {12}
    assert 0 < debate["accuracy"]["low"] <= debate["accuracy"]["mean"] <= debate["accuracy"]["high"]
    spent = debate["prompt_tokens"]["mean"], debate["tokens"]["mean"]
    assert debate["dollars"]["mean"] == pytest.approx((spent[0] * 1 + spent[1] * 4) / 1e6)
    assert set(debate["against"]) == {"first", "vote", "vote/winner"}
    gain = debate["vote@k"]["mean"] - debate["vote@first"]["mean"]
    assert debate["against"]["first"]["difference"] == pytest.approx(gain)
    assert "a vote on the first answers" in done.stdout
    page = (tmp_path / "one" / "report.html").read_text()
    assert "Accuracy and cost" in page and "Dollars" in page
    assert "<p>debate: a vote on the first answers is right" in page
    assert "<p>debate against vote, for the same tokens" in page
    assert "<script" not in page


def test_in_a_narrow_terminal_columns_are_left_out_and_named_and_none_is_cut() -> None:
    rows = [["direct", "47.0%", "39-55", "1,607", "87.0%"], ["roles", "7.0%", "1-9", "9", "·"]]
    heads = ["mode", "accuracy", "95%", "tokens", "format"]
    for width, room in ((80, True), (40, True), (32, False)):
        screen = Console(width=width, file=io.StringIO())
        print_table(screen, heads, rows, heads[:4], "results.json")
        said = screen.file.getvalue()  # type: ignore[attr-defined]
        lines = said.splitlines()
        assert lines[0].split() == (heads if room else heads[:4]), width
        note = "Left out for want of room: format; see results.json."
        assert (note in " ".join(said.split())) is not room
        assert "…" not in said


def test_a_second_run_is_refused_and_resuming_plays_nothing_again(tmp_path: Path) -> None:
    assert scripted(tmp_path, "--mode", "direct").returncode == 0
    again = scripted(tmp_path, "--mode", "direct")
    assert again.returncode == 2
    assert "--resume" in again.stderr
    file = tmp_path / "one" / "transcripts" / "direct.jsonl.zst"
    before = file.read_bytes()
    more = scripted(tmp_path, "--mode", "debate", "--resume")
    assert more.returncode == 0, more.stderr
    assert file.read_bytes() == before
    assert set(json.loads((tmp_path / "one" / "results.json").read_text())) == {"direct", "debate"}
    other = scripted(tmp_path, "--mode", "direct", "--resume", "--seed", "3")
    assert "seed: 0 -> 3" in other.stderr


def test_resuming_without_modes_goes_on_with_those_that_were_asked_for(tmp_path: Path) -> None:
    assert scripted(tmp_path, "--mode", "direct", "--mode", "roles").returncode == 0
    before = (tmp_path / "one" / "results.json").read_bytes()
    again = scripted(tmp_path, "--resume")
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "one" / "results.json").read_bytes() == before
    assert not (tmp_path / "one" / "transcripts" / "debate.jsonl.zst").exists()
    file = tmp_path / "one" / "eval.json"
    said = {key: value for key, value in json.loads(file.read_text()).items() if key != "modes"}
    file.write_text(json.dumps(said))
    edited = scripted(tmp_path, "--resume")
    assert edited.returncode == 2
    assert "names no modes" in edited.stderr
    assert "Traceback" not in edited.stderr


def test_questions_that_failed_are_counted_and_results_are_written_under_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Moody:
        async def speak(self, state: State, view: View) -> Reply:
            if int(state.question.id[-1]) % 2:
                raise EngineError("the plug was pulled")
            return await ScriptedPlayer(answer).speak(state, view)

    async def player(*_: object) -> Player:
        return Moody()

    locked = []
    write = EvalFolder.write

    def watched(folder: EvalFolder, *results: object) -> None:
        locked.append(folder._lock is not None)
        write(folder, *results)  # type: ignore[arg-type]

    monkeypatch.setattr(eval_, "_player", player)
    monkeypatch.setattr(EvalFolder, "write", watched)
    words = ["scripted", "--task", "sums", "--questions", "8", "--out", str(tmp_path / "one")]
    done = CliRunner().invoke(eval_.command, [*words, "--mode", "debate"])
    assert done.exit_code == 0, done.output
    assert locked == [True]
    found = json.loads((tmp_path / "one" / "results.json").read_text())["debate"]
    assert found["asked"] == 8
    assert 0 < found["failed"] < 8
    assert found["questions"] == 8 - found["failed"]
    said = f"debate: {found['failed']} of 8 questions failed: EngineError: the plug was pulled"
    assert said in done.output
    assert said in (tmp_path / "one" / "report.html").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--mode", "vote"), "add --mode debate, or --budget"),
        (("--step", "3"), "is no run"),
        (("--mode", "roles", "--opponent", "start"), "began with nothing"),
        (("--price", "cheap"), "two numbers with a comma"),
        (("--price=-1,2",), "not below 0"),
        (("--price", "nan,1"), "not below 0"),
        (("--price", "0.1,inf"), "not below 0"),
        (("--part", "validation"), "task sums has no such questions"),
        (("protocol.agent=3",), "did you mean"),
        (("--recipe", "peer-v2-sum"), "did you mean"),
    ],
)
def test_what_cannot_be_is_one_sentence(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = scripted(tmp_path, *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "one").exists()


def test_two_evaluations_are_compared_question_by_question(tmp_path: Path) -> None:
    for name, seed in (("one", "0"), ("two", "0")):
        assert scripted(tmp_path, "--mode", "all", "--seed", seed, out=name).returncode == 0
    rows = tmp_path / "two" / "rows.jsonl"
    lines = [json.loads(line) for line in rows.read_text().splitlines()]
    for line in lines:
        if line["mode"] == "direct":
            line["accuracy"] = 0.0
    rows.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = compare("one", "two", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    table = {line.split()[0]: line for line in done.stdout.splitlines() if line}
    assert table["debate"].split()[-1] == "12"  # all equal
    assert "-" in table["direct"].split()[3]
    same = compare("one", "two", "--measure", "tokens", cwd=tmp_path)
    assert "+0.0" in same.stdout


def test_what_has_not_been_evaluated_cannot_be_compared(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    done = compare("run", "run", cwd=tmp_path)
    assert done.returncode == 2
    assert "make them with `rostra eval`" in done.stderr
    assert "no such run" in compare("a", "b", cwd=tmp_path).stderr


def test_writing_without_right_answers_needs_a_judge(tmp_path: Path) -> None:
    (tmp_path / "w.jsonl").write_text(
        "".join(json.dumps({"prompt": f"Write about {i}."}) + "\n" for i in range(8))
    )
    task = ("--task", "longwriter", "--path", "w.jsonl", "--part", "train", "--questions", "4")
    done = rostra("eval", "scripted", *task, "--mode", "direct", cwd=tmp_path)
    assert "have no right answer" in done.stderr
    roles = ("--mode", "roles", "--opponent", "scripted")
    done = rostra("eval", "scripted", *task, *roles, "--judge", "scripted", cwd=tmp_path)
    assert "neither the policy nor its opponent" in done.stderr
    judges = ("--judge", "toy", "--judge", "scripted")
    done = rostra("eval", "scripted", *task, *roles, *judges, cwd=tmp_path)
    assert "neither the policy nor its opponent" in done.stderr
    done = rostra("eval", "scripted", *task, *roles, *["--judge", "toy"] * 2, cwd=tmp_path)
    assert "a model is there twice" in done.stderr


def test_every_judge_that_is_named_has_a_seat(tmp_path: Path) -> None:
    (tmp_path / "w.jsonl").write_text(
        "".join(json.dumps({"prompt": f"Write about {i}."}) + "\n" for i in range(4))
    )
    words = ["eval", "scripted", "protocol.max_tokens=8", "--task", "longwriter", "--path"]
    words += ["w.jsonl", "--part", "train", "--questions", "2", "--mode", "roles", "--opponent"]
    words += ["scripted", "--judge", "toy", "--judge", "toy-sums", "--out", "one"]
    done = rostra(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    asked = json.loads((tmp_path / "one" / "eval.json").read_text())
    assert asked["judge"] == ["toy", "toy-sums"]
    assert list(asked["weights"]) == ["policy", "opponent", "judge", "judge 2"]
    for transcript in EvalFolder(tmp_path / "one", {}).known("roles").values():
        assert [seat.role for seat in transcript.protocol.seats[2:]] == ["judge"] * 2
    other = rostra(*words[:-4], "--out", "one", "--resume", cwd=tmp_path)
    assert 'judge: ["toy", "toy-sums"] -> "toy"' in other.stderr


def test_who_is_missing_is_missed_before_anything_is_played(tmp_path: Path) -> None:
    words = ("eval", "scripted", "--task", "sums", "--mode", "all", "--questions", "2")
    done = inside(*words, "--opponent", "http://127.0.0.1:9/v1#m", "--out", "one", cwd=tmp_path)
    assert done.returncode == 2
    assert "http://127.0.0.1:9/v1 does not answer" in done.stderr
    assert "nothing is kept. Try again with: rostra eval scripted" in done.stderr
    assert not list(tmp_path.glob("one/transcripts/*"))


def test_resuming_what_is_not_there_is_told(tmp_path: Path) -> None:
    words = ("eval", "scripted", "--task", "sums", "--mode", "direct", "--questions", "2")
    done = inside(*words, "--out", "typo", "--resume", cwd=tmp_path)
    assert done.returncode == 0
    assert "note: typo holds nothing to go on with; this begins anew" in done.stderr


def test_a_comparison_minds_the_task_and_only_settings_that_were_read(tmp_path: Path) -> None:
    words = ("eval", "scripted", "--task", "sums", "--mode", "direct", "--questions", "4")
    for name, opponent in (("one", "base"), ("two", "scripted")):
        done = inside(*words, "--opponent", opponent, "--out", name, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    fine = compare("one", "two", "--task", "sums", cwd=tmp_path)
    assert (fine.returncode, fine.stderr) == (0, "")
    wrong = compare("one", "two", "--task", "smus", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "--task smus: one was not evaluated on it, did you mean sums?" in wrong.stderr


def test_other_opponents_under_the_same_name_are_warned_about(tmp_path: Path) -> None:
    for name, opponent in (("one", "scripted#"), ("two", "local#toy")):
        done = scripted(tmp_path, "--mode", "roles", "--questions", "2", out=name)
        assert done.returncode == 0, done.stderr
        file = tmp_path / name / "eval.json"
        kept = json.loads(file.read_text())
        assert kept["weights"]["opponent"] == "scripted#"
        file.write_text(json.dumps(kept | {"weights": kept["weights"] | {"opponent": opponent}}))
    done = compare("one", "two", "--measure", "tokens", cwd=tmp_path)
    assert "the two differ in who the others are" in done.stderr
    assert "higher" in done.stdout and "better" not in done.stdout


def test_a_run_is_asked_nothing_that_it_was_trained_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    model, task = ModelSettings(engine="scripted"), TaskSettings(name="sums", below=10)
    (run / "config.toml").write_text(to_toml(Recipe(model=model, task=task)))
    words = ("eval", "run", "--mode", "direct", "--questions", "1000", "--samples", "1")
    done = inside(*words, "task.below=30", "--out", "one", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"note: run was trained on \d+ of these questions; left out", done.stderr)
    lines = (tmp_path / "one" / "rows.jsonl").read_text().splitlines()
    asked = {json.loads(line)["question"] for line in lines}
    assert asked and not asked & {question.id for question in sums(10).train}
    same = inside(*words, "--out", "two", cwd=tmp_path)
    assert same.returncode == 0 and "note" not in same.stderr
