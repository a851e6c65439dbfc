"""Fair division and share error in the benchmark of shares: laws, a search by small steps, and cases worked out by hand."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.shares.division import fair_shares, is_contended, shortfall
from benchmarks.shares.kueue import KueueDivision
from benchmarks.shares.plots import Played, html_page
from benchmarks.shares.watching import DAY, Stretch, Watched
from benchmarks.shares.world import DEALT, ESTIMATES, dealt, estimated, is_liar, lied, of_users, weights_of
from simulator.gateways import Choice, EngineGateway, Known, Running
from simulator.reclaiming import Reclaimer, ReclaimRule
from simulator.shares import FairShareRule
from simulator.simulation import replay
from simulator.values import Conditions
from simulator.world import Layout
from tests.laws import examples

from .test_gateways import job, known, plan

PART = st.floats(0, 2).map(lambda part: round(part, 2))
WANTS = st.dictionaries(st.sampled_from("abcd"), st.tuples(PART, PART), min_size=1)
WEIGHTS = st.fixed_dictionaries(dict.fromkeys("abcd", st.sampled_from([0.5, 1.0, 2.0, 4.0])))


@pytest.mark.parametrize(
    ("wants", "weights", "fair"),
    [
        ({"a": (1.0,), "b": (1.0,)}, {"a": 3.0}, {"a": 0.75, "b": 0.25}),
        ({"a": (0.1,), "b": (1.0,), "c": (1.0,)}, {}, {"a": 0.1, "b": 0.45, "c": 0.45}),
        ({"a": (0.2,), "b": (0.3,)}, {"a": 9.0}, {"a": 0.2, "b": 0.3}),
        # the example of the paper: <1 CPU, 4 GB> and <3 CPU, 1 GB> of 9 CPUs and 18 GB get 3 and 2 tasks
        ({"a": (10 / 9, 40 / 18), "b": (30 / 9, 10 / 18)}, {}, {"a": 2 / 3, "b": 2 / 3}),
        # who does not need what is used up goes on
        ({"a": (2.0, 0.0), "b": (0.0, 0.8)}, {}, {"a": 1.0, "b": 0.8}),
        ({"a": (0.0, 0.0)}, {}, {"a": 0.0}),
        ({}, {}, {}),
    ],
)
def test_fair_shares_worked_out_by_hand(wants, weights, fair):
    assert fair_shares(wants, weights) == pytest.approx(fair)


@pytest.mark.law
@examples(200)
@given(WANTS, WEIGHTS)
def test_fair_shares_are_what_small_steps_give(wants, weights):
    """All rise a little in turn, as long as they want more and everything that they need is left."""
    found = dict.fromkeys(wants, 0.0)
    dominant = {tenant: max(parts) for tenant, parts in wants.items()}
    left, step = [1.0, 1.0], 1 / 2000
    rising = {tenant for tenant in wants if dominant[tenant]}
    while rising:
        for tenant in sorted(rising):
            more = min(step * weights[tenant], dominant[tenant] - found[tenant])
            uses = [more * part / dominant[tenant] for part in wants[tenant]]
            full = [n for n in range(2) if uses[n] > left[n]]
            if more < 1e-12 or full:
                # a resource that is too short for one step is used up for all
                rising -= {tenant, *(one for one in rising if any(wants[one][n] for n in full))}
                break
            found[tenant] += more
            left = [room - use for use, room in zip(uses, left, strict=True)]
    assert fair_shares(wants, weights) == pytest.approx(found, abs=0.02)


@pytest.mark.law
@examples(200)
@given(WANTS, WEIGHTS)
def test_laws_of_fair_shares(wants, weights):
    fair = fair_shares(wants, weights)
    for tenant, parts in wants.items():
        assert -1e-9 <= fair[tenant] <= max(parts) + 1e-9
    for column in range(2):
        used = sum(fair[one] * wants[one][column] / max(wants[one]) for one in wants if max(wants[one]))
        assert used <= 1 + 1e-6
    if not is_contended(wants):
        assert fair == pytest.approx({tenant: max(parts) for tenant, parts in wants.items()})


def test_the_shortfall_is_what_is_lacking_of_all_fair_shares():
    assert shortfall({"a": 0.75, "b": 0.25}, {"a": 0.75, "b": 0.25}) == 0
    assert shortfall({"a": 1.0}, {"a": 0.5, "b": 0.5}) == 0.5
    assert shortfall({}, {"a": 0.5, "b": 0.5}) == 1
    assert shortfall({"a": 0.5, "b": 0.25}, {"a": 0.5, "b": 0.5}) == 0.25  # what is idle counts


class Scripted:
    """A gateway that starts the jobs with these numbers, on the first node."""

    name = "scripted"

    def __init__(self, *numbers):
        self._numbers = numbers

    def choose(self, queue, known, now):
        return [Choice(number, 0, (0,)) for number, _ in queue if number in self._numbers]


def test_share_error_counts_only_contended_time_within_the_window():
    """Ten GPUs, two tenants of equal weight: from 0 to 60 each wants all; then only the second is left."""
    jobs = [job(1, 10, tenant="a"), job(1, 10, tenant="b"), job(1, 10, tenant="b", submitted=60.0 + DAY)]
    layout = Layout([plan("c", 1, gpus=10)])
    watched = Watched(Scripted(0), jobs, {}, layout)
    seen = Known(layout)
    queue = list(enumerate(jobs))
    watched.choose(queue[:2], seen, 0.0)
    watched.choose(queue[1:2], seen, 60.0)
    assert watched.stretches == [Stretch(0.0, 60.0, {"a": 1.0, "b": 0.0}, {"a": 0.5, "b": 0.5})]
    assert watched.share_error() == watched.share_error_day() == 0.5
    assert watched.received() == {"a": (1.0, 0.5), "b": (0.0, 0.5)}
    assert watched.contended == 60 / (60 + DAY)
    watched.choose(queue[1:2], seen, 2 * DAY)
    assert watched.share_error() == 0.5


def test_by_day_one_hour_makes_up_for_another():
    jobs = [job(1, 10, tenant="a"), job(1, 10, tenant="b", submitted=DAY)]
    watched = Watched(Scripted(), jobs, {}, Layout([plan("c", 1, gpus=10)]))
    halves = {"a": 0.5, "b": 0.5}
    watched.stretches = [
        Stretch(0.0, 100.0, {"a": 1.0, "b": 0.0}, halves),
        Stretch(100.0, 200.0, {"a": 0.0, "b": 1.0}, halves),
    ]
    assert (watched.share_error(), watched.share_error_day()) == (0.5, 0.0)
    assert [error for _, error in watched.curve(864)][:3] == [0.5, 0.5, 0.0]
    watched.stretches = [Stretch(DAY - 50, DAY + 50, {"a": 1.0}, halves)]
    assert watched.share_error_day() == pytest.approx(0.5)


def test_kueue_starts_the_first_job_of_the_queue_that_borrows_least():
    """8 GPUs, half of them nominal for each: the second uses its half, so the first goes first, though it came later."""
    seen = known(plan("a", 1))
    seen.shelves.take(0, job(1, 4, tenant="t/b"))
    seen.running[0][1] = Running(job(1, 4, tenant="t/b"), (0,), 0.0)
    queue = [(2, job(1, 4, tenant="t/b")), (3, job(1, 4, tenant="t/a"))]
    chosen = KueueDivision({"t/a": 1.0, "t/b": 1.0}).choose(queue, seen, 0.0)
    assert [choice.number for choice in chosen] == [3]
    chosen = KueueDivision({"t/a": 1.0, "t/b": 9.0}).choose(queue, seen, 0.0)
    assert [choice.number for choice in chosen] == [2]


def test_each_round_of_kueue_takes_one_job_of_every_queue():
    seen = known(plan("a", 2))
    queue = [(1, job(1, 4, tenant="t/b")), *((n, job(1, 4, tenant="t/a")) for n in (3, 4, 5))]
    chosen = KueueDivision({"t/a": 3.0, "t/b": 1.0}).choose(queue, seen, 0.0)
    assert [choice.number for choice in chosen] == [1, 3, 4, 5]


def test_kueue_passes_over_what_does_not_fit():
    seen = known(plan("a", 1))
    queue = [(1, job(2, 8, tenant="t/a")), (2, job(1, 8, tenant="t/a")), (3, job(1, 8, tenant="t/b"))]
    chosen = KueueDivision({"t/a": 1.0, "t/b": 1.0}).choose(queue, seen, 0.0)
    assert [choice.number for choice in chosen] == [3]
    assert [choice.number for choice in KueueDivision({"t/a": 1.0}).choose(queue[:2], seen, 0.0)] == [2]


def reclaimed(**more):
    """One node of 8 GPUs, two tenants of equal weight; one borrows all of it, then the other asks for its half."""
    jobs = [
        *(job(1, 4, tenant="org/a", name=f"a{n}", estimated_seconds=36_000) for n in range(2)),
        job(1, 4, tenant="org/b", name="b", submitted=3600.0, estimated_seconds=60),
    ]
    jobs = [one if one.name == "b" else _long(one) for one in jobs]
    weights = {"org/a": 1.0, "org/b": 1.0}
    reclaimer = Reclaimer(ReclaimRule(weights, **more))
    gateway = EngineGateway(fair_share=FairShareRule(weights)).with_quota(reclaimer)
    return replay([plan("c", 1)], jobs, gateway, Conditions(checkpoint_seconds=1800)), reclaimer


def _long(one):
    return replace(one, seconds=36_000.0)


def test_quota_that_was_lent_is_taken_back():
    figures, reclaimer = reclaimed()
    waits = {line.job.name: line.wait for line in figures.lines}
    assert (waits["b"], reclaimer.stopped, figures.preemptions) == (0.0, 1, 1)
    assert [len(one.victims) for one in reclaimer.decisions] == [1]
    assert figures.finished == 3
    [again] = [line for line in figures.lines if line.tries == 2]
    assert again.finished == 36_000 + 60 + 60  # waits while the other runs, and the restart


def test_nothing_is_taken_back_within_the_brake():
    figures, reclaimer = reclaimed(most_victims=0)
    assert (reclaimer.stopped, figures.preemptions) == (0, 0)


def test_jobs_are_dealt_in_batches_and_every_tenant_gets_some():
    names = [dealt(number) for number in range(1000)]
    assert set(names) == set(DEALT)
    assert len(set(names[:10])) == 1


def test_the_weights_are_those_given_else_dealt_else_one():
    jobs = [job(tenant=tenant) for tenant in ("org/a", "org/b", "x/y")]
    assert weights_of(jobs, []) == {"org/a": 4.0, "org/b": 2.0, "x/y": 1.0}
    assert weights_of(jobs, ["org/a=0.5", "unused=3"]) == {"org/a": 0.5, "org/b": 2.0, "x/y": 1.0}
    for wrong in ("x/y=0", "x/y=-1", "x/y=nan", "x/y=inf", "x/y", "x/y=many"):
        with pytest.raises(ValueError, match=r"weight|float"):
            weights_of(jobs, [wrong])


def test_estimates_are_off_by_what_their_kind_says():
    jobs = [job(name=str(number)) for number in range(200)]
    found = {how: [one.estimated_seconds for one in estimated(jobs, how)] for how in ESTIMATES}
    assert set(found["true"]) == {60}
    assert set(found["absent"]) == {None}
    assert (min(found["long"]), max(found["long"])) == (60, 299)
    assert min(found["off"]) <= 7
    assert max(found["off"]) >= 580


@pytest.mark.parametrize("in_one_tenant", [False, True])
def test_three_of_twenty_users_lie(in_one_tenant):
    jobs = of_users([job(name=str(number)) for number in range(200)], in_one_tenant=in_one_tenant)
    assert len({one.stater for one in jobs}) == 20
    assert len({one.stater for one in jobs if is_liar(one)}) == 3
    assert all(one.estimated_seconds == 60 for one in lied(jobs) if is_liar(one))
    assert [one for one in lied(jobs) if not is_liar(one)] == [one for one in jobs if not is_liar(one)]


def test_the_page_has_a_chart_of_each_kind_for_each_kind_of_estimates():
    jobs = [job(1, 8, tenant=f"<{tenant}>", submitted=float(n)) for n, tenant in enumerate("abab")]
    watched = Watched(EngineGateway(), jobs, {}, Layout([plan("c", 1)]))
    figures = replay([plan("c", 1)], jobs, watched, Conditions())
    page = html_page({how: [Played("switchyard", figures, watched, 0)] for how in ("true", "absent")}, 4).decode()
    assert page.count("</svg></section>") == 6
    assert "&lt;a&gt;" in page
    assert "<a>" not in page
    assert (
        page == html_page({how: [Played("switchyard", figures, watched, 0)] for how in ("true", "absent")}, 4).decode()
    )
