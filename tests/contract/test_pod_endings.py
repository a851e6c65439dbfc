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
