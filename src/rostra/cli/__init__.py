"""The command line. Commands are imported when they run, so `rostra --help` answers at once."""

import gc
import importlib
import io
import sys

import click

from rostra import __version__
from rostra.errors import RostraError

COMMANDS = {
    "debate": "Play one debate about a question and watch it.",
    "show": "Print stored transcripts.",
    "rescore": "Score stored debates again under other rules, without sampling.",
}
"""Every command, and the line that stands for it in the help."""


class Commands(click.Group):
    """Finds a command in the module of its name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"rostra.cli.{name}")
        command = module.command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="rostra")
def rostra() -> None:
    """Rostra trains language models by letting them debate."""


def main() -> None:
    """Runs the command line: errors that are meant for people become one line and exit code 2."""
    # Debates in flight are many small objects that all live long; collecting less often halves
    # the time that is spent on looking at them.
    gc.set_threshold(50_000, 20, 50)
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character shows a question mark, and nothing breaks.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        rostra.main(prog_name="rostra", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except RostraError as error:
        message = " ".join(str(error).split())
        safe = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in message)
        click.echo(f"rostra: {safe}", err=True)
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo("rostra: interrupted", err=True)
        sys.exit(130)
