"""The gateway notices itself that its database was restored, or lost commits in a failover (ADR 19).

The statements that place and start jobs compare the database's history with the accepted one, so dispatch is closed from the first
moment, whether or not any process has noticed. Each round of comparisons begins here. It accepts the first history of an
installation. Another one begins a standstill, which the gateway ends itself when every cluster was compared and nothing was found.
"""

from datetime import timedelta

from django.db import transaction
from django.db.models.functions import Now

from federation.locks import rewrite_standstill
from federation.models import DatabaseHistory, Standstill
from federation.queries.standstill import HISTORY_CHANGED, Circumstances, circumstances, left_of, open_standstill
from foundation.outbox import announce
from foundation.transactions import retried
from tenancy.operations import record_audit
from tenancy.queries import SYSTEM

from .upkeep import compare_all_in

SETTLING_SECONDS = 30
"""Longer than a claim (`locks.CLAIM_SECONDS`): calls that processes made because of lost commits have reached clusters then."""
NOTHING_FOUND = "Switchyard: every cluster was compared, and nothing was found"


def watch_history() -> None:
    """Accepts the first history, begins a standstill if the history has changed, and ends its own standstill."""
    now = circumstances()
    if now.accepted != now.history:
        _accept()
    elif _may_end(now):
        _end_if_clean()


@retried
def _accept() -> None:
    with transaction.atomic():
        rewrite_standstill()
        now = circumstances()
        if now.accepted == now.history:
            return
        if now.accepted is None:
            DatabaseHistory.objects.create(accepted=now.history)
            return
        compare_from = Now() + timedelta(seconds=SETTLING_SECONDS)
        if now.standstill_id is None:
            Standstill.objects.create(reason=HISTORY_CHANGED, needs_operator=False, compare_from=compare_from)
        else:
            Standstill.objects.filter(id=now.standstill_id).update(compare_from=compare_from)
        DatabaseHistory.objects.update(accepted=now.history, accepted_at=Now())
        detail = {"reason": HISTORY_CHANGED, "before": now.accepted, "history": now.history}
        record_audit(SYSTEM, "dispatch.close", object_kind="installation", detail=detail)
        compare_all_in(SETTLING_SECONDS)


def _may_end(now: Circumstances) -> bool:
    return now.standstill_id is not None and not (now.needs_operator or now.is_settling or now.is_changed)


@retried
def _end_if_clean() -> None:
    with transaction.atomic():
        rewrite_standstill()
        standing = open_standstill()
        if standing is None or not _may_end(circumstances()) or not left_of(standing).is_clean:
            return
        Standstill.objects.filter(id=standing.id).update(ended_at=Now(), ended_by=NOTHING_FOUND)
        record_audit(SYSTEM, "dispatch.open", object_kind="installation", detail={"note": NOTHING_FOUND})
        announce("cycle", "dispatch", "reconcile")
