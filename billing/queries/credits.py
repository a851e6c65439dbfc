"""Credit policies, and what lost work costs: by tenant and cause, charged or not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from django.db import connection
from django.db.models import QuerySet

from billing.engine.months import midnight, next_month
from billing.models import CreditPolicy
from foundation.clock import database_now
from foundation.problems import Invalid, NotFound
from tenancy.queries import Actor, visible_tenants

from .paths import organisation_named


@dataclass(frozen=True, slots=True)
class LostLine:
    """What the lost work of one tenant costs for one cause. `credits` of it are not charged, and not positive. Hours are of
    physical GPUs. Without a price, the currency is empty.
    """

    tenant: str
    cause: str
    currency: str
    runs: int
    gpu_hours: Decimal
    cost: Decimal
    credits: Decimal


@dataclass(frozen=True, slots=True)
class LostWorkReport:
    """An organisation's month, of the tenants that the actor sees, and the causes that are not charged in it."""

    organisation: str
    month: date
    causes: tuple[str, ...]
    lines: tuple[LostLine, ...]

    def under(self, causes: Sequence[str]) -> "LostWorkReport":
        """The same if exactly these causes were not charged: then the cost of their lines is credited, and nothing else."""
        lines = (replace(one, credits=-one.cost if one.cause in causes else NOTHING) for one in self.lines)
        return replace(self, causes=tuple(causes), lines=tuple(lines))

    def credits_by_currency(self) -> Mapping[str, Decimal]:
        """What is not charged of all these lines, for each currency of their prices."""
        sums: dict[str, Decimal] = {}
        for one in self.lines:
            if one.currency:
                sums[one.currency] = sums.get(one.currency, NOTHING) + one.credits
        return sums


def visible_credit_policies(actor: Actor) -> QuerySet[CreditPolicy]:
    """The policies of the organisations that the actor may see as a whole."""
    return CreditPolicy.objects.filter(organisation__in=visible_tenants(actor)).select_related("organisation")


def policies_of(organisation_path: str) -> Sequence[CreditPolicy]:
    """The policies of an organisation, the one that applies latest first. The caller has checked that the actor may see it."""
    rows = CreditPolicy.objects.filter(organisation__path=organisation_path)
    return list(rows.order_by("-effective_from", "-id")[:MOST_POLICIES])


def lost_work_report(actor: Actor, organisation_path: str, month: date) -> LostWorkReport:
    """The report, by what is recorded. Raises NotFound if the actor sees no tenant of the organisation; Invalid `in_the_future`."""
    root = organisation_named(organisation_path)
    seen = [
        id_ for id_, path in visible_tenants(actor).values_list("id", "path")
        if path == organisation_path or path.startswith(f"{organisation_path}/")
    ]  # fmt: skip
    if root is None or not seen:
        raise NotFound
    if midnight(month) > database_now():
        raise Invalid.field("month", "in_the_future", "give a month that has begun")
    applies = CreditPolicy.objects.filter(organisation=root, effective_from__lte=month).order_by(
        "-effective_from", "-id"
    )
    policy = applies.first()
    lines = _lines(seen, midnight(month), midnight(next_month(month)))
    return LostWorkReport(root.path, month, tuple(policy.causes) if policy else (), lines)


def _lines(tenants: Sequence[Any], start: datetime, until: datetime) -> tuple[LostLine, ...]:
    with connection.cursor() as cursor:
        cursor.execute(LOST_COSTS, {"tenants": list(tenants), "start": start, "until": until, "hour": AN_HOUR})
        return tuple(LostLine(*row) for row in cursor.fetchall())


NOTHING = Decimal(0)
MOST_POLICIES = 50
AN_HOUR = 3_600_000
LOST_COSTS = """
SELECT m.tenant_path, part.cause, part.currency, count(DISTINCT m.run_id),
    round(sum(part.milliseconds * m.gpu_units * m.gpu_numerator / m.gpu_denominator) / %(hour)s, 6), sum(part.cost),
    coalesce(-sum(part.cost) FILTER (WHERE part.is_waived), 0)
FROM billing_lost_costs((
    SELECT array_agg(DISTINCT own.run_id) FROM billing_lostwork AS w JOIN billing_meter AS own ON own.run_id = w.run_id
    WHERE w.lost_from < %(until)s AND own.metered_until > %(start)s AND own.tenant_id = ANY(%(tenants)s)
), %(start)s, %(until)s) AS part JOIN billing_meter AS m ON m.id = part.meter_id
WHERE m.tenant_id = ANY(%(tenants)s) GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
"""
