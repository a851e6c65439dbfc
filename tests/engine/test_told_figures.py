"""Every figure in a reason can be counted on the cluster's nodes: a law, counted node by node without the engine's arrays."""

import re
from dataclasses import replace

import pytest
from hypothesis import given

from placement.cycle.cycle import decide
from tests.laws import examples

from .checker import POSITION, units_of
from .fleets import A100, H100, cluster, flavor, job, node, pods, snapshot
from .test_placement_laws import clusters, jobs

REQUEST = re.compile(r"needs .*?(?: on one node| at the same time| inside one \w+);")
FLAVOR = re.compile(r" \(flavor (.+?)\)")
CLOSED = re.compile(r"(?:nodes that cannot be used|no node accepts pods .*?): (?P<reasons>[^;(]+)")
BLOCK = re.compile(r"largest free block is (?P<free>[\d.]+)(?: GPUs?)? on (?P<node>[^ ;]+)")
LARGEST_NODE = re.compile(r"the largest node has (?P<has>[\d.]+)(?: GPUs?)?")
LARGEST = re.compile(r"the largest has (?P<has>[\d.]+) (?P<unit>cores?|GiB)")
ROOM = re.compile(r"there is room for (?P<room>\d+)")
ROOMIEST = re.compile(r"the roomiest(?P<domain> \S+)? has room for (?P<room>\d+)")
AT_MOST = re.compile(
    r"at most (?P<cores>[\d.]+) cores? and (?P<gib>[\d.]+) GiB are free there(?P<apart>, but not on the same node)?"
)
FULL = re.compile(r"the (?P<nodes>one|\d+) nodes? with that much free ha(?:s|ve) no room for another pod")
LEVELS = ("node", "clique", "rack", "block", "zone", "cluster")


def serves(flavor, pods):
    gpu = pods.gpu
    if gpu is None:
        return True
    wanted = "mig" if gpu.mig else "timeslice" if gpu.fraction_milli else "whole"
    is_kind = flavor.sharing.partition(":")[0] == wanted and (not gpu.mig or flavor.sharing == f"mig:{gpu.mig}")
    return bool(flavor.gpu_model) and is_kind and (not gpu.models or flavor.gpu_model in gpu.models)


class Told:
    """What is told of the nodes of one flavor of a cluster."""

    def __init__(self, cluster, flavor, asked):
        self.pods, self.flavor, self.topology = asked.pod_sets[0], flavor, asked.topology
        self.nodes = [one for one in cluster.nodes if flavor.name in one.total]
        self.units = units_of(self.pods, flavor)
        self.takes = "" if self.pods.gpu is None else flavor.name

    def free(self, one):
        return one.free[self.flavor.name] if one.is_usable and self.flavor.name not in one.repels else 0

    def places(self, one):
        if not one.is_usable or self.takes in one.repels:
            return 0
        amounts = (
            (self.free(one), self.units),
            (one.free_cpu_millicores, self.pods.cpu_millicores),
            (one.free_memory_mib, self.pods.memory_mib),
            (one.free_pods, 1),
        )
        return min(free // each for free, each in amounts if each)

    def in_terms_of_the_request(self, units):
        if not self.pods.gpu.fraction_milli:
            return units
        return round(units * 1000 // int(self.flavor.sharing.partition(":")[2]) / 1000, 3)

    def closed(self):
        """The number of nodes by why they are closed."""
        found = {}
        for one in self.nodes:
            why = one.repels.get(self.takes, "") if one.is_usable else one.why_unusable or "not usable"
            if why:
                found[why] = found.get(why, 0) + 1
        return found

    def roomiest(self):
        """The most pods inside one domain that the job may keep to."""
        held = {}
        for one in self.nodes:
            path = (*one.domain, "", "", "")[:3]
            keys = [("node", one.name), ("clique", *path, one.clique) if one.clique else None]
            keys += [(level, *path[:depth]) if path[depth - 1] else None for level, depth in POSITION.items()]
            for key in keys:
                if key and LEVELS.index(key[0]) <= LEVELS.index(self.topology.level):
                    held[key] = held.get(key, 0) + self.places(one)
        return max(held.values())

    def check_devices(self, told):
        blocks = {one.name: self.free(one) for one in self.nodes}
        if (found := BLOCK.search(told)) is not None:
            most = max(blocks.values())
            assert 0 < most < self.units
            assert float(found["free"]) == self.in_terms_of_the_request(most)
            assert blocks[found["node"]] == most
        if "none is free" in told:
            assert not any(blocks.values())
        if (found := LARGEST_NODE.search(told)) is not None:
            most = max((one.total[self.flavor.name] for one in self.nodes), default=0)
            assert most < self.units
            assert float(found["has"]) == self.in_terms_of_the_request(most)

    def check_room(self, told):
        if (found := ROOM.search(told)) is not None:
            devices = sum(self.free(one) // self.units for one in self.nodes) if self.units else self.pods.count
            room = devices if devices < self.pods.count else sum(map(self.places, self.nodes))
            assert int(found["room"]) == room < self.pods.count
        if (found := ROOMIEST.search(told)) is not None:
            assert int(found["room"]) == self.roomiest() < self.pods.count

    def check_rest(self, told):
        if (found := LARGEST.search(told)) is not None:
            is_memory = found["unit"] == "GiB"
            most = max((one.memory_mib if is_memory else one.cpu_millicores for one in self.nodes), default=0)
            assert float(found["has"]) == round(most / (1024 if is_memory else 1000), 3)
        if (found := AT_MOST.search(told)) is not None:
            cores, memory = (
                max((getattr(one, name) for one in self.suited()), default=0)
                for name in ("free_cpu_millicores", "free_memory_mib")
            )
            assert (float(found["cores"]), float(found["gib"])) == (round(cores / 1000, 3), round(memory / 1024, 3))
            is_enough_apart = cores >= self.pods.cpu_millicores and memory >= self.pods.memory_mib
            assert bool(found["apart"]) == is_enough_apart
            assert not self.roomy()
        if (found := FULL.search(told)) is not None:
            assert found["nodes"] == ("one" if len(self.roomy()) == 1 else str(len(self.roomy())))
            assert not any(one.free_pods for one in self.roomy())

    def suited(self):
        """The nodes with enough free devices."""
        suited = [one for one in self.nodes if one.is_usable and self.free(one) >= self.units]
        return [one for one in suited if self.takes or "" not in one.repels]

    def roomy(self):
        """Of these, those with enough cores and memory for a pod."""
        enough = [one for one in self.suited() if one.free_cpu_millicores >= self.pods.cpu_millicores]
        return [one for one in enough if one.free_memory_mib >= self.pods.memory_mib]

    def check_closed(self, told):
        if (found := CLOSED.search(told)) is not None:
            told_of = (one.split(" ", 1) for one in found["reasons"].strip().split(", "))
            counts = {why: count for count, why in told_of}
            assert counts == {why: str(count) for why, count in self.closed().items()}


def check_told(asked, where, message):
    """Fails if a figure of the message is not that of the flavor's nodes, or is none that is known here."""
    wanted, types = asked.pod_sets[0], asked.constraints.capacity_types
    permitted = [one for one in where.flavors.values() if serves(one, wanted)]
    permitted = [one for one in permitted if not types or one.capacity_type in types]
    told, _, elsewhere = message.partition("; elsewhere ")
    named = FLAVOR.search(told)
    with_nodes = [one for one in permitted if any(one.name in each.total for each in where.nodes)]
    if named is None and len(with_nodes) > 1:
        assert not re.search(r"\d", told), f"of which flavor? {message}"
    if not permitted:
        return
    of = where.flavors[named[1]] if named else next(iter(with_nodes or permitted))
    assert of in permitted
    judge = Told(where, of, asked)
    for check in (judge.check_devices, judge.check_room, judge.check_rest, judge.check_closed):
        check(told)
    if not elsewhere:
        left = told
        for known in (REQUEST, FLAVOR, CLOSED, BLOCK, LARGEST_NODE, LARGEST, ROOM, ROOMIEST, AT_MOST, FULL):
            left = known.sub("", left)
        assert not re.search(r"\d", left), f"nobody counts {left!r} of {message!r}"
    check_nearest(judge, where, permitted, told, asked)


def check_nearest(judge, where, permitted, told, asked):
    """The block or the room that is told is the largest that any flavor has whose nodes could ever hold a pod."""
    others = [Told(where, one, asked) for one in permitted if one is not judge.flavor]
    others = [one for one in others if any(could_hold(one, each) for each in one.nodes)]
    if BLOCK.search(told):
        most = max(map(judge.free, judge.nodes))
        assert all(judge.free(one) <= most for one in judge.nodes)
        is_comparable = asked.pod_sets[0].gpu.fraction_milli == 0
        assert all(other.free(one) <= most for other in others for one in other.nodes) or not is_comparable


def could_hold(told, one):
    wanted = told.pods
    enough = one.total[told.flavor.name] >= told.units and one.cpu_millicores >= wanted.cpu_millicores
    return enough and one.memory_mib >= wanted.memory_mib


alone = jobs().map(
    lambda one: replace(
        one, pod_sets=one.pod_sets[:1], constraints=replace(one.constraints, reservation="", overflow=(), regions=())
    )
)


@pytest.mark.law
@given(clusters(), alone)
@examples(120)
def test_every_figure_of_a_reason_can_be_counted_on_the_nodes(fleet, asked):
    for wait in decide(snapshot(fleet, [asked])).waits:
        by_name = {one.name: one for one in fleet}
        for reason in wait.per_cluster:
            if by_name[reason.cluster].state in ("ready", "degraded"):
                check_told(asked, by_name[reason.cluster], reason.message)


def mixed(*free, of=None):
    """A cluster with a node of each of two models, of which so many GPUs are free."""
    kinds = of or [flavor(A100), flavor(H100)]
    return cluster(
        1, [node(f"n{n}", one, 8, units) for n, (one, units) in enumerate(zip(kinds, free, strict=True))], kinds
    )


def told_of(where, asked):
    (wait,) = decide(snapshot([where], [asked])).waits
    check_told(asked, where, wait.per_cluster[0].message)
    return wait.per_cluster[0].message


@pytest.mark.parametrize(
    ("where", "asked", "expected"),
    [
        (mixed(2, 4), pods(1, 8), "needs 8 GPUs on one node; largest free block is 4 on n1 (flavor H100-80GB-whole-on_demand)"),
        (mixed(4, 2), pods(1, 8), "needs 8 GPUs on one node; largest free block is 4 on n0 (flavor A100-80GB-whole-on_demand)"),
        (mixed(4, 8), pods(3, 4),
         "needs 3 pods of 4 GPUs at the same time; there is room for 2 (flavor H100-80GB-whole-on_demand)"),
        (mixed(8, 8), pods(1, 8, cpu=200_000),
         "needs 200 cores on one node; the largest has 128 cores (flavor A100-80GB-whole-on_demand)"),
    ],
)  # fmt: skip
def test_in_a_cluster_of_several_flavors_the_figures_are_those_of_the_nearest_and_it_is_named(where, asked, expected):
    assert told_of(where, job(asked)) == expected


def test_a_share_of_a_gpu_is_told_as_that_part_of_a_gpu():
    shared = flavor(sharing="timeslice:4")
    where = cluster(1, [node("n", shared, 8, 1)], [shared])
    assert told_of(where, job(pods(fraction=500))) == (
        "needs 0.5 of a time-sliced GPU on one node; largest free block is 0.25 GPUs on n"
    )


def test_what_one_shape_needs_of_cores_is_not_told_of_another():
    """Both lack the same devices nowhere: one wants more cores than any node has, the other more than are free."""
    of = flavor()
    where = cluster(1, [node("n", of, cpu=8000, free_cpu_millicores=2000)], [of])
    queue = [job(pods(1, 1, cpu=cpu)) for cpu in (9000, 4000)]
    messages = [wait.per_cluster[0].message for wait in decide(snapshot([where], queue)).waits]
    assert messages == [
        "needs 9 cores on one node; the largest has 8 cores",
        "needs 4 cores and 1 GiB with 1 GPU on one node; at most 2 cores and 1024 GiB are free there",
    ]


@pytest.mark.parametrize("strategy", ["balanced", "pack"])
@pytest.mark.parametrize("wanted", [pods(1, 0, cpu=0, memory=0), pods(2, 0, cpu=0, memory=0), pods(fraction=500)])
def test_a_flavor_without_nodes_ends_no_cycle(wanted, strategy):
    """Nodes leave before their flavor does."""
    empty = [flavor(A100, sharing="divisible"), flavor(A100, sharing="timeslice:4"), flavor(""), flavor(H100)]
    full = node("n", empty[3], 8, 0, free_pods=0)
    for nodes in ([], [full]):
        (wait,) = decide(snapshot([cluster(1, nodes, empty)], [job(wanted, strategy=strategy)])).waits
        assert wait.per_cluster[0].message
