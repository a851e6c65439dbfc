"""The figures of a replay from its counters, in cases that can be worked out by hand."""

import csv
import io
import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from simulator.exports import csv_text, duration, json_text, share, table
from simulator.figures import Curve, JobLine, distribution, figures_of
from simulator.fragments import Fragments
from simulator.report import html_page
from simulator.shares import USUAL, PastUses
from simulator.tally import Tally
from simulator.values import HOUR, ClusterPlan, Machine, TraceJob
from simulator.world import Layout, Shelves

GPU = "A100-80GB"


def job(submitted=0.0, seconds=60.0, pods=1, gpus=1, **more):
    return TraceJob(more.pop("name", "j"), submitted, seconds, pods, gpus, **more)


def line(one=None, **more):
    defaults: dict[str, Any] = {
        "cluster": "c", "flavor": GPU, "first_started": 0.0, "finished": 60.0, "racks": 1, "blocks": 1, "tries": 1,
        "lost_seconds": 0.0,
    }  # fmt: skip
    return JobLine(one or job(), **(defaults | more))


def layout(*gpus):
    """A cluster of a node for each number of GPUs."""
    plans = [
        ClusterPlan(f"c{n}", (Machine("n", GPU, GPU, one, 8000, 1000),), {GPU: Decimal(2)})
        for n, one in enumerate(gpus)
    ]
    return Layout(plans)


def test_a_wait_ends_with_the_first_start():
    assert line(job(40.0), first_started=100.0).wait == 60.0
    assert line(job(40.0), first_started=0.0).wait == -40.0
    assert line(first_started=None).wait is None


@pytest.mark.parametrize(
    ("submitted", "seconds", "finished", "slowdown"),
    [(100.0, 50.0, 300.0, 4.0), (100.0, 5.0, 130.0, 3.0), (0.0, 60.0, 60.0, 1.0), (0.0, 1.0, 1.0, 1.0)],
)
def test_a_slowdown_is_the_time_in_the_system_by_the_run_time_of_at_least_ten_seconds(
    submitted, seconds, finished, slowdown
):
    assert line(job(submitted, seconds), finished=finished).slowdown == slowdown


def test_what_has_not_ended_or_has_no_end_has_no_slowdown():
    assert line(finished=None).slowdown is None
    assert line(job(seconds=None)).slowdown is None


def test_a_distribution_has_its_mean_and_nearest_ranks():
    found = distribution([4.0, 1.0, 2.0, 1.00005])
    assert found == {"mean": 2.0, "p50": 1.0, "p95": 4.0, "p99": 4.0, "max": 4.0}
    assert distribution([]) == {"mean": 0.0, "p50": 0.0, "p95": 0.0, "p99": 0.0, "max": 0.0}
    assert distribution(list(map(float, range(200, 0, -1))))["p99"] == 198.0


def test_equal_stretches_of_a_curve_are_one():
    curve = Curve(2)
    for start in (0.0, 1.0, 2.0):
        curve.add(start, start + 1, 5.0, 1)
    curve.add(3.0, 4.0, 5.0, 2)
    curve.add(4.0, 8.0, 1.0, 2)
    assert curve.stretches == [(0.0, 3.0, 5.0, 1), (3.0, 4.0, 5.0, 2), (4.0, 8.0, 1.0, 2)]
    assert curve.means() == [(4.0, 5.0, 1.25), (8.0, 1.0, 2.0)]


def tally(*gpus, since=0.0, until=100.0, samples=4):
    return Tally(layout(*(gpus or (8,))), since, until, samples)


def test_gpu_time_counts_inside_the_window_and_cost_over_the_whole_replay():
    counted = tally(8, 4, since=100.0, until=200.0)
    counted.start(1, job(pods=2, gpus=2), 0, Decimal(3), 50.0)
    counted.start(2, job(gpus=1, gpu_milli=500), 1, None, 150.0)
    counted.stop(1, 150.0)
    counted.stop(2, 400.0)
    first, second = counted.sums
    assert (first.held, first.starts, first.unpriced) == (50.0 * 4, 1, 0)
    assert first.cost == Decimal(3) * 4 * 100 / 3600
    assert (second.held, second.cost, second.unpriced) == (50.0 * 0.5, 0, 250.0 * 0.5)


def test_a_new_price_counts_from_the_last_charge_on():
    counted = tally()
    counted.start(1, job(gpus=2), 0, Decimal(3), 0.0)
    counted.charge_to(1, HOUR)
    counted.reprice(1, Decimal(5))
    counted.stop(1, 3 * HOUR)
    assert counted.sums[0].cost == 2 * (3 + 2 * 5)


def test_lost_work_counts_inside_the_window_and_every_interruption_counts():
    counted = tally(since=100.0, until=200.0)
    for start, end in ((0.0, 50.0), (50.0, 120.0), (190.0, 300.0)):
        counted.lose(job(gpus=2), start, end)
    assert (counted.preemptions, counted.lost) == (3, 2 * (20.0 + 10.0))


def test_nodes_that_are_down_lose_their_gpus_for_that_time():
    counted = tally(8, 4, since=10.0, until=100.0)
    shelves = Shelves(counted.layout)
    counted.advance(20.0, shelves, 0)
    shelves.is_down[1] = True
    counted.advance(50.0, shelves, 3)
    counted.advance(50.0, shelves, 99)
    counted.advance(200.0, shelves, 3)
    assert counted.down == 4 * (30.0 + 50.0)
    assert counted.curve.stretches == [(0.0, 20.0, 0.0, 0), (20.0, 200.0, 0.0, 3)]


def test_the_curve_follows_what_is_allocated():
    counted = tally()
    shelves = Shelves(counted.layout)
    counted.start(1, job(pods=2, gpus=2, gpu_milli=1000), 0, None, 0.0)
    counted.advance(10.0, shelves, 1)
    counted.stop(1, 10.0)
    counted.advance(30.0, shelves, 0)
    assert counted.curve.stretches == [(0.0, 10.0, 4.0, 1), (10.0, 30.0, 0.0, 0)]


def test_fragmentation_is_sampled_at_equal_steps_of_the_window():
    counted = tally(8, since=100.0, until=200.0, samples=4)
    shelves = Shelves(counted.layout)
    counted.advance(110.0, shelves, 0)
    assert counted.fragmentation == []
    counted.expect([job(gpus=8)])
    for now in (115.0, 120.0, 139.0, 140.0, 200.0, 250.0):
        counted.advance(now, shelves, 0)
    assert counted.fragmentation == [0.0] * 3
    dense = tally(8, until=4.0, samples=100)
    dense.expect([job(gpus=8)])
    for now in (1.0, 1.5, 2.0, 3.0, 4.0):
        dense.advance(now, shelves, 0)
    assert dense.fragmentation == [0.0] * 4, "a second is the shortest step"
    early = tally(8, since=100.0, until=200.0)
    early.expect([job(gpus=8)])
    early.advance(99.0, shelves, 0)
    assert early.fragmentation == []
    early.advance(100.0, shelves, 0)
    assert early.fragmentation == [0.0]


def test_idle_devices_count_as_fragments_for_the_pods_that_cannot_use_them():
    """Of pods of which three ask for half a device and one for four whole ones, on a node with 1, 0.4 and 1 left."""
    fleet = layout(3)
    fragments = Fragments(fleet, [job(pods=3, gpu_milli=500), job(gpus=4)])
    shelves = Shelves(fleet)
    shelves.devices[0] = [1000, 400, 1000]
    expected = 0.75 * 400 + 0.25 * 2400
    assert fragments.of(np.array([0]), shelves.devices, shelves.cpu).tolist() == [expected]
    assert fragments.share(shelves) == expected / 3000
    shelves.is_down[0] = True
    assert fragments.share(shelves) == 0.0


def test_what_lacks_cores_or_the_model_can_use_no_device():
    fleet = layout(2)
    shelves = Shelves(fleet)
    for one, lost in (
        (job(cpu_millicores=8000), 0),
        (job(cpu_millicores=8001), 2000),
        (job(models=("T4",)), 2000),
        (job(models=(GPU,)), 0),
        (job(gpus=0), 2000),
        (job(gpus=2), 0),
        (job(gpus=3), 2000),
    ):
        assert Fragments(fleet, [one]).of(np.array([0]), shelves.devices, shelves.cpu).tolist() == [lost], one


def test_only_the_kinds_of_pods_that_make_up_most_are_usual():
    fleet = layout(2)
    shelves = Shelves(fleet)
    rare = Fragments(fleet, [job(pods=95), job(pods=5, gpus=8)])
    assert rare.share(shelves) == 0.0
    assert Fragments(fleet, [job(pods=94), job(pods=6, gpus=8)]).share(shelves) == 0.06
    assert Fragments(fleet, []).share(shelves) == 0.0


def counted_figures():
    """A fleet of 8 and 2 GPUs over 1000 s: half of it allocated, a tenth of that lost, a twentieth down."""
    counted = tally(8, 2, until=1000.0)
    counted.sums[0].held, counted.sums[1].held = 4000.0, 1000.0
    counted.sums[0].cost, counted.sums[1].cost = Decimal("12.345"), Decimal("0.004")
    counted.sums[1].unpriced, counted.sums[0].starts = 5400.0, 7
    counted.lost, counted.down = 500.0, 500.0
    counted.failures, counted.interruptions, counted.preemptions, counted.late = 1, 2, 3, 4
    counted.moves = 5
    counted.fragmentation = [0.1, 0.2]
    counted.curve.add(0.0, 960.0, 5.0, 2)
    lines = (
        line(job(0.0, pods=2, name="a"), first_started=0.0, finished=60.0),
        line(
            job(10.0, pods=3, name="b"), first_started=130.0, finished=190.0, racks=2, blocks=3, tries=2, lost_seconds=5
        ),
        line(
            job(2000.0, pods=4, name="c"), first_started=None, finished=None, cluster="", flavor="", racks=0, blocks=0
        ),
        line(job(1000.0, name="d"), first_started=1000.0, finished=None),
    )
    return figures_of("switchyard", counted, lines, (line(),), 1234.5678)


def test_figures_are_parts_of_the_windows_gpu_time_and_means_of_its_jobs():
    found = counted_figures()
    assert (found.gpus, found.seconds, found.jobs) == (10, 1234.568, 4)
    assert (found.finished, found.never_started, found.unplaceable) == (2, 1, 1)
    assert (found.utilisation, found.allocation) == (0.45, 0.5)
    assert found.wait_seconds == {"mean": 40.0, "p50": 0.0, "p95": 120.0, "p99": 120.0, "max": 120.0}
    assert found.slowdown == {"mean": 2.0, "p50": 1.0, "p95": 3.0, "p99": 3.0, "max": 3.0}
    assert (found.cost, found.unpriced_gpu_hours, found.fragmentation) == (Decimal("12.35"), 1.5, 0.15)
    assert (found.gangs, found.racks_per_gang, found.gangs_in_one_rack, found.blocks_per_gang) == (2, 1.5, 0.5, 2.0)
    assert (found.lost_gpu_hours, found.lost_share, found.down_share) == (0.1389, 0.05, 0.05)
    assert (found.node_failures, found.interruptions, found.preemptions, found.late_starts) == (1, 2, 3, 4)
    assert found.moves == 5
    assert found.interrupted_jobs == 1
    large, small = found.clusters
    assert (large.name, large.gpus, large.allocation, large.cost, large.starts) == ("c0", 8, 0.5, Decimal("12.34"), 7)
    assert (small.gpus, small.allocation, small.cost, small.unpriced_gpu_hours) == (2, 0.5, Decimal("0.00"), 1.5)
    assert (len(found.curve), found.curve[0], found.curve[-1]) == (4, (240.0, 5.0, 2.0), (960.0, 5.0, 2.0))


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "0 s"), (119, "119 s"), (120, "2.0 min"), (7199, "120.0 min"), (7200, "2.0 h"), (172_799, "48.0 h"),
        (172_800, "2.0 d"), (90 * 86_400, "90.0 d"),
    ],
)  # fmt: skip
def test_a_duration_is_told_in_the_largest_unit_that_it_has_two_of(seconds, told):
    assert duration(seconds) == told


def test_the_table_has_a_row_for_each_figure_and_a_column_for_each_gateway():
    found = counted_figures()
    rows = [row.rsplit("  ", 1) for row in table([found]).splitlines()]
    assert {len(row) for row in table([found, found]).splitlines()} == {25 + 2 * (2 + 19)}
    assert rows[0][1] == "switchyard"
    assert [(title.strip(), told.strip()) for title, told in rows[1:]] == [
        ("jobs (finished)", "4 (2)"), ("never started", "1"), ("fit nowhere, skipped", "1"), ("virtual time", "20.6 min"),
        ("utilisation", "45.00 %"), ("allocation", "50.00 %"), ("wait mean", "40 s"), ("wait p50", "0 s"),
        ("wait p95", "2.0 min"), ("wait p99", "2.0 min"), ("slowdown mean", "2.00"), ("slowdown p95", "3.00"),
        ("cost", "12.35"), ("GPU hours without a price", "1.5"), ("fragmentation", "15.00 %"), ("racks per gang", "1.500"),
        ("gangs inside one rack", "50.00 %"), ("node failures", "1"), ("spot nodes taken back", "2"),
        ("runs cut short", "3"), ("interrupted jobs", "1"), ("lost work", "0.1 GPU h (5.000 %)"), ("late starts", "4"),
    ]  # fmt: skip
    assert share(0.12345) == "12.35 %"


def test_the_json_holds_every_figure_and_the_curve():
    document = json.loads(json_text([counted_figures()], {"seed": 3}))
    (one,) = document["replays"]
    assert (document["format"], document["version"], document["conditions"]) == ("switchyard/replay", 1, {"seed": 3})
    assert one["curve"][0] == {"until_seconds": 240.0, "gpus_allocated": 5.0, "jobs_queued": 2.0}
    assert one["clusters"][1] == {
        "name": "c1", "gpus": 2, "allocation": 0.5, "cost": "0.00", "unpriced_gpu_hours": 1.5, "starts": 0,
    }  # fmt: skip
    assert (one["cost"], one["lost_share"], "lines" in one) == ("12.35", 0.05, False)


def test_the_rows_of_jobs_hold_their_outcomes_and_leave_empty_what_there_is_not():
    rows = list(csv.DictReader(io.StringIO(csv_text([counted_figures()]).decode())))
    outcome = ("gateway", "cluster", "flavor", "wait_seconds", "started_at", "finished_at", "slowdown", "racks", "blocks",
               "tries", "lost_seconds")  # fmt: skip
    assert [rows[1][name] for name in outcome] == [
        "switchyard", "c", GPU, "120.0", "130.0", "190.0", "3.0", "2", "3", "2", "5",
    ]  # fmt: skip
    assert [rows[2][name] for name in outcome] == ["switchyard", "", "", "", "", "", "", "", "", "1", "0.0"]


def test_the_page_shows_what_is_in_the_figures():
    page = html_page([counted_figures()], {"cycle_seconds": 30, "seed": "<1>"}).decode()
    assert "<h1>Replay on 10 GPUs</h1><p>cycle seconds 30 · seed &lt;1&gt;</p>" in page
    assert page.count('points="225.0,114.0 386.0,114.0 547.0,114.0 708.0,114.0"') == 1
    assert page.count('points="225.0,12.0 386.0,12.0 547.0,12.0 708.0,12.0"') == 1
    assert "switchyard, c0: 12</title>" in page
    assert "<th scope='row'>c1</th><td>0.00</td><td>50.00 %</td>" in page
    assert '<li><svg viewBox="0 0 32 12" aria-hidden="true"><line class="line c0"' in page
    assert "Replay on 0 GPUs" in html_page([], {}).decode()


def test_a_tenant_holds_what_all_pods_of_its_running_jobs_take():
    running = [job(pods=2, gpus=3, cpu_millicores=500, memory_mib=7), job(gpus=0, memory_mib=100)]
    (own,) = PastUses(USUAL).shares(running, 0.0).tenants
    assert own.held == {"gpu": 6000, "cpu": 1000, "memory": 114}


def test_the_page_of_two_gateways_has_them_side_by_side_and_nothing_between():
    found = counted_figures()
    page = html_page([found, replace(found, gateway="other")], {"seed": 1}).decode()
    c0, c1 = "<td>12.34</td><td>50.00 %</td>", "<td>0.00</td><td>50.00 %</td>"
    head = "".join(f'<th scope="col">{name}</th><th scope="col">allocated</th>' for name in ("switchyard", "other"))
    rows = f"<tr><th scope='row'>c0</th>{c0}{c0}</tr><tr><th scope='row'>c1</th>{c1}{c1}</tr>"
    assert (
        f'<th scope="col">Cluster</th>{head}</tr></thead><tbody>{rows}</tbody></table></div></section></main>' in page
    )
    first = (
        '<th scope="col">Figure</th><th scope="col">switchyard</th><th scope="col">other</th></tr></thead><tbody><tr>'
    )
    assert f'{first}<th scope="row">jobs (finished)</th><td>4 (2)</td><td>4 (2)</td></tr><tr><th' in page
    assert page.count("switchyard</li><li>") == page.count("other</li></ul>") == 4
    assert "</section><section>" in page
