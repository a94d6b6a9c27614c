"""Writes docs/commands.md from the help texts; --check only says whether it is up to date."""

import sys
from pathlib import Path

import click

from rostra.cli import COMMANDS, rostra

PAGE = Path(__file__).with_name("commands.md")


def page() -> str:
    """Every command's help, as it is printed at 80 columns."""
    title = "# Commands\n\nWritten by `make docs` from the help texts.\n"
    parts = [title, _help(["rostra"], rostra)]
    context = click.Context(rostra, info_name="rostra")
    for name in COMMANDS:
        command = rostra.get_command(context, name)
        assert command is not None
        parts.append(_help(["rostra", name], command))
    return "\n".join(parts)


def _help(names: list[str], command: click.Command) -> str:
    parent = click.Context(rostra, info_name="rostra", max_content_width=80, terminal_width=80)
    context = parent
    if len(names) > 1:
        context = click.Context(command, parent, names[-1], terminal_width=80)
    context.help_option_names[:] = ["-h", "--help"]
    title = " ".join(names)
    return f"## {title}\n\n```\n{command.get_help(context)}\n```\n"


if __name__ == "__main__":
    if "--check" in sys.argv:
        current = PAGE.read_text() == page()
        sys.exit(0 if current else "docs/commands.md is out of date: run `make docs`")
    PAGE.write_text(page())
