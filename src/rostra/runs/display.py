"""What one sees while a run goes on: a live panel in a terminal, plain lines anywhere else."""

import logging
import math
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from rostra.runs.panel import (
    Metrics,
    Progress,
    RunPlan,
    cells_part,
    doing_part,
    duration,
    eval_part,
    facts_part,
    fit_part,
    grid_part,
    head_part,
    known,
    measures,
    one_line,
    only_measures,
    rewards_part,
    rss,
    show,
    sparkline,
    tracks_part,
)

Clock = Callable[[], float]

NOTES = 3
"""So many notes stay in sight."""
MEASURES = 7
"""So many numbers of an evaluation are on a plain line."""
PAUSE = 2.0
"""Seconds between two plain lines about the progress of a phase."""


class Display(Protocol):
    """Told what happens, from the thread of the loop; `note` may be called from any."""

    def start(self, plan: RunPlan) -> None: ...

    def phase(self, text: str, done: int, total: int) -> None:
        """What the run does right now; a total of 0 where nothing can be counted."""

    def step(self, metrics: Metrics, *, step: int, steps: int) -> None:
        """The step of that number, from 1, is over."""

    def note(self, text: str) -> None:
        """Something that a person should read."""

    def stop(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.stop()


def display(console: Console) -> Display:
    """Live where the cursor can move and blocks can be drawn, plain elsewhere."""
    able = console.is_terminal and not console.is_dumb_terminal
    return (
        LiveDisplay(console) if able and not console.options.ascii_only else PlainDisplay(console)
    )


class PlainDisplay(Display):
    """A line for every step and note, without escape codes, written at once."""

    def __init__(self, console: Console, clock: Clock = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._progress = Progress()
        self._spoke = -math.inf

    def start(self, plan: RunPlan) -> None:
        self._progress.start(plan, self._clock())
        self._line(f"{plan.title}: {plan.steps} steps, in {plan.folder}")

    def phase(self, text: str, done: int, total: int) -> None:
        if self._clock() - self._spoke >= PAUSE:
            self._line(f"{text} {done} of {total}" if total else text, indent="  ")

    def step(self, metrics: Metrics, *, step: int, steps: int) -> None:
        self._progress.step(metrics, step, steps, self._clock())
        if only_measures(metrics):
            found = list(measures(metrics).items())[:MEASURES]
            self._line(f"eval at {step}", *(f"{name} {show(known(v))}" for name, v in found))
            return
        left = [f"eta {duration(self._progress.left())}"] if step < steps else []
        self._line(f"step {step}/{steps}", *facts_part(metrics), *left)

    def note(self, text: str) -> None:
        self._line(f"note: {text}")

    def stop(self) -> None:
        self._console.file.flush()

    def _line(self, *cells: str, indent: str = "") -> None:
        self._spoke = self._clock()
        self._console.out(indent + "  ".join(map(one_line, cells)), highlight=False)
        self._console.file.flush()


class LiveDisplay(Display):
    """A panel that stays where it is and leaves its last state behind.

    While it stands, what the library logs becomes a note: a line printed by anybody else would tear
    the panel. A log file goes on being written.
    """

    def __init__(self, console: Console, clock: Clock = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._progress = Progress()
        self._plan = RunPlan("", 0, "")
        self._doing = ("starting", 0, 0)
        self._notes: tuple[str, ...] = ()
        self._live: Live | None = None
        self._logger = logging.getLogger("rostra")
        self._moved: list[logging.Handler] = []
        self._handler = _ToNotes(self.note)

    def start(self, plan: RunPlan) -> None:
        if self._live:
            return
        self._plan = plan
        self._progress.start(plan, self._clock())
        # Drawn by a thread of its own, so that the clock goes on while the loop is busy training.
        self._live = Live(console=self._console, get_renderable=self.panel, refresh_per_second=4)
        self._live.start(refresh=True)
        self._moved = [h for h in self._logger.handlers if not isinstance(h, logging.FileHandler)]
        for handler in self._moved:
            self._logger.removeHandler(handler)
        self._logger.addHandler(self._handler)

    def phase(self, text: str, done: int, total: int) -> None:
        self._doing = (one_line(text), done, total)

    def step(self, metrics: Metrics, *, step: int, steps: int) -> None:
        self._progress.step(metrics, step, steps, self._clock())

    def note(self, text: str) -> None:
        # A new tuple, because the panel may be reading the old one.
        self._notes = (*self._notes, one_line(text))[-NOTES:]

    def stop(self) -> None:
        if not self._live:
            return
        finished = self._progress.done >= self._progress.steps
        self._doing = ("finished" if finished else "stopped", 0, 0)
        live, self._live = self._live, None
        try:
            live.stop()
        finally:
            self._logger.removeHandler(self._handler)
            for handler in self._moved:
                self._logger.addHandler(handler)

    def panel(self) -> Panel:
        """All that there is room for, a blank line between the parts where one is left."""
        width, now = max(self._console.width - 4, 1), self._progress
        parts = [
            [
                head_part(now, width, self._clock(), bool(self._live)),
                doing_part(*self._doing, width),
            ],
            grid_part(cells_part(now.last), width),
            rewards_part(now.last, width),
            tracks_part(now, width) + eval_part(now, width),
            self._note_lines(width),
        ]
        room = max(self._console.height - 3, 2)
        fit_part(parts, room)
        spare = room - sum(map(len, parts))
        lines: list[Text] = []
        for part in parts:
            if part and lines and spare > 0:
                lines.append(Text())
                spare -= 1
            lines += part
        for line in lines:
            line.no_wrap, line.overflow = True, "ellipsis"
        return Panel(
            Group(*lines),
            title=Text(one_line(self._plan.title), "bold"),
            title_align="left",
            subtitle=Text(one_line(self._plan.folder), "dim"),
            subtitle_align="right",
            border_style="dim",
        )

    def _note_lines(self, width: int) -> list[Text]:
        """The notes before the last in a line each, and the last in up to four."""
        if not self._notes:
            return []
        *before, last = (Text(f"! {note}", "yellow") for note in self._notes)
        lines = list(last.wrap(self._console, width))
        for line in lines:
            line.rstrip()
        # What is too long for four lines ends in an ellipsis, as every line does.
        return [*before, *lines[:3], *([Text(" ").join(lines[3:])] if lines[3:] else [])]


class _ToNotes(logging.Handler):
    """Log records as notes."""

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__()
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._note(record.getMessage())
        except Exception:
            self.handleError(record)


__all__ = [
    "Display",
    "LiveDisplay",
    "PlainDisplay",
    "RunPlan",
    "display",
    "duration",
    "one_line",
    "rss",
    "sparkline",
]
