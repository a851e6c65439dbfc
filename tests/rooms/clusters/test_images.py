"""Images and pulls as stored: a row per cluster and image, written only when a count changes, and never more than asked."""

import pytest
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext

from clusters.engine.images import MIB, normal_name, packed
from clusters.engine.pulls import MOST_PULLS, PullSample
from clusters.models import Cluster, ClusterImage, Node, PullTimes
from clusters.operations import record_images, record_inventory, record_pulls
from clusters.operations.images import ImagesChange
from clusters.queries import nodes_with
from foundation.ids import new_id
from tests.builders import make_cluster, make_flavor, make_node
from tests.rooms.clusters.test_inventory import seen

pytestmark = pytest.mark.django_db
A, B = normal_name("a"), normal_name("registry:5000/b:v1")
HAS_A, HAS_BOTH = packed([(["a"], 5 * MIB)]), packed([(["a"], 5 * MIB), (["registry:5000/b:v1"], 700 * MIB)])


@pytest.fixture
def cluster():
    found = make_cluster()
    make_flavor(found)
    for name in ("n1", "n2", "n3"):
        make_node(found, name)
    return found


def stored(cluster: Cluster) -> dict[str, tuple[int, int, dict[str, int]]]:
    rows = ClusterImage.objects.filter(cluster=cluster)
    return {row.name: (row.size_mib, row.nodes, row.by_flavor) for row in rows}


def test_counts_are_written_once_and_again_only_when_they_change(cluster):
    by_node = {"n1": HAS_A, "n2": HAS_BOTH, "gone": HAS_BOTH}
    assert record_images(cluster.id, by_node, [A, B]) == ImagesChange(2, 1)
    assert stored(cluster) == {A: (5, 2, {"h100": 2}), B: (700, 1, {"h100": 1})}
    with CaptureQueriesContext(connection) as asked:
        assert record_images(cluster.id, by_node, [A, B]) == ImagesChange(0, 1)
    assert not [query for query in asked if query["sql"].startswith(("INSERT", "UPDATE", "DELETE"))]
    assert record_images(cluster.id, {"n1": HAS_A, "n2": HAS_BOTH, "n3": HAS_A}, [A, B]) == ImagesChange(1, 0)
    assert stored(cluster)[A] == (5, 3, {"h100": 3})


def test_images_that_are_gone_or_no_longer_followed_have_no_row(cluster):
    record_images(cluster.id, {"n1": HAS_BOTH}, [A, B])
    assert record_images(cluster.id, {"n1": HAS_BOTH}, [A]) == ImagesChange(1, 0)
    assert list(stored(cluster)) == [A]
    Node.objects.filter(cluster=cluster).delete()
    assert record_images(cluster.id, {"n1": HAS_BOTH}, [A]) == ImagesChange(1, 1)
    assert stored(cluster) == {}


def test_of_images_that_nodes_should_have_the_nodes_are_stored_and_of_no_others(cluster):
    def listed():
        return dict(ClusterImage.objects.values_list("name", "on_nodes"))

    record_images(cluster.id, {"n1": HAS_BOTH, "n2": HAS_A, "gone": HAS_A}, [A, B], [A])
    assert listed() == {A: ["n1", "n2"], B: None}
    assert nodes_with(cluster.id, [A, B]) == {A: frozenset({"n1", "n2"})}
    assert record_images(cluster.id, {"n1": HAS_BOTH, "n3": HAS_A}, [A, B], [A]) == ImagesChange(1, 0)
    assert listed()[A] == ["n1", "n3"], "the same number of other nodes"
    assert record_images(cluster.id, {"n1": HAS_BOTH, "n3": HAS_A}, [A, B]) == ImagesChange(1, 0)
    assert listed() == {A: None, B: None}
    with pytest.raises(DatabaseError, match="image_names_all_nodes_that_have_it"), transaction.atomic():
        ClusterImage.objects.filter(name=A).update(on_nodes=["n1"])


def test_a_removed_cluster_takes_nothing():
    assert record_images(new_id(), {"n1": HAS_A}, [A]) == ImagesChange(0, 0)
    record_pulls(new_id(), [PullSample(1, 5)])
    assert not PullTimes.objects.exists()


def test_attack_images_that_change_all_the_time_write_no_inventory():
    cluster = make_cluster()
    record_inventory(cluster.id, [seen("n1", images=HAS_A)], {})
    change = record_inventory(cluster.id, [seen("n1", images=HAS_BOTH)], {})
    assert (change.nodes_written, change.version) == (0, 1)
    record_images(cluster.id, {"n1": HAS_BOTH}, [A, B])
    assert Cluster.objects.get(id=cluster.id).inventory_version == 1


def test_the_newest_pulls_are_kept_by_class(cluster):
    record_pulls(cluster.id, [PullSample(2, 10), PullSample(2, 11), PullSample(4, 300)])
    record_pulls(cluster.id, [PullSample(2, 12)])
    record_pulls(cluster.id, [])
    kept = {row.size_class: (row.recent_seconds, row.pulls) for row in PullTimes.objects.filter(cluster=cluster)}
    assert kept == {2: ([12, 11, 10], 3), 4: ([300], 1)}
    record_pulls(cluster.id, [PullSample(2, second) for second in range(100)])
    row = PullTimes.objects.get(cluster=cluster, size_class=2)
    assert (row.recent_seconds, row.pulls) == (list(range(99, 99 - MOST_PULLS, -1)), 103)


@pytest.mark.parametrize(
    "attack",
    [
        "UPDATE clusters_clusterimage SET nodes = 0",
        "UPDATE clusters_clusterimage SET name = ''",
        "UPDATE clusters_clusterimage SET size_mib = 1048577",
        "UPDATE clusters_clusterimage SET size_mib = -1",
        (
            "INSERT INTO clusters_clusterimage (cluster_id, name, size_mib, nodes, by_flavor)"
            " SELECT cluster_id, name, 1, 1, '{}' FROM clusters_clusterimage"
        ),
        "UPDATE clusters_pulltimes SET size_class = 6",
        "UPDATE clusters_pulltimes SET recent_seconds = '{}'",
        "UPDATE clusters_pulltimes SET pulls = 0",
        "UPDATE clusters_pulltimes SET recent_seconds = array_fill(1, ARRAY[16]), pulls = 16",
        (
            "INSERT INTO clusters_pulltimes (cluster_id, size_class, recent_seconds, pulls)"
            " SELECT cluster_id, size_class, '{1}', 1 FROM clusters_pulltimes"
        ),
    ],
)
def test_attack_the_database_refuses_what_no_cluster_reports(cluster, attack):
    record_images(cluster.id, {"n1": HAS_A}, [A])
    record_pulls(cluster.id, [PullSample(1, 5)])
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(attack)
