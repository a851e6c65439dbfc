"""Registering real control planes, with the published role and with others, and what that role may do there."""

import base64
import time

import pytest

from clusters.drivers import connections
from clusters.models import Cluster
from clusters.queries import address_of_registered
from devtools.localfleet.admin import apply, apply_file, mint_token
from devtools.localfleet.admin import client as cluster_client
from tests.builders import bearer, bind, make_user

from .conftest import ACCESS_MANIFEST, gateway_token

pytestmark = [pytest.mark.kube, pytest.mark.django_db]
URL = "/api/v1/clusters"
POLICIES = "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies"
JOBS = "/apis/batch/v1/namespaces/{}/jobs"
DEADLINE_SECONDS = 60


@pytest.fixture
def headers():
    user = make_user()
    bind(user, "acme", "admin")
    yield bearer(user)
    connections.close_all()


@pytest.fixture
def post(client, headers):
    def send(plane, token, **more):
        body = {"name": plane.name, "server": plane.server, "ca_pem": plane.ca_pem, "token": token, **more}
        return client.post(URL, body, content_type="application/json", headers=headers)

    return send


def service_account(name, role=""):
    """A ServiceAccount in the default namespace, bound to a ClusterRole if one is named."""
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}}
    if role:
        yield {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        }


def eventually(check):
    """Asks until the answer is true; the API server's own caches take some seconds to follow a change."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not check():
        assert time.monotonic() < deadline, "nothing changed within the deadline"
        time.sleep(0.2)


def test_the_published_role_is_just_right(bare_clusters, post):
    plane = bare_clusters[0]
    answer = post(plane, gateway_token(plane), region="local")
    assert answer.status_code == 201, answer.content
    shown = answer.json()
    with cluster_client(plane) as admin:
        kube_system = admin.get("/api/v1/namespaces/kube-system").json()
    assert shown["identity"] == kube_system["metadata"]["uid"]
    assert shown["kubernetes_version"].startswith("v1.")
    assert shown["state"] == "ready"


def test_kueue_is_found_by_its_api_group(bare_clusters, post, client, headers):
    plane = bare_clusters[0]
    kinds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/topologies.kueue.x-k8s.io"
    schema = {"openAPIV3Schema": {"type": "object"}}
    kueue = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "topologies.kueue.x-k8s.io",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/kueue"},
        },
        "spec": {
            "group": "kueue.x-k8s.io",
            "scope": "Cluster",
            "names": {"kind": "Topology", "plural": "topologies", "singular": "topology", "listKind": "TopologyList"},
            "versions": [{"name": "v1beta1", "served": True, "storage": True, "schema": schema}],
        },
    }
    registered = post(plane, gateway_token(plane)).json()
    assert registered["capabilities"] == []

    def capabilities():
        return client.post(f"{URL}/{registered['id']}/probe", headers=headers).json()["capabilities"]

    apply(plane, [kueue])
    with cluster_client(plane) as admin:
        try:
            eventually(lambda: capabilities() == ["kueue"])
        finally:
            admin.delete(kinds).raise_for_status()
    eventually(lambda: capabilities() == [])


def test_a_kubeconfig_with_the_same_token_registers(bare_clusters, client, headers):
    plane = bare_clusters[0]
    authority = base64.b64encode(plane.ca_pem.encode()).decode()
    text = (
        "apiVersion: v1\nkind: Config\n"
        f"clusters: [{{name: c, cluster: {{server: '{plane.server}', certificate-authority-data: {authority}}}}}]\n"
        f"users: [{{name: u, user: {{token: {gateway_token(plane)}}}}}]\n"
        "contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n"
    )
    body = {"name": "by-kubeconfig", "kubeconfig": text}
    answer = client.post(URL, body, content_type="application/json", headers=headers)
    assert answer.status_code == 201, answer.content


def test_the_administrators_token_is_too_much(bare_clusters, post):
    plane = bare_clusters[0]
    answer = post(plane, plane.admin_token)
    assert (answer.status_code, answer.json()["code"]) == (422, "excess_permission")
    assert plane.admin_token not in answer.content.decode()
    assert not Cluster.everything.exists()


def test_a_bare_account_is_told_each_verb_and_resource_it_lacks(bare_clusters, post):
    plane = bare_clusters[0]
    apply(plane, service_account("bare"))
    answer = post(plane, mint_token(plane, "default", "bare"))
    assert (answer.status_code, answer.json()["code"]) == (422, "missing_permission")
    missing = {error["detail"] for error in answer.json()["errors"]}
    assert {"missing: create jobs.batch", "missing: get pods/log", "missing: watch nodes"} <= missing
    assert {error["code"] for error in answer.json()["errors"]} == {"missing_permission"}


def test_an_account_with_one_right_too_many_is_told_which(bare_clusters, post):
    plane = bare_clusters[0]
    apply_file(plane, ACCESS_MANIFEST)
    extra = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "reads-secrets"},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}],
    }
    bindings = list(service_account("greedy", "switchyard"))
    second = {**bindings[1], "metadata": {"name": "greedy-secrets"}}
    second["roleRef"] = {**second["roleRef"], "name": "reads-secrets"}
    apply(plane, [extra, *bindings, second])
    answer = post(plane, mint_token(plane, "default", "greedy"))
    assert (answer.status_code, answer.json()["code"]) == (422, "excess_permission")
    assert [error["detail"] for error in answer.json()["errors"]] == ["too much: list secrets"]


def test_attack_11_the_same_cluster_twice_is_a_conflict(bare_clusters, post):
    plane = bare_clusters[0]
    token = gateway_token(plane)
    assert post(plane, token).status_code == 201
    answer = post(plane, token, name="again")
    assert (answer.status_code, answer.json()["code"]) == (409, "cluster_already_registered")
    assert Cluster.everything.count() == 1


def test_attack_12_a_revoked_token_turns_the_cluster_auth_failed(bare_clusters, post, client, headers):
    plane = bare_clusters[1]
    apply_file(plane, ACCESS_MANIFEST)
    apply(plane, service_account("temporary", "switchyard"))
    cluster_id = post(plane, mint_token(plane, "default", "temporary")).json()["id"]
    with cluster_client(plane) as admin:
        admin.delete("/api/v1/namespaces/default/serviceaccounts/temporary").raise_for_status()

    def probe():
        return client.post(f"{URL}/{cluster_id}/probe", headers=headers).json()["state"]

    eventually(lambda: probe() == "auth_failed")
    body = {"token": gateway_token(plane)}
    answer = client.patch(f"{URL}/{cluster_id}", body, content_type="application/json", headers=headers)
    assert (answer.status_code, answer.json()["state"]) == (200, "ready"), answer.content


def test_a_credential_of_another_cluster_does_not_replace_this_ones(bare_clusters, post, client, headers):
    here, there = bare_clusters
    cluster_id = post(here, gateway_token(here)).json()["id"]
    body = {"token": gateway_token(there), "ca_pem": there.ca_pem}
    answer = client.patch(f"{URL}/{cluster_id}", body, content_type="application/json", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (422, "tls_failed")
    assert address_of_registered(Cluster.objects.get().id).ca_pem == here.ca_pem


def test_attack_74_a_stolen_token_writes_to_the_gateways_namespaces_only(bare_clusters, namespace_name):
    plane = bare_clusters[0]
    token = gateway_token(plane)
    ours, label = f"swy-{namespace_name}", {"switchyard.dev/install": "thief"}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "thief"},
        "spec": {
            "suspend": True,
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}},
        },
    }
    with cluster_client(plane, token) as thief, cluster_client(plane) as admin:
        # The API server takes a moment to heed a new policy.
        eventually(
            lambda: thief.post(JOBS.format("kube-system"), json=job, params={"dryRun": "All"}).status_code == 403
        )
        admin.post(JOBS.format("default"), json=job).raise_for_status()
        refused = [
            thief.post("/api/v1/namespaces", json={"metadata": {"name": namespace_name}}),
            thief.post("/api/v1/namespaces", json={"metadata": {"name": namespace_name, "labels": label}}),
            thief.post(JOBS.format("default"), json=job),
            thief.patch(
                f"{JOBS.format('default')}/thief",
                json={"spec": {"suspend": False}},
                headers={"Content-Type": "application/merge-patch+json"},
            ),
            thief.delete(f"{JOBS.format('default')}/thief"),
            thief.patch(
                f"{POLICIES.format('default')}/open",
                json={
                    "apiVersion": "networking.k8s.io/v1",
                    "kind": "NetworkPolicy",
                    "metadata": {"name": "open"},
                    "spec": {"podSelector": {}},
                },
                headers={"Content-Type": "application/apply-patch+yaml"},
                params={"fieldManager": "thief"},
            ),
            thief.delete(f"{POLICIES.format(ours)}/switchyard"),
            thief.get("/api/v1/secrets"),
            thief.get("/api/v1/namespaces/kube-system/secrets"),
            thief.post("/api/v1/namespaces/default/serviceaccounts/default/token", json={"spec": {}}),
        ]
        assert [answer.status_code for answer in refused] == [403] * 10
        for name, labels in ((ours, {}), (f"{ours}-labelled", label)):
            made = thief.post("/api/v1/namespaces", json={"metadata": {"name": name, "labels": labels}})
            assert made.status_code == 201
            assert thief.post(JOBS.format(name), json=job).status_code == 201
            assert thief.delete(f"{JOBS.format(name)}/thief").status_code == 200
