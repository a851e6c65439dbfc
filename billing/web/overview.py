"""The page of a month's cost: from jobs to the total as a waterfall, who bears it as a tree map, and the weeks before."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from django.db.models import Q
from django.http import HttpRequest, HttpResponse, QueryDict

from billing.engine.ledger import SCALE
from billing.engine.months import midnight, next_month
from billing.engine.shares import shown_parts
from billing.engine.treemap import Box, treemap
from billing.queries import usage_report
from billing.queries.sharing_report import SharingReport, TenantShare
from foundation.clock import database_now
from foundation.pages import Form, show
from tenancy.queries import Actor, visible_tenants
from tenancy.web import page

from .idle import asked_month
from .usage import PLACES, months_offered
from .waterfall import Waterfall, waterfall_of

WEEKS = 13
TINTS = 6
NAMED_WIDTH, NAMED_HEIGHT = 9.0, 9.0
"""In per cent of the picture: a smaller box has no name in it."""
FRAME = Box(0, 0, 100, 100)
ASPECT = 2.5
"""The picture's width as a multiple of its height, on a wide screen."""


@dataclass(frozen=True, slots=True)
class TreeBox:
    """A tenant's part of what tenants bear, in per cent of the picture; `tint` is that of its department."""

    tenant: str
    name: str
    """Its path below the organisation."""
    amount: Decimal
    share: Decimal
    x: str
    y: str
    width: str
    height: str
    tint: int
    is_named: bool
    query: str


@dataclass(frozen=True, slots=True)
class Tree:
    """What tenants bear in one currency, the largest first; `left_out` are those who bear nothing or get something back."""

    currency: str
    boxes: tuple[TreeBox, ...]
    total: Decimal
    left_out: int


@dataclass(frozen=True, slots=True)
class Week:
    """From Monday, in UTC. `height` and `y` are per cent of the picture."""

    monday: date
    amount: Decimal
    x: str
    y: str
    height: str
    is_complete: bool


@dataclass(frozen=True, slots=True)
class Trend:
    currency: str
    weeks: tuple[Week, ...]
    width: str
    highest: Decimal
    csv_query: str


@dataclass(frozen=True, slots=True)
class OverviewPage:
    organisation: str
    report: SharingReport | None
    waterfalls: tuple[Waterfall, ...]
    trees: tuple[Tree, ...]
    trends: tuple[Trend, ...]
    form: Form
    organisations: Sequence[tuple[str, str]]
    months: Sequence[tuple[str, str]]
    csv_query: str


@page(takes=("organisation", "month"))
def overview(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The month of an organisation; by default of the first one, and the current month."""
    asked = asked_month(request, actor)
    path, month, report = asked.organisation, asked.month, asked.report
    today = database_now().astimezone(UTC).date()
    shown = OverviewPage(
        organisation=path,
        report=report,
        waterfalls=tuple(map(waterfall_of, report.bridges)) if report else (),
        trees=tuple(_trees(report, month)) if report else (),
        trends=tuple(_trends(actor, path, min(next_month(month) - timedelta(days=1), today), today)) if report else (),
        form=asked.form,
        organisations=asked.organisations,
        months=months_offered(),
        csv_query=asked.csv_query,
    )
    return show(request, "billing/overview.html", shown)


def _query(**values: str) -> str:
    query = QueryDict(mutable=True)
    query.update(values)
    return query.urlencode()


def _trees(report: SharingReport, month: date) -> Iterator[Tree]:
    by_currency: dict[str, list[TenantShare]] = defaultdict(list)
    for one in report.tenants:
        by_currency[one.currency].append(one)
    for currency, shares in sorted(by_currency.items()):
        borne = sorted((one for one in shares if one.total > 0), key=lambda one: (-one.total, one.tenant))
        amounts, total = shown_parts([Fraction(one.total, SCALE) for one in borne], PLACES)
        yield Tree(currency, tuple(_boxes(borne, amounts, month)), total, len(shares) - len(borne))


def _boxes(borne: Sequence[TenantShare], amounts: Sequence[Decimal], month: date) -> Iterator[TreeBox]:
    """The boxes of those below one department lie side by side: departments first share the picture, then each its own box."""
    shown = dict(zip((one.tenant for one in borne), amounts, strict=True))
    departments: dict[str, list[TenantShare]] = defaultdict(list)
    for one in borne:
        departments["/".join(one.tenant.split("/")[:2])].append(one)
    ordered = sorted(departments.values(), key=lambda members: (-_sum(members), members[0].tenant))
    whole = _sum(borne)
    wide = Box(0, 0, FRAME.width * ASPECT, FRAME.height)
    for tint, (members, outer) in enumerate(zip(ordered, treemap([_sum(own) for own in ordered], wide), strict=True)):
        for one, box in zip(members, treemap([one.total for one in members], outer), strict=True):
            width = box.width / ASPECT
            yield TreeBox(
                tenant=one.tenant,
                name=one.tenant.partition("/")[2] or one.tenant,
                amount=shown[one.tenant],
                share=round(Decimal(100 * one.total) / whole, 1),
                x=f"{box.x / ASPECT:.3f}",
                y=f"{box.y:.3f}",
                width=f"{width:.3f}",
                height=f"{box.height:.3f}",
                tint=tint % TINTS,
                is_named=width >= NAMED_WIDTH and box.height >= NAMED_HEIGHT,
                query=_query(month=f"{month:%Y-%m}", tenant=one.tenant),
            )


def _sum(shares: Sequence[TenantShare]) -> int:
    return sum(one.total for one in shares)


def _trends(actor: Actor, path: str, last: date, today: date) -> Iterator[Trend]:
    """The weeks up to the one of `last`: what was charged for usage, by day, of what the actor sees."""
    monday = last - timedelta(days=last.weekday())
    mondays = [monday - timedelta(weeks=number) for number in range(WEEKS - 1, -1, -1)]
    start, until = midnight(mondays[0]), midnight(monday + timedelta(weeks=1))
    seen = visible_tenants(actor).filter(Q(path=path) | Q(path__startswith=f"{path}/"))
    rows = usage_report(actor, "", start, until, ["day"], among=seen).rows
    sums: dict[str, dict[date, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    for row in rows:
        day = datetime.strptime(row.keys["day"], "%Y-%m-%d").replace(tzinfo=UTC).date()
        sums[row.currency][day - timedelta(days=day.weekday())] += row.cost
    tenant = {"tenant": path} if seen.filter(path=path).exists() else {}
    span = {"from": f"{start:%Y-%m-%d}", "to": f"{until:%Y-%m-%d}"}
    query = _query(**tenant, **span, group_by="day", format="csv")
    for currency, by_week in sorted(sums.items()):
        amounts, _ = shown_parts([Fraction(by_week[one]) for one in mondays], PLACES)
        highest = max(*amounts, Decimal(0))
        width = 100 / WEEKS
        weeks = [
            Week(
                monday=one,
                amount=amount,
                x=f"{number * width + width / 10:.2f}",
                y=f"{100 - height:.2f}",
                height=f"{height:.2f}",
                is_complete=one + timedelta(weeks=1) <= today,
            )
            for number, (one, amount) in enumerate(zip(mondays, amounts, strict=True))
            for height in [float(100 * max(amount, Decimal(0)) / highest) if highest else 0.0]
        ]
        yield Trend(currency, tuple(weeks), f"{width * 0.8:.2f}", highest, query)
