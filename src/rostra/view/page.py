"""The parts of the report as HTML. Nothing of a file or a model gets into it unescaped."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import groupby
from typing import Any

from rostra.debate.transcript import Transcript
from rostra.debate.turn import Turn, TurnId
from rostra.tasks.grading import boxed, same_integer
from rostra.view.plots import COLOURS, LONG, Card, Row
from rostra.view.terminal import NO_SIGNAL, printable

LONGEST = 4_000
"""Longer texts are clipped: a page must open at once."""
LONGEST_CONFIG = 100_000
FOLDED = 400
"""Longer texts are folded."""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A few debates of one file."""

    title: str
    file: str
    transcripts: Sequence[Transcript]
    error: str | None = None
    """Why there are no more of them."""


def text(value: object) -> str:
    """Any text, safe between tags and in attributes."""
    return html.escape(printable(str(value)))


def count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def document(title: str, body: Sequence[str]) -> str:
    """The whole page."""
    style = files("rostra.view").joinpath("report.css").read_text("utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{text(title)} · Rostra</title>\n<style>\n{style}</style>\n</head>\n"
        "<body>\n<main>\n" + "\n".join(filter(None, body)) + "\n</main>\n</body>\n</html>\n"
    )


def header(title: str, facts: Sequence[str]) -> str:
    items = "".join(f"<li>{text(fact)}</li>" for fact in facts)
    return f'<header>\n<h1>{text(title)}</h1>\n<ul class="facts">{items}</ul>\n</header>'


def section(title: str, body: str, name: str) -> str:
    return f'<section aria-labelledby="{name}">\n<h2 id="{name}">{title}</h2>\n{body}\n</section>'


# Evaluations

_MEASURES = {
    "eval/direct/sampled": "Sampled answers right",
    "eval/direct/greedy": "Greedy answers right",
    "eval/direct/greedy_mode_wrong": "Greedy answers right, where the mode was wrong",
    "eval/direct/format": "Answers in the form asked for",
    "eval/debate/vote_truth_accuracy": "Votes for the right answer",
    "eval/prepared/vote_truth_accuracy": "Votes for the right one of prepared answers",
    "eval/debate/ties_on_equal": "Ties on equal answers",
}
_SHARES = ("pass@", "cons@", "vote@", "avg@", "greedy_", "format", "decided", "lower_", "first_")


def evals(rows: Sequence[Row], stage: int | None = None) -> str:
    """Before and after, of a whole run or of one stage; or the one evaluation that there is."""
    if not rows:
        return section("Evaluation", "<p>This run was not evaluated.</p>", "evals")
    ends = [rows[0], rows[-1]] if len(rows) > 1 else [rows[0]]
    names = dict.fromkeys(n for row in ends for n in row.values if n.startswith("eval/"))
    measures = [n for n in names if not n.endswith(("/low", "/high"))]
    heads = [f'<th scope="col">{_when(row.step)}</th>' for row in ends]
    if len(ends) > 1:
        heads.append('<th scope="col">change</th>')
    body = "".join(_measure(name, ends) for name in measures)
    note = "Brackets hold 95% intervals. A change is bold where the two do not overlap."
    ranged = any(n.endswith("/low") for n in names)
    name = "evals" if stage is None else f"evals-{stage}"
    table = (
        f'<div class="wide" tabindex="0" role="region" aria-labelledby="{name}">\n<table>\n'
        f'<thead><tr><th scope="col">on questions held back</th>{"".join(heads)}</tr></thead>\n'
        f"<tbody>\n{body}</tbody>\n</table>\n</div>"
    )
    title = "Before and after" if len(ends) > 1 else "Evaluation"
    title += "" if stage is None else f", stage {stage}"
    return section(title, table + (f'\n<p class="note">{note}</p>' if ranged else ""), name)


def _when(step: int) -> str:
    return "before training" if step <= 0 else f"after {count(step, 'step')}"


def _measure(name: str, ends: Sequence[Row]) -> str:
    last = name.rpartition("/")[2]
    share = name in _MEASURES or last.startswith(_SHARES)
    plain = name.removeprefix("eval/").replace("_", " ").replace("/", ": ")
    label = _MEASURES.get(name) or plain[:1].upper() + plain[1:]
    cells = [f"<td>{_value(row.values, name, share)}</td>" for row in ends]
    if len(ends) > 1:
        before, after = (row.values.get(name) for row in ends)
        change = NO_SIGNAL
        if before is not None and after is not None:
            by = round(100 * (after - before), 1) + 0.0 if share else after - before
            change = f"{by:+.1f} points" if share else f"{by:+.4g}"
        apart = ' class="apart"' if _apart(name, ends) else ""
        cells.append(f"<td{apart}>{change.replace('-', '−')}</td>")
    return f'<tr><th scope="row">{text(label)}</th>{"".join(cells)}</tr>\n'


def _value(values: Mapping[str, float | None], name: str, share: bool) -> str:
    value, low, high = (values.get(key) for key in (name, f"{name}/low", f"{name}/high"))
    if value is None:
        return NO_SIGNAL
    shown = f"{value:.1%}" if share else f"{value:.4g}"
    if low is None or high is None:
        return shown
    ends = f"{100 * low:.1f}–{100 * high:.1f}" if share else f"{low:.4g}–{high:.4g}"
    return f'{shown} <span class="interval">[{ends}]</span>'


def _apart(name: str, ends: Sequence[Row]) -> bool:
    lows, highs = ([row.values.get(f"{name}/{end}") for row in ends] for end in ("low", "high"))
    known = [v for v in (*lows, *highs) if v is not None]
    return len(known) == 4 and (known[1] > known[2] or known[0] > known[3])


# Alarms and plots


def alarms(found: Sequence[Mapping[str, Any]]) -> str:
    """Each alarm once, as it was last seen."""
    if not found:
        return ""
    named: dict[str, list[Mapping[str, Any]]] = {}
    for alarm in found:
        named.setdefault(str(alarm.get("alarm", "alarm")), []).append(alarm)
    items = []
    for name, times in named.items():
        last = times[-1]
        when = f"step {text(last.get('step', '?'))}"
        often = f"{len(times):,} times, last at {when}" if len(times) > 1 else f"at {when}"
        items.append(
            f'<li><strong>{text(name)}</strong> <span class="note">{often}</span>'
            f"<br>{_clipped(str(last.get('saw', '')))}"
            f"<br><em>Try:</em> {_clipped(str(last.get('try', '')))}</li>"
        )
    return section("Alarms", f'<ul class="alarms">\n{"".join(items)}\n</ul>', "alarms")


HOW_TO_READ = (
    f"From {LONG} steps on, thin lines are single steps and thick ones running means. A gap means "
    "no signal."
)
"""Curves over steps."""


STAGES = HOW_TO_READ + " Where a stage begins, a line goes down."


def cards(drawn: Sequence[Card], note: str = HOW_TO_READ) -> str:
    if not drawn:
        return section("Plots", "<p>Nothing to plot yet: no step was recorded.</p>", "plots")
    grid = "\n".join(map(_card, drawn))
    body = f'<p class="note">{note}</p>\n<div class="grid">\n{grid}\n</div>'
    return section("Plots", body, "plots")


def _card(card: Card) -> str:
    keys = "".join(
        f'<li class="{"dashed " if key.dashed else ""}{key.look}" '
        f'style="--key: var(--c{key.colour})">{text(key.name)}</li>'
        for key in card.legend
    )
    return (
        f'<figure>\n<h3>{text(card.title)}</h3>\n<ul class="legend">{keys}</ul>\n{card.svg}\n'
        f"<figcaption>{text(card.caption)}</figcaption>\n</figure>"
    )


# Debates and settings


def debates(excerpts: Sequence[Excerpt]) -> str:
    if not excerpts:
        return section("Debates", "<p>This run kept no transcripts.</p>", "debates")
    parts = []
    for excerpt in excerpts:
        articles = [_debate(t, first=i == 0) for i, t in enumerate(excerpt.transcripts)]
        error = f'<p class="wrong">{text(excerpt.error)}</p>' if excerpt.error else ""
        parts.append(
            f'<div>\n<h3>{text(excerpt.title)} <span class="note">{text(excerpt.file)}</span></h3>'
            f"\n{''.join(articles)}{error}\n</div>"
        )
    return section("Debates", f'<div class="sides">\n{"".join(parts)}\n</div>', "debates")


def _debate(transcript: Transcript, first: bool) -> str:
    """A debate; its rounds are open where it is the first."""
    question = transcript.question
    marks = {turn.id: _right(turn, question.reference) for turn in transcript.turns}
    reference = ""
    if question.reference is not None:
        reference = f"<p>Right answer: <b>{_clipped(question.reference)}</b></p>\n"
    rounds = []
    for round_, turns in groupby(transcript.turns, key=lambda turn: turn.id.round):
        said = list(turns)
        kind = transcript.kind(said[0])
        title = f"Round {round_ + 1}" if kind == "speak" else kind.capitalize()
        if reference and kind == "speak":
            title += f": {sum(marks[turn.id] is True for turn in said)} of {len(said)} right"
        body = "".join(_turn(transcript, turn, marks) for turn in said)
        opened = " open" if first else ""
        rounds.append(f"<details{opened}><summary>{title}</summary>\n{body}</details>\n")
    return (
        f'<article>\n<div class="question">{_long(question.prompt)}</div>\n{reference}'
        f'{"".join(rounds)}<p class="note">{_ending(transcript)}</p>\n</article>\n'
    )


def _ending(transcript: Transcript) -> str:
    outcome = transcript.outcome
    how = {
        "consensus": "everybody agreed",
        "agreement": "enough of them gave the same answer",
        "rounds": "all rounds were played",
        "malformed": f"turn {outcome.by} was malformed",
    }[outcome.ended]
    said = f"Ended after {count(outcome.rounds, 'round')}: {how}."
    for verdict in transcript.verdicts:
        shares = zip(transcript.protocol.sides, verdict.confidence or (), strict=False)
        read = ", ".join(f"{text(side)} {share:.0%}" for side, share in shares)
        said += f" Verdict: {read or text(f'unreadable, {verdict.error}')}."
    return said


def _right(turn: Turn, reference: str | None) -> bool | None:
    """Whether a turn answers as the reference does; None where there is nothing to tell."""
    answer = boxed(turn.section("solution")[-LONGEST:])
    if answer is None or reference is None:
        return None
    return answer == reference.strip() or same_integer(answer, reference)


def _turn(transcript: Transcript, turn: Turn, marks: Mapping[TurnId, bool | None]) -> str:
    seat = transcript.protocol.seats[turn.id.seat]
    persona = f' <span class="note">{text(seat.persona.name)}</span>' if seat.persona else ""
    head = f"<h4>{text(seat.name)}{persona}{_mark(marks[turn.id], ' right', ' wrong')}</h4>"
    parts = []
    if turn.parsed.error:
        parts.append(f'<p class="wrong">Malformed: {text(turn.parsed.error)}</p>')
    if turn.parsed.error or not turn.parsed.sections:
        parts.append(_long(turn.text))
    else:
        for name, section in turn.parsed.sections.items():
            if section.text == "N/A":
                continue  # asked for before there was anything to say
            if name == "comparison":
                parts.append(f"<dt>votes</dt><dd>{_votes(transcript, turn, marks)}</dd>")
            else:
                label = text(name.replace("_", " "))
                parts.append(f"<dt>{label}</dt><dd>{_long(section.text)}</dd>")
        parts = [f"<dl>{''.join(parts)}</dl>" if parts else "N/A"]
    style = f"--key: var(--c{seat.index % COLOURS})"
    return f'<div class="turn" style="{style}">{head}{"".join(parts)}</div>\n'


def _votes(transcript: Transcript, turn: Turn, marks: Mapping[TurnId, bool | None]) -> str:
    """The votes of a turn, each marked where it took a side between right and wrong."""
    items = []
    for vote in transcript.ballots[turn.id].votes:
        sides = {marks.get(vote.a), marks.get(vote.b)} == {True, False} and vote.op == ">"
        mark = _mark(marks[vote.a] if sides else None)
        items.append(f"<li>{vote.a.seat} {text(vote.op)} {vote.b.seat}{mark}</li>")
    return f'<ul class="votes">{"".join(items)}</ul>' if items else "none"


def _mark(right: bool | None, yes: str = "", no: str = "") -> str:
    if right is None:
        return ""
    name, sign, word = ("right", "✓", yes) if right else ("wrong", "✗", no)
    hidden = "" if word else f'<span class="aloud"> {name}</span>'
    return f' <b class="{name}"><span aria-hidden="true">{sign}</span>{word}{hidden}</b>'


def _clipped(said: str, most: int = LONGEST) -> str:
    if len(said) <= most:
        return text(said)
    note = f"clipped: {most:,} of {len(said):,} characters"
    return f'{text(said[:most])}… <span class="note">({note})</span>'


def _long(said: str) -> str:
    """A text with its line breaks, folded where it is long."""
    whole = f'<div class="said">{_clipped(said)}</div>'
    if len(said) <= FOLDED:
        return whole
    start = " ".join(said[:FOLDED].split())[:100]
    return f'<details class="long"><summary>{text(start)}…</summary>{whole}</details>'


def config(settings: str | None, name: str = "config.toml") -> str:
    if settings is None:
        return section("Settings", f"<p>This run kept no {text(name)}.</p>", "config")
    body = f'<pre tabindex="0">{_clipped(settings, LONGEST_CONFIG)}</pre>'
    folded = f"<details><summary>{text(name)}</summary>{body}</details>"
    return section("Settings", folded, "config")
