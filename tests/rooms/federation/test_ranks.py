"""Gangs over several racks: pods that are neighbours by index stand in one rack, whatever happens on the way there."""

from collections.abc import Callable

import pytest

from clusters.drivers import Ambiguous, Refused
from clusters.drivers.simulated import SimulatedDriver
from clusters.engine.permissions import Right
from clusters.models import Cluster
from federation import operations
from federation.models import Attempt, Job, PodRun
from tests.builders import submit
from tests.live import gpu_job, observe_until, simulated_cluster

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def racks(home) -> Cluster:
    """Two racks of three nodes with eight GPUs each."""
    return simulated_cluster("east", 6, zone="z", block="b1", rack="r{rack}", nodes_per_rack=3)


def gang(count: int, **fields) -> dict:
    return gpu_job("wide", count=count, seconds=600, **fields)


def placed(submitter, spec) -> Attempt:
    job = submit(submitter, spec)
    operations.run_scheduling_cycle()
    return Attempt.objects.get(job=job)


def dispatch_until(done: Callable[[], bool]) -> None:
    """Dispatches and observes, without waiting for the next visit's time."""

    def step() -> bool:
        Attempt.objects.filter(next_action_at__isnull=False).update(next_action_at="2026-01-01T00:00:00Z")
        operations.dispatch_attempts()
        return done()

    observe_until(step)


def racks_by_index(attempt: Attempt) -> list[str]:
    """The rack of each pod, in the order of their indices."""
    name = attempt.remote_objects.get().name
    nodes = {int(pod.name.removeprefix(f"{name}-").split("-")[0]): pod.node for pod in attempt.pods.all()}
    numbers = [int(nodes[index].rsplit("-", 1)[1]) for index in sorted(nodes)]
    return [f"r{number // 3}" for number in numbers]


def all_stand(attempt: Attempt, count: int) -> bool:
    return PodRun.objects.filter(attempt=attempt).exclude(node="").count() == count


def manifests(monkeypatch) -> list[dict]:
    """What is created from now on."""
    made, create = [], SimulatedDriver.create_job

    async def remember(self, manifest):
        made.append(manifest)
        return await create(self, manifest)

    monkeypatch.setattr(SimulatedDriver, "create_job", remember)
    return made


def is_gated(manifest: dict) -> bool:
    return "schedulingGates" in manifest["spec"]["template"]["spec"]


def test_neighbours_by_index_share_a_rack(racks, submitter):
    attempt = placed(submitter, gang(5))
    first, second = attempt.remote_objects.get().stretches
    assert [len(first["nodes"]), len(second["nodes"])] == [3, 2]
    dispatch_until(lambda: all_stand(attempt, 5))
    assert racks_by_index(attempt) == ["r0"] * 3 + ["r1"] * 2
    attempt.refresh_from_db()
    assert (attempt.next_action_at, attempt.claim_expires_at) == (None, None)


def test_several_pods_a_node_stand_by_index_too(racks, submitter):
    attempt = placed(submitter, gang(10, gpus=4))
    dispatch_until(lambda: all_stand(attempt, 10))
    assert racks_by_index(attempt) == ["r0"] * 6 + ["r1"] * 4


@pytest.mark.parametrize("spec", [gang(3), gang(1), gang(4) | {"completions": 6}])
def test_what_one_rack_holds_and_what_comes_one_after_another_is_never_gated(racks, submitter, monkeypatch, spec):
    made = manifests(monkeypatch)
    attempt = placed(submitter, spec)
    assert attempt.remote_objects.get().stretches == []
    operations.dispatch_attempts()
    attempt.refresh_from_db()
    assert not any(map(is_gated, made))
    assert attempt.released_at is not None
    assert attempt.next_action_at is None


@pytest.mark.parametrize("after", [0, 1, 4])
def test_a_worker_that_dies_between_two_pods_is_carried_on_from(racks, submitter, monkeypatch, after):
    attempt = placed(submitter, gang(5))
    open_gate, left = SimulatedDriver.open_gate, [after]

    async def die(self, *arguments):
        left[0] -= 1
        if left[0] < 0:
            raise SystemError
        await open_gate(self, *arguments)

    operations.dispatch_attempts()
    Attempt.objects.update(next_action_at="2026-01-01T00:00:00Z")
    with monkeypatch.context() as patch:
        patch.setattr(SimulatedDriver, "open_gate", die)
        patch.setattr("federation.operations.calls.AT_ONCE", 1)
        operations.dispatch_attempts()
    assert left[0] < 0
    Attempt.objects.update(claim_expires_at="2026-01-01T00:00:00Z")
    dispatch_until(lambda: all_stand(attempt, 5))
    assert racks_by_index(attempt) == ["r0"] * 3 + ["r1"] * 2


def test_a_reply_that_is_lost_changes_nothing(racks, submitter, monkeypatch):
    attempt = placed(submitter, gang(5))
    open_gate, lost = SimulatedDriver.open_gate, [3]

    async def lose(self, *arguments):
        await open_gate(self, *arguments)
        lost[0] -= 1
        if lost[0] >= 0:
            raise Ambiguous("cut")

    monkeypatch.setattr(SimulatedDriver, "open_gate", lose)
    dispatch_until(lambda: all_stand(attempt, 5))
    assert racks_by_index(attempt) == ["r0"] * 3 + ["r1"] * 2


def test_a_cluster_that_refuses_the_wishes_gets_the_pods_without(racks, submitter, monkeypatch):
    attempt = placed(submitter, gang(5))
    open_gate = SimulatedDriver.open_gate

    async def refuse(self, namespace, pod, uid, gate, wishes=()):
        if wishes:
            raise Refused("spec: Forbidden: not your affinity", status=422)
        await open_gate(self, namespace, pod, uid, gate)

    monkeypatch.setattr(SimulatedDriver, "open_gate", refuse)
    dispatch_until(lambda: all_stand(attempt, 5))


def test_a_cluster_that_opens_no_gate_gives_the_job_back(racks, submitter, monkeypatch):
    attempt = placed(submitter, gang(5))

    async def refuse(self, *arguments):
        raise Refused("spec: Forbidden: no", status=422)

    monkeypatch.setattr(SimulatedDriver, "open_gate", refuse)
    dispatch_until(lambda: Attempt.objects.filter(id=attempt.id, finished_at__isnull=False).exists())
    attempt.refresh_from_db()
    assert (attempt.state, attempt.end_reason) == ("preempted", "refused_by_cluster")
    assert Job.objects.get(id=attempt.job_id).state == "queued"


def test_where_the_right_to_patch_pods_is_missing_there_is_no_gate(racks, submitter, monkeypatch):
    made, asked = manifests(monkeypatch), []

    async def may(self, right, namespace=""):
        asked.append((right, namespace))
        return False

    monkeypatch.setattr(SimulatedDriver, "may", may)
    attempt = placed(submitter, gang(5))
    dispatch_until(lambda: all_stand(attempt, 5))
    assert asked == [(Right("", "pods", "patch"), attempt.namespace)]
    assert not any(map(is_gated, made))
    attempt.refresh_from_db()
    assert attempt.next_action_at is None


def test_kueue_orders_the_pods_itself(racks, submitter, monkeypatch):
    made = manifests(monkeypatch)
    Cluster.objects.update(has_kueue=True)
    attempt = placed(submitter, gang(5))
    dispatch_until(lambda: all_stand(attempt, 5))
    assert not any(map(is_gated, made))


def test_a_gang_that_still_waits_at_its_gates_can_be_cancelled(racks, submitter, monkeypatch):
    attempt = placed(submitter, gang(5))
    operations.dispatch_attempts()
    operations.request_cancellation(submitter, attempt.job_id)
    dispatch_until(lambda: Job.objects.filter(id=attempt.job_id, state="cancelled").exists())
    assert not PodRun.objects.exclude(node="").exists()
