"""Which clusters a job's constraints allow, and from when on: overflow opens its tiers one after the other."""

from dataclasses import replace
from datetime import datetime
from fnmatch import fnmatchcase

from placement.values.model import Constraints, FleetCluster, JobRequest, Tier
from placement.values.quantities import duration_text
from placement.values.reason_codes import ReasonCode
from placement.values.storages import StorageNeed

NOT_REACHED = ReasonCode.TIER_NOT_REACHED
OUTSIDE, ELSEWHERE = ReasonCode.OUTSIDE_RESERVATION, "the reservation that the job names is on another cluster"


def as_of(job: JobRequest, now: datetime) -> JobRequest:
    """The job with the tiers that it has reached by waiting; jobs that have reached different tiers differ in shape.

    A job that was not submitted has not waited. A job without tiers, or with counted tiers, is returned unchanged.
    """
    tiers = job.constraints.overflow
    if not tiers or job.constraints.tiers_reached is not None:
        return job
    # clocks may disagree, but no waiting time is negative
    waited = 0.0 if job.submitted_at is None else max(0.0, (now - job.submitted_at).total_seconds())
    reached = sum(tier.after_seconds <= waited for tier in tiers)
    constraints = replace(job.constraints, tiers_reached=reached)
    return replace(job, constraints=constraints, shape=f"{job.shape} reached {reached}" if job.shape else "")


def exclusion(constraints: Constraints, cluster: FleetCluster) -> str:
    """The code of the constraint or refusal that excludes the whole cluster, or an empty string."""
    if constraints.reserved_on is not None and cluster.id != constraints.reserved_on:
        return OUTSIDE
    is_left_out = bool(constraints.clusters) and cluster.name not in constraints.clusters
    if is_left_out or cluster.name in constraints.exclude_clusters:
        return ReasonCode.CLUSTER_EXCLUDED
    if constraints.regions and not _is_in(cluster.region, constraints.regions):
        return ReasonCode.REGION_EXCLUDED
    if closed := _lacking(constraints, cluster) or _not_opened(constraints, cluster):
        return closed
    return next((refusal.code for refusal in constraints.refusals if refusal.cluster_id == cluster.id), "")


def _lacking(constraints: Constraints, cluster: FleetCluster) -> str:
    if constraints.lacks_secret:
        return ReasonCode.SECRET_MISSING
    if constraints.needs_sidecars and not cluster.has_sidecars:
        return ReasonCode.SIDECARS_MISSING
    if missing_storage(constraints, cluster) is not None:
        return ReasonCode.STORAGE_MISSING
    if not cluster.has_image_volumes and image_on(constraints, cluster):
        return ReasonCode.IMAGE_VOLUMES_MISSING
    return ReasonCode.NETWORK_MISSING if missing_network(constraints, cluster) else ""


def missing_storage(constraints: Constraints, cluster: FleetCluster) -> StorageNeed | None:
    """The first storage that the job mounts and cannot have on the cluster; None if it can have all."""
    return next((need for need in constraints.storages if cluster.id not in need.clusters), None)


def image_on(constraints: Constraints, cluster: FleetCluster) -> str:
    """The name of the first storage of the job that is an image on the cluster; empty if none is."""
    return next((need.name for need in constraints.storages if cluster.id in need.as_image), "")


def missing_network(constraints: Constraints, cluster: FleetCluster) -> str:
    """The name of the first network that the job uses and cannot have on the cluster; empty if it can have all."""
    return next((need.name for need in constraints.networks if cluster.id not in need.clusters), "")


def _not_opened(constraints: Constraints, cluster: FleetCluster) -> str:
    if not constraints.overflow:
        return ""
    number = tier_of(constraints, cluster)
    if number is None:
        return ReasonCode.CLUSTER_EXCLUDED
    is_reached = constraints.tiers_reached is None or number < constraints.tiers_reached
    return "" if is_reached else NOT_REACHED


def tier_of(constraints: Constraints, cluster: FleetCluster) -> int | None:
    """The number of the first tier that opens the cluster; None if none does."""
    return next((number for number, tier in enumerate(constraints.overflow) if _opens(tier, cluster)), None)


def next_opening(constraints: Constraints) -> str:
    """When the next tier opens, as text for users; empty if none is left."""
    reached = constraints.tiers_reached
    if reached is None or reached >= len(constraints.overflow):
        return ""
    return f"its next overflow tier opens {opening(constraints.overflow[reached])}"


def opening(tier: Tier) -> str:
    """When a tier opens, with the same text for every job of a shape."""
    return f"once it has waited {duration_text(tier.after_seconds)}"


def _opens(tier: Tier, cluster: FleetCluster) -> bool:
    if tier.clusters and cluster.name not in tier.clusters:
        return False
    return not tier.regions or _is_in(cluster.region, tier.regions)


def _is_in(region: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(region, pattern) for pattern in patterns)
