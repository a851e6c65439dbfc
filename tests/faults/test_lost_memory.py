"""Clusters and databases that are put back to an earlier state: nothing ends, and nothing runs again, for what they forgot."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from devtools.localfleet import start_fleet, stop_fleet
from devtools.localfleet.admin import apply_file, mint_token
from devtools.oracle import read_witness
from devtools.scratch import scratch_folder
from devtools.trial import ACCESS_MANIFEST, Gateway
from tests.faults.databases import Databases
from tests.faults.proxy import LyingProxy
from tests.faults.rebuilding import build_anew, put_back, remember
from tests.faults.stand import FaultRun, Stand, left_of, start_behind
from tests.faults.test_clusters_fail import attempts_on
from tests.journeys.workload import job, wait_for

pytestmark = [pytest.mark.kube, pytest.mark.processes, pytest.mark.timeout(900)]
LONG_SECONDS = 900
LOOKED_SECONDS = 45
"""Longer than it takes until a cluster was watched, listed and compared again."""
MANY = 8


@pytest.fixture(scope="module")
def doomed() -> Iterator[Stand]:
    """A gateway and clusters of its own: what is done to them is not put right."""
    root = scratch_folder("doomed")
    (root / "flags").mkdir()
    planes = start_fleet(["east", "west"], root / "fleet", audit=True)
    proxies = {plane.name: LyingProxy(plane) for plane in planes}
    databases = Databases(root / "databases")
    try:
        stand = start_behind(root / "home", planes, proxies, databases, root / "flags", root / "skews.json")
        yield stand
        stand.gateway.stop(quickly=True)
    finally:
        for proxy in proxies.values():
            proxy.close()
        databases.close()
        stop_fleet(planes)
        shutil.rmtree(root, ignore_errors=True)


def long_ones(run: FaultRun, name: str, cluster: str, *ends: str) -> list[str]:
    """Jobs that run there until they are stopped."""
    specs = [job(f"{name}-{n}", seconds=LONG_SECONDS, constraints={"clusters": [cluster]}) for n in range(MANY)]
    ids = [run.submit_that_may_end(spec, *ends) for spec in specs]
    wait_for(lambda: {run.states()[job_id] for job_id in ids} == {"running"}, "all run")
    return ids


def still_there(stand: Stand, ids: list[str], cluster: str) -> bool:
    """None has ended and none has another attempt."""
    found = [attempts_on(stand.gateway, job_id) for job_id in ids]
    return all(len(each) == 1 and each[0] in {(cluster, "running"), (cluster, "unknown")} for each in found)


@contextmanager
def everything_frozen(gateway: Gateway) -> Iterator[None]:
    """As if every process were stopped: what they were about to do comes after all that is done meanwhile."""
    frozen = [process for role in ("web", "worker", "beat", "observer") for process in gateway.processes(role)]
    for process in frozen:
        process.suspend()
    try:
        yield
    finally:
        for process in frozen:
            process.resume()


def standing(stand: Stand) -> str:
    """What the operator reads."""
    return stand.gateway.manage("standstill", "status")


def runs_twice(stand: Stand, run: FaultRun) -> list[str]:
    witness = read_witness({plane.name: plane.layout.audit_log for plane in stand.planes})
    return run.verdict(witness).ran_twice


@pytest.mark.long
def test_a_control_plane_put_back_to_an_earlier_state_ends_no_job(doomed: Stand):
    run, plane = FaultRun(doomed.gateway), doomed.plane("east")
    then = remember(plane)
    ids = long_ones(run, "forgotten", "east", "cancelled")
    put_back(plane, then)
    wait_for(lambda: doomed.findings_of("east") == ["too_many_vanished"], "it answers, and lacks what it forgot")
    time.sleep(LOOKED_SECONDS)
    assert still_there(doomed, ids, "east")
    assert (doomed.state_of("east"), doomed.findings_of("east")) == ("degraded", ["too_many_vanished"])
    for job_id in ids:
        doomed.gateway.request("POST", f"/jobs/{job_id}/cancel", json={})
    run.wait_until_all_ended()
    assert run.false_ends() == []
    wait_for(lambda: doomed.state_of("east") == "ready", "nothing is missing any more")
    assert runs_twice(doomed, run) == []


@pytest.mark.long
def test_an_empty_cluster_behind_the_address_of_a_lost_one_ends_no_job(doomed: Stand):
    run, plane = FaultRun(doomed.gateway), doomed.plane("west")
    ids = long_ones(run, "lost", "west", "running")
    build_anew(plane)
    wait_for(lambda: doomed.state_of("west") != "ready", "the gateway sees that something is wrong")
    time.sleep(LOOKED_SECONDS)
    assert still_there(doomed, ids, "west")
    apply_file(plane, ACCESS_MANIFEST)
    token = mint_token(plane, "switchyard-system", "switchyard")
    cluster = next(item for item in doomed.gateway.items("/clusters") if item["name"] == "west")
    answer = doomed.gateway.request("PATCH", f"/clusters/{cluster['id']}", json={"token": token})
    assert answer.status_code in {409, 422}, f"another cluster was taken for the lost one: {answer.text}"
    time.sleep(LOOKED_SECONDS)
    assert still_there(doomed, ids, "west")
    assert runs_twice(doomed, run) == []


@pytest.mark.long
def test_a_replica_that_lacks_the_last_commits_takes_over_unnoticed_and_nothing_runs_twice(doomed: Stand):
    """No process is stopped and no operator begins a standstill."""
    run, east = FaultRun(doomed.gateway), {"clusters": ["east"]}
    cluster = next(item for item in doomed.gateway.items("/clusters") if item["name"] == "east")
    doomed.gateway.create(f"/clusters/{cluster['id']}/cordon", {})
    queued = [run.submit(job(f"started-in-lost-commits-{n}", seconds=90, constraints=east)) for n in range(3)]
    doomed.databases.stop_following()
    doomed.gateway.create(f"/clusters/{cluster['id']}/uncordon", {})
    wait_for(
        lambda: {run.states()[job_id] for job_id in queued} == {"running"}, "three run that the replica has queued"
    )
    doomed.databases.promote()
    wait_for(lambda: doomed.gateway.client.get("/readyz").is_success, "the gateway is back")
    doomed.gateway.create(f"/clusters/{cluster['id']}/uncordon", {})  # lost too
    wait_for(lambda: {run.states()[job_id] for job_id in queued} == {"running"}, "what runs was taken in")
    # the other one was built anew by the test before, and is not compared until an operator answers for it
    wait_for(lambda: "east: not compared yet" not in standing(doomed), "east was compared")
    assert "east: 3 runs that the database had forgotten were adopted" in standing(doomed)
    assert "Dispatch is closed" in standing(doomed), "something was lost"
    doomed.databases.add_replica()
    doomed.gateway.manage("standstill", "open", "--answer-for", "checked")
    run.wait_until_all_ended()
    assert run.false_ends() == []
    verdict = run.verdict(read_witness({plane.name: plane.layout.audit_log for plane in doomed.planes}))
    assert (verdict.lost, verdict.ran_twice) == ([], [])


@pytest.mark.long
def test_a_database_put_back_to_an_earlier_state_runs_nothing_twice(doomed: Stand):
    """What was started since is found on its cluster and believed; what the database never heard of is left running."""
    run, later = FaultRun(doomed.gateway), FaultRun(doomed.gateway)
    east = {"clusters": ["east"]}
    cluster = next(item for item in doomed.gateway.items("/clusters") if item["name"] == "east")
    before = run.submit(job("ran-before", seconds=60, constraints=east))
    wait_for(lambda: run.states()[before] == "running", "one runs before the backup")
    doomed.gateway.create(f"/clusters/{cluster['id']}/cordon", {})
    queued = [run.submit(job(f"ran-after-{n}", seconds=90, constraints=east)) for n in range(3)]
    backup = doomed.databases.snapshot()
    doomed.gateway.create(f"/clusters/{cluster['id']}/uncordon", {})
    wait_for(lambda: {run.states()[job_id] for job_id in queued} == {"running"}, "three run that the backup has queued")
    unheard = later.submit(job("unheard-of", seconds=LONG_SECONDS, constraints=east))
    wait_for(lambda: later.states()[unheard] == "running", "one runs that the backup has never heard of")
    with everything_frozen(doomed.gateway):
        doomed.databases.restore(backup)
        doomed.gateway.manage("standstill", "begin", "--reason", "restored")
    wait_for(lambda: doomed.gateway.client.get("/readyz").is_success, "the gateway is back")
    wait_for(lambda: {run.states()[job_id] for job_id in queued} == {"running"}, "what runs was taken in")
    wait_for(lambda: "east: not compared yet" not in standing(doomed), "east was compared")
    assert "east: 1 objects that may run" in standing(doomed)
    assert left_of(doomed, {unheard}), "a running object was deleted because the database does not know it"
    doomed.gateway.manage("standstill", "open", "--answer-for", "nobody waits for it")
    doomed.gateway.create(f"/clusters/{cluster['id']}/uncordon", {})
    run.wait_until_all_ended()
    assert run.false_ends() == []
    verdict = run.verdict(read_witness({plane.name: plane.layout.audit_log for plane in doomed.planes}))
    assert (verdict.lost, verdict.ran_twice) == ([], [])
