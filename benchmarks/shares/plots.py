"""The replays as one self-contained page: share error over time, waits by tenant, and the distribution of waits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from simulator.charts import bars, distribution, lines
from simulator.exports import duration
from simulator.figures import Figures
from simulator.report import STYLE

from .watching import Watched

MORE = """
:root { --c4: light-dark(#a11d48, #ff8fae); --c5: light-dark(#4d5b1c, #bccf77); }
.line.c4 { stroke: var(--c4); stroke-dasharray: 1 2; } .line.c5 { stroke: var(--c5); stroke-dasharray: 12 2; }
.bar.c4 { fill: var(--c4); } .bar.c5 { fill: var(--c5); }
"""


@dataclass(frozen=True, slots=True)
class Played:
    """One replay: its figures, its shares, and the number of runs stopped so that quota was taken back."""

    name: str
    figures: Figures
    watched: Watched
    stopped: int


def html_page(pages: Mapping[str, Sequence[Played]], jobs: int) -> bytes:
    """The page, a part for each kind of estimates."""
    parts = [f"<h1>Shares in a replay of {jobs:,} jobs</h1>"]
    for how, played in pages.items():
        parts.append(f"<h2>Estimates: {escape(how)}</h2>")
        for title, chart in _charts(played).items():
            parts.append(f"<section><h2>{escape(title)}</h2>{_key(played)}{chart}</section>")
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Shares</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}{MORE}</style></head><body><main>"
    )
    return (head + "".join(parts) + "</main></body></html>\n").encode()


def _charts(played: Sequence[Played]) -> dict[str, str]:
    errors = {one.name: one.watched.curve() for one in played}
    waits = {one.name: [line.wait for line in one.figures.lines if line.wait is not None] for one in played}
    tenants = sorted({line.job.tenant for one in played for line in one.figures.lines})
    longest = {one.name: [_longest(one, tenant) for tenant in tenants] for one in played}
    return {
        "Share error over time": lines("Share error over time", errors, duration, lambda part: f"{100 * part:.0f} %"),
        "Waits: part of the jobs that waited at most this long": distribution("Waits", waits, duration),
        "Longest wait by tenant": bars("Longest wait by tenant", tenants, longest, duration),
    }


def _longest(one: Played, tenant: str) -> float:
    return max((line.wait or 0.0 for line in one.figures.lines if line.job.tenant == tenant), default=0.0)


def _key(played: Sequence[Played]) -> str:
    items = (
        f'<li><svg viewBox="0 0 32 12" aria-hidden="true"><line class="line c{number}" x1="0" x2="32" y1="6" y2="6"/></svg>'
        f"{escape(one.name)}</li>"
        for number, one in enumerate(played)
    )
    return f'<ul class="key">{"".join(items)}</ul>'
