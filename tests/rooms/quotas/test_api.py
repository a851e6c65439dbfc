import pytest

from quotas.models import QuotaLimit
from quotas.operations import take_holds
from tenancy.models import AuditEntry
from tests.builders import bearer, bind, hold_request, make_cluster, make_limit, make_tenant, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin():
    user = make_user()
    bind(user, "acme", "admin")
    return bearer(user)


def put(client, headers, **fields):
    return client.put(
        "/api/v1/quotas",
        {"tenant": "acme", "resource": "gpu", "nominal": "8", **fields},
        content_type="application/json",
        headers=headers,
    )


def test_a_limit_is_created_then_replaced(client, admin):
    make_cluster(name="north")
    created = put(client, admin, clusters=["north"], nominal="0.5")
    replaced = put(client, admin, clusters=["north"], nominal="16", borrowing_limit=None, lending_limit=None)

    assert (created.status_code, replaced.status_code) == (201, 200)
    assert created.json()["nominal"] == "0.5"
    shown = replaced.json()
    assert (shown["id"], shown["tenant"], shown["nominal"]) == (created.json()["id"], "acme", "16")
    assert (shown["held"], shown["free"], shown["clusters"]) == ("0", "16", ["north"])
    assert (shown["borrowing_limit"], shown["lending_limit"], shown["reclaims"]) == (None, None, False)
    assert put(client, admin, clusters=["north"], reclaims=True).json()["reclaims"]
    assert not put(client, admin, clusters=["north"], nominal="16", borrowing_limit=None).json()["reclaims"]
    shown = client.get(f"/api/v1/quotas/{shown['id']}", headers=admin).json()
    assert client.get(f"/api/v1/quotas/{shown['id']}", headers=admin).json() == shown


@pytest.mark.parametrize(
    ("resource", "nominal", "shown", "stored"),
    [
        ("gpu", "8", "8", 8000),
        ("gpu:H100-80GB", "0.125", "0.125", 125),
        ("cpu", "1500m", "1500m", 1500),
        ("cpu", "64", "64", 64_000),
        ("memory", "256Gi", "256Gi", 262_144),
        ("memory", "1536Mi", "1536Mi", 1536),
        ("memory", "1073741824", "1Gi", 1024),
        ("memory", "0", "0Mi", 0),
    ],
)
def test_amounts_are_kubernetes_quantities_kept_exactly(client, admin, resource, nominal, shown, stored):
    assert put(client, admin, resource=resource, nominal=nominal).json()["nominal"] == shown
    assert QuotaLimit.objects.get().nominal == stored


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"nominal": "0.0001"}, "nominal"),
        ({"nominal": "-1"}, "nominal"),
        ({"nominal": "1 "}, "nominal"),
        ({"nominal": "1e9"}, "nominal"),
        ({"nominal": "8Gi"}, "nominal"),
        ({"nominal": "٨"}, "nominal"),
        ({"nominal": 8}, "nominal"),
        ({"nominal": True}, "nominal"),
        ({"nominal": "99999999999999999"}, "nominal"),
        ({"resource": "memory", "nominal": "1G"}, "nominal"),
        ({"resource": "memory", "nominal": "many"}, "nominal"),
        ({"resource": "disk"}, "resource"),
        ({"resource": "gpu:"}, "resource"),
        ({"resource": "gpu:../x"}, "resource"),
        ({"clusters": ["atlantis"]}, "clusters"),
        ({"clusters": "north"}, "clusters"),
        ({"borrowing_limit": "-4"}, "borrowing_limit"),
        ({"borrowing_limit": 4}, "borrowing_limit"),
        ({"borrowing_limit": "all"}, "borrowing_limit"),
        ({"lending_limit": "0.0001"}, "lending_limit"),
        ({"lending_limit": "99999999999999999"}, "lending_limit"),
        ({"held": "0"}, "held"),
        ({"cap": "100"}, "cap"),
    ],
)
def test_a_senseless_limit_is_refused_with_its_field_and_audited(client, admin, fields, field):
    answer = put(client, admin, **fields)
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]
    assert not QuotaLimit.objects.exists()
    assert AuditEntry.objects.get().outcome == "refused"


def test_a_limit_without_bounds_is_a_plain_ceiling(client, admin):
    shown = put(client, admin).json()
    assert (shown["borrowing_limit"], shown["lending_limit"]) == ("0", None)


def test_what_is_borrowed_lent_and_guaranteed_is_set_and_shown(client, admin):
    put(client, admin)
    put(client, admin, tenant=make_tenant("acme/a").path, nominal="4", borrowing_limit="3")
    created = put(client, admin, tenant=make_tenant("acme/b").path, nominal="4", lending_limit="3")
    take_holds([hold_request("acme/a", {"gpu": 6000})])

    assert created.status_code == 201
    assert AuditEntry.objects.latest("id").detail["lending_limit"] == "3"
    names = ("borrowing_limit", "lending_limit", "held", "borrowed", "lent", "guaranteed", "guaranteed_unused", "free")
    items = client.get("/api/v1/quotas", headers=admin).json()["items"]
    assert {one["tenant"]: [one[name] for name in names] for one in items} == {
        "acme": ["0", None, "7", "0", "0", "0", "0", "1"],
        "acme/a": ["3", None, "6", "2", "0", "0", "0", "1"],
        "acme/b": ["0", "3", "0", "0", "2", "1", "1", "2"],
    }
    (alone,) = client.get("/api/v1/quotas?tenant=acme/b", headers=admin).json()["items"]
    assert alone == next(one for one in items if one["tenant"] == "acme/b")
    assert client.get(f"/api/v1/quotas/{alone['id']}", headers=admin).json() == alone


def test_a_guarantee_that_is_not_free_or_too_large_is_refused(client, admin):
    put(client, admin)
    make_tenant("acme/b")
    take_holds([hold_request("acme/a", {"gpu": 6000})])
    busy = put(client, admin, tenant="acme/b", nominal="4", lending_limit="0")
    too_large = put(client, admin, tenant="acme/b", nominal="9", lending_limit="0")

    assert (busy.status_code, busy.json()["code"]) == (409, "guarantee_not_free")
    assert "hold all but 2 of the limit of acme" in busy.json()["detail"]
    assert (too_large.status_code, too_large.json()["errors"][0]["code"]) == (422, "guarantees_too_much")
    assert QuotaLimit.objects.count() == 1


def test_what_is_held_is_shown(client, admin):
    make_limit("acme", nominal="8")
    take_holds([hold_request("acme/research", {"gpu": 2500})])
    (shown,) = client.get("/api/v1/quotas", headers=admin).json()["items"]
    assert (shown["held"], shown["free"]) == ("2.5", "5.5")


def test_limits_are_filtered_by_tenant_with_all_below_and_by_resource(client, admin):
    for path, resource in (
        ("acme", "gpu"),
        ("acme/research", "gpu"),
        ("acme/research/vision", "cpu"),
        ("acme/sales", "gpu"),
    ):
        make_limit(path, resource)
    make_limit("other")

    def seen(**query):
        items = client.get("/api/v1/quotas", query, headers=admin).json()["items"]
        return [(item["tenant"], item["resource"]) for item in items]

    assert len(seen()) == 4
    assert seen(tenant="acme/research") == [("acme/research", "gpu"), ("acme/research/vision", "cpu")]
    assert seen(tenant="acme/research", resource="cpu") == [("acme/research/vision", "cpu")]


def test_limits_come_in_pages(client, admin):
    for number in range(5):
        make_limit(f"acme/team-{number}")
    first = client.get("/api/v1/quotas", {"limit": 3}, headers=admin).json()
    second = client.get("/api/v1/quotas", {"limit": 3, "cursor": first["next"]}, headers=admin).json()
    assert [item["tenant"] for item in first["items"] + second["items"]] == [f"acme/team-{n}" for n in range(5)]
    assert second["next"] is None


def test_a_limit_is_deleted(client, admin):
    limit = make_limit("acme")
    assert client.delete(f"/api/v1/quotas/{limit.id}", headers=admin).status_code == 204
    assert client.get(f"/api/v1/quotas/{limit.id}", headers=admin).status_code == 404
    assert client.delete(f"/api/v1/quotas/{limit.id}", headers=admin).status_code == 404


def test_a_foreign_limit_looks_absent(client):
    make_tenant("acme")
    limit = make_limit("acme")
    stranger = make_user()
    bind(stranger, "other", "admin")
    headers = bearer(stranger)
    answers = [
        client.get(f"/api/v1/quotas/{limit.id}", headers=headers),
        client.delete(f"/api/v1/quotas/{limit.id}", headers=headers),
        client.get("/api/v1/quotas", {"tenant": "acme"}, headers=headers),
        put(client, headers),
    ]
    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(404, "not_found")] * 4
    assert client.get("/api/v1/quotas", headers=headers).json()["items"] == []


def test_a_viewer_sees_limits_and_cannot_change_them(client):
    viewer = make_user()
    bind(viewer, "acme", "viewer")
    limit = make_limit("acme")
    headers = bearer(viewer)
    assert client.get(f"/api/v1/quotas/{limit.id}", headers=headers).status_code == 200
    assert put(client, headers).status_code == 403
    assert client.delete(f"/api/v1/quotas/{limit.id}", headers=headers).status_code == 403
    limit.refresh_from_db()
    assert limit.nominal == 8000
