"""Nodes with other resources and with facts about their GPUs, and jobs that ask for them."""

from dataclasses import replace

from clusters.engine.gpu_facts import NO_FACTS, GpuFacts
from placement.cycle.cycle import decide
from placement.fleet.fleet import fleet_of
from placement.fleet.fleet_state import FleetState
from placement.fleet.siting import need_of
from placement.values.model import Topology

from .fleets import flavor, pods, snapshot

RDMA, PAGES = "rdma/hca", "hugepages-1Gi"
OLD = GpuFacts(40960, "ampere", (8, 0), (535, 54, 3), (12, 2))
NEW = GpuFacts(81559, "hopper", (9, 0), (550, 54, 15), (12, 4))


def with_others(made, facts=NO_FACTS, **others):
    named = {{"rdma": RDMA, "pages": PAGES}[key]: amount for key, amount in others.items()}
    told = {} if facts == NO_FACTS else dict.fromkeys(made.total, facts)
    return replace(made, resources=named, free_resources=named, gpu_facts=told)


def asking(*resources, needs=None, **more):
    made = pods(**more)
    gpu = made.gpu and replace(made.gpu, needs=needs)
    return replace(made, resources=tuple(sorted(resources)), gpu=gpu)


def outcome(*jobs, clusters, **more):
    return decide(snapshot(clusters, jobs, **more))


def why(decisions):
    [wait] = decisions.waits
    return wait.per_cluster[0].code, wait.per_cluster[0].message


H = flavor()


def need_on(made, pod_set, number=0):
    fleet = fleet_of([made])
    units, parts = fleet.serving(pod_set.gpu)
    portion = (int(units[number]), int(parts[number]))
    admitted = fleet.admitted(number, pod_set.gpu)
    return FleetState(fleet).pool(number), need_of(pod_set, portion, Topology(), 1, fleet.resources, admitted)
