"""What programs report is judged by what they were answered, and moves off nodes by what was announced."""

from types import SimpleNamespace
from typing import Any

import pytest

from devtools.simulation.clusters.objects import GPU, Run
from devtools.simulation.core.history import Asked
from tests.simulation.test_frail_cluster import Timer, cluster_without_images, job

ATTEMPT = "attempt-1"
NODE = ("east", "east-0")


def world(rows, **more):
    """A world in which statements find these rows."""
    given: dict[str, Any] = {"lost_commits": SimpleNamespace(spans=[]), "clusters": {}, "removed": [], "noticed": []}
    watch = SimpleNamespace(rows=lambda statement, *_: rows.get(statement, []))
    return SimpleNamespace(watch=watch, scheduler=SimpleNamespace(now_us=99), **(given | more))


@pytest.mark.parametrize(
    ("stored", "is_broken"),
    [
        ((3, 3, 2, 2), False),
        ((4, 4, 4, 3), False),
        ((2, 2, 2, 1), True),
        ((3, 3, 0, 1), True),
        ((3, 2, 2, 2), True),
        ((5, 5, 2, 2), True),
        ((-1, None, -1, 0), True),
        (None, True),
    ],
)
def test_what_is_stored_is_what_was_sent_and_no_older_than_what_was_acknowledged(stored, is_broken):
    """Reports 2 and 3 were acknowledged, of report 4 the answer was lost, and report 5 was refused."""
    # Django must be set up before the gateway's names are imported, so this is not at the top.
    from devtools.simulation.requests import notices  # noqa: PLC0415

    answers = {2: "ok", 3: "ok", 4: "unknown", 5: "refused"}
    asked = [Asked("program", "report", ATTEMPT, 1, 2, answer, told=told) for told, answer in answers.items()]
    there = world({notices.STORED: [(ATTEMPT, *stored)] if stored else []}, history=SimpleNamespace(asked=asked))
    assert bool(notices.a_report_is_stored_and_never_taken_back(there)) is is_broken


@pytest.mark.parametrize(
    ("noticed", "is_broken"),
    [([(10, *NODE)], False), ([(60, *NODE)], True), ([(10, "east", "east-1")], True), ([], True)],
)
def test_only_a_run_whose_node_was_announced_to_go_is_moved_for_that(noticed, is_broken):
    """It was moved at 50."""
    from devtools.simulation.requests import notices  # noqa: PLC0415

    run = Run("east", "pod-0", "job-uid", "job-1", ATTEMPT, 0, 1, NODE[1], from_us=5)
    there = world({notices.SPOT: [(ATTEMPT, 50)]}, clusters={"east": SimpleNamespace(runs=[run])}, noticed=noticed)
    assert bool(notices.only_a_notice_moves_a_run_as_spot(there)) is is_broken


def test_a_node_that_goes_away_keeps_its_pods_and_gets_no_more_until_it_stays_after_all():
    timer = Timer()
    cluster = cluster_without_images(timer)
    cluster.image_fails = 0.0
    cluster.create_job(job("first", gpus=1))
    timer.run_for(5)
    cluster.announce_end("east-0", "cloud.google.com/impending-node-termination")
    assert [taint["effect"] for taint in cluster.nodes["east-0"].seen().taints] == ["NoSchedule"]
    cluster.create_job(job("second", gpus=1))
    timer.run_for(60)
    assert [run.code for run in cluster.runs] == [0]
    assert {pod.requests[GPU]: pod.node for pod in cluster.pods.values() if not pod.is_ended} == {"1": ""}
    cluster.repair_node("east-0")
    timer.run_for(60)
    assert [run.code for run in cluster.runs] == [0, 0]


def test_no_node_is_announced_to_go_away_in_a_healed_world():
    """No operator would repair it."""
    from devtools.simulation.requests.notices import give_notice  # noqa: PLC0415 - as above

    asked: list[str] = []
    faults = SimpleNamespace(is_healed=True, choose=lambda _: asked.append("choose"))
    world: Any = SimpleNamespace(faults=faults, clusters={}, noticed=[])
    give_notice(world)
    assert (asked, world.noticed) == ([], [])
