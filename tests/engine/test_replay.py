"""The simulator against cases that can be worked out by hand, and against laws that hold for every trace."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.cycle.cycle import run
from placement.values.model import Topology
from simulator import gateways
from simulator.experience import groups_of
from simulator.gateways import GATEWAYS, PLAIN, EngineGateway, plain_gateway
from simulator.shares import FairShareRule
from simulator.simulation import Simulation, replay
from simulator.traces import compressed
from simulator.values import (
    EPOCH,
    HOUR,
    MEMBERS,
    ClusterPlan,
    Conditions,
    Failures,
    Machine,
    PriceChange,
    TraceJob,
)
from tests.laws import examples

GPU = "A100-80GB"


def plan(name="c", nodes=2, *, price="2", per_rack=2, **more):
    machines = tuple(
        Machine(f"n{n}", GPU, GPU, 8, 96_000, 1_048_576, ("z", "b", f"r{n // per_rack}")) for n in range(nodes)
    )
    return ClusterPlan(name, machines, {GPU: Decimal(price)} if price else {}, **more)


def job(submitted=0.0, seconds=HOUR, pods=1, gpus=8, **more):
    defaults = {"name": f"j{submitted:g}", "cpu_millicores": gpus * 6000, "memory_mib": gpus * 65_536}
    return TraceJob(submitted=submitted, seconds=seconds, pods=pods, gpus=gpus, **(defaults | more))


def gateway(name="switchyard", **more):
    return plain_gateway(name) if name in PLAIN else EngineGateway(**more)


@pytest.mark.parametrize("name", GATEWAYS)
def test_waits_cost_and_use_are_what_arithmetic_says(name):
    """Three jobs of a node and an hour on two nodes at 2 a GPU hour: the third waits for the first."""
    figures = replay([plan()], [job(), job(600.0), job(1200.0)], gateway(name), Conditions(until=2 * HOUR))
    assert [line.wait for line in figures.lines] == [0, 0, 2400]
    assert figures.wait_seconds == {"mean": 800.0, "p50": 0.0, "p95": 2400.0, "p99": 2400.0, "max": 2400.0}
    assert figures.slowdown["max"] == round(1 + 2400 / HOUR, 3)
    assert figures.cost == Decimal("48.00")
    assert figures.utilisation == figures.allocation == 0.75
    assert (figures.finished, figures.never_started, figures.seconds) == (3, 0, 2 * HOUR)


@pytest.mark.parametrize(("more", "waits"), [({}, [0, 0, 0]), ({"hints": False}, [0, 0, HOUR - 2])])
def test_a_cluster_fills_the_nodes_that_the_gateway_names_unless_it_takes_no_hints(more, waits):
    """The gateway puts both halves on one node; a cluster that spreads leaves no node whole."""
    jobs = [job(gpus=4), job(1.0, gpus=4), job(2.0)]
    assert [line.wait for line in replay([plan(**more)], jobs, gateway()).lines] == waits


def test_a_price_that_changes_is_paid_from_then_on():
    changing = plan(price_changes=(PriceChange(HOUR / 2, GPU, Decimal(6)),))
    assert replay([changing], [job()], gateway()).cost == Decimal(8) + Decimal(24)
    unpriced = replay([plan(price="")], [job()], gateway())
    assert (unpriced.cost, unpriced.unpriced_gpu_hours) == (0, 8.0)


def test_a_failed_node_costs_the_work_since_the_last_checkpoint():
    failing = Conditions(failures=Failures(1.5 * HOUR, HOUR), checkpoint_seconds=3600, until=2 * HOUR)
    (line,) = (figures := replay([plan(nodes=1)], [job(seconds=2 * HOUR)], gateway(), failing)).lines
    assert (line.tries, line.lost_seconds, line.finished) == (2, HOUR / 2, 3.5 * HOUR)
    assert (figures.node_failures, figures.interrupted_jobs) == (1, 1)
    assert figures.lost_gpu_hours == 4.0
    assert figures.utilisation == 0.5
    assert figures.allocation == 0.75
    assert figures.down_share == 0.25


def test_without_checkpoints_a_job_begins_again_and_still_ends():
    failing = Conditions(failures=Failures(HOUR, HOUR / 2), until=10 * HOUR)
    (line,) = replay([plan(nodes=1)], [job(seconds=1.5 * HOUR)], gateway(), failing).lines
    assert line.tries > 1
    assert line.finished is not None


def spot_plan(rate, nodes=2):
    kept = plan(nodes=nodes)
    machines = tuple(replace(machine, capacity_type="spot") for machine in kept.machines)
    return replace(kept, machines=machines, interruptions={GPU: rate})


def test_spot_nodes_are_taken_back_by_chance_and_cost_the_work_since_the_last_checkpoint():
    asked = [job(seconds=10 * HOUR, pods=2, checkpoint_seconds=600), job(seconds=HOUR)]
    window = Conditions(until=20 * HOUR, checkpoint_seconds=60)
    figures = replay([spot_plan(0.5)], asked, gateway(), window)
    long, short = figures.lines
    assert figures.interruptions >= figures.preemptions > 1
    assert (figures.preemptions, figures.node_failures) == (long.tries + short.tries - 2, 0)
    assert 0 < long.lost_seconds <= 600 * (long.tries - 1)
    assert short.lost_seconds <= 60 * (short.tries - 1)
    assert figures.lost_gpu_hours == pytest.approx((long.lost_seconds * 16 + short.lost_seconds * 8) / HOUR, abs=1e-3)
    assert figures == replay([spot_plan(0.5)], asked, gateway(), window)
    assert figures.interruptions != replay([spot_plan(0.5)], asked, gateway(), replace(window, seed=2)).interruptions
    assert replay([spot_plan(0.0)], asked, gateway(), window).interruptions == 0


def test_spot_nodes_are_taken_back_at_the_same_instants_whoever_decides_and_as_often_as_told():
    window = Conditions(until=200 * HOUR, stops=True)
    found = {name: replay([spot_plan(0.1, 20)], [job(seconds=None)], gateway(name), window) for name in GATEWAYS}
    (count,) = {figures.interruptions for figures in found.values()}
    assert 330 < count < 470


def snapshots(monkeypatch, jobs, **more):
    """What the engine was asked to decide on."""
    seen = []
    monkeypatch.setattr(gateways, "run_cycle", lambda snapshot, index: seen.append(snapshot) or run(snapshot, index))
    replay([plan(nodes=2)], jobs, gateway(**more))
    return seen


def test_the_engine_is_told_when_what_runs_will_end_once_somebody_has_waited_long(monkeypatch):
    jobs = [
        job(0.0, HOUR, estimated_seconds=7200),
        job(10.0, HOUR, pods=2),
        job(500.0, gpus=4),
        job(800.0, 60.0, gpus=4),
    ]
    before, after = (
        next(one for one in snapshots(monkeypatch, jobs) if one.now == EPOCH + timedelta(seconds=at))
        for at in (500, 800)
    )
    assert before.releases == ()
    (release,) = after.releases
    assert (release.at, release.units, dict(release.nodes)) == (EPOCH + timedelta(hours=2), 8, {"n0": 1})


def test_run_times_are_learned_of_the_kind_and_order_the_queue():
    kinds = [job(0.0, 7200.0, kind="long"), job(0.0, 120.0, kind="short")]
    waiting = [job(7300.0, HOUR, kind="other"), job(7310.0, 7200.0, kind="long"), job(7320.0, 120.0, kind="short")]
    figures = replay([plan(nodes=1)], [*kinds, *waiting], gateway())
    starts = {line.job.kind: line.first_started for line in figures.lines[2:]}
    assert starts["other"] < starts["short"] < starts["long"]
    blind = replay([plan(nodes=1)], [replace(one, kind="") for one in [*kinds, *waiting]], gateway())
    assert blind.lines[3].first_started < blind.lines[4].first_started


def test_only_runs_that_end_teach_and_pods_alike_tell_something_of_kinds_that_are_new():
    cut = Conditions(failures=Failures(1.5 * HOUR, HOUR), checkpoint_seconds=3600, until=2 * HOUR)
    experience = (simulation := Simulation([plan(nodes=1)], [job(seconds=2 * HOUR, kind="a")], gateway(), cut)).known
    simulation.run()
    told = experience.experience.of(groups_of(job(kind="new")))
    assert (told.runs, told.basis, told.p50_seconds) == (1, "pods", 3600)
    assert experience.experience.of(groups_of(job(kind="a"))).basis == "job"
    assert experience.experience.of(groups_of(job(gpus=4))) is None


def test_a_gang_starts_whole_inside_the_rack_that_holds_it():
    figures = replay([plan(nodes=6)], [job(pods=2)], gateway())
    assert (figures.gangs, figures.racks_per_gang, figures.gangs_in_one_rack) == (1, 1.0, 1.0)
    assert figures.blocks_per_gang == 1.0


def test_a_gang_that_must_keep_to_a_rack_waits_though_others_would_hold_it():
    wide = job(600.0, pods=2)
    busy = [job(name="a", gpus=1), job(name="b", gpus=1)]
    kept = replay([plan(nodes=2, per_rack=1)], [wide], gateway(topology=Topology("rack", "required")))
    assert (kept.finished, kept.never_started, kept.unplaceable) == (0, 1, 0)
    assert replay([plan(nodes=4)], [*busy, wide], gateway(topology=Topology("rack", "required"))).finished == 3


def test_what_no_cluster_could_hold_is_left_out_and_counted():
    figures = replay([plan()], [job(), job(pods=3), job(models=("H100-80GB",))], gateway())
    assert (figures.jobs, figures.unplaceable) == (1, 2)


def test_jobs_without_an_end_never_depart():
    figures = replay([plan(nodes=1)], [job(seconds=None), job(60.0)], gateway(), Conditions(until=HOUR, stops=True))
    assert (figures.never_started, figures.finished, figures.allocation) == (1, 0, 1.0)


@pytest.mark.parametrize("member", MEMBERS)
def test_members_fill_their_nodes_each_in_their_way(member):
    """Two pods of a GPU: spread puts them apart, the others together; then a job of a whole node fits, or does not."""
    jobs = [job(0.0, gpus=1), job(1.0, gpus=1), job(2.0, gpus=8)]
    figures = replay([plan(member=member, hints=False)], jobs, gateway("cheapest_first"))
    assert figures.lines[2].wait == (0 if member != "spread" else HOUR - 2)


def test_hints_keep_a_spreading_cluster_packed():
    jobs = [job(0.0, gpus=1), job(1.0, gpus=1), job(2.0, gpus=8)]
    waits = {hints: replay([plan(hints=hints)], jobs, gateway()).lines[2].wait for hints in (True, False)}
    assert waits == {True: 0, False: HOUR - 2}


def test_with_old_summaries_ended_jobs_are_seen_late_and_own_decisions_at_once():
    jobs = [job(0.0, HOUR), job(0.0, HOUR), job(1.0, HOUR)]
    fresh = replay([plan()], jobs, gateway())
    old = replay([plan()], jobs, gateway(), Conditions(summary_seconds=1000.0))
    assert fresh.lines[2].wait == HOUR - 1
    assert old.lines[2].wait == 4000 - 1
    assert (fresh.late_starts, old.late_starts) == (0, 0)


def test_a_failure_that_the_gateway_has_not_heard_of_makes_a_job_wait_in_its_cluster():
    unheard = Conditions(summary_seconds=10 * HOUR, failures=Failures(60.0, HOUR), until=61.0)
    figures = replay([plan(nodes=1)], [job(120.0)], gateway(), unheard)
    assert figures.late_starts == 1
    assert figures.lines[0].wait == HOUR - 60


def test_decisions_are_as_far_apart_as_asked():
    jobs = [job(float(n), 10.0, gpus=1) for n in range(10)]
    figures = replay([plan()], jobs, gateway(), Conditions(cycle_seconds=30.0))
    assert [line.first_started for line in figures.lines] == [0.0] + [30.0] * 9


def test_a_fifo_gateway_lets_nobody_overtake():
    jobs = [job(0.0, pods=1), job(1.0, pods=2), job(2.0, pods=1)]
    waits = {name: replay([plan()], jobs, gateway(name)).lines[2].wait for name in GATEWAYS}
    assert waits["fifo_first_fit"] > waits["cheapest_first"] == waits["switchyard"] == 0


def test_nothing_at_all_gives_figures_too():
    figures = replay([plan()], [], gateway())
    assert (figures.jobs, figures.utilisation, figures.cost) == (0, 0.0, 0)


def test_a_load_is_reached_by_pressing_submissions_together():
    jobs = [job(0.0), job(1000.0), job(4000.0)]
    pressed = compressed(jobs, 16, 1.0)
    assert [round(one.submitted) for one in pressed] == [0, round(5400 / 4), 5400]
    assert compressed([job(0.0)], 16, 1.0) == (job(0.0),)


def any_jobs():
    kinds = st.builds(
        job,
        submitted=st.floats(0, 5000).map(lambda at: round(at, 2)),
        seconds=st.floats(0, 4000).map(lambda at: round(at, 2)),
        pods=st.integers(1, 3),
        gpus=st.sampled_from([1, 2, 4, 8]),
        priority=st.sampled_from([0, 0, 100]),
    )
    parts = st.builds(lambda one, milli: replace(one, pods=1, gpus=1, gpu_milli=milli), kinds, st.integers(50, 1000))
    return st.lists(kinds | parts, max_size=25)


class Watched(Simulation):
    """Checks the books at every decision."""

    def _decide(self, now):
        taken = sum(len(devices) * run.job.gpu_milli for run in self.runs for _, devices in run.places)
        free = int(self.truth.devices.sum())
        assert taken + free == self.layout.capacity * 1000
        assert self.tally._allocated == taken
        super()._decide(now)


@given(
    any_jobs(),
    st.sampled_from(GATEWAYS),
    st.sampled_from(MEMBERS),
    st.sampled_from([0.0, 700.0]),
    st.sampled_from([None, Failures(900.0, 400.0)]),
    st.booleans(),
)
@examples(25)
def test_every_job_ends_once_and_no_device_is_given_twice(jobs, name, member, age, failures, hints):
    plans = [plan("a", 2, member=member, hints=hints), plan("b", 3, price="1")]
    conditions = Conditions(summary_seconds=age, failures=failures, checkpoint_seconds=300, until=6000.0)
    figures = Watched(plans, jobs, gateway(name), conditions).run()
    assert figures.finished == figures.jobs == len(jobs)
    for line in figures.lines:
        assert line.wait >= 0
        assert line.finished - line.first_started >= line.job.seconds - 1e-6
    paid = sum(one.seconds * one.milli for one in jobs) / 1000 / 3600
    assert figures.cost >= Decimal(paid).quantize(Decimal("0.01")) - Decimal("0.02")
    assert figures.unpriced_gpu_hours == 0
    assert 0 <= figures.utilisation <= figures.allocation <= 1


@pytest.mark.law
def test_the_same_input_gives_the_same_figures():
    jobs = [job(float(n * 97 % 400), 300.0 + n, pods=1 + n % 3, gpus=1 + n % 8) for n in range(60)]
    plans = [plan("a", 3), plan("b", 3, price="1.5", member="bestfit", hints=False)]
    conditions = Conditions(summary_seconds=30.0, failures=Failures(500.0, 100.0))
    first, second = (replay(plans, jobs, gateway(), conditions) for _ in range(2))
    assert first == second


def test_a_replay_shares_turns_by_weight_and_past_use():
    """One node of 8 GPUs: 40 jobs of one tenant, then 4 of another; each runs an hour on all of the node."""
    many = [job(float(n), tenant="a", name=f"a{n}") for n in range(40)]
    few = [job(100.0 + n, tenant="b", name=f"b{n}") for n in range(4)]

    def ends(**more):
        figures = replay([plan(nodes=1)], [*many, *few], gateway(order="submitted", **more), Conditions())
        order = sorted(figures.lines, key=lambda line: line.first_started)
        return [line.job.name[0] for line in order][:9]

    assert ends(fair_share=None) == ["a"] * 9
    # without the past, an empty node is a tie, which goes to whoever came first
    assert ends(fair_share=FairShareRule(strength=0.0)) == ["a"] * 9
    # a used more than b until both have had as many hours, of which the later ones count more
    assert ends() == ["a", "b", "a", "b", "a", "b", "a", "b", "a"]
    assert ends(fair_share=FairShareRule({"b": 100.0})) == ["a", "b", "b", "b", "b", "a", "a", "a", "a"]
