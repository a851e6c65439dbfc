"""Images that operators have pulled to nodes: policies are made, changed, paused, tried again and removed while pulls are under way."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from clusters.engine.inventory import INSTALL_LABEL
from devtools.simulation.clusters.objects import Job
from devtools.simulation.core.faults import Faults
from devtools.simulation.judges.promises import judging
from devtools.simulation.setting.stage import CLUSTERS, image_schedule
from federation.engine.names import LABEL_PREPARATION
from federation.engine.objects.prepull_jobs import PREPULL
from federation.models import PrepullPolicy
from federation.operations.prepull_policies import (
    PolicyChanges,
    WantedPolicy,
    change_prepull_policy,
    make_prepull_policy,
    remove_prepull_policy,
    retry_prepulls,
)
from foundation.problems import NotFound
from foundation.schedule import Schedule
from tenancy.queries import SYSTEM

from .administration import cluster_id

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

KIND = "prepulled"
IMAGES = ("registry.example/train:1", "registry.example/serve:1", "registry.example/wrong:1")
NAMES = ("warm", "cold")
PAUSE_SECONDS = 6.0
"""As often as the routine looks; a real gateway's looks every five seconds."""


def added(schedules: list[Schedule], faults: Faults) -> list[Schedule]:
    """The routines, with that of pulls where there are some."""
    return [*schedules, replace(image_schedule(), every_seconds=PAUSE_SECONDS)] if KIND in faults.rates else schedules


def befall(world: "World") -> None:
    """Somebody makes a policy, and changes, pauses, retries or removes it later."""
    faults = world.faults
    cluster, name = CLUSTERS[faults.choose(CLUSTERS)], NAMES[faults.choose(NAMES)]
    images = IMAGES[: 1 + faults.choose(IMAGES)]
    wanted = WantedPolicy(name, images, at_once=1 + faults.choose(range(3)))
    world.wish(f"has {len(images)} images pulled to {cluster}", lambda: _make(cluster, wanted))
    how = faults.choose(LATER)
    later, act = LATER[how]
    world.scheduler.after(
        faults.between(2, 40), lambda: world.wish(f"{later} on {cluster}", lambda: _with(cluster, name, act))
    )


def _make(cluster: str, wanted: WantedPolicy) -> None:
    make_prepull_policy(SYSTEM, cluster_id(cluster), wanted)


def _with(cluster: str, name: str, act: Callable[[UUID, UUID], object]) -> None:
    row = PrepullPolicy.objects.filter(cluster__name=cluster, name=name, removed_at=None).order_by("id").first()
    if row is None:
        raise NotFound
    act(row.cluster_id, row.id)


LATER: tuple[tuple[str, Callable[[UUID, UUID], object]], ...] = (
    ("pulls another image", lambda at, id_: change_prepull_policy(SYSTEM, at, id_, PolicyChanges(images=IMAGES[1:]))),
    ("pauses pulls", lambda at, id_: change_prepull_policy(SYSTEM, at, id_, PolicyChanges(is_paused=True))),
    ("tries pulls again", lambda at, id_: retry_prepulls(SYSTEM, at, id_)),
    ("removes a policy of pulls", lambda at, id_: remove_prepull_policy(SYSTEM, at, id_)),
)


def heal(world: "World") -> None:
    """All policies are removed: pulls that are under way are stopped."""
    if KIND in world.faults.rates:
        world.wish("removes all policies of pulls", _remove_all)


def _remove_all() -> None:
    for row in PrepullPolicy.objects.filter(removed_at=None, cluster__removed_at=None).order_by("id"):
        remove_prepull_policy(SYSTEM, row.cluster_id, row.id)


def are_over(world: "World") -> bool:
    """Whether nothing of a pull is left, as far as clusters can be reached."""
    return KIND not in world.faults.rates or not (_standing(world) or left_behind(world, PREPULL))


def _standing(world: "World") -> list[str]:
    """The clusters with policies."""
    names = [name for (name,) in world.watch.rows(STANDING)]
    return [name for name in names if not world.links[name].is_destroyed]


def left_behind(world: "World", what: str) -> list[tuple[str, Job]]:
    """Our Jobs on clusters that prepare them so, without those that strangers copied or cut our label from."""
    gone = {name for (name,) in world.watch.rows(GONE)}
    return [
        (cluster.name, job)
        for cluster in world.clusters.values()
        if cluster.name not in gone and not world.links[cluster.name].is_destroyed
        for job in cluster.jobs.values()
        if job.labels.get(LABEL_PREPARATION) == what and INSTALL_LABEL in job.labels and job.uid not in cluster.copies
    ]


STANDING = """
SELECT DISTINCT cluster.name FROM federation_prepullpolicy AS policy
  JOIN clusters_cluster AS cluster ON cluster.id = policy.cluster_id WHERE cluster.removed_at IS NULL ORDER BY 1
"""
GONE = """
SELECT name FROM clusters_cluster GROUP BY name HAVING bool_and(removed_at IS NOT NULL)
"""


@judging
def pulls_of_images_leave_nothing_behind(world: "World") -> list[str]:
    """When all policies are removed and every cluster answers, no object of a pull is left, and no policy."""
    if KIND not in world.faults.rates:
        return []
    return [f"{name} still has the Job {job.name} of a pull" for name, job in left_behind(world, PREPULL)] + [
        f"a policy of {name} was removed and is still there" for name in _standing(world)
    ]


@judging
def an_image_counts_as_pulled_only_where_it_was(world: "World") -> list[str]:
    """Each pull that the gateway noted as done had brought its image to that node."""
    pulled = {one for cluster in [*world.clusters.values(), *world.removed] for one in cluster.pulled}
    return [
        f"{image} counts as pulled to {node} of {cluster}, where it was not"
        for cluster, image, node in world.watch.rows(PULLED)
        if (cluster, image, node) not in pulled
    ]


PULLED = """
SELECT cluster.name, split_part(change.after, ' ', 1), split_part(change.after, ' ', 2) FROM simulation.changes AS change
  JOIN clusters_cluster AS cluster ON cluster.id::text = change.id WHERE change.what = 'pull' ORDER BY change.number
"""
EVENTS: dict[str, Callable[["World"], None]] = {KIND: befall}
"""By the kind of fault."""
