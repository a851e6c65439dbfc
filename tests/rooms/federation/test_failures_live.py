"""Failures on a simulated cluster, from the pod to the next attempt: observed, diagnosed, cleared away and placed again."""

from datetime import timedelta

import pytest

from clusters.drivers.simulated import disrupt_pod, write_log
from clusters.drivers.simulated.store import Store
from clusters.models import Node
from federation import operations
from federation.models import Attempt, Diagnosis, Job, PodRun
from foundation.clock import now
from tests.builders import submit
from tests.live import every_visit, gpu_job, observe_until

pytestmark = pytest.mark.django_db(transaction=True)


def wanted(rules: list, *, seconds: str = "1", exit_code: int = 0, **labels: str) -> dict:
    body = gpu_job(gpus=1, exit_code=exit_code)
    named = {f"sim.switchyard.dev/{name}": value for name, value in labels.items()}
    body["labels"] |= named | {"sim.switchyard.dev/run-seconds": seconds}
    return {**body, "failure_rules": rules}


def diagnosed(job: Job) -> Diagnosis:
    observe_until(lambda: Diagnosis.objects.filter(attempt__job=job, judged_at__isnull=False).exists())
    return Diagnosis.objects.filter(attempt__job=job).order_by("attempt__number")[0]


def running(job: Job) -> PodRun:
    observe_until(lambda: PodRun.objects.filter(attempt__job=job, phase="Running").exists())
    return PodRun.objects.get(attempt__job=job)


def path(home):
    return home / "simulated" / "east.sqlite3"


def test_a_program_that_used_too_much_memory_gets_more_until_it_has_enough_or_its_retries(cluster, submitter):
    rule = {"name": "oom", "when": {"seen": ["out_of_memory"]}, "then": "more_memory", "retries": 1}
    job = submit(submitter, wanted([rule], exit_code=137, ending="OOMKilled"))
    observe_until(lambda: Job.objects.filter(id=job.id, state="failed").exists())
    first, second = Diagnosis.objects.filter(attempt__job=job).order_by("attempt__number")
    assert (first.failure_class, first.step) == ("out_of_memory", "more_memory")
    assert "(pod" in first.text
    assert "limit 32Gi" in first.text
    assert "limit 64Gi" in second.text
    assert (second.step, second.next_step) == ("stop", "The job is not retried: 1 of 1 retries are used.")
    sizes = Attempt.objects.filter(job=job).order_by("number").values_list("remote_objects__memory_mib", flat=True)
    assert list(sizes) == [32 * 1024, 64 * 1024]


def test_an_evicted_pod_moves_its_job_after_its_objects_are_gone(home, cluster, submitter):
    rule = {"name": "node", "when": {"seen": ["evicted"]}, "then": "again_elsewhere", "class": "node"}
    job = submit(submitter, wanted([rule], seconds="600"))
    pod = running(job)
    disrupt_pod(path(home), pod.attempt.namespace, pod.name, "TerminationByKubelet", at=now(), reason="Evicted")
    found = diagnosed(job)
    assert (found.failure_class, found.node, found.avoid) == ("node", pod.node, "node")
    observe_until(lambda: PodRun.objects.filter(attempt__job=job, attempt__number=2, phase="Running").exists())
    assert PodRun.objects.get(attempt__job=job, attempt__number=2).node != pod.node
    first, second = Attempt.objects.filter(job=job).order_by("number")
    assert first.finished_at <= second.reserved_at


def test_a_rule_over_the_log_reads_it_from_the_cluster(home, cluster, submitter):
    rule = {"name": "xid", "when": {"log": ["@gpu_xid"]}, "class": "device", "then": "stop", "text": "The GPU failed"}
    job = submit(submitter, wanted([rule], seconds="2", exit_code=1))
    pod = running(job)
    write_log(path(home), pod.attempt.namespace, pod.name, "ok\nNVRM: Xid (PCI:0000:3b:00): 79\n", signal=6)
    found = diagnosed(job)
    assert (found.failure_class, found.step) == ("device", "stop")
    assert found.text.startswith("The GPU failed (pod")
    assert "signal 6" in found.text
    assert "its log has @gpu_xid" in found.text


def test_a_tainted_node_says_that_its_device_failed(home, cluster, submitter):
    job = submit(submitter, wanted([], seconds="3", exit_code=1))
    pod = running(job)
    store = Store(path(home))
    with store.write():
        node = next(node for node in store.nodes() if node.name == pod.node)
        node.taints = [{"key": "gpu-ecc", "value": "1", "effect": "PreferNoSchedule"}]
        store.put(node)
    store.close()
    observe_until(lambda: Node.objects.filter(name=pod.node).exclude(taints=[]).exists())
    assert diagnosed(job).failure_class == "device"


def test_an_image_that_cannot_be_had_stops_the_job_at_once_if_a_rule_says_so(cluster, submitter, monkeypatch):
    monkeypatch.setattr("federation.operations.continuity.PATIENCE", timedelta(0))
    rule = {"name": "image", "when": {"seen": ["image"]}, "then": "stop", "text": "Push the image first"}
    job = submit(submitter, wanted([rule], waiting="ErrImagePull"))
    observe_until(lambda: PodRun.objects.filter(attempt__job=job, reason="ErrImagePull").exists())
    operations.sweep()
    every_visit(Attempt.objects.get(job=job), 3)
    job.refresh_from_db()
    assert (job.state, job.reason_code) == ("failed", "cannot_start")
    found = Diagnosis.objects.get(attempt__job=job)
    assert (found.failure_class, found.text.partition(" (")[0]) == ("image", "Push the image first")


def test_a_drain_in_the_back_off_changes_nothing_and_the_retry_starts_when_it_is_time(cluster, submitter):
    rule = {"name": "x", "then": "again", "retries": 1, "backoff": {"seconds": 3600}}
    job = submit(submitter, wanted([rule], exit_code=3))
    observe_until(lambda: Job.objects.filter(id=job.id, state="queued", attempts_made=1).exists())
    cluster.wish = "draining"
    cluster.save()
    operations.sweep()
    operations.run_scheduling_cycle()
    cluster.wish = "open"
    cluster.save()
    operations.run_scheduling_cycle()
    assert Attempt.objects.filter(job=job).count() == 1
    job.refresh_from_db()
    assert job.reason_code == "attempt_returned"
    Job.objects.filter(id=job.id).update(retry_at=now())
    observe_until(lambda: Job.objects.filter(id=job.id, state="failed").exists())
    assert Attempt.objects.filter(job=job).count() == 2
