"""An independent judge of decisions: recomputes what they use from the snapshot alone, without any of the engine's arrays."""

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from fractions import Fraction

from placement.values.advance import AdvanceReservation
from placement.values.decisions import Decisions, Placement
from placement.values.model import FleetCluster, JobRequest, LimitState, PodSetRequest, Snapshot

POSITION = {"zone": 1, "block": 2, "rack": 3}


def check(snapshot: Snapshot, decisions: Decisions) -> None:
    """Fails if the decisions overbook, split or misplace anything, overstep a quota, or forget a job."""
    answered = [p.job_id for p in decisions.placements] + [w.job_id for w in decisions.waits]
    assert sorted(answered) == sorted(job.id for job in snapshot.queue)
    order = {job.id: n for n, job in enumerate(snapshot.queue)}
    assert [order[p.job_id] for p in decisions.placements] == sorted(order[p.job_id] for p in decisions.placements)
    jobs = {job.id: job for job in snapshot.queue}
    jobs |= {placed.job_id: as_placed(jobs[placed.job_id], placed) for placed in decisions.placements}
    clusters = {cluster.id: cluster for cluster in snapshot.clusters}
    for placement in decisions.placements:
        check_allowed(jobs[placement.job_id], clusters[placement.cluster_id], snapshot.now)
        check_policies(snapshot, jobs[placement.job_id], placement, clusters[placement.cluster_id])
        check_gang(jobs[placement.job_id], placement, clusters[placement.cluster_id])
        check_reserved(snapshot, jobs[placement.job_id], placement)
        check_maintenance(snapshot, jobs[placement.job_id], placement)
    check_nodes(snapshot, decisions, jobs)
    check_limits(snapshot, decisions, jobs)
    check_reserved_quota(snapshot, decisions, jobs)
    check_budgets(snapshot, decisions, jobs)


def as_placed(job: JobRequest, placement: Placement) -> JobRequest:
    """An elastic job with the pods that were placed, which it allows."""
    elastic = job.elastic
    if elastic is None:
        return job
    pods = sum(placement.pod_sets[elastic.position].nodes.values())
    assert elastic.fewest <= pods <= elastic.most
    sized = [replace(one, count=pods) if n == elastic.position else one for n, one in enumerate(job.pod_sets)]
    return replace(job, pod_sets=tuple(sized))


def check_allowed(job: JobRequest, cluster: FleetCluster, now: datetime) -> None:
    wanted = job.constraints
    assert cluster.state in ("ready", "degraded")
    assert (job.tenant_path + "/").startswith(cluster.owner_path + "/")
    assert not wanted.clusters or cluster.name in wanted.clusters
    assert cluster.name not in wanted.exclude_clusters
    assert not wanted.regions or any(fnmatchcase(cluster.region, pattern) for pattern in wanted.regions)
    waited = 0 if job.submitted_at is None else (now - job.submitted_at).total_seconds()
    reached = [tier for tier in wanted.overflow if tier.after_seconds <= waited]
    assert not wanted.overflow or any(
        (not tier.clusters or cluster.name in tier.clusters)
        and (not tier.regions or any(fnmatchcase(cluster.region, pattern) for pattern in tier.regions))
        for tier in reached
    )


def check_policies(snapshot: Snapshot, job: JobRequest, placement: Placement, cluster: FleetCluster) -> None:
    for policy in snapshot.policies:
        if not (job.tenant_path + "/").startswith(policy.tenant_path + "/"):
            continue
        assert not policy.clusters or any(fnmatchcase(cluster.name, pattern) for pattern in policy.clusters)
        assert not policy.regions or any(fnmatchcase(cluster.region, pattern) for pattern in policy.regions)
        for placed in placement.pod_sets:
            flavor = cluster.flavors[placed.flavor]
            assert not policy.capacity_types or flavor.capacity_type in policy.capacity_types
            assert not policy.flavors or any(fnmatchcase(flavor.name, pattern) for pattern in policy.flavors)


def check_reserved(snapshot: Snapshot, job: JobRequest, placement: Placement) -> None:
    """Two minutes are what it takes to hand a job over and to stop it."""
    used = {name for placed in placement.pod_sets for name in placed.nodes}
    seconds = float("inf") if job.deadline_seconds is None else job.deadline_seconds + 120
    for one in snapshot.reservations:
        if str(one.id) == job.constraints.reservation:
            assert (job.tenant_path + "/").startswith(one.tenant_path + "/")
            assert placement.cluster_id == one.cluster_id
            assert used <= set(one.nodes)
            assert one.starts_at <= snapshot.now
            assert seconds <= (one.until_at - snapshot.now).total_seconds()
        elif placement.cluster_id == one.cluster_id and used & set(one.nodes) and one.until_at > snapshot.now:
            assert seconds <= (one.starts_at - snapshot.now).total_seconds() or lends(one, seconds)
    named = {str(one.id) for one in snapshot.reservations}
    assert not job.constraints.reservation or job.constraints.reservation in named


def lends(one: AdvanceReservation, seconds: float) -> bool:
    """Whether it lends what is unused to jobs that end after these seconds."""
    return one.recall_seconds is not None and seconds <= one.recall_seconds


def check_reserved_quota(snapshot: Snapshot, decisions: Decisions, jobs) -> None:
    """At each start of a reservation that a job may still run at, and that lends it nothing, every plain ceiling leaves what is
    reserved then and not used by jobs of the reservations, beside what is held and what was placed up to this job.
    """
    for limit in snapshot.limits:
        alike = [one for one in snapshot.limits if (one.resource, one.clusters) == (limit.resource, limit.clusters)]
        if any(one.guaranteed for one in alike):
            continue
        for number, placement in enumerate(decisions.placements):
            job = jobs[placement.job_id]
            if not counts(limit, job.tenant_path, placement.cluster) or not placement.amounts.get(limit.resource):
                continue
            before = decisions.placements[: number + 1]
            seconds = float("inf") if job.deadline_seconds is None else job.deadline_seconds + 120
            kept = [
                one
                for one in snapshot.reservations
                if one.until_at > snapshot.now
                and (one.starts_at - snapshot.now).total_seconds() < seconds
                and str(one.id) != job.constraints.reservation
                and not lends(one, seconds)
                and counts(limit, one.tenant_path, one.cluster)
            ]
            taken = sum(
                each.amounts.get(limit.resource, 0)
                for each in before
                if counts(limit, jobs[each.job_id].tenant_path, each.cluster)
            )
            for at in {one.starts_at for one in kept}:
                together = [one for one in kept if one.starts_at <= at < one.until_at]
                unused = sum(unused_of(one, limit.resource, before, jobs) for one in together)
                assert not unused or limit.held + taken + unused <= limit.cap


def counts(limit: LimitState, tenant_path: str, cluster: str) -> bool:
    """Whether a limit counts what this tenant has on this cluster."""
    below = f"{tenant_path}/".startswith(f"{limit.tenant_path}/")
    return below and (not limit.clusters or cluster in limit.clusters)


def unused_of(one: AdvanceReservation, resource: str, placements, jobs) -> int:
    """What of its quota neither its running jobs hold nor these placements take."""
    taken = sum(
        each.amounts.get(resource, 0) for each in placements if jobs[each.job_id].constraints.reservation == str(one.id)
    )
    return max(0, dict(one.reserved).get(resource, 0) - dict(one.used).get(resource, 0) - taken)


def check_maintenance(snapshot: Snapshot, job: JobRequest, placement: Placement) -> None:
    """No run overlaps a window of its nodes, even if it takes as long as its deadline and two minutes allow."""
    used = {name for placed in placement.pod_sets for name in placed.nodes}
    seconds = float("inf") if job.deadline_seconds is None else job.deadline_seconds + 120
    for one in snapshot.windows:
        if placement.cluster_id == one.cluster_id and (one.is_whole or used & set(one.nodes)):
            ends_first = seconds <= (one.starts_at - snapshot.now).total_seconds()
            assert ends_first or one.until_at <= snapshot.now


def check_gang(job: JobRequest, placement: Placement, cluster: FleetCluster) -> None:
    nodes = {node.name: node for node in cluster.nodes}
    assert [placed.name for placed in placement.pod_sets] == [pod_set.name for pod_set in job.pod_sets]
    for pod_set, placed in zip(job.pod_sets, placement.pod_sets, strict=True):
        flavor = cluster.flavors[placed.flavor]
        assert sum(placed.nodes.values()) == pod_set.count
        assert all(count > 0 and nodes[name].is_usable for name, count in placed.nodes.items())
        takes = "" if pod_set.gpu is None else placed.flavor
        assert not any(takes in nodes[name].repels for name in placed.nodes)
        assert not job.constraints.capacity_types or flavor.capacity_type in job.constraints.capacity_types
        assert_served(pod_set, flavor)
        used = [nodes[name] for name in placed.nodes]
        level = job.topology.level
        if job.topology.mode == "required" and level in POSITION:
            paths = {(*node.domain, "", "", "")[: POSITION[level]] for node in used}
            assert len(used) == 1 or (len(paths) == 1 and next(iter(paths))[-1])
        if job.topology.mode == "required" and level == "clique":
            assert len(used) == 1 or (len({(node.domain, node.clique) for node in used}) == 1 and used[0].clique)
        if job.topology.mode == "required" and level == "node":
            assert len(used) == 1


def assert_served(pod_set: PodSetRequest, flavor) -> None:
    gpu = pod_set.gpu
    if gpu is None:
        return
    assert flavor.gpu_model
    assert not gpu.models or flavor.gpu_model in gpu.models
    kind = flavor.sharing.partition(":")[0]
    assert kind == ("mig" if gpu.mig else "timeslice" if gpu.fraction_milli else "whole")
    assert not gpu.mig or flavor.sharing == f"mig:{gpu.mig}"


def units_of(pod_set: PodSetRequest, flavor) -> int:
    gpu = pod_set.gpu
    if gpu is None:
        return 0
    if not gpu.fraction_milli:
        return gpu.count
    shares = int(flavor.sharing.partition(":")[2])
    return next(n for n in range(1, shares + 1) if n * 1000 >= gpu.fraction_milli * shares)


def check_nodes(snapshot: Snapshot, decisions: Decisions, jobs) -> None:
    used: Counter = Counter()
    flavors = {c.id: c.flavors for c in snapshot.clusters}
    for placement in decisions.placements:
        for pod_set, placed in zip(jobs[placement.job_id].pod_sets, placement.pod_sets, strict=True):
            for name, count in placed.nodes.items():
                where = (placement.cluster_id, name)
                used[*where, "cpu"] += pod_set.cpu_millicores * count
                used[*where, "memory"] += pod_set.memory_mib * count
                used[*where, "pods"] += count
                units = units_of(pod_set, flavors[placement.cluster_id][placed.flavor])
                used[*where, "units", placed.flavor] += units * count
    for cluster in snapshot.clusters:
        for node in cluster.nodes:
            where = (cluster.id, node.name)
            assert used[*where, "cpu"] <= node.free_cpu_millicores or not used[*where, "cpu"]
            assert used[*where, "memory"] <= node.free_memory_mib or not used[*where, "memory"]
            assert used[*where, "pods"] <= node.free_pods
            for flavor, free in node.free.items():
                assert used[*where, "units", flavor] <= free


def check_limits(snapshot: Snapshot, decisions: Decisions, jobs) -> None:
    for limit in snapshot.limits:
        rise = rise_at(limit, snapshot, decisions, jobs)
        assert not rise or limit.held + rise <= limit.cap


def rise_at(limit: LimitState, snapshot: Snapshot, decisions: Decisions, jobs) -> int:
    """What the decisions add there: all that is not below another limit of its kind, and the rise of what these claim."""
    alike = [one for one in snapshot.limits if (one.resource, one.clusters) == (limit.resource, limit.clusters)]
    below = [one for one in alike if one.tenant_path.startswith(f"{limit.tenant_path}/")]
    children = [one for one in below if not any(one.tenant_path.startswith(f"{other.tenant_path}/") for other in below)]
    own = sum(
        placement.amounts.get(limit.resource, 0)
        for placement in decisions.placements
        if (path := f"{jobs[placement.job_id].tenant_path}/").startswith(f"{limit.tenant_path}/")
        and (not limit.clusters or placement.cluster in limit.clusters)
        and not any(path.startswith(f"{child.tenant_path}/") for child in children)
    )
    for child in children:
        after = child.held + rise_at(child, snapshot, decisions, jobs)
        own += max(after, child.guaranteed) - max(child.held, child.guaranteed)
    return own


def check_budgets(snapshot: Snapshot, decisions: Decisions, jobs) -> None:
    """A job without a deadline counts as one of a day."""
    for budget in snapshot.budgets:
        for window in budget.windows:
            used = Fraction(0)
            for placement in decisions.placements:
                job = jobs[placement.job_id]
                if not (job.tenant_path + "/").startswith(budget.tenant_path + "/"):
                    continue
                end = snapshot.now + timedelta(seconds=job.deadline_seconds or 86_400)
                shared = min(end, window.ends_at) - max(snapshot.now, window.starts_at)
                hours = Fraction(max(0, int(shared.total_seconds())), 3600)
                gpus = Fraction(placement.amounts.get("gpu", 0), 1000)
                used += hours * (Fraction(placement.hourly_cost or 0) if budget.measure == "money" else gpus)
            assert not used or used <= window.limit - window.spent - window.held
