"""Who steals a cluster's token creates and changes only Jobs as the gateway renders them: tried on a real API server."""

import contextlib
from typing import Any

import pytest

from . import attacks
from .attacks import DEVICES, JOBS, NEVER_VALID, POD, changed, folder, job, set_at
from .stolen import (
    APPLY,
    INVALID,
    JSON_PATCH,
    LABELLED,
    MERGE,
    OPEN,
    STRATEGIC,
    UNLABELLED,
)

pytestmark = pytest.mark.kube


@pytest.mark.parametrize("attack", sorted(set(JOBS) - {"raw devices"}))
def test_a_thief_creates_no_job_with(cluster, attack):
    told = cluster.refused("POST", folder("jobs"), set_at(job(), *JOBS[attack]))
    assert "switchyard-writes-only-jobs-as-it-renders-them" in told


@pytest.mark.parametrize("namespace", ["kube-system", "default", "switchyard-system", UNLABELLED, LABELLED, OPEN])
def test_a_thief_creates_no_job_outside_the_gateways_own_namespaces(cluster, namespace):
    made = changed(job(), "metadata/namespace", namespace)
    cluster.refused("POST", folder("jobs", namespace), made)
    cluster.refused("POST", folder("jobs", namespace), changed(made, "metadata/generateName", "thief-"))
    cluster.refused("PATCH", f"{folder('jobs', namespace)}/thief", made, APPLY)


@pytest.mark.parametrize("what", sorted(NEVER_VALID))
def test_nobody_creates_a_job_with(cluster, what):
    for http in (cluster.admin, cluster.thief):
        answer = http.post(folder("jobs"), params={"dryRun": "All"}, json=NEVER_VALID[what])
        assert answer.status_code == INVALID, answer.text


@pytest.mark.parametrize("name", DEVICES)
def test_a_device_of_any_flavor_is_let_in(cluster, name):
    answer = cluster.thief.post(folder("jobs"), params={"dryRun": "All"}, json=DEVICES[name])
    assert answer.status_code == 201, answer.text


def test_a_job_as_the_gateway_writes_it_is_let_in(cluster):
    assert cluster.attempt("POST", folder("jobs"), job("fair")).status_code == 201
    sidecar = attacks.beside("4Gi", name="logs", restartPolicy="Always", resources=attacks.bounded("4Gi", cpu="9"))
    fair = changed(job("fair-steps"), f"{POD}/initContainers", [*attacks.beside(), *sidecar])
    assert cluster.attempt("POST", folder("jobs"), fair).status_code == 201


TEMPLATE: dict[str, dict[str, Any]] = {
    "node selectors": {"spec": {"nodeSelector": {"node-role.kubernetes.io/control-plane": ""}}},
    "tolerations": {"spec": {"tolerations": [{"operator": "Exists"}]}},
    "annotations": {"metadata": {"annotations": {"cdi.k8s.io/thief": "nvidia.com/gpu=all"}}},
    "labels": {"metadata": {"labels": {"azure.workload.identity/use": "true"}}},
    "gates": {"spec": {"schedulingGates": [{"name": "example.com/x"}]}},
}


@pytest.mark.parametrize("is_released", [False, True])
@pytest.mark.parametrize("what", TEMPLATE)
def test_a_thief_slips_nothing_into_the_template_of_a_suspended_job(cluster, what, is_released):
    name = f"later-{what.replace(' ', '-')}-{is_released}".lower()
    assert cluster.attempt("POST", folder("jobs"), job(name)).status_code == 201
    path = f"{folder('jobs')}/{name}"
    patch = {"spec": {"template": TEMPLATE[what], **({"suspend": False} if is_released else {})}}
    for kind in (MERGE, STRATEGIC):
        cluster.refused("PATCH", path, patch, kind)
    whole = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, **patch}
    cluster.refused("PATCH", path, whole, APPLY, force="true")
    [(part, value)] = TEMPLATE[what].items()
    [(field, inside)] = value.items()
    steps = [{"op": "add", "path": f"/spec/template/{part}/{field}", "value": inside}]
    if what != "labels":
        cluster.refused("PATCH", path, steps, JSON_PATCH)


@pytest.mark.parametrize(
    "patch",
    [
        {"metadata": {"labels": {"switchyard.dev/attempt": None}}},
        {"metadata": {"labels": {"switchyard.dev/tenant": "another"}}},
        {"metadata": {"annotations": {"example.com/x": "y"}}},
        {"metadata": {"finalizers": ["example.com/never"]}},
        {"spec": {"parallelism": 10_001}},
        {"spec": {"activeDeadlineSeconds": 10**8}},
        {"spec": {"ttlSecondsAfterFinished": 0}},
    ],
    ids=str,
)
def test_a_thief_changes_no_job_in_any_way_that_the_gateway_does_not(cluster, patch):
    with contextlib.suppress(AssertionError):
        cluster.attempt("POST", folder("jobs"), job("standing"))
    cluster.refused("PATCH", f"{folder('jobs')}/standing", patch, MERGE)


def test_a_thief_touches_no_job_of_others_even_in_the_gateways_namespaces(cluster):
    foreign = changed(job("foreign"), "metadata/labels", {"app": "backup"})
    cluster.admin.post(folder("jobs"), json=foreign).raise_for_status()
    path = f"{folder('jobs')}/foreign"
    cluster.refused("PATCH", path, {"spec": {"suspend": False}}, MERGE)
    cluster.refused("PATCH", path, {"metadata": {"labels": job()["metadata"]["labels"]}}, MERGE)
    cluster.refused("DELETE", path, None)
    assert cluster.admin.get(path).json()["spec"]["suspend"] is True
