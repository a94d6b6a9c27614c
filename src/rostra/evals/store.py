"""The folder of an evaluation: every debate is in it as soon as it is over.

eval.json             what was asked of whom; a folder is only gone on with by the same
transcripts/MODE...   the debates, one compressed frame each
rows.jsonl            what was measured, a line for each mode and question
results.json          means over questions with intervals, and paired comparisons
report.html           what to look at
"""

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import zstandard

from rostra.debate.transcript import Transcript
from rostra.errors import ConfigError, DataError
from rostra.evals.accuracy import Row
from rostra.evals.modes import MODES, Mode
from rostra.evals.results import Results, finite
from rostra.runs.folder import read_lines, write_whole
from rostra.runs.frames import frames
from rostra.runs.recipe import flat
from rostra.runs.transcripts import dumps, from_data

SETTINGS = "eval.json"
_COMPRESS = zstandard.ZstdCompressor(write_checksum=True)


class EvalFolder:
    """Holds the folder, and a lock on it while it is open."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path = path
        self.settings = settings
        self._lock: int | None = None
        self._known: dict[Mode, dict[int, Transcript]] = {}

    @classmethod
    def open(
        cls, path: Path, settings: Mapping[str, Any], *, resume: bool, overwrite: bool
    ) -> "EvalFolder":
        """A new folder, or an old one to go on with. What is there is never lost silently."""
        if resume and overwrite:
            raise ConfigError("--resume and --overwrite: go on with it or replace it, not both")
        folder = cls(path, settings)
        try:
            used = path.is_dir() and any(path.iterdir())
            if used and not (path / SETTINGS).exists():
                raise ConfigError(f"{path}: not an evaluation, so it is left alone; choose another")
            if used and not resume and not overwrite:
                raise ConfigError(
                    f"{path}: there is an evaluation already; go on with it (--resume), replace it "
                    "(--overwrite), or choose another folder (--out)"
                )
            path.mkdir(parents=True, exist_ok=True)
            folder._take_lock()
            if used and overwrite:
                folder._clear()
            if used and resume:
                folder._check_unchanged()
            write_whole(path / SETTINGS, json.dumps(folder.settings, indent=1).encode())
        except OSError as error:
            folder.close()
            raise DataError(f"{path}: cannot be written: {error.strerror}") from None
        except BaseException:
            folder.close()
            raise
        return folder

    def close(self) -> None:
        """Lets go of the folder; one in which nothing was kept is removed."""
        if self._lock is not None and not any((self.path / "transcripts").glob("*")):
            for name in (SETTINGS, ".lock"):
                (self.path / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                (self.path / "transcripts").rmdir()
            with contextlib.suppress(OSError):
                self.path.rmdir()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _take_lock(self) -> None:
        self._lock = os.open(self.path / ".lock", os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # What is in the folder is the other's.
            os.close(self._lock)
            self._lock = None
            raise ConfigError(f"{self.path}: another process is at it right now") from None

    def _clear(self) -> None:
        shutil.rmtree(self.path / "transcripts", ignore_errors=True)
        for name in (SETTINGS, "rows.jsonl", "results.json", "report.html"):
            (self.path / name).unlink(missing_ok=True)

    def _check_unchanged(self) -> None:
        """Modes may be added; anything else that differs would mix two evaluations."""
        before = read_settings(self.path)
        now = json.loads(json.dumps(self.settings))
        old, new = flat(before), flat(now)
        changed = [
            f"{key}: {_short(old.get(key))} -> {_short(new.get(key))}"
            for key in sorted({*old, *new} - {"modes"})
            if old.get(key) != new.get(key) and not _added(key, old, new)
        ]
        if changed:
            raise ConfigError(
                f"{self.path}: cannot go on with other settings ({'; '.join(changed[:4])}); use "
                "the old ones, --overwrite, or another folder (--out)"
            )
        modes = [*read_modes(self.path), *now["modes"]]
        self.settings = {**self.settings, "modes": [m for m in MODES if m in modes]}

    # The shelf

    def known(self, mode: Mode) -> Mapping[int, Transcript]:
        if mode not in self._known:
            self._known[mode] = {t.seed: t for t in self._read(mode)}
        return self._known[mode]

    def keep(self, mode: Mode, transcript: Transcript) -> None:
        self.known(mode)
        self._known[mode][transcript.seed] = transcript
        try:
            with self._file(mode).open("ab") as file:
                file.write(_COMPRESS.compress((dumps(transcript) + "\n").encode()))
        except OSError as error:
            raise DataError(f"{self._file(mode)}: cannot be written: {error.strerror}") from None

    def _file(self, mode: Mode) -> Path:
        folder = self.path / "transcripts"
        folder.mkdir(exist_ok=True)
        return folder / f"{mode}.jsonl.zst"

    def _read(self, mode: Mode) -> list[Transcript]:
        """The debates on file. What a kill has torn off the end is cut away."""
        file = self._file(mode)
        if not file.exists():
            return []
        found: list[Transcript] = []
        whole = 0
        with file.open("rb") as opened, contextlib.suppress(EOFError, zstandard.ZstdError):
            for frame, end in frames(opened):
                found.append(from_data(json.loads(frame)))
                whole = end
        if whole < file.stat().st_size:
            os.truncate(file, whole)
        return found

    # Results

    def write(self, rows: Mapping[Mode, Sequence[Row]], results: Results) -> None:
        lines = [
            json.dumps(finite({"mode": mode, **row.to_data()}))
            for mode, group in rows.items()
            for row in group
        ]
        write_whole(self.path / "rows.jsonl", ("\n".join(lines) + "\n").encode())
        write_whole(self.path / "results.json", json.dumps(results, indent=1).encode())


def first_debates(folder: Path, mode: Mode, count: int) -> list[Transcript]:
    """The first debates of a mode, without reading the others; none where it was not played."""
    file = folder / "transcripts" / f"{mode}.jsonl.zst"
    if not file.exists():
        return []
    with file.open("rb") as opened:
        return [from_data(json.loads(frame)) for frame, _ in islice(frames(opened), count)]


def read_settings(folder: Path) -> dict[str, Any]:
    """What an evaluation asked of whom."""
    try:
        found = json.loads((folder / SETTINGS).read_text("utf-8"))
        assert isinstance(found, dict)
        return found
    except FileNotFoundError:
        raise DataError(f"{folder}: no {SETTINGS} in it; is it an evaluation?") from None
    except (OSError, ValueError, AssertionError):
        raise DataError(f"{folder / SETTINGS}: cannot be read") from None


def read_modes(folder: Path) -> list[Mode]:
    """The modes that an evaluation was asked for."""
    found = read_settings(folder).get("modes")
    if not isinstance(found, list) or not all(mode in MODES for mode in found):
        raise DataError(
            f"{folder / SETTINGS}: names no modes, so nothing can go on with it; --overwrite it"
        )
    return [mode for mode in MODES if mode in found]


def read_results(folder: Path) -> Results:
    """What was found out, by mode."""
    try:
        found = json.loads((folder / "results.json").read_text("utf-8"))
    except FileNotFoundError:
        raise DataError(f"{folder}: no results.json: the evaluation has not ended") from None
    except (OSError, ValueError):
        raise DataError(f"{folder / 'results.json'}: cannot be read") from None
    return found if isinstance(found, dict) else {}


def read_rows(folder: Path) -> dict[Mode, dict[str, dict[str, Any]]]:
    """What was measured, by mode and question."""
    file = folder / "rows.jsonl"
    if not file.exists():
        raise DataError(f"{folder}: no rows.jsonl in it: the evaluation has not ended; --resume it")
    found: dict[Mode, dict[str, dict[str, Any]]] = {}
    for line in read_lines(file):
        with contextlib.suppress(KeyError):
            found.setdefault(line["mode"], {})[str(line["question"])] = line
    return found


def _added(key: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether somebody plays now who did not before, or the other way round."""
    return key.startswith("weights.") and (key not in old or key not in new)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
