"""Tables that fit: columns that have no room are left out whole, and named."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

GAP = 2


def print_table(
    screen: Console,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    needed: Sequence[str],
    elsewhere: str = "",
) -> None:
    """Prints the columns that are needed, and as many others as there is room for, the first ones
    first, in the order of `heads`. Says which have none, and where else they are."""
    widths = [max(len(head), *(len(row[i]) for row in rows)) + GAP for i, head in enumerate(heads)]
    shown = [i for i, head in enumerate(heads) if head in needed]
    room = screen.width + GAP - sum(widths[i] for i in shown)
    for i in range(len(heads)):
        if i not in shown and widths[i] <= room:
            shown.append(i)
            room -= widths[i]
    table = Table(box=None, pad_edge=False)
    for i in sorted(shown):
        table.add_column(heads[i], justify="left" if i == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(row[i] for i in sorted(shown)))
    screen.print(table)
    missing = [head for i, head in enumerate(heads) if i not in shown]
    if missing:
        where = f"; see {elsewhere}" if elsewhere else ""
        screen.print(Text(f"Left out for want of room: {', '.join(missing)}{where}."))
