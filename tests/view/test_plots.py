"""Plots: gaps, thinning, and SVG that fits into a page."""

import re
import sys

import numpy as np
import pytest

from rostra.errors import ConfigError
from rostra.view.plots import MOST_SERIES, Card, Panel, Plot, Row, Series, curve, draw

pytest.importorskip("matplotlib")

PATH = re.compile(r'<path d="([^"]*)"[^>]*stroke: var\(--c0\)')


def rows(*values: float | None, key: str = "m") -> list[Row]:
    return [Row(step, {key: value}) for step, value in enumerate(values)]


def drawn(*series: Series, percent: bool = False, name: str = "p") -> Card:
    card = draw(Plot("Title", "Caption.", [Panel("axis", series, percent)]), name)
    assert card
    return card


def test_null_is_a_gap_and_not_a_zero() -> None:
    series = curve(rows(0.5, None, 0.7, 0.6), "m", "it")
    assert np.isnan(series.y[1])
    (path,) = PATH.findall(drawn(series).svg)
    assert path.count("M") == 2, "the line is lifted at the gap"


def test_a_step_without_the_metric_is_passed_over() -> None:
    series = curve([Row(0, {"m": 1.0}), Row(1, {}), Row(2, {"m": 2.0})], "m", "it")
    assert series.x.tolist() == [0, 2]
    (path,) = PATH.findall(drawn(series).svg)
    assert path.count("M") == 1


def test_a_point_between_gaps_is_a_dot() -> None:
    between = drawn(curve(rows(None, 0.5, None), "m", "it")).svg
    assert not [path for path in PATH.findall(between) if "L" in path]
    assert re.search(r"<use [^>]*var\(--c0\)", between)


def test_a_plot_without_numbers_is_no_card() -> None:
    assert draw(Plot("T", "C", [Panel("axis", [curve(rows(None, None), "m", "it")])]), "p") is None
    assert draw(Plot("T", "C", [Panel("axis", [curve([], "m", "it")])]), "p") is None
    assert draw(Plot("T", "C", []), "p") is None


def test_an_interval_is_a_band() -> None:
    having = [Row(i, {"m": 0.5, "m/low": 0.4, "m/high": 0.6}) for i in range(3)]
    assert "fill-opacity: 0.16" in drawn(curve(having, "m", "it", "points"), percent=True).svg
    assert "fill-opacity: 0.16" not in drawn(curve(rows(0.5, 0.5), "m", "it")).svg


def test_a_long_curve_is_thinned_and_smoothed_and_keeps_its_gap() -> None:
    values: list[float | None] = [float(i % 7) for i in range(20_000)]
    values[5_000:6_000] = [None] * 1_000
    svg = drawn(curve(rows(*values), "m", "it")).svg
    paths = PATH.findall(svg)
    assert len(paths) == 2, "the single steps and their mean"
    assert all(path.count("M") == 2 for path in paths)
    assert len(svg) < 100_000


def test_the_svg_has_a_title_ids_of_its_own_and_no_address() -> None:
    svg = drawn(curve(rows(1.0, 2.0), "m", "it"), name="seven").svg
    assert svg.startswith("<svg") and "<title id=" in svg
    assert "://" not in svg and "<metadata" not in svg and "xlink" not in svg
    ids = re.findall(r'\bid="([^"]+)"', svg)
    assert ids and all(i.startswith("seven-") for i in ids)
    used = re.findall(r'(?:href="#|url\(#)([^")]+)', svg)
    assert used and set(used) <= set(ids)


def test_colours_are_those_of_the_page() -> None:
    svg = drawn(*(curve(rows(1.0, i), "m", f"s{i}") for i in range(3))).svg
    assert {"var(--c0)", "var(--c1)", "var(--c2)", "var(--soft)", "var(--rule)"} <= set(
        re.findall(r"var\(--\w+\)", svg)
    )
    assert not re.search(r"(?:fill|stroke): #", svg)


def test_more_series_than_colours_are_dashed_and_too_many_are_left_out_aloud() -> None:
    card = drawn(*(curve(rows(1.0, i), "m", f"s{i}") for i in range(40)))
    assert len(card.legend) == MOST_SERIES
    assert [key.dashed for key in card.legend] == [False] * 6 + [True] * 6
    assert f"first {MOST_SERIES}" in card.caption


@pytest.mark.parametrize("value", [0.0, -3.0, 1e-300, 1e30, -1e30, 5.0])
@pytest.mark.parametrize("percent", [True, False])
def test_any_number_can_be_drawn(value: float, percent: bool) -> None:
    assert drawn(curve(rows(value), "m", "it"), percent=percent).svg
    assert drawn(curve(rows(value, 0.5, value), "m", "it"), percent=percent).svg


def test_bars_stand_on_each_other_even_at_one_step() -> None:
    assert drawn(curve(rows(2.0), "m", "a", "bar"), curve(rows(1.0), "m", "b", "bar")).svg
    gap = drawn(curve(rows(2.0, None), "m", "a", "bar"), curve(rows(1.0, 1.0), "m", "b", "bar"))
    assert [key.look for key in gap.legend] == ["bar", "bar"]


def test_drawing_changes_nothing_for_others_and_twice_gives_the_same() -> None:
    import matplotlib

    before = matplotlib.rcParams.copy()
    with matplotlib.rc_context({"font.size": 30, "lines.linewidth": 9}):
        one = drawn(curve(rows(1.0, 2.0), "m", "it")).svg
    assert one == drawn(curve(rows(1.0, 2.0), "m", "it")).svg
    assert matplotlib.rcParams.copy() == before


def test_without_matplotlib_the_install_line_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=re.escape("pip install 'rostra[view]'")):
        drawn(curve(rows(1.0), "m", "it"))
