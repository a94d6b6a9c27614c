"""What one sees while a run goes on: a live panel in a terminal, plain lines anywhere else."""

import logging
import math
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

Metrics = Mapping[str, float | None]
Clock = Callable[[], float]

UNKNOWN = "·"
BLOCKS = "▁▂▃▄▅▆▇█"
TRUTH = "health/vote_truth_accuracy"
RECENT = 8
"""The time left is reckoned from so many steps."""
NOTES = 3
"""So many notes stay in sight."""
PAUSE = 2.0
"""Seconds between two plain lines about the progress of a phase."""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What is known of a run before it starts."""

    title: str
    steps: int
    folder: str


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
        left = [f"eta {duration(self._progress.left())}"] if step < steps else []
        self._line(f"step {step}/{steps}", *_facts(metrics), *left)

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
            [_head(now, width, self._clock(), bool(self._live)), _doing(*self._doing, width)],
            _grid(_cells(now.last), width),
            _rewards(now.last, width),
            _tracks(now, width) + _eval(now, width),
            self._note_lines(width),
        ]
        room = max(self._console.height - 3, 2)
        _fit(parts, room)
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


@dataclass(slots=True)
class Progress:
    """What the steps so far have told. Values are replaced, never changed: a thread draws them."""

    steps: int = 0
    done: int = 0
    began: float = 0.0
    ended: float = 0.0
    """When the last step was over."""
    seconds: tuple[float, ...] = ()
    """Of the recent steps."""
    last: Metrics = field(default_factory=dict)
    tracks: dict[str, tuple[float | None, ...]] = field(
        default_factory=lambda: {"correct": (), "votes right": (), "loss": ()}
    )
    """A value for every step."""
    evals: tuple[int, Metrics] = field(default_factory=lambda: (0, {}))
    """The last evaluation, and its step."""

    def start(self, plan: RunPlan, now: float) -> None:
        self.steps, self.began, self.ended = plan.steps, now, now

    def step(self, metrics: Metrics, step: int, steps: int, now: float) -> None:
        seconds = known(metrics.get("seconds"))
        self.seconds = (*self.seconds, now - self.ended if seconds is None else seconds)[-RECENT:]
        self.done, self.steps, self.ended, self.last = step, steps, now, dict(metrics)
        values = (_correct(metrics), known(metrics.get(TRUTH)), known(metrics.get("loss")))
        self.tracks = {
            name: (*track, value)
            for (name, track), value in zip(self.tracks.items(), values, strict=True)
        }
        if found := {k.removeprefix("eval/"): v for k, v in metrics.items() if k[:5] == "eval/"}:
            self.evals = (step, found)

    def left(self) -> float | None:
        """Seconds to the end of the run, at the pace of the recent steps."""
        if not self.seconds:
            return None
        return sum(self.seconds) / len(self.seconds) * max(self.steps - self.done, 0)


def _fit(parts: Sequence[list[Text]], room: int) -> None:
    """Drops what matters least until the rest fits: the rewards, old notes, evaluation and tracks,
    numbers; the step and the phase stay."""
    _, grid, rewards, tracks, notes = parts
    if sum(map(len, parts)) > room:
        rewards.clear()
    for part, end, least in ((notes, 0, 4), (tracks, -1, 0), (grid, -1, 0), (notes, -1, 0)):
        while sum(map(len, parts)) > room and len(part) > least:
            part.pop(end)


def _head(now: Progress, width: int, clock: float, running: bool) -> Text:
    right = f"  {duration(clock - now.began)}"
    if running and now.done < now.steps:
        left = now.left()
        # It counts down while a step goes on.
        right += f"  eta {duration(None if left is None else left - (clock - now.ended))}"
    return _barred(f"step {now.done} of {now.steps}", now.done, now.steps, right, width, "bold")


def _doing(text: str, done: int, total: int, width: int) -> Text:
    return _barred(f"{text} {done} of {total}" if total else text, done, total, "", width, "")


def _barred(left: str, done: int, total: int, right: str, width: int, style: str) -> Text:
    """A label, a bar over the room that is left, and what stands behind it."""
    line = Text(left.ljust(20) + " ", style)
    room = width - line.cell_len - len(right)
    if total > 0 and room >= 4:
        full = round(room * min(max(done / total, 0.0), 1.0))
        line.append("━" * full, "not bold cyan").append("─" * (room - full), "not bold dim")
    return line.append(right)


def _cells(metrics: Metrics) -> list[tuple[str, str]]:
    """Numbers of the last step, by label. A warm start has a loss and no votes."""
    of = {name: known(value) for name, value in metrics.items()}.get
    broken, memory = of("parse_error"), rss()
    cells = [
        ("tokens/s", show(_speed(metrics), ",.0f")),
        ("votes right", show(of(TRUTH))),
        ("no signal", f"{show(of('env/all/flat_groups'), '.0f')}/{show(of('debates'), '.0f')}"),
        ("seconds", show(of("seconds"), ".1f")),
        ("format", show(None if broken is None else 1 - broken)),
        ("failed", show(of("debates/failed"), ".0f")),
        ("memory", UNKNOWN if memory is None else f"{memory / 1e9:.2f} GB"),
        ("malformed", show(of("pairwise_malformed"))),
        ("retried", show(of("debates/retried"), ".0f")),
    ]
    if "loss" not in metrics:
        return cells
    loss = ("loss", show(of("loss"), ".4g"))
    return [loss, *(cells if "parse_error" in metrics else cells[::3])]


def _grid(cells: Sequence[tuple[str, str]], width: int) -> list[Text]:
    columns = max(min(width // 23, 3), 1)
    rows = [cells[i : i + columns] for i in range(0, len(cells), columns)]
    lines = []
    for row in rows:
        line = Text()
        for label, value in row:
            line.append(label.ljust(13), "dim").append(value.ljust(width // columns - 13))
        lines.append(line)
    return lines


def _rewards(metrics: Metrics, width: int) -> list[Text]:
    """Mean rewards of every seat and of every round, beside each other where they fit."""
    table: dict[str, dict[str, dict[int, float | None]]] = {"seat": {}, "round": {}}
    for name, value in metrics.items():
        if found := _REWARD.fullmatch(name):
            row = table[found["by"]].setdefault(found["stream"] or "reward", {})
            row[int(found["n"])] = known(value)
    streams = sorted(table["seat"] | table["round"])
    labels = [Text(label.ljust(6), "dim") for label in ("", *streams)]
    blocks = []
    for (by, rows), first in zip(table.items(), (0, 1), strict=True):
        columns = sorted({n for row in rows.values() for n in row})
        names = [str(n + first) for n in columns]
        names[:1] = [f"{by} {name}" for name in names[:1]]
        block = [Text("".join(name.rjust(7) for name in names), "dim")]
        for stream in streams:
            cells = [_signed(rows.get(stream, {}).get(n)) for n in columns]
            block.append(Text.assemble(*cells))
        if columns:
            blocks.append(block)
    if len(blocks) == 2 and 8 + sum(block[0].cell_len for block in blocks) <= width:
        gap = [Text("  ")] * len(labels)
        return [Text.assemble(*row) for row in zip(labels, blocks[0], gap, blocks[1], strict=True)]
    return [Text.assemble(*row) for block in blocks for row in zip(labels, block, strict=True)]


def _tracks(now: Progress, width: int) -> list[Text]:
    """How a metric went over the whole run, with its first and last value."""
    lines = []
    for name, track in now.tracks.items():
        values = [value for value in track if value is not None]
        if values:
            line = Text(name.ljust(13), "dim").append(sparkline(track, width - 29), "cyan")
            lines.append(line.append(f"  {show(values[0])} → {show(values[-1])}"))
    return lines


def _eval(now: Progress, width: int) -> list[Text]:
    """The last evaluation, in one line or two."""
    step, values = now.evals
    lines = [Text(f"eval at {step}".ljust(13), "dim")] if values else []
    for name, value in values.items():
        item = f"{one_line(name)} {show(known(value))}  "
        if lines[-1].cell_len > 13 and lines[-1].cell_len + len(item) > width + 2:
            lines.append(Text(" " * 13))
        lines[-1].append(item)
    return lines[:2]


def _facts(metrics: Metrics) -> list[str]:
    """The numbers of a plain line: those that the step has, known or not."""
    values = dict(_cells(metrics)) | {"correct": show(_correct(metrics))}
    has = set(metrics) | ({"correct"} if any(map(_CORRECT.fullmatch, metrics)) else set())
    facts = (
        ("seconds", f"{values['seconds']} s"),
        ("tokens", f"{values['tokens/s']} tok/s"),
        ("loss", f"loss {values.get('loss')}"),
        ("correct", f"correct {values['correct']}"),
        (TRUTH, f"votes right {values.get('votes right')}"),
        ("parse_error", f"format {values.get('format')}"),
        ("env/all/flat_groups", f"no signal {values.get('no signal')}"),
        ("debates/failed", f"failed {values.get('failed')}"),
    )
    return [text for key, text in facts if key in has and text != "failed 0"]


_REWARD = re.compile(
    r"(?:reward/(?P<stream>gen|judge)|pairwise_reward)/by_(?P<by>seat|round)/(?P<n>[0-9]{1,4})"
)
_CORRECT = re.compile(r"train_.+/correct")


def _correct(metrics: Metrics) -> float | None:
    """Accuracy in training, the mean where there are several sets of questions."""
    found = [known(value) for name, value in metrics.items() if _CORRECT.fullmatch(name)]
    values = [value for value in found if value is not None]
    return sum(values) / len(values) if values else None


def _speed(metrics: Metrics) -> float | None:
    tokens, seconds = known(metrics.get("tokens")), known(metrics.get("seconds"))
    return tokens / seconds if tokens is not None and seconds else None


def _signed(value: float | None) -> tuple[str, str]:
    if value is None:
        return UNKNOWN.rjust(7), "dim"
    shown = round(value, 2) + 0.0
    return f"{shown:+7.2f}", "green" if shown > 0 else "red" if shown < 0 else ""


def sparkline(track: Sequence[float | None], width: int) -> str:
    """A block for every value, or for the mean of its neighbours where there are too many."""
    width = max(min(width, len(track)), 1)
    cuts = [len(track) * i // width for i in range(width + 1)]
    groups = [
        [value for value in track[a:b] if value is not None]
        for a, b in zip(cuts, cuts[1:], strict=False)
    ]
    means = [sum(group) / len(group) if group else None for group in groups]
    values = [mean for mean in means if mean is not None]
    low = min(values, default=0.0)
    # Small moves stay small: the blocks span a tenth at least.
    span = max(max(values, default=0.0) - low, 0.1)
    return "".join(" " if m is None else BLOCKS[round((m - low) / span * 7)] for m in means)


def known(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def show(value: float | None, spec: str = ".2f") -> str:
    return UNKNOWN if value is None else format(value, spec)


def duration(seconds: float | None) -> str:
    """`4:10`, or `1:04:10` from an hour on."""
    if seconds is None:
        return UNKNOWN
    minutes, rest = divmod(max(round(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def one_line(text: str) -> str:
    """Text in one line that cannot move the cursor or change colours."""
    joined = " ".join(text.split())
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in joined)


def rss() -> float | None:
    """Bytes of memory that this process holds; where that is not told, the most it ever held."""
    try:
        status = Path("/proc/self/status").read_text("ascii", "replace")
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024.0
    except (OSError, ValueError, IndexError):
        pass
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak) if sys.platform == "darwin" else peak * 1024.0
