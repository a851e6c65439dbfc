"""Charts as inline SVG: lines, cumulative distributions and grouped bars. Colours come from the page (`report`)."""

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import TypeAlias

Points: TypeAlias = Sequence[tuple[float, float]]
Tell: TypeAlias = Callable[[float], str]

WIDTH, HEIGHT = 720, 250
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 34
TICKS = 5


def lines(title: str, series: Mapping[str, Points], tell_x: Tell, tell_y: Tell, most: float | None = None) -> str:
    """One line per name; `most` is the top of the scale, else the largest value."""
    points = [point for one in series.values() for point in one]
    right = max((x for x, _ in points), default=1.0) or 1.0
    top = most or max((y for _, y in points), default=1.0) or 1.0
    body = _frame([(right * n / TICKS, n / TICKS) for n in range(TICKS + 1)], top, tell_x, tell_y)
    for number, one in enumerate(series.values()):
        path = " ".join(f"{_x(x / right):.1f},{_y(min(1.0, y / top)):.1f}" for x, y in one)
        body += f'<polyline class="line c{number}" points="{path}"/>'
    return _svg(title, body)


def distribution(title: str, series: Mapping[str, Sequence[float]], tell: Tell) -> str:
    """The cumulative distribution of the values, on a logarithmic scale that begins at 1."""
    largest = max((value for values in series.values() for value in values), default=1.0)
    decades = max(1, math.ceil(math.log10(max(10.0, largest))))
    marks = [(10.0**n, n / decades) for n in range(decades + 1)]
    body = _frame(marks, 1.0, tell, lambda part: f"{100 * part:.0f} %")
    for number, values in enumerate(series.values()):
        ordered = sorted(values)
        steps = sorted({round(n * (len(ordered) - 1) / 200) for n in range(201)}) if ordered else []
        at = [(math.log10(max(1.0, ordered[step])) / decades, (step + 1) / len(ordered)) for step in steps]
        path = " ".join(f"{_x(x):.1f},{_y(y):.1f}" for x, y in at)
        body += f'<polyline class="line c{number}" points="{path}"/>'
    return _svg(title, body)


def bars(title: str, names: Sequence[str], series: Mapping[str, Sequence[float]], tell: Tell) -> str:
    """A group of bars per name, one bar per series."""
    top = max((value for values in series.values() for value in values), default=1.0) or 1.0
    width = (WIDTH - LEFT - RIGHT) / max(1, len(names))
    bar = max(1.0, width * 0.8 / max(1, len(series)))
    body = _frame([], top, tell, tell)
    for place, name in enumerate(names):
        start = LEFT + place * width + width * 0.1
        for number, (who, values) in enumerate(series.items()):
            height = (HEIGHT - TOP - BOTTOM) * values[place] / top
            told = escape(f"{who}, {name}: {tell(values[place])}")
            body += (
                f'<rect class="bar c{number}" x="{start + number * bar:.1f}" y="{HEIGHT - BOTTOM - height:.1f}" '
                f'width="{max(0.5, bar - 1):.1f}" height="{height:.1f}"><title>{told}</title></rect>'
            )
        if len(names) <= 24:  # noqa: PLR2004 - more names would run into each other
            body += f'<text class="tick" text-anchor="middle" x="{start + width * 0.4:.1f}" y="{HEIGHT - 14}">{escape(name[:12])}</text>'
    return _svg(title, body)


def _x(part: float) -> float:
    return LEFT + part * (WIDTH - LEFT - RIGHT)


def _y(part: float) -> float:
    return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)


def _frame(marks: Sequence[tuple[float, float]], top: float, tell_x: Tell, tell_y: Tell) -> str:
    """Grid and ticks; `marks` are (value, place) on the horizontal axis."""
    body = ""
    for n in range(TICKS):
        part = n / (TICKS - 1)
        body += f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{_y(part):.1f}" y2="{_y(part):.1f}"/>'
        body += f'<text class="tick" text-anchor="end" x="{LEFT - 8}" y="{_y(part) + 4:.1f}">{escape(tell_y(top * part))}</text>'
    for value, place in marks:
        anchor = "end" if place == 1 else "middle"
        body += f'<text class="tick" text-anchor="{anchor}" x="{_x(place):.1f}" y="{HEIGHT - 14}">{escape(tell_x(value))}</text>'
    return body


def _svg(title: str, body: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title, quote=True)}">'
        f"<title>{escape(title)}</title>{body}</svg>"
    )
