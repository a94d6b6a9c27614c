"""The guide says what is there."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

from rostra.cli.demo import ROWS

ROOT = Path(__file__).parent.parent
FORMULAS = ROOT / "docs" / "formulas.md"
COMMANDS = ROOT / "docs" / "commands.py"


def exists(dotted: str) -> bool:
    """Whether a dotted name leads to something: modules first, then attributes."""
    parts = dotted.split(".")
    for split in range(len(parts), 0, -1):
        try:
            thing: object = importlib.import_module(".".join(parts[:split]))
        except ModuleNotFoundError:
            continue
        for name in parts[split:]:
            if not hasattr(thing, name):
                return False
            thing = getattr(thing, name)
        return True
    return False


def test_every_function_of_the_formulas_page_exists() -> None:
    names = re.findall(r"`(rostra(?:\.\w+)+)[`(]", FORMULAS.read_text("utf-8"))
    assert names
    assert [name for name in names if not exists(name)] == []


def test_the_commands_page_is_what_the_help_texts_say() -> None:
    done = subprocess.run(
        [sys.executable, str(COMMANDS), "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_the_links_of_the_readme_lead_to_files() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)
    local = [link.partition("#")[0] for link in links if not re.match(r"[a-z]+:|#", link)]
    assert [link for link in local if not (ROOT / link).exists()] == []


def test_the_table_in_the_readme_has_the_rows_that_the_demo_prints() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    quoted = re.search(r"`make demo` ends like this:\n\n```\n(.*?)```", text, re.DOTALL)
    assert quoted
    lines = quoted[1].splitlines()
    for label, _ in ROWS:
        row = next(line for line in lines if line.startswith(label))
        assert re.search(r"\d+%\s+\d+%\s+[+-]\d+ points$", row), row
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^demo: setup.*\n\t@\$\(BIN\)/rostra demo$", makefile, re.MULTILINE)


def test_the_example_of_the_engines_page_runs(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "engines.md").read_text("utf-8")
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert code
    done = subprocess.run(
        [sys.executable, "-c", code[1]], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "grad_norm" in done.stdout
    assert (tmp_path / "checkpoints" / "step-1" / "model.safetensors").exists()
