"""Registering a cluster over HTTP against a real TLS server."""

from datetime import timedelta

import pytest

from clusters.models import Cluster, ClusterCredential, ClusterEvent
from foundation.models import OutboxMessage
from tenancy.models import AuditEntry
from tests.apiserver import api_server, make_certificate
from tests.builders import bearer, bind, make_tenant, make_user

pytestmark = pytest.mark.django_db


def nothing_left_behind():
    rows = (Cluster.everything.count(), ClusterCredential.objects.count(), ClusterEvent.objects.count())
    assert rows == (0, 0, 0)
    assert not AuditEntry.objects.filter(outcome="done").exists()


def test_a_cluster_is_registered_and_shown_without_its_credential(api, register):
    answer = register(api.body(region="eu-west-1", provider="aws", labels={"team": "ml"}))
    assert answer.status_code == 201, answer.content
    shown = answer.json()
    assert set(shown) == {
        "id", "name", "tenant", "server", "region", "provider", "labels", "state", "reasons", "identity",
        "kubernetes_version", "capabilities", "credential_expires_at", "last_seen_at", "observed_at", "is_stale", "created_at", "flavors",
    }  # fmt: skip
    assert shown["name"] == "east"
    assert shown["tenant"] == "acme"
    assert shown["state"] == "ready"
    assert shown["reasons"] == []
    assert shown["identity"] == api.identity
    assert shown["kubernetes_version"] == "v1.36.2"
    assert shown["labels"] == {"team": "ml"}
    assert shown["flavors"] == []


def test_registration_writes_credential_audit_event_and_bell_together(api, register, admin):
    cluster_id = register(api.body()).json()["id"]
    credential = ClusterCredential.objects.get(cluster_id=cluster_id)
    assert credential.kind == "token"
    assert credential.key_id == "test"
    assert api.token.encode() not in bytes(credential.sealed)
    entry = AuditEntry.objects.get(action="cluster.register")
    assert (entry.actor_id, entry.object_id, entry.outcome) == (admin.id, cluster_id, "done")
    assert ClusterEvent.objects.get().kind == "cluster.registered"
    assert {"cycle", "observe"} <= set(OutboxMessage.objects.values_list("topic", flat=True))


def test_a_wrong_token_is_not_authorized(api, register):
    answer = register(api.body(token="wrong"))
    assert (answer.status_code, answer.json()["code"]) == (422, "not_authorized")
    nothing_left_behind()


def test_rights_on_devices_are_asked_for_where_devices_can_be_claimed(api, register):
    api.rules = [rule for rule in api.rules if rule["apiGroups"] != ["resource.k8s.io"]]
    api.groups = ["batch", "resource.k8s.io"]
    answer = register(api.body())
    assert (answer.status_code, answer.json()["code"]) == (422, "missing_permission")
    assert "list resourceslices.resource.k8s.io" in answer.content.decode()
    nothing_left_behind()
    api.groups = ["batch"]
    assert register(api.body()).status_code == 201


def test_a_server_that_does_not_listen_is_unreachable(register):
    with api_server() as gone:
        body = gone.body()
    answer = register(body)
    assert (answer.status_code, answer.json()["code"]) == (422, "unreachable")
    nothing_left_behind()


def test_a_name_that_does_not_resolve_is_unreachable(register):
    answer = register({"name": "east", "server": "https://no-such-host.invalid", "token": "t"})
    assert (answer.status_code, answer.json()["code"]) == (422, "unreachable")
    nothing_left_behind()


def test_another_authority_is_tls_failed(api, register):
    stranger, _ = make_certificate("127.0.0.1")
    answer = register(api.body(ca_pem=stranger))
    assert (answer.status_code, answer.json()["code"]) == (422, "tls_failed")
    nothing_left_behind()
    assert api.seen == []


def test_no_authority_means_the_systems_own_which_do_not_know_ours(api, register):
    answer = register(api.body(ca_pem=None))
    assert (answer.status_code, answer.json()["code"]) == (422, "tls_failed")


def test_a_certificate_for_another_name_is_tls_failed(register):
    with api_server("another.example") as api:
        answer = register(api.body())
    assert (answer.status_code, answer.json()["code"]) == (422, "tls_failed")


def test_a_server_without_tls_is_refused(register):
    with api_server(tls=False) as api:
        answer = register(api.body())
    assert (answer.status_code, answer.json()["code"]) == (422, "tls_failed")


def test_too_few_rights_are_named(api, register):
    api.rules = [rule for rule in api.rules if rule["resources"] != ["nodes"] or rule["verbs"] != ["watch"]]
    answer = register(api.body())
    assert (answer.status_code, answer.json()["code"]) == (422, "missing_permission")
    assert [error["detail"] for error in answer.json()["errors"]] == ["missing: watch nodes"]
    nothing_left_behind()


def test_too_many_and_too_few_rights_are_told_together(api, register):
    api.rules = [
        *(rule for rule in api.rules if rule["resources"] != ["pods/log"]),
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]},
    ]
    problem = register(api.body()).json()
    assert problem["code"] == "missing_permission"
    assert [(error["code"], error["detail"]) for error in problem["errors"]] == [
        ("missing_permission", "missing: get pods/log"),
        ("excess_permission", "excess: get secrets"),
        ("excess_permission", "excess: list secrets"),
    ]


@pytest.mark.parametrize("hours", [-2, 2])
def test_a_clock_hours_away_is_clock_skew(api, register, hours):
    api.clock_offset = timedelta(hours=hours)
    answer = register(api.body())
    assert (answer.status_code, answer.json()["code"]) == (422, "clock_skew")
    nothing_left_behind()


def test_a_clock_half_a_minute_away_is_accepted(api, register):
    api.clock_offset = timedelta(seconds=30)
    assert register(api.body()).status_code == 201


def test_a_name_means_one_cluster_within_an_organisation(api, register):
    make_tenant("acme/research")
    assert register(api.body()).status_code == 201
    with api_server() as other:
        for tenant in ("acme", "acme/research"):
            answer = register(other.body(tenant=tenant))
            assert (answer.status_code, answer.json()["code"]) == (409, "cluster_name_taken")
    assert other.seen == []


def test_only_who_manages_clusters_may_register_and_nobody_is_called_for_others(api, client):
    manager, stranger = make_user(), make_user()
    bind(manager, "acme", "manager")
    for user, tenant, status in [(manager, None, 403), (manager, "acme", 403), (stranger, "acme", 404)]:
        answer = client.post(
            "/api/v1/clusters", api.body(tenant=tenant), content_type="application/json", headers=bearer(user)
        )
        assert answer.status_code == status
    assert client.post("/api/v1/clusters", api.body(), content_type="application/json").status_code == 401
    assert api.seen == []
    nothing_left_behind()


def test_who_manages_two_organisations_must_say_which(api, register, admin):
    bind(admin, "globex", "admin")
    answer = register(api.body())
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "tenant")
    assert register(api.body(tenant="globex")).json()["tenant"] == "globex"


def test_a_repeated_request_gets_its_first_answer_without_another_probe(api, register):
    first = register(api.body(), **{"Idempotency-Key": "k1"})
    calls = len(api.seen)
    again = register(api.body(), **{"Idempotency-Key": "k1"})
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
    assert again["Idempotent-Replayed"] == "true"
    assert len(api.seen) == calls
    other = register(api.body(name="west"), **{"Idempotency-Key": "k1"})
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": "East_1"}, "name"),
        ({"name": ""}, "name"),
        ({"name": 7}, "name"),
        ({"surprise": 1}, "surprise"),
        ({"driver": "simulated"}, "driver"),
        ({"identity": "x"}, "identity"),
        ({"server": ""}, "server"),
        ({"server": ["https://a"]}, "server"),
        ({"token": None}, "token"),
        ({"token": "two words"}, "token"),
        ({"token": "line\nX-Injected: 1"}, "token"),
        ({"client_certificate_pem": "x", "client_key_pem": "y"}, "token"),
        ({"token": None, "client_certificate_pem": "x"}, "client_key_pem"),
        ({"token": None, "client_certificate_pem": "x", "client_key_pem": "y"}, "client_certificate_pem"),
        ({"ca_pem": "not a certificate"}, "ca_pem"),
        ({"region": "eu west"}, "region"),
        ({"labels": {"a b": "c"}}, "labels"),
        ({"labels": ["a"]}, "labels"),
        ({"kubeconfig": "a: b"}, "server"),
    ],
)
def test_bad_fields_are_named(api, register, changes, field):
    answer = register(api.body(**changes))
    assert answer.status_code == 422, answer.content
    assert answer.json()["code"] == "validation_failed"
    assert field in [error["field"] for error in answer.json()["errors"]]
    assert api.seen == []
    assert AuditEntry.objects.get().outcome == "refused"


def test_a_key_that_belongs_to_another_certificate_is_named(api, register):
    certificate, _ = make_certificate("someone")
    _, key = make_certificate("someone-else")
    answer = register(api.body(token=None, client_certificate_pem=certificate, client_key_pem=key))
    assert answer.json()["errors"][0] == {
        "field": "client_key_pem",
        "code": "key_mismatch",
        "detail": "the key does not belong to the certificate",
    }


def test_a_private_key_among_the_authorities_is_refused_and_not_echoed(api, register):
    certificate, key = make_certificate("someone")
    answer = register(api.body(ca_pem=certificate + key))
    assert answer.json()["errors"][0]["code"] == "private_key_here"
    assert key.splitlines()[1] not in answer.content.decode()
