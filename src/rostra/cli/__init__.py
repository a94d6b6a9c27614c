"""The command line. Commands are imported when they run, so `rostra --help` answers at once."""

import difflib
import gc
import importlib
import io
import logging
import sys
import warnings

import click

from rostra import __version__
from rostra.errors import RostraError

COMMANDS = {
    "demo": "Train a tiny model by self-play and see it improve.",
    "train": "Train a model by a recipe.",
    "doctor": "Check whether a recipe can learn, before it is run.",
    "eval": "Measure a model: alone, by vote, in debate, in every role.",
    "compare": "Compare two evaluated runs with a paired test.",
    "debate": "Play one debate about a question and watch it.",
    "show": "Print stored transcripts.",
    "tasks": "List tasks, or show questions of one.",
    "rescore": "Score stored debates again under other rules, without sampling.",
}
"""Every command, and the line that stands for it in the help."""


class Commands(click.Group):
    """Finds a command in the module of its name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            close = difflib.get_close_matches(name, COMMANDS, n=1)
            hint = f", did you mean {close[0]}?" if close else ""
            ctx.fail(f"no command is called {name!r}{hint}")
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


def _say(message: str) -> None:
    """One line on standard error, whatever the message holds."""
    line = " ".join(message.split())
    safe = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)
    click.echo(f"rostra: {safe}", err=True)


class _Notes(logging.Handler):
    """What the library has to say while it works, one line each."""

    def emit(self, record: logging.LogRecord) -> None:
        _say(record.getMessage())


def main() -> None:
    """Runs the command line: errors that are meant for people become one line and exit code 2."""
    # Debates in flight are many small objects that all live long; collecting less often halves
    # the time that is spent on looking at them.
    gc.set_threshold(50_000, 20, 50)
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character shows a question mark, and nothing breaks.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    notes = logging.getLogger("rostra")
    if not any(isinstance(handler, _Notes) for handler in notes.handlers):
        notes.addHandler(_Notes())
    try:
        rostra.main(prog_name="rostra", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "rostra"
        _say(f"{error.format_message()} (see `{command} --help`)")
        sys.exit(2)
    except click.ClickException as error:
        _say(error.format_message())
        sys.exit(error.exit_code)
    except RostraError as error:
        _say(str(error))
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        # What was about to begin when it came, or half begun, is dropped, and nobody need be told.
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        sys.unraisablehook = lambda _: None
        click.echo("rostra: interrupted", err=True)
        sys.exit(130)
