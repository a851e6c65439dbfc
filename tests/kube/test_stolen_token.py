"""Whoever steals a cluster's token gets nothing that the gateway does not do itself: pods, and all else that an API server has, tried
on a real one.
"""

import time
from typing import Any

import pytest

from devtools.localfleet.admin import apply

from .attacks import OURS, POD, TOKEN, WORKING, changed, folder, fresh, job, set_at
from .stolen import (
    ACCOUNT,
    APPLY,
    ENFORCE,
    FORBIDDEN,
    JSON_PATCH,
    LABELLED,
    MERGE,
    OPEN,
    STRATEGIC,
    UNLABELLED,
)

pytestmark = pytest.mark.kube


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
    """The account as if somebody had given it every right there is. The gateway's policy is there, for it to attack."""
    written = cluster.attempt(
        "PATCH",
        f"{folder('networkpolicies')}/switchyard",
        changed(WORKING["networkpolicies"], "metadata/namespace", OURS),
        APPLY,
    )
    assert written.is_success, written.text
    name = "almighty"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name}}
    apply(cluster.plane, [{**binding, "roleRef": role, "subjects": [ACCOUNT]}])
    eventually(lambda: cluster.thief.get("/api/v1/secrets").is_success)
    yield cluster
    cluster.admin.delete(f"{folder('networkpolicies')}/switchyard").raise_for_status()
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
        ("PATCH", f"{folder('jobs')}/gated/status", {"metadata": {"annotations": {"a": "b"}}}, MERGE),
        ("POST", f"{folder('pods')}/lone/eviction", {"metadata": {"name": "lone"}}),
        ("DELETE", f"{folder('networkpolicies')}/switchyard", None),
    ],
    ids=lambda attack: f"{attack[0]} {attack[1]}",
)
def test_the_policies_hold_whatever_the_role_may_ever_say(almighty, pods, attack):
    assert pods
    told = almighty.refused(*attack)
    assert "ValidatingAdmissionPolicy 'switchyard-" in told


STRANGE: dict[str, dict[str, Any]] = {
    "an account's token": {"volumes": [{"name": "v", "projected": {"sources": [TOKEN]}}]},
    "a node by name": {"nodeName": "control-plane"},
    "every taint": {"tolerations": [{"operator": "Exists"}]},
    "control planes": {"tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]},
    "secrets": {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]},
    "a volume of its own driver": {"volumes": [{"name": "v", "csi": {"driver": "host.csi.example"}}]},
    "a new volume of a class that is not listed": {"volumes": [{"name": "v", **fresh()}]},
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
