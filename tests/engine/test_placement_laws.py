"""Laws of the cycle on random fleets and queues, judged by an independent checker."""

import random
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.cycle.cycle import Cycle, decide
from placement.fleet.fleet import FleetIndex
from placement.fleet.pools import WIDTH_OF_LEVEL
from placement.ranking.feasibility import never_fits
from placement.ranking.fragmentation import typical_of
from placement.values.budgets import BudgetState, BudgetWindow
from placement.values.elastic import Elastic
from placement.values.emissions import Emissions
from placement.values.model import StrategyWeights, TenantPolicy, Tier
from placement.values.strategies import STRATEGIES
from tests.laws import among, examples

from .checker import check
from .fleets import A100, H100, NOW, cluster, flavor, job, limit, node, pods, reservation, snapshot, window

pytestmark = pytest.mark.law

FLAVORS = [
    flavor(H100, price="4"),
    flavor(H100, price="1", capacity_type="spot"),
    flavor(A100, price="2"),
    flavor(A100, price=None, sharing="mig:1g.10gb"),
    flavor(A100, price="0.5", sharing="timeslice:4"),
    flavor("", price="0.03"),
]
EMISSIONS = [
    None, Emissions(), Emissions(Decimal(500), Decimal("2.5"), Decimal("0.25")), Emissions(Decimal(30)), Emissions(None, Decimal(3)),
    Emissions(Decimal(0), Decimal(0)),
]  # fmt: skip
HOME_FIRST = (Tier(0, clusters=("c1",)), Tier(60, regions=("us-*",)), Tier(3600))
RESERVED = [str(UUID(int=number)) for number in range(1, 4)]
TENANTS = ["acme", "acme/ml", "acme/ml/vision", "globex/a"]
some_flavors = st.lists(st.sampled_from(FLAVORS), min_size=1, max_size=3, unique_by=lambda one: one.name)
some_emissions = st.sampled_from(EMISSIONS)
places_in_cluster = st.sets(st.integers(0, 5))
amounts = st.dictionaries(st.sampled_from(["gpu", f"gpu:{H100}", "cpu", "memory"]), st.integers(0, 9000))


@st.composite
def clusters(draw):
    made = []
    for number in range(draw(st.integers(1, 4))):
        offered = [replace(one, emissions=draw(some_emissions)) for one in draw(some_flavors)]
        nodes = [_node(draw, offered, f"n{number}-{n}") for n in range(draw(st.integers(1, 6)))]
        made.append(
            cluster(
                number + 1,
                nodes,
                offered,
                owner_path=draw(among("acme", "acme/ml", "globex")),
                region=draw(among("eu-west-1", "us-east-1")),
                state=draw(among(*["ready"] * 4, "degraded", "cordoned", "unreachable")),
                fills=draw(among("hinted", "spread")),
            )
        )
    return made


def _node(draw, offered, name):
    first, further = (draw(st.integers(0, len(offered) - 1)) for _ in range(2))
    own = [offered[first], *([] if further == first else [offered[further]])]
    totals = [draw(st.integers(1, 8)) if one.gpu_model else 0 for one in own]
    cpu = draw(among(4000, 16_000, 64_000))
    return node(
        name,
        own,
        totals,
        [draw(st.integers(0, total)) for total in totals],
        domain=(
            draw(among("", "z1", "z2")),
            draw(among("", "b1")),
            draw(among("", "r1", "r2")),
        ),
        clique=draw(among("", "k1", "k2")),
        cpu=cpu,
        free_cpu_millicores=draw(st.integers(0, cpu)),
        free_pods=draw(st.integers(0, 8)),
        is_usable=draw(among(*[True] * 5, False)),
        repels=dict.fromkeys(draw(among((), (), (), ("",), ("", own[0].name))), "with taint t:NoSchedule"),
    )


def _pods(draw, name):
    kind = draw(among(*["whole"] * 3, "mig", "share", "cpu"))
    models = draw(among((), (), (H100,), (A100,), (H100, A100)))
    count, cpu = draw(st.integers(1, 5)), draw(among(0, 1000, 3500))
    if kind == "whole":
        return pods(count, draw(st.integers(1, 8)), models=models, cpu=cpu, name=name)
    if kind == "mig":
        return pods(count, draw(st.integers(1, 2)), mig="1g.10gb", cpu=cpu, name=name)
    if kind == "share":
        return pods(count, 1, fraction=draw(st.integers(1, 999)), cpu=cpu, name=name)
    return pods(count, 0, cpu=cpu, name=name)


@st.composite
def jobs(draw):
    wanted = [_pods(draw, f"set{n}") for n in range(draw(among(1, 1, 1, 2, 3)))]
    return job(
        *wanted,
        tenant=draw(among(*TENANTS)),
        level=draw(among("cluster", "zone", "rack", "clique", "node")),
        mode=draw(among("preferred", "required")),
        strategy=draw(among(*sorted(STRATEGIES))),
        regions=draw(among((), (), ("eu-*",))),
        capacity_types=draw(among((), (), ("spot",))),
        submitted_at=draw(among(None, NOW, NOW - timedelta(seconds=60), NOW - timedelta(days=1))),
        overflow=draw(among((), (), HOME_FIRST)),
        deadline_seconds=draw(among(None, 1000, 2000, 86_400)),
        reservation=draw(among("", "", "", *RESERVED)),
    )


all_jobs = jobs()


@st.composite
def elastic_jobs(draw):
    """In the queue with their fewest pods."""
    one = draw(all_jobs)
    position = draw(st.integers(0, len(one.pod_sets) - 1))
    fewest = one.pod_sets[position].count
    return replace(one, elastic=Elastic(position, fewest, fewest + draw(st.integers(0, 4))))


any_jobs = st.one_of(all_jobs, all_jobs, elastic_jobs())


numbers_of_reservations = st.lists(st.sampled_from(range(1, len(RESERVED) + 1)), unique=True)


@st.composite
def reservations(draw):
    """Of some nodes each; those that overlap in time share none, as the database sees to."""
    made, taken = [], []
    for number in draw(numbers_of_reservations):
        starts, minutes = draw(among(-60, -1, 15, 30, 45)), draw(among(20, 90, 5000))
        on = draw(st.integers(1, 3))
        wanted = {f"n{on - 1}-{n}" for n in draw(places_in_cluster)}
        met = [other for begin, end, where, other in taken if where == on and begin < starts + minutes and starts < end]
        nodes = wanted.difference(*met)
        taken.append((starts, starts + minutes, on, nodes))
        tenant = draw(among("acme", "acme/ml", "globex"))
        quota = {"reserved": sorted(draw(amounts).items()), "used": sorted(draw(amounts).items())}
        when = {"starts": starts, "minutes": minutes, "recall": draw(among(None, None, 1500, 5000))}
        made.append(reservation(number, *sorted(nodes), on=on, tenant=tenant, **when, **quota))
    return made


few_places_in_cluster = st.sets(st.integers(0, 5), max_size=3)


@st.composite
def windows(draw):
    """Of whole clusters or some nodes, past, of now and to come; they may overlap each other and reservations."""
    made = []
    for number in range(draw(st.integers(1, 3))):
        starts, minutes = draw(among(-60, -1, 15, 30, 45, 3000)), draw(among(20, 59, 90, 5000))
        on = draw(st.integers(1, 4))
        nodes = {f"n{on - 1}-{n}" for n in draw(few_places_in_cluster)}
        made.append(window(number + 1, *sorted(nodes), on=on, starts=starts, minutes=minutes))
    return made


limits = st.lists(
    st.builds(
        limit,
        tenant=st.sampled_from(TENANTS),
        resource=st.sampled_from(["gpu", f"gpu:{H100}", "cpu", "memory"]),
        cap=st.integers(0, 30_000),
        held=st.sampled_from([0, 0, 3000]),
        clusters=st.sampled_from([(), ("c1",)]),
        guaranteed=st.sampled_from([0, 0, 2000, 6000]),
        nominal=st.sampled_from([None, 2000]),
    ),
    max_size=4,
    unique_by=lambda one: (one.tenant_path, one.resource, one.clusters),
)
"""Ceilings, and limits that lend to each other: what is guaranteed counts above only as far as it is exceeded."""
names = st.sampled_from(sorted(STRATEGIES))
policies = st.lists(
    st.builds(
        TenantPolicy,
        tenant_path=st.sampled_from(TENANTS),
        default_strategy=st.one_of(st.just(""), names),
        strategies=st.one_of(st.just(()), st.lists(names, min_size=1, max_size=2, unique=True).map(tuple)),
        clusters=st.sampled_from([(), (), ("c*",), ("c1", "c3")]),
        regions=st.sampled_from([(), (), ("eu-*",)]),
        capacity_types=st.sampled_from([(), (), ("on_demand",)]),
        flavors=st.sampled_from([(), (), ("*80GB*", "cpu*")]),
        weights=st.sampled_from([(), (StrategyWeights("balanced", price=0.5, stranding=1.0),)]),
    ),
    max_size=2,
    unique_by=lambda one: one.tenant_path,
)


one_or_two_amounts = st.lists(st.integers(0, 40), min_size=1, max_size=2)


@st.composite
def budgets(draw):
    """Of money and GPU-hours on the tenants' paths, in one or two periods."""
    later = NOW + timedelta(seconds=1500)
    found = []
    for number in range(draw(st.integers(1, 3))):
        measure = draw(among("money", "gpu_hours"))
        limits = draw(one_or_two_amounts)
        spans = [(NOW - timedelta(days=1), later), (later, NOW + timedelta(days=90))]
        made = [BudgetWindow(*span, Decimal(limit)) for span, limit in zip(spans, limits, strict=False)]
        currency = "USD" if measure == "money" else ""
        tenant = draw(among("acme", *TENANTS))
        found.append(BudgetState(UUID(int=number + 1), tenant, measure, currency, "month", tuple(made)))
    return found


snapshots = st.builds(
    snapshot,
    clusters(),
    st.lists(any_jobs, max_size=12),
    limits,
    st.one_of(st.just([]), policies),
    st.one_of(st.just([]), reservations()),
    st.one_of(st.just([]), windows()),
    budgets=st.one_of(st.just([]), budgets()),
)


@given(snapshots)
@examples(150)
def test_nothing_is_overbooked_split_or_misplaced(given_snapshot):
    check(given_snapshot, decide(given_snapshot))


@given(snapshots, st.randoms(use_true_random=False))
@examples(40)
def test_decisions_depend_on_the_values_alone(given_snapshot, chance: random.Random):
    shuffled = [
        replace(one, nodes=tuple(chance.sample(one.nodes, len(one.nodes))), flavors=dict(reversed(one.flavors.items())))
        for one in chance.sample(given_snapshot.clusters, len(given_snapshot.clusters))
    ]
    same = replace(
        given_snapshot,
        clusters=tuple(shuffled),
        limits=tuple(chance.sample(given_snapshot.limits, len(given_snapshot.limits))),
    )
    index = FleetIndex()
    expected = decide(given_snapshot)
    assert decide(same, index) == decide(same, index) == expected


@given(snapshots)
@examples(80)
def test_a_job_that_waits_alone_would_wait_behind_any_queue(given_snapshot):
    for waiting in decide(replace(given_snapshot, queue=given_snapshot.queue[-1:])).waits:
        assert waiting.job_id in {wait.job_id for wait in decide(given_snapshot).waits}


@given(snapshots)
@examples(80)
def test_what_is_placed_could_run_and_what_never_fits_is_not_placed(given_snapshot):
    decisions = decide(given_snapshot)
    placed = {placement.job_id for placement in decisions.placements}
    for one in given_snapshot.queue:
        reasons = never_fits(one, given_snapshot.clusters)
        if reasons is not None:
            assert one.id not in placed
            assert all(reason.is_for_good for reason in reasons)


@given(snapshots)
@examples(80)
def test_equal_shapes_share_verdicts_exactly_as_if_each_were_looked_at(given_snapshot):
    """A shape given by name decides as the same shape compared by value."""
    names = {}
    named = []
    for one in given_snapshot.queue:
        key = (one.pod_sets, one.constraints, one.topology, one.strategy, one.elastic)
        named.append(replace(one, shape=names.setdefault(key, f"shape-{len(names)}")))
    assert decide(replace(given_snapshot, queue=tuple(named))) == decide(given_snapshot)


@given(snapshots)
@examples(80)
def test_every_wait_says_why_for_every_cluster_its_tenant_may_use_and_no_other(given_snapshot):
    tenants = {one.id: one.tenant_path for one in given_snapshot.queue}
    for wait in decide(given_snapshot).waits:
        tenant = tenants[wait.job_id]
        visible = [one.name for one in given_snapshot.clusters if (tenant + "/").startswith(one.owner_path + "/")]
        assert [reason.cluster for reason in wait.per_cluster] == visible
        assert wait.message


def placed(decisions):
    return {placement.job_id: placement for placement in decisions.placements}


@given(snapshots, st.data())
@examples(60)
def test_jobs_behind_change_nothing(given_snapshot, data):
    """A job keeps its offer when any job behind it goes. What packing leaves room for is given, not read off the queue."""
    whole = replace(given_snapshot, typical_pods=typical_of(given_snapshot.queue))
    length = data.draw(st.integers(0, len(whole.queue)))
    shorter = decide(replace(whole, queue=whole.queue[:length]))
    ahead = {one.id for one in whole.queue[:length]}
    assert placed(shorter) == {key: value for key, value in placed(decide(whole)).items() if key in ahead}


@given(snapshots)
@examples(60)
def test_a_job_that_waits_takes_nothing_from_the_others(given_snapshot):
    """None has waited long enough to have nodes kept for it, so those that wait could as well not be there."""
    patient = tuple(replace(one, submitted_at=None) for one in given_snapshot.queue)
    whole = replace(given_snapshot, queue=patient, typical_pods=typical_of(patient))
    before = placed(decide(whole))
    without = replace(whole, queue=tuple(one for one in patient if one.id in before))
    assert placed(decide(without)) == before


@given(snapshots, jobs())
@examples(150)
def test_the_job_just_ahead_can_only_have_made_an_offer_worse(given_snapshot, last):
    """Of one pod set, in clusters that follow hints: without the job ahead there are all the offers that there are with it,
    none is dearer or over a wider domain, and none is lost.
    """
    last = replace(last, pod_sets=last.pod_sets[:1], strategy="cheapest")
    patient = tuple(replace(one, submitted_at=None) for one in given_snapshot.queue)
    hinted = tuple(replace(one, fills="hinted") for one in given_snapshot.clusters)
    whole = replace(given_snapshot, queue=patient, clusters=hinted, typical_pods=typical_of(patient))
    with_it, without_it = Cycle(whole, FleetIndex()), Cycle(whole, FleetIndex())
    for number, one in enumerate(patient):
        with_it.consider(one)
        if number + 1 < len(patient):
            without_it.consider(one)
    offers, fewer = (cycle.offers(last)[0] for cycle in (without_it, with_it))
    by_place = {(offer.cluster, offer.pod_sets[0].flavor): offer for offer in offers}
    for offer in fewer:
        better = by_place[offer.cluster, offer.pod_sets[0].flavor]
        assert better.hourly_cost == offer.hourly_cost
        assert WIDTH_OF_LEVEL[better.pod_sets[0].level] <= WIDTH_OF_LEVEL[offer.pod_sets[0].level]
    costs = [[offer.hourly_cost for offer in found if offer.hourly_cost is not None] for found in (offers, fewer)]
    assert not costs[1] or min(costs[0]) <= min(costs[1])
