"""Nodes that make jobs fail are avoided, in our inventory only; and retries wait while too much fails."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import IntegrityError, InternalError, connection, transaction

import clusters.operations
from clusters.models import AvoidedNode, Cluster, ClusterEvent, Node
from clusters.queries import fleet
from federation import operations
from federation.models import Attempt, Diagnosis, Job, PodRun, RemoteObject, RetryBrake
from federation.queries.claimed_attempts import claimed_attempts
from federation.queries.failure_rates import group_of
from federation.queries.figures import standing
from federation.queries.queue import load_queue
from foundation.clock import now
from tenancy.models import AuditEntry
from tests.builders import bind, make_cluster, make_flavor, make_node, make_spec, make_tenant, make_user, stored_spec

pytestmark = pytest.mark.django_db
TENANTS = ("acme/red/x", "acme/blue/y", "acme/green")


@pytest.fixture
def fleet_of_ten():
    cluster = make_cluster("acme", "north")
    make_flavor(cluster)
    for number in range(10):
        make_node(cluster, f"n{number}")
    return cluster


def ran(cluster: Cluster, node: str, tenant: str, failure_class: str = "", minutes: int = 10, **fields) -> Attempt:
    """An attempt that ran on the node for so long, ended and was settled; with a class, it failed there."""
    at = now()
    job = Job.objects.create(
        tenant=make_tenant(tenant), created_by=make_user(), name="j", spec=make_spec(), shape="s",
        state="failed" if failure_class else "succeeded", finished_at=at,
    )  # fmt: skip
    began = at - timedelta(minutes=minutes)
    given = {"end_reason": "program_failed" if failure_class else "completed", "settled_at": at} | fields
    attempt = Attempt.objects.create(
        job=job, number=1, cluster=cluster, flavor="h100", namespace="n", spec_hash="h", pods_told_at=at,
        state="failed" if failure_class else "succeeded", starting_at=began, started_at=began, finished_at=at, **given,
    )  # fmt: skip
    item = RemoteObject.objects.create(
        attempt=attempt, cluster_id=cluster.id, position=0, name=f"o{uuid4().hex[:8]}", uid=str(uuid4()), flavor="h100",
        capacity_type="on_demand", pods=1, gpu_units=1, cpu_millicores=1, memory_mib=1,
    )  # fmt: skip
    PodRun.objects.create(
        attempt=attempt, cluster_id=cluster.id, remote_object=item, index=0, place=0, uid=str(uuid4()), name="p",
        node=node, phase="Failed" if failure_class else "Succeeded", started_at=began, finished_at=at, observed_at=at,
    )  # fmt: skip
    if failure_class:
        Diagnosis.objects.create(
            attempt=attempt,
            failure_class=failure_class,
            own_class=failure_class,
            text="t",
            rule="Default: x",
            step="stop",
            node=node,
            judged_at=at,
        )
    return attempt


def usual(cluster: Cluster) -> None:
    """Thirty runs that went well, three on each node."""
    for number in range(30):
        ran(cluster, f"n{number % 10}", TENANTS[number % 3])


def spoil(cluster: Cluster, node: str = "n3", failure_class: str = "device") -> None:
    for number in range(6):
        ran(cluster, node, TENANTS[number % 3], failure_class, minutes=1)


def test_a_node_that_fails_jobs_of_several_tenants_is_avoided_with_its_reason_and_by_nobody_else(fleet_of_ten):
    usual(fleet_of_ten)
    assert operations.weigh_failures() == 0
    spoil(fleet_of_ten)
    assert (operations.weigh_failures(), operations.weigh_failures()) == (1, 0)
    found = AvoidedNode.objects.get()
    assert found.node == "n3"
    assert "6 of its last 9 runs failed, of 6 jobs and 3 groups of tenants" in found.reason
    assert found.until_at > now() + timedelta(hours=11)
    [view] = fleet()
    assert [node.name for node in view.nodes if not node.is_usable] == ["n3"]
    assert Node.objects.get(name="n3").is_schedulable
    assert ClusterEvent.objects.filter(kind="node.avoided").count() == 1
    assert standing().avoided_nodes == {"north": 1}


@pytest.mark.parametrize("failure_class", ["program", "unknown"])
def test_fast_failures_that_nobody_explains_count_and_slow_ones_do_not(fleet_of_ten, failure_class: str):
    usual(fleet_of_ten)
    for number in range(6):
        ran(fleet_of_ten, "n4", TENANTS[number % 3], failure_class, minutes=30)
    assert operations.weigh_failures() == 0
    spoil(fleet_of_ten, failure_class=failure_class)
    operations.weigh_failures()
    assert [one.node for one in AvoidedNode.objects.all()] == ["n3"]


def test_one_hostile_tenant_poisons_no_node_not_even_with_tenants_that_it_makes(fleet_of_ten):
    usual(fleet_of_ten)
    for number in range(40):
        ran(fleet_of_ten, "n3", f"acme/red/made{number % 8}", "device", minutes=1)
    assert operations.weigh_failures() == 0


@pytest.mark.parametrize(
    ("tenant", "owner", "group"),
    [("acme/red/x", "acme", "red"), ("acme/red", "acme", "red"), ("acme", "acme", ""), ("acme/a/b/c", "acme/a", "b")],
)
def test_tenants_below_one_child_of_the_owner_are_one_group(tenant: str, owner: str, group: str):
    assert group_of(tenant, owner) == group


def test_pods_are_kept_off_an_avoided_node_when_they_are_released(fleet_of_ten):
    usual(fleet_of_ten)
    spoil(fleet_of_ten)
    operations.weigh_failures()
    job = Job.objects.create(
        tenant=make_tenant("acme/red"), created_by=make_user(), name="j", shape="s",
        spec=stored_spec(),
    )  # fmt: skip
    attempt = Attempt.objects.create(
        job=job, number=1, cluster=fleet_of_ten, flavor="h100", namespace="n", spec_hash="h"
    )
    [claimed] = claimed_attempts([attempt.id])
    assert claimed.bounds.never == ("n3",)


def test_an_avoided_node_is_used_again_when_its_time_is_up_or_another_node_has_its_name(fleet_of_ten):
    usual(fleet_of_ten)
    spoil(fleet_of_ten)
    operations.weigh_failures()
    Node.objects.filter(name="n3").update(uid="another")
    assert operations.weigh_failures() == 0  # what was seen of the old one does not count
    assert AvoidedNode.objects.get().ended_at is not None
    assert AvoidedNode.objects.get().ended_by == ""
    assert all(node.is_usable for node in fleet()[0].nodes)


def test_an_administrator_makes_jobs_use_it_again_with_an_audit_entry_and_it_needs_new_evidence(fleet_of_ten, call):
    usual(fleet_of_ten)
    spoil(fleet_of_ten)
    operations.weigh_failures()
    admin, viewer, stranger = make_user(), make_user(), make_user()
    bind(admin, "acme", "admin")
    bind(viewer, "acme/red", "viewer")
    bind(stranger, "globex", "admin")
    path = f"/clusters/{fleet_of_ten.id}/avoided-nodes"
    [shown] = call(viewer, "get", path)[1]["items"]
    assert (shown["node"], shown["ended_at"], shown["evidence"]["failures"]) == ("n3", None, 6)
    clear = f"{path}/{shown['id']}/clear"
    assert call(viewer, "post", clear)[0] == 403
    assert call(stranger, "post", clear)[0] == 404
    assert call(admin, "post", f"{path}/{uuid4()}/clear")[0] == 404
    for _ in range(2):
        status, ended = call(admin, "post", clear)
        assert (status, ended["ended_by"]) == (200, admin.email)
    assert AuditEntry.objects.filter(action="node.clear").count() == 1
    assert operations.weigh_failures() == 0
    spoil(fleet_of_ten)
    assert operations.weigh_failures() == 1


def test_the_page_of_the_cluster_shows_them_and_the_administrator_clears_them_there(fleet_of_ten, client):
    usual(fleet_of_ten)
    spoil(fleet_of_ten)
    operations.weigh_failures()
    admin, viewer = make_user(), make_user()
    bind(admin, "acme", "admin")
    bind(viewer, "acme/red", "viewer")
    found, page = AvoidedNode.objects.get(), f"/clusters/{fleet_of_ten.id}/"
    clear = f"{page}avoided/{found.id}/clear/"
    client.force_login(viewer)
    shown = client.get(page).content.decode()
    assert found.reason in shown
    assert clear not in shown
    assert client.post(clear).status_code == 403
    client.force_login(admin)
    assert clear in client.get(page).content.decode()
    assert client.post(clear).status_code == 302
    shown = client.get(page).content.decode()
    assert clear not in shown
    assert f"by {admin.email}" in shown


def test_no_more_nodes_are_avoided_than_may_be(fleet_of_ten):
    def avoid(node: str) -> bool:
        return clusters.operations.avoid_node(fleet_of_ten.id, node, "r", {}, timedelta(hours=1), most=1)

    assert [avoid("n1"), avoid("n1"), avoid("n2"), avoid("gone")] == [True, False, False, False]


# -- the brake --------------------------------------------------------------------------------------------------------


def waiting(attempts_made: int) -> Job:
    return Job.objects.create(
        tenant=make_tenant("acme/red"), created_by=make_user(), name="j", spec=stored_spec(), shape="s",
        attempts_made=attempts_made,
    )  # fmt: skip


def test_retries_wait_on_a_cluster_that_fails_too_much_and_first_attempts_go_there(fleet_of_ten):
    for number in range(12):
        ran(fleet_of_ten, f"n{number % 10}", TENANTS[number % 3], "infrastructure", end_reason="infrastructure")
    operations.weigh_failures()
    assert {brake.cluster_id for brake in RetryBrake.objects.all()} == {fleet_of_ten.id, None}
    assert standing().retry_brakes == {"": 1, "north": 1}
    fresh, retry = waiting(0), waiting(1)
    by_id = {request.id: request for request in load_queue(now(), 10)}
    assert by_id[fresh.id].constraints.refusals == ()
    assert [one.code for one in by_id[retry.id].constraints.refusals] == ["retries_wait"]
    operations.run_scheduling_cycle()
    retry.refresh_from_db()
    assert retry.state == "queued"
    assert retry.explanation["clusters"][0]["code"] == "retries_wait"
    for number in range(50):
        ran(fleet_of_ten, f"n{number % 10}", TENANTS[number % 3])
    operations.weigh_failures()
    assert not RetryBrake.objects.filter(ended_at=None).exists()
    assert {request.id: request.constraints.refusals for request in load_queue(now(), 10)}[retry.id] == ()


def test_programs_that_fail_pull_no_brake(fleet_of_ten):
    for number in range(60):
        ran(fleet_of_ten, f"n{number % 10}", TENANTS[number % 3], "program")
    operations.weigh_failures()
    assert not RetryBrake.objects.exists()


def attack(statement: str, *values: Any) -> None:
    with pytest.raises((IntegrityError, InternalError)), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement, values)


def test_what_was_avoided_and_braked_is_history_that_only_ends(fleet_of_ten):
    AvoidedNode.objects.create(
        cluster=fleet_of_ten, node="n1", uid="u", reason="r", until_at=now() + timedelta(hours=1)
    )
    RetryBrake.objects.create(cluster=fleet_of_ten, failures=1, attempts=2)
    attack("UPDATE clusters_avoidednode SET until_at = now() + interval '1 year'")
    attack("UPDATE clusters_avoidednode SET node = 'n2'")
    attack("UPDATE clusters_avoidednode SET ended_by = 'me'")
    attack("UPDATE clusters_avoidednode SET ended_at = began_at - interval '1 hour'")
    attack(
        "INSERT INTO clusters_avoidednode (id, cluster_id, node, uid, reason, evidence, until_at, ended_by)"
        " VALUES (gen_random_uuid(), %s, 'n1', 'u', 'r', '{}', now() + interval '1 hour', '')",
        fleet_of_ten.id,
    )
    attack("UPDATE federation_retrybrake SET failures = 2")
    attack("INSERT INTO federation_retrybrake (cluster_id, failures, attempts) VALUES (%s, 1, 2)", fleet_of_ten.id)
    attack("INSERT INTO federation_retrybrake (cluster_id, failures, attempts) VALUES (NULL, 3, 2)")
    AvoidedNode.objects.update(ended_at=now())
    attack("UPDATE clusters_avoidednode SET ended_at = NULL")
    RetryBrake.objects.update(ended_at=now())
    attack("UPDATE federation_retrybrake SET ended_at = NULL")
