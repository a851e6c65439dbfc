"""What the fleet consisted of, at any time: written with each change of nodes, and never changed."""

from datetime import timedelta

import pytest
from django.db import IntegrityError, connection, transaction

from clusters.drivers.port import NodeSeen
from clusters.models import Cluster, Node, NodeOffer, NodeSpan
from clusters.operations.control import remove_cluster
from clusters.operations.inventory import record_inventory
from foundation.clock import database_now
from tenancy.queries import SYSTEM
from tests.builders import make_cluster, make_flavor, make_node
from tests.refusals import constraint_of

pytestmark = pytest.mark.django_db


def spans(cluster, node="n1"):
    return list(NodeSpan.objects.filter(offer__cluster=cluster, offer__node=node).order_by("offer__flavor", "period"))


@pytest.fixture
def north():
    cluster = make_cluster(name="north")
    make_flavor(cluster, "h100")
    return cluster


def test_a_node_that_arrives_has_an_open_span_and_one_that_leaves_keeps_it(north):
    node = make_node(north, "n1")
    (span,) = spans(north)
    assert (span.units, span.cpu_millicores, span.memory_mib) == (8, 64_000, 512 * 1024)
    assert (span.uid, span.gpu_model, span.capacity_type, span.sharing) == (node.uid, "H100-80GB", "on_demand", "whole")
    assert span.period.upper is None
    assert (span.is_available, span.is_assumed) == (True, False)
    node.delete()
    (ended,) = spans(north)
    assert ended.id == span.id
    assert ended.period.lower < ended.period.upper <= database_now() + timedelta(seconds=1)
    again = make_node(north, "n1")
    assert [one.uid for one in spans(north)] == [node.uid, again.uid]
    assert NodeOffer.objects.count() == 1


def test_what_changes_an_offer_begins_a_span_and_what_does_not_changes_nothing(north):
    make_node(north, "n1")
    Node.objects.update(foreign_cpu_millicores=5, used_devices={"nvidia.com/gpu": 3}, observed_at=database_now())
    assert len(spans(north)) == 1
    Node.objects.update(is_schedulable=False)
    Node.objects.update(devices=[{"flavor": "h100", "units": 7}])
    Node.objects.update(devices=[{"flavor": "h100", "units": 7}])
    assert [(one.units, one.is_available) for one in spans(north)] == [(8, True), (8, False), (7, False)]
    one, two, three = spans(north)
    assert one.period.upper == two.period.lower
    assert two.period.upper == three.period.lower


def test_cores_and_memory_of_a_node_with_two_flavors_are_split_without_a_rest(north):
    make_node(
        north,
        "n1",
        devices=[{"flavor": "h100", "units": 3}, {"flavor": "a100", "units": 4}],
        cpu_millicores=100,
        memory_mib=10,
    )
    assert [(one.offer.flavor, one.cpu_millicores, one.memory_mib) for one in spans(north)] == [
        ("a100", 57, 5),
        ("h100", 43, 5),
    ]
    make_node(north, "cpu", devices=[{"flavor": "cpu", "units": 0}], cpu_millicores=100)
    assert [(one.units, one.cpu_millicores) for one in spans(north, "cpu")] == [(0, 100)]
    make_node(north, "bare", devices=[])
    assert spans(north, "bare") == []


def test_the_observer_writes_spans_with_the_flavors_of_the_same_observation():
    cluster = make_cluster(name="seen")
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "karpenter.sh/capacity-type": "spot"}
    seen = NodeSeen(
        name="n1", uid="u1", labels=labels, taints=(), allocatable={"cpu": "8", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "2"},
        is_ready=True, is_schedulable=True,
    )  # fmt: skip
    record_inventory(cluster.id, [seen], {})
    (span,) = spans(cluster)
    assert (span.units, span.capacity_type) == (2, "spot")
    record_inventory(cluster.id, [seen], {})
    record_inventory(cluster.id, [], {})
    (span,) = spans(cluster)
    assert span.period.upper is not None


def test_the_time_of_a_silent_cluster_is_assumed(north):
    make_node(north, "n1")
    make_node(north, "n2")
    Cluster.objects.filter(id=north.id).update(health="unreachable", silent_since=database_now())
    Cluster.objects.filter(id=north.id).update(health="auth_failed")
    Cluster.objects.filter(id=north.id).update(health="ready", silent_since=None)
    for node in ("n1", "n2"):
        assert [one.is_assumed for one in spans(north, node)] == [False, True, False]


def test_silence_that_began_before_is_assumed_from_its_beginning(north):
    make_node(north, "n1")
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("UPDATE clusters_nodespan SET period = tstzrange(lower(period) - interval '1 hour', NULL)")
        cursor.execute("SET LOCAL session_replication_role = origin")
    since = database_now() - timedelta(minutes=10)
    Cluster.objects.filter(id=north.id).update(health="unreachable", silent_since=since)
    observed, assumed = spans(north)
    assert observed.period.upper == assumed.period.lower == since.replace(microsecond=since.microsecond // 1000 * 1000)


def test_a_removed_cluster_keeps_its_history(north):
    make_node(north, "n1")
    remove_cluster(SYSTEM, north.id)
    (span,) = spans(north)
    assert span.period.upper is not None


ATTACKS = {
    "second open span": (
        ("INSERT INTO clusters_nodespan (offer_id, period, uid, capacity_type, gpu_model, sharing, units, cpu_millicores,"
        " memory_mib, is_available, is_assumed) SELECT offer_id, tstzrange(lower(period) - interval '1 hour', NULL), uid,"
        " capacity_type, gpu_model, sharing, units, cpu_millicores, memory_mib, is_available, is_assumed FROM clusters_nodespan"),
        {"one_open_span_a_node_and_flavor", "spans_of_a_node_never_overlap"},
    ),
    "overlap": (
        ("INSERT INTO clusters_nodespan (offer_id, period, uid, capacity_type, gpu_model, sharing, units, cpu_millicores,"
        " memory_mib, is_available, is_assumed) SELECT offer_id, tstzrange(lower(period) - interval '1 hour',"
        " lower(period) + interval '1 ms'), uid, capacity_type, gpu_model, sharing, units, cpu_millicores, memory_mib,"
        " is_available, is_assumed FROM clusters_nodespan"),
        {"spans_of_a_node_never_overlap"},
    ),
    "more units": ("UPDATE clusters_nodespan SET units = 80", {"fleet_history_stands"}),
    "begun later": (
        "UPDATE clusters_nodespan SET period = tstzrange(lower(period) + interval '1 ms', upper(period))",
        {"fleet_history_stands"},
    ),
    "ended twice": (
        ("UPDATE clusters_nodespan SET period = tstzrange(lower(period), lower(period) + interval '1 s');"
        "UPDATE clusters_nodespan SET period = tstzrange(lower(period), lower(period) + interval '2 s')"),
        {"fleet_history_stands"},
    ),
    "ended at its beginning": (
        "UPDATE clusters_nodespan SET period = tstzrange(lower(period), lower(period))", {"span_is_half_open", "fleet_history_stands"},
    ),
    "finer than a millisecond": (
        "UPDATE clusters_nodespan SET period = tstzrange(lower(period), lower(period) + interval '1100 microseconds')",
        {"span_is_in_whole_milliseconds"},
    ),
    "deleted": ("DELETE FROM clusters_nodespan", {"fleet_history_stands"}),
    "emptied": ("TRUNCATE clusters_nodespan", {"fleet_history_stands"}),
    "offer renamed": ("UPDATE clusters_nodeoffer SET flavor = 'a100'", {"fleet_history_stands"}),
}  # fmt: skip


@pytest.mark.parametrize(("statements", "constraints"), ATTACKS.values(), ids=ATTACKS.keys())
def test_the_database_refuses(north, statements, constraints):
    make_node(north, "n1")
    with pytest.raises(IntegrityError) as refused:
        attack(statements)
    assert constraint_of(refused.value) in constraints


def attack(statements):
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        for statement in statements.split(";"):
            cursor.execute(statement)
