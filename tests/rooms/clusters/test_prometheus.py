"""The Prometheus of a cluster: who sets it, what is kept of its token, and what the database refuses."""

import logging

import pytest
from django.db import IntegrityError, connection, transaction

from clusters.drivers.resolve import key_ring
from clusters.engine.sealing import CannotUnseal
from clusters.models import ClusterPrometheus
from clusters.operations import remove_cluster
from clusters.operations.rekeying import rekey_credentials
from clusters.operations.telemetry import WantedPrometheus, opened_token, set_prometheus
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM
from tests.builders import bind, make_cluster, make_user
from tests.refusals import constraint_of

pytestmark = pytest.mark.django_db
TOKEN = "canary-5ab1c0.x_~+/=="
URL = "http://127.0.0.1:9090/prom"


@pytest.fixture
def north():
    return make_cluster(name="north")


def person(role="admin", path="acme"):
    user = make_user()
    bind(user, path, role)
    return user


def stored():
    row = ClusterPrometheus.objects.get()
    return row.url, opened_token(row.cluster_id, row.key_id, None if row.sealed is None else bytes(row.sealed))


def put(call, user, cluster, **body):
    return call(user, "put", f"/clusters/{cluster.id}/prometheus", body)


def test_it_is_set_read_changed_and_removed_and_each_is_audited(call, north):
    admin, path = person(), f"/clusters/{north.id}/prometheus"
    assert call(admin, "get", path)[0] == 404
    status, made = put(call, admin, north, url=URL, token=TOKEN)
    assert (status, made["url"], made["has_token"], made["set_by"]) == (200, URL, True, admin.email)
    assert stored() == (URL, TOKEN)
    assert call(admin, "get", path) == (200, made)
    assert put(call, admin, north, url=f"{URL}/x")[1]["has_token"]
    assert stored() == (f"{URL}/x", TOKEN)
    assert not put(call, admin, north, url=URL, token=None)[1]["has_token"]
    assert stored() == (URL, "")
    assert call(admin, "delete", path) == (204, None)
    assert call(admin, "delete", path)[0] == 404
    entries = AuditEntry.objects.filter(action__startswith="prometheus.").order_by("id")
    assert [(entry.action, entry.detail["has_token"]) for entry in entries] == [
        ("prometheus.set", True), ("prometheus.set", True), ("prometheus.set", False), ("prometheus.remove", False),
    ]  # fmt: skip


@pytest.mark.parametrize("url", ["http://127.0.0.1:9091/prom", "http://localhost:9090/prom"])
def test_a_stored_token_does_not_follow_to_another_server(call, north, url):
    admin = person()
    put(call, admin, north, url=URL, token=TOKEN)
    assert put(call, admin, north, url=url)[1]["has_token"] is False
    assert stored() == (url, "")


@pytest.mark.parametrize("role", ["viewer", "finance", "submitter"])
def test_who_does_not_manage_the_cluster_reads_and_changes_nothing(call, north, role):
    put(call, person(), north, url=URL, token=TOKEN)
    other, path = person(role), f"/clusters/{north.id}/prometheus"
    assert call(other, "get", path)[0] == 403
    assert put(call, other, north, url=URL)[0] == 403
    assert call(other, "delete", path)[0] == 403
    stranger = person("admin", "other")
    for verb, body in (("get", None), ("put", {"url": URL}), ("delete", None)):
        assert call(stranger, verb, path, body)[0] == 404
    assert stored() == (URL, TOKEN)


@pytest.mark.parametrize(
    ("body", "field", "code"),
    [
        ({"url": ""}, "url", "blank"),
        ({}, "url", "required"),
        ({"url": "ftp://127.0.0.1:9090"}, "url", "bad_url"),
        ({"url": "https://user:pw@prometheus.example"}, "url", "bad_url"),
        ({"url": "https://prometheus.example/?query=up"}, "url", "bad_url"),
        ({"url": "https://prometheus.example/../x"}, "url", "bad_url"),
        ({"url": "http://0x7f.1:9090"}, "url", "bad_url"),
        ({"url": "https://169.254.169.254/latest"}, "url", "address_not_allowed"),
        ({"url": "http://10.0.0.1:9090"}, "url", "address_not_allowed"),
        ({"url": URL, "token": "a b"}, "token", "bad_format"),
        ({"url": URL, "token": "a\r\nHost: x"}, "token", "bad_format"),
        ({"url": URL, "token": "é"}, "token", "bad_format"),
        ({"url": URL, "token": "a" * 4097}, "token", "bad_format"),
        ({"url": URL, "token": 7}, "token", "invalid"),
        ({"url": URL, "secret": "x"}, "secret", "unknown_field"),
    ],
)
def test_what_is_refused(call, north, body, field, code):
    status, answer = put(call, person(), north, **body)
    assert (status, [(one["field"], one["code"]) for one in answer["errors"]]) == (422, [(field, code)])
    assert "a\r\nHost" not in str(answer)
    assert not ClusterPrometheus.objects.exists()


def test_the_token_is_nowhere_but_sealed(call, client, north, caplog):
    caplog.set_level(logging.DEBUG)
    admin = person()
    put(call, admin, north, url=URL, token=TOKEN)
    put(call, admin, north, url="https://[", token=TOKEN)
    client.force_login(admin)
    page = client.get(f"/clusters/{north.id}/").content.decode()
    posted = client.post(f"/clusters/{north.id}/prometheus/", {"prometheus_url": "x", "prometheus_token": TOKEN})
    assert posted.status_code == 422
    row = ClusterPrometheus.objects.get()
    seen = [
        page,
        posted.content.decode(),
        caplog.text,
        str(list(AuditEntry.objects.values())),
        repr(row),
        bytes(row.sealed).hex(),
    ]
    assert "stored, sealed" in page
    assert not any(TOKEN in text or TOKEN.encode().hex() in text for text in seen)
    assert TOKEN not in repr(WantedPrometheus(URL, TOKEN))


def test_the_page_sets_keeps_and_removes_it(client, north):
    client.force_login(person())
    path = f"/clusters/{north.id}/prometheus/"
    assert client.post(path, {"prometheus_url": URL, "prometheus_token": TOKEN}).status_code == 302
    assert stored() == (URL, TOKEN)
    client.post(path, {"prometheus_url": f"{URL}2", "prometheus_token": ""})
    assert stored() == (f"{URL}2", TOKEN)
    assert client.post(f"{path}remove/").status_code == 302
    assert not ClusterPrometheus.objects.exists()
    client.force_login(person("viewer"))
    assert "GPU utilisation" not in client.get(f"/clusters/{north.id}/").content.decode()
    assert client.post(path, {"prometheus_url": URL}).status_code == 403


def test_a_token_opens_only_for_its_cluster_and_moves_to_a_new_key(north, settings):
    set_prometheus(SYSTEM, north.id, WantedPrometheus(URL, TOKEN))
    row = ClusterPrometheus.objects.get()
    with pytest.raises(CannotUnseal):
        opened_token(make_cluster(name="south").id, row.key_id, bytes(row.sealed))
    settings.KEY_RING = f"new:{'bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmV3bmU='},{settings.KEY_RING}"
    assert key_ring().current == "new"
    moved = rekey_credentials()
    assert (moved.failed, ClusterPrometheus.objects.get().key_id) == ((), "new")
    assert stored() == (URL, TOKEN)


def test_a_removed_cluster_has_none(north):
    set_prometheus(SYSTEM, north.id, WantedPrometheus(URL, TOKEN))
    remove_cluster(SYSTEM, north.id)
    assert not ClusterPrometheus.objects.exists()


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ("url = 'ftp://x'", "prometheus_has_a_plain_url"),
        ("url = 'https://u@x'", "prometheus_has_a_plain_url"),
        ("url = 'https://x?a'", "prometheus_has_a_plain_url"),
        ("key_id = ''", "prometheus_token_is_sealed"),
        ("sealed = NULL", "prometheus_token_is_sealed"),
        ("set_by_name = ''", "prometheus_says_who_set_it"),
    ],
)
def test_raw_sql_cannot_break_it(north, change, constraint):
    set_prometheus(SYSTEM, north.id, WantedPrometheus(URL, TOKEN))
    with pytest.raises(IntegrityError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE clusters_clusterprometheus SET {change}")
    assert constraint_of(refused.value) == constraint
