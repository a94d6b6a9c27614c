"""The commands, as a person or a pipe meets them."""

import asyncio
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import zstandard
from rich.cells import cell_len

from rostra.arena import Debate
from rostra.cli import main
from rostra.debate.judged import consultancy
from rostra.debate.peer import peer_v2
from rostra.engines.scripted import ScriptedEngine
from rostra.players.model import ModelPlayer
from rostra.players.rehearsal import rehearsal
from rostra.players.scripted import ScriptedPlayer
from rostra.runs.transcripts import dumps
from rostra.tasks.question import Question
from tests.cli.inside import environment, put_back
from tests.cli.inside import inside as rostra
from tests.playing import played

ASK = "What is 17 * 24?"
SCRIPTED = ("--engine", "scripted")


def process(*arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """The command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "rostra", *map(str, arguments)],
        input=stdin,
        env=environment(),
        capture_output=True,
        timeout=120,
    )


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A stored debate."""
    path = tmp_path / "kept" / "debate.json"
    assert rostra("debate", ASK, "--agents", 4, "--rounds", 2, "--out", path).returncode == 0
    return path


def test_a_debate_in_a_pipe_is_plain_lines_with_votes_and_rewards() -> None:
    done = process("debate", ASK, "--seed", 3, "--stop-on-agreement", 0, *SCRIPTED)
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode()
    assert "\x1b" not in text
    assert "\r" not in text
    assert text.startswith(f"{ASK}\npeer-v2: 5 seats, 3 rounds, at most 20 turns, seed 3\n")
    assert text.count(", round 1\n") == text.count(", round 3\n") == 5
    assert text.count(", ballot\n") == 5
    assert len(re.findall(r"^  votes: \d [>=] \d", text, re.MULTILINE)) > 5
    assert "Ended after 3 rounds: all rounds were played.\n" in text
    assert "votes: row preferred to column" in text
    for title in ("gen reward (advantage)", "judge reward (advantage)"):
        table = text[text.index(title) :].splitlines()[2:7]
        assert [row[:7] for row in table] == [f"Agent {i}" for i in range(5)]
        assert all(re.search(r"[+-]\d\.\d\d \([+-]\d\.\d\d\)|·", row) for row in table)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    first, again = (process("debate", ASK, "--seed", 5).stdout for _ in range(2))
    assert first == again
    assert first.decode() == rostra("debate", ASK, "--seed", 5).stdout
    assert first.decode().replace("seed 5", "seed 6") != rostra("debate", ASK, "--seed", 6).stdout


def test_the_first_preset_is_played_and_scored_by_its_own_rules() -> None:
    done = rostra("debate", ASK, "--protocol", "peer-v1", "--agents", 3, "--rounds", 2, *SCRIPTED)
    assert (done.returncode, done.stderr) == (0, "")
    assert "peer-v1: 3 seats, 2 rounds, at most 6 turns, seed 0" in done.stdout
    assert "win_rate (advantage)" in done.stdout


def test_a_question_may_come_from_standard_input() -> None:
    done = rostra("debate", "-", "--rounds", 1, stdin="  Où est-ce ?\n".encode())
    assert done.returncode == 0
    assert done.stdout.startswith("Où est-ce ?\npeer-v2")


def test_settings_of_a_file_and_of_the_command_line_are_used(tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    file.write_text('[protocol]\npreset = "peer-v1"\nrounds = 5\nagents = 4\n')
    done = rostra("debate", ASK, "--config", file, "--rounds", 1, "--set", "name=mine")
    assert done.returncode == 0
    assert "mine: 4 seats, 1 round, at most 4 turns" in done.stdout


def test_a_kept_debate_is_shown_as_it_was_played(tmp_path: Path) -> None:
    path = tmp_path / "new" / "debate.json.zst"
    debate = rostra("debate", ASK, "--out", path)
    assert debate.stdout.endswith(f"\nKept in {path}. Look again: rostra show {path}\n")
    show = rostra("show", path)
    assert (show.returncode, show.stderr) == (0, "")
    blocks = debate.stdout.removesuffix(f"\nKept in {path}. Look again: rostra show {path}\n")
    assert show.stdout == blocks
    assert [p.name for p in path.parent.iterdir()] == ["debate.json.zst"]


def test_a_kept_debate_scored_by_its_own_rules_has_the_same_numbers(tmp_path: Path) -> None:
    path = tmp_path / "debate.json"
    debate = rostra("debate", ASK, "--seed", 3, "--stop-on-agreement", 0, "--out", path)
    again = rostra("rescore", path)
    assert again.returncode == 0
    place, _, tables = again.stdout.partition("\n")
    assert place.startswith(f"{path}: ")
    assert tables.strip() in debate.stdout

    data = json.loads(rostra("rescore", path, "--json").stdout)
    assert data["rules"]["reward"] == "streams"
    assert data["rules"]["consensus"] == "leave_one_out"
    [scored] = data["debates"]
    assert f"{path}: {scored['votes']} votes" == place
    cells = {
        (r["seat"], r["round"], r["stream"]): "·"
        if r["reward"] is None
        else f"{r['reward']:+.2f} ({r['advantage']:+.2f})"
        for r in scored["rewards"]
    }
    for stream, columns in (("gen", 3), ("judge", 4)):
        begins = debate.stdout.index(f"{stream} reward (advantage)")
        table = debate.stdout[begins:].splitlines()[2:7]
        for seat, row in enumerate(table):
            assert re.split(r"\s{2,}", row) == [
                f"Agent {seat}",
                *[cells[seat, round_, stream] for round_ in range(columns)],
            ]


def test_a_kept_debate_can_be_scored_by_other_rules(kept: Path) -> None:
    options = ["--reward", "win_minus_loss", "--consensus", "majority", "--format-penalty", "0.25"]
    done = rostra("rescore", kept, *options, "--baseline", "batch", "--scale", "--json")
    data = json.loads(done.stdout)
    assert data["rules"] == {
        "reward": "win_minus_loss",
        "consensus": "majority",
        "format_penalty": 0.25,
        "truth": 0.0,
        "judge_truth": 0.0,
        "baseline": "batch",
        "scale": True,
        "control": "none",
    }
    rewards = data["debates"][0]["rewards"]
    assert [(r["seat"], r["round"]) for r in rewards] == [(i, None) for i in range(4)]
    assert sum(r["advantage"] for r in rewards) == pytest.approx(0, abs=1e-9)
    assert "win_minus_loss (advantage)" in rostra("rescore", kept, *options).stdout


def test_numbers_that_are_unknown_are_null_in_json(tmp_path: Path) -> None:
    path = tmp_path / "debate.json"
    rostra("debate", ASK, "--agents", 3, "--set", "history_rounds=0", "--out", path)
    data = json.loads(
        rostra("rescore", path, "--json").stdout, parse_constant=lambda c: pytest.fail(c)
    )
    assert data["metrics"]["v2/missing_comparisons"] is None
    assert data["metrics"]["pairwise_total_votes"] == 0


def many(folder: Path, kept: Path, *changes: dict[str, Any]) -> Path:
    """A run directory with the kept debate once for every change of its rules."""
    base = json.loads(kept.read_text("utf-8"))
    lines = [json.dumps(base | {"rules": base["rules"] | change}) for change in changes]
    (folder / "transcripts").mkdir()
    path = folder / "transcripts" / "step.jsonl.zst"
    path.write_bytes(zstandard.compress("\n".join(lines).encode()))
    return folder


def test_many_debates_are_rescored_as_means(kept: Path, tmp_path: Path) -> None:
    run = many(tmp_path, kept, {}, {}, {})
    done = rostra("rescore", run)
    assert done.returncode == 0
    assert done.stdout.startswith("reward streams, consensus leave_one_out, baseline group\n")
    assert "3 debates, means" in done.stdout
    data = json.loads(rostra("rescore", run, "--json").stdout)
    assert len(data["debates"]) == 3
    assert data["debates"][0]["rewards"] == data["debates"][2]["rewards"]
    assert len({d["place"] for d in data["debates"]}) == 3


def test_debates_under_different_rules_are_rescored_only_when_told_how(
    kept: Path, tmp_path: Path
) -> None:
    run = many(tmp_path, kept, {}, {"reward": "win_rate"})
    done = rostra("rescore", run)
    assert done.returncode == 2
    assert "played under different reward rules" in done.stderr
    assert rostra("rescore", run, "--reward", "win_rate").returncode == 0


def test_one_of_many_debates_is_shown_by_its_number(kept: Path, tmp_path: Path) -> None:
    run = many(tmp_path, kept, {"name": "one"}, {"name": "two"}, {"name": "three"})
    heads = re.compile(r"^(\w+): 4 seats", re.MULTILINE)
    assert heads.findall(rostra("show", run).stdout) == ["one", "two", "three"]
    assert heads.findall(rostra("show", run, "--number", 2).stdout) == ["two"]
    done = rostra("show", run, "--number", 4)
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "",
        f"rostra: {run}: has no transcript number 4\n",
    )


def judged(path: Path) -> Path:
    question = Question("q", "Who did it?", choices=("The butler", "The gardener"))
    debate = Debate(question, consultancy(0, turns=1))
    players = {
        "policy": ScriptedPlayer(["It was he."]),
        "judge": ScriptedPlayer(["Debater_A | 91%"]),
    }
    path.write_text(dumps(played(debate, players)), "utf-8")
    return path


def test_a_judged_debate_is_shown_with_its_verdict_and_has_nothing_to_rescore(
    tmp_path: Path,
) -> None:
    path = judged(tmp_path / "judged.json")
    done = rostra("show", path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Verdict: Debater_A 91%, Debater_B 9%\n" in done.stdout
    done = rostra("rescore", path)
    assert done.returncode == 2
    assert "nothing to score again" in done.stderr


def test_an_existing_file_is_replaced_only_when_told(kept: Path) -> None:
    before = kept.read_bytes()
    done = rostra("debate", ASK, "--rounds", 1, "--out", kept)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"rostra: {kept}: already there; give another name, or --overwrite to replace it\n"
    )
    assert kept.read_bytes() == before
    assert rostra("debate", ASK, "--rounds", 1, "--out", kept, "--overwrite").returncode == 0
    assert kept.read_bytes() != before


def bad(name: str, folder: Path, kept: Path) -> tuple[list[object], bytes]:
    """Arguments and standard input of a command that cannot work."""
    file = folder / "bad.json"
    toml = folder / "bad.toml"
    whole = kept.read_bytes()
    data = json.loads(whole)
    match name:
        case "empty question":
            return ["debate", "  "], b""
        case "empty standard input":
            return ["debate", "-"], b"\n"
        case "standard input that is not text":
            return ["debate", "-"], b"What is \xff?"
        case "question that is not text":
            return ["debate", "What is \udcff?"], b""
        case "unknown protocol":
            return ["debate", ASK, "--protocol", "peer-v3"], b""
        case "unknown key":
            return ["debate", ASK, "--set", "rouns=3"], b""
        case "unknown key of a file":
            toml.write_text("[protocol]\nrouns = 3\n")
            return ["debate", ASK, "--config", toml], b""
        case "not a setting":
            return ["debate", ASK, "--set", "rounds"], b""
        case "two agents":
            return ["debate", ASK, "--agents", 2], b""
        case "missing config":
            return ["debate", ASK, "--config", folder / "gone.toml"], b""
        case "unwritable":
            return ["debate", ASK, "--rounds", 1, "--out", kept / "below.json"], b""
        case "truncated":
            file.write_bytes(whole[: len(whole) // 2])
        case "truncated zstandard":
            file = folder / "bad.json.zst"
            packed = zstandard.compress(whole)
            file.write_bytes(packed[: len(packed) // 2])
        case "not text":
            file.write_bytes(b"\xff\xfe" + whole)
        case "missing file":
            file = folder / "gone.json"
        case "newer version":
            file.write_text(json.dumps(data | {"version": 2}))
        case "empty file":
            file.write_bytes(b"")
        case "not a run":
            file = folder / "empty"
            file.mkdir()
        case "key of two lines":
            file.write_text(json.dumps(data | {"a\nb\x1b]0;owned\x07": 1}))
    return ["show", file], b""


BAD = {
    "empty question": "the question is empty: try rostra debate",
    "empty standard input": "the question is empty: try rostra debate",
    "standard input that is not text": "the question on standard input is not UTF-8 text",
    "question that is not text": "the question is not UTF-8 text",
    "unknown protocol": "'peer-v3' is not known, did you mean peer-v",
    "unknown key": "protocol: rouns: unknown key, did you mean rounds?",
    "unknown key of a file": "bad.toml: [protocol] rouns: unknown key, did you mean rounds?",
    "not a setting": "'rounds' is not a setting: write key=value",
    "two agents": "agents = 2: ",
    "missing config": "gone.toml: no such file",
    "unwritable": "below.json: cannot be written: ",
    "truncated": "bad.json: cut short",
    "truncated zstandard": "cut short",
    "not text": "bad.json: not UTF-8 text",
    "missing file": "gone.json: no such file",
    "newer version": "written by a newer Rostra",
    "empty file": "bad.json: empty",
    "not a run": "is it a run directory?",
    "key of two lines": "bad.json: not a valid transcript",
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_and_exit_code_two(name: str, kept: Path, tmp_path: Path) -> None:
    arguments, stdin = bad(name, tmp_path, kept)
    done = rostra(*arguments, stdin=stdin)
    assert done.returncode == 2
    assert done.stderr.startswith("rostra: ")
    assert BAD[name] in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not set(done.stderr) & {"\x1b", "\x07"}
    if arguments[0] == "show":
        again = rostra("rescore", *arguments[1:])
        assert (again.returncode, again.stdout, again.stderr) == (2, "", done.stderr)


@pytest.mark.parametrize("name", ["unknown key", "truncated", "standard input that is not text"])
def test_bad_input_leaves_a_process_without_a_traceback(
    name: str, kept: Path, tmp_path: Path
) -> None:
    arguments, stdin = bad(name, tmp_path, kept)
    done = process(*arguments, stdin=stdin)
    assert done.returncode == 2
    assert done.stdout == b""
    assert BAD[name] in done.stderr.decode()
    assert len(done.stderr.splitlines()) == 1
    assert b"Traceback" not in done.stderr


def test_a_question_argument_that_is_not_text_is_refused_by_a_process() -> None:
    done = subprocess.run(
        [sys.executable.encode(), b"-m", b"rostra", b"debate", b"What is \xff?"],
        env=environment(),
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert done.stderr == b"rostra: the question is not UTF-8 text\n"


@pytest.mark.parametrize("arguments", [["debat", ASK], ["debate"], ["debate", ASK, "--nope"]])
def test_a_wrong_call_says_how_to_call(arguments: list[str]) -> None:
    done = rostra(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"rostra: .+ \(see `rostra[ a-z]* --help`\)\n", done.stderr)


def test_help_lists_every_command_with_its_line() -> None:
    done = rostra("--help")
    assert done.returncode == 0
    assert re.findall(r"^  (debate|show|rescore) +\w", done.stdout, re.MULTILINE) == [
        "debate",
        "show",
        "rescore",
    ]


def test_commands_are_completed_by_a_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_ROSTRA_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "rostra re")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert rostra().stdout == "plain,rescore\n"


def test_settings_that_will_disappoint_are_warned_about_on_standard_error() -> None:
    done = rostra("debate", ASK, "--agents", 3, "--rounds", 1, *SCRIPTED)
    assert done.returncode == 0
    assert done.stderr.startswith("warning: agents = 3 with consensus = leave_one_out: ")
    assert len(done.stderr.splitlines()) == 1
    assert "warning" not in done.stdout


def test_half_a_character_in_a_file_is_shown_as_a_replacement(kept: Path, tmp_path: Path) -> None:
    """JSON can spell half of a surrogate pair, which no terminal can print."""
    data = json.loads(kept.read_text("utf-8"))
    data["question"]["prompt"] = "What is \ud83d?"
    path = tmp_path / "half.json"
    path.write_text(json.dumps(data))
    done = rostra("show", path)
    if done.returncode == 0:
        assert done.stdout.startswith("What is \N{REPLACEMENT CHARACTER}?\n")
    else:
        assert done.returncode == 2
        assert done.stderr.startswith(f"rostra: {path}: ")


def test_text_that_the_output_cannot_spell_is_no_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rostra", "debate", "Où ?", "--rounds", "1"],
        env=environment(PYTHONIOENCODING="ascii"),
        capture_output=True,
        timeout=120,
    )
    assert b"Traceback" not in done.stderr
    assert done.returncode == 0


INTERRUPTIBLE = """
import runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv[0] = "rostra"
runpy.run_module("rostra", run_name="__main__", alter_sys=True)
"""
"""The command line, though the tests themselves may run where Ctrl-C is ignored."""


def interruptible(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )


@contextmanager
def killed_at_the_end(running: subprocess.Popen[bytes]) -> Iterator[None]:
    """Waiting for a process that does not end would hide which test it belongs to."""
    try:
        yield
    finally:
        running.kill()


class Interrupted:
    """A standard input at which somebody presses Ctrl-C."""

    @property
    def buffer(self) -> io.BytesIO:
        raise KeyboardInterrupt


def test_ctrl_c_is_exit_code_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["rostra", "debate", "-"])
    monkeypatch.setattr(sys, "stdin", Interrupted())
    with put_back(), pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 130
    assert capsys.readouterr().err.strip() == "rostra: interrupted"


def test_ctrl_c_while_the_question_is_read_ends_with_one_line() -> None:
    with interruptible("debate", "-") as running, killed_at_the_end(running):
        assert running.stdin is not None
        # More than a pipe holds: when it is written, the command is reading.
        running.stdin.write(b"why? " * 100_000)
        running.stdin.flush()
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert out == b""
    assert err.strip() == b"rostra: interrupted"


def test_ctrl_c_in_the_middle_of_a_debate_ends_with_one_line(tmp_path: Path) -> None:
    path = tmp_path / "debate.json"
    call = ["debate", ASK, "--agents", "12", "--rounds", "20", "--out", str(path), *SCRIPTED]
    with interruptible(*call) as running, killed_at_the_end(running):
        assert running.stdout is not None
        # The rest is more than a pipe holds, so the debate cannot end before it is read.
        for line in running.stdout:
            if b", round 1" in line:
                break
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert b"Ended after" not in out
    assert err.strip() == b"rostra: interrupted"
    assert not path.exists()


@pytest.mark.parametrize("command", [["show"], ["rescore", "--json"]])
def test_a_reader_that_leaves_early_causes_no_traceback(command: list[str], tmp_path: Path) -> None:
    path = tmp_path / "long.json"
    rostra("debate", ASK, "--agents", 30, "--rounds", 8, "--out", path)
    call = [sys.executable, "-m", "rostra", *command, str(path)]
    with subprocess.Popen(
        call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline().strip()
        running.stdout.close()
        err = running.stderr.read()
    assert err == b""
    assert running.returncode in (0, 1, 141)


def on_a_terminal(*arguments: str, **more: str) -> str:
    """What a command writes to a terminal, up to its end."""
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        [sys.executable, "-m", "rostra", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env=environment(TERM="xterm-256color", LANG="C.UTF-8", **more),
    )
    os.close(theirs)
    raw = b""
    try:
        while select.select([ours], [], [], 60)[0]:
            try:
                piece = os.read(ours, 65536)
            except OSError:
                break
            if not piece:
                break
            raw += piece
    finally:
        os.close(ours)
    assert running.wait(60) == 0
    return raw.decode()


COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def test_a_terminal_gets_colours_and_lines_that_fit() -> None:
    text = on_a_terminal("debate", f"{ASK} " * 5, "--rounds", "2", COLUMNS="60")
    assert len(set(COLOUR.findall(text))) > 5
    plain = COLOUR.sub("", text)
    assert "\x1b" not in plain
    assert "gen reward" in plain
    assert max(cell_len(line) for line in plain.splitlines()) <= 60


def test_a_terminal_is_shown_no_escape_sequence_of_a_model(kept: Path, tmp_path: Path) -> None:
    evil = "\x1b[2J\x1b]0;owned\x07"
    data = json.loads(kept.read_text("utf-8"))
    for turn in data["turns"]:
        turn["text"] = turn["text"].replace("step by step", f"step {evil} step")
        for name, text in turn["sections"].items():
            turn["sections"][name] = text.replace("step by step", f"step {evil} step")
    path = tmp_path / "evil.json"
    path.write_text(json.dumps(data))
    plain = COLOUR.sub("", on_a_terminal("show", str(path), COLUMNS="200"))
    assert "\N{REPLACEMENT CHARACTER}[2J" in plain
    assert "\x1b" not in plain
    assert "\x07" not in plain


def test_a_mistyped_command_is_answered_with_a_suggestion() -> None:
    done = rostra("debat", "x")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("rostra: no command is called 'debat', did you mean debate?")
    assert done.stderr.count("\n") == 1


def test_a_mistyped_option_is_one_line() -> None:
    done = rostra("debate", "x", "--agentz", "5")
    assert done.returncode == 2
    assert "--agents" in done.stderr and done.stderr.count("\n") == 1


def test_no_command_at_all_shows_the_help() -> None:
    done = rostra()
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: rostra") and "rescore" in done.stdout


def test_rescoring_warns_about_rules_that_say_nothing(tmp_path: Path) -> None:
    file = tmp_path / "d.json"
    assert rostra("debate", "What is 1 + 1?", "--rounds", "1", "--out", file).returncode == 0
    done = rostra("rescore", file, "--consensus", "majority")
    assert done.stderr.startswith("warning: agents = 5 with consensus = majority")
    done = rostra("rescore", file, "--reward", "win_rate", "--consensus", "majority")
    assert done.stderr == "warning: --consensus has no effect with reward win_rate.\n"
    assert rostra("rescore", file).stderr == ""


def test_a_penalty_that_is_no_number_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "d.json"
    rostra("debate", "What is 1 + 1?", "--rounds", "1", "--out", file)
    done = rostra("rescore", file, "--format-penalty", "nan", "--json")
    assert (done.returncode, done.stdout) == (2, "")


def test_a_peer_debate_without_settings_is_shown_and_scored_like_any_other(tmp_path: Path) -> None:
    rules = peer_v2(agents=4, rounds=1)
    debate = Debate(Question("q", "What is 1 + 1?"), rules.protocol())
    engine = ScriptedEngine(rehearsal())
    transcript = played(debate, ModelPlayer(asyncio.run(engine.sampler()), engine.chat))
    file = tmp_path / "bare.json"
    file.write_text(dumps(transcript))
    assert "votes: row preferred to column" in rostra("show", file).stdout
    assert "gen reward" in rostra("rescore", file).stdout


def test_an_unwritable_place_is_noticed_before_the_debate(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = rostra("debate", "What is 1 + 1?", "--out", tmp_path / "file" / "x.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot be written" in done.stderr


def test_numbers_are_never_cut_on_a_narrow_terminal() -> None:
    told = on_a_terminal("debate", "What is 17 * 24?", "--rounds", "3", COLUMNS="40")
    assert "…" not in told
    assert len(re.findall(r"[+-]\d\.\d\d \([+-]\d\.\d\d\)", told)) == 5 * (3 + 3)


def test_a_model_of_this_machine_speaks_in_every_seat(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    out = tmp_path / "debate.json"
    done = rostra(
        "debate", ASK, "--model", "toy", "--agents", 3, "--rounds", 1, "--set", "max_tokens=6",
        "--out", out,
    )  # fmt: skip
    assert done.returncode == 0
    assert "Agent 2" in done.stdout
    assert "gen reward" in done.stdout
    turns = json.loads(out.read_text())["turns"]
    assert len(turns) == 6
    assert all(1 <= len(turn["tokens"]) <= 6 for turn in turns)
    again = rostra(
        "debate", ASK, "--engine", "local", "--model", "toy", "--agents", 3, "--rounds", 1,
        "--set", "max_tokens=6",
    )  # fmt: skip
    assert again.stdout == done.stdout.partition("\nKept in")[0]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--model", "smolm2"], "did you mean smollm2?"),
        (["--model", "toy", "--engine", "scripted"], "leave out --engine scripted"),
        (["--engine", "openai"], "needs --model with an address, as in http://"),
        (["--engine", "openai", "--model", "toy"], "needs --model with an address"),
        (["--engine", "local", "--model", "http://h/v1#m"], "leave out --engine local"),
        (["--model", "http://me:pw@h/v1#m"], "holds no user, password"),
        (["--model", "."], "not a model folder: it has no config.json"),
        (["--engine", "tinker"], "'tinker' is not one of 'scripted', 'local'"),
    ],
)
def test_a_model_that_cannot_be_had_is_one_sentence(arguments: list[str], says: str) -> None:
    pytest.importorskip("torch")
    done = rostra("debate", ASK, *arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
