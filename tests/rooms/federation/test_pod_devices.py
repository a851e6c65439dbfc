"""Which devices a pod had: what its claims say, in any order, of its own cluster, and for good."""

from uuid import uuid4

import pytest
from django.conf import settings
from django.db import IntegrityError, connection, transaction

from clusters.drivers import ClaimSeen, WatchEvent
from federation.engine.claimed import MOST_DEVICES
from federation.models import PodRun
from federation.observer.buffer import Buffer
from tests.builders import make_cluster
from tests.refusals import constraint_of

from .test_hostile_reports import make_attempt, pod_of, report

pytestmark = pytest.mark.django_db
DRIVER = "gpu.nvidia.com"
FIRST, SECOND = f"{DRIVER}/node-1/gpu-0", f"{DRIVER}/node-1/gpu-1"


def claim(pod: str, *devices: str, uid: str = "claim-1", install: str = "") -> ClaimSeen:
    labels = {"switchyard.dev/install": install or settings.INSTALL_ID}
    return ClaimSeen("swy-team-1", uid, uid, labels, tuple((DRIVER, "node-1", one) for one in devices), pod)


def devices_after(*events: WatchEvent) -> dict[str, list[str]]:
    buffer = Buffer(settings.INSTALL_ID)
    for event in events:
        buffer.add_claims(event)
    return {pod: list(devices) for pod, devices in buffer.take().devices.items()}


def test_the_devices_of_all_claims_of_a_pod_are_reported_also_if_these_are_gone():
    first, second = claim("u", "gpu-0"), claim("u", "gpu-1", uid="claim-2")
    assert devices_after(WatchEvent("listed", [first]), WatchEvent("changed", [second])) == {"u": [FIRST, SECOND]}
    assert devices_after(WatchEvent("changed", [first]), WatchEvent("deleted", [first])) == {"u": [FIRST]}
    assert devices_after(WatchEvent("changed", [first]), WatchEvent("listed", [])) == {"u": [FIRST]}


@pytest.mark.parametrize(
    "other",
    [
        claim("u", "gpu-0", install="another"),
        claim("", "gpu-0"),
        claim("u"),
        claim("u", "<script>"),
        ClaimSeen("default", "c", "c", {}, ((DRIVER, "n", "gpu-0"),), "u"),
    ],
)
def test_what_is_no_claim_of_ours_says_nothing(other):
    assert devices_after(WatchEvent("listed", [other]), WatchEvent("deleted", [other])) == {}


def test_each_report_of_a_pod_has_its_devices_while_its_claims_exist_and_nothing_is_kept_afterwards():
    buffer, pod = Buffer(settings.INSTALL_ID), pod_of(make_attempt())
    empty = buffer.weight
    held = claim(pod.uid, "gpu-0")
    buffer.add_claims(WatchEvent("changed", [held]))
    assert buffer
    assert buffer.weight > empty
    assert buffer.take().devices == {pod.uid: [FIRST]}  # before the pod itself: it is not recorded
    assert not buffer
    buffer.add_pods(WatchEvent("changed", [pod]))
    taken = buffer.take()
    assert taken.devices == {pod.uid: [FIRST]}
    buffer.give_back(taken)
    buffer.add_claims(WatchEvent("deleted", [held]))
    assert buffer.take().devices == {pod.uid: [FIRST]}
    buffer.add_pods(WatchEvent("deleted", [pod]))
    buffer.take()
    assert buffer.weight == empty
    assert buffer.take().devices == {}


def test_a_claim_that_is_reported_again_is_no_news():
    buffer = Buffer(settings.INSTALL_ID)
    for _ in range(2):
        buffer.add_claims(WatchEvent("listed", [claim("u", "gpu-0")]))
        assert bool(buffer.take().devices) is (_ == 0)


def test_devices_are_recorded_with_their_pod_and_only_become_more():
    attempt = make_attempt()
    pod = pod_of(attempt)
    report(attempt.cluster, devices={pod.uid: [FIRST]})
    assert not PodRun.objects.exists()
    report(attempt.cluster, pod, devices={pod.uid: [FIRST]})
    report(attempt.cluster, devices={pod.uid: [SECOND]})
    report(attempt.cluster, devices={pod.uid: [FIRST]})
    report(attempt.cluster, pod, devices={})
    assert PodRun.objects.get().devices == [FIRST, SECOND]
    report(attempt.cluster, devices={pod.uid: [f"{DRIVER}/node-1/more-{n}" for n in range(MOST_DEVICES)]})
    assert PodRun.objects.get().devices == [FIRST, SECOND]


def test_a_cluster_says_nothing_of_the_devices_of_anothers_pod():
    attempt = make_attempt()
    pod = pod_of(attempt)
    report(attempt.cluster, pod)
    report(make_cluster("acme", "hostile"), devices={pod.uid: [FIRST], str(uuid4()): [FIRST], "' OR 1=1": [FIRST]})
    assert PodRun.objects.get().devices == []


@pytest.mark.parametrize(
    ("statement", "constraint"),
    [
        ("UPDATE federation_podrun SET devices = '{}'", "a_pods_devices_stand"),
        ("UPDATE federation_podrun SET devices = '{b}'", "a_pods_devices_stand"),
        ("UPDATE federation_podrun SET devices[1] = 'b'", "a_pods_devices_stand"),
        (
            "UPDATE federation_podrun SET devices = devices || (SELECT array_agg(n::text) FROM generate_series(1, 200) AS n)::varchar[]",
            "a_pod_has_a_bounded_number_of_devices",
        ),
    ],
)
def test_what_a_pod_had_is_not_rewritten(statement, constraint):
    attempt = make_attempt()
    pod = pod_of(attempt)
    report(attempt.cluster, pod, devices={pod.uid: ["a"]})
    with pytest.raises(IntegrityError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    assert constraint_of(refused.value) == constraint
