"""Which pulls come next, and what a pull's pod says of it."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from federation.engine import prepulls
from federation.engine.prepulls import Line, Outcome, Past, State, Verdict, Wanted, brake_of, decide, lines_of, verdict

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
A, B = "registry.example/a:1", "registry.example/b:1"
BEFORE = NOW - timedelta(days=3)
LONG = timedelta(minutes=2)


def wanted(images=(A,), nodes=("n1", "n2", "n3"), **fields):
    return Wanted(
        **{"images": images, "nodes": dict.fromkeys(nodes, ""), "present": {}, "past": {}, "at_once": 2} | fields
    )


def pulled(at=BEFORE, pulls=1):
    return Past(outcome="pulled", pulls=pulls, ended_at=at, pulled_at=at)


def failed(failures=1, at=NOW, **fields):
    return Past(outcome="failed", failures=failures, ended_at=at, message="ErrImagePull: not found", **fields)


def test_an_image_that_was_never_pulled_goes_to_one_node_first():
    assert decide(wanted(at_once=10), NOW) == [(A, "n1")]
    assert decide(wanted(at_once=10, past={(A, "n1"): Past(is_live=True)}), NOW) == []


def test_after_a_success_the_nodes_that_lack_it_pull_as_many_at_once_as_allowed():
    past = {(A, "n1"): pulled()}
    assert decide(wanted(past=past, present={A: frozenset({"n1"})}), NOW) == [(A, "n2"), (A, "n3")]
    past[A, "n2"] = Past(is_live=True)
    assert decide(wanted(past=past, present={A: frozenset({"n1"})}), NOW) == [(A, "n3")]
    assert decide(wanted(past=past, present={A: frozenset({"n1"})}, at_once=1), NOW) == []


def test_images_take_turns():
    past = {(A, "n3"): pulled(), (B, "n3"): pulled()}
    present = {A: frozenset({"n3"}), B: frozenset({"n3"})}
    found = decide(wanted((A, B), past=past, present=present, at_once=3), NOW)
    assert found == [(A, "n1"), (B, "n1"), (A, "n2")]


@pytest.mark.parametrize("fields", [{"why_not": "paused"}, {"unread": frozenset({A})}, {"nodes": {"n1": "not ready"}}])
def test_nothing_is_pulled_while_something_is_in_the_way(fields):
    assert decide(wanted(**fields) if "nodes" not in fields else wanted(nodes=()), NOW) == []
    if "nodes" in fields:
        assert decide(Wanted((A,), fields["nodes"], {}, {}, 2), NOW) == []


def test_a_failing_image_waits_longer_each_time_and_then_for_a_user():
    pauses = []
    for failures in range(1, prepulls.MOST_NODE_FAILURES):
        brake = brake_of([failed(failures)])
        pauses.append(brake.until - NOW)
    assert pauses == [timedelta(minutes=1), timedelta(minutes=2)]
    past = {(A, "n1"): failed()}
    assert decide(wanted(past=past), NOW) == []
    assert decide(wanted(past=past), NOW + timedelta(minutes=1)) == [(A, "n2")]
    stopped = {(A, f"n{number}"): failed(2) for number in (1, 2, 3)}
    assert brake_of(stopped.values()) == (6, None, "ErrImagePull: not found")
    assert brake_of(stopped.values()).is_stopped
    assert decide(wanted(past=stopped, nodes=("n1", "n2", "n3", "n4")), NOW + timedelta(days=365)) == []


def test_failures_never_begin_more_pulls_than_their_bound():
    past, at, begun = {}, NOW, 0
    nodes = tuple(f"n{number}" for number in range(50))
    for _ in range(2000):
        for key in decide(wanted(nodes=nodes, past=past, at_once=10), at):
            begun += 1
            past[key] = failed(past.get(key, prepulls.NOTHING).failures + 1, at)
        at += timedelta(minutes=30)
    assert begun == prepulls.MOST_FAILURES


def test_a_failing_node_is_left_alone_while_the_others_go_on():
    past = {(A, "n1"): failed(prepulls.MOST_NODE_FAILURES, BEFORE), (A, "n2"): pulled(BEFORE + timedelta(hours=1))}
    present = {A: frozenset({"n2"})}
    assert decide(wanted(past=past, present=present), NOW) == [(A, "n3")]
    line = next(line for line in lines_of(wanted(past=past, present=present)) if line.node == "n1")
    assert line == Line(A, "n1", State.FAILED, "ErrImagePull: not found", None, needs_user=True)


def test_a_node_that_does_not_list_what_it_pulled_pulls_again_ever_later():
    for pulls, hours in ((1, 1), (2, 2), (5, 16), (9, 24)):
        known = wanted(nodes=("n1",), past={(A, "n1"): pulled(NOW, pulls)})
        (line,) = lines_of(known)
        assert (line.state, line.next_at) == (State.PULLED, NOW + timedelta(hours=hours))
        assert decide(known, NOW + timedelta(hours=hours) - timedelta(seconds=1)) == []
        assert decide(known, NOW + timedelta(hours=hours)) == [(A, "n1")]


def test_progress_counts_every_node_once():
    past = {(A, "n1"): pulled(), (A, "n2"): Past(is_live=True), (A, "n3"): failed()}
    known = Wanted((A,), {"n1": "", "n2": "", "n3": "", "n4": "not ready", "n5": ""}, {A: frozenset({"n5"})}, past, 2)
    (found,) = prepulls.progress_of(known)
    assert found.nodes == {State.PULLED: 1, State.PULLING: 1, State.FAILED: 1, State.UNUSABLE: 1, State.PRESENT: 1}
    assert (found.usable, found.there) == (4, 2)


def pod(phase="Pending", reason="", node="n1", exit_code=None, ending="", message=""):
    return SimpleNamespace(node=node, phase=phase, reason=reason, exit_code=exit_code, ending=ending, message=message)


def job(outcome="", reason="", message=""):
    return SimpleNamespace(outcome=outcome, reason=reason, message=message)


@pytest.mark.parametrize(
    ("seen", "outcome"),
    [
        (pod("Running"), "pulled"),
        (pod("Succeeded"), "pulled"),
        (pod("Failed", exit_code=128, ending="StartError"), "pulled"),
        (pod("Failed", exit_code=127, ending="ContainerCannotRun"), "pulled"),
        (pod(reason="CreateContainerError: no such file"), "pulled"),
        (pod(reason="RunContainerError"), "pulled"),
        (pod("Failed", exit_code=137, ending="ContainerStatusUnknown"), "failed"),
        (pod("Failed", reason="Evicted", message="The node was low on resource"), "failed"),
        (pod("Failed", reason="DeadlineExceeded"), "failed"),
        (pod("Running", node="n2"), "failed"),
        (pod(reason="InvalidImageName: couldn't parse"), "failed"),
        (pod(reason="ErrImagePull: not found"), "failed"),
        (pod(reason="ImagePullBackOff: Back-off"), "failed"),
        (pod(reason="Unschedulable: 0/3 nodes", node=""), ""),
        (pod(reason="ContainerCreating"), ""),
        (pod(node=""), ""),
    ],
)
def test_what_a_pod_says_of_its_pull(seen, outcome):
    assert verdict("n1", [seen], job(), LONG).outcome == outcome


def test_a_registrys_error_has_a_minute_to_pass_and_a_wrong_name_none():
    soon = timedelta(seconds=1)
    assert verdict("n1", [pod(reason="ErrImagePull: not found")], job(), soon) == Verdict("", "ErrImagePull: not found")
    assert verdict("n1", [pod(reason="InvalidImageName")], job(), soon).outcome == Outcome.FAILED
    never = pod(reason="Unschedulable: 0/3", node="")
    assert verdict("n1", [never], job(), prepulls.UNSCHEDULED) == Verdict("failed", "Unschedulable: 0/3")


def test_what_the_job_says_counts_without_a_pod():
    assert verdict("n1", [], job("succeeded"), LONG).outcome == Outcome.PULLED
    assert verdict("n1", [], job("failed", "DeadlineExceeded", "was active"), LONG) == Verdict(
        "failed", "DeadlineExceeded: was active"
    )
    assert verdict("n1", [], None, LONG) == Verdict("failed", "Its object was deleted on the cluster.")
    late = verdict("n1", [pod(reason="ContainerCreating")], job(), prepulls.DEADLINE + LONG)
    assert late == Verdict("failed", "It did not end within 30 minutes. ContainerCreating")
    assert verdict("n1", [], job(), LONG) == Verdict("")


def test_a_pod_that_has_the_image_outweighs_an_earlier_one_that_failed():
    assert verdict("n1", [pod("Failed", reason="Evicted"), pod("Running")], job(), LONG).outcome == Outcome.PULLED


def test_a_clusters_words_are_cut():
    assert len(verdict("n1", [pod(reason="ErrImagePull: " + "x" * 900)], job(), LONG).message) == 300
