"""`rostra doctor` as a person meets it: real processes, exit codes, the shipped weights."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from rostra.runs.recipe import find_recipe
from tests.cli.inside import environment, inside

RECIPE = """
title = "small"
folder = "run"
[model]
engine = "scripted"
[task]
name = "sums"
[protocol]
preset = "peer-v2"
rounds = 1
[train]
steps = 3
questions = 8
"""
SUMS = f"model.start={find_recipe('peer-v2-sums').parent / 'weights' / 'sums'}"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def doctor(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return inside("doctor", *arguments, cwd=cwd)


def apart(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """In a process of its own: a model on this machine changes how torch works."""
    return subprocess.run(
        [sys.executable, "-m", "rostra", "doctor", *map(str, arguments)],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )


def statuses(text: str) -> dict[str, str]:
    """The status of every check, by its name."""
    lines = re.findall(r"^(pass|thin|fail|unknown) +(\S+(?: \S+)?)  ", text, re.MULTILINE)
    return {name: status for status, name in lines}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the recipe small.toml."""
    (tmp_path / "small.toml").write_text(RECIPE)
    return tmp_path


def test_a_recipe_that_can_learn_is_ready_and_leaves_nothing_behind(place: Path) -> None:
    done = doctor("small.toml", cwd=place)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("\n\nready\n")
    assert "\x1b" not in done.stdout + done.stderr
    assert "\r" not in done.stdout + done.stderr
    found = statuses(done.stdout)
    assert set(found.values()) == {"pass"}
    assert list(found) == [
        "judges", "debates", "format", "comparisons", "length", "solves", "pass@3", "own votes",
        "prepared votes", "groups", "gen rewards", "judge rewards", "context", "throughput",
        "memory",
    ]  # fmt: skip
    assert re.search(r"^pass +format +\d+(\.\d)?% \[\d+-\d+%\] of 240 turns", done.stdout, re.M)
    assert [path.name for path in place.iterdir()] == ["small.toml"]


def test_a_failed_check_is_exit_code_one_with_the_list_on_standard_output(place: Path) -> None:
    done = doctor("small.toml", "agents=3", cwd=place)
    assert done.returncode == 1
    assert "warning" not in done.stderr
    assert statuses(done.stdout)["judges"] == "fail"
    assert "\n" + " " * 25 + "Set protocol.agents=5" in done.stdout
    last = done.stdout.splitlines()[-1]
    assert last.startswith("not ready: judges: agents = 3 with consensus = leave_one_out: ")
    assert "rostra:" not in done.stderr


def test_a_curriculum_is_told_that_its_first_stage_is_checked_alone(place: Path) -> None:
    stages = '[[stages]]\n[stages.task]\nname = "sums"\n[[stages]]\n[stages.task]\nname = "shop"\n'
    (place / "small.toml").write_text(RECIPE + stages)
    done = doctor("small.toml", cwd=place)
    assert done.returncode == 0, done.stderr
    assert (
        "\nunknown  stages          only number 1 of 2 was checked (sums > shop)\n" in done.stdout
    )
    assert done.stdout.endswith("\n\nready (unknown: stages)\n")
    later = doctor("small.toml", "--stage", 2, "--questions", 6, cwd=place)
    assert "only number 2 of 2 was checked" in later.stdout
    assert "of 30 sampled answers right" in later.stdout
    assert solved(later.stdout) != solved(doctor("small.toml", "--questions", 6, cwd=place).stdout)


def test_a_stage_that_is_not_there_is_refused_before_any_data_is_read(place: Path) -> None:
    stage = '[[stages]]\n[stages.task]\nname = "jsonl"\npath = "nowhere.jsonl"\n'
    (place / "small.toml").write_text(RECIPE + stage + stage)
    done = doctor("small.toml", "--stage", 9, cwd=place)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "rostra: --stage 9: small.toml has 2 stages\n"


def solved(text: str) -> str:
    return next(line for line in text.splitlines() if " solves " in line)


def test_other_warnings_of_the_rules_are_on_standard_error(place: Path) -> None:
    done = doctor("small.toml", "rounds=2", "closing_ballot=false", cwd=place)
    assert done.stderr.startswith("warning: closing_ballot = false: ")


def test_the_number_of_questions_can_be_chosen(place: Path) -> None:
    done = doctor("small.toml", "--questions", 6, cwd=place)
    assert "6 of 6 finished" in done.stdout
    assert "of 30 sampled answers right" in done.stdout


def test_the_checks_can_be_kept_as_json(place: Path) -> None:
    file = place / "new" / "doctor.json"
    done = doctor("small.toml", "max_tokens=20", "--json", file, cwd=place)
    assert done.returncode == 1
    data = json.loads(file.read_text(), parse_constant=lambda c: pytest.fail(c))
    assert data["ready"] is False
    assert data["verdict"] == done.stdout.splitlines()[-1]
    assert {check["name"]: check["status"] for check in data["checks"]} == statuses(done.stdout)
    numbers: dict[str, Any] = {check["name"]: check["numbers"] for check in data["checks"]}
    assert numbers["format"]["share"] == 0
    assert numbers["format"]["n"] == 240
    assert numbers["comparisons"]["share"] is None
    assert [path.name for path in file.parent.iterdir()] == ["doctor.json"]
    assert doctor("small.toml", "--questions", 2, "--json", file, cwd=place).returncode == 0
    assert json.loads(file.read_text())["ready"] is True


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["nowhere.toml"], "nowhere.toml: no such recipe"),
        (["peer-v2-sum"], "did you mean peer-v2-sums?"),
        (["small.toml", "stpes=3"], "stpes: unknown key, did you mean steps?"),
        (["small.toml", "model.start=x"], "no weights to begin with"),
        (["peer-v2-sums", "model.start=nowhere"], "model.start: nowhere holds no weights"),
        (["small.toml", "--questions", "0"], "--questions"),
        (["small.toml", "--stage", "2"], "--stage 2: small.toml has no stages"),
        (["small.toml", "--json", "small.toml/x"], "cannot be written"),
        (["small.toml", "--json", "."], "is a folder"),
        (["warm-sums"], "warm-sums: a warm start learns from a teacher"),
    ],
)
def test_what_cannot_be_checked_is_refused_in_one_line(
    arguments: list[str], part: str, place: Path
) -> None:
    done = doctor(*arguments, cwd=place)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("rostra: ") and part in done.stderr
    assert [path.name for path in place.iterdir()] == ["small.toml"]
    assert (place / "small.toml").read_text() == RECIPE


INTERRUPTIBLE = """
import runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv[0] = "rostra"
runpy.run_module("rostra", run_name="__main__", alter_sys=True)
"""
"""The command line, though the tests themselves may run where Ctrl-C is ignored."""


def test_ctrl_c_ends_with_one_line(place: Path) -> None:
    call = ["doctor", "small.toml", "rounds=12", "agents=9", "--questions", "700"]
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, *call],
        cwd=place,
        env=environment(PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as running:
        assert running.stderr is not None
        assert running.stderr.readline().startswith("loading ")
        running.send_signal(signal.SIGINT)
        try:
            out, err = running.communicate(timeout=60)
        finally:
            running.kill()
    assert (running.returncode, out) == (130, "")
    assert err.strip().splitlines()[-1] == "rostra: interrupted"
    assert "Traceback" not in err


EARLY = """
import asyncio, runpy, sys

class Half:
    def __del__(self):
        raise AttributeError("half made")

def run(work):
    loop = Half()
    raise KeyboardInterrupt

asyncio.run = run
sys.argv[0] = "rostra"
runpy.run_module("rostra", run_name="__main__", alter_sys=True)
"""
"""Ctrl-C comes when the work is there and has not begun, and its loop is half made."""


def test_ctrl_c_just_before_the_work_begins_is_one_line_too(place: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EARLY, "doctor", "small.toml"],
        cwd=place,
        env=environment(),
        capture_output=True,
        encoding="utf-8",
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.split("\n") == ["loading smollm2", "", "rostra: interrupted", ""]


def test_a_narrow_terminal_shows_every_word_and_colours(place: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "rostra", "doctor", "small.toml", "agents=3"],
        cwd=place,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env=environment(TERM="xterm-256color", LANG="C.UTF-8", COLUMNS="60"),
    ) as running:
        os.close(theirs)
        raw = b""
        while select.select([ours], [], [], 60)[0]:
            try:
                piece = os.read(ours, 65536)
            except OSError:
                break
            raw += piece
        os.close(ours)
    assert running.returncode == 1
    text = raw.decode()
    assert "\x1b[" in text
    plain = ESCAPES.sub("", text).replace("\r", "")
    assert max(cell_len(line) for line in plain.splitlines()) <= 60
    assert "…" not in plain
    assert "not ready: judges:" in plain
    assert "Set protocol.agents=5, or rewards.judge=0" in " ".join(plain.split())


def test_help_fits_into_80_columns(tmp_path: Path) -> None:
    done = doctor("--help", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= 80
    for word in ("RECIPE", "--questions", "--json", "rostra doctor peer-v2-sums"):
        assert word in done.stdout


# A real model


def test_the_shipped_weights_are_ready(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = apart("peer-v2-sums", SUMS, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("ready")
    found = statuses(done.stdout)
    for name in ("format", "comparisons", "solves", "pass@3", "prepared votes", "groups"):
        assert found[name] == "pass", name
    assert "the model reads 4,096" in done.stdout


def test_a_model_that_never_saw_a_debate_is_not_ready_because_of_its_form(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = apart("peer-v2-sums", "model.start=", "--questions", 8, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith("not ready: format: ")


def test_the_shipped_weights_with_three_agents_have_no_judge_signal(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = apart("peer-v2-sums", SUMS, "protocol.agents=3", cwd=tmp_path)
    assert done.returncode == 1
    last = done.stdout.splitlines()[-1]
    assert last.startswith("not ready: judges: agents = 3") and "no judge signal" in last


def test_the_shipped_weights_cannot_solve_sums_they_never_learned(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = apart("peer-v2-sums", SUMS, "task.below=100", "--questions", 48, cwd=tmp_path)
    assert done.returncode == 1
    last = done.stdout.splitlines()[-1]
    assert re.match(r"not ready: (solves|pass@3): ", last)
    assert statuses(done.stdout)["format"] == "pass"
