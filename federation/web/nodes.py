"""How jobs fared on one node and its devices, on its page."""

from dataclasses import dataclass
from uuid import UUID

from django.http import HttpRequest, HttpResponse

from federation.engine.failures.rates import Rate
from federation.queries.node_history import HistoryPage, node_history
from federation.queries.nodes import PERIOD, NodeSummary, Tally, node_summary
from foundation.pages import asked, show
from tenancy.queries import Actor
from tenancy.web import page

RUNS_A_PAGE = "25"
SMALL = 0.095
"""A smaller percentage has a decimal."""


@dataclass(frozen=True, slots=True)
class TallyLine:
    """A tally with its rate in words."""

    tally: Tally
    share: str
    range: str
    is_bad: bool


@dataclass(frozen=True, slots=True)
class NodePage:
    node: NodeSummary
    whole: TallyLine
    devices: tuple[TallyLine, ...]
    others: str
    history: HistoryPage
    device: str
    """The device whose runs are shown; empty for all."""
    device_name: str
    is_later: bool
    days: int = PERIOD.days


@page(takes=("cursor", "device"))
def node(request: HttpRequest, actor: Actor, cluster_id: UUID, node: str) -> HttpResponse:
    """A node's devices with their failures, and what ran on it."""
    given = asked(request)
    device = given.get("device", "")
    summary = node_summary(actor, cluster_id, node)
    query = {"limit": RUNS_A_PAGE, **({"cursor": given["cursor"]} if given.get("cursor") else {})}
    scope = f"node-page|{cluster_id}|{node}|{device}|{actor.user_id}"
    shown = NodePage(
        node=summary,
        whole=_line(summary.whole, summary.others),
        devices=tuple(_line(one, summary.others) for one in summary.devices),
        others=percent(summary.others.share),
        history=node_history(actor, cluster_id, node, query, scope, device),
        device=device,
        device_name=next((one.name for one in summary.devices if one.device == device), device),
        is_later=bool(given.get("cursor")),
    )
    return show(request, "federation/node.html", shown)


def _line(tally: Tally, others: Rate) -> TallyLine:
    rate = tally.rate
    reach = f"{percent(rate.low)} to {percent(rate.high)}" if rate.jobs else ""
    return TallyLine(tally, percent(rate.share), reach, rate.is_above(others))


def percent(share: float | None) -> str:
    """A share for people: `0.4 %`, `12 %`; a dash for none."""
    if share is None:
        return "–"
    return f"{share * 100:.0f} %" if share == 0 or share >= SMALL else f"{share * 100:.1f} %"
