"""`rostra train` as a person meets it: real processes, the scripted engine, real signals."""

import json
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rostra.runs.folder import read_lines
from rostra.runs.recipe import find_recipe, read_config, read_recipe
from rostra.runs.transcripts import read_transcripts
from tests.cli.inside import environment

RECIPE = """
title = "small"
folder = "run"
[model]
engine = "scripted"
[task]
name = "sums"
[protocol]
preset = "peer-v2"
[train]
steps = 3
questions = 3
[eval]
questions = 4
debates = 2
"""
LONG = ("steps=400", "eval.questions=0")
TIMES = ("seconds", "time/", "eta")


def rostra(*arguments: object, cwd: Path, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rostra", *map(str, arguments)],
        cwd=cwd,
        env=environment(PYTHONUNBUFFERED="1"),
        capture_output=True,
        encoding="utf-8",
        timeout=100,
        **more,
    )


def refused(*arguments: object, cwd: Path, **more: Any) -> str:
    """The one line with which a command is refused."""
    done = rostra(*arguments, cwd=cwd, **more)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("rostra: ")
    assert "\x1b" not in done.stderr
    return last.removeprefix("rostra: ")


def files(path: Path) -> dict[str, bytes]:
    found = (file for file in path.rglob("*") if file.is_file() and file.name != ".lock")
    return {str(file.relative_to(path)): file.read_bytes() for file in found}


def steps(run: Path, kind: str = "train") -> list[int]:
    return [line["step"] for line in read_lines(run / "metrics.jsonl") if line["kind"] == kind]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the recipe small.toml."""
    (tmp_path / "small.toml").write_text(RECIPE)
    return tmp_path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, made once."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "small.toml").write_text(RECIPE)
    done = rostra("train", "small.toml", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "run"


@pytest.fixture
def ran(place: Path, finished: Path) -> Path:
    """The same, with the finished run in it."""
    shutil.copytree(finished, place / "run")
    return place


def begun(place: Path, *settings: str, line: str = "step 2/") -> subprocess.Popen[str]:
    """A long run that has said a line."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rostra", "train", "small.toml", *settings],
        cwd=place,
        env=environment(PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    assert process.stderr
    heard: list[str] = []
    for said in process.stderr:
        heard.append(said)
        if said.startswith(line):
            return process
    process.communicate()
    pytest.fail(f"it never said {line!r}: {heard}")


def ended(process: subprocess.Popen[str]) -> tuple[int, str, float]:
    """Exit code, what it said, and how long it took."""
    began = time.monotonic()
    try:
        _, said = process.communicate(timeout=30)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    return process.returncode, said, time.monotonic() - began


def printed_command(said: str) -> list[str]:
    """The command that is printed to go on, as a shell would read it."""
    found = re.search(r"Go on with: (rostra train .*)$", said.strip().splitlines()[-1])
    assert found, said
    return shlex.split(found[1])[1:]


# A whole run


def test_a_whole_run_leaves_everything_in_its_folder(place: Path) -> None:
    done = rostra("train", "small.toml", cwd=place)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Done: run. Look at run/report.html\n"
    assert "\x1b" not in done.stdout + done.stderr
    assert "\r" not in done.stdout + done.stderr
    assert [f"step {n}/3" in done.stderr for n in (1, 2, 3)] == [True] * 3
    run = place / "run"
    assert read_config(run).train.steps == 3
    assert steps(run) == [0, 1, 2]
    assert steps(run, "eval") == [0, 3]
    for line in read_lines(run / "metrics.jsonl"):
        if line["kind"] == "train":
            assert line["questions"] == line["debates"] == 3
            assert line["tokens"] > 1000
        else:
            assert 0 <= line["eval/direct/sampled"] <= 1
    ids = [s.transcript.question.id for s in read_transcripts(run)]
    assert len(ids) == 9
    assert (run / "checkpoints" / "step-000003.json").exists()
    page = (run / "report.html").read_text()
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert "small" in page
    assert not list(run.rglob("*.part"))


def test_the_debates_of_a_run_can_be_shown(ran: Path) -> None:
    done = rostra("show", "run", "--number", 9, cwd=ran)
    assert (done.returncode, done.stderr) == (0, "")
    assert "peer-v2: 5 seats, 3 rounds" in done.stdout
    assert "gen reward (advantage)" in done.stdout
    assert rostra("show", "run", cwd=ran).stdout.count("votes: row preferred to column") == 9


def test_the_same_recipe_gives_the_same_numbers_and_another_seed_gives_others(ran: Path) -> None:
    for folder, seed in (("again", 0), ("other", 1)):
        done = rostra("train", "small.toml", f"folder={folder}", f"seed={seed}", cwd=ran)
        assert done.returncode == 0, done.stderr
    first, again, other = (numbers(ran / name) for name in ("run", "again", "other"))
    assert first == again
    assert first != other


def numbers(run: Path) -> list[dict[str, Any]]:
    """All metrics but the times."""
    return [
        {k: v for k, v in line.items() if not k.startswith(TIMES) and "seconds" not in k}
        for line in read_lines(run / "metrics.jsonl")
    ]


# Again


def test_a_second_run_is_refused_with_what_to_do(ran: Path) -> None:
    before = files(ran)
    said = refused("train", "small.toml", cwd=ran)
    assert said.startswith("run: there is a run already")
    assert "--resume" in said and "--overwrite" in said and "folder=" in said
    assert files(ran) == before


def test_overwriting_replaces_a_run(ran: Path) -> None:
    done = rostra("train", "small.toml", "steps=2", "--overwrite", cwd=ran)
    assert done.returncode == 0, done.stderr
    assert steps(ran / "run") == [0, 1]
    assert {p.name for p in (ran / "run" / "transcripts").iterdir()} == {
        "step-000000.jsonl.zst",
        "step-000001.jsonl.zst",
    }


def test_resuming_a_finished_run_changes_no_number(ran: Path) -> None:
    before = numbers(ran / "run")
    done = rostra("train", "run", "--resume", cwd=ran)
    assert done.returncode == 0, done.stderr
    assert numbers(ran / "run") == before


def test_a_resume_that_fails_takes_nothing_away(ran: Path) -> None:
    """The weights are damaged: that is said, and the metrics of the run stay."""
    before = (ran / "run" / "metrics.jsonl").read_bytes()
    for file in (ran / "run" / "checkpoints").rglob("*.json"):
        state = json.loads(file.read_text())
        state.pop("logits", None)
        file.write_text(json.dumps(state))
    refused("train", "run", "--resume", cwd=ran)
    assert (ran / "run" / "metrics.jsonl").read_bytes() == before


def test_resuming_with_a_changed_setting_is_refused_and_names_it(ran: Path) -> None:
    before = files(ran)
    said = refused("train", "run", "train.questions=4", "--resume", cwd=ran)
    assert "cannot be resumed with other settings: train.questions: 3 -> 4." in said
    assert files(ran) == before


def test_resume_and_overwrite_exclude_each_other(ran: Path) -> None:
    before = files(ran)
    said = refused("train", "run", "--resume", "--overwrite", cwd=ran)
    assert "--resume" in said and "--overwrite" in said and "choose one" in said
    assert files(ran) == before


def test_a_run_is_resumed_from_any_working_directory(ran: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    rostra("train", ran / "run", "--resume", cwd=elsewhere)
    assert list(elsewhere.iterdir()) == []


# Stopping


def test_ctrl_c_stops_soon_and_the_printed_command_goes_on_to_the_end(place: Path) -> None:
    process = begun(place, "steps=40", "save_every=7")
    process.send_signal(signal.SIGINT)
    code, said, took = ended(process)
    assert code != 0
    assert took < 10
    assert "Traceback" not in said
    done_before = steps(place / "run")
    assert 2 <= len(done_before) < 40
    again = rostra(*printed_command(said), cwd=place)
    assert again.returncode == 0, again.stderr
    assert steps(place / "run") == list(range(40))
    whole = rostra("train", "small.toml", "steps=40", "save_every=7", "folder=whole", cwd=place)
    assert whole.returncode == 0
    assert numbers(place / "run") == numbers(place / "whole")


def test_a_stopped_run_keeps_the_steps_it_has_done(place: Path) -> None:
    process = begun(place, *LONG)
    process.send_signal(signal.SIGINT)
    code, said, _ = ended(process)
    assert code != 0
    done = int(re.findall(r"stopped after (\d+) step", said)[-1])
    assert done >= 2
    assert steps(place / "run") == list(range(done))
    assert (place / "run" / "checkpoints" / f"step-{done:06d}.json").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_is_announced_and_ends_in_one_line(number: signal.Signals, place: Path) -> None:
    process = begun(place, *LONG)
    process.send_signal(number)
    code, said, took = ended(process)
    assert (code != 0, took < 10) == (True, True)
    assert "stopping after this step; Ctrl-C again stops at once" in said
    last = said.strip().splitlines()[-1]
    assert last.startswith("rostra: stopped after ")
    assert last.endswith("Go on with: rostra train run --resume")


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_ctrl_c_twice_stops_at_once(mode: str, place: Path) -> None:
    process = begun(place, *LONG, f"mode={mode}")
    process.send_signal(signal.SIGINT)
    time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    code, said, took = ended(process)
    assert code != 0
    assert took < 10
    assert "Traceback" not in said
    assert "never awaited" not in said and "never retrieved" not in said
    assert printed_command(said) == ["train", "run", "--resume"]


def test_the_printed_command_works_for_a_folder_with_a_space_in_its_name(place: Path) -> None:
    process = begun(place, "steps=40", "eval.questions=0", "folder=my run")
    process.send_signal(signal.SIGINT)
    _, said, _ = ended(process)
    assert printed_command(said) == ["train", "my run", "--resume"]


def test_a_run_that_was_killed_goes_on_and_ends_like_one_that_was_not(place: Path) -> None:
    settings = ("steps=12", "save_every=3")
    process = begun(place, *settings, line="step 5/")
    process.kill()
    assert ended(process)[0] == -signal.SIGKILL
    again = rostra("train", "run", "--resume", cwd=place)
    assert again.returncode == 0, again.stderr
    whole = rostra("train", "small.toml", *settings, "folder=whole", cwd=place)
    assert whole.returncode == 0
    assert numbers(place / "run") == numbers(place / "whole")
    names = [p.name for p in sorted((place / "whole" / "transcripts").iterdir())]
    assert [p.name for p in sorted((place / "run" / "transcripts").iterdir())] == names


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_anew(place: Path) -> None:
    process = begun(place, "steps=10", line="step 2/")
    process.kill()
    ended(process)
    again = rostra("train", "run", "--resume", cwd=place)
    assert again.returncode == 0, again.stderr
    assert steps(place / "run") == list(range(10))


def test_two_processes_cannot_carry_out_one_run(place: Path) -> None:
    process = begun(place, *LONG)
    try:
        for option in ("--resume", "--overwrite"):
            said = refused("train", "small.toml", *LONG, option, cwd=place)
            assert said == "run: another process is running it right now"
    finally:
        process.kill()
        ended(process)


def test_an_alarm_of_stop_on_ends_the_run_and_says_why(place: Path) -> None:
    """Replies of 20 tokens are all cut off, so every turn is malformed."""
    settings = ("steps=12", "max_tokens=20", "eval.questions=0")
    said = refused("train", "small.toml", *settings, 'stop_on=["format"]', cwd=place)
    assert said.startswith("stopped by stop_on at step 8: format: 100% of turns malformed")
    assert said.endswith("Go on with: rostra train run --resume")
    assert steps(place / "run") == list(range(8))
    rang = Counter(line["alarm"] for line in read_lines(place / "run" / "alarms.jsonl"))
    assert rang["format"] == 1
    assert (place / "run" / "checkpoints" / "step-000008.json").exists()


def test_the_sentences_of_an_alarm_end_in_one_full_stop(place: Path) -> None:
    settings = ("steps=9", "max_tokens=20", "eval.questions=0", 'stop_on=["consensus"]')
    assert ".." not in refused("train", "small.toml", *settings, cwd=place)


def test_an_alarm_that_is_not_in_stop_on_only_rings(place: Path) -> None:
    settings = ("steps=9", "max_tokens=20", "eval.questions=0")
    done = rostra("train", "small.toml", *settings, cwd=place)
    assert done.returncode == 0, done.stderr
    assert "note: alarm, format: 100% of turns malformed" in done.stderr
    assert steps(place / "run") == list(range(9))


# Before a run


def test_a_dry_run_shows_settings_plan_and_cost_and_writes_nothing(place: Path) -> None:
    done = rostra("train", "small.toml", "steps=7", "--dry-run", cwd=place)
    assert (done.returncode, done.stderr) == (0, "")
    assert [p.name for p in place.iterdir()] == ["small.toml"]
    config, _, plan = done.stdout.partition("\n\ntask ")
    (place / "shown.toml").write_text(config)
    done_again = rostra("train", "shown.toml", "--dry-run", cwd=place)
    assert done_again.stdout.startswith(config)
    assert "steps = 7" in config
    assert "sums: 765 questions to train on, 135 held out" in plan
    assert re.search(r"^folder +run: new, [\d.]+ [GM]B free$", plan, re.MULTILINE)
    assert re.search(r"^model .*scripted", plan, re.MULTILINE)
    assert "7 steps of 3 debates of 20 turns: 21 debates, 420 turns, about " in plan
    tokens = int(re.findall(r"about ([\d,]+) tokens", plan)[0].replace(",", ""))
    assert 21 * 2000 < tokens < 21 * 20 * 1024
    assert re.search(r"^time +about \d+:\d\d by a probe of 3 debates", plan, re.MULTILINE)
    assert re.search(r"^space +about .* of checkpoints", plan, re.MULTILINE)


def test_a_dry_run_of_a_run_that_is_there_says_so_and_changes_nothing(ran: Path) -> None:
    before = files(ran)
    done = rostra("train", "run", "--dry-run", cwd=ran)
    assert done.returncode == 0
    assert "run: there already: needs --resume or --overwrite" in done.stdout
    assert files(ran) == before


def test_a_dry_run_of_a_warm_start_shows_its_phases(place: Path) -> None:
    done = rostra("train", "base-sums", "model.engine=scripted", "--dry-run", cwd=place)
    assert (done.returncode, done.stderr) == (0, "")
    phases = read_recipe(find_recipe("base-sums")).phases
    shown = re.findall(r"^phase (\d+) +(\w+): (\d+) steps of", done.stdout, re.MULTILINE)
    assert shown == [(str(n), p.kind, str(p.steps)) for n, p in enumerate(phases, 1)]
    assert [p.name for p in place.iterdir()] == ["small.toml"]


def test_a_dry_run_finds_a_model_that_is_not_there(place: Path) -> None:
    said = refused("train", "small.toml", "model.start=runs/none", "--dry-run", cwd=place)
    assert said.startswith("model.start: ")


def test_a_dry_run_finds_data_that_is_not_there(place: Path) -> None:
    text = RECIPE.replace('title = "small"', 'title = "small"\nloop = "warmstart"')
    (place / "warm.toml").write_text(text + '[[phases]]\nkind = "stored"\npath = "nowhere"\n')
    assert "nowhere" in refused("train", "warm.toml", "--dry-run", cwd=place)


def test_a_dry_run_finds_a_file_in_the_way(place: Path) -> None:
    (place / "run").write_text("mine")
    assert "in the way" in refused("train", "small.toml", "--dry-run", cwd=place)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["nowhere.toml"], "nowhere.toml: no such recipe"),
        (["peer-v2-sum"], "did you mean peer-v2-sums?"),
        (["small.toml", "stpes=3"], "stpes: unknown key, did you mean steps?"),
        (["small.toml", "train.stpes=3"], "did you mean train.steps?"),
        (["small.toml", "steps"], "write key=value"),
        (["small.toml", "steps=0"], "steps = 0: must be at least 1"),
        (["small.toml", "name=x"], "say which one you mean"),
        (["small.toml", 'trackers=["wandbb"]'], "wandbb"),
        (["small.toml", "folder=small.toml"], "a file is in the way"),
        (["small.toml", "folder=."], "not a run directory"),
        (["small.toml", "folder=.", "--overwrite"], "not a run directory"),
        (["small.toml", "model.start=x"], "no weights to begin with"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line_before_anything_is_written(
    arguments: list[str], part: str, place: Path
) -> None:
    done = rostra("train", *arguments, cwd=place)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert part in done.stderr.splitlines()[-1]
    assert [p.name for p in place.iterdir()] == ["small.toml"]
    assert (place / "small.toml").read_text() == RECIPE


def test_a_typo_in_a_recipe_is_named_with_file_and_table(place: Path) -> None:
    (place / "small.toml").write_text(RECIPE.replace("steps", "stpes"))
    said = refused("train", "small.toml", cwd=place)
    assert said == "small.toml: [train] stpes: unknown key, did you mean steps?"


@pytest.mark.parametrize("limit", [500, 9_000, 16_000, 60_000])
def test_a_disk_that_fills_up_ends_a_run_in_one_line(limit: int, place: Path) -> None:
    """No file may grow beyond the limit, so that one write after the other fails for real."""

    def small_files() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    said = refused("train", "small.toml", cwd=place, preexec_fn=small_files)
    assert "File too large" in said
    assert not list((place / "run").rglob("*.part"))


@pytest.mark.parametrize("command", ["train", "demo"])
def test_help_fits_into_80_columns(command: str, tmp_path: Path) -> None:
    done = rostra(command, "--help", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: rostra {command}")
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "\x1b" not in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_help_of_train_names_every_option_and_shows_examples(tmp_path: Path) -> None:
    text = rostra("train", "--help", cwd=tmp_path).stdout
    for word in ("--resume", "--overwrite", "--dry-run", "rostra train peer-v2-sums"):
        assert word in text


def test_a_run_that_could_not_begin_leaves_its_place_to_the_next(place: Path) -> None:
    words = ("train", "peer-v2-sums", "model.engine=scripted", "model.start=", "train.steps=1")
    words += ("eval.questions=0", "train.questions=2", "folder=runs/one")
    guide = "bootstrap.guide=http://127.0.0.1:9/v1#m"
    done = rostra(*words, guide, cwd=place)
    assert done.returncode == 2 and "127.0.0.1:9" in done.stderr
    assert not (place / "runs" / "one").exists()
    again = rostra(*words, cwd=place)
    assert again.returncode == 0, again.stderr


@pytest.mark.parametrize("name", ["mine", "link"])
@pytest.mark.parametrize("more", ["", "--resume", "--overwrite"])
def test_a_folder_that_was_there_is_never_removed(more: str, name: str, place: Path) -> None:
    mine = place / "runs" / "mine"
    mine.mkdir(parents=True)
    (place / "runs" / "link").symlink_to("mine")
    if more:
        (mine / "prompts").mkdir()
        (mine / ".lock").touch()
    words = ("train", "peer-v2-sums", "model.engine=scripted", "model.start=", "eval.questions=0")
    guide = "bootstrap.guide=http://127.0.0.1:9/v1#m"
    done = rostra(*words, f"folder=runs/{name}", guide, *([more] if more else []), cwd=place)
    assert done.returncode == 2 and "127.0.0.1:9" in done.stderr
    assert "Traceback" not in done.stderr
    assert mine.is_dir() and (place / "runs" / "link").is_symlink()
