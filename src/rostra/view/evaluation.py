"""The report of an evaluation: what each way of asking finds, and what it costs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rostra.errors import DataError
from rostra.evals.modes import Mode, Tally
from rostra.evals.results import Results, remarks
from rostra.evals.store import first_debates, read_results, read_settings
from rostra.runs.folder import write_whole
from rostra.view import page
from rostra.view.plots import Card, Panel, Plot, Series, draw, need

LABELS = {
    "accuracy": "Accuracy of the mode",
    "format": "Replies in the form asked for",
    "avg@k": "Answers right (avg@k)",
    "pass@k": "One of k right (pass@k)",
    "cons@k": "More than half right (cons@k)",
    "vote@k": "The most common right (vote@k)",
    "vote@first": "The most common of the first answers right",
    "winner": "The winner of the votes right",
    "votes right": "Votes for the right answer",
    "opponents": "Answers of its opponents right",
    "win_rate": "Votes won by its answers",
    "win_rate/length_controlled": "Votes won at equal length",
    "first_shown_wins": "Votes for who was shown first",
    "longer": "Answers longer than the opponent's",
    "votes_missing": "Votes that judges failed to give",
    "malformed/policy": "Its answers malformed",
    "malformed/opponent": "Answers of its opponent malformed",
}
NUMBERS = {"agreement": "Agreement of judges (alpha)", "length_difference": "Longer by words"}
COSTS = {
    "k": ("Answers to a question", ",.1f"),
    "tokens": ("Tokens sampled", ",.0f"),
    "prompt_tokens": ("Tokens read", ",.0f"),
    "dollars": ("Dollars", ".3g"),
}
"""With the format of their numbers."""
EXAMPLES = 2
"""Debates that are shown of each mode with debates."""


def write_eval_report(folder: Path, title: str | None = None) -> Path:
    """Writes `report.html` into the folder of an evaluation, and says where it is."""
    need()
    settings, results = read_settings(folder), read_results(folder)
    name = title or f"{settings.get('subject', folder.name)} on {_task(settings)}"
    body = [
        page.header(name, _facts(settings, results)),
        results_table(results),
        page.cards([card for card in _cards(results) if card], "Bars and bands are 95% intervals."),
        page.debates(_excerpts(folder)),
        page.config(json.dumps(settings, indent=1), "eval.json"),
    ]
    path = folder / "report.html"
    write_whole(path, page.document(name, body).encode())
    return path


def _task(settings: Mapping[str, Any]) -> str:
    task = settings.get("task")
    return str(task.get("name", "")) if isinstance(task, Mapping) else ""


def _facts(settings: Mapping[str, Any], results: Results) -> list[str]:
    count = max((int(found.get("questions", 0)) for found in results.values()), default=0)
    return [
        page.count(count, "question"),
        f"part {settings.get('part')}",
        f"seed {settings.get('seed')}",
        ", ".join(results),
    ]


def results_table(results: Results, title: str = "What it knows", name: str = "results") -> str:
    """Every measure by mode, with its interval."""
    names = dict.fromkeys(name for found in results.values() for name in found)
    shown = [name for name in (*LABELS, *NUMBERS, *COSTS) if name in names]
    shown += [name for name in names if name.startswith(("round ", "seat "))]
    labels = LABELS | NUMBERS | {name: label for name, (label, _) in COSTS.items()}
    heads = "".join(f'<th scope="col">{page.text(mode)}</th>' for mode in results)
    rows = "".join(
        f'<tr><th scope="row">{page.text(labels.get(name, name))}</th>'
        + "".join(f"<td>{_cell(found.get(name), name)}</td>" for found in results.values())
        + "</tr>\n"
        for name in shown
    )
    table = (
        f'<div class="wide" tabindex="0" role="region" aria-labelledby="{name}">\n<table>\n'
        f'<thead><tr><th scope="col">mean over questions</th>{heads}</tr></thead>\n'
        f"<tbody>\n{rows}</tbody>\n</table>\n</div>\n"
        '<p class="note">Brackets hold 95% intervals by bootstrap over questions. k is the number '
        "of answers to a question; seats count from 0. Tokens are for one answer in direct, all "
        "answers in vote, one debate in debate and roles.</p>"
    )
    notes = "".join(f'\n<p class="wrong">{page.text(note)}</p>' for note in _missing(results))
    notes += "".join(f"\n<p>{page.text(remark)}</p>" for remark in remarks(results))
    return page.section(page.text(title), table + notes, name)


def _missing(results: Results) -> list[str]:
    """What the numbers of each mode are not about. Evaluations of earlier versions do not say."""
    found = []
    for mode, measures in results.items():
        said = [measures.get(name) for name in ("asked", "failed", "error", "ungraded")]
        asked, failed, error, ungraded = said
        if isinstance(asked, int) and isinstance(failed, int) and isinstance(ungraded, int):
            tally = Tally(asked, failed, None if error is None else str(error), ungraded)
            found += [f"{mode}: {note}" for note in tally.notes()]
    return found


def evaluations_of(run: Path) -> list[str]:
    """A table for each evaluation in a run."""
    folders = sorted(file.parent for file in run.glob("evals/*/results.json"))
    return [
        results_table(read_results(folder), f"Evaluated on {folder.name}", f"evaluated-{number}")
        for number, folder in enumerate(folders)
    ]


def _cell(measure: Any, name: str) -> str:
    if not isinstance(measure, Mapping) or measure.get("mean") is None:
        return "·"
    mean, low, high = (measure.get(end) for end in ("mean", "low", "high"))
    if name in COSTS:
        return f"{mean:{COSTS[name][1]}}"
    if name in NUMBERS:
        span = "" if low is None or high is None else f"[{low:.2f} to {high:.2f}]"
        return f'{mean:+.2f} <span class="interval">{span}</span>'
    span = "" if low is None or high is None else f"[{100 * low:.1f}–{100 * high:.1f}]"
    return f'{mean:.1%} <span class="interval">{span}</span>'


def _cards(results: Results) -> list[Card | None]:
    return [
        draw(
            Plot(
                "Accuracy and cost",
                "What each mode gets right, against the tokens it samples for that: one answer, "
                "the answers of a vote, or one debate. A debate is worth its cost where it stands "
                "above a vote of the same tokens.",
                [Panel("accuracy", _points(results), percent=True)],
                "tokens sampled",
            ),
            "cost",
        ),
        draw(
            Plot(
                "Round by round",
                "Debates: the most common answer, and a single one, after each round.",
                [Panel("right", _by_round(results.get("debate", {})), percent=True)],
                "round",
            ),
            "rounds",
        ),
        draw(
            Plot(
                "Seat by seat",
                "The last answers of each seat. In roles, the policy sits there, and its opponents "
                "in the others.",
                [Panel("right", _by_seat(results), percent=True)],
                "seat",
            ),
            "seats",
        ),
    ]


def _points(results: Results) -> list[Series]:
    found = []
    for mode, measures in results.items():
        cost, value = measures.get("tokens"), measures.get("accuracy")
        if cost and value and cost.get("mean") is not None:
            found.append(_series(mode, [cost["mean"]], [value]))
    return found


def _by_round(measures: Mapping[str, Any]) -> list[Series]:
    rounds = sorted(
        {int(name.split()[1].partition("/")[0]) for name in measures if name.startswith("round ")}
    )
    names = {"the most common answer": "vote@k", "one answer": "avg@k", "one of all": "pass@k"}
    return [
        _series(label, rounds, [measures[f"round {r}/{name}"] for r in rounds])
        for label, name in names.items()
        if len(rounds) > 1  # one round is in the table
    ]


def _by_seat(results: Results) -> list[Series]:
    found = []
    for mode, measures in results.items():
        seats = [name for name in measures if name.startswith("seat ")]
        if seats:
            places = [int(name.split()[1]) for name in seats]
            found.append(_series(mode, places, [measures[name] for name in seats]))
    return found


def _series(name: str, x: Sequence[float], measures: Sequence[Mapping[str, Any]]) -> Series:
    y, low, high = (
        np.array([measure.get(end) for measure in measures], np.float64)
        for end in ("mean", "low", "high")
    )
    return Series(name, np.array(x, np.float64), y, "points", low, high)


def _excerpts(folder: Path) -> list[page.Excerpt]:
    found = []
    shown: tuple[Mode, ...] = ("debate", "roles")
    for mode in shown:
        error = None
        try:
            stored = first_debates(folder, mode, EXAMPLES)
        except DataError as said:
            stored, error = [], str(said)
        if stored or error:
            found.append(page.Excerpt(mode.capitalize(), f"{mode}.jsonl.zst", stored, error))
    return found
