"""A run directory: everything a run leaves behind, written so that a kill loses little.

config.toml, prompts/   the resolved recipe
metrics.jsonl           one line for every step and every evaluation
alarms.jsonl            what rang
transcripts/            the debates, one compressed file for each step
checkpoints/            weights and optimiser by the engine (weights-N), step-N.json by the loop
report.html             what to look at

A checkpoint counts once its step-N.json is there. Whatever is newer than the last checkpoint is
removed when the run is resumed, and made again in the same way.
"""

import contextlib
import fcntl
import json
import math
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

from rostra.debate.transcript import Transcript
from rostra.errors import ConfigError, DataError
from rostra.runs.recipe import changed_keys, read_config, to_toml
from rostra.runs.settings import Recipe
from rostra.runs.transcripts import dumps, from_data

Line = dict[str, Any]
"""One line of metrics: `step`, `kind`, and numbers by name."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a run can go on."""

    step: int
    """Steps done."""
    name: str
    """What the engine calls its part."""
    state: Mapping[str, Any]
    """What the loop remembers: baselines, alarms, debates sampled ahead."""


class RunFolder:
    """Holds the directory, and a lock on it while it is open."""

    def __init__(self, path: Path, recipe: Recipe) -> None:
        self.path = path
        self.recipe = recipe
        self._lock: int | None = None
        self._made = False

    @classmethod
    def open(cls, recipe: Recipe, *, resume: bool, overwrite: bool) -> "RunFolder":
        """A new directory, or an old one to go on with. What is there is never lost silently."""
        path = Path(recipe.folder)
        folder = cls(path, recipe)
        try:
            used = check_place(path)
            if used and not resume and not overwrite:
                raise ConfigError(
                    f"{path}: there is a run already; go on with it (--resume), replace it "
                    "(--overwrite), or choose another folder (folder=runs/NAME)"
                )
            folder._made = not path.exists()
            path.mkdir(parents=True, exist_ok=True)
            folder._take_lock()
            if used and overwrite:
                folder._clear()
            if used and resume and (path / "config.toml").exists():
                folder._check_unchanged()
            else:
                folder._write_config()
        except OSError as error:
            folder.close()
            raise DataError(f"{path}: cannot be written: {error.strerror}") from None
        except ValueError:
            folder.close()
            raise ConfigError(f"folder = {str(path)!r}: not a name for a folder") from None
        except BaseException:
            folder.close()
            raise
        return folder

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def discard(self) -> None:
        """Removes a run that never began, so that a better one can have its place. A folder that
        was there before stays."""
        begun = {".lock", "config.toml", "prompts"}
        with contextlib.suppress(OSError):
            if self._made and {entry.name for entry in self.path.iterdir()} <= begun:
                shutil.rmtree(self.path)

    def _take_lock(self) -> None:
        self._lock = os.open(self.path / ".lock", os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise ConfigError(f"{self.path}: another process is running it right now") from None

    def _clear(self) -> None:
        for entry in self.path.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif entry.name != ".lock":
                entry.unlink()

    def _write_config(self) -> None:
        prompts = self.recipe.protocol.prompts
        _remove(self.path / "prompts")  # a kill may have left some of another run
        if prompts:
            (self.path / "prompts").mkdir(exist_ok=True)
        for name, text in prompts.items():
            (self.path / "prompts" / f"{name}.md").write_bytes(text.encode())
        write_whole(self.path / "config.toml", to_toml(self.recipe).encode())

    def _check_unchanged(self) -> None:
        changed = changed_keys(read_config(self.path), self.recipe)
        if changed:
            more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
            raise ConfigError(
                f"{self.path}: cannot be resumed with other settings: "
                f"{'; '.join(changed[:3])}{more}. Resume it as it was, or start another run"
            )

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def last_checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint that is whole."""
        for file in reversed(checkpoint_files(self.checkpoints)):
            try:
                state = json.loads(file.read_text("utf-8"))
                step = int(state["step"])
                return Checkpoint(step, weights_name(step), state["state"])
            except (OSError, ValueError, KeyError, TypeError):
                continue
        return None

    def write_checkpoint(self, step: int, state: Mapping[str, Any], keep: int) -> None:
        """Makes the engine's checkpoint of this step count, and drops old ones."""
        name = checkpoint_name(step)
        self._sync_lines()
        text = json.dumps({"step": step, "state": state})
        write_whole(self.checkpoints / f"{name}.json", text.encode())
        for file in checkpoint_files(self.checkpoints)[:-keep]:
            old = weights_name(_number(file))
            file.unlink()
            for part in (old, f"{old}.json", f"{file.stem}.ahead.jsonl.zst"):
                _remove(self.checkpoints / part)

    def write_ahead(self, step: int, groups: Sequence[Sequence[Transcript]]) -> None:
        """Debates that were sampled for later steps with weights that will be gone."""
        lines = [
            json.dumps({"step": at, "debate": json.loads(dumps(t))})
            for at, group in enumerate(groups, step)
            for t in group
        ]
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        target = self.checkpoints / f"{checkpoint_name(step)}.ahead.jsonl.zst"
        write_whole(target, _COMPRESS.compress("\n".join(lines).encode()))

    def rewind(self, checkpoint: Checkpoint | None) -> None:
        """Removes what is newer than a checkpoint; without one, everything."""
        step = checkpoint.step if checkpoint else 0
        for name in ("metrics.jsonl", "alarms.jsonl"):
            file = self.path / name
            if file.exists():
                kept = [line for line in read_lines(file) if _before(line, step, file)]
                write_whole(file, "".join(_dump(line) for line in kept).encode())
        for file in (self.path / "transcripts").glob("step-*"):
            if _number(file) >= step:
                file.unlink()
        for part in [*self.checkpoints.glob(".*"), *self.path.glob("**/*.part")]:
            _remove(part)
        for other in [*self.checkpoints.glob("step-*"), *self.checkpoints.glob("weights-*")]:
            if _number(other) > step or checkpoint is None:
                _remove(other)

    def metrics(self) -> list[Line]:
        file = self.path / "metrics.jsonl"
        return read_lines(file) if file.exists() else []

    def add_metrics(self, line: Mapping[str, Any]) -> None:
        self._append("metrics.jsonl", line)

    def add_alarm(self, line: Mapping[str, Any]) -> None:
        self._append("alarms.jsonl", line)

    def _append(self, name: str, line: Mapping[str, Any]) -> None:
        try:
            with (self.path / name).open("ab") as file:
                file.write(_dump(line).encode())
        except OSError as error:
            raise DataError(f"{self.path / name}: cannot be written: {error.strerror}") from None

    def _sync_lines(self) -> None:
        for name in ("metrics.jsonl", "alarms.jsonl"):
            with contextlib.suppress(FileNotFoundError), (self.path / name).open("rb") as file:
                os.fsync(file.fileno())

    def write_transcripts(self, step: int, transcripts: Iterable[Transcript]) -> None:
        """The debates of a step, whole or not at all."""
        text = "".join(dumps(transcript) + "\n" for transcript in transcripts)
        target = self.path / "transcripts" / f"{checkpoint_name(step)}.jsonl.zst"
        write_whole(target, _COMPRESS.compress(text.encode()))


_COMPRESS = zstandard.ZstdCompressor(write_checksum=True)


def checkpoint_name(step: int) -> str:
    return f"step-{step:06d}"


def weights_name(step: int) -> str:
    """What the engine's part of a checkpoint is called."""
    return f"weights-{step:06d}"


def checkpoint_files(folder: Path) -> list[Path]:
    """The loop's parts of all checkpoints, by step."""
    found = [file for file in folder.glob("step-*.json") if _number(file) >= 0]
    return sorted(found, key=_number)


def _number(file: Path) -> int:
    """The step in a name like step-000020.json; -1 where there is none."""
    digits = file.name.split(".")[0].partition("-")[2]
    return int(digits) if digits.isdecimal() else -1


def check_place(path: Path) -> bool:
    """Whether there is a run already; what is there and is no run is left alone."""
    try:
        if path.exists() and not path.is_dir():
            raise DataError(f"{path}: a file is in the way of the run directory")
        used = path.is_dir() and any(path.iterdir())
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    if used and not (path / "config.toml").exists() and not _is_begun(path):
        raise ConfigError(f"{path}: not a run directory, so it is left alone; choose another")
    return used


def read_lines(file: Path) -> list[Line]:
    """The lines of a JSONL file. A last line that was torn by a kill is left out; any other that
    is no JSON is an error."""
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}") from None
    rows = raw.split(b"\n")
    lines: list[Line] = []
    for number, row in enumerate(rows, 1):
        if not row.strip():
            continue
        try:
            line = json.loads(row)
            if not isinstance(line, dict):
                raise ValueError
        except ValueError:
            if number == len(rows):
                break
            raise DataError(f"{file}, line {number}: not a line of metrics") from None
        lines.append(line)
    return lines


def read_ahead(file: Path) -> dict[int, list[Transcript]]:
    """What `write_ahead` wrote: debates by step."""

    found: dict[int, list[Transcript]] = {}
    try:
        text = zstandard.decompress(file.read_bytes()).decode()
        for line in text.split("\n"):
            if line:
                data = json.loads(line)
                found.setdefault(int(data["step"]), []).append(from_data(data["debate"]))
    except (OSError, ValueError, KeyError, TypeError, DataError, zstandard.ZstdError) as error:
        raise DataError(f"{file}: the debates sampled ahead cannot be read: {error}") from None
    return found


def write_whole(target: Path, content: bytes) -> None:
    """Writes a file so that it is there whole or not at all, also after a crash."""
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise DataError(f"{target}: cannot be written: {error.strerror}") from None


def _dump(line: Mapping[str, Any]) -> str:
    """One line of JSON; what is not a number (a mean over nothing) is null."""
    clean = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in line.items()
    }
    return json.dumps(clean) + "\n"


def _before(line: Line, step: int, file: Path) -> bool:
    """Whether a line is older than a checkpoint. An evaluation of the weights at the checkpoint is
    made again, so that the run goes on exactly as it would have."""
    if type(line.get("step")) is not int:
        raise DataError(f"{file}: a line in it does not say which step it is of")
    return int(line["step"]) < step


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _is_begun(path: Path) -> bool:
    """Whether a kill left nothing but the beginning of a run there."""
    names = {entry.name for entry in path.iterdir()}
    return names <= {".lock", "prompts", "config.toml.part"}
