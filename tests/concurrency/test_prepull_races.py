"""Two workers that pull images at the same time, and users who change policies meanwhile."""

import asyncio
from datetime import timedelta
from threading import Barrier

import pytest

from clusters.drivers import connections
from clusters.drivers.simulated import SimulatedDriver
from clusters.queries import driver_of
from federation import operations
from federation.engine.names import LABEL_PREPARATION
from federation.models import Prepull, PrepullPolicy, ProvenImage
from federation.operations import prepulling
from federation.operations.prepull_policies import WantedPolicy
from foundation.clock import now
from tenancy.models import Tenant
from tests.concurrency.test_live_races import at_once

pytestmark = pytest.mark.django_db(transaction=True)
IMAGES = tuple(f"registry.example/i{number}:1" for number in range(12))


@pytest.fixture
def policy(cluster, submitter):
    made = operations.make_prepull_policy(submitter, cluster.id, WantedPolicy("base", IMAGES, at_once=10))
    PrepullPolicy.objects.update(changed_at=now() - timedelta(minutes=5))
    organisation = Tenant.objects.get(path="acme")
    ProvenImage.objects.bulk_create(ProvenImage(organisation=organisation, name=image) for image in IMAGES)
    return made


def objects(cluster):
    found = connections.run(driver_of(cluster.id).list_jobs(), 5)
    return [job for job in found if LABEL_PREPARATION in job.labels]


def test_workers_at_the_same_time_make_each_object_once_within_the_slots(cluster, policy, monkeypatch):
    created = []
    create = SimulatedDriver.create_job

    async def count(self, manifest):
        uid = await create(self, manifest)
        created.append(manifest["metadata"]["name"])
        return uid

    monkeypatch.setattr(SimulatedDriver, "create_job", count)
    together = Barrier(3)

    def work():
        together.wait()
        for _ in range(6):
            operations.keep_images()

    assert at_once(work, work, work) == []
    for _ in range(8):
        operations.keep_images()
        assert Prepull.objects.exclude(slot=None).count() <= 10
    assert len(created) == len(set(created)), "no object was made twice"
    assert set(Prepull.objects.values_list("phase", "outcome")) == {("idle", "pulled")}
    assert objects(cluster) == []


def test_a_cluster_that_one_worker_visits_is_left_to_it_by_others(cluster, policy, monkeypatch):
    is_first, calls = [True], []
    create = SimulatedDriver.create_job

    async def while_another_works(self, manifest):
        if is_first and is_first.pop():
            errors = await asyncio.to_thread(at_once, lambda: calls.append(operations.keep_images()))
            assert errors == []
        return await create(self, manifest)

    monkeypatch.setattr(SimulatedDriver, "create_job", while_another_works)
    assert operations.keep_images() > 0
    assert calls == [0]


def test_planners_at_the_same_time_never_share_a_slot(cluster, policy):
    assert at_once(*[prepulling._plan_all] * 4) == []
    slots = list(Prepull.objects.exclude(slot=None).values_list("slot", flat=True))
    assert len(slots) == len(set(slots)) == 10


@pytest.mark.parametrize("_round", range(4))
def test_a_removal_racing_a_round_leaves_nothing(cluster, policy, submitter, _round):
    removal = lambda: operations.remove_prepull_policy(submitter, cluster.id, policy.id)  # noqa: E731
    assert at_once(operations.keep_images, removal, operations.keep_images) == []
    for _ in range(3):
        operations.keep_images()
    operations.reconcile_clusters()
    assert objects(cluster) == []
    assert not PrepullPolicy.objects.exists()
