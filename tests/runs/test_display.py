"""What one sees while a run goes on: plain lines in a pipe, a panel in a terminal."""

import io
import logging
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from rostra.runs import panel as module
from rostra.runs.display import (
    Display,
    LiveDisplay,
    PlainDisplay,
    RunPlan,
    display,
    duration,
    one_line,
    rss,
    sparkline,
)

PLAN = RunPlan("sums, peer-v2", 24, "runs/sums")
STEP: dict[str, float | None] = {
    "seconds": 12.1,
    "tokens": 61_952.0,
    "train_sums/correct": 0.41,
    "health/vote_truth_accuracy": 0.83,
    "parse_error": 0.28,
    "pairwise_malformed": 0.4,
    "env/all/flat_groups": 2.0,
    "debates": 32.0,
    "debates/failed": 0.0,
    "debates/retried": 1.0,
    "eval/direct/correct": 0.37,
    **{f"reward/gen/by_seat/{n}": 0.1 * n - 0.2 for n in range(5)},
    **{f"reward/judge/by_seat/{n}": 0.2 for n in range(5)},
    **{f"reward/gen/by_round/{n}": 0.01 for n in range(3)},
    **{f"reward/judge/by_round/{n}": 0.3 for n in range(1, 4)},
}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def pipe() -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, width=80), file


def terminal(width: int = 80, height: int = 24) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, height=height)


def screen(shown: LiveDisplay, width: int = 80, height: int = 24) -> list[str]:
    """The panel as it stands on the screen, without colours."""
    paper = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    with paper.capture() as captured:
        paper.print(shown.panel())
    return captured.get().splitlines()


def live(
    steps: int = 12,
    width: int = 80,
    height: int = 24,
    metrics: Mapping[str, float | None] = STEP,
) -> LiveDisplay:
    """A display that was told of some steps and draws only when asked."""
    shown = LiveDisplay(terminal(width, height))
    for step in range(1, steps + 1):
        shown.step(metrics, step=step, steps=24)
    return shown


@pytest.fixture
def rostra_log() -> Iterator[logging.Logger]:
    log = logging.getLogger("rostra")
    before = list(log.handlers)
    yield log
    log.handlers[:] = before


def test_a_pipe_gets_lines_and_a_terminal_a_panel(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(display(pipe()[0]), PlainDisplay)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert isinstance(display(terminal()), LiveDisplay)


def test_a_terminal_that_cannot_draw_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    ascii_file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert isinstance(display(Console(file=ascii_file, force_terminal=True)), PlainDisplay)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(display(terminal()), PlainDisplay)


def test_a_plain_line_for_every_step() -> None:
    console, file = pipe()
    with PlainDisplay(console) as shown:
        shown.start(PLAN)
        shown.step(STEP, step=3, steps=24)
        shown.step({"loss": 2.5, "seconds": 1.0}, step=24, steps=24)
    assert file.getvalue().splitlines() == [
        "sums, peer-v2: 24 steps, in runs/sums",
        "step 3/24  12.1 s  5,120 tok/s  correct 0.41  votes right 0.83  format 0.72  "
        "no signal 2/32  eta 4:14",
        "step 24/24  1.0 s  loss 2.5",
    ]


def test_plain_lines_leave_out_what_is_missing_and_mark_what_is_unknown() -> None:
    console, file = pipe()
    shown = PlainDisplay(console, Clock())
    shown.step({"parse_error": None, "tokens": float("nan")}, step=1, steps=2)
    shown.step({"debates/failed": 3.0}, step=2, steps=2)
    assert file.getvalue().splitlines() == [
        "step 1/2  · tok/s  format ·  eta 0:00",
        "step 2/2  failed 3",
    ]


def test_plain_progress_comes_every_two_seconds_at_most() -> None:
    console, file = pipe()
    clock = Clock()
    shown = PlainDisplay(console, clock)
    shown.start(PLAN)
    for n in range(50):
        clock.now = 0.1 * n
        shown.phase("debating", n, 50)
    clock.now = 7.0
    shown.phase("training", 0, 0)
    assert file.getvalue().splitlines()[1:] == [
        "  debating 20 of 50",
        "  debating 40 of 50",
        "  training",
    ]


def test_plain_text_has_no_escape_codes_whatever_it_is_told() -> None:
    console, file = pipe()
    with PlainDisplay(console) as shown:
        shown.start(RunPlan("a\x1b[31m\nb", 1, "[bold]runs[/bold]"))
        shown.note("[red]two\nlines\x07[/red] " + "long " * 40)
    assert "\x1b" not in file.getvalue()
    assert len(file.getvalue().splitlines()) == 2
    assert "[red]two lines\N{REPLACEMENT CHARACTER}[/red]" in file.getvalue()


def test_plain_lines_are_written_at_once() -> None:
    class Slow(io.StringIO):
        seen = ""

        def flush(self) -> None:
            self.seen = self.getvalue()

    file = Slow()
    shown = PlainDisplay(Console(file=file))
    shown.note("look")
    assert file.seen == "note: look\n"


def test_the_panel_tells_everything_on_a_usual_terminal() -> None:
    clock = Clock()
    shown = LiveDisplay(terminal(), clock)
    with shown:
        shown.start(PLAN)
        clock.now = 30.0
        shown.step(STEP, step=11, steps=24)
        shown.step(STEP | {"train_sums/correct": 0.5}, step=12, steps=24)
        shown.phase("debating", 23, 32)
        shown.note("step 4 was skipped")
        clock.now = 32.0
        text = "\n".join(screen(shown))
    for words in (
        "sums, peer-v2",
        "runs/sums",
        "step 12 of 24 ",
        "0:32  eta 2:23",
        "debating 23 of 32",
        "tokens/s     5,120",
        "votes right  0.83",
        "no signal    2/32",
        "format       0.72",
        "malformed    0.40",
        "failed       0",
        "retried      1",
        "GB",
        "seat 0      1      2      3      4  round 1      2      3      4",
        "gen     -0.20  -0.10  +0.00  +0.10  +0.20    +0.01  +0.01  +0.01      ·",
        "judge   +0.20  +0.20  +0.20  +0.20  +0.20        ·  +0.30  +0.30  +0.30",
        "correct      ▁▇  0.41 → 0.50",
        "eval at 12   direct/correct 0.37",
        "! step 4 was skipped",
    ):
        assert words in text, words


def test_an_evaluation_stays_until_the_next() -> None:
    shown = live(10)
    shown.step({"seconds": 1.0}, step=11, steps=24)
    assert "eval at 10   direct/correct 0.37" in "\n".join(screen(shown))


def test_peer_v1_has_one_reward_for_a_seat() -> None:
    shown = live(metrics={"pairwise_reward/by_seat/0": 0.25, "pairwise_reward/by_seat/1": None})
    assert "reward  +0.25      ·" in "\n".join(screen(shown))


def test_a_warm_start_shows_its_loss_and_no_votes() -> None:
    text = "\n".join(screen(live(metrics={"loss": 1.2345, "seconds": 2.0, "tokens": 10.0})))
    assert "loss         1.234" in text
    assert "tokens/s     5" in text
    assert "votes" not in text


def test_a_step_without_metrics_shows_that_they_are_unknown() -> None:
    text = "\n".join(screen(live(metrics={})))
    assert "votes right  ·" in text
    assert "no signal    ·/·" in text


def test_the_last_three_notes_stay_and_the_last_is_told_at_length() -> None:
    shown = live()
    for n in range(4):
        shown.note(f"note {n}: " + "word " * 30)
    text = "\n".join(screen(shown))
    assert "note 0" not in text
    assert "note 1" in text
    assert text.count("word") > 2 * 13 + 25


@pytest.mark.parametrize("height", [24, 15, 10, 6, 3, 1])
@pytest.mark.parametrize("width", [120, 80, 50, 30, 12, 5])
def test_the_panel_fits_wherever_it_stands(width: int, height: int) -> None:
    shown = live(width=width, height=height)
    shown.phase("debating", 23, 32)
    for n in range(3):
        shown.note(f"note {n} " + "日本語 " * 60)
    lines = screen(shown, width, height)
    assert len(lines) <= max(height - 1, 4)
    assert all(cell_len(line) == width for line in lines)
    if width >= 30:
        assert "step 12 of 24" in lines[1]
        assert "debating 23 of 32" in lines[2]


def test_a_small_terminal_keeps_the_numbers_and_the_last_note() -> None:
    shown = live(width=50, height=15)
    shown.note("first")
    shown.note("second " + "word " * 60)
    text = "\n".join(screen(shown, 50, 15))
    assert "tokens/s" in text
    assert "retried" in text
    assert "second" in text
    assert "seat" not in text


names = st.sampled_from([*STEP, "loss", "pairwise_reward/by_seat/0", "eval/[red]x", "eval/\n"])
numbers = st.none() | st.floats()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.dictionaries(names, numbers), max_size=4), st.text())
def test_no_metric_and_no_text_breaks_the_panel(
    run: list[dict[str, float | None]], text: str
) -> None:
    shown = LiveDisplay(terminal())
    plain = PlainDisplay(pipe()[0])
    for to in (shown, plain):
        to.phase(text, 3, 2)
        to.note(text)
        for n, metrics in enumerate(run):
            to.step(metrics, step=n, steps=2)
    assert all(cell_len(line) == 80 for line in screen(shown))


def test_text_is_never_taken_for_markup() -> None:
    shown = LiveDisplay(terminal())
    with shown:
        shown.start(RunPlan("[bold]title[/bold]", 1, "[link]runs"))
        shown.phase("[red]debating", 1, 2)
        shown.note("[/nothing] to close")
        text = "\n".join(screen(shown))
    for words in ("[bold]title[/bold]", "[link]runs", "[red]debating", "[/nothing] to close"):
        assert words in text


def test_the_last_state_stays_on_the_screen() -> None:
    console = terminal()
    assert isinstance(console.file, io.StringIO)
    shown = LiveDisplay(console)
    with shown:
        shown.start(PLAN)
        shown.start(PLAN)
        shown.step(STEP, step=24, steps=24)
    shown.stop()
    last = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue()).rpartition("╭")[2]
    assert "step 24 of 24" in last
    assert "finished" in last
    assert "eta" not in last


def test_a_run_that_ends_early_was_stopped() -> None:
    shown: Display = LiveDisplay(terminal())
    with pytest.raises(KeyboardInterrupt), shown:
        shown.start(PLAN)
        raise KeyboardInterrupt
    assert isinstance(shown, LiveDisplay)
    assert "stopped" in screen(shown)[2]


def test_it_is_drawn_a_few_times_a_second_and_not_for_every_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = LiveDisplay(terminal())
    drawn: list[float] = []
    draw = shown.panel
    monkeypatch.setattr(shown, "panel", lambda: (drawn.append(time.monotonic()), draw())[1])
    with shown:
        shown.start(PLAN)
        until = time.monotonic() + 0.6
        while time.monotonic() < until:
            shown.phase("debating", 1, 2)
            shown.note("again")
            time.sleep(0.01)
    # The first and the last frame, and those of the thread in between.
    assert 2 <= len(drawn) <= 6


def test_what_the_library_logs_becomes_a_note_while_the_panel_stands(
    rostra_log: logging.Logger, tmp_path: Path
) -> None:
    printed: list[str] = []

    class Printer(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            printed.append(record.getMessage())

    printer, file = Printer(), logging.FileHandler(tmp_path / "log", encoding="utf-8")
    rostra_log.handlers[:] = [printer, file]
    shown = LiveDisplay(terminal())
    with shown:
        shown.start(PLAN)
        logging.getLogger("rostra.engines.local").warning("a %s is slow", "cache")
        text = "\n".join(screen(shown))
    rostra_log.warning("after")
    file.close()
    assert "! a cache is slow" in text
    assert printed == ["after"]
    assert (tmp_path / "log").read_text("utf-8") == "a cache is slow\nafter\n"
    assert set(rostra_log.handlers) == {printer, file}


def test_the_time_left_comes_from_recent_steps_only() -> None:
    console, file = pipe()
    shown = PlainDisplay(console)
    for step in range(1, 4):
        shown.step({"seconds": 1000.0}, step=step, steps=20)
    for step in range(4, 12):
        shown.step({"seconds": 2.0}, step=step, steps=20)
    assert file.getvalue().splitlines()[-1].endswith("eta 0:18")


def test_steps_that_do_not_say_how_long_they_took_are_timed() -> None:
    console, file = pipe()
    clock = Clock()
    shown = PlainDisplay(console, clock)
    shown.start(PLAN)
    for step in (1, 2):
        clock.now += 30.0
        shown.step({}, step=step, steps=4)
    assert file.getvalue().splitlines()[-1] == "step 2/4  eta 1:00"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(None, "·"), (0, "0:00"), (59.6, "1:00"), (250, "4:10"), (3850, "1:04:10"), (-3, "0:00")],
)
def test_durations(seconds: float | None, shown: str) -> None:
    assert duration(seconds) == shown


def test_sparklines() -> None:
    assert sparkline([0.0, 0.5, 1.0], 10) == "▁▅█"
    assert sparkline([0.5, None, 0.5], 10) == "▁ ▁"
    assert sparkline([0.0, 0.0, 1.0, 1.0], 2) == "▁█"
    assert sparkline([0.50, 0.51], 10) == "▁▂"
    assert sparkline([], 10) == " "


def test_one_line_cannot_move_the_cursor() -> None:
    assert one_line("a\r\n\tb\x1b[2J\u202e") == "a b\ufffd[2J\ufffd"


def test_memory_is_read_where_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    now = rss()
    assert now is not None and now > 5e6

    class Nowhere:
        def __init__(self, path: str) -> None: ...

        def read_text(self, *how: str) -> str:
            raise FileNotFoundError

    monkeypatch.setattr(module, "Path", Nowhere)
    peak = rss()
    assert peak is not None and peak > 5e6


EVALUATION = {"eval/direct/greedy": 0.5, "eval/direct/greedy/low": 0.4, "time/evaluation": 30.0}


def test_an_evaluation_by_itself_leaves_the_numbers_of_the_last_step_in_sight() -> None:
    shown = live(10)
    before = "\n".join(screen(shown))
    shown.step(EVALUATION, step=10, steps=24)
    after = "\n".join(screen(shown))
    assert "eval at 10   direct/greedy 0.50" in after and "/low" not in after
    kept = [line for line in before.splitlines() if "tokens/s" in line or "votes right" in line]
    assert kept and all(line in after for line in kept)


@pytest.mark.parametrize("also", [{}, {"stage": 1.0}])
def test_an_evaluation_is_told_on_a_plain_line_of_its_own(also: dict[str, float]) -> None:
    out = io.StringIO()
    shown = PlainDisplay(Console(file=out, width=200))
    shown.start(RunPlan("t", 20, "runs/t"))
    shown.step({**EVALUATION, **also}, step=10, steps=20)
    assert out.getvalue().splitlines()[-1] == "eval at 10  direct/greedy 0.50"


def test_the_time_of_an_evaluation_is_no_measure_for_the_steps_to_come() -> None:
    progress = module.Progress()
    progress.start(RunPlan("t", 10, "runs/t"), 0.0)
    progress.step({"seconds": 2.0}, 1, 10, 2.0)
    progress.step(EVALUATION, 1, 10, 99.0)
    assert progress.left() == 18.0
