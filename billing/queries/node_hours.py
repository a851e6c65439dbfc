"""The balance of each node and hour: from the history of the fleet, the metered runs, and the corrected prices."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet

from billing.engine.idle import by_day
from billing.engine.ledger import money
from billing.engine.months import midnight, next_month
from billing.engine.node_hours import (
    HOUR,
    Cause,
    HourBalance,
    Offer,
    Use,
    balances,
    cause_of,
    offers_of,
    uses_of,
)
from billing.engine.rating import MILLISECOND, READINGS_AN_HOUR, Load
from billing.models import NegativeNodeHour
from clusters.models import Cluster
from clusters.queries.history import history_begins
from foundation.clock import database_now
from foundation.problems import NotFound
from tenancy.engine.roles import Permission
from tenancy.models import Tenant
from tenancy.queries import Actor, NotAllowedHere, permissions_at, visible_tenants

from .pools import corrected_prices, nodes_offered
from .prices import RateKey, price_spans
from .proof import Place

A_DAY = timedelta(days=1)
MOST_RUNS = 50
"""Of one hour, the dearest first."""


@dataclass(frozen=True, slots=True)
class RunBehind:
    """A run that was charged for an hour of a node, in 10**-12."""

    meter: int
    pod: str
    job_id: UUID
    job_name: str
    tenant: str
    flavor: str
    start: datetime
    until: datetime
    charged: int


@dataclass(frozen=True, slots=True)
class NodeHour:
    """A node's hour in one currency, which has ended. `cause` and `runs` only if its idle is negative."""

    cluster_id: UUID
    node: str
    hour: datetime
    currency: str
    balance: HourBalance
    cause: Cause | None = None
    runs: tuple[RunBehind, ...] = ()


@dataclass(frozen=True, slots=True)
class JudgedDay:
    """All hours of a day that have ended, and what its runs were charged: by meter and price, for uncorrected prices of runs
    that say their node.
    """

    day: date
    hours: tuple[NodeHour, ...]
    errors: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Run:
    meter: int
    node: str
    pod: str
    job_id: UUID
    job_name: str
    tenant: str
    rate: RateKey
    cpu_flavor: str
    load: Load
    times: list[tuple[datetime, datetime, bool]]
    """When it was metered, and whether that time had a price then."""


def judge(day: date, clusters: Collection[UUID] = (), nodes: Collection[str] = ()) -> JudgedDay:
    """The hours of a day (of these clusters and nodes, if given) that have ended and that the history contains."""
    start = midnight(day)
    until = min(start + A_DAY, database_now().astimezone(UTC).replace(minute=0, second=0, microsecond=0))
    ids = list(clusters or Cluster.everything.values_list("id", flat=True))
    known = [id_ for id_, at in history_begins(ids).items() if at.astimezone(UTC).date() <= day]
    if until <= start or not known:
        return JudgedDay(day, (), ())
    prices = corrected_prices(known, start, start + A_DAY)
    offers: dict[tuple[UUID, str], list[Offer]] = defaultdict(list)
    for key, offered in nodes_offered(known, start, until, list(nodes)).items():
        for one in offered:
            for part in by_day([one.offered]).get(day, ()):
                offers[key[0], one.node].extend(offers_of(part, prices.get(key, ())))
    runs = _runs(known, day, nodes)
    uses: dict[tuple[UUID, str], list[Use]] = defaultdict(list)
    book = {span.id for spans in price_spans(known, start, start + A_DAY).values() for span in spans}
    for run in runs.values():
        own = prices.get(run.rate, ())
        stand_ins = prices.get((run.rate[0], run.cpu_flavor, run.rate[2]), ())
        for begins, ends, is_priced in run.times:
            # Time that was metered before its price was known is charged by corrections only.
            its = [span for span in own if is_priced or span.id not in book]
            theirs = [span for span in stand_ins if is_priced or span.id not in book]
            uses[run.rate[0], run.node].extend(uses_of(run.meter, run.pod, run.load, (begins, ends), (its, theirs)))
    found: list[NodeHour] = []
    for place in sorted({*offers, *uses}, key=str):
        found += _hours(place, offers[place], uses[place], runs, (start, until))
    errors = _uneven(known, day, list(nodes), [use for its in uses.values() for use in its])
    return JudgedDay(day, tuple(found), errors)


def _hours(
    place: tuple[UUID, str], offers: list[Offer], uses: list[Use], runs: Mapping[int, _Run], span: tuple[datetime, datetime]
) -> Iterator[NodeHour]:  # fmt: skip
    for (hour, currency), balance in balances(offers, uses, *span).items():
        cause: Cause | None = None
        behind: tuple[RunBehind, ...] = ()
        if balance.is_negative:
            here = [use for use in uses if use.currency == currency and use.start < hour + HOUR and use.until > hour]
            there = [offer for offer in offers if offer.currency == currency]
            cause = cause_of(there, here, hour, is_known=bool(offers))
            behind = _behind(here, runs, hour)
        yield NodeHour(place[0], place[1], hour, currency, balance, cause, behind)


def _behind(uses: list[Use], runs: Mapping[int, _Run], hour: datetime) -> tuple[RunBehind, ...]:
    charged: dict[int, int] = defaultdict(int)
    for use in uses:
        charged[use.meter] += use.within(hour, hour + HOUR)
    found = []
    for meter, amount in sorted(charged.items(), key=lambda each: (-each[1], each[0]))[:MOST_RUNS]:
        run = runs[meter]
        found.append(
            RunBehind(
                meter, run.pod, run.job_id, run.job_name, run.tenant, run.rate[1], max(run.times[0][0], hour),
                min(run.times[-1][1], hour + HOUR), amount // READINGS_AN_HOUR,
            )
        )  # fmt: skip
    return tuple(found)


def _runs(clusters: list[UUID], day: date, nodes: Collection[str]) -> Mapping[int, _Run]:
    found: dict[int, _Run] = {}
    with connection.cursor() as cursor:
        cursor.execute(
            RUNS, {"clusters": clusters, "nodes": list(nodes), "start": midnight(day), "until": midnight(day) + A_DAY}
        )
        for row in cursor.fetchall():
            *place, unit, units, cpu, memory, since, start, until, is_priced = row
            cluster_id, meter, node, uid, job_id, job_name, tenant, flavor, capacity, cpu_flavor = place
            if meter not in found:
                found[meter] = _Run(
                    meter, node, uid.partition("~")[0], job_id, job_name, tenant, (cluster_id, flavor, capacity), cpu_flavor,
                    Load(unit, units, cpu, since.astimezone(UTC), memory), [],
                )  # fmt: skip
            found[meter].times.append((start.astimezone(UTC), until.astimezone(UTC), is_priced))
    return found


def _uneven(clusters: list[UUID], day: date, nodes: list[str], uses: Collection[Use]) -> tuple[str, ...]:
    """Meters whose hours do not add up to what their day was charged. Days with corrected prices are left out: the ledger
    corrects them by tenant.
    """
    parts: dict[tuple[int, str, UUID], int] = defaultdict(int)
    for use in uses:
        parts[use.meter, use.currency, use.price] += use.rate * ((use.until - use.start) // MILLISECOND)
    due: dict[tuple[int, str], int] = defaultdict(int)
    for (meter, currency, _), amount in parts.items():
        due[meter, currency] += amount // READINGS_AN_HOUR
    with connection.cursor() as cursor:
        cursor.execute(CHARGED, {"clusters": clusters, "nodes": nodes, "day": day})
        rows = {(meter, currency): (cost, corrected) for meter, currency, cost, corrected in cursor.fetchall()}
    charged = {key: int(cost * 10**12) for key, (cost, _) in rows.items() if cost}
    corrected = {meter for (meter, _), (_, is_corrected) in rows.items() if is_corrected}
    return tuple(
        f"the hours of meter {meter} on {day} add up to {money(due.get((meter, currency), 0)):f} {currency}, but it is charged"
        f" {money(charged.get((meter, currency), 0)):f}"
        for meter, currency in sorted({*due, *charged})
        if meter not in corrected and due.get((meter, currency), 0) != charged.get((meter, currency), 0)
    )


def days_to_judge(since: Place) -> list[date]:
    """The days of segments that came after a place, those of hours that wait for a decision, and yesterday and today."""
    with connection.cursor() as cursor:
        cursor.execute(DAYS, {"segment": since.segment})
        return [row[0] for row in cursor.fetchall()]


def visible_node_hours(actor: Actor) -> QuerySet[NegativeNodeHour]:
    """Negative hours of the nodes of organisations that the actor may see as a whole."""
    rows = NegativeNodeHour.objects.filter(organisation__in=visible_tenants(actor))
    return rows.select_related("organisation", "cluster")


def node_hour_by_id(actor: Actor, id_: UUID, *, may_close: bool = False) -> NegativeNodeHour:
    """The row. Raises NotFound; with `may_close`, NotAllowedHere for users who may only see it."""
    found = visible_node_hours(actor).filter(id=id_).first()
    if found is None:
        raise NotFound
    if may_close and Permission.CLOSE_PERIOD not in permissions_at(actor, found.organisation):
        raise NotAllowedHere(found.organisation, Permission.CLOSE_PERIOD)
    return found


def node_hours_of(
    actor: Actor, *, state: str = "", organisation: str = "", month: date | None = None
) -> QuerySet[NegativeNodeHour]:
    """The visible rows of a state, an organisation and a month, as far as each is given."""
    rows = visible_node_hours(actor)
    if state:
        rows = rows.filter(state=state)
    if organisation:
        rows = rows.filter(organisation__path=organisation)
    if month:
        rows = rows.filter(hour__gte=midnight(month), hour__lt=midnight(next_month(month)))
    return rows


def runs_behind(row: NegativeNodeHour) -> list[dict[str, Any]]:
    """The runs of an hour for readers of its organisation. Of runs of others, only the organisation, the time and the amount."""
    root = row.organisation.path
    return [
        run if run["tenant"].partition("/")[0] == root
        else {**run, "tenant": run["tenant"].partition("/")[0], "meter": None, "pod": None, "job": None, "job_name": None}
        for run in row.runs
    ]  # fmt: skip


def balances_of(actor: Actor, cluster_id: UUID, day: date, node: str = "") -> tuple[Cluster, tuple[NodeHour, ...]]:
    """The hours of a cluster's nodes (or of one) on a day. Raises NotFound unless the actor sees the owner as a whole."""
    cluster = Cluster.everything.filter(id=cluster_id).select_related("owner").first()
    if cluster is None or not visible_tenants(actor).filter(path=cluster.owner.path.partition("/")[0]).exists():
        raise NotFound
    return cluster, judge(day, [cluster_id], [node] if node else []).hours


def owners_of(clusters: Collection[UUID]) -> dict[UUID, UUID]:
    """The organisation that owns each of these clusters."""
    paths = dict(Cluster.everything.filter(id__in=clusters).values_list("id", "owner__path"))
    roots = {path.partition("/")[0] for path in paths.values()}
    ids = dict(Tenant.objects.filter(path__in=roots).values_list("path", "id"))
    return {id_: ids[path.partition("/")[0]] for id_, path in paths.items()}


def open_node_hours() -> int:
    """The negative hours of nodes that wait for a decision."""
    return NegativeNodeHour.objects.filter(state=NegativeNodeHour.State.OPEN).count()


RUNS = """
SELECT m.cluster_id, m.id, m.node, m.source_uid, m.workload_id, m.workload_name, m.tenant_path, m.flavor, m.capacity_type,
    m.cpu_flavor, m.unit, m.gpu_units, m.cpu_millicores, m.memory_mib, m.metered_from, lower(s.period), upper(s.period),
    s.price_id IS NOT NULL
FROM billing_usagesegment AS s JOIN billing_meter AS m ON m.id = s.meter_id
WHERE lower(s.period) >= %(start)s AND lower(s.period) < %(until)s AND m.node <> '' AND m.cluster_id = ANY(%(clusters)s)
    AND (cardinality(%(nodes)s::text[]) = 0 OR m.node = ANY(%(nodes)s)) AND isfinite(upper(s.period)) AND isfinite(m.metered_from)
ORDER BY m.id, lower(s.period)
"""
CHARGED = """
SELECT d.meter_id, d.currency, sum(d.cost), bool_or(EXISTS (
    SELECT 1 FROM billing_rate AS r JOIN billing_pricecorrection AS c ON c.rate_id = r.id
    WHERE r.cluster_id = m.cluster_id AND r.capacity_type = m.capacity_type AND r.flavor IN (m.flavor, m.cpu_flavor)
        AND c.span && tstzrange(d.day::timestamp AT TIME ZONE 'UTC', (d.day + 1)::timestamp AT TIME ZONE 'UTC')))
FROM billing_meterday AS d JOIN billing_meter AS m ON m.id = d.meter_id
WHERE d.day = %(day)s AND m.node <> '' AND m.cluster_id = ANY(%(clusters)s)
    AND (cardinality(%(nodes)s::text[]) = 0 OR m.node = ANY(%(nodes)s))
GROUP BY 1, 2
"""
DAYS = """
SELECT DISTINCT day FROM (
    SELECT (lower(period) AT TIME ZONE 'UTC')::date AS day FROM billing_usagesegment
    WHERE id > %(segment)s AND isfinite(lower(period))
    UNION ALL
    SELECT (hour AT TIME ZONE 'UTC')::date FROM billing_negativenodehour WHERE state = 'open'
    UNION ALL
    SELECT (now() AT TIME ZONE 'UTC')::date - back FROM generate_series(0, 1) AS back
) AS found
WHERE day <= (now() AT TIME ZONE 'UTC')::date
ORDER BY 1
"""
