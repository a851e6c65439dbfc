"""A replay as one self-contained HTML page: figures, curves over time, waits, and cost by cluster."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from .charts import bars, distribution, lines
from .exports import ROWS, duration, share
from .figures import Figures

STYLE = """
:root { color-scheme: light dark; --ink: light-dark(#1d2433, #e6e9f0); --muted: light-dark(#5a6478, #9aa4b8);
  --page: light-dark(#f6f7f9, #12151c); --card: light-dark(#ffffff, #1a1e28); --rule: light-dark(#dde1e8, #2f3644);
  --c0: light-dark(#1f5fbf, #7fb2ff); --c1: light-dark(#b4530a, #f5a561); --c2: light-dark(#0f766e, #5fd0c2);
  --c3: light-dark(#8a3ab0, #d29bf0); }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 2rem 1.25rem 3rem; background: var(--page); color: var(--ink);
  font: 0.9375rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 0.25rem; } h2 { font-size: 1rem; margin: 0 0 0.5rem; }
p { margin: 0 0 1rem; color: var(--muted); overflow-wrap: anywhere; }
section { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 1rem 1.125rem; margin: 1rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 0.3rem 0.75rem 0.3rem 0; border-bottom: 1px solid var(--rule); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } thead th { color: var(--muted); font-weight: 600; }
tbody th { font-weight: 400; }
svg { width: 100%; height: auto; display: block; }
.grid { stroke: var(--rule); stroke-width: 1; } .tick { fill: var(--muted); font-size: 11px; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.line.c0 { stroke: var(--c0); } .line.c1 { stroke: var(--c1); stroke-dasharray: 7 3; }
.line.c2 { stroke: var(--c2); stroke-dasharray: 2 3; } .line.c3 { stroke: var(--c3); stroke-dasharray: 10 3 2 3; }
.bar.c0 { fill: var(--c0); } .bar.c1 { fill: var(--c1); } .bar.c2 { fill: var(--c2); } .bar.c3 { fill: var(--c3); }
.key { display: flex; flex-wrap: wrap; gap: 0.25rem 1.25rem; margin: 0 0 0.75rem; padding: 0; list-style: none; }
.key svg { width: 2rem; height: 0.75rem; display: inline-block; vertical-align: middle; margin-right: 0.4rem; }
"""


def html_page(replays: Sequence[Figures], conditions: Mapping[str, Any]) -> bytes:
    """The page; equal input gives equal bytes."""
    told = " · ".join(f"{name.replace('_', ' ')} {value}" for name, value in conditions.items())
    gpus = replays[0].gpus if replays else 0
    parts = [
        f"<h1>Replay on {gpus:,} GPUs</h1><p>{escape(told)}</p>",
        f'<section class="wide"><h2>Figures</h2>{_table(replays)}</section>',
        _section("GPUs allocated over time", _key(replays), _allocated(replays, gpus)),
        _section("Jobs waiting over time", _key(replays), _queued(replays)),
        _section("Waits: share of the jobs that waited at most this long", _key(replays), _waits(replays)),
        _section("Cost by cluster", _key(replays), _costs(replays)),
    ]
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Replay</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body><main>"
    )
    return (head + "".join(parts) + "</main></body></html>\n").encode()


def _section(title: str, *parts: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{''.join(parts)}</section>"


def _key(replays: Sequence[Figures]) -> str:
    items = (
        f'<li><svg viewBox="0 0 32 12" aria-hidden="true"><line class="line c{number}" x1="0" x2="32" y1="6" y2="6"/></svg>'
        f"{escape(one.gateway)}</li>"
        for number, one in enumerate(replays)
    )
    return f'<ul class="key">{"".join(items)}</ul>'


def _table(replays: Sequence[Figures]) -> str:
    head = "".join(f'<th scope="col">{escape(one.gateway)}</th>' for one in replays)
    rows = "".join(
        f'<tr><th scope="row">{escape(title)}</th>{"".join(f"<td>{escape(tell(one))}</td>" for one in replays)}</tr>'
        for title, tell in ROWS
    )
    return f'<table><thead><tr><th scope="col">Figure</th>{head}</tr></thead><tbody>{rows}</tbody></table>'


def _allocated(replays: Sequence[Figures], gpus: int) -> str:
    series = {one.gateway: [(end, allocated / max(1, gpus)) for end, allocated, _ in one.curve] for one in replays}
    return lines("GPUs allocated over time", series, duration, lambda part: f"{100 * part:.0f} %", 1.0)


def _queued(replays: Sequence[Figures]) -> str:
    series = {one.gateway: [(end, queued) for end, _, queued in one.curve] for one in replays}
    return lines("Jobs waiting over time", series, duration, lambda jobs: f"{jobs:,.0f}")


def _waits(replays: Sequence[Figures]) -> str:
    series = {one.gateway: [line.wait for line in one.lines if line.wait is not None] for one in replays}
    return distribution("Waits", series, duration)


def _costs(replays: Sequence[Figures]) -> str:
    names = [cluster.name for cluster in replays[0].clusters] if replays else []
    series = {one.gateway: [float(cluster.cost) for cluster in one.clusters] for one in replays}
    shares = "".join(
        f"<tr><th scope='row'>{escape(name)}</th>"
        + "".join(
            f"<td>{one.clusters[n].cost:,.2f}</td><td>{share(one.clusters[n].allocation)}</td>" for one in replays
        )
        + "</tr>"
        for n, name in enumerate(names)
    )
    head = "".join(f'<th scope="col">{escape(one.gateway)}</th><th scope="col">allocated</th>' for one in replays)
    table = f'<div class="wide"><table><thead><tr><th scope="col">Cluster</th>{head}</tr></thead><tbody>{shares}</tbody></table></div>'
    return bars("Cost by cluster", names, series, lambda cost: f"{cost:,.0f}") + table
