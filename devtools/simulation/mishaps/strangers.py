"""What others do on the clusters: they plant Jobs, copy ours, and Kueue suspends and resumes ours."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django.conf import settings

from clusters.engine.inventory import INSTALL_LABEL
from devtools.simulation.clusters.cluster import EXIT_CODE, RUN_SECONDS, Cluster
from devtools.simulation.clusters.objects import GPU, Job
from devtools.simulation.requests import administration
from devtools.simulation.setting.stage import CLUSTERS
from federation.engine.names import LABEL_ATTEMPT

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

AWAITED = """
SELECT cluster.name, attempt.namespace, object.name FROM federation_remoteobject AS object
  JOIN federation_attempt AS attempt ON attempt.id = object.attempt_id
  JOIN clusters_cluster AS cluster ON cluster.id = attempt.cluster_id
 WHERE object.uid = '' AND attempt.finished_at IS NULL ORDER BY object.id LIMIT 1
"""
ORPHANS = 25
PRODUCTS = ("NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-80GB")


def plant(world: "World") -> None:
    """A Job that is not ours: somewhere, in a tenant's namespace, with another installation's label, or with the name
    that one of ours is about to get.
    """
    cluster = _cluster(world)
    ours = sorted(cluster.namespaces - {"default", "kube-system"})
    how = world.faults.choose(range(4))
    namespace, name, labels = "default", f"stranger-{len(cluster.strangers)}", {"app": "stranger"}
    if how == 1 and ours:
        namespace = ours[world.faults.choose(ours)]
    elif how == 2:
        labels = {INSTALL_LABEL: "another-installation"}
    elif how == 3:
        awaited = world.watch.rows(AWAITED)
        if awaited:
            cluster = world.clusters[awaited[0][0]]
            namespace, name = awaited[0][1], awaited[0][2]
    if (namespace, name) in cluster.jobs:
        return
    cluster.namespaces.add(namespace)
    world.tell("stranger", f"plants {namespace}/{name} on {cluster.name}")
    cluster.create_job(_manifest(namespace, name, labels, str(world.faults.choose(range(60)) + 1)))
    cluster.strangers.append((namespace, name))
    cluster.names_taken.add((namespace, name))


def copy_ours(world: "World") -> None:
    """A Job with another name and all the labels of one of ours, which runs."""
    cluster = _cluster(world)
    job = _ours(world, cluster)
    if job is None or (job.namespace, f"{job.name}-copy") in cluster.jobs:
        return
    world.tell("stranger", f"copies {job.name} on {cluster.name}")
    manifest = _manifest(job.namespace, f"{job.name}-copy", job.labels, "20") | {"spec": {"suspend": True}}
    manifest["spec"]["template"] = job.template
    uid = cluster.create_job(manifest)
    cluster.copies.add(uid)
    cluster.release_job(job.namespace, f"{job.name}-copy", uid, {})


def plant_orphans(world: "World") -> None:
    """More suspended Jobs of unknown attempts with our label than the gateway dares to delete."""
    cluster = world.clusters[_cluster(world).name]
    world.tell("stranger", f"plants {ORPHANS} Jobs with our label on {cluster.name}")
    for _ in range(ORPHANS):
        attempt = cluster.new_uid()
        labels = {INSTALL_LABEL: settings.INSTALL_ID, LABEL_ATTEMPT: attempt}
        manifest = _manifest("default", f"orphan-{attempt}", labels, "1")
        manifest["spec"]["suspend"] = True
        uid = cluster.create_job(manifest)
        cluster.copies.add(uid)
        cluster.orphans.add(uid)


def empty(world: "World") -> None:
    """The control plane of the cluster with most of our Jobs is put back to its beginning: every Job is gone. An operator
    attests that later.
    """
    drawn = _cluster(world)
    cluster = max((world.clusters[name] for name in CLUSTERS), key=lambda one: (_begun(one), one is drawn))
    cluster.restore(({"default", "kube-system"}, {}, {}, {}))

    def attest() -> None:
        world.vanished.add(cluster.name)
        administration.attest_vanished(world, cluster.name)

    world.scheduler.after(world.faults.between(30, 150), attest)


def kueue_reclaims(world: "World") -> None:
    """Kueue takes the quota of one of our running Jobs away for a while."""
    cluster = world.clusters[CLUSTERS[1]]
    job = _ours(world, cluster)
    if not cluster.has_kueue or job is None or job.suspended or job.outcome or job.is_terminating:
        return
    cluster.suspend(job)
    world.scheduler.after(world.faults.between(5, 60), lambda: cluster.resume(job.key))


def rename_flavor(world: "World") -> None:
    """The device plugin of a cluster calls the devices by another model's name, so its flavor is another one."""
    cluster = world.clusters[_cluster(world).name]
    products = {node.product for node in cluster.nodes.values()}
    cluster.rename_product(PRODUCTS[PRODUCTS[0] in products])


def _cluster(world: "World") -> Cluster:
    return world.clusters[CLUSTERS[world.faults.choose(CLUSTERS)]]


def _begun(cluster: Cluster) -> int:
    """How many Jobs of ours were released there and have not ended."""
    return sum(INSTALL_LABEL in job.labels and not job.suspended and not job.outcome for job in cluster.jobs.values())


def _ours(world: "World", cluster: Cluster) -> Job | None:
    ours = [job for job in cluster.jobs.values() if INSTALL_LABEL in job.labels and job.key not in cluster.strangers]
    jobs = [job for job in ours if job.uid not in cluster.copies]
    return jobs[world.faults.choose(jobs)] if jobs else None


def _manifest(namespace: str, name: str, labels: dict[str, str], seconds: str) -> dict[str, Any]:
    """A Job with one pod on one GPU."""
    container = {"name": "main", "resources": {"requests": {GPU: "1"}}}
    template = {
        "metadata": {"labels": labels, "annotations": {RUN_SECONDS: seconds, EXIT_CODE: "0"}},
        "spec": {"containers": [container]},
    }
    return {"metadata": {"namespace": namespace, "name": name, "labels": labels}, "spec": {"template": template}}


EVENTS: dict[str, Callable[["World"], None]] = {
    "stranger_plants": plant,
    "stranger_copies": copy_ours,
    "kueue_reclaims": kueue_reclaims,
    "flavor_renamed": rename_flavor,
    "orphans_planted": plant_orphans,
    "emptied": empty,
}
"""By the kind of fault."""
