"""A gang that prefers a domain goes where it fits inside one, unless that costs more than the preference is worth."""

import random

import numpy as np
import pytest

from placement.answers.quotes import quote
from placement.cycle.cycle import decide
from placement.fleet.fleet import FleetIndex
from placement.fleet.fleet_state import FleetState
from placement.fleet.pools import WIDTH_OF_LEVEL
from placement.ranking.candidates import ask_of
from placement.ranking.node_table import NodeTable
from placement.ranking.preference import WIDER, Preference
from placement.values.model import Topology

from .fleets import cluster, flavor, job, node, pods, snapshot, uniform
from .test_floors import busy_fleet, some_job


def split(number, price="2", **more):
    """Two racks of two nodes."""
    return uniform(number, 4, of=flavor(price=price), per_rack=2, **more)


def whole(number, price="2", **more):
    """One rack of four nodes."""
    return uniform(number, 4, of=flavor(price=price), per_rack=4, **more)


def chosen(fleet, *queue):
    return [placement.cluster for placement in decide(snapshot(fleet, queue)).placements]


@pytest.mark.parametrize("strategy", ["balanced", "cheapest", "soonest", "spread", "pack"])
def test_of_equal_clusters_a_gang_takes_the_one_where_it_keeps_to_its_rack(strategy):
    wanted = pods(3, 8)
    assert chosen([split(1), whole(2)], job(wanted, strategy=strategy, level="rack")) == ["c2"]
    for indifferent in ({"level": "cluster"}, {"level": "block"}):
        assert chosen([split(1), whole(2)], job(wanted, strategy=strategy, **indifferent)) == ["c1"]
    assert chosen([split(1), whole(2)], job(pods(2, 8), strategy=strategy, level="rack")) == ["c1"]
    assert chosen([split(1), whole(2)], job(pods(4, 2), strategy=strategy, level="node")) == ["c1"]


@pytest.mark.parametrize(("price", "expected"), [("2.19", "c2"), ("2.21", "c1")])
def test_under_balanced_the_rack_is_worth_a_tenth_of_the_price(price, expected):
    assert chosen([split(1), whole(2, price)], job(pods(3, 8), level="rack")) == [expected]


def test_where_no_cluster_keeps_to_it_the_preference_changes_nothing():
    assert chosen([split(1, "3"), split(2, "2")], job(pods(3, 8), level="rack")) == ["c2"]


def test_it_looks_at_what_is_left_after_the_jobs_ahead():
    queue = [job(pods(3, 8), level="rack"), job(pods(3, 8), level="rack"), job(pods(1, 8))]
    asked = snapshot([split(1), whole(2), whole(3)], queue)
    assert [placement.cluster for placement in decide(asked).placements][:2] == ["c2", "c3"]
    assert quote(queue[1], snapshot(asked.clusters, queue[:1])).offers[0].placement.cluster == "c3"


def test_racks_of_unknown_name_are_no_domain_to_keep_to():
    of = flavor()
    nameless = cluster(1, [node(f"n{n}", of, domain=("z", "b", "")) for n in range(4)], [of])
    assert chosen([nameless, whole(2)], job(pods(3, 8), level="rack")) == ["c2"]
    cliques = cluster(1, [node(f"n{n}", of, domain=("z", "b", ""), clique="k") for n in range(4)], [of])
    assert chosen([cliques, whole(2)], job(pods(3, 8), level="rack")) == ["c1"]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("level", ["node", "clique", "rack", "block", "zone"])
def test_what_is_foreseen_is_where_the_gang_lands(level, seed):
    chance = random.Random(seed)
    state = FleetState(FleetIndex().fleet(busy_fleet(chance, 5)))
    table, seen = NodeTable(state), set()
    for _ in range(30):
        one = some_job(chance)
        if one.pod_sets[0].count == 1 or (one.pod_sets[0].gpu is not None and one.pod_sets[0].gpu.fraction_milli):
            continue
        ask = ask_of(state.fleet, one.pod_sets, Topology(level, "preferred"), state.bounds)
        if not len(ask.pools):
            continue
        preference = Preference(ask, table)
        preference.look()
        keeps = preference._keep_to_it(np.arange(len(ask.pools)))
        for candidate, kept in enumerate(keeps.tolist()):
            assert preference._keeps_to_it(candidate) == kept
            sites = state.site(ask.pools[candidate].tolist(), ask.needs(candidate))
            if sites is not None:
                assert (WIDTH_OF_LEVEL[sites[0].level] <= WIDTH_OF_LEVEL[level]) == kept
                seen.add(kept)
        landed = next((n for n in range(len(ask.pools)) if state.site(ask.pools[n].tolist(), ask.needs(n))), None)
        if landed is not None:
            state.take(
                int(ask.lead[landed]),
                ask.needs(landed)[0],
                state.site(ask.pools[landed].tolist(), ask.needs(landed))[0],
            )
    assert True in seen


def test_the_weight_is_the_documented_one():
    assert WIDER == 0.1
