"""What simulated clusters do with network attachments, and whether the judges of these object to what must not be, and to nothing else."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

from devtools.simulation.clusters.objects import Node

from .test_frail_cluster import Timer, job

EAST, TEAM = "east", "vision"
FIRST = {"network": "rdma", "namespace": "fabric", "definition": "first"}


def fabric_of(**given):
    # Django must be set up before the gateway's names are imported, so this is not at the top.
    from devtools.simulation.clusters.fabric import Fabric  # noqa: PLC0415

    return Fabric(**given)


def with_networks(text):
    manifest = job("one", gpus=1)
    annotations = manifest["spec"]["template"]["metadata"]["annotations"] | {"k8s.v1.cni.cncf.io/networks": text}
    metadata = {"labels": {"switchyard.dev/attempt": "its attempt"}, "annotations": annotations}
    manifest["spec"]["template"] = manifest["spec"]["template"] | {"metadata": metadata}
    return manifest


def cluster_of(timer):
    # As above.
    from devtools.simulation.clusters.frail_cluster import FrailCluster  # noqa: PLC0415

    return FrailCluster(EAST, "identity", [Node("east-0", "uid-0", gpus=4)], timer, random.Random(1))


def test_a_cluster_refuses_attachments_that_its_policy_does_not_list():
    from clusters.drivers import Refused  # noqa: PLC0415

    fabric = fabric_of(allowed=frozenset({"fabric/first"}))
    fabric.admit(job("none", gpus=1))
    fabric.admit(with_networks("fabric/first"))
    for text in ("fabric/second", "fabric/first,first", "first"):
        with pytest.raises(Refused) as refused:
            fabric.admit(with_networks(text))
        assert refused.value.status == 403
    assert fabric.refused == {"one"}


def test_pods_wait_for_a_definition_and_start_with_what_they_asked_for():
    timer = Timer()
    cluster = cluster_of(timer)
    cluster.fabric.missing = {"fabric/first"}
    cluster.create_job(with_networks("fabric/first,storage"))
    cluster.create_job(job("a stranger's", gpus=1))
    timer.run_for(60)
    pod = next(pod for pod in cluster.pods.values() if pod.name.startswith("one"))
    assert (pod.phase, cluster.fabric.started) == ("Pending", {})
    assert "definition is not found" in pod.reason
    cluster.fabric.missing = set()
    timer.run_for(20)
    assert cluster.fabric.started == {"one": {"fabric/first,storage"}}
    timer.run_for(20)
    assert [run.code for run in cluster.runs] == [0, 0]


def test_a_network_may_have_been_what_was_asked_for_until_an_operator_knows_of_another():
    fabric = fabric_of()
    first = fabric.begins("rdma", "fabric/first", "", 10)
    first.known_us = 12
    assert fabric.may_have_been("rdma", "fabric/first", TEAM, 11, 11)
    assert not fabric.may_have_been("rdma", "fabric/first", TEAM, 5, 9)
    second = fabric.begins("rdma", "fabric/second", "speech", 20)
    assert fabric.begins("rdma", "fabric/second", "speech", 25) is second  # the first answer was lost
    assert fabric.may_have_been("rdma", "fabric/first", TEAM, 30, 30)
    assert fabric.may_have_been("rdma", "fabric/second", "speech", 21, 21)
    second.known_us = 30
    assert fabric.may_have_been("rdma", "fabric/first", TEAM, 30, 40)
    assert not fabric.may_have_been("rdma", "fabric/first", TEAM, 31, 40)
    assert not fabric.may_have_been("rdma", "fabric/second", TEAM, 31, 40)
    assert not fabric.may_have_been("storage", "fabric/second", "speech", 31, 40)
    fabric.begins("rdma", "", "", 50).known_us = 51
    assert not fabric.may_have_been("rdma", "fabric/second", "speech", 52, 60)


def judges():
    # As above.
    from devtools.simulation.requests import attaching  # noqa: PLC0415

    return attaching


def world(rows, fabric, **more):
    given: dict[str, Any] = {
        "faults": SimpleNamespace(rates={"attached": 1.0}),
        "lost_commits": SimpleNamespace(spans=[]),
        "watch": SimpleNamespace(rows=lambda statement: rows.get(statement, [])),
        "clusters": {EAST: SimpleNamespace(name=EAST, fabric=fabric)},
        "removed": [],
    }
    return SimpleNamespace(**(given | more))


@pytest.mark.parametrize(
    ("started", "promised", "is_right"),
    [
        ({"one": {"fabric/first"}}, "fabric/first", True),
        ({"one": {""}}, "", True),
        ({}, "fabric/first", True),
        ({"one": {"fabric/first"}}, "", False),
        ({"one": {""}}, "fabric/first", False),
        ({"one": {"fabric/first", ""}}, "fabric/first", False),
        ({"one": {"storage,fabric/first"}}, "fabric/first,storage", False),
    ],
)
def test_pods_have_exactly_what_was_promised(started, promised, is_right):
    module = judges()
    found = module.pods_start_with_exactly_the_networks_that_they_were_promised(
        world({module.PROMISED: [("one", promised)]}, fabric_of(started=started))
    )
    assert bool(found) is not is_right


@pytest.mark.parametrize(
    ("wanted", "networks", "team", "placed_us", "is_right"),
    [
        (["rdma"], [FIRST], TEAM, 20, True),
        (["rdma"], [FIRST], TEAM, 5, False),  # before it was declared
        (["rdma"], [FIRST | {"definition": "second"}], TEAM, 20, False),
        (["rdma"], [FIRST | {"namespace": ""}], TEAM, 20, False),
        (["rdma"], [], TEAM, 20, False),
        ([], [FIRST], TEAM, 20, False),
        (["rdma"], [FIRST], "speech", 20, False),  # it serves the other team
        ([], [], "speech", 20, True),
    ],
)
def test_networks_are_promised_as_they_were_then(wanted, networks, team, placed_us, is_right):
    module, fabric = judges(), fabric_of()
    fabric.begins("rdma", "fabric/first", TEAM, 10).known_us = 12
    rows = {module.PLACED: [("one", EAST, team, wanted, networks, placed_us - 1, placed_us)]}
    found = module.networks_are_promised_as_they_were_declared(world(rows, fabric))
    assert bool(found) is not is_right
    lost = SimpleNamespace(spans=[(1, 2)])
    assert module.networks_are_promised_as_they_were_declared(world(rows, fabric, lost_commits=lost)) == []


def test_a_refusal_is_that_of_a_cluster():
    module = judges()
    ended = {module.NOT_LISTED: [(["one", "two"],)]}
    assert module.a_refusal_of_a_network_is_a_clusters(world(ended, fabric_of(refused={"two"}))) == []
    assert module.a_refusal_of_a_network_is_a_clusters(world(ended, fabric_of(refused={"other"})))
