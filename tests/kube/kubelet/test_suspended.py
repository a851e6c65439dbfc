"""What the Job controller makes of a Job that is suspended while it runs, as Kueue suspends Jobs. The simulated clusters of
`devtools.simulation` do the same.
"""

import pytest

from tests.kube.running_pods import PODS, create, wait_for

pytestmark = [pytest.mark.kube, pytest.mark.long]  # it says what Kubernetes does, and nothing of the gateway
JOBS = "/apis/batch/v1/namespaces/runs/jobs"
KEPT = "tests.switchyard.dev/kept"
"""A finalizer of ours: the pod stays until the test has looked at it."""
FAIL_JOB = [
    {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [0]}},
]


def suspend(http, *, is_suspended):
    patch = {"spec": {"suspend": is_suspended}}
    http.patch(f"{JOBS}/kq", json=patch, headers={"Content-Type": "application/merge-patch+json"}).raise_for_status()


def pods_of(http):
    return http.get(PODS, params={"labelSelector": "job-name=kq"}).json()["items"]


def finalize(http, pod, finalizers):
    patch = {"metadata": {"finalizers": finalizers}}
    headers = {"Content-Type": "application/merge-patch+json"}
    http.patch(f"{PODS}/{name_of(pod)}", json=patch, headers=headers).raise_for_status()


def running(http, *besides):
    """The pod that runs, if it is none of these."""
    return next(
        (one for one in pods_of(http) if one["status"]["phase"] == "Running" and name_of(one) not in besides), None
    )


def name_of(pod):
    return pod["metadata"]["name"]


def test_a_job_does_not_count_the_pods_that_its_suspension_stops(http):
    main = {
        "name": "main",
        "image": "python",
        "command": ["sh", "-c", "trap 'exit 143' TERM; while :; do sleep 0.05; done"],
    }
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 9, "containers": [main]}
    job = {"backoffLimit": 0, "completionMode": "Indexed", "completions": 1, "podReplacementPolicy": "Failed"}
    job |= {"podFailurePolicy": {"rules": FAIL_JOB}, "template": {"spec": spec}}
    create(http, {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "kq"}, "spec": job}, where=JOBS)
    first = wait_for(lambda: running(http), "its pod runs")
    finalize(http, first, [*first["metadata"]["finalizers"], KEPT])
    suspend(http, is_suspended=True)
    stopped = wait_for(lambda: [one for one in pods_of(http) if one["metadata"].get("deletionTimestamp")], "its end")[0]
    assert stopped["metadata"]["finalizers"] == [KEPT], "the controller has let it go"
    assert not [one for one in stopped["status"]["conditions"] if one["type"] == "DisruptionTarget"]
    finalize(http, stopped, [])
    suspend(http, is_suspended=False)
    wait_for(lambda: running(http, name_of(first)), "another pod runs")
    status = http.get(f"{JOBS}/kq").json()["status"]
    assert "failed" not in status
    assert {one["type"]: one["status"] for one in status["conditions"]} == {"Suspended": "False"}
    http.delete(f"{JOBS}/kq", params={"propagationPolicy": "Background"}).raise_for_status()
