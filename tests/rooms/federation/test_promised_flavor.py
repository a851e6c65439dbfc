"""What an attempt was promised when it was placed is what its pods ask for, whatever the cluster offers by then."""

import pytest
from django.db import DatabaseError, connection, transaction

from clusters.drivers.simulated import SimulatedDriver
from clusters.models import Flavor
from federation import operations
from federation.models import Attempt, Job
from tests.live import place

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def sent(monkeypatch):
    """The limits of every Job's pods, as they are sent to the cluster."""
    limits = []
    create = SimulatedDriver.create_job

    async def look(self, manifest):
        limits.append(manifest["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"])
        return await create(self, manifest)

    monkeypatch.setattr(SimulatedDriver, "create_job", look)
    return limits


def test_a_flavor_that_vanishes_before_dispatch_takes_no_gpu_from_the_job(cluster, submitter, sent):
    place(submitter)
    Flavor.objects.filter(cluster=cluster).delete()
    operations.dispatch_attempts()
    assert [limits["nvidia.com/gpu"] for limits in sent] == ["8"]


def test_a_flavor_that_changes_before_dispatch_changes_nothing_about_the_job(cluster, submitter, sent):
    place(submitter)
    Flavor.objects.filter(cluster=cluster).update(resource_name="example.com/cheap", node_selector={"cheap": "yes"})
    operations.dispatch_attempts()
    assert [limits["nvidia.com/gpu"] for limits in sent] == ["8"]


def test_a_job_placed_on_a_flavor_that_was_gone_by_then_is_placed_anew_and_nothing_is_sent(
    cluster, submitter, sent, monkeypatch
):
    apply = operations.cycle._apply

    def late(*arguments):
        Flavor.objects.filter(cluster=cluster).delete()
        return apply(*arguments)

    monkeypatch.setattr(operations.cycle, "_apply", late)
    job, attempt = place(submitter)
    operations.dispatch_attempts()
    attempt.refresh_from_db()
    assert (sent, attempt.state, attempt.end_reason) == ([], "abandoned", "flavor_gone")
    assert "no longer offers" in attempt.end_message
    assert Job.objects.get(id=job.id).state == "queued"


@pytest.mark.parametrize(
    "change",
    ["promised = NULL", 'promised = \'{"resource_name": ""}\'', "gpu_units = 0", "flavor = 'other'", "pods = 9"],
)
def test_nobody_rewrites_what_was_promised(cluster, submitter, change):
    _, attempt = place(submitter)
    with (
        pytest.raises(DatabaseError, match="was promised never changes"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(f"UPDATE federation_remoteobject SET {change} WHERE attempt_id = %s", [attempt.id])
    assert Attempt.objects.get(id=attempt.id).remote_objects.get().promised["resource_name"] == "nvidia.com/gpu"
