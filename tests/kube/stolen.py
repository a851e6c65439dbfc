"""A control plane with the published manifest, and a thief who has the token of the gateway's account there.

Each attack is first made by an administrator (a dry run), who is let through; so it is the published manifest that stops the
thief, and no mistake in the attack.
"""

from urllib.parse import urlencode

from devtools.localfleet.admin import apply, client

from .attacks import OURS, WORKING

MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
APPLY, JSON_PATCH = "application/apply-patch+yaml", "application/json-patch+json"
ACCOUNT = {"kind": "ServiceAccount", "name": "switchyard", "namespace": "switchyard-system"}
FORBIDDEN, INVALID = 403, 422
UNLABELLED, LABELLED, OPEN = "swy-unlabelled", "labelled", "swy-open"
ENFORCE = "pod-security.kubernetes.io/enforce"


class Cluster:
    """A control plane with the manifest, a thief at its door, and namespaces of several makers."""

    def __init__(self, plane, token):
        self.plane, self.token = plane, token
        self.admin, self.thief = client(plane), client(plane, token)
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
        """Deletes its namespaces too."""
        for name in (OURS, UNLABELLED, LABELLED, OPEN):
            self.admin.delete(f"/api/v1/namespaces/{name}")
        self.admin.close()
        self.thief.close()
