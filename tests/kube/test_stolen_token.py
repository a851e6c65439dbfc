"""Whoever steals a cluster's token gets nothing that the gateway does not do itself: tried on a real API server.

Each attack is first made by an administrator (a dry run), who is let through; so it is the published manifest that stops the
thief, and no mistake in the attack.
"""

import contextlib
import time
from copy import deepcopy
from typing import Any
from urllib.parse import urlencode

import pytest

from devtools.localfleet.admin import apply, client

from . import attacks
from .attacks import DEVICES, JOBS, NEVER_VALID, OURS, POD, REMOVED, TOKEN, WORKING, changed, folder, job, set_at
from .conftest import gateway_token

pytestmark = pytest.mark.kube
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
APPLY, JSON_PATCH = "application/apply-patch+yaml", "application/json-patch+json"
ACCOUNT = {"kind": "ServiceAccount", "name": "switchyard", "namespace": "switchyard-system"}
FORBIDDEN, INVALID = 403, 422
UNLABELLED, LABELLED, OPEN = "swy-unlabelled", "labelled", "swy-open"


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


def namespace(**labels):
    made = deepcopy(dict(WORKING["namespaces"]))
    made["metadata"] = {"name": "swy-new", "labels": {**made["metadata"]["labels"], **labels}}
    return made


ENFORCE = "pod-security.kubernetes.io/enforce"
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


@pytest.fixture(scope="module")
def pods(cluster):
    """A pod of a Job of ours behind two gates, and two that others have made, by name and namespace."""
    behind = [{"name": "switchyard.dev/topology"}, {"name": "example.com/other"}]
    made = set_at(changed(job("gated"), f"{POD}/schedulingGates", behind), "spec/suspend", value=False)
    cluster.admin.post(folder("jobs"), json=made).raise_for_status()
    lone = {
        "metadata": {"name": "lone", "labels": made["metadata"]["labels"]},
        "spec": made["spec"]["template"]["spec"],
    }
    cluster.admin.post(folder("pods"), json=lone).raise_for_status()
    apply(
        cluster.plane,
        [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": OPEN}}],
    )
    cluster.admin.post(folder("pods", OPEN), json=lone).raise_for_status()
    selector = {"labelSelector": "batch.kubernetes.io/job-name=gated"}
    for _ in range(100):
        found = cluster.admin.get(folder("pods"), params=selector).json()["items"]
        if found:
            return {"ours": f"{folder('pods')}/{found[0]['metadata']['name']}", "lone": f"{folder('pods')}/lone",
                    "foreign": f"{folder('pods', OPEN)}/lone"}  # fmt: skip
        time.sleep(0.1)
    raise AssertionError("the Job made no pod")


LIKED = {"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}
MUST = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}
OPENED = {"schedulingGates": [{"name": "switchyard.dev/topology", "$patch": "delete"}]}
CHANGES = {
    "its image": {"spec": {"containers": [{"name": "probe", "image": "evil.example/thief"}]}},
    "its labels": {"metadata": {"labels": {"switchyard.dev/tenant": "another"}}},
    "its annotations": {"metadata": {"annotations": {"cdi.k8s.io/thief": "nvidia.com/gpu=all"}}},
    "its finalizers": {"metadata": {"finalizers": ["example.com/never"]}},
    "its tolerations": [{"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}}],
    "its deadline": {"spec": {"activeDeadlineSeconds": 1}},
    "its node selector": {"spec": {"nodeSelector": {"a": "b"}}},
    "others' gates": {"spec": {"schedulingGates": [{"name": "example.com/other", "$patch": "delete"}]}},
    "where it must go": {
        "spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": MUST}}, **OPENED}
    },
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_thief_changes_nothing_of_a_pod_but_its_gate_and_its_wishes(cluster, pods, what):
    cluster.refused("PATCH", pods["ours"], CHANGES[what], JSON_PATCH if what == "its tolerations" else STRATEGIC)


@pytest.mark.parametrize("whose", ["lone", "foreign"])
def test_a_thief_changes_no_pod_that_no_job_of_the_gateway_made(cluster, pods, whose):
    for patch in ({"metadata": {"annotations": {"a": "b"}}}, {"spec": OPENED}, CHANGES["its image"]):
        cluster.refused("PATCH", pods[whose], patch, STRATEGIC)


def test_the_gateway_opens_its_gate_and_says_what_the_pod_should_prefer(cluster, pods):
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [LIKED]}}
    answer = cluster.attempt("PATCH", pods["ours"], {"spec": {**OPENED, "affinity": affinity}}, STRATEGIC)
    assert answer.is_success, answer.text
    assert answer.json()["spec"]["schedulingGates"] == [{"name": "example.com/other"}]


POD_BODY = {"metadata": {"name": "thief"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
REACHES = [
    ("GET", "/api/v1/secrets"),
    ("GET", "/api/v1/namespaces/kube-system/secrets"),
    ("GET", "/api/v1/namespaces/swy-theirs/secrets/any"),
    ("GET", "/api/v1/configmaps"),
    ("GET", "/api/v1/nodes/any"),
    ("PATCH", "/api/v1/nodes/any"),
    ("DELETE", "/api/v1/nodes/any"),
    ("GET", "/api/v1/nodes/any/proxy/pods"),
    ("POST", "/api/v1/namespaces/swy-theirs/pods"),
    ("DELETE", "/api/v1/namespaces/swy-theirs/pods/lone"),
    ("POST", "/api/v1/namespaces/swy-theirs/pods/lone/exec?command=sh"),
    ("GET", "/api/v1/namespaces/swy-theirs/pods/lone/exec?command=sh"),
    ("POST", "/api/v1/namespaces/swy-theirs/pods/lone/attach"),
    ("POST", "/api/v1/namespaces/swy-theirs/pods/lone/portforward"),
    ("GET", "/api/v1/namespaces/swy-theirs/pods/lone/portforward"),
    ("GET", "/api/v1/namespaces/swy-theirs/pods/lone/portforward?ports=22"),
    ("GET", "/api/v1/namespaces/swy-theirs/pods/lone/portforward?ports=8080&ports=8081"),
    ("GET", "/api/v1/namespaces/kube-system/pods/any/portforward?ports=8080"),
    ("POST", "/api/v1/namespaces/default/pods/any/portforward?ports=8080"),
    ("GET", "/api/v1/namespaces/swy-theirs/pods/lone/proxy/"),
    ("GET", "/api/v1/namespaces/swy-theirs/pods/lone:8080/proxy/"),
    ("GET", "/api/v1/namespaces/swy-theirs/services/any/proxy/"),
    ("POST", "/api/v1/namespaces/swy-theirs/pods/lone/binding"),
    ("POST", "/api/v1/namespaces/swy-theirs/pods/lone/eviction"),
    ("PATCH", "/api/v1/namespaces/swy-theirs/pods/lone/ephemeralcontainers"),
    ("PATCH", "/api/v1/namespaces/swy-theirs/pods/lone/resize"),
    ("PATCH", "/api/v1/namespaces/swy-theirs/pods/lone/status"),
    ("POST", "/api/v1/namespaces/swy-theirs/serviceaccounts"),
    ("POST", "/api/v1/namespaces/swy-theirs/serviceaccounts/default/token"),
    ("POST", "/api/v1/namespaces/kube-system/serviceaccounts/default/token"),
    ("POST", "/api/v1/namespaces/switchyard-system/serviceaccounts/switchyard/token"),
    ("PATCH", "/apis/rbac.authorization.k8s.io/v1/clusterroles/switchyard"),
    ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"),
    ("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/swy-theirs/rolebindings"),
    (
        "DELETE",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/switchyard-makes-only-its-own-namespaces",
    ),
    ("POST", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"),
    ("POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests"),
    ("POST", "/apis/batch/v1/namespaces/swy-theirs/cronjobs"),
    ("PATCH", "/apis/batch/v1/namespaces/swy-theirs/jobs/fair/status"),
    ("POST", "/apis/apps/v1/namespaces/swy-theirs/daemonsets"),
    ("DELETE", "/apis/batch/v1/namespaces/swy-theirs/jobs"),
    ("DELETE", "/apis/networking.k8s.io/v1/namespaces/swy-theirs/networkpolicies/switchyard"),
    ("PUT", "/apis/networking.k8s.io/v1/namespaces/swy-theirs/networkpolicies/switchyard"),
    ("PATCH", "/apis/resource.k8s.io/v1/namespaces/swy-theirs/resourceclaims/any"),
    ("POST", "/apis/resource.k8s.io/v1/namespaces/swy-theirs/resourceclaims"),
    ("POST", "/apis/resource.k8s.io/v1/deviceclasses"),
]


@pytest.mark.parametrize(("method", "path"), REACHES)
def test_a_thief_reaches_nothing_else(cluster, pods, method, path):
    assert pods
    kind = MERGE if method == "PATCH" else "application/json"
    body = None if method == "GET" else POD_BODY
    answer = cluster.thief.request(method, path, json=body, headers={"Content-Type": kind})
    assert answer.status_code == FORBIDDEN, answer.text


def test_a_thief_is_nobody_else(cluster):
    for headers in ({"Impersonate-User": "admin"}, {"Impersonate-User": "x", "Impersonate-Group": "system:masters"}):
        assert cluster.thief.get("/api/v1/secrets", headers=headers).status_code == FORBIDDEN


def eventually(check):
    """Asks until it is so; the API server's own caches take a moment to follow a change."""
    for _ in range(300):
        if check():
            return
        time.sleep(0.1)
    raise AssertionError("nothing changed within the deadline")


@pytest.fixture
def almighty(cluster):
    """The account as if somebody had given it every right there is."""
    name = "almighty"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name}}
    apply(cluster.plane, [{**binding, "roleRef": role, "subjects": [ACCOUNT]}])
    eventually(lambda: cluster.thief.get("/api/v1/secrets").is_success)
    yield cluster
    cluster.admin.delete(f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{name}").raise_for_status()
    eventually(lambda: cluster.thief.get("/api/v1/secrets").status_code == FORBIDDEN)


CRON = {
    "metadata": {"name": "thief"},
    "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": WORKING["jobs"]["spec"]}},
}
LABEL = {"metadata": {"labels": {ENFORCE: "privileged"}}}
RIGHTS = "/apis/rbac.authorization.k8s.io/v1"
ADMINISTRATORS = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}


@pytest.mark.parametrize(
    "attack",
    [
        ("POST", folder("pods"), POD_BODY | {"spec": job()["spec"]["template"]["spec"]}),
        ("DELETE", f"{folder('pods')}/lone", None),
        ("POST", "/apis/batch/v1/namespaces/swy-theirs/cronjobs", CRON),
        ("POST", "/api/v1/namespaces/kube-system/configmaps", {"metadata": {"name": "thief"}}),
        ("POST", "/api/v1/namespaces/swy-theirs/secrets", {"metadata": {"name": "thief"}}),
        ("POST", f"{RIGHTS}/clusterrolebindings", {"metadata": {"name": "thief"}, "roleRef": ADMINISTRATORS}),
        ("PATCH", f"/api/v1/namespaces/{OURS}", LABEL, MERGE),
        ("PATCH", f"/api/v1/namespaces/{OURS}/status", {"metadata": {"annotations": {"a": "b"}}}, MERGE),
        ("DELETE", f"/api/v1/namespaces/{UNLABELLED}", None),
        ("PATCH", f"{folder('jobs')}/fair/status", {"metadata": {"annotations": {"a": "b"}}}, MERGE),
        ("POST", f"{folder('pods')}/lone/eviction", {"metadata": {"name": "lone"}}),
        ("DELETE", f"{folder('networkpolicies')}/switchyard", None),
    ],
    ids=lambda attack: f"{attack[0]} {attack[1]}",
)
def test_the_policies_hold_whatever_the_role_may_ever_say(almighty, pods, attack):
    assert pods
    told = almighty.refused(*attack)
    assert "ValidatingAdmissionPolicy 'switchyard-" in told


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


STRANGE: dict[str, dict[str, Any]] = {
    "an account's token": {"volumes": [{"name": "v", "projected": {"sources": [TOKEN]}}]},
    "a node by name": {"nodeName": "control-plane"},
    "every taint": {"tolerations": [{"operator": "Exists"}]},
    "control planes": {"tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]},
    "secrets": {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]},
    "a volume of its own driver": {"volumes": [{"name": "v", "csi": {"driver": "host.csi.example"}}]},
    "a file server": {"volumes": [{"name": "v", "nfs": {"server": "s", "path": "/"}}]},
    "the node's processes": {"hostPID": True},
    "the node's files": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]},
}


@pytest.mark.parametrize("what", STRANGE)
def test_no_pod_in_the_gateways_namespaces_has_more_whoever_makes_it(cluster, what):
    """The second wall: what the Job controller would make of a Job that no policy had looked at."""
    spec = {**job()["spec"]["template"]["spec"], **STRANGE[what]}
    answer = cluster.admin.post(
        folder("pods"), json={"metadata": {"name": "strange"}, "spec": spec}, params={"dryRun": "All"}
    )
    assert answer.status_code == FORBIDDEN, answer.text


def test_strangers_pods_are_none_of_its_business(cluster):
    spec = {**job()["spec"]["template"]["spec"], "tolerations": [{"operator": "Exists"}], "nodeName": "n"}
    pod = {"metadata": {"name": "strange"}, "spec": spec}
    apply(
        cluster.plane,
        [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": LABELLED}}],
    )
    for where in ("default", LABELLED):
        cluster.admin.post(folder("pods", where), json=pod, params={"dryRun": "All"}).raise_for_status()
