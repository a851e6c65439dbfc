"""Replacing a cluster's credential by a kubeconfig, over HTTP and on the cluster's page."""

import base64
import json
import re
from datetime import timedelta

import pytest

from clusters.models import Cluster, ClusterCredential, ClusterEvent
from clusters.operations import register_simulated
from clusters.queries import address_of_registered
from foundation import clock
from foundation.plain_json import instant
from tenancy.models import AuditEntry
from tests.apiserver import TOKEN, api_server, make_certificate
from tests.builders import bearer, bind, make_tenant, make_user

pytestmark = pytest.mark.django_db
URL = "/api/v1/clusters"


def token_until(at):
    """A JSON Web Token that states when it expires."""
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, {"exp": int(at.timestamp())})]
    return ".".join([*(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts), "canary-renewed"])


def kubeconfig(api, token, *, server="", ca_pem=None, user=""):
    authorities = base64.b64encode((api.ca_pem if ca_pem is None else ca_pem).encode()).decode()
    return (
        "apiVersion: v1\nkind: Config\n"
        f"clusters:\n- name: c\n  cluster: {{server: '{server or api.server}', certificate-authority-data: '{authorities}'}}\n"
        f"users:\n- name: u\n  user: {user or f'{{token: {token}}}'}\n"
        "contexts:\n- name: x\n  context: {cluster: c, user: u}\ncurrent-context: x\n"
    )


@pytest.fixture
def east(api, register):
    return Cluster.objects.get(id=register(api.body()).json()["id"])


@pytest.fixture
def patch(client, admin, east):
    """Sends the body as the administrator."""

    def send(body):
        return client.patch(f"{URL}/{east.id}", body, content_type="application/json", headers=bearer(admin))

    return send


@pytest.fixture
def assert_unchanged(east):
    """The refusal left the credential, its authorities and its end as they were, and shows no secret."""
    before = bytes(ClusterCredential.objects.get().sealed)

    def check(answer, status=422):
        assert answer.status_code == status, answer.content
        assert bytes(ClusterCredential.objects.get().sealed) == before
        now = Cluster.objects.get(id=east.id)
        assert (now.ca_pem, now.server, now.credential_expires_at) == (east.ca_pem, east.server, None)
        assert not ClusterEvent.objects.filter(kind="cluster.credential_changed").exists()
        told = answer.content.decode() + str(list(AuditEntry.objects.values()))
        assert "canary" not in told
        assert TOKEN not in told

    return check


def test_a_kubeconfig_replaces_token_and_authorities_and_is_used_from_then_on(patch, east, api, client, admin):
    expires_at = (clock.now() + timedelta(days=9)).replace(microsecond=0)
    api.token = token_until(expires_at)
    stranger, _ = make_certificate("127.0.0.1")
    answer = patch({"kubeconfig": kubeconfig(api, api.token, ca_pem=api.ca_pem + stranger), "region": "eu-1"})
    assert answer.status_code == 200, answer.content
    shown = answer.json()
    assert (shown["state"], shown["region"], shown["server"]) == ("ready", "eu-1", api.server)
    assert shown["credential_expires_at"] == instant(expires_at)
    assert "canary" not in answer.content.decode()
    known = address_of_registered(east.id)
    assert known.credential.secret == api.token.encode()
    assert known.ca_pem.count("BEGIN CERTIFICATE") == 2
    api.seen.clear()
    assert client.post(f"{URL}/{east.id}/probe", headers=bearer(admin)).json()["state"] == "ready"
    assert {sent["Authorization"] for _, _, sent in api.seen} == {f"Bearer {api.token}"}


def test_the_trail_and_the_clusters_events_say_that_the_credential_changed_and_not_to_what(patch, east, api):
    api.token = "canary-next"
    assert patch({"kubeconfig": kubeconfig(api, api.token)}).status_code == 200
    entry = AuditEntry.objects.latest("id")
    assert (entry.action, entry.object_id, entry.detail) == ("cluster.update", str(east.id), {"fields": ["credential"]})
    assert ClusterEvent.objects.filter(cluster=east, kind="cluster.credential_changed").count() == 1
    told = list(AuditEntry.objects.values()) + list(ClusterEvent.objects.values())
    assert "canary" not in str(told)
    assert b"canary" not in bytes(ClusterCredential.objects.get().sealed)


def test_a_cluster_that_refused_the_expired_credential_is_ready_with_the_new_one(patch, east, api, client, admin):
    api.token = "canary-next"
    assert client.post(f"{URL}/{east.id}/probe", headers=bearer(admin)).json()["state"] == "auth_failed"
    assert patch({"kubeconfig": kubeconfig(api, api.token)}).json()["state"] == "ready"


def test_a_kubeconfig_of_another_server_is_refused_before_any_server_sees_its_credential(patch, api, assert_unchanged):
    api.seen.clear()
    with api_server() as other:
        text = kubeconfig(other, "canary-of-another")
        answer = patch({"kubeconfig": text})
        assert other.seen == api.seen == []
    assert_unchanged(answer)
    [error] = answer.json()["errors"]
    assert (error["field"], error["code"]) == ("kubeconfig", "another_server")
    assert other.server in error["detail"]
    assert api.server in error["detail"]


def test_another_spelling_of_the_registered_server_is_the_same_server(patch, api):
    text = kubeconfig(api, api.token, server=f"{api.server}/")
    assert patch({"kubeconfig": text}).status_code == 200


def test_a_kubeconfig_must_reach_the_registered_cluster(patch, api, assert_unchanged):
    api.token, api.identity = "canary-next", "rebuilt"
    answer = patch({"kubeconfig": kubeconfig(api, api.token)})
    assert_unchanged(answer)
    assert answer.json()["code"] == "identity_changed"
    assert "kube-system uid differs" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("user", "field"),
    [
        ("{exec: {command: id, apiVersion: v1}}", "kubeconfig.users[0].user.exec"),
        ("{tokenFile: /etc/passwd}", "kubeconfig.users[0].user.tokenFile"),
        ("{token: canary-a, as: admin}", "kubeconfig.users[0].user.as"),
        ("{}", "kubeconfig.users[0].user.token"),
    ],
)
def test_a_kubeconfig_is_parsed_as_at_registration(patch, api, assert_unchanged, user, field):
    api.seen.clear()
    answer = patch({"kubeconfig": kubeconfig(api, "", user=user)})
    assert_unchanged(answer)
    assert [error["field"] for error in answer.json()["errors"]] == [field]
    assert api.seen == []


def test_a_kubeconfig_that_the_cluster_refuses_or_that_may_too_much_changes_nothing(patch, api, assert_unchanged):
    refused = patch({"kubeconfig": kubeconfig(api, "canary-unknown")})
    assert_unchanged(refused)
    assert refused.json()["code"] == "not_authorized"
    stranger, _ = make_certificate("127.0.0.1")
    refused = patch({"kubeconfig": kubeconfig(api, api.token, ca_pem=stranger)})
    assert_unchanged(refused)
    assert refused.json()["code"] == "tls_failed"
    api.rules = [*api.rules, {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    refused = patch({"kubeconfig": kubeconfig(api, api.token)})
    assert_unchanged(refused)
    assert refused.json()["code"] == "excess_permission"


def test_a_kubeconfig_goes_with_no_other_credential(patch, api, assert_unchanged):
    for name in ("token", "ca_pem", "client_certificate_pem", "client_key_pem"):
        answer = patch({"kubeconfig": kubeconfig(api, "canary-a"), name: "canary-b"})
        assert_unchanged(answer)
        assert [(error["field"], error["code"]) for error in answer.json()["errors"]] == [(name, "given_twice")]


def test_a_kubeconfig_of_megabytes_is_refused_by_name(patch, api, assert_unchanged):
    answer = patch({"kubeconfig": kubeconfig(api, "canary-a") + "#" * 3_000_000})
    assert_unchanged(answer)
    assert [(error["field"], error["code"]) for error in answer.json()["errors"]] == [("kubeconfig", "too_long")]


def test_tenants_below_the_owner_do_not_replace_its_credential(client, api, east, assert_unchanged):
    member = make_user()
    bind(member, "acme/research", "admin")
    body = {"kubeconfig": kubeconfig(api, "canary-a")}
    api.seen.clear()
    answer = client.patch(f"{URL}/{east.id}", body, content_type="application/json", headers=bearer(member))
    assert_unchanged(answer, 403)
    client.force_login(member)
    assert_unchanged(client.post(f"/clusters/{east.id}/credential/", body), 403)
    assert 'action="/clusters' not in client.get(f"/clusters/{east.id}/").content.decode()
    assert api.seen == []
    client.force_login(make_user())
    assert_unchanged(client.post(f"/clusters/{east.id}/credential/", body), 404)


def test_the_page_replaces_the_credential_and_says_when_the_new_one_expires(client, admin, api, east):
    client.force_login(admin)
    api.token = token_until(clock.now() + timedelta(days=1))
    body = {"kubeconfig": kubeconfig(api, api.token)}
    answer = client.post(f"/clusters/{east.id}/credential/", body, follow=True)
    page = answer.content.decode()
    assert f"The gateway uses the new credential of {east.name}." in page
    assert '<a href="#credential">Replace it</a> before' in page
    assert api.token not in page
    assert address_of_registered(east.id).credential.secret == api.token.encode()


REFUSALS = {
    "": "paste the kubeconfig",
    " \n": "paste the kubeconfig",
    "a: b": "this key is not supported",
    "unknown token": "The cluster does not accept the credential",
    "another server": "but this cluster is registered as",
}


def test_the_page_shows_a_refusal_at_its_form_without_what_was_typed(client, admin, api, assert_unchanged, east):
    texts = {
        "unknown token": kubeconfig(api, "canary-unknown"),
        "another server": kubeconfig(api, "canary-a", server="https://203.0.113.9:6443"),
    }
    client.force_login(admin)
    for text, said in REFUSALS.items():
        answer = client.post(f"/clusters/{east.id}/credential/", {"kubeconfig": texts.get(text, text)})
        assert_unchanged(answer)
        [form] = re.findall(r'aria-labelledby="credential">.*?</section>', answer.content.decode(), re.DOTALL)
        assert said in form
        assert "apiVersion" not in form


def test_a_simulated_cluster_offers_no_form_and_has_no_credential_to_replace(client, admin, settings, tmp_path):
    settings.HOME = tmp_path
    cluster = register_simulated(make_tenant("acme"), "sim-1")
    client.force_login(admin)
    assert "Replace the credential" not in client.get(f"/clusters/{cluster.id}/").content.decode()
    text = "apiVersion: v1"
    assert client.post(f"/clusters/{cluster.id}/credential/", {"kubeconfig": text}).status_code == 409
    body = {"kubeconfig": text}
    answer = client.patch(f"{URL}/{cluster.id}", body, content_type="application/json", headers=bearer(admin))
    assert (answer.status_code, answer.json()["code"]) == (409, "state_conflict")
