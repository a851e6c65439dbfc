"""How the charges of a month were converted, or would be now, for the rows of an export."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from typing import Any, TypeAlias
from uuid import UUID

from django.db import connection
from django.db.models import Q

from billing.engine.conversion import Rate
from billing.engine.focus import Charge
from billing.engine.focus_exchange import Exchanged, Shares, exchange
from billing.models import LedgerPeriod, Price
from tenancy.models import Tenant

from .exchange import billing_currency_of, exchange_rate

UsedKey: TypeAlias = tuple[UUID, str, UUID | None, str, str]
"""Of a day's usage: tenant, its path, cluster, flavor, currency of the price."""


@dataclass(frozen=True, slots=True)
class RateCorrection:
    """What rates that were corrected after a month's close change of its charges, in the billing currency."""

    tenant_id: UUID
    tenant: str
    cluster_id: UUID | None
    flavor: str
    sku: str
    day: date
    currency: str
    amount: Decimal


def pricing_differs(organisation: Tenant, month: date) -> bool:
    """Whether an organisation is billed in another currency than one of its prices has."""
    billed = billing_currency_of(organisation.id, month)
    own = Q(rate__cluster__owner=organisation) | Q(rate__cluster__owner__path__startswith=f"{organisation.path}/")
    return bool(billed) and Price.objects.filter(own).exclude(currency=billed).exists()


class Exchange:
    """Converts the rows of an organisation's month: at the rates of its conversions if it is closed, else at those that count."""

    def __init__(self, organisation: Tenant, month: date, closed: LedgerPeriod | None) -> None:
        self.currency = billing_currency_of(organisation.id, month)
        self._organisation_id, self._shares = organisation.id, Shares()
        self._closed = closed
        self._rates: dict[tuple[str, date], Rate | None] = {}
        if closed and self.currency:
            with connection.cursor() as cursor:
                cursor.execute(RATES, [closed.id])
                self._rates = {(currency, day): Rate(*rate) for currency, day, *rate in cursor.fetchall()}

    def of(self, charge: Charge) -> Charge:
        """The charge with its amount in the billing currency; as it is if no rate is known."""
        if not self.currency or charge.currency == self.currency:
            return charge
        if charge.price_id is None and not charge.cost:
            return replace(charge, currency=self.currency)
        rate = self._rate(charge.currency, charge.day)
        if rate is None:
            return charge
        key = charge.tenant_id, charge.tenant, charge.cluster_id, charge.flavor, charge.day
        return replace(charge, exchanged=exchange(charge.cost, charge.currency, rate, self.currency, self._shares, key))

    def _rate(self, currency: str, day: date) -> Rate | None:
        if (currency, day) not in self._rates:
            self._rates[currency, day] = (
                None if self._closed else exchange_rate(self._organisation_id, currency, self.currency, day)
            )
        return self._rates[currency, day]

    def posted_usage(self, values: Mapping[str, Any]) -> dict[UsedKey, Decimal]:
        """What the conversions of a day's usage amount to."""
        found: dict[UsedKey, Decimal] = defaultdict(Decimal)
        if self.currency:
            with connection.cursor() as cursor:
                cursor.execute(USED, values)
                for *key, amount in cursor.fetchall():
                    tenant_id, path, cluster_id, flavor, currency = key
                    found[tenant_id, path, cluster_id, flavor, currency] += amount
        return found

    def of_entries(self, period_id: UUID) -> dict[tuple[int, UUID, str], Exchanged]:
        """How each charge of the period's entries was converted: by entry, tenant and currency."""
        if not self.currency:
            return {}
        with connection.cursor() as cursor:
            cursor.execute(OF_ENTRIES, [period_id])
            return {
                (entry_id, tenant_id, currency): Exchanged(self.currency, amount, *rate)
                for entry_id, tenant_id, currency, amount, *rate in cursor.fetchall()
            }

    def corrections(self, values: Mapping[str, Any]) -> list[RateCorrection]:
        """What the period has of conversions of earlier months' entries."""
        if not self.currency:
            return []
        with connection.cursor() as cursor:
            cursor.execute(CORRECTIONS, values)
            return [RateCorrection(*row) for row in cursor.fetchall()]


COUNTING = """
billing_ledgerentry AS c JOIN billing_ledgerentry AS s ON s.id = c.converts_id AND s.period_id = c.period_id
JOIN billing_ledgerline AS l ON l.entry_id = c.id AND l.priced_currency <> ''
JOIN billing_ledgeraccount AS a ON a.id = l.account_id AND a.kind = 'tenant_converted'
    AND NOT EXISTS (SELECT 1 FROM billing_ledgerentry AS r WHERE r.reverses_id = c.id AND r.period_id = c.period_id)
"""
"""The conversions that counted when their period was closed."""
RATES = f"""
SELECT DISTINCT ON (l.priced_currency, c.charge_day) l.priced_currency, c.charge_day, l.rate, l.rate_day, l.rate_source
FROM {COUNTING} WHERE c.period_id = %s ORDER BY 1, 2, c.id DESC
"""
USED = f"""
SELECT a.tenant_id, c.tenant_path, c.cluster_id, c.flavor, l.priced_currency, sum(l.amount)
FROM {COUNTING} WHERE c.period_id = %(period)s AND c.charge_day = %(day)s AND s.kind = 'usage' AND a.tenant_id = ANY(%(tenants)s)
    AND (%(path)s IN ('', c.tenant_path) OR starts_with(c.tenant_path, %(path)s || '/'))
GROUP BY 1, 2, 3, 4, 5
"""
OF_ENTRIES = f"""
SELECT s.id, a.tenant_id, l.priced_currency, l.amount, l.rate, l.rate_day, l.rate_source FROM {COUNTING} WHERE c.period_id = %s
"""
CORRECTIONS = """
SELECT a.tenant_id, place.path, c.cluster_id, c.flavor, billing_sku_of(c), c.charge_day, l.priced_currency, sum(l.amount)
FROM billing_ledgerentry AS c LEFT JOIN billing_ledgerentry AS undone ON undone.id = c.reverses_id
JOIN billing_ledgerentry AS s ON s.id = coalesce(c.converts_id, undone.converts_id) AND s.period_id <> c.period_id
JOIN billing_ledgerline AS l ON l.entry_id = c.id AND l.priced_currency <> ''
JOIN billing_ledgeraccount AS a ON a.id = l.account_id AND a.kind = 'tenant_converted'
JOIN tenancy_tenant AS t ON t.id = a.tenant_id
CROSS JOIN LATERAL (SELECT coalesce(nullif(c.tenant_path, ''), t.path)::character varying COLLATE "C" AS path) AS place
WHERE c.period_id = %(period)s AND a.tenant_id = ANY(%(tenants)s)
    AND (%(path)s IN ('', place.path) OR starts_with(place.path, %(path)s || '/'))
GROUP BY 1, 2, 3, 4, 5, 6, 7 HAVING sum(l.amount) <> 0 ORDER BY 6, 2, 3, 4, 5, 7
"""
