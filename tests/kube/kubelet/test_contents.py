"""What a pod finds on a node of the test kubelet: variables, files, volumes, peers, and containers beside its own."""

import base64
from pathlib import Path
from uuid import uuid4

import pytest

from clusters.engine.storages import KnownStorage
from devtools.localfleet.kubelet import RUNS_LABEL
from federation.engine.objects.mounts import lay_mounts, promised_mount
from tests.kube.running_pods import PODS, create, ended, log, pod, printed, reached, seen, wait_for

pytestmark = pytest.mark.kube


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


def test_a_new_volume_is_its_pods_own_and_goes_with_it(http, plane):
    known = KnownStorage(
        uuid4(), "acme", "acme", "fast", "", is_writable=True, prefix="", storage_class="folders", most_bytes=2**30
    )
    mount = {"storage": "fast", "path": "/fast", "sub_path": "", "read_only": False, "size": "1Gi"}
    for name in ("first", "second"):
        made = pod(
            name,
            'test -z "$(ls /fast)" && hostname > /fast/whose && cat /fast/whose',
            nodeName=None,
            nodeSelector={"kubernetes.io/hostname": "cpu-1"},
        )
        lay_mounts(made["spec"], [promised_mount(mount, known, uuid4())])
        create(http, made)
    for name in ("first", "second"):
        assert ended(http, name)[0] == "Succeeded", log(http, name)
        assert log(http, name).strip() == name
        claim = http.get(f"{CLAIMS}/{name}-storage-0").raise_for_status().json()
        [owner] = claim["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("Pod", seen(http, name)["metadata"]["uid"], True)
        assert (claim["spec"]["storageClassName"], claim["spec"]["resources"]) == (
            "folders",
            {"requests": {"storage": "1Gi"}},
        )
    folder = plane.layout.claims / "runs"
    http.delete(f"{PODS}/first").raise_for_status()
    wait_for(lambda: http.get(f"{CLAIMS}/first-storage-0").status_code == 404, "the claim goes with its pod")
    wait_for(lambda: not (folder / "first-storage-0").exists(), "and so does what is in it")
    assert (folder / "second-storage-0" / "whose").read_text() == "second\n"
    http.delete(f"{PODS}/second").raise_for_status()
    wait_for(lambda: http.get("/api/v1/persistentvolumes").json()["items"] == [], "no volume is left")


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
