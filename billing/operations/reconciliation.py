"""Imports what providers billed, sets how far it may differ from the ledger, and accepts a variance."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from billing import locks
from billing.engine.ledger import money
from billing.engine.provider_invoices import BilledLine, NotProviderInvoices, read_provider_invoices
from billing.models import AcceptedVariance, LedgerPeriod, ProviderInvoiceLine, ReconciledCluster, VarianceTolerance
from billing.queries.committed_clusters import CommittedClusters
from billing.queries.reconciliation import Reconciliation, lines_of, reconciliation_of
from billing.queries.sharing import organisation_at
from foundation.clock import database_now
from foundation.outbox import announce
from foundation.problems import Conflict, Invalid, NotFound
from foundation.rows import insert_rows
from foundation.transactions import retried
from tenancy.models import Tenant
from tenancy.operations import record_audit
from tenancy.queries import Actor

from .dated_policies import in_open_months

CLOSED = "provider_invoices_change_no_closed_month"


@dataclass(frozen=True, slots=True)
class ImportedInvoices:
    """How many lines of a file are new, change an amount, or were known."""

    added: int
    changed: int
    known: int

    @property
    def summary(self) -> str:
        """For people."""
        return f"Lines added: {self.added}, changed: {self.changed}, known: {self.known}."


@dataclass(frozen=True, slots=True)
class Found:
    """A line of a file with the cluster that it means and, if its reference is known, the row."""

    line: BilledLine
    cluster_id: UUID
    row: ProviderInvoiceLine | None

    @property
    def is_known(self) -> bool:
        """Whether the row says the same."""
        own = self.line
        return self.row is not None and (self.row.amount, self.row.currency, self.row.note) == (
            own.amount,
            own.currency,
            own.note,
        )


@retried
def import_provider_invoices(actor: Actor, path: str, text: str) -> ImportedInvoices:
    """Imports a file: all of its lines or none. The same file again changes nothing; another amount of a known reference
    replaces it.

    Raises NotFound, NotAllowedHere, Invalid (`bad_format`, `unknown_cluster`, `in_the_future`), Conflict `month_is_closed`.
    """
    organisation = organisation_at(actor, path, may_close=True)
    try:
        lines = read_provider_invoices(text)
    except NotProviderInvoices as error:
        raise Invalid.field("file", "bad_format", str(error)) from error
    if any(one.month > database_now().date() for one in lines):
        raise Invalid.field("file", "in_the_future", "invoices are of months that have begun")
    with _of_open_months(), transaction.atomic():
        locks.import_provider_invoices(organisation.id)
        found = _found(organisation, lines)
        new = [one for one in found if one.row is None]
        changed = [one for one in found if one.row is not None and not one.is_known]
        for each in changed:
            _replace(actor, organisation, each)
        insert_rows([_row(actor, organisation, one) for one in new])
        if new:
            record_audit(
                actor, "provider_invoices.import", object_kind="provider_invoice", object_id="", tenant_id=organisation.id,
                detail={
                    "added": len(new), "changed": len(changed), "known": len(found) - len(new) - len(changed),
                    "months": sorted({f"{one.line.month:%Y-%m}" for one in new}),
                },
            )  # fmt: skip
    return ImportedInvoices(len(new), len(changed), len(found) - len(new) - len(changed))


def _found(organisation: Tenant, lines: Sequence[BilledLine]) -> list[Found]:
    clusters = CommittedClusters(organisation)
    months = {one.month for one in lines}
    rows = ProviderInvoiceLine.objects.filter(organisation=organisation, month__in=months)
    known = {(row.cluster_id, row.month, row.reference): row for row in rows}
    billed_before = {cluster_id for cluster_id, _, _ in known}
    found = []
    for one in lines:
        cluster_id = clusters.id_of(one.cluster, billed_before)
        if cluster_id is None:
            detail = f"line {one.line}, column cluster: there is no cluster {one.cluster} of {organisation.path}"
            raise Invalid.field("file", "unknown_cluster", detail)
        found.append(Found(one, cluster_id, known.get((cluster_id, one.month, one.reference))))
    return found


def _replace(actor: Actor, organisation: Tenant, found: Found) -> None:
    row, line = found.row, found.line
    assert row is not None
    ProviderInvoiceLine.objects.filter(id=row.id).update(
        amount=line.amount, currency=line.currency, note=line.note, recorded_by_id=actor.user_id, recorded_by_name=actor.name,
        recorded_at=Now(),
    )  # fmt: skip
    record_audit(
        actor, "provider_invoice.change", object_kind="provider_invoice", object_id=str(row.id), tenant_id=organisation.id,
        detail={
            "reference": line.reference, "cluster": line.cluster, "month": f"{line.month:%Y-%m}",
            "before": f"{row.amount.normalize():f} {row.currency}", "after": f"{line.amount:f} {line.currency}",
        },
    )  # fmt: skip


def _row(actor: Actor, organisation: Tenant, found: Found) -> ProviderInvoiceLine:
    line = found.line
    return ProviderInvoiceLine(
        organisation=organisation, cluster_id=found.cluster_id, month=line.month, reference=line.reference, amount=line.amount,
        currency=line.currency, note=line.note, recorded_by_id=actor.user_id, recorded_by_name=actor.name,
    )  # fmt: skip


def set_variance_tolerance(actor: Actor, path: str, effective_from: date, percent: Decimal) -> VarianceTolerance:
    """How far invoices may differ from a month on. Raises NotFound, NotAllowedHere, Invalid, Conflict `month_is_closed`."""
    organisation = organisation_at(actor, path, may_close=True)
    if not percent.is_finite() or not 0 <= percent <= 100 or percent != round(percent, 3):  # noqa: PLR2004 - percent
        raise Invalid.field("percent", "out_of_range", "from 0 to 100, with up to 3 decimals")
    with in_open_months(), transaction.atomic():
        row = VarianceTolerance.objects.create(
            organisation=organisation, effective_from=effective_from, percent=percent, made_by_id=actor.user_id,
            made_by_name=actor.name,
        )  # fmt: skip
        record_audit(
            actor, "variance_tolerance.set", object_kind="variance_tolerance", object_id=str(row.id), tenant_id=organisation.id,
            detail={"from": f"{effective_from:%Y-%m}", "percent": f"{percent:f}"},
        )  # fmt: skip
    row.refresh_from_db()
    return row


def accept_variance(
    actor: Actor, path: str, month: date, cluster: str, *, variance: Decimal, note: str
) -> AcceptedVariance:
    """A cluster's month may close with the amounts that it has now, whose difference is `variance`; with no others.

    Raises NotFound, NotAllowedHere, Conflict (`nothing_to_accept`, `variance_changed`, `variance_accepted`, `month_is_closed`).
    """
    organisation = organisation_at(actor, path, may_close=True)
    with transaction.atomic():
        locks.import_provider_invoices(organisation.id)
        kept = locks.keep_period(organisation.id, month)
        if kept is not None and kept[1] == LedgerPeriod.State.CLOSED:
            raise Conflict("The month is closed.", code="month_is_closed")
        of_month = reconciliation_of(organisation, month)
        found = next(
            (row for row in of_month.rows if str(row.compared.cluster_id) == cluster or row.cluster == cluster), None
        )
        if found is None:
            raise NotFound
        its = found.compared
        if not its.variance or its.invoiced is None:
            raise Conflict(its.fault or "There is no variance to accept.", code="nothing_to_accept")
        if found.note:
            raise Conflict("The variance is already accepted.", code="variance_accepted")
        if money(its.variance) != variance:
            raise Conflict("The variance is no longer what it was: look again.", code="variance_changed")
        row = AcceptedVariance.objects.create(
            organisation=organisation, cluster_id=its.cluster_id, month=month, currency=its.currency, cost=money(its.cost),
            invoiced=money(its.invoiced), note=note, accepted_by_id=actor.user_id, accepted_by_name=actor.name,
        )  # fmt: skip
        record_audit(
            actor, "variance.accept", object_kind="accepted_variance", object_id=str(row.id), tenant_id=organisation.id,
            detail={
                "cluster": found.cluster, "month": f"{month:%Y-%m}", "variance": f"{variance:f} {its.currency}", "note": note,
            },
        )  # fmt: skip
        announce("post")
    row.refresh_from_db()
    return row


def reconciled(period: LedgerPeriod) -> Reconciliation | None:
    """The comparison of a month that closes, in the caller's transaction, which has locked its period; None without invoices."""
    if not lines_of(period.organisation_id, period.month).exists():
        return None
    return reconciliation_of(period.organisation, period.month)


def record_reconciliation(period: LedgerPeriod, found: Reconciliation) -> None:
    """Writes the comparison of the close that is about to happen. A cluster that cannot be compared has no invoice, and no row."""
    compared = [row.compared for row in found.rows if not row.compared.fault]
    insert_rows(
        [
            ReconciledCluster(
                period=period, revision=period.revision + 1, cluster_id=one.cluster_id, currency=one.currency,
                charged=money(one.charged), overhead=money(one.overhead), idle=money(one.idle),
                invoiced=None if one.invoiced is None else money(one.invoiced),
            )
            for one in compared
        ]
    )  # fmt: skip


@contextmanager
def _of_open_months() -> Iterator[None]:
    try:
        yield
    except IntegrityError as error:
        if getattr(getattr(error.__cause__, "diag", None), "constraint_name", "") != CLOSED:
            raise
        detail = "A month of the file is closed or closing. Invoices change open months only."
        raise Conflict(detail, code="month_is_closed") from error
