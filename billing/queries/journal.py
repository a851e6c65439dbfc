"""The journal of a month: every line of the ledger, as a debit or a credit, for accounting systems."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from uuid import UUID

from django.db import connection, transaction

from billing.models import InvoiceTerms, LedgerPeriod
from foundation.problems import NotFound
from tenancy.models import Tenant
from tenancy.queries import Actor, visible_tenants

ENTRIES_AT_ONCE = 1_000
COLUMNS = (
    "entry", "kind", "charge_day", "posted_at", "account", "tenant", "tenant_then", "cluster", "flavor", "cost_centre",
    "gl_account", "debit", "credit", "currency", "quantity", "priced_amount", "priced_currency", "rate", "rate_day",
    "rate_source", "reverses", "converts", "correction", "reason", "digest",
)  # fmt: skip
TEXTS = frozenset({"tenant", "tenant_then", "cluster", "flavor", "cost_centre", "gl_account", "rate_source", "reason"})
"""Columns whose text people wrote."""


@dataclass(frozen=True, slots=True)
class Journal:
    """The month of an organisation. Without a `period`, nothing has been posted into it."""

    organisation: Tenant
    month: date
    period: LedgerPeriod | None

    @property
    def is_final(self) -> bool:
        """Whether its month is closed."""
        return self.period is not None and self.period.state == LedgerPeriod.State.CLOSED

    def rows(self) -> Iterator[tuple[str, ...]]:
        """The lines in the order of their entries' keys, each with the values of COLUMNS. Read as they are taken."""
        return _rows(self.period.id, _codes(self.organisation.path)) if self.period else iter(())


def journal_of(actor: Actor, organisation_path: str, month: date) -> Journal:
    """The journal. Raises NotFound if the actor does not see the whole organisation."""
    organisation = visible_tenants(actor).filter(path=organisation_path, parent=None).first()
    if organisation is None:
        raise NotFound
    return Journal(organisation, month, LedgerPeriod.objects.filter(organisation=organisation, month=month).first())


def _codes(organisation: str) -> Mapping[str, tuple[str, str]]:
    """Cost centre and GL account by the path of the tenant whose terms say them now."""
    rows = InvoiceTerms.objects.filter(tenant__path__startswith=organisation)
    return {path: (centre, account) for path, centre, account in rows.values_list("tenant__path", *CODES)}


def _code_of(path: str, codes: Mapping[str, tuple[str, str]]) -> tuple[str, str]:
    """Those of the tenant, or of the nearest one above it that has terms."""
    while path:
        if path in codes:
            return codes[path]
        path = path.rpartition("/")[0]
    return "", ""


def _rows(period: UUID, codes: Mapping[str, tuple[str, str]]) -> Iterator[tuple[str, ...]]:
    after = ""
    with transaction.atomic():
        while True:
            with connection.cursor() as cursor:
                cursor.execute(LINES, {"period": period, "after": after, "most": ENTRIES_AT_ONCE})
                found: Sequence[Sequence[str]] = cursor.fetchall()
            for row in found:
                place, rest = list(row[:9]), row[9:]
                yield (*place, *_code_of(place[5], codes), *rest)
            if not found:
                return
            after = found[-1][0]


CODES = ("cost_centre", "gl_account")
LINES = """
WITH next_entries AS (
    SELECT * FROM billing_ledgerentry WHERE period_id = %(period)s AND key > %(after)s ORDER BY key LIMIT %(most)s
)
SELECT e.key, e.kind, e.charge_day::text, to_char(e.posted_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
    billing_account_name(a.id), coalesce(t.path, root.path), e.tenant_path, coalesce(own.name, used.name, ''), e.flavor,
    CASE WHEN l.amount > 0 THEN l.amount::text ELSE '' END, CASE WHEN l.amount < 0 THEN (-l.amount)::text ELSE '' END, l.currency,
    coalesce(l.quantity::text, ''), coalesce(l.priced_amount::text, ''), l.priced_currency, coalesce(l.rate::text, ''),
    coalesce(l.rate_day::text, ''), l.rate_source, coalesce(reversed.key, ''), coalesce(converted.key, ''),
    coalesce(e.correction_id::text, ''), e.reason, e.digest
FROM next_entries AS e JOIN billing_ledgerline AS l ON l.entry_id = e.id JOIN billing_ledgeraccount AS a ON a.id = l.account_id
JOIN tenancy_tenant AS root ON root.id = a.organisation_id LEFT JOIN tenancy_tenant AS t ON t.id = a.tenant_id
LEFT JOIN clusters_cluster AS own ON own.id = a.cluster_id LEFT JOIN clusters_cluster AS used ON used.id = e.cluster_id
LEFT JOIN billing_ledgerentry AS reversed ON reversed.id = e.reverses_id
LEFT JOIN billing_ledgerentry AS converted ON converted.id = e.converts_id
ORDER BY e.key, l.id
"""
