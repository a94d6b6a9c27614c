"""Plots for the report: numbers by step in, inline SVG out.

The SVG holds no colours of its own but names of CSS variables, so that a plot follows its page from
light to dark, and the legend is HTML, so that it wraps and can be read aloud. Null is a gap.
"""

import html
import importlib
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rostra.errors import ConfigError

INSTALL = "pip install 'rostra[view]'"
COLOURS = 6
"""How many the style sheet names, as --c0, --c1, ...; then they come again, dashed."""
MOST_SERIES = 12
MOST_POINTS = 400
"""Longer curves are thinned: more would be megabytes that no screen can show."""
MOST_BARS = 120
LONG = 40
"""From so many points on a running mean is drawn over the single steps."""

_SIZE = (4.7, 3.3)
"""In inches of 72 units. A card is about as many pixels wide, so a font of 12 is read as 12."""
_INK, _GRID, _SERIES = "#0a0c00", "#0a0c01", "#0a0b{:02x}"
_RC = {
    "svg.hashsalt": "rostra",
    "svg.fonttype": "none",
    "font.size": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.labelsize": 12,
    "axes.labelpad": 7,
    "axes.formatter.useoffset": False,
    "grid.color": _GRID,
    "grid.linewidth": 0.8,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "text.parse_math": False,
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), _INK),
    "axes.edgecolor": _INK,
}

Array = NDArray[np.float64]
Look = Literal["line", "faint", "points", "bar"]


class Row(NamedTuple):
    """The numbers of one step; null and what is no finite number are None."""

    step: int
    """How many optimiser steps were done before."""
    values: Mapping[str, float | None]


class Series(NamedTuple):
    """One curve; not a number is a gap."""

    name: str
    x: Array
    y: Array
    look: Look = "line"
    low: Array | None = None
    high: Array | None = None


@dataclass(frozen=True, slots=True)
class Panel:
    """Curves that share an axis."""

    label: str
    series: Sequence[Series]
    percent: bool = False
    level: float | None = None
    """Where a thin line goes across, such as chance."""


@dataclass(frozen=True, slots=True)
class Plot:
    """What is to be drawn, and how to read it."""

    title: str
    caption: str
    panels: Sequence[Panel]
    across: str = "optimiser steps done"
    """What goes from left to right."""
    marks: Sequence[float] = ()
    """Where thin lines go down, such as beginnings of stages."""


class Key(NamedTuple):
    """An entry of a legend."""

    name: str
    colour: int
    dashed: bool
    look: Look


class Card(NamedTuple):
    """A plot that was drawn."""

    title: str
    caption: str
    legend: Sequence[Key]
    svg: str


def curve(rows: Iterable[Row], key: str, name: str, look: Look = "line") -> Series:
    """A metric over steps. A step that does not have it is passed over; one where it is null is a
    gap. `key/low` and `key/high` are its interval."""
    having = [row for row in rows if key in row.values]
    x = np.array([row.step for row in having], np.float64)
    y, low, high = (_column(having, k) for k in (key, f"{key}/low", f"{key}/high"))
    known = bool(np.isfinite(low).any() and np.isfinite(high).any())
    return Series(name, x, y, look, *((low, high) if known else (None, None)))


def _column(rows: Sequence[Row], key: str) -> Array:
    # An array of None and float becomes one of not-a-number and float.
    return np.array([row.values.get(key) for row in rows], np.float64)


def need(module: str = "matplotlib") -> Any:
    """A module of matplotlib, or one sentence that says how to get it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "matplotlib":
            raise
        raise ConfigError(f"a report needs the package matplotlib: {INSTALL}") from None


def draw(plot: Plot, name: str) -> Card | None:
    """The card of a plot, or None where it has no data. `name` keeps its ids apart from others."""
    panels = [
        (panel, shown)
        for panel in plot.panels
        if (shown := [s for s in panel.series if np.isfinite(s.y).any()][:MOST_SERIES])
    ]
    if not panels:
        return None
    keys: dict[str, Key] = {}
    for _, shown in panels:
        for s in shown:
            place = len(keys)
            keys.setdefault(s.name, Key(s.name, place % COLOURS, place >= COLOURS, s.look))
    left_out = sum(len(p.series) > MOST_SERIES for p in plot.panels)
    caption = plot.caption + (f" Only the first {MOST_SERIES} are drawn." if left_out else "")
    return Card(plot.title, caption, tuple(keys.values()), _svg(plot, panels, keys, name))


def _svg(
    plot: Plot, panels: Sequence[tuple[Panel, list[Series]]], keys: Mapping[str, Key], name: str
) -> str:
    matplotlib, figures, ticks = map(need, ("matplotlib", "matplotlib.figure", "matplotlib.ticker"))
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # a page must not depend on whose machine wrote it
        matplotlib.rcParams.update(_RC)
        figure = figures.Figure(figsize=_SIZE, layout="constrained")
        figure.patch.set_visible(False)
        axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        for ax, (panel, shown) in zip(axes, panels, strict=True):
            _panel(ax, panel, shown, keys)
            for mark in plot.marks:
                ax.axvline(mark, color=_INK, linewidth=0.9, alpha=0.4)
            ax.yaxis.set_major_locator(ticks.MaxNLocator(5 if len(panels) == 1 else 4))
            if panel.percent:
                ax.yaxis.set_major_formatter(ticks.PercentFormatter(1.0))
        axes[-1].xaxis.set_major_locator(ticks.MaxNLocator(6, integer=True))
        axes[-1].set_xlabel(plot.across)
        first, last = axes[-1].get_xlim()
        if last - first < 1:  # a single step
            axes[-1].set_xlim((first + last) / 2 - 0.6, (first + last) / 2 + 0.6)
        figure.align_ylabels()
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    return _inline(out.getvalue(), plot.title, name)


def _panel(ax: Any, panel: Panel, shown: Sequence[Series], keys: Mapping[str, Key]) -> None:
    ax.patch.set_visible(False)
    ax.set_ylabel(panel.label)
    if panel.level is not None:
        ax.axhline(panel.level, color=_INK, linewidth=0.9, linestyle=(0, (2, 3)), alpha=0.7)
    base: Array | None = None
    for series in shown:
        key = keys[series.name]
        if series.look == "bar":
            base = _bars(ax, _thinned(series, MOST_BARS), key, base)
        else:
            _line(ax, _thinned(series, MOST_POINTS), key)
    if panel.percent:
        tops = [np.nanmax(s.y if s.high is None else np.fmax(s.y, s.high)) for s in shown]
        top = max(0.05, 1.12 * max(*tops, panel.level or 0.0, 0.0))
        top = 1.03 if 0.6 < top < 1.2 else top
        floor = min(float(np.nanmin(s.y)) for s in shown)
        ax.set_ylim(min(-0.03 * top, 1.1 * floor), top)
    elif not any(np.nan_to_num(s.y).any() for s in shown):
        ax.set_ylim(-0.1, 1)  # nothing but zeros, which would be stretched to noise


def _line(ax: Any, series: Series, key: Key) -> None:
    colour, x, y = _SERIES.format(key.colour), series.x, series.y
    dash: Any = (0, (4, 2)) if key.dashed else "-"
    alone = _alone(y)
    if series.low is not None and series.high is not None:
        ax.fill_between(x, series.low, series.high, color=colour, alpha=0.16, linewidth=0)
        ax.vlines(x[alone], series.low[alone], series.high[alone], color=colour, alpha=0.5)
    faint = series.look == "faint"
    if series.look != "points" and len(y) >= LONG:
        ax.plot(x, y, color=colour, linewidth=0.7, alpha=0.15 if faint else 0.25)
        y = _running_mean(y)
    ax.plot(x, y, color=colour, linewidth=1.2 if faint else 1.8, alpha=0.6 if faint else 1, ls=dash)
    dotted = np.isfinite(y) if series.look == "points" and len(y) <= LONG else alone
    ax.plot(x[dotted], y[dotted], color=colour, marker="o", markersize=4, linestyle="none")


def _bars(ax: Any, series: Series, key: Key, base: Array | None) -> Array:
    """Bars on top of others; what the next ones stand on."""
    width = 0.85 * (float(np.min(np.diff(series.x))) if len(series.x) > 1 else 1.0)
    ax.bar(series.x, series.y, width, bottom=base, color=_SERIES.format(key.colour), linewidth=0)
    return series.y if base is None else base + series.y


def _alone(y: Array) -> NDArray[np.bool_]:
    """Points between gaps, which a line would not show."""
    there = np.zeros(len(y) + 2, np.bool_)
    there[1:-1] = np.isfinite(y)
    alone: NDArray[np.bool_] = there[1:-1] & ~there[:-2] & ~there[2:]
    return alone


def _running_mean(y: Array) -> Array:
    """The mean over a twentieth of the curve around each point; a gap stays a gap."""
    window = np.ones(len(y) // 20 | 1)
    there = np.isfinite(y)
    total = np.convolve(np.where(there, y, 0.0), window, "same")
    count = np.convolve(there.astype(np.float64), window, "same")
    return np.where(there, total / np.maximum(count, 1), np.nan)


def _thinned(series: Series, most: int) -> Series:
    """Means over blocks of steps, where there are more steps than can be seen."""
    block = -(-len(series.x) // most)
    if block <= 1:
        return series

    def means(values: Array | None) -> Array | None:
        if values is None:
            return None
        rows = np.append(values, np.full(-len(values) % block, np.nan)).reshape(-1, block)
        there = np.isfinite(rows)
        total, count = np.where(there, rows, 0.0).sum(1), there.sum(1)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)

    x, y, low, high = map(means, (series.x, series.y, series.low, series.high))
    assert x is not None and y is not None
    return Series(series.name, x, y, series.look, low, high)


def _inline(svg: str, title: str, name: str) -> str:
    """Fit for an HTML page: no prolog or namespaces, ids of its own, the page's colours."""
    body = svg[svg.index("<svg") :]
    # A style inside would hold for the whole page; report.css says the same of plots only.
    body = re.sub(r"<(metadata|style)\b.*?</\1>", "", body, flags=re.DOTALL)
    width, height = (round(72 * inches, 1) for inches in _SIZE)
    opening = (
        f'<svg class="plot" role="img" aria-labelledby="{name}-title" '
        f'viewBox="0 0 {width} {height}"><title id="{name}-title">{html.escape(title)}</title>'
    )
    body = body[body.index(">") + 1 :].replace(' id="', f' id="{name}-')
    body = body.replace('xlink:href="#', f'href="#{name}-').replace("url(#", f"url(#{name}-")
    body = re.sub(r"#0a0b([0-9a-f]{2})", lambda c: f"var(--c{int(c[1], 16)})", body)
    body = body.replace(_INK, "var(--soft)").replace(_GRID, "var(--rule)")
    return opening + re.sub(r"\n\s*", "\n", body).strip()
