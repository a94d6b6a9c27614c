"""`rostra demo` as a person meets it, cut short: the real model and weights, few questions."""

import json
from pathlib import Path

import pytest

from rostra.cli.demo import ROWS
from tests.cli.test_train import refused, rostra

pytest.importorskip("torch")
SHORT = (
    *("train.steps=2", "train.questions=4", "judge_first=1"),
    *("eval.questions=6", "debates=3", "prepared=3"),
)


def test_the_demo_trains_the_shipped_model_and_shows_what_it_learned(tmp_path: Path) -> None:
    done = rostra("demo", *SHORT, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for label, _ in ROWS:
        assert label.strip() in done.stdout
    folder = tmp_path / "runs/demo/selfplay"
    assert "runs/demo/selfplay/report.html" in done.stdout
    assert (folder / "report.html").stat().st_size > 10_000
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["kind"] == "train"] == [0, 1]


def test_a_misspelt_setting_of_the_demo_is_refused_with_what_was_meant(tmp_path: Path) -> None:
    said = refused("demo", "train.stpes=2", cwd=tmp_path)
    assert "did you mean train.steps?" in said
    assert not (tmp_path / "runs").exists()
