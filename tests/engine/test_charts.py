"""Where a chart of 720 by 250 has its lines, bars and marks: the plot is 644 wide from 64 and 204 high above 216."""

import re

import pytest

from simulator.charts import bars, distribution, lines


def whole(value):
    return f"{value:g}"


def points(svg):
    return [
        [tuple(map(float, point.split(","))) for point in path.split()] for path in re.findall(r'points="([^"]*)"', svg)
    ]


def marks(svg):
    """(anchor, x, y, text) of each mark, those of the vertical axis first."""
    found = re.findall(r'<text class="tick" text-anchor="(\w+)" x="([\d.]+)" y="([\d.]+)">([^<]*)</text>', svg)
    return [(anchor, float(x), float(y), text) for anchor, x, y, text in found]


def test_a_line_runs_from_corner_to_corner_and_its_axes_say_what_it_means():
    svg = lines("Jobs & waits", {"a": [(0, 0), (50, 4), (100, 2)], "b": []}, whole, whole)
    assert points(svg) == [[(64, 216), (386, 12), (708, 114)], []]
    assert re.findall(r'class="line (c\d)"', svg) == ["c0", "c1"]
    assert marks(svg) == [
        ("end", 56, 220, "0"),
        ("end", 56, 169, "1"),
        ("end", 56, 118, "2"),
        ("end", 56, 67, "3"),
        ("end", 56, 16, "4"),
        ("middle", 64, 236, "0"),
        ("middle", 192.8, 236, "20"),
        ("middle", 321.6, 236, "40"),
        ("middle", 450.4, 236, "60"),
        ("middle", 579.2, 236, "80"),
        ("end", 708, 236, "100"),
    ]
    assert re.findall(r'<line class="grid" x1="64" x2="708" y1="([\d.]+)" y2="([\d.]+)"/>', svg) == [
        (y, y) for y in ("216.0", "165.0", "114.0", "63.0", "12.0")
    ]
    assert svg.startswith(
        '<svg viewBox="0 0 720 250" role="img" aria-label="Jobs &amp; waits"><title>Jobs &amp; waits<'
    )


def test_a_given_scale_cuts_what_is_above_it():
    assert points(lines("t", {"a": [(0, 1), (10, 3)]}, whole, whole, 2.0)) == [[(64, 114), (708, 12)]]


@pytest.mark.parametrize("series", [{}, {"a": []}, {"a": [(0, 0)]}])
def test_a_chart_of_nothing_has_a_scale_up_to_one(series):
    svg = lines("t", series, whole, whole)
    assert [text for *_, text in marks(svg)] == [
        *("0", "0.25", "0.5", "0.75", "1"),
        *("0", "0.2", "0.4", "0.6", "0.8", "1"),
    ]
    assert [text for *_, text in marks(distribution("t", {"a": []}, whole))][5:] == ["1", "10"]


def test_a_distribution_rises_to_one_on_a_scale_of_decades():
    svg = distribution("t", {"a": [100, 0, 10, 10]}, whole)
    assert points(svg) == [[(64, 165), (386, 114), (386, 63), (708, 12)]]
    assert [(x, text) for _, x, _, text in marks(svg)[5:]] == [(64, "1"), (386, "10"), (708, "100")]
    assert [text for *_, text in marks(svg)[:5]] == ["0 %", "25 %", "50 %", "75 %", "100 %"]
    assert [x for _, x, _, _ in marks(distribution("t", {"a": [101]}, whole))[5:]] == [64, 278.7, 493.3, 708]


def test_a_distribution_of_many_values_is_drawn_with_at_most_201_points():
    (path,) = points(distribution("t", {"a": range(1, 1001)}, whole))
    assert len(path) == 201
    assert (path[0], path[-1]) == ((64, 215.8), (708, 12))


def test_bars_stand_in_a_group_for_each_name():
    svg = bars("t", ["east", "west of the river"], {"a": [4, 1], "b<": [2, 0]}, whole)
    found = re.findall(
        r'<rect class="bar (c\d)" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"><title>([^<]*)<', svg
    )
    assert found == [
        ("c0", "96.2", "12.0", "127.8", "204.0", "a, east: 4"),
        ("c1", "225.0", "114.0", "127.8", "102.0", "b&lt;, east: 2"),
        ("c0", "418.2", "165.0", "127.8", "51.0", "a, west of the river: 1"),
        ("c1", "547.0", "216.0", "127.8", "0.0", "b&lt;, west of the river: 0"),
    ]
    assert marks(svg)[5:] == [("middle", 225, 236, "east"), ("middle", 547, 236, "west of the ")]


def test_more_names_than_there_is_room_for_are_not_written():
    names = [f"c{number}" for number in range(25)]
    assert len(marks(bars("t", names[:24], {"a": [1.0] * 24}, whole))) == 5 + 24
    assert len(marks(bars("t", names, {"a": [1.0] * 25}, whole))) == 5


def test_bars_that_are_too_many_to_stand_apart_are_still_seen():
    names = [f"c{number}" for number in range(1000)]
    svg = bars("t", names, {"a": [1.0] * 1000, "b": [0.0] * 1000}, whole)
    assert set(re.findall(r'width="([\d.]+)" height', svg)) == {"0.5"}
    assert re.findall(r'<rect class="bar c1" x="([\d.]+)"', svg)[0] == "65.1"
    assert "<rect" not in bars("t", [], {}, whole)
