"""An observer counts the followed images of a cluster, and writes no inventory when only images change."""

import time

import pytest
from django.db import OperationalError

import clusters.operations
from clusters.drivers.simulated import Node, path_of, put_node, remove_node
from clusters.engine.pulls import ImageInventory, PullSample
from clusters.models import Cluster, ClusterImage, PullTimes
from clusters.models import Node as StoredNode
from clusters.operations import record_pulls, register_simulated
from federation.models import ProvenImage
from federation.observer import feed
from foundation.caches import reset_all
from tests.builders import make_tenant
from tests.rooms.federation.test_observers import observing, wait_for

pytestmark = pytest.mark.django_db(transaction=True)
MIB = 2**20
TRAIN = "registry:5000/train:v1"


def node(name: str, *images: str) -> Node:
    capacity = {"cpu": "64", "memory": "64Gi", "pods": "110"}
    return Node(
        name=name, uid=f"uid-{name}", labels={}, allocatable=capacity, images=[([one], 900 * MIB) for one in images]
    )


def counted() -> dict[str, tuple[int, dict[str, int]]]:
    return {row.name: (row.nodes, row.by_flavor) for row in ClusterImage.objects.all()}


def test_followed_images_are_counted_as_they_come_and_go_without_touching_the_inventory(home, monkeypatch):
    monkeypatch.setattr(feed, "IMAGES_SECONDS", 0.1)
    cluster = register_simulated(make_tenant("acme"), "east", nodes=[node("n1", TRAIN, "foreign:1"), node("n2")])
    ProvenImage.objects.create(organisation=make_tenant("acme"), name=TRAIN)
    reset_all()
    path = path_of(home, cluster.server)
    with observing():
        wait_for(lambda: counted() == {TRAIN: (1, {"cpu": 1})}, "the node's image is counted, and no foreign one")
        wait_for(StoredNode.objects.filter(cluster=cluster, name="n2").exists, "both nodes are stored")
        before = list(StoredNode.objects.order_by("name").values_list("name", "observed_at"))
        version = Cluster.objects.get(id=cluster.id).inventory_version
        for number in range(10):
            put_node(path, node("n2", TRAIN, f"foreign:{number}"))
            time.sleep(0.1)
        wait_for(lambda: counted() == {TRAIN: (2, {"cpu": 2})}, "the other node has it too")
        assert list(StoredNode.objects.order_by("name").values_list("name", "observed_at")) == before
        assert Cluster.objects.get(id=cluster.id).inventory_version == version
        put_node(path, node("n1"))
        wait_for(lambda: counted() == {TRAIN: (1, {"cpu": 1})}, "it was removed from a node")
        remove_node(path, "n2")
        wait_for(lambda: counted() == {}, "the node that had it is gone")


def test_pulls_that_could_not_be_recorded_are_recorded_later_and_once(home, monkeypatch):
    monkeypatch.setattr(feed, "IMAGES_SECONDS", 0.1)
    seen, asked = [[PullSample(2, 40), PullSample(2, 41)]], []
    monkeypatch.setattr(ImageInventory, "see_pods", lambda self, *_: self.give_back(seen.pop() if seen else []))

    def fails_once(*args):
        asked.append(args)
        if len(asked) == 1:
            raise OperationalError("the database is away")
        record_pulls(*args)

    monkeypatch.setattr(clusters.operations, "record_pulls", fails_once)
    cluster = register_simulated(make_tenant("acme"), "east", nodes=[node("n1")])
    with observing():
        wait_for(PullTimes.objects.filter(cluster=cluster).exists, "the pulls are recorded")
        time.sleep(0.5)
    assert PullTimes.objects.get().recent_seconds == [41, 40]
    assert len(asked) == 2
