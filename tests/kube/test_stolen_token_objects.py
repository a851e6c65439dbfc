"""Who steals a cluster's token writes only the namespaces, policies, claims and secrets that the gateway writes: tried on a real API
server.
"""

from copy import deepcopy
from typing import Any

import pytest

from .attacks import OURS, REMOVED, WORKING, changed, folder, job, set_at
from .stolen import APPLY, ENFORCE, FORBIDDEN, LABELLED, MERGE, OPEN, UNLABELLED

pytestmark = pytest.mark.kube


def namespace(**labels):
    made = deepcopy(dict(WORKING["namespaces"]))
    made["metadata"] = {"name": "swy-new", "labels": {**made["metadata"]["labels"], **labels}}
    return made


NAMESPACES = {
    "privileged pods": namespace(**{ENFORCE: "privileged"}),
    "baseline pods": namespace(**{ENFORCE: "baseline"}),
    "pods of long ago": namespace(**{f"{ENFORCE}-version": "v1.20"}),
    "no level": {"metadata": {"name": "swy-new"}},
    "our label alone": {"metadata": {"name": "swy-new", "labels": {"switchyard.dev/install": "thief"}}},
    "another name": changed(namespace(), "metadata/name", "thief"),
    "a name like ours": changed(namespace(), "metadata/name", "swyx"),
    "administrators of devices": namespace(**{"resource.kubernetes.io/admin-access": "true"}),
    "sidecars": namespace(**{"istio-injection": "enabled"}),
    "nodes by annotation": changed(
        namespace(), "metadata/annotations", {"scheduler.alpha.kubernetes.io/node-selector": "a=b"}
    ),
    "finalizers": changed(namespace(), "metadata/finalizers", ["example.com/never"]),
    "finalizers of its spec": changed(namespace(), "spec", {"finalizers": ["kubernetes", "example.com/never"]}),
    "owners": changed(
        namespace(), "metadata/ownerReferences", [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]
    ),
}


@pytest.mark.parametrize("attack", NAMESPACES)
def test_a_thief_creates_no_namespace_with(cluster, attack):
    told = cluster.refused("POST", "/api/v1/namespaces", NAMESPACES[attack])
    assert "switchyard-makes-only-its-own-namespaces" in told
    unnamed = changed(NAMESPACES[attack], "metadata/name", REMOVED)
    if "name" not in attack:
        cluster.refused("POST", "/api/v1/namespaces", changed(unnamed, "metadata/generateName", "swy-new-"))


@pytest.mark.parametrize("name", [OURS, UNLABELLED, LABELLED, "kube-system"])
def test_a_thief_changes_and_deletes_no_namespace(cluster, name):
    for patch in (
        {"metadata": {"labels": {ENFORCE: "privileged"}}},
        {"metadata": {"labels": {"switchyard.dev/install": "x"}}},
    ):
        cluster.refused("PATCH", f"/api/v1/namespaces/{name}", patch, MERGE)
        cluster.refused("PATCH", f"/api/v1/namespaces/{name}/status", patch, MERGE)
    for attack in (("PUT", f"/api/v1/namespaces/{name}/finalize"), ("DELETE", f"/api/v1/namespaces/{name}")):
        assert cluster.thief.request(*attack, json={"metadata": {"name": name}}).status_code == FORBIDDEN


def policy(**changes):
    made = changed(WORKING["networkpolicies"], "metadata/namespace", OURS)
    for path, value in changes.items():
        made = changed(made, path, value)
    return made


MATES = {"podSelector": {"matchLabels": {"switchyard.dev/attempt": "a"}}}
GANG = {**MATES, "policyTypes": ["Ingress", "Egress"], "ingress": [{"from": [MATES]}], "egress": [{"to": [MATES]}]}
ALL = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


def reaching(cidr, *holes):
    return ("switchyard", {**ALL, "egress": [{"to": [{"ipBlock": {"cidr": cidr, "except": list(holes)}}]}]})


POLICIES = {
    "lets all in": ("switchyard", {**ALL, "ingress": [{}]}),
    "lets a block in": ("switchyard", {**ALL, "ingress": [{"from": [{"ipBlock": {"cidr": "8.8.8.8/32"}}]}]}),
    "says nothing of what comes in": ("switchyard", {"podSelector": {}, "policyTypes": ["Egress"]}),
    "says nothing of what goes out": ("switchyard", {"podSelector": {}, "policyTypes": ["Ingress"]}),
    "is about some pods": ("switchyard", {**ALL, "podSelector": {"matchLabels": {"a": "b"}}}),
    "lets everything out": ("switchyard", {**ALL, "egress": [{}]}),
    "lets out by port alone": ("switchyard", {**ALL, "egress": [{"ports": [{"port": 53, "protocol": "UDP"}]}]}),
    "reaches everything": reaching("0.0.0.0/0"),
    "reaches everything by halves": reaching("128.0.0.0/1"),
    "reaches metadata": reaching("169.254.169.254/32"),
    "reaches metadata by a narrow block": reaching("169.254.169.252/30"),
    "reaches metadata by a wide block": reaching("168.0.0.0/7", "169.254.169.254/32"),
    "reaches metadata of one cloud": reaching("168.63.0.0/16"),
    "reaches metadata over ipv6": reaching("fd00::/8"),
    "reaches metadata behind nat64": reaching("64:ff9b::/96"),
    "reaches link-local over ipv6": reaching("fe80::1/128"),
    "reaches foreign pods": ("switchyard", {**ALL, "egress": [{"to": [{"namespaceSelector": {}}]}]}),
    "reaches all of kube-system": (
        "switchyard",
        {**ALL, "egress": [{"to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}]}]},
    ),
    "has another name": ("open", ALL),
    "is a gang's of all pods": ("swy-gang", ALL),
    "is a gang's that lets strangers in": ("swy-gang", {**GANG, "ingress": [{"from": [MATES, {"podSelector": {}}]}]}),
    "is a gang's that lets all in": ("swy-gang", {**GANG, "ingress": [{}]}),
    "is a gang's that lets all out": ("swy-gang", {**GANG, "egress": [{}]}),
    "is a gang's of any label": (
        "swy-gang", {**ALL, "podSelector": {"matchLabels": {"switchyard.dev/install": "probe"}}},
    ),
    "is a gang's by an expression": (
        "swy-gang", {**ALL, "podSelector": {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("attack", POLICIES)
def test_a_thief_writes_no_network_policy_that(cluster, attack):
    name, spec = POLICIES[attack]
    made = changed(changed(policy(), "metadata/name", name), "spec", spec)
    for method, path, kind in (
        ("PATCH", f"{folder('networkpolicies')}/{name}", APPLY), ("POST", folder("networkpolicies"), "application/json"),
    ):  # fmt: skip
        cluster.refused(method, path, made, kind)


@pytest.mark.parametrize("where", ["kube-system", "default", UNLABELLED, LABELLED, OPEN])
def test_a_thief_writes_no_network_policy_for_others(cluster, where):
    made = changed(policy(), "metadata/namespace", where)
    cluster.refused("PATCH", f"{folder('networkpolicies', where)}/switchyard", made, APPLY)


def test_what_the_gateway_writes_around_pods_is_let_in(cluster):
    for name, spec in (("switchyard", ALL), ("swy-gang", GANG)):
        made = changed(changed(policy(), "metadata/name", name), "spec", spec)
        assert cluster.attempt("PATCH", f"{folder('networkpolicies')}/{name}", made, APPLY).is_success


CLAIM = "spec/spec/devices"
CLAIMS = {
    "all devices": (f"{CLAIM}/requests/0/exactly", {"deviceClassName": "x", "allocationMode": "All"}),
    "too many": (f"{CLAIM}/requests/0/exactly/count", 33),
    "orders to the driver": (f"{CLAIM}/config", [{"opaque": {"driver": "gpu.nvidia.com", "parameters": {"a": "b"}}}]),
    "a choice": (
        f"{CLAIM}/requests/0",
        {
            "name": "d",
            "firstAvailable": [{"name": "a", "deviceClassName": "x", "allocationMode": "ExactCount", "count": 1}],
        },
    ),
    "tainted devices": (f"{CLAIM}/requests/0/exactly/tolerations", [{"operator": "Exists"}]),
    "another name": ("metadata/name", "theirs"),
    "labels of others": ("spec/metadata/labels", {"example.com/x": "y"}),
    "annotations": ("spec/metadata/annotations", {"example.com/x": "y"}),
}


@pytest.mark.parametrize("attack", CLAIMS)
def test_a_thief_writes_no_claim_template_with(cluster, attack):
    made = changed(WORKING["resourceclaimtemplates"], "metadata/namespace", OURS)
    made = changed(made, *CLAIMS[attack])
    cluster.refused("POST", folder("resourceclaimtemplates"), made)


def test_a_thief_claims_nothing_as_an_administrator_and_nothing_elsewhere(cluster):
    made = changed(WORKING["resourceclaimtemplates"], "metadata/namespace", OURS)
    made = changed(made, f"{CLAIM}/requests/0/exactly/adminAccess", True)
    assert not cluster.thief.post(folder("resourceclaimtemplates"), json=made).is_success
    made = changed(WORKING["resourceclaimtemplates"], "metadata/namespace", "default")
    cluster.refused("POST", folder("resourceclaimtemplates", "default"), made)


SECRET: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {
        "name": "swy-s-thief",
        "labels": job()["metadata"]["labels"],
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u"}],
    },
    "type": "Opaque",
    "immutable": True,
    "data": {"s0": "eA=="},
}
SECRETS: dict[str, tuple[str, object]] = {
    "a token of an account": ("type", "kubernetes.io/service-account-token"),
    "a bootstrap token": ("type", "bootstrap.kubernetes.io/token"),
    "a certificate": ("type", "kubernetes.io/tls"),
    "of another kind": ("type", "example.com/theirs"),
    "that can change": ("immutable", False),
    "that can change by silence": ("immutable", REMOVED),
    "named otherwise": ("metadata/name", "thief"),
    "without labels": ("metadata/labels", {}),
    "a label too few": ("metadata/labels/switchyard.dev~attempt", REMOVED),
    "a label of its own": ("metadata/labels/example.com~x", "y"),
    "annotations": ("metadata/annotations", {"example.com/x": "y"}),
    "finalizers": ("metadata/finalizers", ["example.com/never"]),
    "without an owner": ("metadata/ownerReferences", []),
    "owned by a pod": ("metadata/ownerReferences", [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]),
}


@pytest.mark.parametrize("what", SECRETS)
def test_a_thief_creates_no_secret(cluster, what):
    made = set_at(SECRET, *SECRETS[what])
    if what == "a token of an account":
        made["metadata"]["annotations"] = {"kubernetes.io/service-account.name": "default"}
        made["data"] = {}
    if what == "a certificate":
        made["data"] = {"tls.crt": "eA==", "tls.key": "eA=="}
    told = cluster.refused("POST", f"/api/v1/namespaces/{OURS}/secrets", made)
    assert "switchyard-creates-only-secrets-of-its-jobs" in told


@pytest.mark.parametrize("namespace", ["kube-system", "default", "switchyard-system", UNLABELLED, LABELLED, OPEN])
def test_a_thief_creates_no_secret_outside_the_gateways_own_namespaces(cluster, namespace):
    cluster.refused("POST", f"/api/v1/namespaces/{namespace}/secrets", SECRET)


def test_a_secret_as_the_gateway_writes_it_is_let_in_and_never_read_changed_or_deleted_by_it(cluster):
    folder_ = f"/api/v1/namespaces/{OURS}/secrets"
    owned = changed(SECRET, "metadata/name", "swy-s-fair")
    assert cluster.attempt("POST", folder_, owned).status_code == 201
    for method, path, body in (
        ("GET", "/swy-s-fair", None), ("GET", "", None), ("DELETE", "/swy-s-fair", None), ("DELETE", "", None),
        ("PATCH", "/swy-s-fair", {"data": {"s0": "eQ=="}}), ("PUT", "/swy-s-fair", owned),
    ):  # fmt: skip
        kind = MERGE if method == "PATCH" else "application/json"
        answer = cluster.thief.request(method, f"{folder_}{path}", json=body, headers={"Content-Type": kind})
        assert answer.status_code == FORBIDDEN, (method, path, answer.text)
