"""Why the jobs of one tenant and shape wait: quota, or room, in one code with one sentence, and a reason per cluster."""

from collections.abc import Mapping, Sequence

from .contest import Contest, Verdict
from .decisions import Reason
from .eligibility import NOT_REACHED, next_opening
from .ledger import FleetState
from .limits import Refusal
from .model import JobRequest
from .reasons import KEPT_FOR_RESERVATION, nearest_message, quota_message

WAITING_FOR_ROOM = frozenset({"waiting_for_capacity", "behind_in_queue", KEPT_FOR_RESERVATION})
_NOT_ANSWERING = frozenset({"unreachable", "auth_failed", "stale"})


def verdict_on(job: JobRequest, contest: Contest, refusals: Mapping[int, Refusal], beginning: FleetState) -> Verdict:
    """Why a job that found no place waits. `refusals` are the quota limits that were in the way, by cluster number.

    `beginning` is the fleet as it was before the cycle gave anything away.
    """
    verdict, later = _verdict_now(job, contest, refusals, beginning), next_opening(job.constraints)
    return verdict._replace(message=f"{verdict.message}; {later}") if later else verdict


def _verdict_now(job: JobRequest, contest: Contest, refusals: Mapping[int, Refusal], beginning: FleetState) -> Verdict:
    if refusals:
        message = quota_message(*refusals[min(refusals)])
        return Verdict("waiting_for_quota", message, contest.reasons(job, refusals))
    if contest.verdict is None:
        contest.verdict = _room_verdict(job, contest, beginning)
    return contest.verdict


def _room_verdict(job: JobRequest, contest: Contest, beginning: FleetState) -> Verdict:
    reasons = contest.reasons(job, {})
    if not reasons:
        return Verdict("waiting_for_capacity", "there is no cluster yet that its tenant may use", ())
    possible = [reason for reason in reasons if not reason.is_for_good] or list(reasons)
    hopeful = [reason for reason in possible if reason.code != "excluded_by_policy"]
    open_now = [reason for reason in hopeful if reason.code != NOT_REACHED]
    if not open_now:
        held = ("held_by_policy", nearest_message(possible))
        early = ("waiting_for_capacity", "no cluster that is open to it so far can run it")
        return Verdict(*(early if hopeful else held), reasons)
    codes = {reason.code for reason in open_now}
    if codes <= _NOT_ANSWERING:
        names = ", ".join(reason.cluster for reason in open_now)
        return Verdict("clusters_unreachable", f"could run only on clusters that do not answer: {names}", reasons)
    if (kept := _kept_for_others(open_now)) is not None:
        return Verdict(*kept, reasons)
    if contest.had_room(beginning):
        message = f"jobs ahead of it take the room there was; {nearest_message(open_now)}"
        return Verdict("behind_in_queue", message, reasons)
    return Verdict("waiting_for_capacity", nearest_message(open_now), reasons)


def _kept_for_others(open_now: Sequence[Reason]) -> tuple[str, str] | None:
    """That there is room which others have a right to, as code and message, if so."""
    if any(reason.code == "reserved_for_gang" for reason in open_now):
        return "reserved_for_gang", "there is room, but it is kept for a larger job that has waited longer"
    kept = next((reason for reason in open_now if reason.code == KEPT_FOR_RESERVATION), None)
    return None if kept is None else (KEPT_FOR_RESERVATION, f"{kept.cluster}: {kept.message}")
