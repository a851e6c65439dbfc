"""Every kind of fault is caused by something, and the smaller worlds do what their arguments say."""

import argparse
from types import SimpleNamespace
from typing import Any

import pytest

from devtools.simulation.core.faults import CALLS, EVENTS, RATES, Faults
from devtools.simulation.setting.size import Size, add_arguments, size_of

ELSEWHERE = {
    "watch_broken", "watch_skips_delete", "watch_repeats", "watch_goes_back", "watch_stalls", "commit_lost_done",
    "commit_lost_not_done", "statement_lost", "death", "bell_lost", "bell_tripled", "bell_late", "image_missing",
    "clocks_differ", "list_lacks", "name_taken", "uid_lies", "hook_changes", "hook_refuses", "hook_fails",
    "late", "service_name_taken", "wishes_refused", "gate_forbidden", "gate_refused",
    "release_unheard", "nodes_kill", "month_ends", "unannounced", "overtaken", "logs_decide",
    "budgeted", "room_kept", "exchanged", "consolidated", "committed",
    "deletes_behind", "hangs_long", "elastic", "window_passes", "cut_at_release", "saved", "emitted",
    "room_taken",
}  # fmt: skip
"""Kinds that are asked for where they happen."""


SCHEDULER: Any = None
REFUSED_GATES = [("wishes_refused", [{"weight": 1}], 422), ("gate_forbidden", [], 403), ("gate_refused", [], 422)]


def handlers():
    # Django must be set up before operations are imported, so this is not at the top.
    from devtools.simulation.mishaps import (  # noqa: PLC0415
        hidden_pods,
        meanwhile,
        mischief,
        outages,
        restores,
        silences,
        spoiling,
        strangers,
    )
    from devtools.simulation.requests import (  # noqa: PLC0415
        administration,
        attaching,
        bulk_requests,
        catalogue,
        data_copies,
        image_pulls,
        limit_forms,
        mistakes,
        notices,
        object_copies,
        opening,
        previewing,
        questions,
        refusals,
        reservations,
        supplies,
        trees,
        waiting_stops,
    )

    users = (
        bulk_requests, limit_forms, meanwhile, mistakes, previewing, questions, refusals, trees, waiting_stops,
    )  # fmt: skip
    own = (
        *users,
        attaching,
        data_copies,
        hidden_pods,
        image_pulls,
        notices,
        object_copies,
        opening,
        outages,
        reservations,
        restores,
        silences,
        spoiling,
        supplies,
    )
    modules = (administration, catalogue, strangers, *own)
    ours = {name[1:] for name in vars(mischief.Mischief) if name.startswith("_") and not name.startswith("__")}
    return ours.union(*(module.EVENTS for module in modules))


def test_each_event_has_one_who_causes_it():
    assert set(EVENTS) <= handlers()


def test_each_kind_of_fault_happens_somewhere():
    assert set(RATES) == {*CALLS, *EVENTS, *ELSEWHERE}


def test_only_the_wanted_faults_happen_and_at_their_highest_rates():
    assert Faults(1, only=("death", "slow")).rates == {"death": max(RATES["death"]), "slow": max(RATES["slow"])}
    assert Faults(1, without=("slow",), only=("death", "slow")).rates == {"death": max(RATES["death"])}


@pytest.mark.parametrize(
    "size",
    [Size(), Size(only=("death",), without=("slow", "lost"), jobs=(0, 2), spared=(3,), alone=True)],
)
def test_the_arguments_of_a_size_make_the_same_size(size):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    assert size_of(parser.parse_args(size.arguments().split())) == size


def test_where_a_cluster_loses_all_its_jobs_crowds_have_two_objects_in_each_job():
    # As above: it needs Django.
    from devtools.simulation.core.swarm import ANY  # noqa: PLC0415
    from devtools.simulation.requests.clients import CROWD, plan  # noqa: PLC0415

    crowds = [jobs for seed in range(20) if len(jobs := plan(seed, (), ANY, is_emptied=True)) == CROWD]
    assert len(crowds) > 3
    assert {len(job.body["pod_sets"]) for jobs in crowds for job in jobs} == {2}


@pytest.mark.parametrize(("kind", "wishes", "status"), REFUSED_GATES)
def test_a_gate_is_refused_by_the_fault_that_happens(kind, wishes, status):
    from clusters.drivers import Refused  # noqa: PLC0415
    from devtools.simulation.clusters.link import Link  # noqa: PLC0415

    noted: list[tuple[str, bool]] = []
    cluster: Any = SimpleNamespace(note_gate=lambda uid, is_open: noted.append((uid, is_open)))
    link = Link(cluster, Faults(1, chosen={kind: 1.0}), SCHEDULER)
    with pytest.raises(Refused) as refused:
        link.open_gate("team", "pod-0", "uid-0", "gate", wishes)
    assert refused.value.status == status
    assert noted == ([("uid-0", False)] if kind == "gate_refused" else [])


def test_without_preferences_a_gate_opens_where_they_are_refused():
    from devtools.simulation.clusters.link import Link  # noqa: PLC0415

    opened: list[tuple[str, ...]] = []
    cluster: Any = SimpleNamespace(open_gate=lambda *names: opened.append(names))
    Link(cluster, Faults(1, chosen={"wishes_refused": 1.0}), SCHEDULER).open_gate("team", "pod-0", "uid-0", "gate", [])
    assert opened == [("team", "pod-0", "uid-0", "gate")]


def test_a_run_that_does_not_come_to_its_end_finds_no_defect():
    from devtools.simulation.seeds.hunt import is_found  # noqa: PLC0415
    from devtools.simulation.seeds.run import Result  # noqa: PLC0415

    assert not is_found(Result(1))
    assert not is_found(Result(1, breaks=["simulation: the run takes more than 120 s", "a task: Stalled: likewise"]))
    assert is_found(Result(1, breaks=["promise 8, a job never runs twice at once: it did", "  a row"]))


def test_a_release_without_a_reply_is_refused_when_it_is_repeated():
    from devtools.simulation.clusters.link import Link  # noqa: PLC0415

    cluster: Any = None
    faults = Faults(1, chosen={"release_unheard": 1.0})
    link = Link(cluster, faults, SCHEDULER)
    assert [link.fault_of_release("uid-0") for _ in range(3)] == ["reply_lost", "refused", "reply_lost"]
    faults.is_healed = True
    assert link.fault_of_release("uid-0") == ""


def test_where_gates_are_refused_the_first_job_is_a_gang_over_several_nodes_within_quota():
    from devtools.simulation.core.swarm import ANY  # noqa: PLC0415
    from devtools.simulation.requests.clients import CROWD, plan  # noqa: PLC0415
    from devtools.simulation.setting.stage import TEAMS  # noqa: PLC0415

    plans = [plan(seed, (), ANY, is_ordered=True) for seed in range(40)]
    firsts = [jobs[0].body for jobs in plans if len(jobs) != CROWD]
    assert len(firsts) > 30
    assert {(body["tenant"], len(body["pod_sets"]), body["pod_sets"][0]["count"]) for body in firsts} == {
        (TEAMS[0], 1, 2)
    }
