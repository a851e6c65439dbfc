"""Writes why jobs wait. What is stored names no tenant besides the job's own and those above it: all who may see the job read
it. Another tenant is stored by its id (`queries.went_first`).
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import timedelta
from uuid import UUID

from django.db.models import Q
from django.db.models.functions import Now

from billing.engine.budgets import BudgetRefusal
from federation.engine.lifecycle import JobState
from federation.models import Job
from placement.values.decisions import Reason, Wait
from placement.values.reason_codes import ReasonCode
from quotas.operations import HoldRefusal
from tenancy.models import Tenant

REASON_FRESH = timedelta(seconds=10)
"""The shortest interval between updates of a waiting job's text while its reason does not change."""


def tell_refused(refused: Sequence[tuple[UUID, HoldRefusal]]) -> None:
    """Explains refused holds: a limit was used up between snapshot and hold, and the job waits for it. The text names
    the limit.
    """
    for job_id, refusal in refused:
        code = ReasonCode.WAITING_FOR_QUOTA
        if refusal.is_of_class:
            code = ReasonCode.WAITING_FOR_CLASS_LIMIT
        elif refusal.is_of_user:
            code = ReasonCode.WAITING_FOR_USER_LIMIT
        Job.objects.filter(id=job_id).update(reason_code=code, reason_message=refusal.message, reason_at=Now())


def tell_unaffordable(refused: Sequence[tuple[UUID, BudgetRefusal]]) -> None:
    """Likewise for budgets: one was used up, or lowered, between snapshot and hold."""
    for job_id, refusal in refused:
        Job.objects.filter(id=job_id).update(
            reason_code=ReasonCode.WAITING_FOR_BUDGET, reason_message=refusal.message, reason_at=Now()
        )


def explain(waits: Sequence[Wait]) -> None:
    """Writes why jobs wait, with one statement per distinct verdict, and only where it has changed."""
    # by identity first: jobs of one shape share the tuple, and hashing a reason per cluster for each of them is expensive
    same: dict[tuple[str, str, str, int], list[Wait]] = defaultdict(list)
    for wait in waits:
        same[wait.code, wait.message, wait.went_first, id(wait.per_cluster)].append(wait)
    alike: dict[tuple[str, str, str, tuple[Reason, ...]], list[UUID]] = defaultdict(list)
    for (code, message, first, _), group in same.items():
        alike[code, message, first, group[0].per_cluster] += [wait.job_id for wait in group]
    stale, tenants = Now() - REASON_FRESH, _ids_of({first for _, _, first, _ in alike if first})
    for (code, message, first, per_cluster), ids in alike.items():
        named = tenants.get(first)
        is_same = Q(reason_message=message)
        if named is not None:
            # two tenants with equal shares make the same text
            is_same &= Q(explanation__contains={"went_first": str(named)})
        news = ~Q(reason_code=code) | (Q(reason_at__lt=stale) & ~is_same)
        Job.objects.filter(news, id__any_of=ids, state=JobState.QUEUED).update(
            reason_code=code,
            reason_message=message,
            reason_at=Now(),
            explanation=_explanation(per_cluster, named),
        )


def _ids_of(paths: Collection[str]) -> dict[str, UUID]:
    """The tenants on these paths. No query without any."""
    return dict(Tenant.objects.filter(path__any_of=sorted(paths)).values_list("path", "id")) if paths else {}


def _explanation(reasons: Sequence[Reason], went_first: UUID | None) -> dict[str, object]:
    return ({} if went_first is None else {"went_first": str(went_first)}) | {
        "clusters": [
            {"cluster": r.cluster, "code": r.code, "message": r.message, "is_for_good": r.is_for_good} for r in reasons
        ]
    }
