"""The order of a gang over its nodes."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from federation.engine.objects.ranks import HOSTNAME, stretches_of, wishes_of

NODES = {"a": 2, "b": 1, "c": 3}


def selectors(level, node):
    return [{"level": str(level), "around": node}]


def node_of(wishes):
    """The node that the wishes name."""
    [node] = [
        one["values"][0] for wish in wishes for one in wish["preference"]["matchExpressions"] if one["key"] == HOSTNAME
    ]
    return node


def test_one_domain_needs_no_order():
    assert stretches_of(NODES, [[("r1",)] * 3, [("b1",)] * 3], selectors) == []
    assert stretches_of(NODES, [], selectors) == []
    assert stretches_of({}, [[]], selectors) == []


def test_domains_are_those_of_the_narrowest_level_that_is_known_of_all_nodes():
    racks, blocks = [("b1", "r1"), None, ("b2", "r1")], [("b1",), ("b1",), ("b2",)]
    first, second = stretches_of(NODES, [racks, blocks], selectors)
    assert first == {"nodes": [["a", 2], ["b", 1]], "domain": [{"level": "1", "around": "a"}]}
    assert second == {"nodes": [["c", 3]], "domain": [{"level": "1", "around": "c"}]}


def test_each_index_is_told_its_node_and_more_urgently_its_domain():
    told = stretches_of(NODES, [[("r1",), ("r1",), ("r2",)]], selectors)
    assert [node_of(wishes_of(told, index)) for index in range(6)] == ["a", "a", "b", "c", "c", "c"]
    node, domain = wishes_of(told, 2)
    assert (node["weight"], domain["weight"]) == (50, 100)
    assert {one["key"]: one["values"] for one in domain["preference"]["matchExpressions"]} == {
        "level": ["0"],
        "around": ["a"],
    }
    assert wishes_of(told, 6) == wishes_of(told, 10**9) == []
    assert wishes_of([], 0) == []


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=12))
def test_every_pod_has_one_place_and_neighbours_keep_together(drawn):
    racks = sorted(rack for rack, _ in drawn)
    nodes = {f"n{number}": pods for number, (_, pods) in enumerate(drawn)}
    told = stretches_of(nodes, [[(rack,) for rack in racks]], selectors)
    if len(set(racks)) == 1:
        assert told == []
        return
    count = sum(nodes.values())
    places = [node_of(wishes_of(told, index)) for index in range(count)]
    assert {node: places.count(node) for node in nodes} == nodes
    rack_of = {f"n{number}": rack for number, rack in enumerate(racks)}
    assert sum(rack_of[one] != rack_of[other] for one, other in pairwise(places)) == len(set(racks)) - 1
    assert len(told) == len(set(racks))
