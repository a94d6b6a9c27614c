"""`rostra demo`: the main job on the embedded default, and what it learned."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from rostra.cli.options import console
from rostra.cli.running import carry_out
from rostra.runs.display import duration
from rostra.runs.folder import read_lines
from rostra.runs.recipe import find_recipe, read_recipe
from rostra.view.report import write_report

ROWS = (
    ("direct answers right, sampled", "eval/direct/sampled"),
    ("direct answers right, greedy", "eval/direct/greedy"),
    ("  where the first guess was wrong before", "eval/direct/greedy_mode_wrong"),
    ("votes for the right one of given answers", "eval/prepared/vote_truth_accuracy"),
    ("  of its own, where they still differ", "eval/debate/vote_truth_accuracy"),
    ("replies in the right form", "eval/direct/format"),
    ("one of 5 answers right (pass@5)", "eval/direct/pass@5"),
    ("most common of 5 right (vote@5)", "eval/direct/vote@5"),
)
"""What the table shows, and the metric it is."""


@click.command("demo", short_help="Train a tiny model by self-play and see it improve.")
@click.argument("settings", nargs=-1, metavar="[KEY=VALUE ...]")
@click.option("--folder", type=click.Path(path_type=Path), default=Path("runs/demo"))
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--fresh", is_flag=True, help="Make the warm start here too: some minutes more.")
def command(settings: tuple[str, ...], folder: Path, seed: int, fresh: bool) -> None:
    """Train a tiny model by self-play on this machine, with no label and no network.

    A transformer of 0.2 million weights that can add, debate, and make mistakes comes with Rostra;
    the recipes base-sums and warm-sums made it, and --fresh makes it again. It debates itself and
    learns from its peers' votes alone. Held-out questions are answered before and after. Settings
    of the recipe peer-v2-sums can be changed one by one.

    \b
    rostra demo
    rostra demo rewards.control=coin --folder runs/coin
    """
    began = time.monotonic()
    screen = console(stderr=True)
    start, play_folder = find_recipe("warm-sums").parent / "weights" / "sums", folder / "selfplay"
    if fresh:
        base, start = folder / "base", folder / "warm"
        for recipe_name, changed in (
            ("base-sums", [f"folder={base}"]),
            ("warm-sums", [f"folder={start}", f"model.start={base}", f"seed={seed}"]),
        ):
            made = read_recipe(find_recipe(recipe_name), changed)
            carry_out(made, screen, resume=False, overwrite=True)
    given = [f"folder={play_folder}", f"seed={seed}", f"model.start={start}", *settings]
    recipe = read_recipe(find_recipe("peer-v2-sums"), given)
    carry_out(recipe, screen, resume=False, overwrite=True)
    report = write_report(play_folder, recipe.title)
    out = console()
    evals = [line for line in read_lines(play_folder / "metrics.jsonl") if line["kind"] == "eval"]
    out.print()
    out.print(_table(evals[0], evals[-1]))
    out.print(
        f"\nHeld-out questions; the votes of its peers were the only reward. "
        f"{duration(time.monotonic() - began)} in all."
    )
    out.print(f"The report, with plots and debates: {report}", soft_wrap=True)
    out.print(f"Look closer: rostra show {play_folder}", soft_wrap=True)


def _table(before: Mapping[str, Any], after: Mapping[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("on held-out questions")
    for name in ("before", "after", "change"):
        table.add_column(name, justify="right")
    for label, key in ROWS:
        old, new = before.get(key), after.get(key)
        if old is None or new is None:
            table.add_row(label, "·", "·", "·")
            continue
        table.add_row(label, f"{old:.0%}", f"{new:.0%}", f"{100 * (new - old):+.0f} points")
    return table
