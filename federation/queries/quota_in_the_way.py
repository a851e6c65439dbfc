"""Who holds the quota that a job waits for, as far as the asker may see."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import quotas.queries
from federation.engine.intake.normal_form import request_of
from federation.engine.lifecycle import JobState
from federation.models import Job
from federation.queries.feasibility import quota_options
from federation.queries.lent_quota import seen_among
from federation.queries.policies import policy_at
from federation.queries.reservations import load_reservations
from foundation.clock import database_now
from placement.values.advance import counted_beside, latest_end
from placement.values.reason_codes import ReasonCode
from quotas.engine.borrowing import path_prefixes
from quotas.engine.holders import Holder, InTheWay, in_the_way
from quotas.engine.holds import Limit
from tenancy.queries import Actor


@dataclass(frozen=True, slots=True)
class HolderLine:
    """What a tenant holds, in base units. `tenant_path` is empty for all tenants together that the asker may not see.
    `is_direct`: right at the limit, by work that no limit in between counts. `nominal` is None where neither applies.
    """

    tenant_path: str
    held: int
    kept: int
    borrowed: int
    nominal: int | None
    is_own: bool
    is_direct: bool


@dataclass(frozen=True, slots=True)
class QuotaInTheWay:
    """A limit that has too little left for the job, and who holds it; `lacking` more must become free. Besides, `reserved` is
    kept for reservations that are in force at `reserved_from`.
    """

    limit: Limit
    lacking: int
    holders: tuple[HolderLine, ...]
    reserved: int
    reserved_from: datetime | None


def quota_in_the_way(actor: Actor, job: Job) -> tuple[QuotaInTheWay, ...]:
    """The limits that the job waits for now. Empty, without a query, for a job that does not wait for quota."""
    if job.state != JobState.QUEUED or job.reason_code != ReasonCode.WAITING_FOR_QUOTA:
        return ()
    path = job.tenant.path
    request = request_of(job.spec, job_id=job.id, tenant_path=path, shape=job.shape, priority=job.priority, kind="")
    options = quota_options(request, policy_at(path))
    if not options:
        return ()
    of_class = quotas.queries.class_limit_states([request.class_name])
    limits = (*quotas.queries.limits_of_organisation(path), *of_class)
    per_user = quotas.queries.user_limit_states(path_prefixes(path))
    now = database_now()
    end = latest_end(now, request.deadline_seconds)
    kept = counted_beside(request.constraints.reservation, path, end, load_reservations(now), now)
    found = in_the_way(path, options, limits, per_user, job.created_by_id, kept)
    seen = seen_among(actor, (holder.tenant_path for one in found for holder in one.holders))
    return tuple(_shown(one, path, seen) for one in found)


def _shown(found: InTheWay, path: str, seen: frozenset[str]) -> QuotaInTheWay:
    lines = [_line(one, path) for one in found.holders if one.tenant_path in seen or _is_own(one, path)]
    hidden = [one for one in found.holders if one.tenant_path not in seen and not _is_own(one, path)]
    parts = (*lines, *_together(hidden))
    return QuotaInTheWay(found.limit, found.lacking, parts, found.reserved, found.reserved_from)


def _line(one: Holder, path: str) -> HolderLine:
    nominal = None if one.is_direct else one.nominal
    return HolderLine(one.tenant_path, one.held, one.kept, one.borrowed, nominal, _is_own(one, path), one.is_direct)


def _together(hidden: Sequence[Holder]) -> list[HolderLine]:
    if not hidden:
        return []
    held, kept, borrowed = (
        sum(amounts) for amounts in zip(*((o.held, o.kept, o.borrowed) for o in hidden), strict=True)
    )
    return [HolderLine("", held, kept, borrowed, None, is_own=False, is_direct=False)]


def _is_own(one: Holder, path: str) -> bool:
    """Whether the part is that of the job's tenant, or of one above it."""
    return f"{path}/".startswith(f"{one.tenant_path}/")
