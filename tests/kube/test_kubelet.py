"""The test kubelet on a real control plane: what pods do is what their status says."""

import asyncio
import base64
import signal
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import httpx
import psutil
import pytest

from clusters.drivers import DriverError
from clusters.drivers.kubernetes import KubernetesDriver
from clusters.engine.quantities import parse
from devtools.localfleet.admin import create_nodes
from devtools.localfleet.kubelet import RUNS_LABEL
from federation.engine.objects.rendering import Devices, Identity, namespace_labels, render_job
from foundation.ids import new_id
from tests.builders import stored_spec
from tests.contract import test_driver as promises
from tests.contract.worlds import INSTALL, address_of, node_object, until
from tests.kube.conftest import gateway_token
from tests.kube.running_pods import (
    PODS,
    create,
    ended,
    http,
    kept,
    last_status,
    log,
    plane,
    pod,
    printed,
    reached,
    runs,
    seen,
    wait_for,
    world,
)

pytestmark = pytest.mark.kube
assert all((http, plane, world))  # fixtures


def test_a_command_ends_with_its_own_code_and_its_log_is_read_through_the_api_server(http):
    create(http, pod("fails", "echo one; echo two >&2; sleep 1; echo three; exit 7", container={"terminationMessagePolicy": "FallbackToLogsOnError"}))  # fmt: skip
    create(http, pod("absent", container={"command": ["/no/such/program"]}), pod("pretends", "exit 9", node="pretend"))
    reached(http, "fails", "Running")
    with http.stream("GET", f"{PODS}/fails/log", params={"follow": "true"}) as reply:
        assert reply.read().decode() == "one\ntwo\nthree\n"
    phase, end = ended(http, "fails")
    assert (phase, end["exitCode"], end["reason"], end["message"]) == ("Failed", 7, "Error", "one\ntwo\nthree")
    assert end["startedAt"] < end["finishedAt"]
    assert log(http, "fails", tailLines=2, limitBytes=6) == "two\nth"
    stamped = log(http, "fails", timestamps="true").splitlines()
    assert [line.split()[1] for line in stamped] == ["one", "two", "three"]
    assert log(http, "fails", timestamps="true", sinceTime=stamped[2].split()[0][:19] + "Z").endswith("three\n")
    phase, end = ended(http, "absent")
    assert (phase, end["exitCode"], end["reason"]) == ("Failed", 128, "StartError")
    assert "/no/such/program" in end["message"]
    assert ended(http, "pretends")[1]["exitCode"] == 0, "KWOK's nodes still pretend"


def test_only_the_api_server_may_read_logs(plane):
    address = f"https://127.0.0.1:{plane.layout.ports['kubelet']}"
    with httpx.Client(verify=False, trust_env=False) as stranger:
        assert stranger.get(f"{address}/healthz").status_code == 200
        assert stranger.get(f"{address}/containerLogs/runs/fails/main").status_code == 401


SHOW = """import json, os, pathlib
files = {str(p): p.read_text() for p in pathlib.Path("/files").rglob("*") if p.is_file() and ".." not in str(p)}
print(json.dumps({"env": dict(os.environ), "files": files, "cwd": os.getcwd(), "uid": [os.getuid(), os.getgid()]}))"""


def test_a_container_finds_the_variables_and_files_that_its_pod_names(http):
    data = {key: base64.b64encode(value.encode()).decode() for key, value in (("token", "s3cret"), ("USER", "ada"))}
    create(http, {"metadata": {"name": "keys"}, "data": data}, where="/api/v1/namespaces/runs/secrets")
    create(http, {"metadata": {"name": "words"}, "data": {"rate": "0.1"}}, where="/api/v1/namespaces/runs/configmaps")

    def field(path):
        return {"valueFrom": {"fieldRef": {"fieldPath": path}}}

    variables = {
        "RANK": field("metadata.labels['rank']"),
        "PLACE": field("metadata.annotations['place']"),
        "NAME": field("metadata.name"),
        "IP": field("status.podIP"),
        "NODE": field("spec.nodeName"),
        "MEMORY": {"valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
        "CPUS": {"valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        "TOKEN": {"valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}},
        "RATE": {"valueFrom": {"configMapKeyRef": {"name": "words", "key": "rate"}}},
        "NONE": {"valueFrom": {"configMapKeyRef": {"name": "nowhere", "key": "rate", "optional": True}}},
        "BOTH": {"value": "$(RANK)-$(RATE)-$(UNKNOWN)-$$(RANK)"},
    }
    made = pod("knows", container={
        "command": ["python", "-c", "$(PROGRAM)"],
        "env": [{"name": "PROGRAM", "value": SHOW}, *({"name": name, **value} for name, value in variables.items())],
        "envFrom": [{"prefix": "FROM_", "secretRef": {"name": "keys"}}],
        "workingDir": "/made/for/it",
        "resources": {"limits": {"memory": "300Mi"}},
        "volumeMounts": [{"name": name, "mountPath": f"/files/{name}"} for name in ("secret", "all", "self")],
    }, volumes=[
        {"name": "secret", "secret": {"secretName": "keys", "defaultMode": 0o440, "items": [{"key": "token", "path": "a/b"}]}},
        {"name": "all", "projected": {"sources": [
            {"configMap": {"name": "words"}},
            {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        ]}},
        {"name": "self", "downwardAPI": {"items": [
            {"path": "memory", "resourceFieldRef": {"containerName": "main", "resource": "limits.memory"}}]}},
    ], securityContext={"runAsUser": 1000, "runAsGroup": 1001, "fsGroup": 1002})  # fmt: skip
    made["metadata"] |= {"labels": {"rank": "3"}, "annotations": {"place": "rack 7"}}
    create(http, made)
    found = printed(http, "knows")
    status = seen(http, "knows")["status"]
    expected = {
        "RANK": "3", "PLACE": "rack 7", "NAME": "knows", "NODE": "cpu-1", "MEMORY": "300", "CPUS": "64", "TOKEN": "s3cret",
        "RATE": "0.1", "BOTH": "3-0.1-$(UNKNOWN)-$(RANK)", "FROM_USER": "ada", "IP": status["podIP"], "HOSTNAME": "knows",
    }  # fmt: skip
    assert {key: found["env"].get(key) for key in expected} == expected
    assert "NONE" not in found["env"]
    assert found["files"] == {
        "/files/secret/a/b": "s3cret",
        "/files/all/rate": "0.1",
        "/files/all/labels": 'rank="3"',
        "/files/self/memory": str(300 * 1024**2),
    }
    assert (found["cwd"], found["uid"]) == ("/made/for/it", [1000, 1001])


CLAIMS = "/api/v1/namespaces/runs/persistentvolumeclaims"


def test_a_claim_is_shared_by_pods_and_memory_by_containers(http, plane):
    wanted = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    create(http, {"metadata": {"name": "data"}, "spec": wanted}, where=CLAIMS)
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    writer = pod("writes", "echo model > /data/run/model; ln -s /etc /data/run/out; df -Pm /dev/shm | tail -1 > /mem/size; head -c 70m /dev/zero > /dev/shm/x", container={
        "volumeMounts": [{"name": "data", "mountPath": "/data/run", "subPath": "one"}, {"name": "shm", "mountPath": "/dev/shm"}, {"name": "shm", "mountPath": "/mem"}],
    }, volumes=[claim, {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "128Mi"}}],
    nodeName=None, nodeSelector={"kubernetes.io/hostname": "cpu-1"})  # fmt: skip
    create(http, writer)
    assert ended(http, "writes")[0] == "Succeeded", log(http, "writes")
    reader = pod("reads", "cat /data/one/model; df -Pm /dev/shm | tail -1; ! touch /data/one/more; echo kept > /tmp/only-here", container={
        "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True}]}, volumes=[claim], node="gpu-1")  # fmt: skip
    escapes = pod("escapes", "cat /data/shadow", container={
        "volumeMounts": [{"name": "data", "mountPath": "/data", "subPath": "one/out"}]}, volumes=[claim])  # fmt: skip
    create(http, reader, escapes)
    assert ended(http, "reads")[0] == "Succeeded", log(http, "reads")
    assert log(http, "reads").split()[:3] == ["model", "shm", "64"]
    assert not Path("/tmp/only-here").exists()
    assert not Path("/data").exists()
    reason = wait_for(lambda: seen(http, "escapes")["status"].get("containerStatuses", [{}])[0].get("state", {}).get("waiting", {}).get("message"), "a reason")  # fmt: skip
    assert "leaves its volume" in reason
    http.delete(f"{PODS}/escapes").raise_for_status()
    folder = plane.layout.claims / "runs" / "data"
    assert (folder / "one" / "model").read_text() == "model\n"
    for name in ("writes", "reads"):
        http.delete(f"{PODS}/{name}").raise_for_status()
    http.delete(f"{CLAIMS}/data").raise_for_status()
    wait_for(lambda: not folder.exists(), "the folder goes with its claim")
    wait_for(lambda: http.get("/api/v1/persistentvolumes").json()["items"] == [], "the volume goes too")


PEER = """import os, socket, sys
rank, mate = int(os.environ["RANK"]), "ring-0.ring"
full = mate + ".runs.svc.cluster.local"
if rank == 0:
    server = socket.create_server((os.environ["IP"], 29500))
    connection, peer = server.accept()
    connection.sendall(b"hello " + connection.recv(100))
else:
    import time
    for host in (mate, mate + ".runs", mate + ".runs.svc", full, "ring"):
        while True:
            try:
                found = socket.gethostbyname(host)
                break
            except OSError:
                time.sleep(0.05)
    while True:
        try:
            connection = socket.create_connection((full, 29500))
            break
        except OSError:
            time.sleep(0.05)
    connection.sendall(socket.gethostname().encode())
    assert connection.recv(100) == b"hello ring-1"
"""


def test_the_pods_of_an_indexed_job_reach_each_other_by_name(http):
    selector = {"batch.kubernetes.io/job-name": "ring"}
    service = {
        "metadata": {"name": "ring"},
        "spec": {"clusterIP": "None", "selector": selector, "publishNotReadyAddresses": True},
    }
    create(http, service, where="/api/v1/namespaces/runs/services")
    rank = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
    ip = {"fieldRef": {"fieldPath": "status.podIP"}}
    container = {"name": "main", "image": "python", "command": ["python", "-c", PEER],
                 "env": [{"name": "RANK", "valueFrom": rank}, {"name": "IP", "valueFrom": ip}]}  # fmt: skip
    template = {"spec": {"restartPolicy": "Never", "subdomain": "ring", "containers": [container],
                         "nodeSelector": {RUNS_LABEL: "true"}}}  # fmt: skip
    spec = {"completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimit": 0, "template": template}
    jobs = "/apis/batch/v1/namespaces/runs/jobs"
    create(http, {"metadata": {"name": "ring"}, "spec": spec}, where=jobs)
    done = wait_for(
        lambda: (found := http.get(f"{jobs}/ring").json()["status"]).get("conditions") and found, "the job ends"
    )
    pods = http.get(PODS, params={"labelSelector": "batch.kubernetes.io/job-name=ring"}).json()["items"]
    assert done.get("succeeded") == 2, [log(http, one["metadata"]["name"]) for one in pods]
    assert len({one["status"]["podIP"] for one in pods}) == 2


def test_a_deleted_pod_gets_its_hook_sigterm_and_its_grace_and_then_sigkill(http):
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "echo hook-$WORD > /proc/1/fd/1"]}}}
    polite = "trap 'echo term; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
    create(
        http,
        kept(pod("polite", polite, container={"lifecycle": hook, "env": [{"name": "WORD", "value": "ran"}]})),
        kept(pod("deaf", "echo ready; exec sleep 3600")),
        kept(pod("evicted", polite)),
    )
    for name in ("polite", "deaf", "evicted"):
        reached(http, name, "Running")
        wait_for(lambda name=name: "ready" in log(http, name), "it is ready")
    http.request("DELETE", f"{PODS}/deaf", json={"gracePeriodSeconds": 1}).raise_for_status()
    http.delete(f"{PODS}/polite").raise_for_status()
    http.post(f"{PODS}/evicted/eviction", json={"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "evicted"}}).raise_for_status()  # fmt: skip
    wait_for(lambda: seen(http, "polite")["metadata"].get("deletionGracePeriodSeconds") == 0, "its end")
    assert log(http, "polite").split() == ["ready", "hook-ran", "term"]
    assert [(phase, end["exitCode"]) for phase, end in (last_status(http, name) for name in ("polite", "deaf", "evicted"))] == [("Failed", 3), ("Failed", 137), ("Failed", 3)]  # fmt: skip
    for name in ("polite", "deaf", "evicted"):
        wait_for(lambda name=name: http.get(f"{PODS}/{name}").status_code == 404, "the object is gone")


def test_a_pod_that_is_deleted_by_force_and_one_whose_node_is_deleted_leave_no_process(http, plane):
    spare = node_object("spare", {RUNS_LABEL: "true"})
    asyncio.run(create_nodes(plane, [spare]))
    create(http, pod("forced", "exec sleep 36001"), pod("homeless", "exec sleep 36002", node="spare"))
    for name, seconds in (("forced", "36001"), ("homeless", "36002")):
        reached(http, name, "Running")
        wait_for(lambda seconds=seconds: runs(plane, seconds), "its command runs")
    http.request("DELETE", f"{PODS}/forced", json={"gracePeriodSeconds": 0}).raise_for_status()
    http.delete("/api/v1/nodes/spare").raise_for_status()
    wait_for(lambda: not runs(plane, "36001") and not runs(plane, "36002"), "both commands are killed")
    wait_for(lambda: http.get(f"{PODS}/forced").status_code == 404, "the object is gone")
    create(http, pod("forced", "echo namesake"))
    assert ended(http, "forced")[0] == "Succeeded"
    assert log(http, "forced") == "namesake\n"


def test_a_container_that_uses_more_memory_than_its_limit_is_killed_and_says_so(http):
    greedy = "import time\nheld = bytearray(400 * 2**20)\ntime.sleep(3600)"
    shares = (
        "import os, time\nheld = bytearray(60 * 2**20)\n"
        "for _ in range(3):\n    if not os.fork():\n        break\ntime.sleep(1.5)"
    )
    limit = {"resources": {"limits": {"memory": "128Mi"}}}
    create(
        http,
        pod("greedy", container={"command": ["python", "-c", greedy], **limit}),
        pod("modest", container={"command": ["python", "-c", shares], **limit}),
    )
    phase, end = ended(http, "greedy")
    assert (phase, end["exitCode"], end["reason"]) == ("Failed", 137, "OOMKilled")
    assert ended(http, "modest")[0] == "Succeeded", "memory that processes share counts once"


def test_a_pod_that_is_active_for_too_long_fails_and_keeps_its_object(http):
    create(http, pod("slow", "trap 'exit 0' TERM; while :; do sleep 0.05; done", activeDeadlineSeconds=1))
    assert ended(http, "slow")[1]["exitCode"] == 0
    assert seen(http, "slow")["status"]["reason"] == "DeadlineExceeded"


def waits(http, name):
    return (
        seen(http, name)["status"].get("containerStatuses", [{}])[0].get("state", {}).get("waiting", {}).get("reason")
    )


def test_what_is_missing_keeps_a_pod_pending_and_is_named(http):
    needs = {"env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "late", "key": "key"}}}]}
    volume = [{"name": "v", "secret": {"secretName": "late"}}]
    create(
        http,
        pod("no-image", "true", container={"image": "registry.example/missing:1"}),
        pod("no-secret", 'test "$KEY" = x', container=needs),
        pod("no-volume", "cat /v/key", container={"volumeMounts": [{"name": "v", "mountPath": "/v"}]}, volumes=volume),
    )
    wait_for(lambda: waits(http, "no-image") == "ErrImagePull", "the pull fails")
    wait_for(lambda: waits(http, "no-image") == "ImagePullBackOff", "it backs off")
    wait_for(lambda: waits(http, "no-secret") == "CreateContainerConfigError", "the secret is missing")
    assert {seen(http, name)["status"]["phase"] for name in ("no-image", "no-secret", "no-volume")} == {"Pending"}
    create(http, {"metadata": {"name": "late"}, "data": {"key": "eA=="}}, where="/api/v1/namespaces/runs/secrets")
    assert [ended(http, name)[0] for name in ("no-secret", "no-volume")] == ["Succeeded"] * 2
    http.delete(f"{PODS}/no-image").raise_for_status()
    wait_for(lambda: http.get(f"{PODS}/no-image").status_code == 404, "the object is gone")


def test_init_containers_come_first_sidecars_stay_and_probes_decide(http):
    shared = {"volumeMounts": [{"name": "w", "mountPath": "/w"}], "image": "python"}

    def step(name, script, **more):
        return {"name": name, "command": ["sh", "-ec", script], **shared, **more}

    quick = {"periodSeconds": 1, "failureThreshold": 60, "timeoutSeconds": 20}
    beside = step("beside", "trap 'echo over > /w/over; exit 0' TERM; sleep 1; touch /w/up; while :; do sleep 0.1; done",
                  restartPolicy="Always", startupProbe={"exec": {"command": ["test", "-e", "/w/up"]}, **quick})  # fmt: skip
    main = step("main", "test -e /w/first; test -e /w/up; python -m http.server -b $IP 8000 2> /w/log & until grep GET /w/log; do sleep 0.1; done; sleep 2; touch /w/sick; wait",
                env=[{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
                readinessProbe={"httpGet": {"port": 8000, "path": "/etc"}, **quick},
                livenessProbe={"exec": {"command": ["sh", "-c", "! test -e /w/sick"]}, **quick,
                               "failureThreshold": 1, "terminationGracePeriodSeconds": 1})  # fmt: skip
    made = pod(
        "staged", initContainers=[step("first", "touch /w/first"), beside], volumes=[{"name": "w", "emptyDir": {}}]
    )
    made["spec"]["containers"] = [main]
    create(
        http,
        made,
        pod("broken", "true", initContainers=[{"name": "i", "image": "x", "command": ["sh", "-c", "exit 4"]}]),
    )
    ready = wait_for(lambda: (found := seen(http, "staged")["status"]) and any((c["type"], c["status"]) == ("Ready", "True") for c in found.get("conditions", ())) and found, "ready")  # fmt: skip
    assert ready["phase"] == "Running"
    assert [one["state"].get("terminated", {}).get("exitCode") for one in ready["initContainerStatuses"]] == [0, None]
    status = reached(http, "staged", "Failed")["status"]
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
    assert status["initContainerStatuses"][1]["state"]["terminated"]["exitCode"] == 0
    broken = reached(http, "broken", "Failed")["status"]
    assert broken["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 4
    assert broken["containerStatuses"][0]["state"]["waiting"]["reason"] == "PodInitializing"


def close_pretending_node(http):
    """What the scheduler places then runs."""
    merge = {"headers": {"Content-Type": "application/merge-patch+json"}}
    http.patch("/api/v1/nodes/pretend", json={"spec": {"unschedulable": True}}, **merge).raise_for_status()


def job_of(whose, *, beside):
    stored = stored_spec(pod={"cpu": "100m", "memory": "64Mi", "command": ["sh", "-c", "sleep 1"], **beside})
    return render_job(stored, 0, whose, Devices())


async def run_to_its_end(plane, made):
    """The pod of a Job as the driver sees it at its end, and the logs of its containers."""
    driver = KubernetesDriver(address_of(plane, gateway_token(plane)), INSTALL)
    space, name = made["metadata"]["namespace"], made["metadata"]["name"]
    try:
        await driver.ensure_namespace(space, namespace_labels(INSTALL, "t"))
        uid = await driver.create_job(made)
        await driver.release_job(space, name, uid, {"spec": {"nodeSelector": None}})
        [found] = await until_true(driver, space, name)
        names = [one["name"] for one in made["spec"]["template"]["spec"]["initContainers"]]
        logs = {}
        for one in names:
            with suppress(DriverError):
                logs[one] = await driver.read_log(space, found.name, tail_lines=9, limit_bytes=999, container=one)
        return found, logs
    finally:
        await driver.close()


async def until_true(driver, space, name):
    async def over():
        pods = await driver.list_pods(space, name)
        return pods if pods and pods[0].phase in ("Succeeded", "Failed") else None

    await until(over)
    return await driver.list_pods(space, name)


def step(script):
    return {"image": "python", "command": ["sh", "-c", script]}


def test_a_rendered_init_step_that_fails_is_named_and_its_log_is_read(plane, http):
    close_pretending_node(http)
    whose = Identity(INSTALL, uuid4(), "acme", new_id(), new_id(), 1, "0" * 32)
    steps = [step("echo ready > /scratch/data"), step("cat /scratch/data; exit 3"), step("echo never")]
    sidecar = {"name": "beside", **step("sleep 3600"), "cpu": "50m", "memory": "32Mi"}
    made = job_of(whose, beside={"init": steps, "scratch": {"size": "1Mi"}, "sidecars": [sidecar]})
    found, logs = asyncio.run(run_to_its_end(plane, made))
    assert (found.phase, found.init_step, found.exit_code) == ("Failed", 2, 3)
    assert found.finished_at is not None
    assert (logs["init-1"], logs["init-2"]) == ("", "ready\n")
    assert "init-3" not in logs
    assert parse(found.requests["cpu"]) == parse("150m")
    assert parse(found.requests["memory"]) == parse("96Mi")


def test_a_rendered_sidecar_ends_with_its_program(plane, http):
    close_pretending_node(http)
    whose = Identity(INSTALL, uuid4(), "acme", new_id(), new_id(), 1, "0" * 32)
    sidecar = {"name": "beside", **step("trap 'echo over; exit 0' TERM; echo up; while :; do sleep 0.1; done")}
    made = job_of(whose, beside={"sidecars": [{**sidecar, "cpu": "50m", "memory": "32Mi"}]})
    found, logs = asyncio.run(run_to_its_end(plane, made))
    assert (found.phase, found.init_step, found.exit_code) == ("Succeeded", None, 0)
    assert logs["beside"] == "up\nover\n"


def test_an_end_while_the_api_server_hangs_is_reported_when_it_answers_again(http, plane):
    create(http, pod("unseen", "sleep 1.03125; exit 5"), pod("again", 'test -n "$(find /w -name seen)" || { touch /w/seen; exit 1; }', restartPolicy="OnFailure", container={"volumeMounts": [{"name": "w", "mountPath": "/w"}]}, volumes=[{"name": "w", "emptyDir": {}}]))  # fmt: skip
    reached(http, "unseen", "Running")
    assert reached(http, "again", "Succeeded")["status"]["containerStatuses"][0]["restartCount"] == 1
    plane.pause("kube-apiserver")
    try:
        wait_for(lambda: not runs(plane, "1.03125"), "it ends unseen")
    finally:
        plane.resume("kube-apiserver")
    assert ended(http, "unseen")[1]["exitCode"] == 5


@pytest.mark.parametrize(
    "promise",
    [
        promises.test_a_job_created_suspended_does_nothing_until_it_is_released,
        promises.test_pods_report_their_node_times_and_exit_codes,
        promises.test_a_node_may_be_required_by_its_name_and_wishes_are_added_up,
        promises.test_pods_that_do_not_fit_wait,
        promises.test_deleting_a_job_takes_its_pods_along_and_can_be_said_only_once,
    ],
)
def test_the_driver_sees_on_nodes_that_run_what_it_sees_on_others(promise, world, plane, http):
    close_pretending_node(http)
    promise(world)


def four_sleepers(plane):
    """The kubelet's processes, once four of them sleep: a pod runs before its shell has started its programs."""
    family = psutil.Process(plane.pid("kubelet")).children(recursive=True)
    names = []
    for one in family:
        with suppress(psutil.Error):  # it ended just now
            names.append(one.name())
    return family if names.count("sleep") >= 4 else []


def test_a_killed_kubelet_takes_all_processes_and_mounts_along_and_its_pods_are_lost(http, plane):
    hides = "setsid sh -c 'trap \"\" TERM HUP; sleep 3600' & exec sleep 3600"
    create(http, pod("dies", hides), pod("returns", hides, restartPolicy="OnFailure"))
    for name in ("dies", "returns"):
        reached(http, name, "Running")
    family = wait_for(lambda: four_sleepers(plane), "both programs of both pods sleep")
    next(one for one in family if "devtools.localfleet.kubelet" in one.cmdline()).send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive
    assert list(plane.layout.kubelet_folder.iterdir()) == []
    assert str(plane.layout.root) not in Path("/proc/self/mounts").read_text()
    plane.restart("kubelet")
    phase, end = ended(http, "dies")
    assert (phase, end["exitCode"], end["reason"]) == ("Failed", 137, "ContainerStatusUnknown")
    again = wait_for(lambda: (found := seen(http, "returns")["status"])["containerStatuses"][0]["restartCount"] == 1 and found, "it runs again")  # fmt: skip
    assert again["phase"] == "Running"
    family = psutil.Process(plane.pid("kubelet")).children(recursive=True)
    plane.processes["kubelet"].terminate()
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive
