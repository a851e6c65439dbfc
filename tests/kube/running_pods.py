"""A control plane whose nodes run pods (`devtools.localfleet.kubelet`), and what tests ask of it."""

import json
import time
from contextlib import suppress

import psutil

SECONDS = 60


def wait_for(condition, what):
    deadline = time.monotonic() + SECONDS
    while not (value := condition()):
        assert time.monotonic() < deadline, f"it did not happen within {SECONDS} s: {what}"
        time.sleep(0.05)
    return value


def pod(name, script="", *, node="cpu-1", container=None, **spec):
    main = {
        "name": "main",
        "image": "python",
        **({"command": ["sh", "-ec", script]} if script else {}),
        **(container or {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "runs"},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "containers": [main],
        }
        | spec,
    }


PODS = "/api/v1/namespaces/runs/pods"


def create(http, *manifests, where=PODS):
    for manifest in manifests:
        answer = http.post(where, json=manifest)
        assert answer.is_success, answer.text


def seen(http, name):
    return http.get(f"{PODS}/{name}").raise_for_status().json()


def reached(http, name, *phases):
    def look():
        found = seen(http, name)
        return found if found["status"]["phase"] in phases else None

    return wait_for(look, f"{name} is {phases}: {seen(http, name)['status']}")


def ended(http, name):
    """How the pod's only container ended."""
    found = reached(http, name, "Succeeded", "Failed")
    return found["status"]["phase"], found["status"]["containerStatuses"][0]["state"]["terminated"]


def log(http, name, **query):
    return http.get(f"{PODS}/{name}/log", params=query).raise_for_status().text


def printed(http, name):
    phase, end = ended(http, name)
    assert phase == "Succeeded", (end, log(http, name))
    return json.loads(log(http, name))


def runs(plane, word):
    """Whether a process of the kubelet has this word in its command line."""

    def words(process):
        with suppress(psutil.Error):
            return process.cmdline()
        return []

    return any(word in words(one) for one in psutil.Process(plane.pid("kubelet")).children(recursive=True))


KEEP = "switchyard.dev/test"


def kept(made):
    """The pod, with a finalizer so that its last status can be read."""
    made["metadata"]["finalizers"] = [KEEP]
    return made


def last_status(http, name):
    found = wait_for(
        lambda: (it := seen(http, name))["metadata"].get("deletionGracePeriodSeconds") == 0 and it, "its end"
    )
    http.patch(
        f"{PODS}/{name}",
        json={"metadata": {"finalizers": None}},
        headers={"Content-Type": "application/merge-patch+json"},
    )
    return found["status"]["phase"], found["status"]["containerStatuses"][0]["state"]["terminated"]
