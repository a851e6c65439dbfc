"""All reasons: of a job, of a job on a cluster, and of the end of an attempt. Codes never change.

The code that writes reasons, the API's schema, the pages and docs/reference/reasons.md share this list. Tests check
that the document matches it and that some code writes each reason.
"""

from enum import StrEnum
from typing import Self


class ReasonCode(StrEnum):
    """A code for programs, with its meaning in one line for users."""

    meaning: str

    def __new__(cls, code: str, meaning: str) -> Self:
        member = str.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    # of a job
    NEW = "new", "No scheduling cycle has considered it yet."
    WAITING_FOR_CAPACITY = "waiting_for_capacity", "No allowed cluster has room for it now."
    WAITING_FOR_QUOTA = "waiting_for_quota", "A quota limit on its tenant's path does not leave enough."
    WAITING_FOR_USER_LIMIT = (
        "waiting_for_user_limit",
        "Its user holds as much as each user may on its tenant's path.",
    )
    WAITING_FOR_CLASS_LIMIT = "waiting_for_class_limit", "The jobs of its priority class hold as much as they may."
    WAITING_FOR_DATA = (
        "waiting_for_data",
        "Its data is being copied to the cluster that it was promised; it holds quota and no GPUs meanwhile.",
    )
    WAITING_FOR_BUDGET = "waiting_for_budget", "A budget on its tenant's path does not leave enough."
    BEHIND_IN_QUEUE = "behind_in_queue", "Jobs ahead of it took the free room."
    WAITING_FOR_SHARE = "waiting_for_share", "Its room went to a tenant with less share, whose turn came first."
    RESERVED_FOR_GANG = "reserved_for_gang", "The room is kept for a large job that has waited longer."
    KEPT_FOR_RESERVATION = "kept_for_reservation", "The room is kept for advance reservations."
    KEPT_FOR_URGENT = "kept_for_urgent", "The room is kept for a job for which others are being stopped."
    WAITING_FOR_PREEMPTION = (
        "waiting_for_preemption",
        "Less urgent jobs, or jobs that borrowed its quota, are being stopped for it, and nodes are kept for it.",
    )
    WAITING_FOR_CONSOLIDATION = (
        "waiting_for_consolidation",
        "Running jobs are moved to other nodes, so that a larger job fits, and nodes are kept for it.",
    )
    MAINTENANCE = "maintenance", "The room is in maintenance, or will be before the job is sure to have ended."
    WAITING_FOR_RESERVATION = "waiting_for_reservation", "The reservation that it names has not begun."
    RESERVATION_FULL = "reservation_full", "The reservation that it names has no room left."
    RESERVATION_TOO_SHORT = "reservation_too_short", "It could run past the end of the reservation that it names."
    RESERVATION_OVER = "reservation_over", "The reservation that it names has ended or was cancelled."
    CLUSTERS_UNREACHABLE = "clusters_unreachable", "The clusters it could run on, or runs on, do not answer."
    HELD_BY_POLICY = "held_by_policy", "It could run only where a policy does not allow it."
    DISPATCHING = "dispatching", "It is placed and being handed to its cluster."
    WAITING_ON_CLUSTER = (
        "waiting_on_cluster",
        "Its pods exist but have not started; the message is the cluster's own.",
    )
    RUNS_IN_PART = (
        "runs_in_part",
        "Some of its pods run and others have no node; the message has both, and the cluster's own words.",
    )
    ATTEMPT_RETURNED = "attempt_returned", "Its last attempt did not run to its end; it waits for a new placement."
    INTERRUPTED = "interrupted", "Its attempt was interrupted; it continues when that attempt's objects are removed."
    CANCELLING = "cancelling", "A user cancelled it; its cluster has not confirmed yet."
    SUSPENDING = "suspending", "A user suspended it; its cluster has not confirmed yet that its attempt is stopped."
    SUSPENDED = "suspended", "A user suspended it. It waits until a user resumes it."
    RESUMED = "resumed", "A user resumed it; it waits for a new placement."
    # of a job on one cluster
    CLUSTER_EXCLUDED = "cluster_excluded", "The job's constraints exclude the cluster."
    REGION_EXCLUDED = "region_excluded", "The job's regions do not match the cluster's."
    CAPACITY_TYPE_EXCLUDED = (
        "capacity_type_excluded",
        "The devices are there, but not with the requested capacity type.",
    )
    STORAGE_MISSING = "storage_missing", "The cluster has no storage of that name that the job's tenant may mount."
    NETWORK_MISSING = "network_missing", "The cluster has no network of that name that the job's tenant may use."
    SIDECARS_MISSING = "sidecars_missing", "The cluster's Kubernetes is too old for the job's sidecars."
    IMAGE_VOLUMES_MISSING = (
        "image_volumes_missing",
        "The cluster's Kubernetes is too old to mount the images among the job's storages.",
    )
    SECRET_MISSING = "secret_missing", "The job's tenant has no secret of that name."
    TIER_NOT_REACHED = "tier_not_reached", "A later tier of the job's overflow opens it."
    EXCLUDED_BY_POLICY = "excluded_by_policy", "A policy excludes the cluster or its flavors."
    NO_SUCH_MODEL = "no_such_model", "The cluster has no such devices."
    NOT_PLACEABLE = "not_placeable", "It has such devices, but jobs cannot be started on them."
    GPU_MEMORY_TOO_SMALL = "gpu_memory_too_small", "Its GPUs have less memory than the job needs."
    GPU_ARCHITECTURE_EXCLUDED = "gpu_architecture_excluded", "Its GPUs are of another architecture."
    GPU_COMPUTE_TOO_LOW = "gpu_compute_too_low", "The compute capability of its GPUs is too low."
    GPU_DRIVER_TOO_OLD = "gpu_driver_too_old", "The driver of its GPUs is too old."
    GPU_CUDA_TOO_OLD = "gpu_cuda_too_old", "The driver of its GPUs supports only an older CUDA version."
    GPU_FACT_UNKNOWN = "gpu_fact_unknown", "Nothing reports whether its GPUs are what the job needs."
    NO_SUCH_RESOURCE = "no_such_resource", "None of its nodes has a resource that the job requests."
    NEVER_FITS = "never_fits", "No node is large enough, even when empty."
    NOT_ENOUGH_FREE = "not_enough_free", "Too little is free now."
    FRAGMENTED = "fragmented", "Enough is free in total, but not in pieces that fit its pods."
    TAINTED = "tainted", "Every usable node has a taint that its pods do not tolerate."
    TOPOLOGY_NOT_MET = "topology_not_met", "There is no room inside one domain of the required level."
    QUOTA_REACHED = "quota_reached", "It would fit, but a quota limit does not leave enough."
    USER_LIMIT_REACHED = "user_limit_reached", "It would fit, but its user holds as much as each user may."
    CLASS_LIMIT_REACHED = (
        "class_limit_reached",
        "It would fit, but the jobs of its priority class hold as much as they may.",
    )
    BUDGET_REACHED = "budget_reached", "It would fit, but a budget does not leave enough."
    LATELY_FAILED = "lately_failed", "It recently could not start the job."
    AVOIDED_BY_RULE = "avoided_by_rule", "A failure rule makes the job avoid it for a while."
    RETRIES_WAIT = "retries_wait", "Too many attempts failed there because of the infrastructure: retries wait."
    LATELY_INTERRUPTED = "lately_interrupted", "It recently interrupted the job."
    MOVED_AWAY = "moved_away", "The job was moved away from it a few minutes ago."
    MOVED_ELSEWHERE = "moved_elsewhere", "A user moved the job to other clusters a few minutes ago, by name."
    OUTSIDE_RESERVATION = "outside_reservation", "The reservation that the job names is on another cluster."
    CORDONED = "cordoned", "An administrator has closed it to new work."
    DRAINING = "draining", "It is being drained."
    UNREACHABLE = "unreachable", "It does not answer."
    AUTH_FAILED = "auth_failed", "It refuses the gateway's credential."
    STALE = "stale", "It was last observed too long ago."
    # of the end of an attempt, and of a job that ended with it
    COMPLETED = "completed", "All its objects succeeded."
    ARTIFACTS_MISSING = (
        "artifacts_missing",
        "Its program succeeded, but did not announce an artifact that the job requires.",
    )
    PROGRAM_FAILED = "program_failed", "A pod ended with an exit code other than 0."
    JOB_FAILED = "job_failed", "Its object failed; no pod reported an exit code."
    CANCELLED = "cancelled", "A user cancelled the job."
    SESSION_IDLE = "session_idle", "No request reached its session for the time that it allows."
    REFUSED_BY_CLUSTER = "refused_by_cluster", "The cluster's API server refused its object."
    PREEMPTED = "preempted", "Its pods were preempted or evicted."
    PREEMPTED_FOR_JOB = (
        "preempted_for_job",
        "It was stopped for a more urgent job of its organisation, or for one whose quota it had borrowed.",
    )
    LIMIT_LOWERED = "limit_lowered", "A limit of its tenant, or of one above, was lowered below what was held there."
    MIGRATED = "migrated", "A user, or the gateway, moved the job to another cluster."
    NODE_LOST = "node_lost", "Its node is gone or was given up."
    SPOT = "spot", "Its spot capacity was reclaimed."
    INFRASTRUCTURE = (
        "infrastructure",
        "Its node could not continue to run it, or the cluster does not report the cause.",
    )
    FLAVOR_GONE = "flavor_gone", "Its cluster no longer offered its flavor when it was placed."
    SECRET_CHANGED = (
        "secret_changed",
        "A secret that it uses was changed or deleted before it was created on its cluster.",
    )
    NAME_TAKEN = "name_taken", "An object with its name exists there and does not belong to Switchyard."
    OBJECT_DELETED = "object_deleted", "One of its objects was deleted on the cluster."
    DID_NOT_START = "did_not_start", "None of its pods started for a long time after its release."
    STARTED_IN_PART = (
        "started_in_part",
        "Only a part of its pods started; the others had no node for a long time, because others took the room.",
    )
    BLOCKED_IN_PART = (
        "blocked_in_part",
        "Only a part of its pods started; the others had no node for a long time, for another cause than a lack of room.",
    )
    PODS_GONE = "pods_gone", "It ran, and then had no pods for a long time although its object still existed."
    CANNOT_START = "cannot_start", "Its containers could not start, for example because the image is not available."
    CREATE_FAILED = "create_failed", "Its cluster answers but repeatedly failed to create its objects."
    SERVICES_CLOSED = (
        "services_closed",
        "Its cluster does not let the gateway make the Service by which the pods of a gang find each other.",
    )
    CLUSTER_DRAINING = "cluster_draining", "Its cluster is being drained and it had not started."
    MAINTENANCE_AHEAD = (
        "maintenance_ahead",
        "It had not started, and it could have run into maintenance where it was placed.",
    )
    MAINTENANCE_BEGAN = "maintenance_began", "Maintenance that stops jobs began where it ran."
    CLUSTER_LOST = "cluster_lost", "Its cluster stopped answering before anything was started there."
    CLUSTER_DESTROYED = "cluster_destroyed", "An administrator attested that its cluster is destroyed."
    RUN_DEAD = "run_dead", "An administrator attested that no part of it still runs."


MEANINGS = {code.value: code.meaning for code in ReasonCode}
REASON_CODES = list(MEANINGS)


def meaning_of(code: str) -> str:
    """The meaning of a stored code; empty without a code, and for a code of an older release."""
    return MEANINGS.get(code, "")
