"""The page of a month's usage, grouped as the user chooses; the API writes the same as CSV. Displayed rows add up to
the totals.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

from django.http import HttpRequest, HttpResponse, QueryDict

from billing.engine.shares import shown_parts
from billing.queries import UsageReport, usage_report
from billing.queries.carbon import is_counted
from billing.queries.paths import AS_IS, tenants_were_under
from billing.queries.usage import UsageRow
from foundation.clock import now
from foundation.pages import Form, asked, show
from foundation.plain_json import instant
from foundation.problems import Invalid
from tenancy.queries import Actor, TenantMatch, match_tenants, path_suggestions
from tenancy.web import page

GROUPS = ("tenant", "cluster", "flavor", "user", "job", "day")
DEFAULT_GROUPS = ("tenant",)
MONTH = re.compile(r"(\d{4})-(0[1-9]|1[0-2])")
MONTHS_OFFERED = 13
MOST_ROWS_SHOWN = 500
PLACES = 2
SHOWN = {
    "gpu_hours": "gpu_hours", "lost_gpu_hours": "lost_gpu_hours", "core_hours": "cpu_core_hours",
    "gib_hours": "memory_gib_hours", "cost": "cost", "corrections": "corrections", "credits": "credits",
}  # fmt: skip
"""What the page shows, and the report's name of it."""
CARBON = {
    "energy_kwh": ("energy_kwh", 1), "measured_kwh": ("measured_energy_kwh", 1),
    "dark_kwh": ("energy_without_intensity_kwh", 1), "emissions_kg": ("emissions_g", 1000),
    "embodied_kg": ("embodied_emissions_g", 1000), "unrated_gpu_hours": ("unrated_gpu_hours", 1),
    "unrated_core_hours": ("unrated_core_hours", 1),
}  # fmt: skip
"""What the page shows of energy and emissions, the report's name of it, and what it is divided by."""


@dataclass(frozen=True, slots=True)
class CarbonLine:
    """Energy and emissions of a row, with two decimals. Energy is of which basis, and the rest what has no figures."""

    basis: str
    energy_kwh: Decimal
    measured_kwh: Decimal
    dark_kwh: Decimal
    emissions_kg: Decimal
    embodied_kg: Decimal
    unrated_gpu_hours: Decimal
    unrated_core_hours: Decimal


@dataclass(frozen=True, slots=True)
class UsageLine:
    """One row: its keys in the order of the columns. Hours and cost have two decimals and add up to the totals of its currency,
    whose cost is `whole_cost`.
    """

    keys: tuple[tuple[str, str], ...]
    currency: str
    whole_cost: Decimal
    gpu_hours: Decimal
    lost_gpu_hours: Decimal
    core_hours: Decimal
    gib_hours: Decimal
    cost: Decimal
    corrections: Decimal
    credits: Decimal
    unpriced: bool
    running_jobs: int
    carbon: CarbonLine | None


@dataclass(frozen=True, slots=True)
class Totals:
    """The sums of one currency."""

    currency: str
    gpu_hours: Decimal
    lost_gpu_hours: Decimal
    core_hours: Decimal
    gib_hours: Decimal
    cost: Decimal
    corrections: Decimal
    credits: Decimal
    unpriced_gpu_hours: Decimal
    provisional_cost: Decimal
    carbon: CarbonLine | None


@dataclass(frozen=True, slots=True)
class Hours:
    """The sums of all rows, whatever their currency."""

    gpu_hours: Decimal
    lost_gpu_hours: Decimal
    core_hours: Decimal
    gib_hours: Decimal
    unpriced_gpu_hours: Decimal


@dataclass(frozen=True, slots=True)
class UsagePage:
    currency: str
    """Of all costs; empty if there are several."""
    running_jobs: int
    as_of: datetime
    totals: tuple[Totals, ...]
    """Of each currency."""
    hours: Hours
    carbon: CarbonLine | None
    is_corrected: bool
    """Whether corrections of prices are in it; without any, it has no column for them."""
    is_credited: bool
    """Likewise of credits for lost work."""
    lines: tuple[UsageLine, ...]
    columns: tuple[str, ...]
    as_is: bool
    """Whether usage is under the current paths of tenants."""
    offers_carbon: bool
    """Whether any cluster has what its energy is computed from."""
    hidden: int
    month: str
    groups: Sequence[tuple[str, bool]]
    months: Sequence[tuple[str, str]]
    match: TenantMatch
    form: Form
    tenants: Sequence[tuple[str, str]]
    csv_query: str
    focus_query: str
    """Both are empty if several tenants match the input: the API takes only whole paths."""


@page(takes=("month", "tenant", "group_by", "carbon", "paths"))
def usage(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The report of a month; by default the current month by tenant."""
    month = month_of(request.GET.get("month", ""))
    groups = _groups(request.GET.getlist("group_by")) or list(DEFAULT_GROUPS)
    match = match_tenants(actor, asked(request).get("tenant", ""))
    as_is = request.GET.get("paths") == AS_IS
    if not match.count and not as_is and tenants_were_under(actor, match.typed):
        match = replace(match, is_exact=True)
    among = None if match.is_exact or match.path else match.tenants
    with_carbon = bool(request.GET.get("carbon"))
    report = usage_report(actor, match.path, *_period(month), groups, among=among, with_carbon=with_carbon, as_is=as_is)
    columns = tuple(column for column in report.columns if not column.endswith("_id"))
    lines, totals = _lines(report, columns)
    shown = UsagePage(
        currency=totals[0].currency if len(totals) == 1 else "",
        running_jobs=report.running_jobs,
        as_of=report.as_of,
        totals=totals,
        hours=_hours(totals),
        carbon=_all_carbon(totals),
        is_corrected=any(row.corrections for row in report.rows),
        is_credited=any(row.credits for row in report.rows),
        lines=lines[:MOST_ROWS_SHOWN],
        columns=columns,
        as_is=as_is,
        offers_carbon=with_carbon or is_counted(),
        hidden=max(len(report.rows) - MOST_ROWS_SHOWN, 0),
        month=f"{month[0]:04d}-{month[1]:02d}",
        groups=tuple((word, word in groups) for word in GROUPS),
        months=months_offered(),
        match=match,
        form=Form(values={"tenant": match.typed, "month": f"{month[0]:04d}-{month[1]:02d}"}),
        tenants=path_suggestions(actor),
        csv_query=_csv_query(month, groups, match.path, with_carbon=with_carbon, as_is=as_is)
        if match.is_exact or match.path
        else "",
        focus_query=_focus_query(month, match.path) if match.is_exact or match.path else "",
    )
    return show(request, "billing/usage.html", shown)


def _groups(given: Sequence[str]) -> list[str]:
    """The words to group by, in the order of GROUPS: one per selected checkbox, or separated by commas as
    in the API.
    """
    words = {word.strip() for text in given for word in text.split(",")} - {""}
    if unknown := sorted(words - set(GROUPS)):
        raise Invalid.field("group_by", "unknown_group", f"group by {', '.join(GROUPS)}; not by {unknown[0][:50]}")
    return [word for word in GROUPS if word in words]


def month_of(text: str) -> tuple[int, int]:
    """Year and month of a text such as 2026-11; the current month without one. Raises Invalid."""
    if not text:
        return now().year, now().month
    match = MONTH.fullmatch(text)
    if match is None or not 2000 <= int(match[1]) <= 2200:  # noqa: PLR2004 - years that make sense
        raise Invalid.field("month", "bad_format", "write a month such as 2026-11")
    return int(match[1]), int(match[2])


def _period(month: tuple[int, int]) -> tuple[datetime, datetime]:
    year, number = month
    following = (year + 1, 1) if number == 12 else (year, number + 1)  # noqa: PLR2004 - December
    return datetime(year, number, 1, tzinfo=UTC), datetime(*following, 1, tzinfo=UTC)


def _lines(report: UsageReport, columns: Sequence[str]) -> tuple[tuple[UsageLine, ...], tuple[Totals, ...]]:
    """The rows, and the totals of each currency, rounded so that the displayed values add up."""
    lines: dict[int, UsageLine] = {}
    totals = []
    for total in report.totals:
        numbers = [number for number, row in enumerate(report.rows) if row.currency == total.currency]
        own, sums = _of_currency([report.rows[number] for number in numbers], total, columns)
        lines.update(zip(numbers, own, strict=True))
        totals.append(sums)
    return tuple(lines[number] for number in range(len(report.rows))), tuple(totals)


def _of_currency(
    rows: Sequence[UsageRow], total: UsageRow, columns: Sequence[str]
) -> tuple[tuple[UsageLine, ...], Totals]:
    shown = {name: shown_parts([Fraction(getattr(row, of)) for row in rows], PLACES) for name, of in SHOWN.items()}
    carbon, all_carbon = _carbon_lines(rows, total)
    sums = Totals(
        currency=total.currency,
        unpriced_gpu_hours=total.unpriced_gpu_hours,
        provisional_cost=total.provisional_cost,
        carbon=all_carbon,
        **{name: whole for name, (_, whole) in shown.items()},
    )
    lines = tuple(
        UsageLine(
            keys=tuple((column, row.keys[column]) for column in columns),
            currency=total.currency,
            whole_cost=sums.cost,
            unpriced=bool(row.unpriced_gpu_milliseconds or row.unpriced_cpu_millicore_milliseconds),
            running_jobs=row.running_jobs,
            carbon=carbon[index],
            **{name: parts[index] for name, (parts, _) in shown.items()},
        )
        for index, row in enumerate(rows)
    )
    return lines, sums


def _hours(totals: Sequence[Totals]) -> Hours:
    names = ("gpu_hours", "lost_gpu_hours", "core_hours", "gib_hours", "unpriced_gpu_hours")
    return Hours(**{name: sum((getattr(one, name) for one in totals), Decimal(0)) for name in names})


def _all_carbon(totals: Sequence[Totals]) -> CarbonLine | None:
    """Of all currencies."""
    found = [one.carbon for one in totals if one.carbon is not None]
    if not found:
        return None
    bases = {one.basis for one in found} - {"none"}
    basis = "none" if not bases else next(iter(bases)) if len(bases) == 1 else "mixed"
    return CarbonLine(basis, **{name: sum((getattr(one, name) for one in found), Decimal(0)) for name in CARBON})


def _carbon_lines(rows: Sequence[UsageRow], total: UsageRow) -> tuple[Sequence[CarbonLine | None], CarbonLine | None]:
    found = [row.carbon for row in rows if row.carbon is not None]
    if total.carbon is None:
        return (None,) * len(rows), None
    shown = {
        name: shown_parts([Fraction(getattr(row, of)) for row in found], PLACES, per=per)
        for name, (of, per) in CARBON.items()
    }
    lines = [
        CarbonLine(row.basis, **{name: parts[number] for name, (parts, _) in shown.items()})
        for number, row in enumerate(found)
    ]
    return lines, CarbonLine(total.carbon.basis, **{name: whole for name, (_, whole) in shown.items()})


def months_offered() -> Sequence[tuple[str, str]]:
    """The current month and those before it."""
    year, number = now().year, now().month
    found = []
    for _ in range(MONTHS_OFFERED):
        found.append((f"{year:04d}-{number:02d}", datetime(year, number, 1, tzinfo=UTC).strftime("%B %Y")))
        year, number = (year - 1, 12) if number == 1 else (year, number - 1)
    return tuple(found)


def _csv_query(month: tuple[int, int], groups: Sequence[str], tenant: str, *, with_carbon: bool, as_is: bool) -> str:
    """The query that gets the same report as a file from the API, which also accepts the browser's session."""
    start, until = _period(month)
    query = QueryDict(mutable=True)
    query.update(
        {"from": str(instant(start)), "to": str(instant(until)), "group_by": ",".join(groups), "format": "csv"}
    )
    if tenant:
        query["tenant"] = tenant
    if with_carbon:
        query["carbon"] = "true"
    if as_is:
        query["paths"] = AS_IS
    return query.urlencode()


def _focus_query(month: tuple[int, int], tenant: str) -> str:
    """The query that gets the month for finance tools."""
    query = QueryDict(mutable=True)
    query["month"] = f"{month[0]:04d}-{month[1]:02d}"
    if tenant:
        query["tenant"] = tenant
    return query.urlencode()
