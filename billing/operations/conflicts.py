"""Resolves conflicts of postings: a person says which of two contents under one key stands, and why."""

from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from billing import locks
from billing.engine.conflicts import NotReadable, replacement
from billing.models import PostingConflict
from billing.queries.conflicts import conflict_by_id, posted_entry
from foundation.problems import Conflict
from foundation.transactions import retried
from tenancy.operations import record_audit
from tenancy.queries import Actor

from .posting import post

Decision = PostingConflict.Decision


@retried
def resolve_conflict(actor: Actor, conflict_id: UUID, decision: str, reason: str) -> PostingConflict:
    """The conflict, resolved. `posted`: the first content remains. `offered`: it is reversed, and the offered one is posted.

    The same decision again changes nothing. Raises NotFound, NotAllowedHere, Conflict (`conflict_resolved` with another
    decision, `conflict_needs_a_correction` if the offered content may not stand).
    """
    with transaction.atomic():
        conflict_by_id(actor, conflict_id, may_resolve=True)
        locks.read_price_book()
        conflict = locks.lock_conflict(conflict_id)
        if conflict.resolved_at is not None:
            if conflict.decision != decision:
                raise Conflict("This conflict is already resolved.", code="conflict_resolved")
            return conflict_by_id(actor, conflict_id)
        if decision == Decision.OFFERED:
            _replace(conflict)
        PostingConflict.objects.filter(id=conflict.id).update(
            resolved_at=Now(), resolved_by_id=actor.user_id, resolved_by_name=actor.name, decision=decision, note=reason
        )
        record_audit(
            actor,
            "posting_conflict.resolve",
            object_kind="posting_conflict",
            object_id=conflict.id,
            tenant_id=conflict.organisation_id,
            detail={
                "key": conflict.key, "decision": decision, "reason": reason, "posted": conflict.standing_digest,
                "offered": conflict.offered_digest,
            },
        )  # fmt: skip
    return conflict_by_id(actor, conflict_id)


def _replace(conflict: PostingConflict) -> None:
    posted, counts = posted_entry(conflict)
    if not counts:
        raise Conflict("Another entry has already reversed the posted one.", code="conflict_needs_a_correction")
    try:
        entries = replacement(conflict.id, posted, conflict.offered)
    except NotReadable as error:
        raise Conflict(
            f"The offered content cannot stand: {error}. The entries of a day of usage are what its segments cost; keep"
            " the posted one, and correct the price if that is wrong.",
            code="conflict_needs_a_correction",
        ) from error
    for entry in entries:
        post(entry)
