"""Tiered overflow: a job stays at home for so long, then goes wider, and is told when."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.answers.expected_starts import expected_starts
from placement.answers.quotes import capacity, quote
from placement.answers.recording import decisions_text, snapshot_of, snapshot_text
from placement.cycle.cycle import decide, run
from placement.fleet.eligibility import as_of, exclusion, next_opening
from placement.ranking.feasibility import never_fits
from placement.values.model import ClusterRefusal, Release, TenantPolicy, Tier

from .fleets import A100, NOW, flavor, job, limit, pods, snapshot, uniform

HOME, EU, ANYWHERE = Tier(0, clusters=("home",)), Tier(600, regions=("eu-*",)), Tier(3600)
TIERS = (HOME, EU, ANYWHERE)


def fleet(home_free=0):
    return [
        uniform(1, 1, name="home", free=home_free, region="on-site"),
        uniform(2, 1, name="near", region="eu-1"),
        uniform(3, 1, name="far", region="us-1"),
    ]


def waiting(seconds, *pod_sets, overflow=TIERS, **more):
    return job(*pod_sets, overflow=overflow, submitted_at=NOW - timedelta(seconds=seconds), **more)


def decided(clusters, *queue, **more):
    decisions = decide(snapshot(clusters, queue, **more))
    found = {placement.job_id: placement for placement in decisions.placements} | {
        wait.job_id: wait for wait in decisions.waits
    }
    return [found[one.id] for one in queue]


def codes(wait):
    return {reason.cluster: reason.code for reason in wait.per_cluster}


@pytest.mark.parametrize(
    ("waited", "cluster"), [(-90, None), (0, None), (599.999, None), (600, "near"), (3599, "near"), (10**9, "near")]
)
def test_a_job_goes_only_where_the_tiers_that_it_has_reached_allow(waited, cluster):
    [found] = decided(fleet(), waiting(waited))
    assert getattr(found, "cluster", None) == cluster


def test_home_is_taken_while_it_has_room_and_the_last_tier_opens_everything():
    assert decided(fleet(home_free=8), waiting(0))[0].cluster == "home"
    taken, last = decided(fleet(), waiting(3600, pods(gpus=8)), waiting(3600, pods(gpus=8)))
    assert {taken.cluster, last.cluster} == {"near", "far"}
    assert [
        getattr(one, "cluster", None)
        for one in decided(fleet(), waiting(600, pods(gpus=8)), waiting(600, pods(gpus=8)))
    ] == ["near", None]


@pytest.mark.parametrize("waited", [-90, -0.5, 0])
def test_home_is_open_from_the_beginning_whatever_the_clock_of_the_host_that_took_the_job(waited):
    assert decided(fleet(home_free=8), waiting(waited))[0].cluster == "home"


def test_what_a_later_tier_opens_says_when():
    [wait] = decided(fleet(), waiting(0))
    assert codes(wait) == {"home": "not_enough_free", "near": "tier_not_reached", "far": "tier_not_reached"}
    assert [reason.message for reason in wait.per_cluster[1:]] == [
        "opens to the job once it has waited 10 min",
        "opens to the job once it has waited 1 h",
    ]
    assert not any(reason.is_for_good for reason in wait.per_cluster)
    assert wait.code == "waiting_for_capacity"
    assert wait.message.startswith("home: ")
    assert wait.message.endswith("; its next overflow tier opens once it has waited 10 min")


def test_what_no_wait_would_open_is_told_instead_of_when():
    clusters = [*fleet(), uniform(4, 1, flavor(A100), name="other"), uniform(5, 1, name="barred")]
    asked = waiting(0, pods(models=("H100-80GB",)))
    [wait] = decided(clusters, asked, policies=[TenantPolicy("acme", clusters=("home", "near", "far", "other"))])
    assert (codes(wait)["other"], codes(wait)["barred"]) == ("no_such_model", "excluded_by_policy")


def test_a_cluster_that_no_tier_opens_is_excluded_for_good():
    [wait] = decided(fleet(), waiting(10**6, overflow=(HOME,)))
    assert codes(wait) == {"home": "not_enough_free", "near": "cluster_excluded", "far": "cluster_excluded"}
    assert [reason.is_for_good for reason in wait.per_cluster] == [False, True, True]
    assert "overflow" not in wait.message


def test_the_other_constraints_hold_in_every_tier():
    assert decided(fleet(), waiting(3600, exclude_clusters=("near",)))[0].cluster == "far"
    [wait] = decided(fleet(), waiting(3600, regions=("on-*",)))
    assert codes(wait)["far"] == "region_excluded"
    refused = (ClusterRefusal(fleet()[1].id, "no"),)
    assert codes(decided(fleet(), waiting(600, refusals=refused))[0])["near"] == "refused_by_cluster"


@pytest.mark.parametrize("shape", ["", "equal"])
@pytest.mark.parametrize("order", [(0, 600, 3600), (3600, 600, 0), (600, 0, 3600)])
def test_jobs_of_one_shape_that_have_waited_differently_share_no_verdict(shape, order):
    clusters = [one if one.name == "far" else replace(one, state="cordoned") for one in fleet()]
    found = decided(clusters, *(waiting(seconds, shape=shape) for seconds in order))
    assert [getattr(one, "cluster", None) for one in found] == ["far" if s == 3600 else None for s in order]
    by_wait = dict(zip(order, found, strict=True))
    assert codes(by_wait[0]) == {"home": "cordoned", "near": "tier_not_reached", "far": "tier_not_reached"}
    assert codes(by_wait[600]) == {"home": "cordoned", "near": "cordoned", "far": "tier_not_reached"}


def test_jobs_of_no_shape_that_differ_share_no_verdict_though_they_have_waited_alike():
    small, large, other = decided(
        fleet(home_free=4), waiting(0, pods(gpus=2)), waiting(0, pods(gpus=8)), waiting(0, pods(gpus=2))
    )
    assert (small.cluster, large.code, other.cluster) == ("home", "waiting_for_capacity", "home")


def test_those_that_have_reached_the_same_tiers_share_one():
    first, second = decided(fleet(), waiting(1, shape="equal"), waiting(599, shape="equal"))
    assert first.per_cluster is second.per_cluster


def test_of_clusters_that_are_not_open_yet_nothing_is_said_for_the_job():
    silent = [replace(one, state="unreachable") if one.name == "home" else one for one in fleet()]
    [wait] = decided(silent, waiting(0))
    assert wait.code == "clusters_unreachable"
    assert wait.message.startswith("could run only on clusters that do not answer: home; its next")
    [wait] = decided(fleet(), waiting(0, overflow=(Tier(0, clusters=("nowhere",)), EU)))
    assert (wait.code, codes(wait)["near"]) == ("waiting_for_capacity", "tier_not_reached")
    assert wait.message.startswith("no cluster of the overflow tiers opened so far can run it; its next")


def test_quota_at_home_is_the_reason_until_the_next_tier_opens():
    limits = [limit("acme", "gpu", 1000, 1000, ("home",))]
    wait, placed = decided(fleet(home_free=8), waiting(0), waiting(600), limits=limits)
    assert (wait.code, codes(wait)["home"], codes(wait)["near"]) == (
        "waiting_for_quota", "quota_reached", "tier_not_reached",
    )  # fmt: skip
    assert wait.message.endswith("once it has waited 10 min")
    assert placed.cluster == "near"


def test_nothing_is_kept_for_a_patient_job_where_it_may_not_go_yet():
    clusters = [one for one in fleet() if one.name != "home"]
    late = Tier(86_400)
    first, other = decided(clusters, waiting(7200, pods(gpus=8), overflow=(HOME, late)), job(pods(gpus=8)))
    assert first.code == "waiting_for_capacity"
    assert "kept" not in first.message
    assert other.cluster in {"near", "far"}


def test_whether_a_job_could_ever_run_is_judged_by_all_tiers():
    clusters = [uniform(1, 1, name="home"), uniform(2, 2, name="near", region="eu-1")]
    assert never_fits(waiting(0, pods(2, 8)), clusters) is None
    reasons = never_fits(waiting(0, pods(2, 8), overflow=(HOME,)), clusters)
    assert [reason.code for reason in reasons] == ["not_enough_free", "cluster_excluded"]
    assert [reason.code for reason in never_fits(waiting(0, pods(3, 8)), clusters)] == ["not_enough_free"] * 2


def test_quotes_and_capacity_are_for_a_job_that_has_not_waited():
    asked = job(overflow=TIERS)
    known = snapshot(fleet(), [])
    given = quote(asked, known)
    [wait] = decided(fleet(), asked)
    assert (given.offers, given.wait, given.why_not) == ((), wait, wait.per_cluster)
    assert [(room.cluster, room.count) for room in capacity(asked, known).clusters] == [
        ("home", 0), ("near", 0), ("far", 0),
    ]  # fmt: skip
    assert [offer.placement.cluster for offer in quote(waiting(600), known).offers] == ["near"]
    [offer] = quote(asked, snapshot(fleet(home_free=8), [])).offers
    assert offer.placement.cluster == "home"
    assert {reason.code for reason in quote(asked, snapshot(fleet(home_free=8), [])).why_not} == {"tier_not_reached"}


def test_starts_are_expected_only_where_the_job_may_go_so_far():
    clusters = [uniform(1, 1, name="home", free=0), uniform(2, 1, name="near", free=0, region="eu-1")]
    releases = tuple(
        Release(NOW + timedelta(minutes=after), one.id, flavor().name, 8, 1000, 1024, {one.nodes[0].name: 1})
        for one, after in zip(clusters, (50, 5), strict=True)
    )
    for waited, cluster in ((0, "home"), (600, "near")):
        asked = waiting(waited, pods(1, 8))
        known = replace(snapshot(clusters, [asked]), releases=releases)
        decisions, done = run(known)
        assert expected_starts(done, known, decisions.waits)[asked.id].cluster == cluster
    later = quote(job(pods(1, 8), overflow=TIERS), replace(snapshot(clusters, []), releases=releases)).later
    assert [offer.placement.cluster for offer in later] == ["home"]


def test_a_recorded_cycle_decides_the_same_again():
    value = snapshot(fleet(), [waiting(0), waiting(600), job()])
    again = snapshot_of(json.loads(snapshot_text(value)))
    assert again == value
    assert decisions_text(decide(again)) == decisions_text(decide(value))


tiers = st.lists(
    st.tuples(
        st.integers(1, 5000),
        st.lists(st.sampled_from(["home", "near", "far", "gone"]), max_size=2).map(tuple),
        st.lists(st.sampled_from(["eu-*", "*", "us-1", "mars"]), max_size=2).map(tuple),
    ),
    max_size=8,
    unique_by=lambda tier: tier[0],
).map(lambda found: tuple(Tier(seconds if n else 0, *where) for n, (seconds, *where) in enumerate(sorted(found))))


@given(tiers, st.lists(st.integers(-10, 6000), min_size=2, max_size=6))
def test_reached_tiers_only_ever_widen(overflow, waits):
    before: set[str] = set()
    ever = {one.name for one in fleet() if not exclusion(job(overflow=overflow).constraints, one)}
    for seconds in sorted(waits):
        seen = as_of(waiting(seconds, overflow=overflow), NOW)
        open_now = {one.name for one in fleet() if not exclusion(seen.constraints, one)}
        assert before <= open_now <= ever
        if not next_opening(seen.constraints):
            assert open_now == ever
        before = open_now
