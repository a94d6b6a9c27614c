"""One thread that does all torch work, so that the event loop never waits for a product.

Between two steps of sampling it advances whatever else is to be done (training, saving) by one
unit. Work in progress is asked in every layer whether it should go on, so that stopping takes a
fraction of a second, also amid a long backward pass.

Between a step that had results and the next one, the thread waits until the event loop has done all
it can with them. So who is in which batch does not depend on who was faster, and the same run gives
the same numbers, bit by bit.
"""

import asyncio
import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from rostra.engines.local.request import Request
from rostra.engines.local.scheduler import Scheduler
from rostra.errors import EngineError, EngineUnavailable, RostraError

T = TypeVar("T")
Work = Generator[None, None, T]
"""A piece of work that yields wherever others may have their turn."""


class Interrupted(Exception):
    """Work in progress is not wanted any more."""


class _Job:
    def __init__(self, work: Work[Any], done: Callable[[Any], None]) -> None:
        self.work = work
        self.done = done
        self.cancelled = False


class Worker:
    """Owns the thread. Everything it holds is touched by that thread alone."""

    def __init__(self) -> None:
        self.scheduler: Scheduler | None = None
        self._inbox: queue.SimpleQueue[Request | _Job | None] = queue.SimpleQueue()
        self._jobs: deque[_Job] = deque()
        self._closing = False
        self._current: _Job | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._events: asyncio.AbstractEventLoop | None = None
        self._news = False
        """Whether something came in or went out since the event loop was last quiet."""

    async def sample(self, make: Callable[[Callable[[Any], None]], Request]) -> Any:
        """Hands over one request and waits for its result."""
        future, done = self._promise()
        request = make(done)
        self._put(request)
        try:
            return await future
        except asyncio.CancelledError:
            request.cancelled = True
            raise

    async def run(self, work: Work[T]) -> T:
        """Runs work on the thread, after all work that came before it."""
        future, done = self._promise()
        job = _Job(work, done)
        self._put(job)
        try:
            return await future  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            job.cancelled = True
            raise

    def check(self) -> None:
        """Asked by work in progress; raises when it should stop."""
        if self._closing or (self._current is not None and self._current.cancelled):
            raise Interrupted

    def close(self, patience: float = 30.0) -> None:
        """Stops the thread, whatever it is doing. That takes as long as one layer of one pass;
        a process that ends before its thread is aborted by torch."""
        with self._lock:
            self._closing = True
        self._inbox.put(None)
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(patience)

    def _put(self, item: Request | _Job) -> None:
        with self._lock:
            if self._closing:
                raise EngineUnavailable("the local engine is closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="rostra-local", daemon=True)
                self._thread.start()
            self._inbox.put(item)

    def _loop(self) -> None:
        while not self._closing:
            self._receive()
            self._settle()
            if self._jobs and not self._closing:
                self._advance(self._jobs[0])
            if self.scheduler is not None and self.scheduler.busy and not self._closing:
                try:
                    self.scheduler.step()
                except Interrupted:
                    pass
                except Exception as error:
                    self.scheduler.fail(_as_engine_error(error))
        gone = EngineUnavailable("the local engine was closed")
        with self._lock:
            self._receive(wait=False)
        if self.scheduler is not None:
            self.scheduler.fail(gone)
        for job in self._jobs:
            job.work.close()
            job.done(gone)

    def _receive(self, wait: bool = True) -> None:
        """Takes in what has come; waits when there is nothing else to do."""
        busy = self._jobs or (self.scheduler is not None and self.scheduler.busy)
        idle = wait and not busy
        while True:
            try:
                item = self._inbox.get(block=idle)
            except queue.Empty:
                return
            idle = False
            self._news = True
            if isinstance(item, Request):
                assert self.scheduler is not None
                self.scheduler.add(item)
            elif item is not None:
                self._jobs.append(item)

    def _settle(self) -> None:
        """Lets the event loop come to rest, and takes in what it asked for meanwhile."""
        while self._news and not self._closing:
            self._news = False
            events = self._events
            if events is None or not events.is_running():
                return
            quiet = threading.Event()
            with contextlib.suppress(RuntimeError):  # closed this very moment
                events.call_soon_threadsafe(_when_quiet, events, quiet, 0)
            while not quiet.wait(0.05):
                if self._closing or not events.is_running():
                    return
            self._receive(wait=False)

    def _promise(self) -> tuple[asyncio.Future[Any], Callable[[Any], None]]:
        """A future, and a way to settle it from another thread."""
        loop = self._events = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def settle(result: Any) -> None:
            if future.done():
                return
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)

        def done(result: Any) -> None:
            self._news = True
            # A loop that was closed while we worked has nobody left to tell.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, result)

        return future, done

    def _advance(self, job: _Job) -> None:
        self._current = job
        try:
            if job.cancelled:
                job.work.close()
                self._jobs.popleft()
                return
            next(job.work)
        except StopIteration as end:
            self._jobs.popleft()
            job.done(end.value)
        except Interrupted:
            self._jobs.popleft()
            job.done(EngineError("interrupted"))
        except Exception as error:
            self._jobs.popleft()
            job.done(error if isinstance(error, RostraError) else _as_engine_error(error))
        finally:
            self._current = None


def _as_engine_error(error: Exception) -> EngineError:
    if isinstance(error, EngineError):
        return error
    wrapped = EngineError(f"the local engine failed: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped


def _when_quiet(loop: asyncio.AbstractEventLoop, quiet: threading.Event, turns: int) -> None:
    """Tells when nothing is left to do but to wait. A loop of another make does not show what it
    has to do, and one that never rests is not waited for: a number of turns must do."""
    waiting = getattr(loop, "_ready", None)
    enough = turns >= (32 if waiting is None else 1000)
    if enough or (waiting is not None and not waiting):
        quiet.set()
    else:
        loop.call_soon(_when_quiet, loop, quiet, turns + 1)
