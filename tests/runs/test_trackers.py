"""Trackers: what reaches them, and that none of them stops a run."""

import json
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rostra.errors import ConfigError
from rostra.runs.trackers import TRACKERS, open_trackers, run_id, without_secrets

CONFIG = {"agents": 5, "max_tokens": 64, "engine": {"model": "toy", "api_key": "sk-1"}}


class FakeRun:
    """Stands where wandb and trackio hand out a run, and keeps what it is given."""

    def __init__(self) -> None:
        self.logged: list[tuple[dict[str, float], int | None]] = []
        self.defined: list[tuple[str, str | None]] = []
        self.finished = 0
        self.broken = False

    def log(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        if self.broken:
            raise OSError("the network\nis gone")
        self.logged.append((dict(metrics), step))

    def define_metric(self, name: str, step_metric: str | None = None) -> None:
        self.defined.append((name, step_metric))

    def finish(self) -> None:
        self.finished += 1


class FakePackage(ModuleType):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.run = FakeRun()
        self.settings: dict[str, Any] = {}

    def init(self, **settings: Any) -> FakeRun:
        self.settings = settings
        return self.run


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> FakePackage:
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    monkeypatch.setitem(sys.modules, "wandb", package := FakePackage("wandb"))
    return package


@pytest.fixture
def trackio(monkeypatch: pytest.MonkeyPatch) -> FakePackage:
    monkeypatch.setitem(sys.modules, "trackio", package := FakePackage("trackio"))
    return package


def test_no_names_no_trackers_and_no_files(tmp_path: Path) -> None:
    assert open_trackers([], tmp_path, "math", CONFIG) == []
    assert list(tmp_path.iterdir()) == []


def test_wandb_gets_a_run_that_can_be_resumed(wandb: FakePackage, tmp_path: Path) -> None:
    (tracker,) = open_trackers(["wandb"], tmp_path, "math", CONFIG)
    tracker.log({"loss": 0.5}, 3)
    tracker.close()
    assert wandb.settings == {
        "project": "rostra",
        "name": "math",
        "id": run_id(tmp_path),
        "resume": "allow",
        "dir": str(tmp_path),
        "config": {"agents": 5, "max_tokens": 64, "engine": {"model": "toy"}},
        "settings": {"console": "off"},
    }
    # As a metric, because wandb drops steps that are not larger than the last one it saw.
    assert wandb.run.defined == [("step", None), ("*", "step")]
    assert wandb.run.logged == [({"loss": 0.5, "step": 3}, None)]
    assert wandb.run.finished == 1


def test_wandb_logs_to_the_project_that_the_environment_names(
    wandb: FakePackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "debates")
    open_trackers(["wandb"], tmp_path, "math", {})
    assert wandb.settings["project"] == "debates"


def test_trackio_gets_a_name_of_its_own_that_can_be_resumed(
    trackio: FakePackage, tmp_path: Path
) -> None:
    (tracker,) = open_trackers(["trackio"], tmp_path, "math", CONFIG)
    tracker.log({"loss": 0.5}, 3)
    tracker.close()
    assert trackio.settings == {
        "project": "rostra",
        "name": f"math-{run_id(tmp_path)}",
        "resume": "allow",
        "config": {"agents": 5, "max_tokens": 64, "engine": {"model": "toy"}},
    }
    assert trackio.run.logged == [({"loss": 0.5}, 3)]
    assert trackio.run.finished == 1


def test_only_known_numbers_reach_a_tracker(trackio: FakePackage, tmp_path: Path) -> None:
    (tracker,) = open_trackers(["trackio"], tmp_path, "math", {})
    some: dict[str, Any] = {"a": 1, "b": float("nan"), "c": None, "d": float("inf")}
    tracker.log(some, 0)
    assert trackio.run.logged == [({"a": 1.0}, 0)]


def test_the_id_is_the_same_for_a_folder_and_another_for_another(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    assert run_id(here) == run_id(here) != run_id(there)
    (here / "tracker-id").write_text("cut/sh", "utf-8")
    assert len(run_id(here)) == 8


def test_a_tracker_that_fails_is_dropped_with_one_warning(
    wandb: FakePackage, trackio: FakePackage, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trackers = open_trackers(["wandb", "trackio"], tmp_path, "math", {})
    wandb.run.broken = True
    with caplog.at_level(logging.WARNING, "rostra"):
        for step in range(3):
            for tracker in trackers:
                tracker.log({"loss": 0.5}, step)
        for tracker in trackers:
            tracker.close()
    assert [record.getMessage() for record in caplog.records] == [
        "wandb failed and gets no more metrics: the network is gone"
    ]
    assert caplog.records[0].name == "rostra"
    assert len(trackio.run.logged) == 3
    assert (wandb.run.finished, trackio.run.finished) == (0, 1)


def test_closing_twice_is_closing_once(trackio: FakePackage, tmp_path: Path) -> None:
    (tracker,) = open_trackers(["trackio"], tmp_path, "math", {})
    tracker.close()
    tracker.close()
    tracker.log({"loss": 1.0}, 1)
    assert trackio.run.finished == 1
    assert trackio.run.logged == []


@pytest.mark.parametrize("name", TRACKERS)
def test_a_missing_package_is_said_with_the_line_that_installs_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Nowhere:
        def find_spec(self, module: str, path: object = None, target: object = None) -> None:
            if module.split(".")[0] == name:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    for module in [m for m in sys.modules if m.split(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(sys, "meta_path", [Nowhere(), *sys.meta_path])
    with pytest.raises(ConfigError, match=rf"^tracker {name} needs .*rostra\[track\]'$"):
        open_trackers([name], tmp_path, "math", {})


def test_a_name_that_nobody_knows_opens_nothing(wandb: FakePackage, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'tensorbord' is not known, did you mean tensorboard?"):
        open_trackers(["wandb", "tensorbord"], tmp_path, "math", {})
    assert wandb.settings == {}


def test_a_tracker_that_cannot_start_closes_those_that_did(
    wandb: FakePackage, trackio: FakePackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**settings: Any) -> FakeRun:
        raise RuntimeError("no key\nis set")

    monkeypatch.setattr(wandb, "init", refuse)
    with pytest.raises(ConfigError, match="^wandb could not start: no key is set$"):
        open_trackers(["trackio", "wandb"], tmp_path, "math", {})
    assert trackio.run.finished == 1


def test_keys_are_left_out_by_name_wherever_they_stand() -> None:
    config = {
        "api_key": 1,
        "OPENAI_API_KEY": 1,
        "apiKey": 1,
        "hf_token": 1,
        "Authorization": 1,
        "judge": {"password": 1, "api_key_env": "OPENAI_API_KEY", "max_tokens": 8},
        "players": [{"secret": 1, "model": "toy"}],
        "stop": ["</a>"],
        "keys_seen": 2,
    }
    assert without_secrets(config) == {
        "judge": {"api_key_env": "OPENAI_API_KEY", "max_tokens": 8},
        "players": [{"model": "toy"}],
        "stop": ["</a>"],
        "keys_seen": 2,
    }


def test_no_key_reaches_a_file(wandb: FakePackage, trackio: FakePackage, tmp_path: Path) -> None:
    open_trackers(["wandb", "trackio"], tmp_path, "math", CONFIG)
    assert "sk-1" not in json.dumps([wandb.settings, trackio.settings])
    assert not any("sk-1" in file.read_text() for file in tmp_path.rglob("*") if file.is_file())


def test_tensorboard_files_hold_what_was_logged(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    (tracker,) = open_trackers(["tensorboard"], tmp_path, "math", CONFIG)
    tracker.log({"loss": 0.5, "parse_error": 0.25}, 3)
    # Read before it is closed: a killed run keeps what it logged.
    events = reader.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    tracker.close()
    found = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.scalars.Keys()}
    assert found == {"loss": [(3, 0.5)], "parse_error": [(3, 0.25)]}
