"""What a process keeps of the clusters follows every column of every row that it is made from."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from clusters.drivers import DriverError
from clusters.engine.device_inventory import ClaimableDevices
from clusters.engine.inventory import ForeignUse, NodeUse
from clusters.models import Cluster, ClusterCredential, Node
from clusters.operations import record_inventory
from clusters.operations.inventory import record_use
from clusters.queries import address_of_registered, domains, fleet
from foundation.caches import reset_all
from tenancy.models import Tenant
from tests.builders import make_cluster, make_flavor, make_node, make_tenant
from tests.rooms.clusters.test_inventory import device, seen

pytestmark = pytest.mark.django_db
AT = datetime(2026, 1, 1, tzinfo=UTC)
SILENT = {"health": "unreachable", "silent_since": AT}
CLUSTER: dict[str, dict[str, Any]] = {
    "name": {"name": "west"},
    "driver": {"driver": "kubernetes", "server": "https://127.0.0.1:6443"},
    "server": {"server": "simulated://west"},
    "ca_pem": {"ca_pem": "other"},
    "region": {"region": "us-1"},
    "provider": {"provider": "elsewhere"},
    "labels": {"labels": {"a": "b"}},
    "kubernetes_version": {"kubernetes_version": "v1.36.0"},
    "has_kueue": {"has_kueue": True},
    "health": SILENT,
    "silent_since": SILENT,
    "wish": {"wish": "cordoned"},
    "reasons": {"reasons": [{"code": "slow", "message": "It is slow."}]},
    "clock_skew_ms": {"clock_skew_ms": 7},
    "clock_eras": {"clock_eras": [[1, 2]]},
    "inventory_version": {"inventory_version": 99},
    "credential_expires_at": {"credential_expires_at": AT},
    "last_seen_at": {"last_seen_at": AT},
    "observed_at": {"observed_at": AT},
    "created_at": {"created_at": AT},
    "updated_at": {"updated_at": AT},
    "removed_at": {"removed_at": AT},
}
"""A change of each column of a cluster but its owner, its identity and its id."""
IN_VIEW = {"name", "owner", "region", "provider", "health", "silent_since", "wish", "inventory_version", "removed_at"}
IN_ADDRESS = {"name", "driver", "server", "removed_at"}
"""Of a simulated cluster."""


@pytest.fixture
def east():
    cluster = make_cluster(name="east", driver="simulated", server="simulated://east")
    make_flavor(cluster)
    make_node(cluster, "n1")
    return cluster


def outcome(cluster):
    """The address, or why there is none."""
    try:
        return address_of_registered(cluster.id)
    except DriverError as error:
        return type(error), error.reason


def change(cluster, column):
    if column == "owner":
        Cluster.objects.filter(id=cluster.id).update(owner=make_tenant("acme/research"))
    else:
        Cluster.objects.filter(id=cluster.id).update(**CLUSTER[column])


def kept_and_read(ask):
    """The answer of this process, and that of one that has just started."""
    kept = ask()
    reset_all()
    return kept, ask()


def test_every_column_of_a_cluster_is_tried():
    columns = {field.name for field in Cluster._meta.concrete_fields}
    assert columns == {*CLUSTER, "owner", "id", "identity"}


@pytest.mark.parametrize("column", [*CLUSTER, "owner"])
def test_the_fleet_follows_each_column_of_a_cluster(east, column):
    before, known = fleet(), {key: one.view for key, one in domains().items()}
    change(east, column)
    kept, read = kept_and_read(fleet)
    assert kept == read
    assert (kept != before) == (column in IN_VIEW)
    assert ({key: one.view for key, one in domains().items()} != known) == (column in IN_VIEW)


@pytest.mark.parametrize("column", [*CLUSTER, "owner"])
def test_the_address_follows_each_column_of_a_cluster(east, column):
    before = outcome(east)
    change(east, column)
    kept, read = kept_and_read(lambda: outcome(east))
    assert kept == read
    assert (kept != before) == (column in IN_ADDRESS)


def test_the_fleet_follows_the_path_of_a_clusters_owner(east):
    assert [view.owner_path for view in fleet()] == ["acme"]
    Tenant.objects.filter(path="acme").update(name="apex")
    assert [view.owner_path for view in fleet()] == ["apex"]


CREDENTIAL: dict[str, dict[str, Any]] = {
    "kind": {"kind": "certificate"},
    "key_id": {"key_id": "lost"},
    "sealed": {"sealed": b"spoilt" * 10},
    "updated_at": {"updated_at": AT},
}


@pytest.mark.parametrize("column", CREDENTIAL)
def test_the_address_follows_each_column_of_a_credential(register, api, column):
    assert {field.name for field in ClusterCredential._meta.concrete_fields} == {*CREDENTIAL, "cluster"}
    cluster = Cluster.objects.get(id=register(api.body()).json()["id"])
    before = outcome(cluster)
    ClusterCredential.objects.filter(cluster=cluster).update(**CREDENTIAL[column])
    kept, read = kept_and_read(lambda: outcome(cluster))
    assert kept == read
    assert (kept != before) == (column != "updated_at")


def test_the_address_follows_the_removal_of_a_credential(register, api):
    cluster = Cluster.objects.get(id=register(api.body()).json()["id"])
    assert outcome(cluster).name == cluster.name
    ClusterCredential.objects.all().delete()
    assert outcome(cluster)[1] == "no credential is stored"


OTHER_NODES: dict[str, dict[str, Any]] = {
    "name": {"name": "n2"},
    "uid": {"uid": "other"},
    "labels": {"labels": {"topology.kubernetes.io/zone": "z2"}},
    "taints": {"taints": [{"key": "maintenance", "value": "", "effect": "NoSchedule"}]},
    "is_ready": {"is_ready": False},
    "is_schedulable": {"is_schedulable": False},
}
AMOUNTS = {"cpu": "32", "memory": "256Gi", "pods": "50", "nvidia.com/gpu": "4"}
FOREIGN = ForeignUse(500, 64, 1, {"nvidia.com/gpu": 1})
OTHER_USES: dict[str, dict[str, Any]] = {
    "cpu_millicores": {"cpu_millicores": 900},
    "memory_mib": {"memory_mib": 900},
    "pods": {"pods": 9},
    "devices": {"devices": {"nvidia.com/gpu": 2}},
}


@pytest.fixture
def observed():
    cluster = make_cluster(name="east")
    record_inventory(cluster.id, [seen("n1")], {"n1": FOREIGN})
    return cluster


@pytest.mark.parametrize("field", [*OTHER_NODES, *AMOUNTS])
def test_the_fleet_follows_each_field_of_a_node_that_an_observer_reports(observed, field):
    first, before = seen("n1"), fleet()
    amounts = {"allocatable": {**first.allocatable, field: AMOUNTS[field]}} if field in AMOUNTS else OTHER_NODES[field]
    record_inventory(observed.id, [replace(first, **amounts)], {"n1": FOREIGN})
    kept, read = kept_and_read(fleet)
    assert kept == read
    assert kept != before


@pytest.mark.parametrize("field", OTHER_USES)
def test_the_fleet_follows_each_field_of_foreign_use(observed, field):
    before = fleet()
    record_use(observed.id, {"n1": NodeUse(replace(FOREIGN, **OTHER_USES[field]), {})})
    kept, read = kept_and_read(fleet)
    assert kept == read
    assert kept != before


def test_the_fleet_follows_devices_that_can_be_claimed(observed):
    record_inventory(observed.id, [seen("n1", gpus="0")], {})
    before = fleet()
    record_inventory(observed.id, [seen("n1", gpus="0")], {}, claimable=ClaimableDevices({"n1": {device(): 8}}))
    kept, read = kept_and_read(fleet)
    assert kept == read
    assert kept != before


def test_the_fleet_follows_a_node_that_is_gone(observed):
    assert len(fleet()[0].nodes) == Node.objects.count() == 1
    record_inventory(observed.id, [], {})
    assert fleet()[0].nodes == ()
