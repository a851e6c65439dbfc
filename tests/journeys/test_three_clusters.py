"""Three hundred jobs through the HTTP API onto three real control planes, judged by the API servers' own audit logs."""

import random

import pytest

from devtools.localfleet import ControlPlane
from devtools.oracle import read_witness
from devtools.trial import Gateway
from tests.journeys.workload import TEAM, Run, job, kinds, wait_for

pytestmark = [pytest.mark.kube, pytest.mark.processes, pytest.mark.timeout(900)]
JOBS = 300
GANG = {"count": 8, "models": ["H100-80GB"]}


def test_three_hundred_jobs_each_run_once_where_the_gateway_says(gateway: Gateway, planes: list[ControlPlane]):
    run = Run(gateway)
    specs = kinds()
    for _ in range(3):
        run.submit(job("gang", count=8, gpu=GANG, seconds=2), "gang")
    drawn = random.Random(7).choices(list(specs), weights=[5, 4, 2, 5, 3, 2, 8, 1, 1], k=JOBS - 5)
    for kind in drawn:
        run.submit(specs[kind], kind)
    doomed = [run.submit(job("cancelled", gpu={"count": 1}, seconds=900), "cancelled") for _ in range(2)]
    for job_id in doomed:
        wait_for(lambda job_id=job_id: gateway.get(f"/jobs/{job_id}")["state"] == "running", "a job to cancel runs")
        gateway.create(f"/jobs/{job_id}/cancel", {})
    run.wait_until_all_ended()
    run.wait_until_settled()

    expected = {"failing": "failed", "cancelled": "cancelled"}
    assert run.states() == {job_id: expected.get(kind, "succeeded") for job_id, kind in run.acked.items()}
    failing = next(job_id for job_id, kind in run.acked.items() if kind == "failing")
    assert gateway.get(f"/jobs/{failing}")["exit_code"] == 7
    verdict = run.verdict(read_witness({plane.name: plane.layout.audit_log for plane in planes}))
    assert verdict.is_clean, verdict
    assert gateway.manage("prove_ledger") is not None
    assert gateway.manage("verify_audit") is not None


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        (job("giant", gpu={"count": 64}), "never_fits"),
        (job("nowhere", gpu={"count": 1, "models": ["H100-80GB"]}, constraints={"regions": ["eu-*"]}), "never_fits"),
        (job("absent", gpu={"count": 1, "models": ["B300-288GB"]}), "never_fits"),
    ],
)
def test_what_no_cluster_could_ever_run_is_refused_with_reasons(gateway: Gateway, spec, code):
    answer = gateway.request("POST", "/jobs", json=spec)
    assert (answer.status_code, answer.json()["code"]) == (422, code)
    assert {error["field"] for error in answer.json()["errors"]} >= {"clusters.east", "clusters.west", "clusters.north"}


def test_what_no_quota_could_ever_hold_is_refused_and_what_is_over_it_now_waits(gateway: Gateway):
    limit = {"tenant": TEAM, "resource": "gpu:MI300X", "clusters": [], "nominal": "2"}
    assert gateway.request("PUT", "/quotas", json=limit).status_code in (200, 201)
    asked = {"count": 3, "models": ["MI300X"]}
    answer = gateway.request("POST", "/jobs", json=job("greedy", gpu=asked))
    assert (answer.status_code, answer.json()["code"]) == (422, "quota_exceeded_for_good")

    run = Run(gateway)
    two = {"count": 2, "models": ["MI300X"]}
    run.submit(job("first", gpu=two, seconds=6))
    second = run.submit(job("second", gpu=two, seconds=1))
    wait_for(
        lambda: gateway.get(f"/jobs/{second}")["reason"]["code"] == "waiting_for_quota", "the second waits for quota"
    )
    run.wait_until_all_ended()
    assert set(run.states().values()) == {"succeeded"}
