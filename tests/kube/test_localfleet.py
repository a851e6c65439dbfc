import asyncio
import ssl
import stat
import subprocess
import sys
import time

import httpx
import psutil
import pytest

from devtools.localfleet import start_fleet
from devtools.localfleet.admin import apply, client, create_nodes, mint_token
from devtools.localfleet.commands import WITH_CERTIFICATES
from devtools.localfleet.fleetfile import ClusterSpec, NodeGroup, node_objects
from devtools.serve import PROJECT

pytestmark = pytest.mark.kube
SECONDS = 60


def wait_for(condition, what):
    deadline = time.monotonic() + SECONDS
    while not (value := condition()):
        assert time.monotonic() < deadline, f"it did not happen within {SECONDS} s: {what}"
        time.sleep(0.05)
    return value


def make_job(name, namespace, annotations, *, gpus=1, pods=1):
    resources = {"nvidia.com/gpu": str(gpus)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "completions": pods,
            "parallelism": pods,
            "backoffLimit": 0,
            "template": {
                "metadata": {"annotations": annotations},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [
                        {"name": "main", "image": "x", "resources": {"requests": resources, "limits": resources}}
                    ],
                },
            },
        },
    }


def make_namespace(plane, name):
    apply(plane, [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}])
    with client(plane) as http:
        where = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        wait_for(lambda: http.get(where).status_code == 200, "the namespace's ServiceAccount")


def pods_of(plane, namespace):
    with client(plane) as http:
        return http.get(f"/api/v1/namespaces/{namespace}/pods").raise_for_status().json()["items"]


def ended(plane, namespace, count):
    pods = pods_of(plane, namespace)
    return len(pods) == count and all(pod["status"].get("phase") in {"Succeeded", "Failed"} for pod in pods) and pods


def test_every_cluster_has_its_nodes_ready_and_untainted(clusters):
    assert [plane.name for plane in clusters] == ["east", "west", "north"]
    for plane in clusters:
        with client(plane) as http:
            nodes = http.get("/api/v1/nodes").json()["items"]
        assert nodes
        assert all("taints" not in node["spec"] for node in nodes)


def test_pods_run_for_the_annotated_time_and_end_with_the_annotated_code(clusters, namespace_name):
    plane = clusters[0]
    make_namespace(plane, namespace_name)
    runs = {"sim.switchyard.dev/run-seconds": "2", "sim.switchyard.dev/exit-code": "137"}
    apply(plane, [make_job("fails", namespace_name, runs), make_job("plain", namespace_name, {}, gpus=8, pods=2)])
    ends = {}
    for pod in wait_for(lambda: ended(plane, namespace_name, 3), "three pods end"):
        state = pod["status"]["containerStatuses"][0]["state"]["terminated"]
        assert state["startedAt"] == pod["status"]["startTime"]
        ends.setdefault(pod["metadata"]["labels"]["job-name"], []).append((pod["status"]["phase"], state["exitCode"]))
    assert ends == {"fails": [("Failed", 137)], "plain": [("Succeeded", 0)] * 2}


def test_a_deleted_job_stops_its_pods_and_takes_them_along(clusters, namespace_name):
    plane = clusters[1]
    make_namespace(plane, namespace_name)
    apply(plane, [make_job("long", namespace_name, {"sim.switchyard.dev/run-seconds": "3600"})])
    wait_for(lambda: "Running" in [pod["status"]["phase"] for pod in pods_of(plane, namespace_name)], "the pod runs")
    with client(plane) as http:
        where = f"/apis/batch/v1/namespaces/{namespace_name}/jobs/long"
        http.delete(where, params={"propagationPolicy": "Foreground"}).raise_for_status()
        wait_for(lambda: http.get(where).status_code == 404, "the job is gone")
    assert pods_of(plane, namespace_name) == []


def test_a_frozen_api_server_hangs_and_a_killed_one_comes_back_with_its_objects(bare_clusters, namespace_name):
    plane = bare_clusters[0]
    make_namespace(plane, namespace_name)
    plane.pause("kube-apiserver")
    try:
        with client(plane, timeout_seconds=0.5) as http, pytest.raises(httpx.TimeoutException):
            http.get("/api/v1/namespaces")
    finally:
        plane.resume("kube-apiserver")  # other tests use this control plane too
    ca = plane.ca_pem
    plane.restart("kube-apiserver")
    assert plane.layout.ca_file.read_text() == ca
    with client(plane) as http:
        assert http.get(f"/api/v1/namespaces/{namespace_name}").status_code == 200


def test_each_server_shows_the_certificate_that_was_made_for_it_and_makes_none(bare_clusters):
    layout = bare_clusters[1].layout
    for component in WITH_CERTIFICATES:
        made = layout.certificate(component)
        shown = ssl.get_server_certificate(("127.0.0.1", layout.ports[component]))
        assert shown.split() == made.read_text().split(), component
        assert {file.name for file in made.parent.iterdir()} == {made.name, made.with_suffix(".key").name}
        assert stat.S_IMODE(made.with_suffix(".key").stat().st_mode) == 0o600


def test_a_minted_token_may_do_what_its_account_may_and_no_more(bare_clusters, namespace_name):
    plane = bare_clusters[1]
    make_namespace(plane, namespace_name)
    token = mint_token(plane, namespace_name, "default")
    with client(plane, token) as http:
        assert http.get("/api/v1/nodes").status_code == 403


def test_a_file_of_nodes_is_created_within_seconds(bare_clusters):
    group = NodeGroup("many", 200, 64, 512, "nvidia", "NVIDIA-A100-SXM4-80GB", gpus=8, gpu_memory_mib=81920)
    asyncio.run(
        asyncio.wait_for(create_nodes(bare_clusters[1], node_objects(ClusterSpec("bare", groups=(group,)))), 60)
    )


def test_api_only_control_planes_take_nodes_and_jobs_but_run_nothing(tmp_path):
    (plane,) = start_fleet(["solo"], tmp_path, api_only=True)
    try:
        assert set(plane.processes) == {"etcd", "kube-apiserver"}
        apply(plane, [make_job("waits", "default", {})])
        assert pods_of(plane, "default") == []
    finally:
        plane.stop()
    assert not plane.processes


def test_a_killed_fleet_leaves_no_process(tmp_path):
    output = tmp_path / "output"
    with output.open("wb") as sink:
        fleet = subprocess.Popen(
            [sys.executable, "-m", "devtools.localfleet", "run", "-n", "1", "--out", str(tmp_path / "out")],
            cwd=PROJECT, stdout=sink, stderr=sink, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    line = wait_for(lambda: output.read_text().strip(), "the fleet's line").split()
    assert line[0] == "east"
    assert line[1].startswith("https://127.0.0.1:")
    family = psutil.Process(fleet.pid).children(recursive=True)
    assert len(family) == 5
    fleet.kill()
    fleet.wait()
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive
