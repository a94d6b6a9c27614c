"""What the live display draws: how far a run is, and its numbers in little room."""

import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.text import Text

Metrics = Mapping[str, float | None]

UNKNOWN = "·"
BLOCKS = "▁▂▃▄▅▆▇█"
TRUTH = "health/vote_truth_accuracy"
RECENT = 8
"""The time left is reckoned from so many steps."""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What is known of a run before it starts."""

    title: str
    steps: int
    folder: str


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
        if found := measures(metrics):
            self.evals = (step, found)
        if only_measures(metrics):  # no step: its time is no measure for the steps to come
            self.done, self.steps, self.ended = step, steps, now
            return
        seconds = known(metrics.get("seconds"))
        self.seconds = (*self.seconds, now - self.ended if seconds is None else seconds)[-RECENT:]
        self.done, self.steps, self.ended, self.last = step, steps, now, dict(metrics)
        values = (_correct(metrics), known(metrics.get(TRUTH)), known(metrics.get("loss")))
        self.tracks = {
            name: (*track, value)
            for (name, track), value in zip(self.tracks.items(), values, strict=True)
        }

    def left(self) -> float | None:
        """Seconds to the end of the run, at the pace of the recent steps."""
        if not self.seconds:
            return None
        return sum(self.seconds) / len(self.seconds) * max(self.steps - self.done, 0)


def fit_part(parts: Sequence[list[Text]], room: int) -> None:
    """Drops what matters least until the rest fits: the rewards, old notes, evaluation and tracks,
    numbers; the step and the phase stay."""
    _, grid, rewards, tracks, notes = parts
    if sum(map(len, parts)) > room:
        rewards.clear()
    for part, end, least in ((notes, 0, 4), (tracks, -1, 0), (grid, -1, 0), (notes, -1, 0)):
        while sum(map(len, parts)) > room and len(part) > least:
            part.pop(end)


def head_part(now: Progress, width: int, clock: float, running: bool) -> Text:
    right = f"  {duration(clock - now.began)}"
    if running and now.done < now.steps:
        left = now.left()
        # It counts down while a step goes on.
        right += f"  eta {duration(None if left is None else left - (clock - now.ended))}"
    return _barred(f"step {now.done} of {now.steps}", now.done, now.steps, right, width, "bold")


def doing_part(text: str, done: int, total: int, width: int) -> Text:
    return _barred(f"{text} {done} of {total}" if total else text, done, total, "", width, "")


def _barred(left: str, done: int, total: int, right: str, width: int, style: str) -> Text:
    """A label, a bar over the room that is left, and what stands behind it."""
    line = Text(left.ljust(20) + " ", style)
    room = width - line.cell_len - len(right)
    if total > 0 and room >= 4:
        full = round(room * min(max(done / total, 0.0), 1.0))
        line.append("━" * full, "not bold cyan").append("─" * (room - full), "not bold dim")
    return line.append(right)


def cells_part(metrics: Metrics) -> list[tuple[str, str]]:
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


def grid_part(cells: Sequence[tuple[str, str]], width: int) -> list[Text]:
    columns = max(min(width // 23, 3), 1)
    rows = [cells[i : i + columns] for i in range(0, len(cells), columns)]
    lines = []
    for row in rows:
        line = Text()
        for label, value in row:
            line.append(label.ljust(13), "dim").append(value.ljust(width // columns - 13))
        lines.append(line)
    return lines


def rewards_part(metrics: Metrics, width: int) -> list[Text]:
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


def tracks_part(now: Progress, width: int) -> list[Text]:
    """How a metric went over the whole run, with its first and last value."""
    lines = []
    for name, track in now.tracks.items():
        values = [value for value in track if value is not None]
        if values:
            line = Text(name.ljust(13), "dim").append(sparkline(track, width - 29), "cyan")
            lines.append(line.append(f"  {show(values[0])} → {show(values[-1])}"))
    return lines


def measures(metrics: Metrics) -> dict[str, float | None]:
    """What an evaluation found, without the ends of intervals."""
    return {
        name.removeprefix("eval/"): value
        for name, value in metrics.items()
        if name.startswith("eval/") and not name.endswith(("/low", "/high"))
    }


def only_measures(metrics: Metrics) -> bool:
    """Whether this is an evaluation, and no step. In a curriculum it names its stage."""
    names = metrics.keys() - {"stage"}
    return bool(names) and all(name.startswith(("eval/", "time/eval")) for name in names)


def eval_part(now: Progress, width: int) -> list[Text]:
    """The last evaluation, in one line or two."""
    step, values = now.evals
    lines = [Text(f"eval at {step}".ljust(13), "dim")] if values else []
    for name, value in values.items():
        item = f"{one_line(name)} {show(known(value))}  "
        if lines[-1].cell_len > 13 and lines[-1].cell_len + len(item) > width + 2:
            lines.append(Text(" " * 13))
        lines[-1].append(item)
    return lines[:2]


def facts_part(metrics: Metrics) -> list[str]:
    """The numbers of a plain line: those that the step has, known or not."""
    values = dict(cells_part(metrics)) | {"correct": show(_correct(metrics))}
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
