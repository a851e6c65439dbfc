"""A dataset that is copied between two storages of each cluster, jobs that wait for it, and people who change all that meanwhile."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from django.conf import settings

from clusters.models import Dataset, StagingPlan, Storage
from clusters.operations.datasets import Location, create_dataset
from clusters.operations.staging import Spot, WantedPlan, make_staging_plan, remove_staging_plan
from clusters.operations.storages import StorageChanges, WantedStorage, create_storage, update_storage
from devtools.simulation.core.faults import Faults
from devtools.simulation.judges.promises import judging
from devtools.simulation.setting.stage import CLUSTERS, stage_schedule
from federation.engine.objects.stage_jobs import STAGE_IN
from federation.models import DataWait
from federation.operations import cancel_stage_in, run_without_data, start_stage_in
from foundation.problems import Conflict, NotFound
from foundation.schedule import Schedule
from tenancy.queries import SYSTEM

from . import object_copies
from .administration import cluster_id
from .clients import Submission
from .image_pulls import PAUSE_SECONDS, left_behind

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

KIND = "staged"
IMAGE = "registry.example/busybox:1"
DATASET, SIZE = "imagenet", 2**40
STORAGES = (WantedStorage("archive", "archive", mode="read_only"), WantedStorage("fast", "fast", mode="read_write"))
WAITS = 0.7
"""The share of the jobs that want the dataset to be copied first."""
WITHIN_SECONDS = (5, 30, 300)
"""How long they wait for it at most."""
RESTED_SECONDS = (5.0, 40.0)
"""After which time what was changed is changed back."""


def configure(*, is_on: bool, is_stored: bool) -> None:
    """Whether this installation copies data, and whether from an object store."""
    settings.STAGE_IMAGE = IMAGE if is_on else ""
    object_copies.configure(is_on=is_on and is_stored)


def equip(seed: int, submissions: list[Submission]) -> None:
    """Lets most jobs want the dataset on their cluster."""
    chance = random.Random(f"{seed}/data copies")
    for one in submissions:
        if chance.random() < WAITS:
            one.body["data"] = [*one.body.get("data", ()), {"name": DATASET, "stage": True}]
            one.body["stage_within_seconds"] = chance.choice(WITHIN_SECONDS)


def begin(world: "World") -> None:
    """The dataset, its storages and its plans exist."""
    if KIND in world.faults.rates:
        world.wish("registers a dataset, storages and staging plans", _provide)


def _provide() -> None:
    if not Dataset.objects.filter(name=DATASET).exists():
        create_dataset(SYSTEM, "acme", DATASET, size_bytes=SIZE, locations=[Location(region="elsewhere")])
    archive = object_copies.STORE if settings.OBJECT_STAGE_IMAGE else STORAGES[0]
    for name in CLUSTERS:
        for storage in (archive, *STORAGES[1:]):
            _try(lambda name=name, storage=storage: create_storage(SYSTEM, cluster_id(name), storage))  # type: ignore[misc]
        _try(lambda name=name: _make(name))  # type: ignore[misc]


def _try(act: Callable[[], object]) -> None:
    try:
        act()
    except (Conflict, NotFound):
        return  # it is there, or the cluster was removed


def _make(cluster: str) -> None:
    dataset = Dataset.objects.get(name=DATASET)
    spots = Spot("archive", "in/imagenet"), Spot("fast", "out/imagenet")
    if StagingPlan.objects.filter(dataset=dataset, cluster__name=cluster, cluster__removed_at=None).exists():
        return
    if Storage.objects.filter(cluster_id=cluster_id(cluster)).count() >= len(STORAGES):
        make_staging_plan(SYSTEM, dataset.id, WantedPlan(cluster, *spots))


def added(schedules: list[Schedule], faults: Faults) -> list[Schedule]:
    """The routines, with that of copies where there are some."""
    return [*schedules, replace(stage_schedule(), every_seconds=PAUSE_SECONDS)] if KIND in faults.rates else schedules


def befall(world: "World") -> None:
    """Somebody stops a copy, starts it, removes its plan or makes its storage read-only for a while, or lets a job run without it."""
    faults = world.faults
    cluster = CLUSTERS[faults.choose(CLUSTERS)]
    told, act, back = DOINGS[faults.choose(DOINGS)]
    world.wish(f"{told} ({cluster})", lambda: act(cluster))
    if back is not None:
        after = faults.between(*RESTED_SECONDS)
        world.scheduler.after(after, lambda: world.wish(f"changes that back ({cluster})", lambda: back(cluster)))


def _plan_of(cluster: str) -> tuple[UUID, UUID]:
    row = StagingPlan.objects.filter(cluster__name=cluster, cluster__removed_at=None).order_by("id").first()
    if row is None:
        raise NotFound
    return row.dataset_id, row.id


def _set_mode(cluster: str, mode: str) -> None:
    row = Storage.objects.filter(cluster__name=cluster, cluster__removed_at=None, name="fast").order_by("id").first()
    if row is None:
        raise NotFound
    update_storage(SYSTEM, row.cluster_id, row.id, StorageChanges(mode=mode))


def _run_without(_cluster: str) -> None:
    waits = DataWait.objects.filter(ended_at=None, job__state="queued").order_by("id")
    for job_id in waits.values_list("job_id", flat=True)[:1]:
        run_without_data(SYSTEM, job_id)


DOINGS: tuple[tuple[str, Callable[[str], object], Callable[[str], object] | None], ...] = (
    ("stops a copy", lambda at: cancel_stage_in(SYSTEM, *_plan_of(at)), lambda at: start_stage_in(SYSTEM, *_plan_of(at))),
    ("starts a copy", lambda at: start_stage_in(SYSTEM, *_plan_of(at)), None),
    ("removes a staging plan", lambda at: remove_staging_plan(SYSTEM, *_plan_of(at)), lambda _: _provide()),
    ("makes a storage read-only", lambda at: _set_mode(at, "read_only"), lambda at: _set_mode(at, "read_write")),
    ("lets a job run without its data", _run_without, None),
    ("lets a job run without its data", _run_without, None),
)  # fmt: skip


def heal(world: "World") -> None:
    """What was taken away is there again, so that copies that jobs wait for may end."""
    if KIND in world.faults.rates:
        world.wish("makes all storages writable", _make_writable)


def _make_writable() -> None:
    for name in CLUSTERS:
        _try(lambda name=name: _set_mode(name, "read_write"))  # type: ignore[misc]


def are_over(world: "World") -> bool:
    """Whether no copy is under way, and no job waits for one, as far as clusters can be reached."""
    return KIND not in world.faults.rates or not (world.watch.rows(LIVE) or left_behind(world, STAGE_IN))


LIVE = """
SELECT 'the copy ' || object_id FROM federation_stagein WHERE slot IS NOT NULL
 UNION ALL
SELECT 'the wait of job ' || job_id FROM federation_datawait WHERE ended_at IS NULL
 UNION ALL
SELECT 'the hold of the wait of job ' || wait.job_id
  FROM federation_datawait AS wait JOIN quotas_hold AS hold ON hold.holder_id = wait.id WHERE hold.state = 'pending'
 ORDER BY 1
"""


@judging
def copies_of_data_leave_nothing_behind(world: "World") -> list[str]:
    """In the healed world no copy is under way, no job waits for data, and no quota is held for that."""
    if KIND not in world.faults.rates:
        return []
    return [
        *(f"{name} still has the Job {job.name} of a copy" for name, job in left_behind(world, STAGE_IN)),
        *(f"{what} has not ended" for (what,) in world.watch.rows(LIVE)),
    ]


@judging
def data_counts_as_copied_only_where_it_was(world: "World") -> list[str]:
    """Each replica was recorded for a Job, by its uid, whose program had copied to its end."""
    copied = {uid for cluster in [*world.clusters.values(), *world.removed] for uid in cluster.copied}
    return [
        f"plan {plan} has a replica by the Job {uid!r}, which copied nothing"
        for plan, uid in world.watch.rows(REPLICAS)
        if uid not in copied
    ]


REPLICAS = "SELECT id, after FROM simulation.changes WHERE what = 'replica' ORDER BY number"
BLURRED = ("freeze", "late", "clock_jumps", "clocks_differ", "database_restored")
"""With one of these, much may change between a cycle's reading and its writing."""


@judging
def no_job_starts_before_its_data(world: "World") -> list[str]:
    """When an attempt was placed, what its job wants to be copied was there; or it has no staging plan on its cluster, the plan's
    target was read-only, its copy had failed for good, was stopped or lacked its access key, the job had waited for as long as it wanted, or somebody let
    it run without; or nodes were kept for it, because others were stopped or moved for it, or it was moved itself.
    """
    if world.lost_commits.spans or any(world.faults.happened[kind] for kind in BLURRED):
        return []
    return [
        f"attempt {attempt} of job {job} was placed before its data was there"
        for attempt, job in world.watch.rows(TOO_EARLY)
    ]


TOO_EARLY = "SELECT id, after FROM simulation.changes WHERE what = 'unstaged' AND before IS NULL ORDER BY number"
EVENTS: dict[str, Callable[["World"], None]] = {KIND: befall}
"""By the kind of fault."""
