"""Processes that do what may never end: one that takes too long is killed, and another started.

They are new interpreters and no forks, because the one that starts them may hold torch and threads.
They end when their standard input does, so none outlives who started it, however that ended. They
are a session of their own, so that Ctrl-C, which a run finishes its step on, does not end them.

A line that takes too long is left without an answer. One whose process ended otherwise is asked
once more.
"""

import contextlib
import os
import queue
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from rostra.errors import EngineError
from rostra.tasks.serving import OVER

DEADLINE = 2.0
"""Seconds of work for one job. A process counts its own, so a busy machine changes no answer."""
PATIENCE = 20.0
"""Seconds until a job is given up that does not count its own."""
ENVIRONMENT = {
    "PYTHONUTF8": "1",
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
"""Sets have one order in all processes, and none takes memory for threads that it does not need."""
START = 120.0
"""Seconds for a process to be ready. Importing takes one or two, on an idle machine."""
TRIES = 2
"""A line that has ended so many processes is taken to be why."""


class Lost(Exception):
    """A process ended before it answered, and not because its time was over."""


class Worker:
    """One process, which answers one line with one line."""

    def __init__(self, module: str, deadline: float, patience: float) -> None:
        path = os.pathsep.join(entry for entry in sys.path if entry)
        self._patience = patience
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(deadline)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **ENVIRONMENT, "PYTHONPATH": path},
            encoding="utf-8",
            start_new_session=True,
        )
        self._ready = False

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def ask(self, line: str) -> str | None:
        """The answer; None if there was none in time, and then the process is of no use."""
        if not self._ready:
            with contextlib.suppress(Lost):
                self._ready = self._answer("", START) is not None
            if not self._ready:
                raise EngineError("a grading process did not start; is the machine out of memory?")
        return self._answer(line, self._patience)

    def _answer(self, line: str, seconds: float) -> str | None:
        assert self.process.stdin and self.process.stdout
        late = threading.Event()
        alarm = threading.Timer(seconds, self._give_up, [late])
        alarm.daemon = True
        alarm.start()
        answer = ""
        try:
            with contextlib.suppress(OSError):
                self.process.stdin.write(f"{line}\n")
                self.process.stdin.flush()
                answer = self.process.stdout.readline()
            # A process that was killed while it wrote leaves a line without an end.
            if answer.endswith("\n"):
                return answer[:-1]
            code = self.process.wait()
        finally:
            alarm.cancel()
        if late.is_set() or code == OVER:
            return None
        raise Lost

    def _give_up(self, late: threading.Event) -> None:
        late.set()
        self.process.kill()

    def close(self) -> None:
        self.process.kill()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream
            # What was still to be written is for nobody.
            with contextlib.suppress(OSError):
                stream.close()
        self.process.wait()


class Workers:
    """As many processes as there are cores, started on first need and used again. Any thread may
    ask; one that finds all at work waits."""

    def __init__(
        self,
        module: str,
        *,
        count: int = 0,
        deadline: float = DEADLINE,
        patience: float = PATIENCE,
    ) -> None:
        self.count = count or max(1, min(4, os.cpu_count() or 1))
        self._module = module
        self._limits = deadline, patience
        self._idle: queue.LifoQueue[Worker | None] = queue.LifoQueue()
        for _ in range(self.count):
            self._idle.put(None)
        self.close = weakref.finalize(self, _close, self._idle)
        """Ends all processes. At the end of the program this happens by itself."""

    def ask(self, lines: Sequence[str]) -> list[str | None]:
        """The answers to many lines; None for those that took too long, or that ended every process
        they were put to."""
        if len(lines) <= 1:
            return [self._ask(line) for line in lines]
        with ThreadPoolExecutor(min(self.count, len(lines))) as threads:
            return list(threads.map(self._ask, lines))

    def _ask(self, line: str) -> str | None:
        for _ in range(TRIES):
            with contextlib.suppress(Lost):
                return self._ask_one(line)
        return None

    def _ask_one(self, line: str) -> str | None:
        worker, answer = self._idle.get(), None
        try:
            if worker and not worker.alive:
                worker.close()
                worker = None
            worker = worker or Worker(self._module, *self._limits)
            answer = worker.ask(line)
        finally:
            # One that was interrupted still has an answer to give, to a question nobody asked.
            if worker and answer is None:
                worker.close()
                worker = None
            self._idle.put(worker)
        return answer


def _close(idle: "queue.LifoQueue[Worker | None]") -> None:
    while not idle.empty():
        worker = idle.get()
        if worker:
            worker.close()
