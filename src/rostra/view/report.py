"""The report of a run: reads its directory and writes one HTML file that needs nothing else."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from rostra.errors import DataError
from rostra.runs.folder import write_whole
from rostra.runs.transcripts import Stored, read_transcripts
from rostra.view import page
from rostra.view.curves import by_stage, cards, total
from rostra.view.evaluation import evaluations_of
from rostra.view.plots import Row, need

DEBATES = 2
"""How many debates are shown of the first file of transcripts, and of the last."""
LARGEST = 1e30
"""A number beyond this is one that ran away; it is a gap, as infinity is."""


@dataclass(frozen=True, slots=True)
class Run:
    """What a run directory holds, as far as a report needs it."""

    folder: Path
    train: Sequence[Row]
    evals: Sequence[Row]
    alarms: Sequence[Mapping[str, Any]]
    debates: Sequence[page.Excerpt]
    config: str | None
    written: datetime
    """When its metrics were. The time of the report itself would make every report another one."""


def write_report(folder: Path, title: str | None = None) -> Path:
    """Writes `report.html` into a run directory, whole or not at all, and says where it is."""
    need()
    run = read_run(folder)
    name = title or run.folder.resolve().name
    staged = len(by_stage(run.train)) > 1
    body = [
        page.header(name, _facts(run, name)),
        *_evals(run.evals),
        *evaluations_of(folder),
        page.alarms(run.alarms),
        page.cards(cards(run.train, run.evals), page.STAGES if staged else page.HOW_TO_READ),
        page.debates(run.debates),
        page.config(run.config),
    ]
    path = folder / "report.html"
    write_whole(path, page.document(name, body).encode())
    return path


def _evals(rows: Sequence[Row]) -> list[str]:
    """Stages are measured on questions of their own, so each is compared with itself."""
    parts = by_stage(rows)
    if len(parts) < 2:
        return [page.evals(rows)]
    return [page.evals(part, int(part[0].values.get("stage") or 0) + 1) for part in parts]


def read_run(folder: Path) -> Run:
    """The run in a directory; DataError where it holds none, or a line that is no metrics."""
    metrics = folder / "metrics.jsonl"
    if not folder.is_dir():
        raise DataError(f"{folder}: no such directory; give the one that a run was written to")
    if not metrics.is_file():
        raise DataError(
            f"{folder}: no metrics.jsonl in it; give the directory of a run that has taken a step"
        )
    lines = list(_objects(metrics))
    config, alarms = folder / "config.toml", folder / "alarms.jsonl"
    return Run(
        folder=folder,
        train=_rows(lines, "train", metrics),
        evals=_rows(lines, "eval", metrics),
        alarms=[line for _, line in _objects(alarms)] if alarms.is_file() else [],
        debates=_excerpts(folder),
        config=_read(config).decode("utf-8", "replace") if config.is_file() else None,
        written=datetime.fromtimestamp(metrics.stat().st_mtime, UTC),
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The lines of a file of JSON objects, numbered from 1."""
    lines = [(n, line) for n, line in enumerate(_read(path).split(b"\n"), 1) if line.strip()]
    for number, line in lines:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            if number == lines[-1][0]:
                return  # the process was killed while it wrote this line
            raise DataError(
                f"{path}, line {number}: not JSON; remove the line to go on without it"
            ) from None
        if not isinstance(value, dict):
            raise DataError(f"{path}, line {number}: not a JSON object; remove the line")
        yield number, value


def _rows(lines: Sequence[tuple[int, dict[str, Any]]], kind: str, path: Path) -> list[Row]:
    """The lines of a kind by step. Lines of one step are one row, and the later number counts: a
    run that was resumed has taken the step again."""
    rows: dict[int, dict[str, float | None]] = {}
    for number, line in lines:
        if line.get("kind") != kind:
            continue
        step = line.get("step")
        if not isinstance(step, int) or isinstance(step, bool) or abs(step) > 1e12:
            raise DataError(f"{path}, line {number}: step must be a whole number")
        row = rows.setdefault(max(step, 0), {})
        row |= {name: _number(v) for name, v in line.items() if _is_metric(v)}
    return [Row(step, rows[step]) for step in sorted(rows)]


def _is_metric(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _number(value: float | None) -> float | None:
    if value is None or not abs(value) <= LARGEST or math.isnan(value):
        return None
    return float(value)


def _excerpts(folder: Path) -> list[page.Excerpt]:
    """A few debates of the first and the last file. A file that cannot be read is said to be so:
    the rest of the run is worth a page."""
    files = sorted(f for f in (folder / "transcripts").glob("*.jsonl*") if f.suffix != ".part")
    ends = dict.fromkeys([*files[:1], *files[-1:]])
    found = []
    for file, title in zip(ends, ("The first debates", "The last debates"), strict=False):
        stored: list[Stored] = []
        error = None
        try:
            for one in islice(read_transcripts(file), DEBATES):
                stored.append(one)
        except DataError as said:
            error = str(said)
        found.append(page.Excerpt(title, file.name, [s.transcript for s in stored], error))
    return found


def _facts(run: Run, title: str) -> list[str]:
    """What there is of the run, in a few words each."""
    steps = run.train[-1].step + 1 if run.train else 0
    name = run.folder.resolve().name
    facts = [*([name] if name != title else []), page.count(steps, "step")]
    for noun in ("question", "debate"):
        count = total(run.train, f"{noun}s")
        facts += [page.count(round(count), noun)] if count else []
    tokens, seconds = total(run.train, "tokens"), total(run.train, "seconds")
    facts += [page.count(round(tokens), "token")] if tokens else []
    facts += [page.duration(seconds)] if seconds else []
    if run.evals:
        facts.append(page.count(len(run.evals), "evaluation"))
    return [*facts, f"last written {run.written:%Y-%m-%d %H:%M} UTC"]
