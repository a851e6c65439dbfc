"""A thief with a cluster's token: each attack is first made by an administrator, in a dry run, who is let through; so it is the
published manifest that stops the thief, and no mistake in the attack.
"""

from copy import deepcopy
from urllib.parse import urlencode

import pytest

from clusters.engine.escapes import duties
from devtools.localfleet.admin import apply, client

from .conftest import gateway_token

MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
APPLY, JSON_PATCH = "application/apply-patch+yaml", "application/json-patch+json"
ACCOUNT = {"kind": "ServiceAccount", "name": "switchyard", "namespace": "switchyard-system"}
FORBIDDEN, REMOVED = 403, object()
OURS, UNLABELLED, LABELLED, OPEN = "swy-theirs", "swy-unlabelled", "labelled", "swy-open"
NODE = {"name": "v", "hostPath": {"path": "/"}}
TOKEN = {"serviceAccountToken": {"path": "token"}}
SECRET = {"secretKeyRef": {"name": "s", "key": "k"}}
WORKING = {rehearsal.resource: rehearsal.manifest for rehearsal in duties({"resource.k8s.io"}, "thief")}


class Cluster:
    """A control plane with the manifest, a thief at its door, and namespaces of several makers."""

    def __init__(self, plane):
        self.plane, self.token = plane, gateway_token(plane)
        self.admin, self.thief = client(plane), client(plane, self.token)
        restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
        label = {"switchyard.dev/install": "thief"}
        own = WORKING["namespaces"]["metadata"]
        self.thief.post("/api/v1/namespaces", json={"metadata": {**own, "name": OURS}}).raise_for_status()
        for name, labels in ((UNLABELLED, restricted), (LABELLED, {**label, **restricted}), (OPEN, label)):
            self.admin.post(
                "/api/v1/namespaces", json={"metadata": {"name": name, "labels": labels}}
            ).raise_for_status()
        apply(
            plane, [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": OURS}}]
        )

    def attempt(self, method, path, body, kind="application/json", **query):
        """What the administrator is told, in a dry run, and then the thief."""
        asked = {"fieldValidation": "Strict", "fieldManager": "thief", **query}
        told = [
            http.request(method, f"{path}?{urlencode({**asked, **more})}", json=body, headers={"Content-Type": kind})
            for http, more in ((self.admin, {"dryRun": "All"}), (self.thief, {}))
        ]
        assert told[0].is_success, told[0].text
        return told[1]

    def refused(self, *attack, **query):
        answer = self.attempt(*attack, **query)
        assert answer.status_code == FORBIDDEN, answer.text
        return answer.json()["message"]

    def close(self):
        self.admin.close()
        self.thief.close()


@pytest.fixture(scope="module")
def cluster(bare_clusters):
    found = Cluster(bare_clusters[0])
    yield found
    for name in (OURS, UNLABELLED, LABELLED, OPEN):
        found.admin.delete(f"/api/v1/namespaces/{name}")
    found.close()


def changed(manifest, path, value):
    """A copy of the manifest with one thing in it set, or REMOVED."""
    made = deepcopy(dict(manifest))
    *way, last = path.split("/")
    inner = made
    for step in way:
        inner = inner[int(step)] if step.isdigit() else inner.setdefault(step, {})
    last = int(last) if last.isdigit() else last
    if value is REMOVED:
        del inner[last]
    else:
        inner[last] = value
    return made


def folder(resource, namespace=OURS):
    roots = {"jobs": "/apis/batch/v1", "networkpolicies": "/apis/networking.k8s.io/v1", "pods": "/api/v1"}
    return f"{roots.get(resource, '/apis/resource.k8s.io/v1')}/namespaces/{namespace}/{resource}"


def job(name="thief", **changes):
    made = changed(WORKING["jobs"], "metadata/namespace", OURS)
    made["metadata"]["name"] = name
    for path, value in changes.items():
        made = changed(made, path, value)
    return made


def key(path):
    return path.replace("~", "/")


def set_at(manifest, path, value):
    """As `changed`, where a tilde in the path stands for a slash in a key."""
    parent, _, last = path.rpartition("/")
    if "~" not in last:
        return changed(manifest, path, value)
    made = deepcopy(manifest)
    inner = made
    for step in parent.split("/"):
        inner = inner[step]
    if value is REMOVED:
        del inner[key(last)]
    else:
        inner[key(last)] = value
    return made
