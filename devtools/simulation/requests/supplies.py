"""What jobs need beside nodes: secrets, storages and datasets, and the artifacts that they declare. Some of it changes meanwhile."""

import base64
import random
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.conf import settings

from billing.operations.egress import NewEgressPrice, create_egress_price
from clusters.models import Dataset, Storage
from clusters.operations.datasets import Location, create_dataset
from clusters.operations.secrets import NewValue, delete_secret, put_secret
from clusters.operations.storages import WantedStorage, create_storage, remove_storage
from devtools.simulation.judges.promises import judging
from devtools.simulation.setting.stage import CLUSTERS
from foundation.problems import Conflict, NotFound
from tenancy.models import Tenant
from tenancy.queries import SYSTEM

from . import notices
from .administration import cluster_id

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

    from .clients import Submission

KIND = "supplied"
RING, OTHER_RING = ("simulation:" + base64.b64encode(letter * 32).decode() for letter in (b"s", b"t"))
SECRETS = (("token", NewValue("value", b"hush")), ("registry", NewValue("registry", b"{}", "registry.example")))
STORAGE = WantedStorage("shared", "claim", mode="read_write")
ABSENT_SECONDS = (5.0, 60.0)
"""How long something is missing."""
DATASET, SIZE = "corpus", 10**12
URL = "s3://results/model"
DIGEST = "0123456789abcdef" * 4
LOOKS, LOOK_SECONDS = 60, 2.0
DECLARING = """
SELECT attempt.id FROM federation_attempt AS attempt JOIN federation_job AS job ON job.id = attempt.job_id
 WHERE attempt.state = 'running' AND job.spec ? 'artifacts' ORDER BY attempt.id
"""


def equip(seed: int, submissions: "list[Submission]") -> None:
    """Lets some jobs name secrets, a storage and a dataset, report, declare artifacts, wish to be near each other, and say how long
    they will take.
    """
    chance = random.Random(f"{seed}/supplies")
    for one in submissions:
        pod = one.body["pod_sets"][0]
        if chance.random() < 0.5:
            uses = ({"secret": "token", "env": "TOKEN"}, {"secret": "token", "file": "/secrets/token"})
            pod["secrets"] = [dict(use) for use in uses[: chance.choice((1, 2))]]
        if chance.random() < 0.3:
            pod["pull_secret"] = "registry"  # noqa: S105 - its name
        is_mounted = chance.random() < 0.4
        if is_mounted:
            pod["mounts"] = [{"storage": "shared", "path": "/data", "read_only": False}]
        if chance.random() < 0.6:
            place = {"storage": "shared", "path": "model"} if is_mounted else {"url": URL}
            declared = [{"name": "model", **place, "required": True}, {"name": "logs", "url": f"{URL}/logs"}]
            one.body |= {"reports": True, "artifacts": declared[: chance.choice((1, 2))]}
        if chance.random() < 0.6:
            one.body["estimated_seconds"] = chance.choice((5, 60, 250))
        if chance.random() < 0.3:
            one.body["data"] = [{"name": DATASET}]
        if chance.random() < 0.3:
            one.body["topology"] = {"level": chance.choice(("rack", "node")), "mode": "preferred"}


def begin(world: "World") -> None:
    """The secrets and storages that jobs name exist, if they name any."""
    if KIND in world.faults.rates:
        provide(world)


def provide(world: "World") -> None:
    """Whatever is missing exists again."""
    settings.KEY_RING = RING
    world.wish("stores secrets and declares storages", _provide)


def _provide() -> None:
    for name, value in SECRETS:
        put_secret(SYSTEM, _owner(), name, value)
    for name in CLUSTERS:
        _declare(name)
    if not Dataset.objects.exists():
        create_dataset(SYSTEM, "acme", DATASET, size_bytes=SIZE, locations=[Location(region="us-east-1")])
        create_egress_price(SYSTEM, NewEgressPrice("us-*", "eu-*", Decimal("0.0001"), organisation="acme"))


def _owner() -> UUID:
    return Tenant.objects.get(path="acme").id


def _declare(name: str) -> None:
    try:
        create_storage(SYSTEM, cluster_id(name), STORAGE)
    except (Conflict, NotFound):
        return  # it is declared, or the cluster was removed


def _undeclare(name: str) -> None:
    storage = Storage.objects.filter(cluster__name=name, name=STORAGE.name).first()
    if storage is not None:
        remove_storage(SYSTEM, storage.cluster_id, storage.id)


def change(world: "World") -> None:
    """A secret gets another value or is deleted for a while, a storage is withdrawn for a while, or the key is missing."""
    faults, (name, value) = world.faults, SECRETS[world.faults.choose(SECRETS)]
    later, cluster = faults.between(*ABSENT_SECONDS), CLUSTERS[faults.choose(CLUSTERS)]
    match faults.choose(range(6)):
        case 0:
            world.wish(f"replaces the secret {name}", lambda: put_secret(SYSTEM, _owner(), name, value))
        case 1:
            world.wish(f"deletes the secret {name}", lambda: delete_secret(SYSTEM, _owner(), name), "secret.delete")
            world.scheduler.after(later, lambda: provide(world))
        case 2:
            world.wish(f"withdraws the storage of {cluster}", lambda: _undeclare(cluster))
            world.scheduler.after(
                later, lambda: world.wish(f"declares the storage of {cluster}", lambda: _declare(cluster))
            )
        case 3:
            world.tell("operator", "starts processes with another key")
            settings.KEY_RING = OTHER_RING
            world.scheduler.after(later, lambda: provide(world))
        case _:
            announce(world)


def announce(world: "World", left: int = LOOKS) -> None:
    """A program that runs announces the artifacts that its job declares."""
    if world.faults.is_healed or not left:
        return
    attempts = [id_ for (id_,) in world.watch.rows(DECLARING)]
    if not attempts or world.processes["web"].is_dead:
        world.scheduler.after(LOOK_SECONDS, lambda: announce(world, left - 1))
        return
    notices.report_of(world, attempts[world.faults.choose(attempts)], _announced, (UNDECLARED,))


def _announced(sequence: int) -> dict[str, Any]:
    """What a program adds to its reports."""
    return {"artifacts": [{"name": "model", "path": f"at-{sequence}", "sha256": DIGEST, "size_bytes": sequence}]}


UNDECLARED: dict[str, Any] = {"sequence": 0, "artifacts": [{"name": "nothing", "sha256": DIGEST, "size_bytes": 1}]}


@judging
def no_pod_starts_without_its_secrets(world: "World") -> list[str]:
    """The Secrets that a pod of ours names were created before it started."""
    return [
        f"a pod of attempt {attempt_id} started on {cluster.name} without its Secrets"
        for cluster in world.clusters.values()
        for attempt_id in sorted(cluster.unsupplied)
    ]


@judging
def a_success_without_a_required_artifact_is_shown_as_that(world: "World") -> list[str]:
    """The end of a job says that an artifact is missing exactly if its successful attempt did not announce it."""
    return [
        f"job {job} {'is' if is_said else 'is not'} said to lack an artifact, and {'announced' if is_known else 'did not announce'} it"
        for job, is_said, is_known in world.watch.rows(ENDED)
        if is_said == is_known
    ]


ENDED = """
SELECT job.id, job.reason_code = 'artifacts_missing',
       EXISTS (SELECT FROM federation_artifact AS own WHERE own.attempt_id = attempt.id AND own.name = 'model')
  FROM federation_job AS job
  JOIN federation_attempt AS attempt ON attempt.job_id = job.id AND attempt.state = 'succeeded'
 WHERE job.state = 'succeeded' AND job.spec -> 'artifacts' @> '[{"name": "model", "required": true}]' ORDER BY 1
"""
EVENTS: dict[str, Callable[["World"], None]] = {KIND: change}
"""By the kind of fault."""
