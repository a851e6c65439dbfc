"""Every reason there is: of a job, of a job on a cluster, and of the end of an attempt. Codes are never reworded.

Writers, the API's schema, pages and docs/reference/reasons.md share this list; a test holds the page to it, and each code
to somebody who writes it.
"""

from enum import StrEnum
from typing import Self


class ReasonCode(StrEnum):
    """A code for programs, and what it means in a line for people."""

    meaning: str

    def __new__(cls, code: str, meaning: str) -> Self:
        member = str.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    # of a job
    NEW = "new", "No cycle has considered it yet."
    WAITING_FOR_CAPACITY = "waiting_for_capacity", "No allowed cluster has room for it now."
    WAITING_FOR_QUOTA = "waiting_for_quota", "A quota limit on its tenant's path has too little left."
    BEHIND_IN_QUEUE = "behind_in_queue", "Jobs ahead of it took the room there was."
    RESERVED_FOR_GANG = "reserved_for_gang", "The room is kept for a large job that has waited longer."
    KEPT_FOR_RESERVATION = "kept_for_reservation", "The room is kept for advance reservations."
    WAITING_FOR_RESERVATION = "waiting_for_reservation", "The reservation that it names has not begun."
    RESERVATION_FULL = "reservation_full", "In the reservation that it names no room is left."
    RESERVATION_TOO_SHORT = "reservation_too_short", "It could run past the end of the reservation that it names."
    RESERVATION_OVER = "reservation_over", "The reservation that it names has ended or was cancelled."
    CLUSTERS_UNREACHABLE = "clusters_unreachable", "The clusters it could run on, or runs on, do not answer."
    HELD_BY_POLICY = "held_by_policy", "It could run only where a policy does not allow it."
    DISPATCHING = "dispatching", "It is placed and being handed to its cluster."
    WAITING_ON_CLUSTER = (
        "waiting_on_cluster",
        "Its pods exist and have not started; the message has the cluster's words.",
    )
    ATTEMPT_RETURNED = "attempt_returned", "Its last attempt came to nothing; it waits for a new place."
    INTERRUPTED = "interrupted", "Its attempt was interrupted; it goes on when nothing of that is left."
    CANCELLING = "cancelling", "Somebody cancelled it; its cluster has not confirmed yet."
    # of a job on one cluster
    CLUSTER_EXCLUDED = "cluster_excluded", "The job's constraints leave the cluster out."
    REGION_EXCLUDED = "region_excluded", "The job's regions do not match the cluster's."
    CAPACITY_TYPE_EXCLUDED = "capacity_type_excluded", "The devices are there, but not as the capacity type asked for."
    TIER_NOT_REACHED = "tier_not_reached", "A later tier of the job's overflow opens it."
    EXCLUDED_BY_POLICY = "excluded_by_policy", "A policy leaves out the cluster or its flavors."
    NO_SUCH_MODEL = "no_such_model", "The cluster has no such devices."
    NOT_PLACEABLE = "not_placeable", "It has such devices, but jobs cannot be started on them."
    NEVER_FITS = "never_fits", "No node is large enough, even when empty."
    NOT_ENOUGH_FREE = "not_enough_free", "Too little is free now."
    FRAGMENTED = "fragmented", "Enough is free in all, but not in pieces that its pods fit in."
    TAINTED = "tainted", "Every node in order has a taint that its pods do not tolerate."
    TOPOLOGY_NOT_MET = "topology_not_met", "There is no room inside one domain of the level it requires."
    QUOTA_REACHED = "quota_reached", "It would fit, but a quota limit has too little left."
    LATELY_FAILED = "lately_failed", "It could not start the job a short while ago."
    LATELY_INTERRUPTED = "lately_interrupted", "It interrupted the job a short while ago."
    OUTSIDE_RESERVATION = "outside_reservation", "The reservation that the job names is on another cluster."
    CORDONED = "cordoned", "An administrator has closed it to new work."
    DRAINING = "draining", "It is being emptied."
    UNREACHABLE = "unreachable", "It does not answer."
    AUTH_FAILED = "auth_failed", "It refuses the gateway's credential."
    STALE = "stale", "It was last observed too long ago."
    # of the end of an attempt, and of a job that ended with it
    COMPLETED = "completed", "All its objects succeeded."
    PROGRAM_FAILED = "program_failed", "A pod ended with an exit code other than 0."
    JOB_FAILED = "job_failed", "Its object failed; no pod told an exit code."
    CANCELLED = "cancelled", "Somebody cancelled the job."
    REFUSED_BY_CLUSTER = "refused_by_cluster", "The cluster's API server refused its object."
    PREEMPTED = "preempted", "Its place was taken from it."
    NODE_LOST = "node_lost", "Its node is gone, or was given up."
    SPOT = "spot", "Its spot capacity was reclaimed."
    INFRASTRUCTURE = "infrastructure", "Its node could not go on with it, or the cluster does not say what happened."
    FLAVOR_GONE = "flavor_gone", "Its cluster did not offer its flavor any more when it was placed."
    NAME_TAKEN = "name_taken", "An object of its name exists there and is not ours."
    OBJECT_DELETED = "object_deleted", "Somebody deleted one of its objects on the cluster."
    DID_NOT_START = "did_not_start", "None of its pods started for a long time after its release."
    CANNOT_START = "cannot_start", "Its containers could not be started: the image, for instance, could not be had."
    CREATE_FAILED = "create_failed", "Its cluster answers, and failed again and again to create its objects."
    CLUSTER_DRAINING = "cluster_draining", "Its cluster is being emptied and it had not started."
    CLUSTER_LOST = "cluster_lost", "Its cluster fell silent before anything was started there."
    CLUSTER_DESTROYED = "cluster_destroyed", "An administrator attested that its cluster is destroyed."
    RUN_DEAD = "run_dead", "An administrator attested that nothing of it runs any more."


MEANINGS = {code.value: code.meaning for code in ReasonCode}
REASON_CODES = list(MEANINGS)


def meaning_of(code: str) -> str:
    """What a stored code means; nothing for none, and for one of an older release."""
    return MEANINGS.get(code, "")
