"""The events of a replay one by one: prices, priorities, failures, reports of clusters, and the end."""

from dataclasses import replace
from decimal import Decimal

from placement.values.model import Topology
from simulator.simulation import Simulation, replay
from simulator.values import HOUR, ClusterPlan, Conditions, Failures, Machine, PriceChange

from .test_replay import GPU, gateway, job, plan, spot_plan


def test_a_new_price_is_of_one_flavor_in_one_cluster():
    """Three running jobs of an hour: the price rises after half of it, for one of them."""
    other = Machine("m", "H100", "H100", 8, 96_000, 1_048_576)
    east = replace(plan("a", 1), machines=(*plan("a", 1).machines, other), prices={GPU: Decimal(2), "H100": Decimal(2)})
    east = replace(
        east, price_changes=(PriceChange(HOUR / 2, GPU, Decimal(4)), PriceChange(2 * HOUR, GPU, Decimal(99)))
    )
    jobs = [job(), job(models=("H100",)), job()]
    figures = replay([east, plan("b", 1)], jobs, gateway("fifo_first_fit"))
    assert [one.cost for one in figures.clusters] == [Decimal(16 + 8 + 16), Decimal(16)]
    assert [line.flavor for line in figures.lines] == [GPU, "H100", GPU]


def test_jobs_start_by_priority_then_by_submission():
    jobs = [job(0.0), job(1.0), job(2.0, priority=100), job(3.0, priority=-100), job(4.0)]
    figures = replay([plan(nodes=1)], jobs, gateway("fifo_first_fit"))
    assert [line.first_started / HOUR for line in figures.lines] == [0, 2, 1, 4, 3]


class Noted(Simulation):
    """Notes which nodes are lost, and when."""

    def run(self, progress=None):
        self.lost = []
        return super().run(progress)

    def _lose_node(self, node, now, away_seconds):
        self.lost.append((now, node))
        return super()._lose_node(node, now, away_seconds)


def test_failures_begin_with_the_window_and_go_round_the_fleet_until_its_end():
    window = Conditions(failures=Failures(100.0, 150.0), since=50.0, until=650.0, checkpoint_seconds=60)
    run = Noted([plan(nodes=10)], [job(seconds=2 * HOUR)], gateway(), window)
    figures = run.run()
    assert run.lost == [(150.0, 6), (250.0, 2), (350.0, 8), (450.0, 4), (550.0, 0), (650.0, 7)]
    assert (figures.node_failures, figures.down_share) == (6, round(8 * (4 * 150 + 100) / (80 * 600), 6))


def test_a_node_that_is_away_already_is_not_lost_again():
    window = Conditions(failures=Failures(100.0, 1000.0), until=500.0)
    figures = replay([plan(nodes=1)], [job(600.0)], gateway(), window)
    assert (figures.node_failures, figures.lines[0].wait) == (1, 500.0)


def test_a_node_that_was_lost_before_the_first_decision_is_known_to_be_away():
    window = Conditions(failures=Failures(100.0, 1000.0), until=150.0)
    figures = replay([plan(nodes=2)], [job(120.0), job(130.0)], gateway(), window)
    assert sorted(line.wait for line in figures.lines) == [0.0, 970.0]


def test_a_reclaimed_node_is_away_as_long_as_the_conditions_say():
    window = Conditions(until=HOUR, reclaimed_seconds=10 * HOUR)
    figures = replay([spot_plan(1000.0, 1)], [job(HOUR / 2)], gateway(), window)
    assert figures.interruptions == 1
    assert figures.lines[0].wait > 9 * HOUR


def test_spot_nodes_are_taken_back_from_the_beginning_and_not_before():
    run = Noted([spot_plan(3600.0, 300)], [job(seconds=1.0)], gateway(), Conditions(until=5.0))
    run.run()
    instants = [instant for instant, _ in run.lost]
    assert 0 < min(instants) < 0.1
    assert len(instants) >= 300


def test_progress_ends_with_all_jobs_at_the_last_instant():
    told = []
    replay([plan()], [job(), job(60.0)], gateway(), progress=lambda *one: told.append(one))
    assert told == [(2, 2, HOUR + 60)]
    replay([plan()], [job(seconds=0.0)], gateway(), progress=lambda *one: told.append(one))
    assert len(told) == 1, "nothing lasted"


def test_progress_of_a_long_replay_is_told_on_the_way():
    told = []
    jobs = [job(float(n), 0.5, gpus=1) for n in range(300)]
    replay([plan()], jobs, gateway("fifo_first_fit"), progress=lambda *one: told.append(one))
    assert len(told) > 2
    assert told == sorted(told)
    assert told[-1] == (300, 300, 299.5)


def test_a_replay_that_stops_ends_with_its_window():
    window = Conditions(until=HOUR, stops=True)
    assert replay([plan()], [job(seconds=60.0)], gateway(), window).seconds == HOUR
    busy = replay([plan()], [job(seconds=3 * HOUR)], gateway(), window)
    assert (busy.seconds, busy.finished, busy.allocation, busy.cost) == (HOUR, 0, 0.5, 16)
    free = replay([plan()], [job(seconds=3 * HOUR)], gateway(), Conditions(until=HOUR))
    assert (free.seconds, free.finished) == (3 * HOUR, 1)


def test_clusters_report_in_turn_and_each_as_often_as_it_says():
    """Both nodes are full for 10 s. Of reports every 40 s, the first cluster's come at 20 s, the second's at 40 s."""
    jobs = [job(0.0, 10.0), job(0.0, 10.0), job(1.0, 5.0), job(2.0, 5.0)]
    figures = replay([plan("a", 1), plan("b", 1)], jobs, gateway("fifo_first_fit"), Conditions(summary_seconds=40.0))
    assert [line.first_started for line in figures.lines] == [0, 0, 20, 40]
    own = [plan("a", 1, summary_seconds=0.0), plan("b", 1, summary_seconds=60.0)]
    figures = replay(own, jobs, gateway("fifo_first_fit"), Conditions(summary_seconds=40.0))
    assert [line.first_started for line in figures.lines] == [0, 0, 10, 15]


def test_what_waits_for_reports_is_not_given_up():
    """Only the tenth report after the job's arrival says that its node is back."""
    away = Conditions(summary_seconds=100.0, failures=Failures(50.0, 950.0), until=51.0)
    figures = replay([plan(nodes=1)], [job(120.0, 60.0)], gateway(), away)
    assert (figures.finished, figures.lines[0].first_started) == (1, 1000.0)


def test_a_job_that_waits_in_its_cluster_keeps_the_node_that_the_gateway_assumed():
    """The tighter node fails unheard: the first job, meant for it, takes the other one, for which the second was meant."""
    loose, tight = plan(nodes=2).machines
    away = Conditions(summary_seconds=1000.0, failures=Failures(60.0, 5000.0), until=61.0)
    there = replace(plan(), machines=(loose, replace(tight, cpu_millicores=90_000)))
    figures = replay([there], [job(120.0), job(121.0), job(1100.0)], gateway(), away)
    assert figures.late_starts == 1
    assert [line.first_started for line in figures.lines] == [120, 120 + HOUR, 6000]


def test_a_job_that_never_starts_is_on_no_rack():
    figures = replay([plan(nodes=1)], [job(seconds=None), job(60.0)], gateway(), Conditions(until=HOUR, stops=True))
    waiting = figures.lines[1]
    assert (waiting.cluster, waiting.flavor, waiting.racks, waiting.blocks) == ("", "", 0, 0)
    assert (waiting.tries, waiting.lost_seconds, waiting.first_started, waiting.finished) == (0, 0, None, None)


def test_what_idle_clusters_never_take_ends_the_replay():
    kept = gateway(topology=Topology("rack", "required"))
    figures = replay([plan(nodes=2, per_rack=1)], [job(600.0, pods=2)], kept, Conditions(summary_seconds=60.0))
    assert (figures.never_started, figures.finished) == (1, 0)
    assert figures.seconds < HOUR


def test_a_gang_of_several_racks_and_blocks_is_counted_by_both():
    machines = tuple(
        Machine(f"n{n}", GPU, GPU, 8, 96_000, 1_048_576, ("z", f"b{n // 2}", f"r{n % 2}")) for n in range(4)
    )
    figures = replay([ClusterPlan("c", machines)], [job(pods=4), job(2 * HOUR, pods=1)], gateway())
    assert (figures.gangs, figures.racks_per_gang, figures.blocks_per_gang) == (1, 4.0, 2.0)
    assert (figures.lines[0].racks, figures.lines[1].racks, figures.lines[1].blocks) == (4, 1, 1)
