"""Processes that are killed when they take too long."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rostra.errors import EngineError
from rostra.tasks.workers import Worker, Workers

SERVER = """
import os, signal, sys, time
from rostra.tasks.serving import limited, serve

def answer(line):
    word = line.strip()
    if word == "pid":
        return str(os.getpid())
    if word == "noise":
        print("noise within")
    if word == "burn":
        with limited(float(sys.argv[1])):
            while True:
                pass
    if word == "power":
        with limited(float(sys.argv[1])):
            return str(10 ** 10 ** 10)
    if word == "sleep":
        time.sleep(60)
    if word == "memory":
        try:
            bytearray(1 << 40)
        except MemoryError:
            return "too much"
    if word == "die":
        os._exit(3)
    job, _, file = word.partition(" ")
    if job in ("burns", "dies", "dies-once"):
        with open(file, "a") as seen:
            seen.write(job)
        asked = os.path.getsize(file) // len(job)
        if job == "burns":
            with limited(float(sys.argv[1])):
                while True:
                    pass
        if job == "dies" or (job == "dies-once" and asked == 1):
            os.kill(os.getpid(), signal.SIGTERM)
        return f"asked {asked} times"
    return word[::-1]

serve(answer)
"""


@pytest.fixture(autouse=True)
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "backwards.py").write_text(SERVER)
    (tmp_path / "stillborn.py").write_text("raise SystemExit(1)\n")
    monkeypatch.syspath_prepend(str(tmp_path))


def test_answers_come_in_the_order_of_the_lines() -> None:
    workers = Workers("backwards", count=2)
    lines = [f"line {i}" for i in range(50)]
    assert workers.ask(lines) == [line[::-1] for line in lines]
    assert workers.ask([]) == []
    workers.close()


def test_processes_are_started_on_first_need_and_used_again() -> None:
    workers = Workers("backwards", count=1)
    assert [worker for worker in workers._idle.queue if worker] == []
    first, again = workers.ask(["pid"]), workers.ask(["pid"])
    assert first == again != [str(os.getpid())]
    workers.close()


def test_what_is_printed_is_no_answer() -> None:
    workers = Workers("backwards", count=1)
    assert workers.ask(["noise", "abc"]) == ["esion", "cba"]
    workers.close()


@pytest.mark.parametrize("job", ["burn", "power", "die"])
def test_a_job_that_does_not_end_costs_its_own_answer_only(job: str) -> None:
    workers = Workers("backwards", count=1, deadline=0.2)
    before = workers.ask(["pid"])
    assert workers.ask(["abc", job, "def"]) == ["cba", None, "fed"]
    assert workers.ask(["pid"]) != before
    workers.close()


def test_a_line_whose_process_ended_for_another_reason_is_asked_again(tmp_path: Path) -> None:
    workers = Workers("backwards", count=1)
    assert workers.ask([f"dies-once {tmp_path / 'seen'}"]) == ["asked 2 times"]
    assert workers.ask(["abc"]) == ["cba"]
    workers.close()


@pytest.mark.parametrize(("job", "times"), [("burns", 1), ("dies", 2)])
def test_a_line_that_takes_too_long_is_asked_once_and_one_that_kills_twice(
    job: str, times: int, tmp_path: Path
) -> None:
    workers, file = Workers("backwards", count=1, deadline=0.2), tmp_path / "seen"
    assert workers.ask([f"{job} {file}"]) == [None]
    assert file.read_text() == job * times
    workers.close()


def test_a_process_that_died_while_nobody_asked_is_replaced() -> None:
    workers = Workers("backwards", count=1)
    (before,) = workers.ask(["pid"])
    for code in (signal.SIGTERM, signal.SIGKILL):
        (worker,) = (worker for worker in workers._idle.queue if worker)
        worker.process.send_signal(code)
        worker.process.wait()
        assert workers.ask(["abc"]) == ["cba"]
    assert workers.ask(["pid"]) != [before]
    workers.close()


INTERRUPTED = """
import os, signal, time
from rostra.tasks.workers import Workers

heard = []
signal.signal(signal.SIGINT, lambda *_: heard.append(1))
workers = Workers("backwards", count=2)
before = {*workers.ask(["pid"] * 8)}
os.killpg(0, signal.SIGINT)
while not heard:
    time.sleep(0.01)
for worker in [worker for worker in workers._idle.queue if worker]:
    worker.process.send_signal(signal.SIGINT)
time.sleep(0.3)
print(workers.ask(["abc", "def", "ghi"]), {*workers.ask(["pid"] * 8)} <= before)
"""


@pytest.mark.skipif(os.name != "posix", reason="signals are of POSIX")
def test_ctrl_c_that_the_program_outlives_ends_no_process(tmp_path: Path) -> None:
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )
    assert (done.stdout, done.stderr) == ("['cba', 'fed', 'ihg'] True\n", "")


def test_a_process_that_waits_for_nothing_is_given_up() -> None:
    workers = Workers("backwards", count=1, patience=0.3)
    began = time.monotonic()
    assert workers.ask(["sleep"]) == [None]
    assert time.monotonic() - began < 30
    assert workers.ask(["abc"]) == ["cba"]
    workers.close()


def test_a_process_cannot_take_all_the_memory() -> None:
    workers = Workers("backwards", count=1)
    assert workers.ask(["memory"]) == ["too much"]
    workers.close()


def test_many_threads_may_ask_at_once() -> None:
    workers = Workers("backwards", count=2)
    found: dict[int, list[str | None]] = {}

    def work(n: int) -> None:
        found[n] = workers.ask([f"{n}-{i}" for i in range(5)])

    threads = [threading.Thread(target=work, args=(n,)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: [f"{n}-{i}"[::-1] for i in range(5)] for n in range(5)}
    workers.close()


def test_a_process_that_does_not_start_is_an_error() -> None:
    workers = Workers("stillborn", count=1)
    with pytest.raises(EngineError, match="did not start"):
        workers.ask(["abc"])
    with pytest.raises(EngineError, match="did not start"):
        workers.ask(["abc"])
    workers.close()


def test_an_interrupted_question_leaves_no_answer_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workers = Workers("backwards", count=1)
    assert workers.ask(["abc"]) == ["cba"]
    read = Worker._answer

    def interrupted(self: Worker, line: str, seconds: float) -> str | None:
        monkeypatch.setattr(Worker, "_answer", read)
        assert self.process.stdin
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        raise KeyboardInterrupt

    monkeypatch.setattr(Worker, "_answer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        workers.ask(["first"])
    assert workers.ask(["second"]) == ["dnoces"]
    workers.close()


def test_a_closed_set_leaves_no_process() -> None:
    workers = Workers("backwards", count=2)
    workers.ask(["a", "b", "c"])
    processes = [worker.process for worker in workers._idle.queue if worker]
    workers.close()
    assert processes and all(process.poll() is not None for process in processes)
