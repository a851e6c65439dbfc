"""Conflicts of postings: two contents that were offered under one key."""

from dataclasses import dataclass
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet

from billing.engine.ledger import Entry
from billing.models import LedgerEntry, PostingConflict
from foundation.problems import NotFound
from tenancy.engine.roles import Permission
from tenancy.queries import Actor, NotAllowedHere, permissions_at, visible_tenants

from .charges import entry_of

MOST_CONFLICTS = 200


@dataclass(frozen=True, slots=True)
class ConflictDetail:
    """A conflict with both contents, as canonical text. `may_resolve`: the actor may decide."""

    row: PostingConflict
    posted: str
    may_resolve: bool

    @property
    def can_replace(self) -> bool:
        """Whether the offered content may take the place of the posted one: only that of an adjustment."""
        return self.row.offered.split("\t")[1:2] == ["adjustment"]


def visible_conflicts(actor: Actor, *, state: str = "") -> QuerySet[PostingConflict]:
    """The conflicts of the organisations that the actor may see as a whole. `state`: `open` or `resolved`; empty: both."""
    rows = PostingConflict.objects.filter(organisation__in=visible_tenants(actor)).select_related("organisation")
    return rows.filter(resolved_at__isnull=state == "open") if state else rows


def conflict_by_id(actor: Actor, conflict_id: UUID, *, may_resolve: bool = False) -> PostingConflict:
    """The conflict. NotFound if the actor may not see it; with `may_resolve`, NotAllowedHere if they may only see it."""
    conflict = visible_conflicts(actor).filter(id=conflict_id).first()
    if conflict is None:
        raise NotFound
    if may_resolve and Permission.CLOSE_PERIOD not in permissions_at(actor, conflict.organisation):
        raise NotAllowedHere(conflict.organisation, Permission.CLOSE_PERIOD)
    return conflict


def conflict_detail(actor: Actor, conflict_id: UUID) -> ConflictDetail:
    """One conflict with both contents. Raises NotFound."""
    conflict = conflict_by_id(actor, conflict_id)
    may_resolve = Permission.CLOSE_PERIOD in permissions_at(actor, conflict.organisation)
    with connection.cursor() as cursor:
        cursor.execute(TEXT, [conflict.key])
        found = cursor.fetchone()
    return ConflictDetail(conflict, str(found[0]) if found else "", may_resolve)


def posted_entry(conflict: PostingConflict) -> tuple[Entry, bool]:
    """The entry that has the key, and whether it still counts: another entry has not reversed it."""
    row = LedgerEntry.objects.select_related("reverses").prefetch_related("lines__account").get(key=conflict.key)
    return entry_of(row, None), not LedgerEntry.objects.filter(reverses=row).exists()


TEXT = "SELECT billing_entry_text(id) FROM billing_ledgerentry WHERE key = %s"
