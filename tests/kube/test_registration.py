"""Registering real control planes, with the published role and with others, and what that role may do there."""

import base64
import html
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from clusters.drivers import connections
from clusters.models import Cluster
from clusters.queries import address_of_registered
from devtools.localfleet.admin import apply, apply_file, mint_token
from devtools.localfleet.admin import client as cluster_client
from devtools.programs import unpack
from tests.builders import bearer, bind, make_user

from .conftest import ACCESS_MANIFEST, gateway_token

pytestmark = [pytest.mark.kube, pytest.mark.django_db]
URL = "/api/v1/clusters"
DRY = {"dryRun": "All"}
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
EARLIER_MANIFEST = Path(__file__).parent / "manifests" / "cluster_access_before_bounds.yaml"
ACCOUNT = ("switchyard-system", "switchyard")
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


def test_the_commands_of_the_registration_page_make_a_kubeconfig_that_it_takes(bare_clusters, client, tmp_path):
    user = make_user()
    bind(user, "acme", "admin")
    client.force_login(user)
    (tmp_path / "cluster-access.yaml").write_bytes(client.get("/clusters/access.yaml").content)
    shown = html.unescape(client.get("/clusters/register/").content.decode())
    commands = shown.partition('aria-label="Commands">')[2].partition("</pre>")[0]
    unpack("kubectl", tmp_path)
    machine = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "KUBECONFIG": str(bare_clusters[0].layout.kubeconfig),
    }
    told = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=tmp_path,
        env=machine,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    kubeconfig = told.stdout[told.stdout.index("apiVersion:") :]
    form = {"by": "kubeconfig", "kubeconfig": kubeconfig, "name": "first", "tenant": "acme"}
    answer = client.post("/clusters/register/", form)
    connections.close_all()
    assert (answer.status_code, Cluster.objects.get().name) == (302, "first"), answer.content.decode()


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
    assert [error["detail"] for error in answer.json()["errors"]] == ["excess: list secrets"]


def test_attack_11_the_same_cluster_twice_is_a_conflict(bare_clusters, post):
    plane = bare_clusters[0]
    token = gateway_token(plane)
    assert post(plane, token).status_code == 201
    answer = post(plane, token, name="again")
    assert (answer.status_code, answer.json()["code"]) == (409, "cluster_already_registered")
    assert Cluster.everything.count() == 1


def revocable_token(plane):
    """A token of the published account that is valid for as long as a Secret stands, and that Secret's path."""
    gateway_token(plane)
    folder = "/api/v1/namespaces/switchyard-system"
    secret = {"metadata": {"name": "lease"}}
    with cluster_client(plane) as admin:
        uid = admin.post(f"{folder}/secrets", json=secret).raise_for_status().json()["metadata"]["uid"]
        bound = {"kind": "Secret", "apiVersion": "v1", "name": "lease", "uid": uid}
        body = {"spec": {"boundObjectRef": bound, "expirationSeconds": 3600}}
        answer = admin.post(f"{folder}/serviceaccounts/switchyard/token", json=body).raise_for_status()
    return answer.json()["status"]["token"], f"{folder}/secrets/lease"


def test_attack_12_a_revoked_token_turns_the_cluster_auth_failed(bare_clusters, post, client, headers):
    plane = bare_clusters[1]
    token, lease = revocable_token(plane)
    cluster_id = post(plane, token).json()["id"]
    with cluster_client(plane) as admin:
        admin.delete(lease).raise_for_status()

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


def test_attack_74_an_account_that_the_policies_are_not_for_is_refused_although_its_role_fits(bare_clusters, post):
    plane = bare_clusters[0]
    gateway_token(plane)
    apply(plane, service_account("unconfined", "switchyard"))
    answer = post(plane, mint_token(plane, "default", "unconfined"))
    assert (answer.status_code, answer.json()["code"]) == (422, "excess_permission")
    assert "create a namespace of privileged pods" in answer.json()["detail"]
    assert not Cluster.everything.exists()


@pytest.fixture
def with_the_earlier_manifest(bare_clusters):
    """A cluster that nobody has applied the present manifest to."""
    plane = bare_clusters[1]
    gateway_token(plane)
    with cluster_client(plane) as admin:
        for kind in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
            for found in admin.get(f"{ADMISSION}/{kind}").json()["items"]:
                admin.delete(f"{ADMISSION}/{kind}/{found['metadata']['name']}").raise_for_status()
        admin.delete("/apis/rbac.authorization.k8s.io/v1/clusterroles/switchyard").raise_for_status()
    apply_file(plane, EARLIER_MANIFEST)
    with cluster_client(plane, mint_token(plane, *ACCOUNT)) as thief:
        privileged = {"metadata": {"name": "swy-open", "labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}
        strange = {"metadata": {"name": "strange"}}

        def is_as_it_was():
            told = [
                thief.post("/api/v1/namespaces", json=made, params=DRY).status_code for made in (privileged, strange)
            ]
            return told == [201, 403]

        eventually(is_as_it_was)
    yield plane
    gateway_token(plane)


def test_the_earlier_manifest_is_named_as_too_powerful(with_the_earlier_manifest, post):
    plane = with_the_earlier_manifest
    answer = post(plane, mint_token(plane, *ACCOUNT))
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (422, "missing_permission")
    told = {"missing: create services", "missing: get services", "excess: list events", "excess: get pods"}
    assert {error["detail"] for error in problem["errors"]} >= told
    with cluster_client(plane) as admin:
        role = next(
            found for found in yaml.safe_load_all(ACCESS_MANIFEST.read_text()) if found["kind"] == "ClusterRole"
        )
        admin.put("/apis/rbac.authorization.k8s.io/v1/clusterroles/switchyard", json=role).raise_for_status()
    eventually(lambda: "a stolen credential could" in post(plane, mint_token(plane, *ACCOUNT)).content.decode())
    problem = post(plane, mint_token(plane, *ACCOUNT)).json()
    assert problem["code"] == "excess_permission"
    assert "`kubectl apply -f cluster-access.yaml`" in problem["detail"]
    assert {error["detail"] for error in problem["errors"] if error["code"] == "excess_permission"} == {
        "a stolen credential could: create a namespace of privileged pods",
        "a stolen credential could: create a namespace without labels",
        "a stolen credential could: create a Job of privileged pods that see the whole node",
        "a stolen credential could: create a Job that runs as any ServiceAccount",
        "a stolen credential could: create a Job on control-plane nodes",
        "a stolen credential could: open a tenant's namespace with a NetworkPolicy",
        "a stolen credential could: claim all devices of a class",
        "a stolen credential could: open a Service to the outside",
        "a stolen credential could: send a Service's clients to other pods",
        "a stolen credential could: make a ServiceAccount's token",
    }
    assert not Cluster.everything.exists()


def test_a_registered_cluster_shows_that_its_manifest_is_an_earlier_one_and_goes_on(
    bare_clusters, post, client, headers, request
):
    plane = bare_clusters[1]
    cluster_id = post(plane, gateway_token(plane)).json()["id"]
    request.getfixturevalue("with_the_earlier_manifest")

    def is_held_against_it(shown):
        messages = {reason["code"]: reason["message"] for reason in shown["reasons"]}
        assert "create a namespace of privileged pods" in messages["excess_permission"]
        assert "no job of several pods" in messages["missing_permission"]
        return shown["state"] == "degraded"

    assert is_held_against_it(client.post(f"{URL}/{cluster_id}/probe", headers=headers).json())
    body = {"token": mint_token(plane, *ACCOUNT)}
    renewed = client.patch(f"{URL}/{cluster_id}", body, content_type="application/json", headers=headers)
    assert renewed.status_code == 200, renewed.content
    assert is_held_against_it(renewed.json())
    gateway_token(plane)
    eventually(lambda: client.post(f"{URL}/{cluster_id}/probe", headers=headers).json()["state"] == "ready")
