"""Raw SQL against what the database promises about clusters."""

import pytest
from django.db import IntegrityError, connection, transaction

from clusters.models import Cluster, ClusterCredential, Flavor, Node
from foundation import clock
from tests.builders import make_tenant
from tests.refusals import constraint_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster():
    return Cluster.objects.create(owner=make_tenant("acme"), name="east", server="https://203.0.113.1", identity="u1")


def assert_refused(name, sql, *params):
    with pytest.raises(IntegrityError) as caught, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql, params)
    assert constraint_of(caught.value) == name


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("cluster_health_is_known", "health = 'fine'"),
        ("cluster_wish_is_known", "wish = 'gone'"),
        ("cluster_driver_is_that_of_its_server", "driver = 'shell'"),
        ("cluster_driver_is_that_of_its_server", "driver = 'simulated'"),
        ("cluster_driver_is_that_of_its_server", "server = 'simulated://east'"),
        ("cluster_driver_is_that_of_its_server", "driver = '', server = '://east'"),
        ("cluster_name_is_a_dns_label", "name = 'East'"),
        ("cluster_name_is_a_dns_label", "name = '../etc'"),
        ("cluster_is_silent_exactly_when_it_does_not_answer", "health = 'unreachable'"),
        ("cluster_is_silent_exactly_when_it_does_not_answer", "silent_since = now()"),
        ("cluster_identity_is_pinned", "identity = 'u2'"),
        ("cluster_identity_is_pinned", "identity = ''"),
    ],
)
def test_a_clusters_row_stays_sound(cluster, name, change):
    assert_refused(name, f"UPDATE clusters_cluster SET {change} WHERE id = %s", cluster.id)


COPY = (
    "INSERT INTO clusters_cluster (id, owner_id, name, driver, server, ca_pem, region, provider, labels, identity,"
    " kubernetes_version, health, wish, reasons, clock_skew_ms, inventory_version, updated_at)"
    " SELECT gen_random_uuid(), owner_id, %s, driver, server, ca_pem, region, provider, labels, %s,"
    " kubernetes_version, health, wish, reasons, clock_skew_ms, inventory_version, updated_at"
    " FROM clusters_cluster WHERE id = %s"
)


def test_a_cluster_is_registered_once(cluster):
    assert_refused("a_cluster_is_registered_once", COPY, "west", "u1", cluster.id)


def test_a_name_is_unique_for_its_owner(cluster):
    assert_refused("cluster_name_is_unique_for_its_owner", COPY, "east", "u2", cluster.id)


def test_a_cluster_without_identity_is_no_cluster(cluster):
    assert_refused("cluster_identity_is_known", COPY, "west", "", cluster.id)


def test_a_removed_cluster_stays_removed_and_frees_its_name_and_identity(cluster):
    with connection.cursor() as cursor:
        cursor.execute("UPDATE clusters_cluster SET removed_at = now()")
        cursor.execute(COPY, ["east", "u1", cluster.id])
    assert_refused(
        "removed_cluster_stays_removed", "UPDATE clusters_cluster SET removed_at = NULL WHERE id = %s", cluster.id
    )


def test_a_credential_names_its_kind_and_key(cluster):
    ClusterCredential.objects.create(cluster=cluster, kind="token", key_id="k", sealed=b"x")
    assert_refused("credential_kind_is_known", "UPDATE clusters_clustercredential SET kind = 'password'")
    assert_refused("credential_names_its_key", "UPDATE clusters_clustercredential SET key_id = ''")


@pytest.mark.parametrize("change", ["capacity_type = 'borrowed'", "sharing = 'half'", "sharing = 'mig:'"])
def test_a_flavor_is_of_a_known_kind(cluster, change):
    Flavor.objects.create(cluster=cluster, name="h100")
    name = "capacity_type_is_known" if "capacity" in change else "sharing_is_known"
    assert_refused(name, f"UPDATE clusters_flavor SET {change}")


def test_a_slice_has_a_host(cluster):
    Flavor.objects.create(cluster=cluster, name="tpu")
    assert_refused("a_slice_has_a_host", "UPDATE clusters_flavor SET slice_hosts = 0")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("node_capacity_is_plausible", "cpu_millicores = -1"),
        ("node_capacity_is_plausible", "cpu_millicores = 1000000000000"),
        ("node_capacity_is_plausible", "memory_mib = -1"),
        ("node_capacity_is_plausible", "memory_mib = 100000000000"),
        ("foreign_use_is_not_negative", "foreign_cpu_millicores = -1"),
        ("foreign_use_is_not_negative", "foreign_memory_mib = -1"),
    ],
)
def test_a_nodes_numbers_are_plausible(cluster, name, change):
    Node.objects.create(
        cluster=cluster, name="n1", uid="n1", cpu_millicores=1, memory_mib=1, pods=1, observed_at=clock.now()
    )
    assert_refused(name, f"UPDATE clusters_node SET {change}")


def test_a_node_name_is_unique_in_its_cluster(cluster):
    Node.objects.create(
        cluster=cluster, name="n1", uid="n1", cpu_millicores=1, memory_mib=1, pods=1, observed_at=clock.now()
    )
    with pytest.raises(IntegrityError, match="node_name_is_unique_in_its_cluster"), transaction.atomic():
        Node.objects.create(
            cluster=cluster, name="n1", uid="n2", cpu_millicores=1, memory_mib=1, pods=1, observed_at=clock.now()
        )
