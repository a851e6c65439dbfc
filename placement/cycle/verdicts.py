"""Why the jobs of one tenant and shape wait: quota, or room, in one code with one sentence, and a
reason per cluster.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from placement.fleet.budgets import Unaffordable, budget_message
from placement.fleet.eligibility import NOT_REACHED, next_opening
from placement.fleet.fleet_state import FleetState
from placement.fleet.limits import Refusal
from placement.ranking.contest import Contest, Verdict
from placement.ranking.reasons import KEPT_FOR_RESERVATION, nearest_message, quota_message
from placement.values.decisions import Reason
from placement.values.model import JobRequest
from placement.values.reason_codes import ReasonCode

WAITING_FOR_ROOM = frozenset(
    {
        ReasonCode.WAITING_FOR_CAPACITY,
        ReasonCode.BEHIND_IN_QUEUE,
        KEPT_FOR_RESERVATION,
        ReasonCode.KEPT_FOR_URGENT,
        ReasonCode.MAINTENANCE,
    }
)
Refusals: TypeAlias = Mapping[int, Refusal | Unaffordable]
_MISSING = frozenset({ReasonCode.SECRET_MISSING, ReasonCode.STORAGE_MISSING, ReasonCode.NETWORK_MISSING})
_NOT_ANSWERING = frozenset({ReasonCode.UNREACHABLE, ReasonCode.AUTH_FAILED, ReasonCode.STALE})


def verdict_on(job: JobRequest, contest: Contest, refusals: Refusals, beginning: FleetState) -> Verdict:
    """Why a job that found no place waits. `refusals` are the quota limits and budgets that refused it, by cluster number.

    `beginning` is the fleet as it was before the cycle allocated anything.
    """
    verdict, later = _verdict_now(job, contest, refusals, beginning), next_opening(job.constraints)
    return verdict._replace(message=f"{verdict.message}; {later}") if later else verdict


def _verdict_now(job: JobRequest, contest: Contest, refusals: Refusals, beginning: FleetState) -> Verdict:
    if refusals:
        first = refusals[min(refusals)]
        if isinstance(first, Unaffordable):
            return Verdict(ReasonCode.WAITING_FOR_BUDGET, budget_message(*first), contest.reasons(job, refusals))
        message, code = quota_message(first), ReasonCode.WAITING_FOR_QUOTA
        if first.line.limit.class_name:
            code = ReasonCode.WAITING_FOR_CLASS_LIMIT
        elif first.line.limit.user is not None:
            code = ReasonCode.WAITING_FOR_USER_LIMIT
        return Verdict(code, message, contest.reasons(job, refusals))
    if contest.verdict is None:
        contest.verdict = _room_verdict(job, contest, beginning)
    return contest.verdict


def _room_verdict(job: JobRequest, contest: Contest, beginning: FleetState) -> Verdict:
    reasons = contest.reasons(job, {})
    if not reasons:
        return Verdict(ReasonCode.WAITING_FOR_CAPACITY, "no cluster serves its tenant yet", ())
    possible = [reason for reason in reasons if not reason.is_for_good] or list(reasons)
    hopeful = [reason for reason in possible if reason.code != ReasonCode.EXCLUDED_BY_POLICY]
    open_now = [reason for reason in hopeful if reason.code != NOT_REACHED]
    if not open_now:
        held = (ReasonCode.HELD_BY_POLICY, nearest_message(possible))
        early = (ReasonCode.WAITING_FOR_CAPACITY, "no cluster of the overflow tiers opened so far can run it")
        return Verdict(*(early if hopeful else held), reasons)
    codes = {reason.code for reason in open_now}
    if codes <= _NOT_ANSWERING:
        names = ", ".join(reason.cluster for reason in open_now)
        return Verdict(
            ReasonCode.CLUSTERS_UNREACHABLE, f"could run only on clusters that do not answer: {names}", reasons
        )
    if (special := _kept_for_others(open_now) or _in_maintenance(open_now) or _lacking(reasons)) is not None:
        return Verdict(*special, reasons)
    if contest.had_room(beginning):
        message = f"jobs ahead of it take the free room; {nearest_message(open_now)}"
        return Verdict(ReasonCode.BEHIND_IN_QUEUE, message, reasons)
    return Verdict(ReasonCode.WAITING_FOR_CAPACITY, nearest_message(open_now), reasons)


def _lacking(reasons: Sequence[Reason]) -> tuple[str, str] | None:
    """Code and message if no cluster can run it as things are, for want of a secret, a storage or a network; else None."""
    lacking = [reason for reason in reasons if reason.code in _MISSING]
    if not lacking or not all(reason.is_for_good for reason in reasons):
        return None
    first = lacking[0]
    is_everywhere = first.code == ReasonCode.SECRET_MISSING
    return first.code, first.message if is_everywhere else f"{first.cluster} {first.message}"


def _in_maintenance(open_now: Sequence[Reason]) -> tuple[str, str] | None:
    """Code and message if only maintenance keeps it from every cluster that could run it; else None."""
    if any(reason.code != ReasonCode.MAINTENANCE for reason in open_now):
        return None
    return ReasonCode.MAINTENANCE, nearest_message(open_now)


def _kept_for_others(open_now: Sequence[Reason]) -> tuple[str, str] | None:
    """Code and message if there is room, but it is kept for other jobs; else None."""
    if any(reason.code == ReasonCode.RESERVED_FOR_GANG for reason in open_now):
        return ReasonCode.RESERVED_FOR_GANG, "there is room, but it is kept for a larger job that has waited longer"
    closed = (ReasonCode.KEPT_FOR_URGENT, KEPT_FOR_RESERVATION)
    kept = next((reason for reason in open_now if reason.code in closed), None)
    return None if kept is None else (kept.code, f"{kept.cluster}: {kept.message}")
