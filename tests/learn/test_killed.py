"""Real processes, killed in the middle of what they do, and resumed until they end."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import safetensors.numpy
import zstandard

from rostra.runs.folder import read_lines

PROMPTS = Path(__file__).parents[2] / "recipes" / "prompts"

SCRIPTED = """
title = "killed"
folder = "{folder}"
[model]
engine = "scripted"
[protocol]
rounds = 2
[rewards]
baseline = "role_ema"
[train]
steps = 12
questions = 4
save_every = 3
eval_every = 4
learning_rate = 0.01
mode = "{mode}"
[eval]
questions = 4
debates = 2
"""

TOY = """
title = "killed"
folder = "{folder}"
[model]
name = "toy-sums"
lora_rank = 0
threads = 1
[protocol]
preset = "peer-v1"
rounds = 1
max_tokens = 24
prompts = "{prompts}"
[train]
steps = 6
questions = 6
save_every = 2
eval_every = 3
learning_rate = 0.001
mode = "async"
[eval]
questions = 2
debates = 0
"""
"""An untrained model is malformed at once, which ends a debate of the first generation and costs
its speaker: there is a signal, and every step changes the weights."""

BUSY = """
import random, sys, threading, time
sys.setswitchinterval(0.0002)
def burn():
    dice = random.Random()
    while True:
        end = time.perf_counter() + dice.random() * 0.004
        while time.perf_counter() < end:
            pass
        time.sleep(dice.random() * 0.004)
threading.Thread(target=burn, daemon=True).start()
from rostra.cli import main
main()
"""
"""Rostra, with a thread beside it that takes the processor away at random."""


def write(path: Path, text: str, **values: object) -> Path:
    path.mkdir()
    file = path / "recipe.toml"
    file.write_text(text.format(folder=path / "run", **values))
    return file


def start(recipe: Path, *options: str, program: str = "") -> "subprocess.Popen[bytes]":
    python = [sys.executable, *(("-c", program) if program else ("-m", "rostra"))]
    with (recipe.parent / "log").open("ab") as log:
        return subprocess.Popen(
            [*python, "train", str(recipe), *options],
            stdout=log,
            stderr=log,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )


def finish(recipe: Path, *options: str, program: str = "") -> float:
    """Runs to the end, and returns how long it took."""
    began = time.monotonic()
    process = start(recipe, *options, program=program)
    try:
        code = process.wait(timeout=100)
    finally:
        process.kill()
        process.wait()
    assert code == 0, (recipe.parent / "log").read_text()[-2000:]
    return time.monotonic() - began


def kill_at(recipe: Path, lines: int, delay: float) -> bool:
    """Starts or resumes a run, and kills it so many seconds after it has written so many lines of
    metrics. Whether it was still running. A clock alone would miss: machines are busy or not."""
    metrics = recipe.parent / "run" / "metrics.jsonl"
    process = start(recipe, "--resume")
    try:
        while process.poll() is None:
            if metrics.exists() and metrics.read_bytes().count(b"\n") >= lines:
                time.sleep(delay)
                break
            time.sleep(0.005)
        code = process.poll()
        assert code in (None, 0), (recipe.parent / "log").read_text()[-2000:]
        return code is None
    finally:
        process.kill()
        process.wait()


def left_behind(recipe: Path) -> dict[str, Any]:
    """All that must not depend on whether a run was killed."""
    run = recipe.parent / "run"
    metrics = [
        {k: v for k, v in line.items() if k != "seconds" and not k.startswith("time/")}
        for line in read_lines(run / "metrics.jsonl")
    ]
    alarms = run / "alarms.jsonl"
    steps = 1 + max(line["step"] for line in metrics if line["kind"] == "train")
    last = f"-{steps:06d}"
    saved = [
        file
        for file in (run / "checkpoints").rglob("*")
        if file.is_file() and last in str(file.relative_to(run))
    ]
    return {
        "metrics": metrics,
        "alarms": read_lines(alarms) if alarms.exists() else [],
        "saved": {str(file.relative_to(run)): content(file) for file in saved},
        "debates": {
            file.name: zstandard.decompress(file.read_bytes())
            for file in (run / "transcripts").iterdir()
        },
        "names": sorted(f.name for f in (run / "checkpoints").iterdir()),
    }


def content(file: Path) -> Any:
    """The bytes of a file. Of the optimiser, all but the state of torch's own random numbers, which
    nothing draws from and nobody seeds."""
    if file.name != "moments.safetensors":
        return file.read_bytes()
    moments = safetensors.numpy.load_file(file)
    assert len(moments) > 2
    return {name: held.tobytes() for name, held in moments.items() if name != "rng"}


def same(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Compares part by part, so that a difference is told before megabytes are."""
    assert one["metrics"] == other["metrics"]
    assert one["names"] == other["names"]
    for part in ("saved", "debates"):
        assert sorted(one[part]) == sorted(other[part])
        assert [name for name in one[part] if one[part][name] != other[part][name]] == []
    assert one["alarms"] == other["alarms"]


@pytest.fixture(scope="module", params=["sync", "async"])
def scripted(request, tmp_path_factory):
    """A run that was never killed: its mode, how long it took, and what it left behind."""
    path = tmp_path_factory.mktemp("never") / request.param
    recipe = write(path, SCRIPTED, mode=request.param)
    seconds = finish(recipe)
    return request.param, seconds, left_behind(recipe)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_run_killed_at_five_random_moments_ends_like_one_never_killed(scripted, tmp_path, seed):
    """Two modes and two seeds: 20 kills in all, spread over the run."""
    mode, seconds, never = scripted
    recipe = write(tmp_path / "killed", SCRIPTED, mode=mode)
    dice = random.Random(f"{mode} {seed}")
    total, step = len(never["metrics"]), seconds / 30
    moments = [(dice.uniform(0, total - 1), dice.uniform(0, step)) for _ in range(5)]
    killed = [kill_at(recipe, round(lines), delay) for lines, delay in sorted(moments)]
    assert sum(killed) >= 4
    finish(recipe, "--resume")
    assert len(never["metrics"]) == 12 + 4
    same(never, left_behind(recipe))


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """A run of a real model that was never killed."""
    recipe = write(tmp_path_factory.mktemp("toy") / "never", TOY, prompts=PROMPTS / "sums")
    seconds = finish(recipe)
    return seconds, left_behind(recipe)


def weights(left: dict[str, Any]) -> bytes:
    (held,) = [h for name, h in left["saved"].items() if name.endswith("model.safetensors")]
    assert len(held) > 100_000
    return bytes(held)


def test_a_model_killed_at_four_random_moments_has_the_same_weights_bit_by_bit(toy, tmp_path):
    seconds, never = toy
    recipe = write(tmp_path / "killed", TOY, prompts=PROMPTS / "sums")
    dice = random.Random(7)
    killed = [kill_at(recipe, lines, dice.uniform(0, seconds / 30)) for lines in (0, 2, 5, 7)]
    assert sum(killed) >= 3
    finish(recipe, "--resume")
    # Told in one bit: the bytes themselves are of no use to a reader.
    assert (weights(left_behind(recipe)) == weights(never)) is True
    same(never, left_behind(recipe))


def test_two_runs_of_a_model_are_bit_identical_whatever_else_the_processor_does(toy, tmp_path):
    _, never = toy
    recipe = write(tmp_path / "busy", TOY, prompts=PROMPTS / "sums")
    finish(recipe, program=BUSY)
    trained = [line for line in never["metrics"] if line["kind"] == "train"]
    assert all(line["skipped"] == 0 and line["optim/grad_norm"] > 0 for line in trained)
    # Told in one bit: the bytes themselves are of no use to a reader.
    assert (weights(left_behind(recipe)) == weights(never)) is True
    same(never, left_behind(recipe))
