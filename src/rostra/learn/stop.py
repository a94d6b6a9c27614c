"""Stopping a run so that it can be resumed."""

import asyncio
from dataclasses import dataclass
from typing import Any, TypeVar

from rostra.errors import RostraError

T = TypeVar("T")


class Stopped(RostraError):
    """The run ended before its last step, and can be resumed."""


@dataclass(slots=True)
class Stop:
    """A request to stop, which a loop looks at between steps."""

    asked: bool = False
    current: "asyncio.Future[Any] | None" = None
    """What can be given up at once, because a resumed run makes it again."""

    def ask(self) -> None:
        self.asked = True
        if self.current is not None:
            self.current.cancel()

    def check(self, step: int) -> None:
        if self.asked:
            raise Stopped(f"stopped after {step} {'step' if step == 1 else 'steps'}")

    async def watch(self, work: "asyncio.Future[T]", step: int) -> T:
        """Waits for work that a request to stop gives up."""
        self.current = work
        try:
            return await work
        except asyncio.CancelledError:
            self.check(step)
            raise
        finally:
            self.current = None
            if not work.done():
                work.cancel()
