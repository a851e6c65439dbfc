"""Datasets that are copied from an object store: its access key is replaced, deleted or cannot be opened for a while, and its bucket moves."""

from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from django.conf import settings

from clusters.engine.secrets import Kind, access_key
from clusters.engine.storages import Kind as StorageKind
from clusters.models import Storage
from clusters.operations.secrets import NewValue, delete_secret, put_secret
from clusters.operations.storages import StorageChanges, WantedStorage, update_storage
from devtools.simulation.setting.stage import CLUSTERS
from foundation.problems import NotFound
from tenancy.models import Tenant
from tenancy.queries import SYSTEM

from .supplies import OTHER_RING, RING

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

KIND = "stored"
IMAGE = f"registry.example/rclone@sha256:{'0' * 64}"
KEY = "s3-key"
BUCKETS = ("data", "moved")
STORE = WantedStorage(
    "archive",
    kind=StorageKind.OBJECT_STORE,
    endpoint="https://s3.example",
    region="eu-1",
    bucket=BUCKETS[0],
    secret=KEY,
)
ABSENT_SECONDS = (5.0, 40.0)
"""How long something is missing."""


def configure(*, is_on: bool) -> None:
    """Whether this installation copies from object stores."""
    settings.OBJECT_STAGE_IMAGE = IMAGE if is_on else ""


def begin(world: "World") -> None:
    """The access key exists, and can be opened."""
    if KIND in world.faults.rates:
        settings.KEY_RING = RING
        world.wish("stores an access key", _put)


def _put() -> None:
    put_secret(SYSTEM, _owner(), KEY, NewValue(Kind.ACCESS_KEY, access_key("AKIA", "hush")))


def _owner() -> UUID:
    return Tenant.objects.get(path="acme").id


def _move(cluster: str, bucket: str) -> None:
    row = Storage.objects.filter(cluster__name=cluster, cluster__removed_at=None, name=STORE.name).first()
    if row is None:
        raise NotFound
    update_storage(SYSTEM, row.cluster_id, row.id, StorageChanges(bucket=bucket))


def befall(world: "World") -> None:
    """The key gets another value, is deleted for a while or cannot be opened, or the bucket of a cluster moves and moves back."""
    faults, scheduler = world.faults, world.scheduler
    cluster, later = CLUSTERS[faults.choose(CLUSTERS)], faults.between(*ABSENT_SECONDS)
    match faults.choose(range(4)):
        case 0:
            world.wish("replaces the access key", _put)
        case 1:
            world.wish("deletes the access key", lambda: delete_secret(SYSTEM, _owner(), KEY))
            scheduler.after(later, lambda: begin(world))
        case 2:
            world.tell("operator", "starts processes with another key")
            settings.KEY_RING = OTHER_RING
            scheduler.after(later, lambda: begin(world))
        case _:
            _wish_to_move(world, cluster, BUCKETS[1])
            scheduler.after(later, lambda: _wish_to_move(world, cluster, BUCKETS[0]))


def _wish_to_move(world: "World", cluster: str, bucket: str) -> None:
    world.wish(f"moves the bucket of {cluster} to {bucket}", lambda: _move(cluster, bucket))


EVENTS: dict[str, Callable[["World"], None]] = {KIND: befall}
"""By the kind of fault."""
