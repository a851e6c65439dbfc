"""Policies hold for what is lent, for what is kept and for what is expected, as they do for what is placed at once."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import given

from placement.answers.expected_starts import expected_starts
from placement.answers.quotes import quote
from placement.cycle.cycle import decide, run
from placement.values.model import Release, StrategyWeights, TenantPolicy
from tests.laws import examples

from .checker import check, check_policies
from .fleets import NOW, cluster, flavor, job, node, pods, snapshot
from .test_placement_laws import jobs, snapshots

OF = flavor()
SPOT = flavor(capacity_type="spot")
LONG_AGO = NOW - timedelta(hours=1)
TENANT = "acme/ml"
ONLY_C2 = TenantPolicy("acme/ml", clusters=("c2",))


def fleet(*clusters, prices=("2.00", "2.00")):
    """Clusters c1, c2, ... by what is free on each of their nodes of eight GPUs."""
    flavors = [flavor(price=price) for price in prices]
    return [
        cluster(c + 1, [node(f"n{n}", flavors[c], 8, units) for n, units in enumerate(free)], [flavors[c]])
        for c, free in enumerate(clusters)
    ]


def release(minutes, number=1, of=OF, **nodes):
    return Release(NOW + timedelta(minutes=minutes), UUID(int=number), of.name, 8, 1000, 1024, nodes)


def gang(tenant="acme/big", **more):
    return job(pods(2, 8), tenant=tenant, submitted_at=LONG_AGO, deadline_seconds=3600, **more)


def short(tenant=TENANT):
    return job(pods(1, 1), tenant=tenant, deadline_seconds=60)


def known(clusters, queue, *releases, policies=()):
    return replace(snapshot(clusters, queue, policies=policies), releases=releases)


def told(given_snapshot):
    decisions, done = run(given_snapshot)
    return expected_starts(done, given_snapshot, decisions.waits)


@pytest.mark.parametrize(
    ("policy", "is_lent"),
    [
        (TenantPolicy("acme/ml", clusters=("c*",)), True),
        (TenantPolicy("acme/other", clusters=("c2",)), True),
        (ONLY_C2, False),
        (TenantPolicy("acme/ml/deep", clusters=("c2",)), False),
        (TenantPolicy("acme/ml", regions=("us-*",)), False),
        (TenantPolicy("acme/ml", flavors=("A100*",)), False),
        (TenantPolicy("acme/ml", capacity_types=("spot",)), False),
    ],
)
def test_nothing_is_lent_where_a_policy_forbids_it(policy, is_lent):
    large, small = gang(), short("acme/ml/deep")
    given_snapshot = known(fleet((8, 0), (0, 0)), [large, small], release(30, n1=1), policies=[policy])
    decisions = decide(given_snapshot)
    check(given_snapshot, decisions)
    assert [placed.job_id for placed in decisions.placements] == [small.id] * is_lent
    offers = quote(small, replace(given_snapshot, queue=(large,))).offers
    assert [offer.placement for offer in offers] == list(decisions.placements)


def test_inside_a_cluster_only_allowed_capacity_is_lent():
    nodes = [node("n0", SPOT), node("n1", SPOT, 8, 0), node("n2", OF, 8, 0)]
    queue = [gang(capacity_types=("spot",)), short()]
    ends = release(30, of=SPOT, n1=1)
    clusters = [cluster(1, nodes, [OF, SPOT])]
    assert len(decide(known(clusters, queue, ends)).placements) == 1
    only = TenantPolicy("acme/ml", capacity_types=("on_demand",))
    assert not decide(known(clusters, queue, ends, policies=[only])).placements


def test_room_is_kept_only_where_the_policy_allows_the_job():
    large, small = gang(TENANT), job(pods(1, 1), tenant="acme/other")
    ends = release(10, n1=1), release(30, number=2, n1=1)
    clusters = fleet((8, 0), (8, 0))
    for policies, expected, minutes in (((), "c1", 10), ((ONLY_C2,), "c2", 30)):
        decisions = decide(known(clusters, [large, small], *ends, policies=policies))
        (wait,) = decisions.waits
        assert (wait.start.cluster, wait.start.at) == (expected, NOW + timedelta(minutes=minutes))
        assert decisions.placements[0].cluster != expected
    # where nobody can tell when room comes, too
    (wait,) = decide(known(clusters, [large], policies=(ONLY_C2,))).waits
    assert wait.message.endswith("nodes that become free on c2 are kept for it")


def test_a_start_is_expected_only_where_the_policy_allows_the_job():
    ends = release(10, n0=1), release(30, number=2, n0=1)
    waiting = job(pods(1, 8), tenant=TENANT)
    assert told(known(fleet((0,), (0,)), [waiting], *ends))[waiting.id].cluster == "c1"
    assert told(known(fleet((0,), (0,)), [waiting], *ends, policies=[ONLY_C2]))[waiting.id].cluster == "c2"
    assert not told(known(fleet((0,), (0,)), [waiting], ends[0], policies=[ONLY_C2]))


def test_a_quote_names_no_later_room_where_a_policy_forbids_it():
    ends = release(10, n0=1), release(30, number=2, n0=1)
    asked = job(pods(1, 8), tenant=TENANT)
    for policies, expected in (((), ["c1", "c2"]), ((ONLY_C2,), ["c2"])):
        found = quote(asked, known(fleet((0,), (0,)), [], *ends, policies=policies))
        assert [offer.placement.cluster for offer in found.later] == expected


def test_those_who_wait_ahead_take_no_room_that_their_policy_forbids():
    ahead, asked = job(pods(1, 8), tenant=TENANT), job(pods(1, 8), tenant="acme/other")
    ends = release(10, n0=1)
    assert not quote(asked, known(fleet((0,), (0,)), [ahead], ends)).later
    (later,) = quote(asked, known(fleet((0,), (0,)), [ahead], ends, policies=[ONLY_C2])).later
    assert later.expected_start == NOW + timedelta(minutes=10)


def test_places_that_come_together_are_ranked_by_the_weights_of_the_policy():
    clusters = fleet((0,), (0,), prices=("3.00", "1.00"))
    ends = release(10, n0=1), release(10, number=2, n0=1)
    waiting = job(pods(1, 8), tenant=TENANT)
    assert told(known(clusters, [waiting], *ends))[waiting.id].cluster == "c2"
    free = TenantPolicy("acme", weights=(StrategyWeights("balanced", price=0.0),))
    assert told(known(clusters, [waiting], *ends, policies=[free]))[waiting.id].cluster == "c1"


@pytest.mark.law
@examples(150)
@given(snapshots, jobs())
def test_what_is_lent_or_expected_obeys_every_law(given_snapshot, asked):
    ends = tuple(
        Release(NOW + timedelta(minutes=n + 1), one.id, name, 2, 1000, 64, {each.name: 1 for each in one.nodes})
        for one in given_snapshot.clusters
        for n, name in enumerate(one.flavors)
    )
    queue = tuple(
        replace(one, submitted_at=LONG_AGO) if n % 2 else replace(one, deadline_seconds=60)
        for n, one in enumerate(given_snapshot.queue)
    )
    aged = replace(given_snapshot, queue=queue, releases=ends)
    decisions, done = run(aged)
    check(aged, decisions)
    clusters = {one.name: one for one in aged.clusters}
    for offer in quote(asked, aged).later:
        check_policies(aged, asked, offer.placement, clusters[offer.placement.cluster])
    by_id = {one.id: one for one in queue}
    for job_id, start in expected_starts(done, aged, decisions.waits).items():
        said = [one for one in aged.policies if (by_id[job_id].tenant_path + "/").startswith(one.tenant_path + "/")]
        assert all(clusters[start.cluster].region.startswith("eu-") for one in said if one.regions)
        assert all(start.cluster in {"c1", "c3"} for one in said if one.clusters == ("c1", "c3"))
