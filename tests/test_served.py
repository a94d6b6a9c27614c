"""A real server, `transformers serve`, asked by everything that can ask one."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import rostra
from rostra.engines.chat import Message
from rostra.engines.sampling import Completion, SamplingParams
from rostra.errors import EngineUnavailable
from rostra.runs.recipe import read_recipe
from rostra.runs.transcripts import read_transcripts
from tests.cli.inside import inside

for package in ("torch", "httpx2", "fastapi", "uvicorn", "openai"):
    pytest.importorskip(package)

pytestmark = pytest.mark.timeout(300)

RECIPES = Path(__file__).parent.parent / "recipes"
WEIGHTS = RECIPES / "weights" / "sums"
RECIPE = RECIPES / "peer-v2-sums.toml"
ENVIRONMENT = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}


class Server:
    """The weights of the demo behind an address."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self.address = f"{self.url}#{WEIGHTS}"
        self._log = folder / "server.log"
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-c", "from transformers.cli.transformers import main; main()"]
        command += ["serve", str(WEIGHTS), "--host", "127.0.0.1", "--port", str(self.port)]
        hub = self._folder / "hub"
        hub.mkdir(exist_ok=True)
        env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(hub)}
        env["OMP_NUM_THREADS"] = "1"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=env)
        self._wait()

    def _wait(self) -> None:
        for _ in range(600):
            assert self.process.poll() is None, self._log.read_text()
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2).close()
                return
            except OSError:
                time.sleep(0.1)
        raise AssertionError(self._log.read_text())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def replies(self) -> int:
        """How many it has given."""
        return self._log.read_text().count('"POST /v1/chat/completions HTTP/1.1" 200')


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    one = Server(tmp_path_factory.mktemp("server"))
    yield one
    one.kill()


@pytest.fixture
def server(started: Server) -> Server:
    """Up again, where a test has killed it."""
    if started.process.poll() is not None:
        started.start()
    return started


@pytest.fixture(scope="module")
def whole(started: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An evaluation against the server that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    process = evaluation(started, folder, "whole")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "its opponents are right" in out
    return folder / "whole"


def command(*words: str, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "rostra", *words],
        cwd=cwd,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    )


def run(*words: str, cwd: Path) -> tuple[int, str, str]:
    done = command(*words, cwd=cwd)
    out, err = done.communicate(timeout=120)
    return done.returncode, out, err


def sums_protocol(folder: Path) -> str:
    """A file with the rules of the demo."""
    file = folder / "rules.toml"
    prompts = json.dumps(str(RECIPES / "prompts" / "sums"))
    file.write_text(f"[protocol]\nrounds = 1\nmax_tokens = 64\nprompts = {prompts}\n")
    return str(file)


async def greedy(engine: rostra.Engine, prompts: list[str]) -> list[tuple[int, Completion]]:
    """Each prompt with what is most likely said to it, and the length of the prompt in tokens."""
    sampler = await engine.sampler()
    params = SamplingParams(max_tokens=48, temperature=0, stop=("</comparison>",))
    asked = [engine.chat.open([Message("system", "You add."), Message("user", p)]) for p in prompts]
    found = await asyncio.gather(*(sampler.sample(tokens, 1, params) for tokens in asked))
    return [(len(tokens), one) for tokens, (one,) in zip(asked, found, strict=True)]


def test_it_says_what_the_same_weights_say_here(server: Server) -> None:
    prompts = [f"Question:\n{a}+{b}\n\nReply" for a, b in ((3, 4), (12, 15), (28, 9), (0, 0))]
    there = asyncio.run(greedy(rostra.OpenAIEngine(server.address), prompts))
    here = asyncio.run(greedy(rostra.LocalEngine(str(WEIGHTS)), prompts))
    for (_, served), (length, local) in zip(there, here, strict=True):
        assert served.text == local.text and served.text
        assert served.stop_reason == local.stop_reason
        assert served.usage == (length, len(local.tokens))
        assert not np.any(served.logprobs)


def test_three_lines_answer_by_debate(server: Server) -> None:
    rules = read_recipe(RECIPE).protocol
    found = rostra.answer("12+5", model=server.address, rules=rules)
    assert found.answer == "17" and found.ended == "agreement"
    turns = found.transcripts[0].turns
    assert found.tokens == sum(turn.sampled for turn in turns) == sum(t.usage[1] for t in turns)
    assert found.tokens < sum(len(turn.tokens) for turn in turns)  # which are bytes


def test_a_debate_is_watched_and_kept(server: Server, tmp_path: Path) -> None:
    ask = ("debate", "8+7", "--model", server.address, "--config", sums_protocol(tmp_path))
    more = ("--agents", "3", "--stop-on-agreement", "0", "--out", "d.json")
    done = inside(*ask, *more, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert all(word in done.stdout for word in ("Agent 2", "ballot", "Answer:"))
    (stored,) = read_transcripts(tmp_path / "d.json")
    assert len(stored.transcript.turns) == 6
    # Every prompt is the whole conversation again, and the server counts all of it.
    first, later = (stored.transcript.turns[i] for i in (0, 3))
    assert later.usage is not None and first.usage is not None
    assert later.usage.read > first.usage.read + first.usage.sampled
    done = inside(*ask, "--quiet", "--engine", "openai", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.strip().isdigit()


def test_a_model_that_is_not_named_or_not_known_is_told_from_what_is_served(
    server: Server, tmp_path: Path
) -> None:
    done = inside("debate", "8+7", "--model", server.url, cwd=tmp_path)
    assert done.returncode == 2
    assert f"name the model after a #, as in {server.url}#" in done.stderr
    done = inside("debate", "8+7", "--model", f"{server.url}#gpt-7", cwd=tmp_path)
    assert done.returncode == 2 and "#gpt-7: no such model: " in done.stderr


def test_it_is_evaluated_like_any_model(server: Server, tmp_path: Path) -> None:
    words = ("--recipe", str(RECIPE), "--mode", "direct", "--temperature", "0", "--samples", "1")
    results = []
    for subject, place in ((server.address, "sums@127.0.0.1-sums"), (str(WEIGHTS), "sums-sums")):
        ask = ("eval", subject, *words, "--questions", "20")
        done = inside(*ask, cwd=tmp_path, COLUMNS="200")
        assert done.returncode == 0, done.stderr
        results.append(json.loads((tmp_path / "evals" / place / "results.json").read_text()))
    served, local = (each["direct"] for each in results)
    for name in ("accuracy", "format", "tokens", "prompt_tokens"):
        assert served[name] == local[name]
    assert 0 < served["accuracy"]["mean"] < 1


def evaluation(server: Server, cwd: Path, out: str, *more: str) -> subprocess.Popen[str]:
    words = ("eval", str(WEIGHTS), "--recipe", str(RECIPE), "--mode", "roles", "--questions", "2")
    words = (*words, "--opponent", server.address, "--out", out, "--temperature", "0")
    return command(*words, "model.lanes=16", *more, cwd=cwd)


def rows(folder: Path) -> list[str]:
    return sorted((folder / "rows.jsonl").read_text().splitlines())


def test_it_is_an_opponent_in_every_seat_but_one(server: Server, whole: Path) -> None:
    asked = json.loads((whole / "eval.json").read_text())
    assert asked["opponent"] == server.address
    debates = [stored.transcript for stored in read_transcripts(whole)]
    assert len(debates) == 2 * 5
    # The policy, whose tokens are its own, is once in every seat for every question.
    seats = [{t.id.seat for t in debate.turns if not t.usage} for debate in debates]
    assert sorted(map(tuple, seats)) == [(seat,) for seat in range(5) for _ in range(2)]
    assert all(len(debate.turns) == 10 for debate in debates)
    results = json.loads((whole / "results.json").read_text())["roles"]
    spent = [sum(t.sampled for t in debate.turns) for debate in debates]
    assert results["tokens"]["mean"] == pytest.approx(np.mean(spent))
    assert 0 < results["accuracy"]["mean"] <= 1


def test_a_server_that_is_killed_and_comes_back_changes_nothing(
    server: Server, whole: Path, tmp_path: Path
) -> None:
    before = server.replies
    process = evaluation(server, tmp_path, "hurt")
    while server.replies < before + 30:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    server.kill()
    server.start()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert f"{server.url} does not answer" in err and "Trying again" in err
    assert rows(tmp_path / "hurt") == rows(whole)


def test_ctrl_c_does_not_wait_for_the_server(server: Server, tmp_path: Path) -> None:
    before = server.replies
    process = evaluation(server, tmp_path, "stopped")
    while server.replies < before + 5:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    _, err = process.communicate(timeout=60)
    assert time.monotonic() - began < 20
    assert process.returncode == 2
    # Which of the two depends on whether a debate was over.
    kept = any((tmp_path / "stopped" / "transcripts").glob("*"))
    assert ("Go on with: rostra eval" if kept else "Try again with: rostra eval") in err
    assert err.rstrip().endswith("--resume") is kept


def test_a_stronger_model_behind_an_address_guides_judges(server: Server, tmp_path: Path) -> None:
    before = server.replies
    words = ("train", str(RECIPE), f"model.start={WEIGHTS}", "train.steps=1", "eval.questions=0")
    words += ("train.questions=3", "eval.debates=0", "eval.prepared=0", "train.save_every=1")
    code, _, err = run(
        *words, f"bootstrap.guide={server.address}", "bootstrap.weight=0.5", cwd=tmp_path
    )
    assert code == 0, err
    assert server.replies - before == 3 * 5  # a ballot of every seat
    file = tmp_path / "runs" / "peer-v2-sums" / "metrics.jsonl"
    metrics = [json.loads(line) for line in file.read_text().splitlines()]
    assert any(line.get("bootstrap/weight") == 0.5 for line in metrics)


def test_a_server_that_dies_and_stays_away_is_named(server: Server) -> None:
    engine = rostra.OpenAIEngine(server.address, patience=0.5)

    async def debate() -> None:
        player = rostra.ModelPlayer(await engine.sampler(), engine.chat)
        server.kill()
        await rostra.answer_async("1+1", player, read_recipe(RECIPE).protocol)

    with pytest.raises(EngineUnavailable, match=f"{server.url} does not answer"):
        asyncio.run(debate())
