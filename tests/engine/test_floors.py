"""Bounds on what candidates would strand save landings, and change no decision."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from placement.answers.quotes import quote
from placement.cycle.cycle import decide
from placement.fleet.fleet import FleetIndex
from placement.fleet.fleet_state import FleetState
from placement.fleet.pools import CPU, UNITS
from placement.ranking import contest, landing
from placement.ranking.candidates import ask_of
from placement.ranking.floors import UNBOUNDED, Floors
from placement.ranking.fragmentation import Fragmentation, typical_of
from placement.ranking.landing import Landings
from placement.ranking.node_table import NodeTable
from tests.laws import examples

from .checker import check
from .fleets import A100, H100, cluster, flavor, job, node, pods, snapshot, uniform
from .test_placement_laws import clusters, jobs, limits, policies, snapshots

KINDS = [
    flavor(H100, price="4"),
    flavor(A100, price="2"),
    flavor(A100, price="0.3", sharing="mig:1g.10gb"),
    flavor("", price="0.03"),
    flavor(H100, price="3", sharing="divisible"),
]


class Eager(Landings):
    """All landings, each computed whenever something changed: the decisions that bounds must not change."""

    def look(self, is_in):
        versions = self._state.versions[self._ask.lead]
        stale = np.flatnonzero(is_in & (versions != self._seen)).tolist()
        self._seen[stale] = versions[stale]
        for candidate in stale:
            self._settle(candidate)
        for number in {int(self._cluster[candidate]) for candidate in stale}:
            if self._ask.pod_sets[0].count == 1 and self._state.fleet.clusters[number].fills == "spread":
                self._mask(np.flatnonzero(is_in & (self._cluster == number)).tolist())


def counted_kind_by_kind(self, pools, units, cpu, weight):
    """`Fragmentation.stranded_whole` as the published measure defines it, on nodes of one pool."""
    idle = units * self._gpus_per_unit[pools]
    wanted = self._units[self._request, pools][:, None]
    fits = (wanted >= 0) & (cpu >= self._cpu[:, None]) & (units >= wanted)
    lost = weight * (self._weight @ np.where(fits, 0.0, idle))
    return lost + np.maximum(0.0, idle - cpu / self._cores_per_gpu)


def decided_eagerly(asked):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contest, "Landings", Eager)
        patch.setattr(Fragmentation, "stranded_whole", counted_kind_by_kind)
        return decide(asked)


def packing(asked):
    return replace(asked, queue=tuple(replace(one, strategy="pack") for one in asked.queue))


@pytest.mark.law
@pytest.mark.parametrize("few", [0, landing.FEW])
@given(given_snapshot=snapshots)
@examples(60)
def test_a_cycle_with_bounds_decides_as_one_that_lands_everything(few, given_snapshot):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(landing, "FEW", few)
        asked = packing(given_snapshot)
        assert decide(asked) == decided_eagerly(asked)


def busy_node(name, chance):
    of = chance.choice(KINDS)
    total = chance.choice((4, 8)) if of.gpu_model else 0
    free = chance.randint(0, total)
    parts = [1000] * free + [chance.choice((0, 250, 700)) for _ in range(total - free)]
    return node(
        name, of, total, free,
        domain=("z", "b", f"r{chance.randint(0, 2)}"),
        free_cpu_millicores=chance.choice((1000, 8000, 32_000, 128_000)),
        free_pods=chance.choice((0, 3, 110)),
        **({"device_free_milli": {of.name: tuple(parts)}} if of.sharing == "divisible" else {}),
    )  # fmt: skip


def busy_fleet(chance, number=10):
    return [
        cluster(n, [busy_node(f"c{n}-{m}", chance) for m in range(chance.randint(1, 8))], KINDS)
        for n in range(1, number + 1)
    ]


def some_job(chance):
    count, cpu = chance.choice((1, 1, 1, 2, 3, 6)), chance.choice((500, 2000, 9000))
    wanted = chance.choice((
        pods(count, 0, cpu=cpu), pods(count, 1, fraction=chance.choice((200, 500)), cpu=cpu),
        pods(count, 1, mig="1g.10gb", cpu=cpu), *(pods(count, gpus, cpu=cpu) for gpus in (1, 1, 2, 4, 8)),
        pods(count, 2, models=[H100], cpu=cpu), pods(count, 1, models=[A100], cpu=cpu),
    ))  # fmt: skip
    level, mode = chance.choice(("cluster", "rack", "node")), chance.choice(("preferred", "required"))
    return job(wanted, strategy="pack", level=level, mode=mode)


@pytest.mark.law
@pytest.mark.parametrize("seed", range(12))
def test_over_a_busy_fleet_it_decides_alike_too(seed):
    chance = random.Random(seed)
    asked = snapshot(busy_fleet(chance), [some_job(chance) for _ in range(60)])
    decisions = decide(asked)
    assert decisions.placements
    assert decisions == decided_eagerly(asked)


def stranded_in(meter, pool, number):
    """By the published measure, on all nodes of a pool whose devices are shared."""
    return meter.stranded(number, pool.free[UNITS], pool.devices, pool.free[CPU]).sum()


@pytest.mark.parametrize("seed", range(6))
def test_no_landing_strands_less_than_its_bounds_and_one_on_one_node_strands_just_that(seed):
    chance = random.Random(seed)
    state = FleetState(FleetIndex().fleet(busy_fleet(chance, 4)))
    queue = [some_job(chance) for _ in range(40)]
    floors = Floors(NodeTable(state), Fragmentation(state.fleet, typical_of(queue)))
    exact = shared = 0
    for one in queue:
        ask = ask_of(state.fleet, one.pod_sets, one.topology, state.bounds)
        everything = np.arange(len(ask.pools))
        bounds = zip(floors.quick(ask, everything).tolist(), floors.close(ask, everything).tolist(), strict=True)
        landings = Landings(ask, state, floors)
        for candidate, (quick, close) in enumerate(bounds):
            landings._settle(candidate)
            site, found = landings.sites[candidate], landings.stranding[candidate]
            if site is None:
                continue
            assert max(quick, close) <= found
            if close != UNBOUNDED and len(site.pods) == 1:
                exact += 1
                assert found == pytest.approx(close, abs=1e-6)
        possible = [candidate for candidate, site in enumerate(landings.sites) if site is not None]
        if not possible:
            continue
        landed = chance.choice(possible)
        number = int(ask.lead[landed])
        is_shared = state.pool(number).devices is not None
        before = stranded_in(floors.meter, state.pool(number), number) if is_shared else 0
        state.take(number, ask.needs(landed)[0], landings.sites[landed])
        if is_shared:
            shared += 1
            after = stranded_in(floors.meter, state.pool(number), number)
            assert landings.stranding[landed] == pytest.approx(after - before, abs=1e-6)
    assert exact > 20
    assert shared or seed == 0  # there all land on whole devices


def test_without_room_the_quick_bound_is_infinite_and_on_divisible_devices_there_is_none():
    kinds = [flavor(H100), flavor(A100, sharing="divisible")]
    fleet = [cluster(n, [node(f"n{n}", kind, 3)], [kind]) for n, kind in enumerate(kinds, start=1)]
    state = FleetState(FleetIndex().fleet(fleet))
    one = job(pods(1, 2))
    ask = ask_of(state.fleet, one.pod_sets, one.topology, state.bounds)
    floors, both = Floors(NodeTable(state), Fragmentation(state.fleet, typical_of([one]))), np.arange(2)
    quick, of_parts = floors.quick(ask, both)
    assert np.isfinite(quick)
    assert of_parts == UNBOUNDED
    for candidate in (0, 1):
        number, needs = int(ask.lead[candidate]), ask.needs(candidate)
        state.take(number, needs[0], state.site([number], needs)[0])
        assert state.site([number], needs) is None  # which is how its state learns that one is left, too few
    assert floors.quick(ask, both).tolist() == [np.inf, UNBOUNDED]


@pytest.mark.parametrize("wanted", [pods(1, 1), pods(3, 2), pods(4, 8), pods(1, 0)])
@pytest.mark.parametrize("prices", [("2",), ("2", "3", "4", "5")])
def test_a_choice_among_many_clusters_lands_few_of_them(wanted, prices, monkeypatch):
    landed = []
    land = Landings._land
    monkeypatch.setattr(Landings, "_land", lambda self, candidate: (landed.append(candidate), land(self, candidate)))
    fleet = [uniform(n, of=flavor(price=prices[n % len(prices)])) for n in range(1, 41)]
    queue = [job(replace(wanted, cpu_millicores=cpu), strategy="pack") for cpu in range(1000, 1020)]
    assert len(decide(snapshot(fleet, queue)).placements) == len(queue)
    assert len(landed) <= 2 * len(queue)


@given(clusters(), jobs(), jobs(), limits, policies)
@examples(25)
@pytest.mark.law
def test_a_packing_job_is_quoted_what_it_gets(fleet, first, last, caps, rules):
    asked = packing(snapshot(fleet, [first, last], caps, rules))
    check(asked, decide(asked))
    ahead = replace(asked, queue=asked.queue[:1])
    last = replace(asked.queue[1], priority=-1)
    decisions = decide(replace(asked, queue=(*ahead.queue, last)))
    got = next((one for one in decisions.placements if one.job_id == last.id), None)
    offers = quote(last, ahead).offers
    assert (offers[0].placement if offers else None) == got
