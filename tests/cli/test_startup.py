"""The command line starts without the heavy packages, and works when they are broken."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "transformers", "tinker", "datasets", "openai", "peft")
"""Extras. The core runs without them."""
CORE = ("numpy", "pydantic", "rich", "zstandard")
"""Needed by commands, but not to say what commands there are."""
SCRIPTED = ("--engine", "scripted")


@pytest.fixture
def broken(tmp_path: Path) -> dict[str, str]:
    """An environment in which every heavy package is there and raises when it is imported."""
    for name in HEAVY:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise RuntimeError('{name} was imported')\n")
    return {**os.environ, "PYTHONPATH": str(tmp_path)}


def python(env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], env=env, capture_output=True, encoding="utf-8", timeout=120
    )


def imported(importtime: str) -> set[str]:
    """The top-level packages in the output of -X importtime."""
    found = re.findall(r"^import time:.*\|\s*([\w.]+)$", importtime, re.MULTILINE)
    return {name.partition(".")[0] for name in found}


def test_the_heavy_packages_are_really_broken_here(broken: dict[str, str]) -> None:
    for name in HEAVY:
        assert f"{name} was imported" in python(broken, "-c", f"import {name}").stderr


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["--version"]])
def test_help_imports_nothing_that_a_command_would_need(
    arguments: list[str], broken: dict[str, str]
) -> None:
    done = python(broken, "-X", "importtime", "-m", "rostra", *arguments)
    assert done.returncode == 0
    assert "rostra" in done.stdout
    names = imported(done.stderr)
    assert {"rostra", "click"} <= names
    assert not names & {*HEAVY, *CORE}


def test_importing_the_package_imports_nothing_else(broken: dict[str, str]) -> None:
    done = python(broken, "-X", "importtime", "-c", "import rostra; dir(rostra)")
    assert done.returncode == 0
    assert not imported(done.stderr) & {*HEAVY, *CORE, "click", "asyncio"}


def test_every_public_name_resolves_without_the_heavy_packages(broken: dict[str, str]) -> None:
    code = (
        "import rostra\n"
        "local = {n for n, m in rostra._SURFACE.items() if m.startswith('rostra.engines.local')}\n"
        "print(len([getattr(rostra, name) for name in rostra.__all__ if name not in local]))"
    )
    done = python(broken, "-c", code)
    assert done.stderr == ""
    assert int(done.stdout) > 1


def test_the_local_engine_says_how_to_install_what_it_needs() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import rostra\n"
        "try: rostra.LocalEngine\n"
        "except rostra.errors.ConfigError as error: print(error)"
    )
    done = python(dict(os.environ), "-c", code)
    assert done.stdout == "this needs the package torch: pip install 'rostra[local]'\n"


@pytest.mark.parametrize("command", ["debate", "show", "rescore"])
def test_the_help_of_a_command_needs_no_heavy_package(command: str, broken: dict[str, str]) -> None:
    done = python(broken, "-X", "importtime", "-m", "rostra", command, "--help")
    assert done.returncode == 0
    assert f"Usage: rostra {command}" in done.stdout
    assert not imported(done.stderr) & set(HEAVY)


def test_a_whole_debate_is_played_stored_and_scored_without_the_heavy_packages(
    broken: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "debate.json.zst"
    done = python(broken, "-m", "rostra", "debate", "What is 2 + 2?", "--out", str(out), *SCRIPTED)
    assert (done.returncode, done.stderr) == (0, "")
    assert "gen reward" in done.stdout
    done = python(broken, "-m", "rostra", "rescore", str(out), "--json")
    assert (done.returncode, done.stderr) == (0, "")
