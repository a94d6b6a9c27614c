"""`rostra train`: carry out a recipe."""

from pathlib import Path

import click

from rostra.cli.options import console
from rostra.cli.running import carry_out
from rostra.errors import ConfigError
from rostra.runs.advice import warnings
from rostra.runs.recipe import find_recipe, read_recipe
from rostra.view.report import write_report


@click.command("train", short_help="Train a model by a recipe.")
@click.argument("recipe")
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE ...]")
@click.option("--resume", is_flag=True, help="Go on with a run that was stopped or killed.")
@click.option("--overwrite", is_flag=True, help="Replace a run that is there already.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Show settings, plan and cost; run nothing.",
)
def command(
    recipe: str, settings: tuple[str, ...], resume: bool, overwrite: bool, dry_run: bool
) -> None:
    """Train by RECIPE: a TOML file, the name of one that Rostra ships, or a run to go on with.

    Settings can be changed one by one; a name that only one table has needs no table.

    \b
    rostra train peer-v2-sums
    rostra train peer-v2-sums steps=10 rewards.control=coin folder=runs/coin
    rostra train runs/coin --resume
    rostra train peer-v2-sums --dry-run
    """
    if resume and overwrite:
        raise ConfigError("--resume goes on with a run and --overwrite replaces it: choose one")
    found = find_recipe(recipe)
    # A run directory is where it is now, wherever it was when it began.
    here = [f"folder={found.parent}"] if Path(recipe).is_dir() else []
    chosen = read_recipe(found, [*here, *settings])
    for warning in warnings(chosen):
        click.echo(f"warning: {warning}", err=True)
    if dry_run:
        from rostra.cli.plan import show_plan

        show_plan(chosen, console())
        return
    carry_out(chosen, console(stderr=True), resume=resume, overwrite=overwrite)
    report = write_report(Path(chosen.folder), chosen.title)
    click.echo(f"Done: {chosen.folder}. Look at {report}")
