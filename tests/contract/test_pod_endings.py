"""What a Kubernetes pod says of its end, as the port shows it: bounded, one printable line, and only for our own pods."""

import json
from typing import Any

import msgspec
import pytest

from clusters.drivers.kubernetes.shapes import Pod, pod_seen

OURS = {"switchyard.dev/install": "here"}


def seen(*containers: dict[str, Any], labels: dict[str, str] | None = None, **status: Any):
    told = {"phase": "Failed", "containerStatuses": [{"state": state} for state in containers], **status}
    meta = {"name": "p", "namespace": "n", "uid": "u", "labels": OURS if labels is None else labels}
    return pod_seen(msgspec.json.decode(json.dumps({"metadata": meta, "status": told}), type=Pod))


def ended(code: int = 1, **more: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, **more}}


def test_the_reason_signal_and_message_are_those_of_the_container_that_failed_first():
    pod = seen(ended(0, reason="Completed"), ended(137, reason="OOMKilled", signal=9, message="out"))
    assert (pod.exit_code, pod.ending, pod.signal, pod.message) == (137, "OOMKilled", 9, "out")


def test_a_pod_that_ended_without_containers_has_the_clusters_message():
    pod = seen(reason="Evicted", message="The node was low on resource: memory.")
    assert (pod.reason, pod.ending, pod.message) == ("Evicted", "", "The node was low on resource: memory.")


def test_a_waiting_container_has_its_reason_and_no_end():
    pod = seen({"waiting": {"reason": "ErrImagePull", "message": "no such image"}}, phase="Pending")
    assert (pod.reason, pod.ending, pod.message) == ("ErrImagePull: no such image", "", "")


@pytest.mark.parametrize("signal", [-1, 0, 65, 2**31 - 1])
def test_what_is_no_signal_is_none(signal: int):
    assert seen(ended(signal=signal)).signal is None


def test_hostile_texts_are_cut_to_one_printable_line():
    pod = seen(ended(reason="R\x1b[2J" * 100, message="evil\n\u202e\x00" * 10_000))
    assert len(pod.ending) <= 60
    assert len(pod.message) <= 300
    assert pod.ending.isprintable()
    assert pod.message.isprintable()


def test_strangers_pods_say_nothing_of_their_end():
    pod = seen(ended(137, reason="OOMKilled", message="secret", signal=9), labels={})
    assert (pod.ending, pod.signal, pod.message) == ("", None, "")


RAN, WAITS = ended(0, reason="Completed"), {"waiting": {"reason": "PodInitializing"}}


def begun(
    *states: dict[str, Any], sidecars: int = 0, own: dict[str, Any] = WAITS, phase: str = "Failed", **status: Any
):
    """A pod of init steps and sidecars with these states."""
    steps = [{"image": "i"}] * (len(states) - sidecars) + [{"image": "s", "restartPolicy": "Always"}] * sidecars
    told = {
        "phase": phase,
        "containerStatuses": [{"state": own}],
        "initContainerStatuses": [{"state": state} for state in states],
        **status,
    }
    meta = {"name": "p", "namespace": "n", "uid": "u", "labels": OURS}
    pod = {"metadata": meta, "spec": {"containers": [{"image": "m"}], "initContainers": steps}, "status": told}
    return pod_seen(msgspec.json.decode(json.dumps(pod), type=Pod))


def test_a_failed_init_step_is_named_and_its_end_is_that_of_the_pod():
    end = ended(3, reason="Error", message="no such file", finishedAt="2026-01-01T10:00:00Z")
    pod = begun(RAN, end, WAITS)
    assert (pod.init_step, pod.exit_code, pod.ending, pod.message) == (2, 3, "Error", "no such file")
    assert pod.finished_at is not None


def test_only_a_step_that_ended_its_pod_has_failed():
    assert begun(RAN, ended(3), phase="Pending").init_step is None
    assert begun(RAN, ended(143), sidecars=1).init_step is None, "a sidecar was stopped"
    assert begun(RAN, own=ended(1)).init_step is None, "the program ran"
    assert begun(RAN, reason="Evicted").exit_code is None


def test_a_pod_ends_with_its_last_sidecar_and_the_exit_code_of_its_program():
    late = ended(143, finishedAt="2026-01-01T10:00:09Z")
    own = ended(0, finishedAt="2026-01-01T10:00:00Z")
    running = begun(RAN, {"running": {}}, sidecars=1, own=own, phase="Running")
    assert (running.exit_code, running.finished_at) == (None, None)
    over = begun(RAN, late, sidecars=1, own=own, phase="Succeeded")
    assert over.exit_code == 0
    assert over.finished_at is not None
    assert over.finished_at.second == 9
    lost = begun(RAN, {"waiting": {}}, sidecars=1, own=ended(1), phase="Failed")
    assert lost.exit_code == 1


def test_a_pod_says_which_init_step_runs_or_why_one_does_not():
    assert begun(RAN, {"running": {}}, WAITS, phase="Pending").reason == "Initializing: init step 2 of 3 runs"
    pull = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    assert begun(RAN, pull, phase="Pending").reason == "ImagePullBackOff: no such image"
    assert begun(RAN, RAN, phase="Pending").reason == "PodInitializing"


def test_what_init_steps_take_is_no_time_of_a_pull():
    ready = {"type": "PodReadyToStartContainers", "status": "True", "lastTransitionTime": "2026-01-01T10:00:00Z"}
    own = {"running": {"startedAt": "2026-01-01T11:00:00Z"}}
    assert begun(RAN, own=own, phase="Running", conditions=[ready]).pull_seconds is None
