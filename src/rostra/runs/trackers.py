"""Trackers: metrics for those who watch runs elsewhere. The JSONL file of a run is always written;
these come on top, and none of them can stop a run."""

import importlib
import logging
import math
import os
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from rostra.debate.prompts import did_you_mean
from rostra.errors import ConfigError

log = logging.getLogger("rostra")

INSTALL = "pip install 'rostra[track]'"
PROJECT = "rostra"
ID_FILE = "tracker-id"
"""Names this run to the trackers, so that a resumed run goes on where it was."""

_SECRET = re.compile(
    r"(?:^|[._-])(?:(?:api_?|access_?)?key|token|secret|password|credentials?|authorization)$"
)


class Tracker(Protocol):
    """Where metrics go, step by step."""

    def log(self, metrics: Mapping[str, float], step: int) -> None: ...

    def close(self) -> None: ...


def open_trackers(
    names: Sequence[str], folder: Path, run_name: str, config: Mapping[str, Any]
) -> list[Tracker]:
    """One tracker for every name, ready to log.

    What cannot start is said here, while somebody is looking; what fails later is dropped with a
    warning.
    """
    for name in names:
        if name not in _OPEN:
            raise ConfigError(
                f"tracker {name!r} is not known{did_you_mean(name, _OPEN)} "
                f"(there are: {', '.join(_OPEN)})"
            )
    modules = {name: _need(name) for name in names}
    folder.mkdir(parents=True, exist_ok=True)
    opened: list[Tracker] = []
    for name, module in modules.items():
        try:
            tracker = _OPEN[name](module, folder.resolve(), run_name, without_secrets(config))
        except Exception as error:
            for tracker in opened:
                tracker.close()
            raise ConfigError(f"{name} could not start: {_one_line(error)}") from error
        opened.append(_Guarded(name, tracker))
    return opened


def without_secrets(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without those that are keys by their name, at any depth: trackers write all
    they are given to files and send it away."""

    def clean(value: Any) -> Any:
        if isinstance(value, Mapping):
            return without_secrets(value)
        return [clean(v) for v in value] if isinstance(value, list | tuple) else value

    return {name: clean(v) for name, v in config.items() if not _SECRET.search(name.lower())}


class _Guarded:
    """Passes known numbers on until the tracker fails; then warns once and lets go of it."""

    def __init__(self, name: str, tracker: Tracker) -> None:
        self._name = name
        self._tracker: Tracker | None = tracker

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        # None is not a number either, whatever the types say: metrics come from many places.
        known = {k: float(v) for k, v in metrics.items() if v is not None and math.isfinite(v)}
        self._try(lambda tracker: tracker.log(known, step))

    def close(self) -> None:
        self._try(lambda tracker: tracker.close())
        self._tracker = None

    def _try(self, call: Callable[[Tracker], None]) -> None:
        if self._tracker is None:
            return
        try:
            call(self._tracker)
        except Exception as error:
            self._tracker = None
            log.warning("%s failed and gets no more metrics: %s", self._name, _one_line(error))


class _TensorBoard:
    """Event files in the run's folder, by tensorboard's own writer: it needs no torch."""

    def __init__(
        self, tensorboard: ModuleType, folder: Path, run_name: str, config: Mapping[str, Any]
    ) -> None:
        # Below the `Writer` of tensorboard.summary, whose scalars many readers take for tensors.
        files = importlib.import_module("tensorboard.summary.writer.event_file_writer")
        self._event = importlib.import_module("tensorboard.compat.proto.event_pb2").Event
        self._writer = files.EventFileWriter(str(folder / "tensorboard"))

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        event = self._event(wall_time=time.time(), step=step)
        for name, value in metrics.items():
            event.summary.value.add(tag=name, simple_value=value)
        self._writer.add_event(event)
        # It would keep the last two minutes to itself, and a killed run would lose them.
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class _Wandb:
    """Weights & Biases. Mode, entity and key come from its environment variables."""

    def __init__(
        self, wandb: ModuleType, folder: Path, run_name: str, config: Mapping[str, Any]
    ) -> None:
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            name=run_name,
            id=run_id(folder),
            resume="allow",
            dir=str(folder),
            config=dict(config),
            # Else it would record every frame of the live display.
            settings={"console": "off"},
        )
        # Its own step can only grow, and a resumed run begins before the last step it logged.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self._run.log({**metrics, "step": step})

    def close(self) -> None:
        self._run.finish()


class _Trackio:
    """Trackio. It finds a run by its name alone, so the name carries the id."""

    def __init__(
        self, trackio: ModuleType, folder: Path, run_name: str, config: Mapping[str, Any]
    ) -> None:
        self._run = trackio.init(
            project=PROJECT,
            name=f"{run_name}-{run_id(folder)}",
            resume="allow",
            config=dict(config),
        )

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        # The run itself, not the module: that looks for the run in the context of the caller.
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


_OPEN: dict[str, Callable[[ModuleType, Path, str, Mapping[str, Any]], Tracker]] = {
    "tensorboard": _TensorBoard,
    "wandb": _Wandb,
    "trackio": _Trackio,
}
TRACKERS = tuple(_OPEN)
"""Every name there is."""


def run_id(folder: Path) -> str:
    """The same for a folder as long as it lives, and for no other."""
    file = folder / ID_FILE
    known = file.read_text("utf-8").strip() if file.exists() else ""
    if re.fullmatch(r"[0-9a-f]{8}", known):
        return known
    # Not from the seed of the run: two runs with one seed are two runs.
    fresh = secrets.token_hex(4)
    file.write_text(f"{fresh}\n", "utf-8")
    return fresh


def _need(name: str) -> ModuleType:
    """The module of a tracker, or one sentence that says how to get it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != name:
            raise
        raise ConfigError(f"tracker {name} needs the package {name}: {INSTALL}") from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
