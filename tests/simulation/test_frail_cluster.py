"""In a healed world, no pod keeps a node's devices for ever because its image could not be pulled once."""

import heapq
import random
from itertools import count, pairwise

import pytest

from clusters.drivers import Stale
from devtools.simulation.clusters.objects import GPU, Node
from devtools.simulation.core.scheduler import MICROSECONDS

ANNOTATIONS = {"sim.switchyard.dev/run-seconds": "9", "sim.switchyard.dev/exit-code": "0"}


class Timer:
    """Simulated time without actors."""

    def __init__(self):
        self.now_us = 0
        self._order = count()
        self._due = []

    def at(self, when_us, act):
        heapq.heappush(self._due, (when_us, next(self._order), act))

    def run_for(self, seconds):
        until_us = self.now_us + round(seconds * MICROSECONDS)
        while self._due and self._due[0][0] <= until_us:
            self.now_us, _, act = heapq.heappop(self._due)
            act()
        self.now_us = until_us


def job(name, gpus):
    container = {"name": "main", "resources": {"requests": {GPU: str(gpus)}}}
    template = {"metadata": {"annotations": ANNOTATIONS}, "spec": {"containers": [container]}}
    return {"metadata": {"namespace": "default", "name": name}, "spec": {"template": template}}


def cluster_without_images(timer):
    # Django must be set up before the gateway's names are imported, so this is not at the top.
    from devtools.simulation.clusters.frail_cluster import FrailCluster  # noqa: PLC0415

    cluster = FrailCluster("east", "identity", [Node("east-0", "uid-0", gpus=4)], timer, random.Random(1))
    cluster.image_fails = 1.0
    return cluster


def test_a_job_that_passes_its_deadline_fails_although_its_program_ends_well_while_it_is_stopped():
    """As in Kubernetes: its controller stops the pods, and the Job fails whatever their exit codes are."""
    for seed in range(30):
        timer = Timer()
        cluster = cluster_without_images(timer)
        cluster.image_fails = 0.0
        cluster._chance = random.Random(seed)
        manifest = job("late", gpus=1)
        manifest["metadata"]["labels"] = {"switchyard.dev/attempt": "one"}
        manifest["spec"]["activeDeadlineSeconds"] = 6
        cluster.create_job(manifest)
        timer.run_for(120)
        (late,) = cluster.jobs.values()
        assert (late.outcome, late.reason) == ("failed", "DeadlineExceeded")
        assert cluster.overdue == {"one"}
        if [run.code for run in cluster.runs] == [0]:
            return
    raise AssertionError("no program ended well in the time that it had to stop")


def phases(cluster):
    return {pod.name.rpartition("-0-")[0]: pod.phase for pod in cluster.pods.values()}


def test_a_pod_whose_image_is_missing_keeps_its_devices_and_runs_when_images_are_mended():
    timer = Timer()
    cluster = cluster_without_images(timer)
    cluster.create_job(job("stranger", gpus=1))
    timer.run_for(60)
    cluster.create_job(job("whole-node", gpus=4))
    timer.run_for(600)
    assert phases(cluster) == {"stranger": "Pending", "whole-node": "Pending"}
    assert [pod.node for pod in cluster.pods.values()] == ["east-0", ""]

    cluster.hurry()
    cluster.mend()
    timer.run_for(600)

    assert phases(cluster) == {"stranger": "Succeeded", "whole-node": "Succeeded"}
    assert len(cluster.runs) == 2


def test_a_pod_that_was_given_up_before_its_image_is_tried_again_never_runs():
    timer = Timer()
    cluster = cluster_without_images(timer)
    uid = cluster.create_job(job("stranger", gpus=1))
    timer.run_for(60)

    cluster.mend()
    cluster.delete_job("default", "stranger", uid)
    timer.run_for(600)

    assert cluster.runs == []
    assert cluster.jobs == {}


def test_a_pod_on_a_dead_node_is_given_up_although_its_control_plane_is_put_back_in_between():
    timer = Timer()
    cluster = cluster_without_images(timer)
    cluster.image_fails = 0.0
    cluster.create_job(job("left", gpus=1))
    timer.run_for(6)
    backup = cluster.snapshot()
    cluster.kill_node("east-0")
    cluster.restore(backup)
    (pod,) = cluster.pods.values()
    assert not pod.is_ended
    timer.run_for(41)
    assert pod.phase == "Failed"
    assert not cluster.unstarted


def test_a_pod_that_ends_before_it_starts_is_noted_from_the_beginning_of_its_job():
    timer = Timer()
    cluster = cluster_without_images(timer)
    cluster.create_job(job("never", gpus=2))
    timer.run_for(6)
    (pod,) = cluster.pods.values()
    cluster.evict(pod, "EvictionByEvictionAPI")
    timer.run_for(9)
    assert not cluster.runs
    (run,) = cluster.unstarted
    assert (run.pod_uid, run.from_us, run.gpus) == (pod.uid, 0, 2)
    assert 6 * MICROSECONDS <= run.to_us < 7 * MICROSECONDS


def test_only_a_pod_of_our_own_job_starts_without_a_secret_that_the_gateway_owes_it():
    """A stranger's copy of a Job names Secrets that the gateway may never have come to create."""
    manifest = job("own", gpus=1)
    manifest["spec"]["template"]["metadata"]["labels"] = {"switchyard.dev/attempt": "one"}
    manifest["spec"]["template"]["spec"]["imagePullSecrets"] = [{"name": "registry"}]
    for is_copy in (False, True):
        timer = Timer()
        cluster = cluster_without_images(timer)
        cluster.image_fails = 0.0
        uid = cluster.create_job(manifest)
        if is_copy:
            cluster.copies.add(uid)
        timer.run_for(60)
        assert cluster.runs
        assert cluster.unsupplied == (set() if is_copy else {"one"})


def test_what_others_delete_in_the_background_outlives_its_job_for_a_while():
    outlived = 0
    for seed in range(20):
        timer = Timer()
        cluster = cluster_without_images(timer)
        cluster.image_fails = 0.0
        cluster._chance = random.Random(seed)
        manifest = job("long", gpus=1)
        manifest["spec"]["template"]["metadata"]["annotations"] = ANNOTATIONS | {
            "sim.switchyard.dev/run-seconds": "500"
        }
        cluster.create_job(manifest)
        timer.run_for(10)
        (one,) = cluster.jobs.values()
        cluster.delete_in_background(one)
        assert cluster.jobs == {}
        assert len(cluster.running) == 1, "its pod still runs"
        timer.run_for(5)
        outlived += len(cluster.running)
        timer.run_for(40)
        assert not cluster.running
        assert not cluster.pods
    assert outlived, "no program took its time to stop"


@pytest.mark.parametrize("returns_after", [0.05, 1.0, 60.0])
def test_what_a_suspended_job_ran_does_not_make_it_fail(returns_after):
    """As in Kubernetes: its controller lets the pods go before it deletes them, so it does not count how they end. The pod that
    follows starts when they have ended. Kueue resumes the Job; a release that the gateway repeats does not.
    """
    for seed in range(6):
        timer = Timer()
        cluster = cluster_without_images(timer)
        cluster.image_fails = 0.0
        cluster._chance = random.Random(seed)
        cluster.create_job(job("reclaimed", gpus=1))
        timer.run_for(8)
        (reclaimed,) = cluster.jobs.values()
        cluster.suspend(reclaimed)
        timer.run_for(returns_after)
        if seed % 2:
            with pytest.raises(Stale):
                cluster.release_job("default", "reclaimed", reclaimed.uid, {})
        assert reclaimed.suspended
        cluster.resume(reclaimed.key)
        timer.run_for(120)
        assert (reclaimed.outcome, reclaimed.failed) == ("succeeded", 0)
        assert [run.code for run in cluster.runs][-1] == 0
        assert all(first.to_us <= second.from_us for first, second in pairwise(cluster.runs))


def test_what_failed_before_its_job_was_suspended_makes_it_fail():
    timer = Timer()
    cluster = cluster_without_images(timer)
    cluster.image_fails = 0.0
    cluster.create_job(job("evicted", gpus=1))
    timer.run_for(8)
    (evicted,) = cluster.jobs.values()
    (pod,) = cluster.pods.values()
    cluster.evict(pod, "EvictionByEvictionAPI")
    cluster.suspend(evicted)
    timer.run_for(60)
    cluster.resume(evicted.key)
    timer.run_for(60)
    assert (evicted.outcome, "DisruptionTarget" in evicted.message) == ("failed", True)
