"""`rostra tasks`: the list, and a look at one."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from rostra.runs.syllabus import TaskSettings
from rostra.tasks.catalogue import CATALOGUE
from rostra.tasks.mathgrader import MathGrader
from rostra.tasks.question import Question
from tests.cli.inside import inside
from tests.cli.test_startup import HEAVY, imported


def rostra(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return inside("tasks", *arguments, **env)


def said(*arguments: str) -> str:
    """The one line that a wrong command gives."""
    done = rostra(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    return done.stderr


def data(folder: Path) -> Path:
    rows = [
        {"question": f"Ann has {i} hens.\nHow many?", "answer": f"#### {i}"} for i in range(1, 31)
    ]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    test = {"question": "\x1b[31mHow many eggs?", "answer": "#### 99"}
    (folder / "test.jsonl").write_text(json.dumps(test))
    return folder


def test_every_task_has_a_line() -> None:
    done = rostra()
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()[1:]
    assert [line.split()[0] for line in lines] == list(CATALOGUE)
    for line, entry in zip(lines, CATALOGUE.values(), strict=True):
        assert entry.what in line and entry.origin in line and entry.grader in line


@pytest.mark.parametrize("columns", ["30", "50", "90"])
def test_the_list_fits_any_terminal(columns: str) -> None:
    done = rostra(COLUMNS=columns, FORCE_COLOR="1")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    assert max(map(len, plain.splitlines())) <= int(columns)
    assert all(name in plain for name in CATALOGUE)


def test_the_list_needs_no_heavy_package() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "rostra", "tasks"],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )
    names = imported(done.stderr)
    assert not names & {*HEAVY, "math_verify", "reasoning_gym", "sympy", "pydantic"}


def test_a_task_shows_sizes_and_examples(tmp_path: Path) -> None:
    done = rostra("gsm8k", "--path", str(data(tmp_path)), "--show", "2")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^\d+ train, \d+ validation, 1 test$", done.stdout, re.MULTILINE)
    assert done.stdout.count("(train)") == 2
    assert done.stdout.count("\n  How many?") == 2
    numbers = re.findall(r"Ann has (\d+) hens.\n  How many\?\n  answer: (\d+)$", done.stdout, re.M)
    assert len(numbers) == 2 and all(asked == answer for asked, answer in numbers)


def test_another_seed_draws_other_examples_and_the_same_seed_the_same(tmp_path: Path) -> None:
    at = ["gsm8k", "--path", str(data(tmp_path))]
    first, again, other = rostra(*at), rostra(*at), rostra(*at, "--seed", "1")
    assert first.stdout == again.stdout != other.stdout


def test_a_part_can_be_chosen_and_what_it_holds_cannot_paint(tmp_path: Path) -> None:
    done = rostra("gsm8k", "--path", str(data(tmp_path)), "--part", "test")
    assert "test-1 (test)\n" in done.stdout
    assert "answer: 99" in done.stdout and "\x1b" not in done.stdout


def test_settings_of_a_recipe_are_taken(tmp_path: Path) -> None:
    row = {"q": "Half of one?", "a": "\\frac12", "level": 3}
    path = tmp_path / "my.json"
    path.write_text(json.dumps([row]))
    fields = 'fields={prompt = "q", reference = "a"}'
    done = rostra("jsonl", f"path={path}", fields, "grader=math", "held_out=0.001")
    assert "Half of one?\n  answer: \\frac12\n  level 3" in done.stdout
    dotted = rostra("jsonl", f"path={path}", "fields.prompt=q", "fields.reference=a", "grader=math",
                    "task.held_out=0.001")  # fmt: skip
    assert dotted.stdout == done.stdout


def test_how_rows_of_your_own_are_graded_is_said(tmp_path: Path) -> None:
    path = tmp_path / "my.jsonl"
    path.write_text('{"prompt": "One and one?", "answer": "2"}\n')
    assert "; graded: exact (by default)\n" in rostra("jsonl", f"path={path}").stdout
    assert "; graded: math\n" in rostra("jsonl", f"path={path}", "grader=math").stdout


def test_what_is_misspelt_gets_a_suggestion(tmp_path: Path) -> None:
    assert said("gsm9k") == "rostra: no task is called 'gsm9k', did you mean gsm8k?\n"
    assert "(there are: sums, shop, " in said("chess")
    assert said("gsm8k", "pth=x") == "rostra: pth: unknown key, did you mean path?\n"
    assert "limit: input should be a valid integer" in said("sums", "limit=many")
    assert said("jsonl", "path=x", "grader=integr") == (
        "rostra: grader = 'integr': must be integer or exact or math or none, "
        "did you mean integer?\n"
    )


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (["path=a", "path.x=1"], "path.x: path = 'a' was given, which has no keys"),
        (["fields=3", "fields.prompt=q"], "fields.prompt: fields = 3 was given, which has no keys"),
        (["path=a", "fields.prompt=q", "fields=3"], "fields: input should be"),
    ],
)
def test_a_value_with_keys_below_it_is_one_line(settings: list[str], complaint: str) -> None:
    assert complaint in said("jsonl", *settings)


def test_what_is_missing_or_broken_is_one_line(tmp_path: Path) -> None:
    assert "no such file or folder" in said("gsm8k", "--path", str(tmp_path / "nowhere"))
    (tmp_path / "train.jsonl").write_text('{"question": "?", "answer": "#### 1"}\n{"question"')
    assert "train.jsonl, line 2: is cut short" in said("gsm8k", "--path", str(tmp_path))
    assert "path: task nyu needs one" in said("nyu")


def test_help_shows_how_it_is_used() -> None:
    assert "rostra tasks gsm8k --path" in rostra("--help").stdout


# The page of the guide

PAGE = Path(__file__).parents[2] / "docs" / "tasks.md"


def test_the_page_has_the_table_of_the_list() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \| (.+) \|$", PAGE.read_text("utf-8"), re.M)
    known = [(name, e.what, e.origin, e.grader) for name, e in CATALOGUE.items()]
    assert [row for row in rows if row[0] in CATALOGUE] == known


def test_the_settings_of_the_page_are_settings() -> None:
    blocks = re.findall(r"```toml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    found = [TypeAdapter(TaskSettings).validate_python(tomllib.loads(b)["task"]) for b in blocks]
    assert [settings.name for settings in found] == ["math", "jsonl"]


def test_what_the_page_calls_the_same_is() -> None:
    before, _, table = PAGE.read_text("utf-8").partition("| the same | not the same |")
    assert "the first is the reference and the others are answers" in before
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| `")]
    assert len(rows) == 20
    cells = [(cell, mark) for row in rows for cell, mark in zip(row, (True, False), strict=True)]
    pairs, marks = [], []
    for cell, mark in cells:
        first, *others = re.findall(r"`([^`]+)`", cell)
        pairs += [(other, Question("q", "?", first)) for other in others]
        marks += [mark for _ in others]
    assert MathGrader().grade(pairs) == marks
