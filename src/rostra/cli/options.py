"""Options that several commands share."""

from typing import get_args

import click
from rich.console import Console

from rostra.debate.peer import Consensus, RewardName


def console(stderr: bool = False) -> Console:
    """The console on standard output or error. In a pipe, lines are as long as they are."""
    plain = Console(stderr=stderr)
    return plain if plain.is_terminal else Console(stderr=stderr, width=10_000, no_color=True)


reward = click.option(
    "--reward",
    type=click.Choice(get_args(RewardName)),
    help="How votes become rewards. Default: as the protocol says.",
)
consensus = click.option(
    "--consensus",
    type=click.Choice(get_args(Consensus)),
    help="Whom judges are measured against. Default: as the protocol says.",
)
